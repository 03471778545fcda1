//! What each kind of incident means, what to look at, and what to do.

/// The runbook of a kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Runbook {
    /// The event that opens the incident, or the type of an alert that belongs to no incident.
    pub kind: &'static str,
    /// What it means.
    pub means: &'static str,
    /// What to look at.
    pub look: &'static str,
    /// What to do: one sentence, which alerts say.
    pub act: &'static str,
    /// An alert as it is sent, where its sentence is not made of the kind's own words and the event's message.
    pub alert: Option<&'static str>,
}

const fn about(kind: &'static str, means: &'static str) -> Runbook {
    Runbook { kind, means, look: "", act: "", alert: None }
}

impl Runbook {
    const fn look(self, look: &'static str) -> Self {
        Self { look, ..self }
    }

    const fn act(self, act: &'static str) -> Self {
        Self { act, ..self }
    }

    const fn alert(self, alert: &'static str) -> Self {
        Self { alert: Some(alert), ..self }
    }
}

/// Of the kinds of events that open incidents.
pub const RUNBOOKS: &[Runbook] = &[
    about(
        "RETRY_EXHAUSTED",
        "The job failed and is not tried again: its attempts are used up, or the failure is permanent. The slot is `failed`; later slots run as usual.",
    )
    .look("`interlock why PIPELINE SLOT` has each attempt and its reason; `interlock logs RUN` has what the job printed.")
    .act("Read the job's log (`interlock logs`), mend the cause, then run the slot again with `interlock rerun`."),
    about(
        "SFN_TIMEOUT",
        "The job did not end in the time that it may take. Its slot is `failed`; Interlock has asked a job of its own to end.",
    )
    .look("`interlock runs --pipeline PIPELINE` shows whether it still runs; `interlock logs RUN` shows where it stopped.")
    .act("Find out why the job did not end, then run the slot again with `interlock rerun`.")
    .alert("Pipeline orders schedule daily did not end in time on 2026-02-25; its slot is closed as failed"),
    about(
        "RUN_UNCERTAIN",
        "Interlock started a job and cannot see it: its host is gone, or the system that runs it does not answer. The job may still run. Its slot keeps its place, so that it does not run twice.",
    )
    .look("Look on the host, or in the system that runs the job, whether it runs or how it ended.")
    .act("Find out how the job ended and say so with `interlock complete RUN --success` or `--failed`."),
    about(
        "VALIDATION_EXHAUSTED",
        "The slot was not ready in its evaluation time: a sensor, trait or upstream was missing or said no. It is skipped and did not run.",
    )
    .look("`interlock explain PIPELINE SLOT` says rule by rule what was missing, with the values seen.")
    .act("Find out why the data is late, then run the slot with `interlock rerun` when it is there.")
    .alert("Pipeline orders schedule daily was not ready in time on 2026-02-25: sensor `orders-ready` has not been reported"),
    about(
        "SCHEDULE_MISSED",
        "A slot did not run by its deadline. If Interlock runs the job: Interlock was down, or the slot waited too long for its data or its turn. If the pipeline is watch-only: no report arrived although reports could.",
    )
    .look("`interlock why PIPELINE SLOT` for the slot, `interlock doctor` for Interlock itself; for a watch-only pipeline the scheduler that runs the job.")
    .act("Run `interlock why` for the slot, and `interlock run --slot` if it should still run.")
    .alert("Pipeline orders schedule daily missed: no evaluation started by deadline 09:20 on 2026-02-25"),
    about(
        "IRREGULAR_SCHEDULE_MISSED",
        "A date that the schedule lists did not run by its deadline. There is no next slot soon that would make up for it.",
    )
    .look("`interlock why PIPELINE SLOT`, and `interlock doctor` for Interlock itself.")
    .act("Run `interlock why` for the slot, and `interlock run --slot` if it should still run.")
    .alert("Pipeline closing schedule quarter missed: no report by deadline 18:00 on 2026-03-31"),
    about(
        "SCHEDULE_UNKNOWN",
        "Interlock could not see whether the job ran: it was down, or its HTTP interface could not be reached, so a report could not arrive. The job may well have run.",
    )
    .look("The system that runs the job; `interlock events _system` says when and why Interlock could not see.")
    .act("Check in the system that runs the job whether it ran; `interlock complete` records what you find.")
    .alert("Pipeline backup schedule nightly may have been missed: no report within 5m0s of 2026-02-25T04:30:00Z on 2026-02-25, but reports could not arrive from 2026-02-25T04:10:00Z to 2026-02-25T05:02:00Z"),
    about(
        "CONFIG_BROKEN",
        "A file of the project cannot be read any more. What was loaded before stays in force, so an edit in it has no effect yet.",
    )
    .look("`interlock validate` names the line and what is wrong in it.")
    .act("Run `interlock validate` and mend the file; it is read again within a second."),
    about(
        "RUN_STUCK",
        "A run has been going for longer than the stuck limit. It goes on unless the pipeline says otherwise (`stuck.action`).",
    )
    .look("`interlock logs RUN` for what it does; `interlock runs --pipeline PIPELINE` for how long it usually takes.")
    .act("Read its log (`interlock logs`), or end it with `interlock cancel`.")
    .alert("Pipeline orders schedule daily run stuck in RUNNING for 45m0s on 2026-02-25"),
    about(
        "SLA_WARNING",
        "The slot will probably not complete by its SLA. Nothing is late yet.",
    )
    .look("`interlock why PIPELINE SLOT`: what it waits for, or how far its run is.")
    .act("Run `interlock why` for the slot and clear what it waits for.")
    .alert("Pipeline orders schedule daily must complete within 5m0s, by 2026-02-25T10:00:00Z, and is running"),
    about(
        "SLA_BREACH",
        "The slot was not evaluated or completed by its SLA. It goes on: a deadline alarms and does not end anything.",
    )
    .look("`interlock why PIPELINE SLOT`: what it waited for, and how far its run is.")
    .act("Run `interlock why` for the slot, and tell the people who wait for its data.")
    .alert("Pipeline orders schedule daily did not complete by 2026-02-25T10:00:00Z: running"),
    about(
        "RELATIVE_SLA_WARNING",
        "The slot will probably take longer than `maxDuration`, counted from its first sensor.",
    )
    .look("`interlock why PIPELINE SLOT`: what it waits for, or how far its run is.")
    .act("Run `interlock why` for the slot and clear what it waits for.")
    .alert("Pipeline orders schedule daily must complete within 5m0s, by 2026-02-25T10:00:00Z, and is running"),
    about(
        "RELATIVE_SLA_BREACH",
        "The slot took longer than `maxDuration`, counted from its first sensor. It goes on.",
    )
    .look("`interlock why PIPELINE SLOT`: what it waited for, and how long its run took.")
    .act("Run `interlock why` for the slot, and tell the people who wait for its data.")
    .alert("Pipeline orders schedule daily did not complete by 2026-02-25T10:00:00Z: running"),
    about(
        "SENSOR_DEADLINE_EXPIRED",
        "The sensor that opens the slot was not reported by its deadline. The slot is skipped; data that arrives later starts nothing.",
    )
    .look("The system that reports the sensor; `interlock sensor list PIPELINE` shows the last reports.")
    .act("Find out why the sensor was not reported; when the data is there, run the slot with `interlock run --slot`.")
    .alert("Pipeline orders schedule daily: no sensor by deadline 09:20 on 2026-02-25"),
    about(
        "POST_RUN_SENSOR_MISSING",
        "The job succeeded, but a report that says whether its result is good did not arrive in time.",
    )
    .look("The system that reports the postRun sensors; `interlock sensor list PIPELINE` shows the last reports.")
    .act("Check the result of the run by hand, and why its report did not arrive.")
    .alert("Pipeline orders schedule daily on 2026-02-25: post-run sensor not received within 2h of completion (rows)"),
    about(
        "POST_RUN_FAILED",
        "The job succeeded, but its result does not pass the postRun rules. Pipelines that depend on it may have used it already.",
    )
    .look("The alert names the rule and the value; `interlock why PIPELINE SLOT` has all of them.")
    .act("Look at the data, then run the slot again with `interlock rerun --reason 'bad result'`.")
    .alert("Pipeline orders schedule daily on 2026-02-25: completed, but its result fails the postRun rules: rows gt 0, 0 gt 0 is false"),
    about(
        "REPORT_EXTRA",
        "A watch-only job sent a report that fits no open run: it ran twice, or two jobs report under one name. The report changed nothing.",
    )
    .look("`interlock events PIPELINE` shows the reports and who sent them.")
    .act("Check whether the job ran twice, and give each run its own `rid`."),
    about(
        "JOB_NOT_WATCHED",
        "A job reports to a pipeline that is disabled, has no trigger, or lost its file. If the job stops, nothing will say so.",
    )
    .look("`interlock events PIPELINE --rejected` has the reports.")
    .act("Enable the pipeline or restore its file, or stop the job from reporting."),
    about(
        "TRIGGER_RECOVERED",
        "A sensor was reported but had opened no slot, for instance because Interlock was down. The watchdog opened the slot; it runs late.",
    )
    .look("`interlock why PIPELINE SLOT` for the slot, `interlock events _system` for what happened before.")
    .act("Nothing is lost; check with `interlock doctor` why the slot was opened late.")
    .alert("Pipeline orders: sensor orders-ready arrived but no slot was opened; opened daily/2026-02-25T09:00:00Z now"),
    about(
        "PIPELINE_PAUSED",
        "A pipeline has been paused for long and no end is set. Its slots are not run.",
    )
    .look("`interlock status` shows who paused it and why; `interlock resume PIPELINE` shows what was missed and asks.")
    .act("Resume it with `interlock resume`, or give the pause an end (`interlock pause --until`).")
    .alert("Pipeline orders has been paused for 26h0m0s, since 2026-02-24T07:00:00Z: migration"),
    about(
        "WATCHDOG_DEGRADED",
        "The watchdog cannot carry out some of its checks. A miss may not be noticed until it can.",
    )
    .look("The incident names the checks and their errors; `interlock doctor` looks at the store.")
    .act("Run `interlock doctor` and mend the store or the host it names."),
    about(
        "PIPELINE_SET_ASIDE",
        "Rows or the declaration of a pipeline cannot be used. It is in quarantine: nothing of it is planned. All other pipelines go on, and Interlock tries this one again with growing pauses.",
    )
    .look("The incident says what cannot be read; `interlock doctor` and `interlock store check` look closer.")
    .act("Run `interlock doctor`; if it finds nothing to mend, keep a copy of the ledger and report a bug."),
    about(
        "CLOCK_JUMP",
        "The clock of a host jumped forward. Interlock plans nothing by it, because slots of the future would run now.",
    )
    .look("The host's clock and its NTP service.")
    .act("Set the clock right if it is wrong; acknowledge this incident if it is right (`interlock incidents ack`)."),
    about(
        "CLOCK_SKEW",
        "The clocks of a host and of the store disagree by seconds. If they drift further, `serve` ends on that host.",
    )
    .look("NTP on the host and on the store's server.")
    .act("Set both clocks right with NTP."),
    about(
        "INVARIANT_BROKEN",
        "The ledger holds something that must never be. This is a bug in Interlock, or the store was changed by other means.",
    )
    .look("`interlock doctor` lists what it finds; `interlock events PIPELINE` what happened before.")
    .act("Keep a copy of the ledger (`interlock store backup`) and report a bug."),
    about(
        "BARK_LOST",
        "The test alert did not reach every channel that takes misses. A real miss would not reach it either.",
    )
    .look("`interlock incidents dead` says which channel failed and why.")
    .act("Mend the channel that `interlock incidents dead` names, then try again with `interlock bark`."),
    about(
        "HTTP_UNREACHABLE",
        "The HTTP interface of an instance does not answer. Watch-only jobs cannot report to it; their slots become `unknown`.",
    )
    .look("Whether another process has the address; `interlock doctor --live` asks the running process.")
    .act("Free the address or write another `server.addr`; if the process hangs, start it again."),
    about(
        "CERTIFICATE_UNUSABLE",
        "The certificate of `server.tls` ends soon or has ended, or its files changed and cannot be used. The old certificate stays in force; \
         clients turn away from one that has ended.",
    )
    .look("The files of `server.tls`, and the reason in the message; `interlock doctor` reads them, too.")
    .act("Put a valid certificate and its key in place; `serve` takes them up within a second, without a restart."),
    about(
        "ARCHIVE_BEHIND",
        "History does not reach the archive in PostgreSQL. Nothing is lost: the store keeps it meanwhile, and grows.",
    )
    .look("The archive's database, and whether a process with the role `archiver` runs.")
    .act("Start a process with the role `archiver`, or mend the database that the message names."),
    about(
        "INSTANCE_GONE",
        "An instance died. The others run its pipelines; jobs on its host are uncertain until it is back.",
    )
    .look("The host and the log of the instance.")
    .act("Start the instance again, or resolve this incident if it will not return."),
    about(
        "STORE_UNSAFE",
        "The store's server may lose writes that it has acknowledged: a setting, or two primaries at once.",
    )
    .look("The message names the setting or the servers.")
    .act("Change the setting that the message names; `docs/operating.md` says what each is for."),
    about(
        "FILES_DIFFER",
        "Instances read different files or zone data. The instance that owns a pipeline's shard goes by its own, so a pipeline may change when the shard moves.",
    )
    .look("The message says which instance has what.")
    .act("Give all instances the same files and the same zone data."),
    about(
        "STORE_ROLLBACK",
        "The store lost writes that it had acknowledged: a failover to a replica that was behind, or an old backup. Slots since then may run a second time or be missing.",
    )
    .look("The message says from when on; `interlock events _system` lists each shard.")
    .act("Check the slots since then with `interlock slots`, then resolve this incident."),
    about(
        "STORE_RECOVERED",
        "The ledger was damaged, and `serve --recover` replaced it by what could be read. Slots that are lost are `unknown` and do not run by themselves.",
    )
    .look("The message says what was lost; the damaged file is beside the new one.")
    .act("Check the `unknown` slots, run those that must run, then resolve this incident."),
    about(
        "PROCESS_HUNG",
        "A process made no progress and was ended; the service manager starts it again. Jobs went on.",
    )
    .look("The report that the message names has what each thread was doing.")
    .act("Report a bug with the file that the message names, unless the host or the disk stood still."),
    about(
        "PROCESS_DIED",
        "A supervised program died and was started again.",
    )
    .look("Its log, from just before it died.")
    .act("Read the program's log; nothing to do if it stays up."),
    about(
        "PROCESS_GIVEN_UP",
        "A supervised program died too often. It stays down until you start it.",
    )
    .look("Its log, from its last starts.")
    .act("Mend the cause that its log shows, then start it again."),
    about(
        "BARK",
        "A test of the alerts, from end to end. Nothing is wrong.",
    )
    .look("Nothing.")
    .act("Nothing to do: this tests that alerts arrive."),
];

