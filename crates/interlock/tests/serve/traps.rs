//! Mistakes that other schedulers made, and the tests that would fail on them.
//!
//! Dagu, the twenty facts (facts/dagu.md 0.1):
//!
//! | # | trap | guarded by |
//! |---|---|---|
//! | 1, 2, 9, 20 | catch-up trickles, swallows live slots, bursts after a freeze, and no event tells of a miss | `dagu_1_2_9_and_20_after_a_freeze_the_live_slot_runs_and_the_rest_is_recorded_at_once`, `a_daemon_that_was_stopped_records_what_it_slept_over` |
//! | 3 | a second crash loses the rest | `dagu_3_a_second_crash_right_after_downtime_loses_nothing`, `downtime_is_one_span_wherever_the_restart_dies` |
//! | 4 | an edit loses the rest | `dagu_4_an_edit_during_downtime_loses_nothing` |
//! | 5 | without state the whole window is replayed | `dagu_5_a_new_ledger_owes_nothing_from_before_it` |
//! | 6 | a new file is replayed from before it existed | `dagu_6_a_file_that_was_written_during_downtime_owes_nothing_from_before_it_was_seen` |
//! | 7 | live overlap is dropped without a word | `dagu_7_a_slot_that_finds_a_run_is_recorded_with_its_reason` |
//! | 8, 15, 16 | how much is caught up depends on chance; needs queues; no dry run | catch-up is an issue of its own |
//! | 10 | a pause swallows slots | `dagu_10_what_a_pause_covers_is_recorded_once_and_what_follows_runs`, `a_paused_pipeline_holds_nobody_up` |
//! | 11 | a failed start loses the slot | `a_job_that_cannot_start_ends_its_slot_and_the_next_has_its_turn`, `cases_23_and_66_a_failure_that_may_pass_is_tried_again_after_its_wait` |
//! | 12 | a crash after a start runs the slot twice | `two_hundred_random_kills_lose_and_double_nothing`, `a_daemon_killed_at_any_call_around_a_trigger_runs_the_job_once` |
//! | 13 | a job cannot know its slot | `a_job_knows_its_slot_and_no_secret_of_the_daemon`, and the checker compares what each job was told |
//! | 14 | defaults have no effect | `defaults_hold_for_every_pipeline_and_are_blamed_where_they_stand` |
//! | 17 | `1.5d` is an hour, large numbers wrap | `a_fraction_is_refused_with_what_it_would_be_in_whole_parts`, `more_than_a_hundred_years_is_an_error_and_never_wraps` |
//! | 18 | an impossible cron runs in the year 1 | `d4_s6_the_31st_of_april_is_refused`, `d4_s16_never_is_an_answer_and_not_a_loop` |
//! | 19 | daylight saving skips and doubles | `d4_s18_a_fixed_time_has_exactly_one_slot_per_local_date_that_exists` |
//!
//! Dagu, its fixes (facts/dagu.md C), as far as one machine can meet them:
//!
//! | trap | guarded by |
//! |---|---|
//! | SIGTERM leaves the process and its lock behind; a restart waits for the lock | `a_daemon_told_to_stop_ends_and_the_next_one_goes_on_at_once` |
//! | two schedulers on one directory | `a_second_daemon_is_refused_with_the_pid_of_the_first` |
//! | a crash leaves a run "running" for ever | `a_runner_killed_at_any_call_doubles_nothing_and_hides_nothing`, `jobs_end_with_the_container_and_the_next_start_says_uncertain` |
//! | a run that cannot start is tried for ever | `a_job_that_cannot_start_ends_its_slot_and_the_next_has_its_turn` |
//! | children are not waited for, or outlive their group | `a_timeout_ends_the_whole_group_whatever_it_ignores`, `a_job_that_leaves_a_child_behind_is_over_with_its_leader` |
//! | pid taken for identity | `after_a_reboot_nothing_is_guessed` |
//! | a manual run suppresses the slot (E23) | `dagu_e23_a_slot_that_somebody_asks_for_before_its_time_still_has_its_time` |
//! | the clock goes back (E19) | `nothing_is_due_before_the_next_slot_or_when_the_clock_went_back` |
//! | two files, one name (E22) | `names_must_be_unique_and_both_files_are_named` |
//! | one damaged record stops everything | `one_broken_file_stops_no_other_pipeline`, `s18_a_damaged_journal_knows_nothing_about_the_time_before` |
//! | the failure handler fires while attempts are left | not guarded: the runner runs `handlers.failure` after each attempt |
//!
//! Interlock's own past (facts/interlock.md D1, D2), as far as one machine can meet it:
//!
//! | # | trap | guarded by |
//! |---|---|---|
//! | D1-1, D1-17 | a lock is released by somebody else, or never | `case_52_nothing_runs_while_somebody_else_holds_the_lease`, `a_job_that_cannot_start_ends_its_slot_and_the_next_has_its_turn` |
//! | D1-3, D2-10 | a fresh start alerts about the past | `dagu_5_a_new_ledger_owes_nothing_from_before_it` |
//! | D1-5 | what completed runs again | `case_49_what_completed_does_not_run_again_unless_somebody_asks` |
//! | D1-6, D2-13 | a state that never ends | `s19_what_is_over_is_closed_by_its_state`, and the checker looks for open slots after their time |
//! | D1-8, D1-9 | deadlines in the wrong hour or day | `b10_minutes_belong_to_the_hour_after_the_slots_hour`, `a_deadline_earlier_in_the_day_than_its_slot_is_on_the_next_day` |
//! | D1-12 | the date is taken from the wall clock | `d1_12_a_report_belongs_to_its_own_period_not_to_today` |
//! | D1-15, D2-2, D2-3 | names of attempts collide, an attempt reads the end of the one before | `d2_3_an_end_that_is_told_again_does_not_end_the_attempt_after_it`, `s2_the_same_run_id_starts_one_job` |
//! | D1-16 | schedules of a pipeline are mixed up | `case_60_two_schedules_owe_runs_of_their_own` |
//! | D1-18, D1-19 | budgets are burnt by others | `d1_18_late_data_runs_the_slot_again_within_its_own_budget`, `budgets_never_pay_for_each_other` |
//! | D1-20 | failures are put into the wrong category | `d1_20_every_status_has_its_category` |
//! | D1-21 | an evaluator's failure is taken for a no | `case_38_what_no_evaluator_answered_cannot_be_told_and_blocks` |
//! | D1-23 | zero is missing; baselines collide | `d1_23_drift_after_the_job_runs_it_again_and_zero_is_a_baseline`, `d1_23_the_baseline_is_kept_by_rule` |
//! | D1-26 | keys of a period are not matched | `b5_the_sensor_of_the_slots_period_is_asked` |
//! | D1-29 | a parameter becomes code | `d1_29_a_parameter_never_becomes_code` |
//! | D1-30 | a dry run leaks into reruns | `a_dry_run_starts_nothing_also_when_it_is_asked_for` |
//! | D1-34 | tests near midnight | every engine test has its own clock |
//! | D2-5 | a rerun is accepted while the slot runs | `a_rerun_of_a_slot_that_runs_is_refused` |
//! | D2-6, D2-7 | the end races the retry | `thirty_days_of_crashes_at_every_await_lose_and_double_nothing_and_replay` |
//! | D2-15 | keys match by prefix | `d2_15_keys_match_exactly_and_the_condition_must_hold` |
//! | D2-17 | one bad file stops every pipeline | `one_broken_file_stops_no_other_pipeline` |
//! | D2-22 | monitoring counts as stuck; midnight; one slow evaluator holds up all; the crash between start and record | `cases_20_and_57_monitoring_ends_with_its_window_also_after_a_crash`, `case_38_evaluators_are_asked_at_once_and_hold_nobody_up`, `a_daemon_killed_at_any_call_around_a_trigger_runs_the_job_once` |

