//! The kinds of events, each with what it means and an example of its message.

/// A kind of event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventKind {
    /// Its name, as `interlock events` lists it.
    pub kind: &'static str,
    /// What happened.
    pub meaning: &'static str,
    /// A message as it is written.
    pub example: &'static str,
}

const fn event(kind: &'static str, meaning: &'static str, example: &'static str) -> EventKind {
    EventKind { kind, meaning, example }
}

/// The kinds of events that the store keeps, by what they are about.
pub const EVENTS: &[EventKind] = &[
    // Slots.
    event(
        "SLOT_OPENED",
        "A slot was opened: its run is due, asked for, or caught up.",
        "due by its schedule",
    ),
    event(
        "SLOTS_OPENED",
        "Many slots in a row were opened together.",
        "24 slots from 2026-02-24T09:00:00Z to 2026-02-25T08:00:00Z",
    ),
    event(
        "CATCHUP_QUEUED",
        "Missed slots were opened for catch-up.",
        "3 slots of daily from 2026-02-22T09:00:00Z to 2026-02-24T09:00:00Z were missed and are caught up",
    ),
    event(
        "CATCHUP_PLANNED",
        "The catch-up policy decided about missed slots.",
        "3 slots missed: 1 run (latest); skipped: 2 superseded",
    ),
    event(
        "SLOT_SKIPPED",
        "A slot was closed without a run; the reason is in the message.",
        "the run before it was still going",
    ),
    event(
        "SLOTS_SKIPPED",
        "Many slots were closed without a run, for one reason.",
        "3 slots of daily from 2026-02-22T09:00:00Z to 2026-02-24T09:00:00Z were missed and are not run (paused)",
    ),
    event(
        "SLOTS_MISSED",
        "Many missed slots are not run; there is no alert about each.",
        "daily/2026-02-24T09:00:00Z was missed and is not run (no_catchup)",
    ),
    event("SLOT_CANCELLED", "An operator ended a slot before it ran or while it ran.", "wrong day"),
    event(
        "DRY_RUN_WOULD_TRIGGER",
        "A pipeline in dry run would have started its job now.",
        "dry run: nothing is started",
    ),
    event(
        "STOP_FIRED",
        "A stop schedule ended a run.",
        "it ends orders~daily~20260225T090000Z~1~1",
    ),
    event(
        "STOP_SKIPPED",
        "A stop schedule came due and had nothing to end.",
        "nothing ran that it could end",
    ),
    event(
        "RESTART_FIRED",
        "A restart schedule ended a run and started a new one.",
        "it ends orders~daily~20260225T090000Z~1~1",
    ),
    event(
        "RESTART_SKIPPED",
        "A restart schedule came due and had nothing to restart.",
        "the pipeline is paused",
    ),
    // Runs.
    event(
        "JOB_TRIGGERED",
        "Interlock starts a job; the message names the attempt and what asked for it.",
        "attempt 1, scheduler",
    ),
    event("JOB_STARTED", "A watch-only job reported its start.", "the job reported its start"),
    event("JOB_LOGGED", "A watch-only job sent a log line.", "the job sent a log line"),
    event("STEP_CHANGED", "A step of a job changed its state.", "step 2 FAILED"),
    event("JOB_COMPLETED", "The job succeeded.", "the job succeeded"),
    event("JOB_FAILED", "An attempt failed; the message says why.", "the job exited with 1"),
    event(
        "JOB_CANCELLED",
        "The job was ended on request.",
        "ended before its job started: wrong day",
    ),
    event("RETRY_SCHEDULED", "Another attempt will be made.", "attempt 2 at 2026-02-25T09:02:00Z"),
    event(
        "RETRY_EXHAUSTED",
        "The slot failed: no further attempt is made.",
        "all 3 attempts are used up",
    ),
    event(
        "SFN_TIMEOUT",
        "The job did not end in the time that it may take, and its slot is closed as failed.",
        "step function timed out for orders/daily/2026-02-25",
    ),
    event(
        "RUN_STUCK",
        "A run has been going for longer than the stuck limit; it goes on.",
        "run stuck in RUNNING for 45m0s on 2026-02-25",
    ),
    event(
        "RUN_UNCERTAIN",
        "Interlock lost sight of a job and cannot tell whether it runs or how it ended.",
        "its host batch-2 is gone; should it not return, `interlock complete orders~daily~20260225T090000Z~1~1 --failed` (or `--success`) goes on without it",
    ),
    event("RUN_FOUND", "A job whose outcome was not known was found.", "its job was found running"),
    event("CANCEL_REQUESTED", "Interlock asked a job to end.", "wrong day"),
    event(
        "CANCEL_REFUSED",
        "The system that runs the job did not end it.",
        "the job cannot be ended from here: it is watch-only",
    ),
    // Readiness, data and SLAs.
    event(
        "VALIDATION_EXHAUSTED",
        "The slot was not ready in its time and is skipped.",
        "it was not ready in time",
    ),
    event("SENSOR_REPORTED", "A sensor was reported; the message is its key.", "orders-ready"),
    event(
        "SENSOR_ARRIVED",
        "The sensor that a waiting slot needs was reported.",
        "sensor orders-ready arrived",
    ),
    event(
        "SENSOR_OUTDATED",
        "A report about a sensor was older than the one already here, and changed nothing.",
        "orders-ready: ignored, a newer report is already here",
    ),
    event(
        "SENSOR_CUT_OFF",
        "A report concerns more slots than one report may; only the first were looked at.",
        "orders-ready: it concerns 1200 slots, more than one report may; the rest is left out",
    ),
    event(
        "SENSOR_UNPLACED",
        "A report does not say for which period it is.",
        "orders-ready: daily cannot tell which period the report is about: the sensor names an hour but no date",
    ),
    event(
        "SENSOR_TOO_OLD",
        "A report is about a slot that the ledger no longer keeps.",
        "orders-ready: the slot of daily is older than the ledger keeps",
    ),
    event(
        "SENSOR_DEADLINE_EXPIRED",
        "A slot that a sensor opens got no report by its deadline, and is skipped.",
        "trigger window of orders closed: no sensor by deadline 09:20 on 2026-02-25",
    ),
    event(
        "PIPELINE_EXCLUDED",
        "A report came for a day that the calendar leaves out; nothing runs.",
        "orders-ready: daily has no slot for 2026-12-25",
    ),
    event(
        "LATE_DATA_ARRIVAL",
        "New data arrived after the slot completed; it runs again if its budget allows.",
        "orders-ready",
    ),
    event("DRY_RUN_LATE_DATA", "The same in a pipeline in dry run: nothing runs.", "orders-ready"),
    event(
        "POST_RUN_BASELINE_CAPTURED",
        "The values of the postRun sensors at the end of the job were kept, to notice drift.",
        "recorded what the postRun sensors say at the end of the job",
    ),
    event("POST_RUN_PASSED", "The result of a run passes the postRun rules.", "rows"),
    event("POST_RUN_FAILED", "The result of a run does not pass the postRun rules.", "rows"),
    event(
        "POST_RUN_SENSOR_MISSING",
        "No report about the result of a run arrived in time.",
        "post-run sensor not received within 2h of completion",
    ),
    event(
        "POST_RUN_SENSORS_ARRIVED",
        "All reports about the result arrived, after they were called missing.",
        "rows: all post-run sensors have arrived",
    ),
    event(
        "POST_RUN_DRIFT",
        "Data changed after the run; the slot runs again if its budget allows.",
        "rows: 1200 was 1100",
    ),
    event("POST_RUN_DRIFT_INFLIGHT", "Data changed while the job ran.", "rows: 1200 was 1100"),
    event(
        "DRY_RUN_DRIFT",
        "Data changed after the run, in a pipeline in dry run: nothing runs.",
        "rows: 1200 was 1100",
    ),
    event(
        "MONITORING_STARTED",
        "The job succeeded and its data is watched for a while.",
        "until 2026-02-25T11:00:00Z",
    ),
    event("MONITORING_COMPLETED", "The data stayed as it was; the slot is completed.", "completed"),
    event(
        "MONITORING_DRIFT_DETECTED",
        "The data changed while it was watched; the slot runs again if its budget allows.",
        "its data changed: it is no longer ready",
    ),
    event("RERUN_ACCEPTED", "A closed slot was opened again.", "late-data, generation 2"),
    event(
        "RERUN_REJECTED",
        "A slot was to run again and may not.",
        "all 1 reruns for late data and drift are used up (`maxDriftReruns`)",
    ),
    event(
        "SLA_WARNING",
        "A slot may not complete in time.",
        "orders must complete within 5m0s, by 2026-02-25T10:00:00Z, and is running",
    ),
    event(
        "SLA_BREACH",
        "A slot was not evaluated or completed in time.",
        "orders did not complete by 2026-02-25T10:00:00Z: running",
    ),
    event("SLA_MET", "A slot completed in time.", "orders completed before 2026-02-25T10:00:00Z"),
    event(
        "RELATIVE_SLA_WARNING",
        "A slot may take longer than `maxDuration`, counted from its first sensor.",
        "orders must complete within 5m0s, by 2026-02-25T10:00:00Z, and is running",
    ),
    event(
        "RELATIVE_SLA_BREACH",
        "A slot took longer than `maxDuration`, counted from its first sensor.",
        "orders did not complete by 2026-02-25T10:00:00Z: running",
    ),
    // Absence.
    event(
        "SCHEDULE_MISSED",
        "A slot did not run by its deadline.",
        "missed schedule for orders on 2026-02-25",
    ),
    event(
        "IRREGULAR_SCHEDULE_MISSED",
        "A listed date did not run by its deadline.",
        "missed schedule for orders on 2026-02-25",
    ),
    event(
        "SCHEDULE_UNKNOWN",
        "Interlock could not see whether a slot ran.",
        "cannot tell whether orders ran on 2026-02-25: reports could not arrive from 2026-02-25T04:10:00Z to 2026-02-25T05:02:00Z",
    ),
    event(
        "TRIGGER_RECOVERED",
        "A sensor was reported but had opened no slot; the watchdog opened it.",
        "sensor orders-ready arrived but no slot was opened; opened daily/2026-02-25T09:00:00Z now",
    ),
    event(
        "REPORT_EXTRA",
        "A watch-only job sent a report that fits no open run; it changed nothing.",
        "the job reported success, but its slot is completed",
    ),
    event(
        "REPORT_REJECTED",
        "A report could be placed nowhere; it is kept here.",
        "there is no pipeline `orders`",
    ),
    event(
        "JOB_NOT_WATCHED",
        "A job reports to a pipeline that does not take reports.",
        "orders is disabled, or has no trigger",
    ),
    // Pipelines and backfills.
    event(
        "PIPELINE_DECLARED",
        "A pipeline was seen for the first time, or came back.",
        "version f525d52c3d771f50",
    ),
    event("PIPELINE_CHANGED", "The declaration of a pipeline changed.", "version f525d52c3d771f50"),
    event(
        "PIPELINE_RETIRED",
        "The file of a pipeline is gone; nothing of it runs any more.",
        "its file is gone",
    ),
    event(
        "PIPELINE_PAUSED",
        "A pipeline was paused; the message is the reason. The watchdog says so again when a pause without an end lasts long.",
        "paused for 26h0m0s, since 2026-02-24T07:00:00Z: migration",
    ),
    event("PIPELINE_RESUMED", "A pipeline was resumed.", "paused since 2026-02-24T07:00:00Z"),
    event(
        "PIPELINE_SET_ASIDE",
        "Rows or the declaration of a pipeline cannot be used: it is in quarantine, all others go on.",
        "cannot load the pipeline definition: the ledger does not have its version f525d52c3d771f50",
    ),
    event("PIPELINE_TAKEN_BACK", "A pipeline left the quarantine.", "it can be planned again"),
    event(
        "BACKFILL_STARTED",
        "A backfill was started.",
        "backfill 1: 4 slots from 2026-02-21T00:00:00Z to 2026-02-25T00:00:00Z, missing",
    ),
    event("BACKFILL_PAUSED", "A backfill was paused.", "backfill 1: paused"),
    event("BACKFILL_RESUMED", "A backfill goes on.", "backfill 1: resumed"),
    event(
        "BACKFILL_DONE",
        "All slots of a backfill ended.",
        "backfill 1: 4 slots, 3 completed, 1 failed, 0 cancelled, 0 skipped",
    ),
    event("BACKFILL_CANCELLED", "A backfill was cancelled.", "backfill 1: its pipeline is gone"),
    // Incidents, alerts and settings.
    event("INCIDENT_ACKNOWLEDGED", "An operator looks at an incident.", "by ann"),
    event("INCIDENT_NOTED", "An operator wrote a note about an incident.", "by ann"),
    event("INCIDENT_RESOLVED", "An operator closed an incident.", "by ann"),
    event(
        "ALERT_SENT_AGAIN",
        "An alert that was given up is sent again.",
        "the alert for slack is sent again",
    ),
    event("SILENCE_ADDED", "A silence was added.", "ann added the silence s1"),
    event("SILENCE_REMOVED", "A silence was removed.", "ann removed the silence s1"),
    event("TOKEN_CREATED", "A token was made.", "ann made the token 4fd1"),
    event("TOKEN_REVOKED", "A token was revoked.", "ann ended the token 4fd1"),
    event("BARKS_ORDERED", "A regular test alert was ordered.", "ann made the barks standing"),
    event("BARKS_ENDED", "The regular test alert was ended.", "ann ended the barks standing"),
    event(
        "BARK",
        "A test alert is sent through every channel that takes misses.",
        "ann sent a test alert; nothing is wrong, nothing to do",
    ),
    event(
        "BARK_HEARD",
        "The test alert reached every channel.",
        "the test alert reached every channel that takes misses",
    ),
    event(
        "BARK_LOST",
        "The test alert did not reach every channel.",
        "the test alert did not arrive within five minutes on slack",
    ),
    event(
        "REQUEST_ACCEPTED",
        "A request of an operator or a program was accepted.",
        "requested by ann",
    ),
    event(
        "REQUEST_REJECTED",
        "A request can never be carried out; nothing was changed.",
        "the store cannot store it, now or later",
    ),
    event(
        "FILES_DECLARED",
        "An instance says which pipelines its files declare.",
        "host-a declares 12 pipelines",
    ),
    event(
        "FILES_FORGOTTEN",
        "What an instance said of its files was taken back.",
        "host-a ended the files host-a",
    ),
    // Interlock itself.
    event(
        "CONFIG_BROKEN",
        "A file cannot be read; the last good version stays in force.",
        "line 3: `schedul` is not a key of a pipeline",
    ),
    event(
        "CONFIG_RESTORED",
        "The file can be read again.",
        "pipelines/orders.yaml can be read again",
    ),
    event(
        "WATCHDOG_STARTED",
        "A watchdog begins to judge.",
        "no watchdog was running since 2026-02-25T04:10:00Z",
    ),
    event(
        "WATCHDOG_DEGRADED",
        "The watchdog cannot carry out some of its checks.",
        "watchdog checks failed: stale-triggers, sla-scheduling",
    ),
    event("WATCHDOG_RECOVERED", "All checks work again.", "all watchdog checks work again"),
    event(
        "CLOCK_JUMP",
        "The clock of a host jumped forward: nothing is planned by it until it is trusted.",
        "it went 3h forward while no time passed; planning goes on when the time has held for 5 minutes or has gone back, or when an operator acknowledges this incident",
    ),
    event("CLOCK_STEADY", "The clock is trusted again.", "the clock is trusted again"),
    event(
        "CLOCK_SKEW",
        "The clocks of a host and of the store disagree by seconds.",
        "they differ by 4200 ms",
    ),
    event("CLOCKS_AGREE", "They agree again.", "they differ by 12 ms"),
    event(
        "INVARIANT_BROKEN",
        "The ledger breaks a rule that must always hold.",
        "the slot of 2026-02-25T09:00:00Z was due and is not recorded",
    ),
    event("INVARIANT_HOLDS", "The rule holds again.", "it holds again"),
    event(
        "HTTP_UNREACHABLE",
        "The HTTP interface of an instance does not answer.",
        "127.0.0.1:8420 does not answer: no answer in 5 s",
    ),
    event("HTTP_REACHABLE", "It answers again.", "jobs can report over HTTP again"),
    event(
        "CERTIFICATE_UNUSABLE",
        "The certificate of `server.tls` cannot be used, or it ends soon.",
        "the certificate of `server.tls` ends at 2026-03-01T00:00:00Z",
    ),
    event("CERTIFICATE_USABLE", "It can be used again.", "it can be used"),
    event(
        "ARCHIVE_BEHIND",
        "The archive in PostgreSQL does not take history.",
        "nothing was archived for 900 s: is a process with the role `archiver` running? (One that reads a large store for the first time is not seen from another process)",
    ),
    event("ARCHIVE_CURRENT", "It takes history again.", "it has everything again"),
    event(
        "INSTANCE_GONE",
        "An instance died.",
        "no sign of life for 30 s; the other instances run its pipelines, and its jobs are uncertain until it is back. Start it again, or resolve this incident if it will not return",
    ),
    event("INSTANCE_BACK", "It is back.", "it was started again"),
    event(
        "STORE_UNSAFE",
        "The store's server is set up so that it may lose writes.",
        "this Redis has `appendfsync everysec`: a failing machine forgets what was acknowledged last; `always` does not",
    ),
    event("STORE_SAFE", "It is set up safely now.", "its server is set up to keep every write now"),
    event(
        "STORE_ROLLBACK",
        "The store lost writes that it had acknowledged.",
        "redis 127.0.0.1:6379 is another store than the one that was served here last (it was 3f1c): what was recorded there is not here",
    ),
    event(
        "STORE_RECOVERED",
        "A damaged ledger was replaced by what could be read of it.",
        "117 rows were taken over into a new ledger, lost: 2 pages of `slots`. Slots up to 2026-02-25T09:00:00Z that are not recorded are `unknown` and do not run by themselves: `interlock slots --disposition unknown` lists them, `interlock backfill start` runs them",
    ),
    event(
        "STORE_WAS_UNREACHABLE",
        "The store did not answer for a while; alerts were sent without it.",
        "the store: it has accepted no write for 60 s; it began at 2026-02-25T09:00:00Z, and alerts were sent without the store",
    ),
    event(
        "LOOP_WAS_LATE",
        "A loop made no progress for a while.",
        "the loop `engine` has made no progress for 45 s; it began at 2026-02-25T09:00:00Z, and alerts were sent without the store",
    ),
    event(
        "FILES_DIFFER",
        "Instances read different files.",
        "not the same everywhere: orders; the owner of a pipeline's shard goes by its own files. Give all instances the same files (and zone data), and each project a prefix or schema of its own",
    ),
    event(
        "FILES_AGREE",
        "All instances read the same files.",
        "all instances that are up have the same files",
    ),
    event(
        "PROCESS_HUNG",
        "A process made no progress and was ended.",
        "the loop `engine` made no progress; where it hung is in reports/hang-1.txt",
    ),
    event("PROCESS_DIED", "A supervised program died and was started again.", "exit code 1"),
    event("PROCESS_GIVEN_UP", "A supervised program died too often and stays down.", "exit code 1"),
    event(
        "PROCESS_WELL",
        "The process has been up and well for a while.",
        "it has not hung again for 10 minutes",
    ),
];