/// Of alerts that no incident stands behind.
pub const UNRECORDED: &[Runbook] = &[
    about(
        "alert_undelivered",
        "A channel did not take an alert after many tries, or refused it. The other channels are told in its place.",
    )
    .look("`interlock incidents dead` lists such alerts with the channel's answer.")
    .act("Mend the channel; `interlock incidents dead` lists what it did not get.")
    .alert("The alert channel slack was tried 12 times and could not deliver: Slack said no: invalid_auth. What it should have said: Pipeline orders schedule daily failed on 2026-02-25"),
    about(
        "digest",
        "Many alerts at once, told as one message. Each has its own incident.",
    )
    .look("`interlock incidents` groups them; `--all` lists each.")
    .act("Look for what they have in common with `interlock incidents --group-by kind`.")
    .alert("12 alerts came at once (12 schedule_missed): Pipeline orders schedule daily missed: no report by deadline 09:20 on 2026-02-25; and 11 more, which `interlock incidents --all` lists"),
    about(
        "store_unreachable",
        "Interlock cannot read or write its store. Nothing is decided; jobs that run go on. This alert came without the store.",
    )
    .look("The store's server and the network to it; `interlock doctor` asks it.")
    .act("Bring the store back; Interlock catches up by itself.")
    .alert("STORE_UNREACHABLE: it has accepted no write for 60 s"),
    about(
        "loop_late",
        "A loop of `serve` makes no progress. If it stays so, the process ends and is started again. This alert came without the store.",
    )
    .look("The log of `serve`, and the load and disk of the host.")
    .act("Run `interlock doctor --live`; if the process hangs, start it again.")
    .alert("LOOP_LATE: the loop `engine` has made no progress for 45 s"),
    about(
        "test",
        "A test of one channel, sent by `interlock incidents test`.",
    )
    .look("Nothing.")
    .act("Nothing to do: this tests that the channel works.")
    .alert("This is a test of the alert channel; nothing is wrong, nothing to do"),
];
