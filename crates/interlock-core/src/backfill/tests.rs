//! Verdicts as a table; and that chunks after a cursor are the whole walk.

use proptest::prelude::*;

use super::*;
use crate::{
    pipeline::OverlapPolicy,
    sample::{self, pipeline},
    slot::{Opening, SkipReason, Wish},
};

fn at(text: &str) -> Timestamp {
    format!("2026-02-{text}Z").parse().unwrap()
}

fn cron(id: &'static str, expression: &str) -> Schedule {
    sample::cron(id, expression).schedule
}

fn extent(schedules: &[Schedule], reprocess: Reprocess, order: Order) -> Extent<'_> {
    let bounded = |schedule| Bounded { schedule, recorded_until: None };
    let mut schedules: Vec<_> = schedules.iter().map(bounded).collect();
    schedules.sort_by_key(|it| it.schedule.id().clone());
    let (from, to) = (at("01T00:00:00"), at("02T00:00:00"));
    Extent { schedules, from, to, reprocess, order, since: at("10T00:00:00") }
}

fn one(state: SlotState, generation: u32, opened_at: Timestamp) -> Ledgered {
    let place = (at("01T05:00:00"), ScheduleId::from_static("a"));
    let standing = Standing { state, generation, opened_at };
    Ledgered { rows: BTreeMap::from([(place, standing)]), spans: vec![] }
}

fn verdicts(ledger: &Ledgered) -> [Verdict; 3] {
    let schedules = [cron("a", "0 * * * *")];
    let place = (at("01T05:00:00"), ScheduleId::from_static("a"));
    Reprocess::ALL.map(|reprocess| {
        plan(&extent(&schedules, reprocess, Order::Ascending), std::slice::from_ref(&place), ledger)
            [0]
    })
}

#[test]
fn missing_failed_and_all_take_what_the_design_says() {
    use Verdict::{Exists, Open, Run};
    assert_eq!(verdicts(&Ledgered::default()), [Run; 3], "absent");
    let mut never_ran = vec![Disposition::Missed, Disposition::Unknown];
    never_ran.extend(SkipReason::ALL.map(Disposition::Skipped));
    for disposition in never_ran {
        let seen = verdicts(&one(SlotState::Closed(disposition), 1, at("01T05:00:00")));
        assert_eq!(seen, [Run; 3], "{disposition:?}");
    }
    for disposition in [Disposition::Failed, Disposition::Cancelled] {
        let seen = verdicts(&one(SlotState::Closed(disposition), 1, at("01T05:00:00")));
        assert_eq!(seen, [Exists(disposition), Run, Run]);
    }
    let done = Disposition::Completed;
    let seen = verdicts(&one(SlotState::Closed(done), 1, at("01T05:00:00")));
    assert_eq!(seen, [Exists(done), Exists(done), Run]);
    for state in OpenState::ALL {
        let seen = verdicts(&one(SlotState::Open(state), 1, at("01T05:00:00")));
        assert_eq!(seen, [Open(state); 3], "S7");
    }
}

#[test]
fn a_slot_that_was_opened_since_the_beginning_had_its_turn() {
    let done = Disposition::Completed;
    for (generation, opened_at, expected) in [
        (1, at("09T23:59:59"), Verdict::Run),
        (1, at("10T00:00:00"), Verdict::Exists(done)),
        (2, at("10T00:00:01"), Verdict::Exists(done)),
    ] {
        let [.., all] = verdicts(&one(SlotState::Closed(done), generation, opened_at));
        assert_eq!(all, expected, "{generation} {opened_at}");
    }
    // One that was only recorded since had none.
    let missed = SlotState::Closed(Disposition::Missed);
    assert_eq!(verdicts(&one(missed, 0, at("10T00:00:01"))), [Verdict::Run; 3]);
}

#[test]
fn a_slot_that_a_backfill_opened_and_that_was_cancelled_before_it_began_stands_as_before() {
    let done = Disposition::Completed;
    let now = at("10T00:00:01");
    for (before, attempt, expected) in [
        (None, 0, [Verdict::Run; 3]),
        (Some(Disposition::Skipped(SkipReason::Overlap)), 0, [Verdict::Run; 3]),
        (Some(done), 0, [Verdict::Exists(done), Verdict::Exists(done), Verdict::Run]),
        (None, 1, [Verdict::Exists(Disposition::Cancelled); 3]),
    ] {
        let opening = Opening {
            opened_by: TriggerType::Backfill,
            date: jiff::civil::date(2026, 2, 1),
            at: now,
            closes_at: now,
            version: 1,
        };
        let wish = Some(Box::new(Wish { backfill: Some(1), before, ..Wish::default() }));
        let opened = Slot::open(OpenState::Queued, opening);
        let slot = Slot { attempt, wish, ..opened };
        let slot = slot.close(Disposition::Cancelled, now).unwrap();
        let place = (at("01T05:00:00"), ScheduleId::from_static("a"));
        let rows = Standing::of(&slot).map(|standing| (place, standing)).into_iter().collect();
        assert_eq!(verdicts(&Ledgered { rows, spans: vec![] }), expected, "{before:?} {attempt}");
    }
}

