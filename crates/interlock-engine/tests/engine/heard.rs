//! Jobs that somebody else runs: what they report, when it comes twice, late, early or not at all, and who is told.

use interlock_core::id::PipelineId;
use interlock_engine::seam::World as _;
use interlock_store::{
    Store as _, block_on,
    record::{InboxRecord, ReportRecord, SlotName},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    stage::{Job, Stage, at},
    watched::watch,
};

pub(crate) const HOURLY: &str = "
name: backup
schedules: [{name: h, cron: '0 * * * *', maxDuration: 90m}]
trigger: {type: external}
";

pub(crate) fn stage(file: &str) -> Stage {
    let mut stage = Stage::new(at("08:30"), &[file], |_| Job::Succeeds(5));
    assert!(stage.until(at("08:35")).is_none());
    stage
}

fn report(said: &str, rid: Option<&str>, at: Timestamp) -> InboxRecord {
    let mut report = ReportRecord::of(said, at, None);
    report.rid = rid.map(str::to_owned);
    InboxRecord::Report(Box::new(report))
}

impl Stage {
    /// Reports now; answers with what came of it.
    pub(crate) fn hears(&mut self, said: &str, rid: Option<&str>) -> String {
        self.hears_of(said, rid, self.world.time())
    }

    /// Reports something that happened at an instant.
    pub(crate) fn hears_of(&mut self, said: &str, rid: Option<&str>, at: Timestamp) -> String {
        let applied = self.ask("backup", &report(said, rid, at));
        let word = if applied.accepted { "report" } else { "reason" };
        applied.result[word].as_str().unwrap().to_owned()
    }

    pub(crate) fn goes_on(&mut self, time: &str) {
        assert!(self.until(at(time)).is_none(), "the engine lives");
    }
}

#[test]
fn a_report_in_time_closes_its_slot_and_nobody_is_told() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("09:02");
    assert_eq!(stage.hears("success", None), "ended");
    stage.goes_on("09:50");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    assert_eq!(stage.runs(), ["backup~h~20260224T090000Z~1~1 COMPLETED external"]);
    assert_eq!(heard.lines(), Vec::<String>::new());
}

#[test]
fn nobody_can_have_interlock_run_again_what_somebody_else_runs() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:02");
    assert_eq!(stage.hears("success", None), "ended");
    let slot = SlotName { schedule: "h".into(), nominal: at("09:00") };
    let refused = stage.ask("backup", &InboxRecord::Rerun { slot, reason: "again".into() });
    assert_eq!(refused.result["reason"], "backup is watch-only: Interlock does not run its jobs");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
}

#[test]
fn a_start_and_its_end_are_one_run_with_what_it_said() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:00");
    assert_eq!(stage.hears("start", None), "began");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z open(running)"]);
    stage.goes_on("09:30");
    let mut end = ReportRecord::of("fail", stage.world.time(), Some("no space left"));
    end.exit_code = Some(3);
    assert!(stage.ask("backup", &InboxRecord::Report(Box::new(end))).accepted);
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z failed"]);
    let run = stage.run_rows().remove(0).record;
    assert_eq!(run.started_at, Some(at("09:00")));
    assert_eq!(run.ended_at, Some(at("09:30")));
    assert_eq!(run.message.as_deref(), Some("the job exited with 3"));
    assert_eq!(run.metadata["body"], "no space left");
    assert_eq!(run.metadata["exitCode"], 3);
}

#[test]
fn a_failure_is_told_and_the_next_success_resolves_it() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("09:02");
    stage.hears("fail", None);
    stage.goes_on("10:02");
    stage.hears("success", None);
    stage.goes_on("10:10");
    let lines: Vec<String> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(lines, ["job_failed open", "job_failed resolved"]);
}