/// The kinds of events that only the log has.
pub const LOG_EVENTS: &[EventKind] = &[
    event(
        "CATCHUP_BEGINS",
        "Catch-up after a downtime begins.",
        "catch-up begins: 12000 missed slots from 2026-02-24T09:00:00Z to 2026-02-25T09:00:00Z, too many to count before they are recorded",
    ),
    event(
        "CATCHUP_PROGRESS",
        "How much of the catch-up is recorded or run.",
        "catch-up: 5000 of the 12000 are recorded so far",
    ),
    event(
        "CATCHUP_SUMMARY",
        "What the catch-up policy decided, over all pipelines.",
        "catch-up: 12 missed slots from 2026-02-24T09:00:00Z to 2026-02-25T09:00:00Z: 3 to run, 9 skipped",
    ),
    event("CATCHUP_GOES_ON", "How much is left to run.", "catch-up goes on: 2 of 3 left"),
    event(
        "CATCHUP_DONE",
        "All slots of a catch-up ended.",
        "catch-up is done: 12 missed slots: 3 completed, 0 failed, 0 cancelled, 9 skipped, in 5m 12s",
    ),
    event(
        "FILES_READ",
        "The files were read again; fields count what changed and how many errors there are.",
        "the files were read again: 1 changed, no problems",
    ),
    event(
        "CHANNELS_READ",
        "The alert channels were read again.",
        "the alert channels were read again",
    ),
    event(
        "STANDING_BY",
        "A process waits until it may write the ledger.",
        "interlock serve (process 4711) has the ledger; this process watches when it is free",
    ),
];