#[test]
fn a_span_speaks_for_its_slots_and_a_row_wins_over_it() {
    let (first, last) = (at("01T01:00:00"), at("01T09:00:00"));
    let id = ScheduleId::from_static("a");
    let mut ledger = one(SlotState::Closed(Disposition::Completed), 1, first);
    let skipped = Disposition::Skipped(SkipReason::NoCatchup);
    ledger.spans.push((id.clone(), first, last, skipped));
    assert_eq!(verdicts(&ledger)[0], Verdict::Exists(Disposition::Completed));
    ledger.rows.clear();
    assert_eq!(verdicts(&ledger), [Verdict::Run; 3]);
}

#[test]
fn what_the_schedule_has_not_recorded_is_the_schedules() {
    let schedules = [cron("a", "0 * * * *")];
    let mut extent = extent(&schedules, Reprocess::All, Order::Ascending);
    extent.schedules[0].recorded_until = Some(at("01T05:00:00"));
    let id = ScheduleId::from_static("a");
    let places = [(at("01T05:00:00"), id.clone()), (at("01T06:00:00"), id)];
    assert_eq!(plan(&extent, &places, &Ledgered::default()), [Verdict::Run, Verdict::Owed]);
}

#[test]
fn only_what_the_clock_owes_can_be_backfilled() {
    let mut watched = pipeline(OverlapPolicy::Skip);
    assert!(refusal(&watched, None).unwrap().contains("owes slots by the clock"));
    watched.starts.push(sample::cron("a", "0 * * * *"));
    let id = watched.starts.first().map(|start| start.schedule.id().clone());
    assert_eq!(refusal(&watched, None), None);
    assert_eq!(refusal(&watched, id.as_ref()), None);
    let unknown = ScheduleId::from_static("nightly");
    assert!(refusal(&watched, Some(&unknown)).unwrap().contains("no schedule `nightly`"));
    watched.trigger.as_mut().unwrap().kind = TriggerKind::External;
    assert!(refusal(&watched, None).unwrap().contains("is watch-only"));
    watched.trigger = None;
    assert!(refusal(&watched, None).unwrap().contains("no trigger"));
}

#[test]
fn a_fingerprint_depends_on_every_slot_and_their_order() {
    let id = ScheduleId::from_static("a");
    let (one, two) = ((at("01T05:00:00"), id.clone()), (at("01T06:00:00"), id));
    let empty = Fingerprint::default();
    assert_ne!(empty.with(&one).with(&two), empty.with(&two).with(&one));
    assert_ne!(empty.with(&one), empty);
    assert_eq!(empty.with(&one).0, 0x5296_db00_2cfd_ea17, "it is stored");
}

proptest! {
    #[test]
    fn chunks_after_a_cursor_are_the_whole_walk_in_order(
        minutes in proptest::collection::vec(1..40_i64, 1..4),
        chunk in 1..30_usize,
        is_descending in any::<bool>(),
    ) {
        let ids = ["a", "b", "c"];
        let schedules: Vec<_> =
            minutes.iter().zip(ids).map(|(step, id)| cron(id, &format!("*/{step} * * * *"))).collect();
        let order = if is_descending { Order::Descending } else { Order::Ascending };
        let extent = extent(&schedules, Reprocess::All, order);
        let mut expected: Vec<Place> = schedules
            .iter()
            .flat_map(|it| {
                it.slots(extent.from, extent.to, usize::MAX).found.into_iter().map(|slot| (slot, it.id().clone()))
            })
            .collect();
        expected.sort();
        if is_descending {
            expected.reverse();
        }
        let mut walked: Vec<Place> = Vec::new();
        loop {
            let next = extent.next(walked.last(), chunk);
            prop_assert!(next.is_end || next.places.len() == chunk);
            walked.extend(next.places);
            if next.is_end {
                break;
            }
        }
        prop_assert_eq!(walked, expected);
    }
}