#[test]
fn an_early_report_opens_and_closes_its_slot_before_the_schedule_comes_to_it() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("08:55");
    assert_eq!(stage.hears("success", None), "ended");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    stage.goes_on("09:10");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"], "it is not opened again");
    assert_eq!(stage.runs().len(), 1);
    stage.goes_on("09:53");
    assert_eq!(stage.hears("success", None), "extra", "too early for the next");
    stage.goes_on("10:10");
    let lines = heard.lines();
    assert_eq!(lines[0], "09:53:00 report_extra open");
    assert_eq!(lines[1..], ["10:05:00 schedule_missed open"]);
}

#[test]
fn every_run_of_a_slot_has_its_own_end_and_its_own_time_limit() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("09:00");
    assert_eq!(stage.hears("start", Some("a")), "began");
    stage.goes_on("09:10");
    assert_eq!(stage.hears("start", Some("b")), "began");
    stage.goes_on("09:20");
    assert_eq!(stage.hears("success", Some("b")), "ended");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"], "the first end decides");
    // The next slots are reported on; `a` never ends.
    for time in ["10:00", "11:00"] {
        stage.goes_on(time);
        assert_eq!(stage.hears("success", Some(time)), "ended");
    }
    let lines: Vec<String> = heard.lines();
    assert_eq!(lines[0], "10:30:00 job_timeout open", "90 minutes after its own start");
    let statuses: Vec<_> = stage.run_rows().iter().map(|run| run.record.status.clone()).collect();
    assert_eq!(statuses, ["FAILED", "COMPLETED", "COMPLETED", "COMPLETED"]);
    assert!(stage.slots().iter().all(|slot| slot.ends_with("completed")), "{:?}", stage.slots());
}

#[test]
fn a_run_that_takes_too_long_is_failed_with_its_slot() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("09:01");
    stage.hears("start", None);
    stage.goes_on("09:59");
    assert_eq!(heard.lines(), Vec::<String>::new(), "started in time: nothing is missed");
    stage.goes_on("10:02");
    stage.hears("success", Some("other"));
    stage.goes_on("10:40");
    assert_eq!(heard.lines(), ["10:31:00 job_timeout open"]);
    assert_eq!(stage.slots()[0], "h/2026-02-24T09:00:00Z failed");
    assert_eq!(
        stage.hears("success", None),
        "extra",
        "it is about ten o'clock by now, which is done"
    );
    assert_eq!(stage.slots()[0], "h/2026-02-24T09:00:00Z failed");
}

#[test]
fn what_was_given_up_and_ends_well_all_the_same_completes_its_slot() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("09:01");
    stage.hears("start", Some("slow"));
    stage.goes_on("10:40");
    assert_eq!(stage.slots()[0], "h/2026-02-24T09:00:00Z failed");
    assert_eq!(stage.hears("success", Some("slow")), "ended");
    assert_eq!(stage.hears("success", Some("slow")), "repeated");
    assert_eq!(stage.slots()[0], "h/2026-02-24T09:00:00Z completed");
    assert_eq!(
        stage.runs()[..2],
        [
            "backup~h~20260224T090000Z~1~1 FAILED external",
            "backup~h~20260224T090000Z~1~2 COMPLETED external",
        ]
    );
    stage.goes_on("10:45");
    let lines: Vec<String> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert!(lines.contains(&"job_timeout resolved".to_owned()), "{lines:?}");
    assert!(!lines.iter().any(|line| line.contains("extra")), "{lines:?}");
}

#[test]
fn a_success_after_a_failure_is_the_next_attempt_and_no_news() {
    for is_started in [false, true] {
        let mut stage = stage(HOURLY);
        let heard = watch(&stage);
        stage.goes_on("09:02");
        assert_eq!(stage.hears("fail", None), "ended");
        stage.goes_on("09:05");
        if is_started {
            assert_eq!(stage.hears("start", None), "began");
            assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z failed"]);
        }
        stage.goes_on("09:10");
        assert_eq!(stage.hears("success", None), "ended");
        assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
        let runs = [
            "backup~h~20260224T090000Z~1~1 FAILED external",
            "backup~h~20260224T090000Z~1~2 COMPLETED external",
        ];
        assert_eq!(stage.runs(), runs, "the failure stays on record");
        stage.goes_on("09:20");
        let lines: Vec<String> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
        assert_eq!(lines, ["job_failed open", "job_failed resolved"]);
        // S11: what is told again, or was on its way for long, changes nothing.
        assert_eq!(stage.hears_of("fail", Some("late"), at("09:03")), "extra");
        assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    }
}