use std::{fs, path::Path};

use jiff::{SignedDuration, Timestamp};

use crate::{
    Daemon,
    checker::{JobLog, Ledger, Owed, check},
    log,
    project::{Project, signal, tail},
};

const TICKER: &str = "
name: ticker
schedules: [{id: second, every: 1s}]
overlapPolicy: all
trigger: {type: command, command: sh job.sh whole 0 0}
";

const OWED: [Owed; 1] = [Owed { pipeline: "ticker", schedule: "second", every: 1, at_once_max: 1 }];

/// A job that waits until a file lets it go.
const PATIENT: &str = "
name: patient
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'until [ -e go ]; do sleep 0.02; done; sh job.sh whole 0 0'}
";

/// How many slots of a pipeline have this disposition; `open` counts those without one.
fn count(project: &Project, pipeline: &str, disposition: &str) -> usize {
    let Some(ledger) = Ledger::read(&project.folder()) else { return 0 };
    let of_it = ledger.slots().filter(|(row, _)| row.pipeline.as_str() == pipeline);
    of_it.filter(|(_, slot)| slot.disposition.as_deref().unwrap_or("open") == disposition).count()
}

#[track_caller]
fn completes_more(project: &Project, what: &str) {
    let before = count(project, "ticker", "completed");
    project.until(what, || (count(project, "ticker", "completed") >= before + 2).then_some(()));
}

