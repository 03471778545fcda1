//! What reports mean, in tables; and that it does not matter how they come.

use jiff::civil::Date;
use proptest::prelude::*;

use super::*;
use crate::{
    run::TriggerType,
    sample::{cron, start},
};

fn at(time: &str) -> Timestamp {
    format!("2026-02-24T{time}Z").parse().unwrap()
}

fn check_place(starts: &[StartSchedule], time: &str, expected: &str) {
    let (nominal, id) = place(starts.iter(), at(time)).unwrap();
    assert_eq!(format!("{id}/{}", nominal.strftime("%dT%H:%M")), expected, "at {time}");
}

#[test]
fn a_report_belongs_to_the_latest_slot_that_it_is_not_too_early_for() {
    let hourly = [cron("h", "0 * * * *")];
    check_place(&hourly, "09:00:00", "h/24T09:00");
    check_place(&hourly, "09:53:59", "h/24T09:00");
    check_place(&hourly, "09:54:00", "h/24T10:00");
    check_place(&hourly, "08:59:59.999", "h/24T09:00");
    // A tenth of a day is more than an hour.
    let daily = [cron("d", "0 9 * * *")];
    check_place(&daily, "07:59:59", "d/23T09:00");
    check_place(&daily, "08:00:00", "d/24T09:00");
    let never_early = [StartSchedule { early: Some(SignedDuration::ZERO), ..daily[0].clone() }];
    check_place(&never_early, "08:59:59", "d/23T09:00");
    check_place(&never_early, "09:00:00", "d/24T09:00");
}

#[test]
fn of_several_schedules_the_latest_slot_is_meant_and_of_two_the_first_name() {
    let both = [cron("b", "0 * * * *"), cron("a", "0 9 * * *")];
    check_place(&both, "09:10:00", "a/24T09:00");
    check_place(&both, "10:10:00", "b/24T10:00");
    assert_eq!(
        place([start("s", Recurrence::SinceLast { step: 60 })].iter(), at("09:00:00")),
        None
    );
}

#[test]
fn the_three_budgets_are_apart() {
    let hourly = StartSchedule {
        early: Some(SignedDuration::from_mins(2)),
        grace: SignedDuration::from_mins(7),
        duration_max: SignedDuration::from_mins(90),
        ..cron("h", "0 * * * *")
    };
    check_place(std::slice::from_ref(&hourly), "09:57:59", "h/24T09:00");
    check_place(std::slice::from_ref(&hourly), "09:58:00", "h/24T10:00");
    assert_eq!(hourly.limit_of_run(at("09:58:00")), at("11:28:00"));
    let switch = start("s", Recurrence::SinceLast { step: 3600 });
    assert_eq!(switch.next_of_switch(at("09:58:00.0005")), Some(at("10:58:00")));
    assert_eq!(switch.early_for(at("10:58:00")), SignedDuration::from_hours(1));
    assert_eq!(hourly.next_of_switch(at("09:58:00")), None);
}

fn run(rid: Option<&str>, state: RunState, began: Option<&str>, ended: Option<&str>) -> RunSeen {
    RunSeen {
        rid: rid.map(str::to_owned),
        state,
        started_at: began.map(at),
        ended_at: ended.map(at),
        is_given_up: false,
    }
}

fn said<'a>(said: Said, rid: Option<&'a str>, time: &str) -> Report<'a> {
    Report { said, rid, at: at(time) }
}

#[test]
fn runs_are_told_apart_by_their_names() {
    let runs = [
        run(Some("a"), RunState::Running, Some("09:00:00"), None),
        run(Some("b"), RunState::Running, Some("09:01:00"), None),
        run(None, RunState::Running, Some("09:02:00"), None),
        run(None, RunState::Running, Some("09:03:00"), None),
        run(None, RunState::Completed, None, Some("09:30:00")),
    ];
    let which = |word, rid, time| said(word, rid, time).run_among(&runs);
    assert_eq!(which(Said::Success, Some("a"), "09:10:00"), Some(0));
    assert_eq!(which(Said::Start, Some("b"), "09:10:00"), Some(1));
    assert_eq!(which(Said::Success, Some("c"), "09:10:00"), None);
    assert_eq!(which(Said::Fail, None, "09:10:00"), Some(3), "the newest without a name");
    assert_eq!(which(Said::Fail, None, "09:02:30"), Some(2), "and none that began later");
    assert_eq!(which(Said::Fail, None, "08:00:00"), None);
    assert_eq!(which(Said::Start, None, "09:20:00"), Some(4), "its end came first");
    assert_eq!(which(Said::Start, None, "09:40:00"), Some(3), "told again");
}

fn check(word: Said, known: Option<&RunSeen>, slot: Option<SlotState>, expected: Meaning) {
    let found = meaning(&said(word, None, "09:10:00"), known, slot);
    assert_eq!(found, expected, "{word:?} {known:?} {slot:?}");
}