#[test]
fn s11_a_success_after_a_miss_closes_it_late_and_resolves_the_incident() {
    let mut stage = stage(HOURLY);
    let heard = watch(&stage);
    stage.goes_on("09:20");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z missed"]);
    assert_eq!(stage.hears("start", None), "began");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z missed"], "a start does not unsay it");
    assert_eq!(stage.hears("success", None), "ended");
    let slot = stage.slot();
    assert!(slot.marks.late && slot.marks.missed_at.is_some(), "{slot:?}");
    stage.goes_on("09:50");
    assert_eq!(heard.lines().len(), 2, "{:?}", heard.lines());
    assert!(heard.lines()[1].ends_with("schedule_missed resolved"), "{:?}", heard.lines());
}

#[test]
fn s11_reports_that_come_twice_change_nothing() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:00");
    assert_eq!(stage.hears("start", Some("a")), "began");
    assert_eq!(stage.hears("start", Some("a")), "repeated");
    assert_eq!(stage.hears("success", Some("a")), "ended");
    assert_eq!(stage.hears("success", Some("a")), "repeated");
    assert_eq!(stage.hears("start", Some("a")), "repeated");
    assert_eq!(stage.hears("fail", Some("a")), "extra");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    assert_eq!(stage.runs().len(), 1);
    assert_eq!(stage.told(&["JOB_COMPLETED"]).len(), 1);
}

#[test]
fn a_name_that_is_used_again_for_another_slot_is_told_and_not_swallowed() {
    for file in [HOURLY, SWITCH] {
        let mut stage = stage(file);
        stage.goes_on("09:02");
        assert_eq!(stage.hears("success", Some("host-1")), "ended");
        assert_eq!(stage.hears("success", Some("host-1")), "repeated", "sent again");
        stage.goes_on("10:01");
        assert_eq!(
            stage.hears_of("success", Some("host-1"), at("09:02")),
            "repeated",
            "it was late"
        );
        assert_eq!(stage.hears("success", Some("host-1")), "extra");
        let told = stage.told(&["REPORT_EXTRA"]);
        assert!(told[0].contains("of another slot's run"), "{told:?}");
    }
}

#[test]
fn s11_a_start_that_comes_after_its_end_is_noted() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:10");
    assert_eq!(stage.hears("success", Some("a")), "ended");
    assert_eq!(stage.hears_of("start", Some("a"), at("09:01")), "began before");
    let runs = stage.run_rows();
    assert_eq!((runs.len(), runs[0].record.started_at), (1, Some(at("09:01"))));
    assert_eq!(runs[0].record.status, "COMPLETED");
}

#[test]
fn an_end_without_a_name_ends_the_run_that_began_whatever_slot_has_come_since() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:00");
    stage.hears("start", None);
    stage.goes_on("10:03");
    assert_eq!(stage.hears("success", None), "ended");
    let slots = stage.slots();
    assert_eq!(slots[0], "h/2026-02-24T09:00:00Z completed");
    assert_eq!(slots[1], "h/2026-02-24T10:00:00Z open(waiting)", "nobody reported on this one");
}

#[test]
fn a_run_is_known_by_its_name_after_a_restart_and_in_a_slot_that_is_decided() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:00");
    stage.hears("start", Some("a"));
    stage.hears("success", Some("b"));
    stage.crash();
    stage.goes_on("10:10");
    assert_eq!(stage.hears("success", Some("a")), "ended");
    let runs = stage.runs();
    assert_eq!(runs.len(), 2, "{runs:?}");
    assert!(
        runs.iter().all(|run| run.contains("090000Z") && run.contains("COMPLETED")),
        "{runs:?}"
    );
}