#[track_caller]
fn nothing_is_lost(project: &Project) {
    project.until("nothing is open", || (count(project, "ticker", "open") == 0).then_some(()));
    let (ledger, jobs) = (Ledger::read(&project.folder()).unwrap(), JobLog::read(project.path()));
    let found = check(&ledger, &jobs, &OWED);
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), tail(&log(project.path())));
}

#[test]
fn a_daemon_told_to_stop_ends_and_the_next_one_goes_on_at_once() {
    let project = Project::new(&[("ticker", TICKER), ("patient", PATIENT)]);
    let mut first = Daemon::start(project.path());
    completes_more(&project, "it ticks");
    assert_eq!(project.run(&["run", "patient", "--detach"]).code, 0);
    project.until("the job runs", || (count(&project, "patient", "open") == 1).then_some(()));
    assert!(signal(first.0.id(), "-TERM"));
    let status = project.until("it ends", || first.0.try_wait().unwrap());
    assert_eq!(status.code(), Some(0), "{}", tail(&log(project.path())));
    // The job has not noticed; the next daemon takes it up.
    let _next = Daemon::start(project.path());
    completes_more(&project, "the next one ticks");
    fs::write(project.path().join("go"), "").unwrap();
    let ended = || (count(&project, "patient", "completed") == 1).then_some(());
    project.until("the job's end is recorded", ended);
    nothing_is_lost(&project);
}

#[test]
fn a_daemon_that_was_stopped_records_what_it_slept_over() {
    let project = Project::new(&[("ticker", TICKER)]);
    let daemon = Daemon::start(project.path());
    completes_more(&project, "it ticks");
    assert!(signal(daemon.0.id(), "-STOP"));
    let wakes_at = Timestamp::now() + SignedDuration::from_secs(4);
    project.until("four slots have passed", || (Timestamp::now() > wakes_at).then_some(()));
    assert!(signal(daemon.0.id(), "-CONT"));
    completes_more(&project, "it ticks again");
    nothing_is_lost(&project);
}

#[test]
fn a_paused_pipeline_holds_nobody_up() {
    let napper = TICKER.replace("ticker", "napper");
    let project = Project::new(&[("ticker", TICKER), ("napper", &napper)]);
    let _daemon = Daemon::start(project.path());
    completes_more(&project, "it ticks");
    assert_eq!(project.run(&["pause", "napper", "--reason", "to see"]).code, 0);
    // Beyond the napper's next instant.
    completes_more(&project, "the other one ticks");
    let napped = count(&project, "napper", "completed");
    assert_eq!(project.run(&["resume", "napper", "--yes"]).code, 0);
    let awake = || (count(&project, "napper", "completed") > napped).then_some(());
    project.until("it is awake", awake);
    nothing_is_lost(&project);
}