#[test]
fn what_a_report_means_follows_from_its_run_and_its_slot() {
    let closed = SlotState::Closed;
    let waiting = Some(SlotState::Open(OpenState::Waiting));
    let running = Some(SlotState::Open(OpenState::Running));
    let done = Some(closed(Disposition::Completed));
    for absent in [None, waiting, running, Some(closed(Disposition::Missed))] {
        check(Said::Success, None, absent, Meaning::Happened(End::Well));
        check(Said::Fail, None, absent, Meaning::Happened(End::Badly));
        check(Said::Start, None, absent, Meaning::Begins);
        check(Said::Log, None, absent, Meaning::Noted);
    }
    check(Said::Success, None, done, Meaning::Extra(Extra::SlotIsDecided));
    check(Said::Start, None, done, Meaning::Begins);
    let under_way = run(None, RunState::Running, Some("09:00:00"), None);
    check(Said::Start, Some(&under_way), running, Meaning::Repeated);
    check(Said::Success, Some(&under_way), running, Meaning::Ends(End::Well));
    check(Said::Fail, Some(&under_way), done, Meaning::Ends(End::Badly));
    let over = run(None, RunState::Completed, None, Some("09:30:00"));
    check(Said::Success, Some(&over), done, Meaning::Repeated);
    check(Said::Fail, Some(&over), done, Meaning::Extra(Extra::RunIsOver));
    check(Said::Start, Some(&over), done, Meaning::BeganBefore);
    let heard = run(None, RunState::Completed, Some("09:00:00"), Some("09:30:00"));
    check(Said::Start, Some(&heard), done, Meaning::Repeated);
    // What failed may be tried again, and its success counts; one run has one end all the same.
    let failed = Some(closed(Disposition::Failed));
    check(Said::Success, None, failed, Meaning::Happened(End::Well));
    check(Said::Fail, None, failed, Meaning::Extra(Extra::SlotIsDecided));
    let broke = run(None, RunState::Failed, Some("09:00:00"), Some("09:05:00"));
    check(Said::Success, Some(&broke), failed, Meaning::Extra(Extra::RunIsOver));
    // Nobody waited any longer for this one, and it says now how it ended.
    let given_up = RunSeen { is_given_up: true, ..broke };
    check(Said::Success, Some(&given_up), failed, Meaning::Happened(End::Well));
    check(Said::Success, Some(&given_up), done, Meaning::Extra(Extra::SlotIsDecided));
    check(Said::Fail, Some(&given_up), failed, Meaning::Repeated);
}

fn opening() -> Opening {
    Opening {
        opened_by: TriggerType::External,
        date: Date::constant(2026, 2, 24),
        at: at("09:10:00"),
        closes_at: at("09:05:00"),
        version: 1,
    }
}

fn after(slot: Option<&Slot>, meaning: Meaning, limit: &str) -> Option<Slot> {
    slot_after(slot, meaning, opening(), at(limit)).unwrap()
}

#[test]
fn the_first_end_decides_a_slot_and_each_run_is_an_attempt() {
    let first = after(None, Meaning::Begins, "10:00:00").unwrap();
    assert_eq!(first.state, SlotState::Open(OpenState::Running));
    assert_eq!((first.generation, first.attempt, first.closes_at), (1, 1, at("10:00:00")));
    let second = after(Some(&first), Meaning::Begins, "11:00:00").unwrap();
    assert_eq!((second.attempt, second.closes_at), (2, at("10:00:00")), "the first limit counts");
    let done = after(Some(&second), Meaning::Ends(End::Well), "11:00:00").unwrap();
    assert_eq!(done.state, SlotState::Closed(Disposition::Completed));
    assert_eq!(after(Some(&done), Meaning::Ends(End::Badly), "11:00:00"), None);
    let third = after(Some(&done), Meaning::Begins, "11:00:00").unwrap();
    assert_eq!((third.state, third.attempt), (done.state, 3));
}

#[test]
fn a_run_that_ends_well_completes_what_had_failed_and_the_attempts_say_so() {
    let failed = after(None, Meaning::Happened(End::Badly), "10:00:00").unwrap();
    assert_eq!(failed.state, SlotState::Closed(Disposition::Failed));
    let repaired = after(Some(&failed), Meaning::Happened(End::Well), "10:00:00").unwrap();
    assert_eq!(repaired.state, SlotState::Closed(Disposition::Completed));
    assert_eq!((repaired.attempt, repaired.generation, repaired.marks.late), (2, 1, false));
    let begun = after(Some(&failed), Meaning::Begins, "10:00:00").unwrap();
    assert_eq!((begun.state, begun.attempt), (failed.state, 2), "a start alone unsays nothing");
    let repaired = after(Some(&begun), Meaning::Ends(End::Well), "10:00:00").unwrap();
    assert_eq!(repaired.state, SlotState::Closed(Disposition::Completed));
    assert_eq!(after(Some(&failed), Meaning::Ends(End::Badly), "10:00:00"), None);
}