#[test]
fn a_restart_leaves_what_somebody_else_runs_alone() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:00");
    stage.hears("start", None);
    stage.crash();
    stage.goes_on("09:20");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z open(running)"]);
    assert_eq!(stage.hears("success", None), "ended");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    assert_eq!(stage.told(&["RUN_UNCERTAIN"]), Vec::<String>::new());
}

#[test]
fn a_slot_that_fell_into_a_restart_still_takes_its_report() {
    let mut stage = stage(HOURLY);
    stage.crash();
    // Up again at 09:03, later than a live slot's grace and before the slot is judged.
    stage.world.pass(at("09:03").duration_since(stage.world.time()));
    stage.goes_on("09:04");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z open(waiting)"]);
    assert_eq!(stage.hears("success", None), "ended");
}

#[test]
fn a_report_that_was_spooled_closes_a_slot_of_an_outage_late_with_its_true_time() {
    let mut stage = stage(HOURLY);
    stage.crash();
    stage.world.pass(at("12:30").duration_since(stage.world.time()));
    stage.goes_on("12:31");
    assert_eq!(stage.slots(), ["4 times unknown"]);
    assert_eq!(stage.hears_of("success", Some("x"), at("10:05")), "ended");
    assert_eq!(stage.slots(), ["4 times unknown", "h/2026-02-24T10:00:00Z completed"]);
    let run = stage.run_rows().remove(0);
    assert_eq!(run.record.ended_at, Some(at("10:05")));
    assert_eq!(stage.hears_of("success", Some("x"), at("10:05")), "repeated");
}

#[test]
fn a_report_from_the_future_is_a_report_of_now() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:01");
    assert_eq!(stage.hears_of("success", None, at("17:00")), "ended");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    // Nor does one come from the next half minute, by a clock that is a little ahead: it happened when it was heard at the latest.
    stage.goes_on("10:01");
    let heard_at = stage.world.time();
    let ahead = heard_at + SignedDuration::from_secs(30);
    assert_eq!(stage.hears_of("success", Some("ahead"), ahead), "ended");
    let run = stage.run_rows().into_iter().find(|run| run.record.metadata.contains_key("rid"));
    assert_eq!(run.unwrap().record.ended_at, Some(heard_at));
}

#[test]
fn in_a_pause_reports_are_taken_and_what_they_say_stands_when_it_ends() {
    let mut stage = stage(HOURLY);
    let pause = InboxRecord::Pause { reason: "moving".into(), until: None };
    assert!(stage.ask("backup", &pause).accepted);
    stage.goes_on("09:01");
    assert_eq!(stage.hears("success", None), "ended");
    stage.goes_on("10:30");
    assert!(stage.ask("backup", &InboxRecord::Resume { catchup: None }).accepted);
    stage.goes_on("10:31");
    let slots = stage.slots();
    assert_eq!(
        slots,
        ["h/2026-02-24T09:00:00Z completed", "h/2026-02-24T10:00:00Z skipped(paused)"]
    );
}

#[test]
fn what_cannot_be_placed_is_kept_and_says_why() {
    let started = "
name: backup
schedules: [{name: h, cron: '0 * * * *'}]
trigger: {type: command, command: 'true'}
";
    let mut stage = stage(started);
    let reason = stage.hears("success", Some("r1"));
    assert!(reason.starts_with("Interlock itself runs backup"), "{reason}");
    let mut lost = ReportRecord::of("fail", stage.world.time(), Some("disk full"));
    lost.pipeline = Some("bakcup".to_owned());
    let key = PipelineId::system();
    block_on(stage.store.post(&key, "lost", &InboxRecord::Report(Box::new(lost)))).unwrap();
    stage.goes_on("08:40");
    assert_eq!(
        stage.told(&["REPORT_REJECTED"]),
        [
            format!("REPORT_REJECTED {reason}"),
            "REPORT_REJECTED there is no pipeline `bakcup`".to_owned()
        ]
    );
    let events = stage.events();
    let last = events.iter().rfind(|row| row.record.kind == "REPORT_REJECTED").unwrap();
    assert_eq!(last.record.details["body"], "disk full");
    assert_eq!(stage.slots(), Vec::<String>::new());
}