#[test]
fn a_rerun_of_a_slot_that_runs_is_refused() {
    let project = Project::new(&[("patient", PATIENT)]);
    let _daemon = Daemon::start(project.path());
    project.until("it is declared", || Ledger::read(&project.folder())?.agenda.into_iter().next());
    assert_eq!(project.run(&["run", "patient", "--detach"]).code, 0);
    let slot = project.until("it runs", || {
        let ledger = Ledger::read(&project.folder())?;
        ledger.slots().find(|(_, slot)| slot.state == "running").map(|(row, _)| row.nominal)
    });
    let slot = format!("manual/{slot}");
    let refused = project.run(&["rerun", "patient", &slot, "--reason", "twice is better"]);
    assert_eq!(refused.code, 1, "{refused:?}");
    assert!(refused.stderr.contains("open(running)"), "{refused:?}");
    fs::write(project.path().join("go"), "").unwrap();
    let ended = || (count(&project, "patient", "completed") == 1).then_some(());
    project.until("the job's end is recorded", ended);
    assert_eq!(JobLog::read(project.path()).runs.len(), 1);
}

#[test]
fn a_dry_run_starts_nothing_also_when_it_is_asked_for() {
    let project = Project::new(&[(
        "shadow",
        &format!("{}dryRun: true\n", TICKER.replace("ticker", "shadow")),
    )]);
    let _daemon = Daemon::start(project.path());
    let skipped = project.until("a slot is recorded", || {
        let ledger = Ledger::read(&project.folder())?;
        ledger
            .slots()
            .find(|(_, slot)| slot.reason.as_deref() == Some("dry_run"))
            .map(|(row, _)| row.nominal)
    });
    let before = count(&project, "shadow", "skipped");
    assert_eq!(project.run(&["run", "shadow", "--detach"]).code, 0);
    let slot = format!("second/{skipped}");
    project.run(&["rerun", "shadow", &slot, "--reason", "for real"]);
    let more = || (count(&project, "shadow", "skipped") >= before + 3).then_some(());
    project.until("more is recorded", more);
    let ledger = Ledger::read(&project.folder()).unwrap();
    assert!(ledger.runs.is_empty() && JobLog::read(project.path()).runs.is_empty(), "{ledger:?}");
}

#[test]
fn a_job_that_cannot_start_ends_its_slot_and_the_next_has_its_turn() {
    let broken = "
name: broken
schedules: [{id: second, every: 1s}]
trigger: {type: command, command: [/no/such/program]}
";
    let project = Project::new(&[("broken", broken)]);
    let _daemon = Daemon::start(project.path());
    project.until("two slots failed", || (count(&project, "broken", "failed") >= 2).then_some(()));
    let ledger = Ledger::read(&project.folder()).unwrap();
    let failed = ledger.slots().filter(|(_, slot)| slot.disposition.is_some());
    for (row, slot) in failed {
        assert_eq!((slot.attempt, slot.disposition.as_deref()), (1, Some("failed")), "{row:?}");
    }
    let why = ledger.runs.values().find_map(|run| run.record.message.clone()).unwrap();
    assert!(why.contains("`/no/such/program` does not exist"), "{why}");
}

#[test]
fn one_broken_file_stops_no_other_pipeline() {
    let project =
        Project::new(&[("ticker", TICKER), ("broken", "name: broken\nscheduel: nonsense\n")]);
    let _daemon = Daemon::start(project.path());
    completes_more(&project, "the sound one ticks");
    project.write("broken", "name: [");
    completes_more(&project, "it still ticks");
    nothing_is_lost(&project);
}

/// A list of tests is worth what it names.
#[test]
fn every_test_that_the_list_names_is_there() {
    let crates = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut sources = String::new();
    let mut folders = vec![crates];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder).unwrap().flatten() {
            let path = entry.path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                sources.push_str(&fs::read_to_string(path).unwrap());
            }
        }
    }
    let list = include_str!("traps.rs").lines().filter(|line| line.starts_with("//! |"));
    let named: Vec<_> = list
        .flat_map(|line| line.split('`').skip(1).step_by(2))
        .filter(|n| n.contains('_'))
        .collect();
    assert!(named.len() > 50, "{}", named.len());
    let missing: Vec<_> =
        named.iter().filter(|name| !sources.contains(&format!("fn {name}("))).collect();
    assert!(missing.is_empty(), "{missing:?}");
}