#[test]
fn s11_an_end_after_a_miss_closes_it_late() {
    use crate::slot::SkipReason;
    for absence in [
        Disposition::Missed,
        Disposition::Unknown,
        Disposition::Skipped(SkipReason::NoCatchup),
        Disposition::Skipped(SkipReason::Expired),
    ] {
        let missed = Slot::decided(absence, opening());
        let begun = after(Some(&missed), Meaning::Begins, "11:00:00").unwrap();
        assert_eq!(begun.state, missed.state, "a start alone does not unsay it");
        let late = after(Some(&begun), Meaning::Ends(End::Well), "11:00:00").unwrap();
        assert_eq!(late.state, SlotState::Closed(Disposition::Completed));
        assert!(late.marks.late, "{absence:?}");
        assert_eq!(late.marks.missed_at, missed.marks.missed_at);
    }
    let paused = Slot::decided(Disposition::Skipped(SkipReason::Paused), opening());
    assert!(!takes_an_end(paused.state));
}

/// One run, as it is told: some reports twice, in any order. However they come, the slot and the run end alike.
#[derive(Default)]
struct Told {
    slot: Option<Slot>,
    runs: Vec<RunSeen>,
}

impl Told {
    fn hear(&mut self, report: &Report<'_>) {
        let index = report.run_among(&self.runs);
        let state = self.slot.as_ref().map(|slot| slot.state);
        let meant = meaning(report, index.and_then(|index| self.runs.get(index)), state);
        if let Some(slot) =
            slot_after(self.slot.as_ref(), meant, opening(), at("23:00:00")).unwrap()
        {
            self.slot = Some(slot);
        }
        let rid = report.rid.map(str::to_owned);
        match meant {
            Meaning::Begins => self.runs.push(RunSeen {
                rid,
                state: RunState::Running,
                started_at: Some(report.at),
                ended_at: None,
                is_given_up: false,
            }),
            Meaning::Happened(end) => self.runs.push(RunSeen {
                rid,
                state: end.state(),
                started_at: None,
                ended_at: Some(report.at),
                is_given_up: false,
            }),
            Meaning::Ends(end) => {
                let run = &mut self.runs[index.unwrap()];
                (run.state, run.ended_at) = (end.state(), Some(report.at));
            }
            Meaning::BeganBefore => self.runs[index.unwrap()].started_at = Some(report.at),
            Meaning::Noted | Meaning::Repeated | Meaning::Extra(_) => {}
        }
    }
}

proptest! {
    /// Two runs of one slot, one that failed and one that did not: the slot is completed, whoever is heard of first.
    #[test]
    fn s11_one_run_that_ended_well_completes_a_slot_in_whatever_order_its_runs_are_told(
        order in Just(vec![0_usize, 1, 2, 3, 0, 1, 2, 3]).prop_shuffle(),
    ) {
        let all = [
            said(Said::Start, Some("a"), "09:00:00"),
            said(Said::Fail, Some("a"), "09:05:00"),
            said(Said::Start, Some("b"), "09:10:00"),
            said(Said::Success, Some("b"), "09:15:00"),
        ];
        let mut told = Told::default();
        for index in order {
            told.hear(&all[index]);
        }
        let state = told.slot.as_ref().unwrap().state;
        prop_assert_eq!(state, SlotState::Closed(Disposition::Completed));
        let mut failed = told.runs.iter().filter(|run| run.rid.as_deref() == Some("a"));
        prop_assert!(failed.all(|run| run.state != RunState::Completed), "{:?}", told.runs);
    }

    #[test]
    fn s11_however_the_reports_of_a_run_come_its_verdict_is_the_same(
        named in any::<bool>(),
        well in any::<bool>(),
        order in Just(vec![0_usize, 1, 2, 0, 1, 2]).prop_shuffle(),
        heard in 3_usize..=6,
    ) {
        let rid = named.then_some("r-1");
        let end = if well { Said::Success } else { Said::Fail };
        let all = [said(Said::Start, rid, "09:00:00"), said(end, rid, "09:20:00"), said(Said::Log, rid, "09:10:00")];
        let mut told = Told::default();
        for index in order.iter().take(heard) {
            told.hear(&all[*index]);
        }
        // Whatever was not heard yet comes in the end.
        for report in &all[..2] {
            told.hear(report);
        }
        let expected = if well { Disposition::Completed } else { Disposition::Failed };
        prop_assert_eq!(told.slot.as_ref().unwrap().state, SlotState::Closed(expected));
        prop_assert_eq!(told.runs.len(), 1, "{:?}", told.runs);
        prop_assert_eq!(told.runs[0].started_at, Some(at("09:00:00")));
        prop_assert_eq!(told.runs[0].ended_at, Some(at("09:20:00")));
    }
}