#[test]
fn before_the_first_slot_nothing_is_owed() {
    let mut stage = stage(HOURLY);
    let reason = stage.hears("success", None);
    let first = "it is about h/2026-02-24T08:00:00Z, which is not due: the first slot is 2026-02-24T09:00:00Z";
    assert_eq!(reason, first);
}

const SWITCH: &str = "
name: backup
schedules: [{name: s, every: 1h, from: last, grace: 10m, maxDuration: 30m}]
trigger: {type: external}
";

#[test]
fn a_switch_that_never_hears_anything_says_so_and_the_first_report_closes_it_late() {
    let mut stage = stage(SWITCH);
    let heard = watch(&stage);
    assert_eq!(stage.slots(), ["s/2026-02-24T09:30:00Z open(waiting)"], "first sight and an hour");
    stage.goes_on("09:39");
    assert_eq!(heard.lines(), Vec::<String>::new());
    stage.goes_on("09:50");
    assert_eq!(heard.lines(), ["09:40:00 schedule_missed open"]);
    assert_eq!(stage.slots(), ["s/2026-02-24T09:30:00Z missed"]);
    assert_eq!(stage.hears("success", None), "ended");
    assert_eq!(
        stage.slots(),
        ["s/2026-02-24T09:30:00Z completed", "s/2026-02-24T10:50:00Z open(waiting)"]
    );
    assert!(heard.lines()[1].ends_with("schedule_missed resolved"), "{:?}", heard.lines());
}

#[test]
fn a_switch_has_exactly_one_open_slot_after_every_end() {
    let mut stage = stage(SWITCH);
    let heard = watch(&stage);
    stage.goes_on("08:40");
    assert_eq!(stage.hears("success", None), "ended");
    stage.goes_on("09:00");
    assert_eq!(stage.hears("fail", None), "ended");
    stage.goes_on("09:20");
    assert_eq!(stage.hears("start", Some("r")), "began");
    stage.goes_on("09:40");
    assert_eq!(stage.hears("success", Some("r")), "ended");
    assert_eq!(
        stage.slots(),
        [
            "s/2026-02-24T09:30:00Z completed",
            "s/2026-02-24T09:40:00Z failed",
            "s/2026-02-24T10:00:00Z completed",
            "s/2026-02-24T10:40:00Z open(waiting)",
        ]
    );
    // One that is older than the last moves nothing.
    assert_eq!(stage.hears_of("success", Some("old"), at("09:30")), "ended");
    assert_eq!(stage.slots().iter().filter(|slot| slot.contains("open")).count(), 1);
    assert_eq!(stage.slots().len(), 4);
    stage.goes_on("10:55");
    let lines: Vec<String> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(lines, ["job_failed open", "job_failed resolved", "schedule_missed open"]);
}

#[test]
fn a_switch_is_not_blinded_by_what_is_older_than_its_last_end() {
    let mut stage = stage(SWITCH);
    let heard = watch(&stage);
    stage.goes_on("09:00");
    assert_eq!(stage.hears("success", None), "ended");
    // What waited on somebody's disk meanwhile.
    stage.goes_on("09:05");
    assert_eq!(stage.hears_of("start", Some("old"), at("08:40")), "began");
    assert_eq!(stage.slots().last().unwrap(), "s/2026-02-24T10:00:00Z open(waiting)");
    assert_eq!(stage.hears_of("success", Some("old"), at("08:50")), "ended");
    assert_eq!(stage.slots().last().unwrap(), "s/2026-02-24T10:00:00Z open(waiting)");
    // One whose end never comes fails alone.
    assert_eq!(stage.hears_of("start", Some("lost"), at("08:45")), "began");
    stage.goes_on("09:59");
    assert_eq!(stage.slots().last().unwrap(), "s/2026-02-24T10:00:00Z open(waiting)");
    stage.goes_on("10:15");
    let lines: Vec<String> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(lines, ["job_timeout open", "schedule_missed open"], "it is judged when it is due");
}

#[test]
fn a_switch_has_one_open_slot_also_when_a_run_outlives_the_slot_that_it_began_in() {
    let mut stage = stage(SWITCH);
    stage.goes_on("09:00");
    assert_eq!(stage.hears("start", Some("long")), "began");
    stage.goes_on("09:10");
    assert_eq!(stage.hears("success", Some("short")), "ended");
    stage.goes_on("09:20");
    assert_eq!(stage.hears_of("success", Some("long"), at("09:05")), "ended");
    let open = |stage: &Stage| -> Vec<String> {
        stage.slots().into_iter().filter(|slot| slot.contains("open")).collect()
    };
    assert_eq!(open(&stage), ["s/2026-02-24T10:10:00Z open(waiting)"], "it was over before");
    assert_eq!(stage.hears("start", Some("longer")), "began");
    assert_eq!(stage.hears("success", Some("shorter")), "ended");
    stage.goes_on("09:25");
    assert_eq!(stage.hears("success", Some("longer")), "ended");
    assert_eq!(open(&stage), ["s/2026-02-24T10:25:00Z open(waiting)"], "the newest end counts");
}

#[test]
fn what_a_clock_says_that_is_finer_than_a_millisecond_is_made_whole() {
    for file in [HOURLY, SWITCH] {
        let mut stage = stage(file);
        stage.goes_on("09:01");
        let fine = |time: &str| at(time) + SignedDuration::from_nanos(579_583_342);
        assert_eq!(stage.hears_of("start", Some("r"), fine("09:00")), "began");
        let is_whole = |it: Timestamp| it.as_nanosecond() % 1_000_000 == 0;
        assert!(is_whole(stage.slot().closes_at), "{}", stage.slot().closes_at);
        stage.goes_on("09:05");
        assert_eq!(stage.hears_of("success", Some("r"), fine("09:04")), "ended");
        let run = stage.run_rows().remove(0).record;
        assert!(run.started_at.is_some_and(is_whole) && run.ended_at.is_some_and(is_whole));
        stage.goes_on("10:00");
    }
}

#[test]
fn a_switch_whose_run_takes_too_long_is_told_and_goes_on_with_the_next_report() {
    let mut stage = stage(SWITCH);
    let heard = watch(&stage);
    stage.goes_on("09:00");
    stage.hears("start", None);
    stage.goes_on("09:45");
    assert_eq!(heard.lines(), ["09:30:00 job_timeout open"]);
    assert_eq!(stage.slots(), ["s/2026-02-24T09:30:00Z failed"]);
    assert_eq!(stage.hears("success", Some("next")), "ended");
    assert_eq!(stage.slots().last().unwrap(), "s/2026-02-24T10:45:00Z open(waiting)");
}

#[test]
fn a_report_of_a_pipeline_that_is_about_to_be_made_waits_for_it_and_not_for_ever() {
    let mut stage = stage(HOURLY);
    let name = PipelineId::parse("soon").unwrap();
    let mut record = ReportRecord::of("success", stage.world.time(), None);
    record.create = true;
    block_on(stage.store.post(&name, "k", &InboxRecord::Report(Box::new(record)))).unwrap();
    let soon = stage.world.now() + SignedDuration::from_secs(30);
    assert!(stage.until(soon).is_none());
    let waiting = block_on(stage.store.inbox(interlock_store::Shard(0), 10)).unwrap().items;
    assert_eq!(waiting.len(), 1);
    stage.goes_on("08:40");
    let waiting = block_on(stage.store.inbox(interlock_store::Shard(0), 10)).unwrap().items;
    assert_eq!(waiting.len(), 0);
    assert_eq!(stage.told(&["REPORT_REJECTED"]), ["REPORT_REJECTED there is no pipeline `soon`"]);
}
