//! Overlap, order, readiness and forced ends, each as one line of slots and the moves they get.

use std::collections::BTreeMap;

use jiff::civil::Date;

use super::*;
use crate::{
    sample::{cron, pipeline},
    slot::{Opening, Wish},
};

const NOW: i64 = 1_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// So many runs, of whatever slots.
fn all(runs: u32) -> Room {
    Room { runs, kept_free: 0, catchup: runs }
}

/// The lane of slots that a backfill opened: two places, or one, the newest first; none of one that is paused.
fn lane(slot: &Slot) -> Option<Lane> {
    let number = slot.wish.as_ref()?.backfill?;
    let (places, order) = match number {
        1 => (2, Order::Ascending),
        2 => (1, Order::Descending),
        _ => (0, Order::Ascending),
    };
    Some(Lane { number, places, order })
}

/// One slot: state letter, then `r` ready, `n` not ready, `?` cannot tell; `m` opened by hand; `c` by catch-up, `a` and
/// asked for; `x` over; `o` recorded when the policy was `all`; a number is its lane.
fn slot(text: &str) -> (Slot, Outcome) {
    let state = match &text[..1] {
        "w" => OpenState::Waiting,
        "q" => OpenState::Queued,
        "R" => OpenState::Running,
        "b" => OpenState::Backoff,
        _ => OpenState::Monitoring,
    };
    let backfill = text.chars().find_map(|letter| letter.to_digit(10)).map(u64::from);
    let opened_by = match backfill {
        Some(_) => TriggerType::Backfill,
        None if text.contains('m') => TriggerType::Manual,
        None if text.contains(['c', 'a']) => TriggerType::Catchup,
        None => TriggerType::Scheduler,
    };
    let closes_at = if text.contains('x') { at(NOW - 100) } else { at(NOW + 100) };
    let date = Date::constant(2026, 1, 1);
    let mut slot = Slot::open(state, Opening { opened_by, date, at: at(0), closes_at, version: 1 });
    slot.attempt = u32::from(matches!(state, OpenState::Running | OpenState::Backoff));
    let has_wish = backfill.is_some() || text.contains('a');
    slot.wish = has_wish.then(|| Box::new(Wish { backfill, ..Wish::default() }));
    let readiness = match text {
        text if text.contains('n') => Outcome::NotReady,
        text if text.contains('?') => Outcome::CannotTell,
        _ => Outcome::Ready,
    };
    (slot, readiness)
}

/// Plans slots given in order of time and writes the moves as words.
fn moves(pipeline: &Pipeline, flow: Flow, slots: &str) -> String {
    moves_with(pipeline, flow, slots, (u32::MAX, &[]))
}

/// The same with room for so many runs, and with slots whose work was done already, counted from 1.
fn moves_with(pipeline: &Pipeline, flow: Flow, slots: &str, (room, done): (u32, &[i64])) -> String {
    moves_in(pipeline, flow, slots, (all(room), done))
}

fn moves_in(pipeline: &Pipeline, flow: Flow, slots: &str, (room, done): (Room, &[i64])) -> String {
    let is_older = slots.split(' ').map(|text| text.contains('o'));
    let older: Vec<_> = is_older.collect();
    let slots: Vec<_> = slots.split(' ').map(slot).collect();
    let id = ScheduleId::from_static("cron");
    let candidates: Vec<_> = slots
        .iter()
        .zip(1..)
        .zip(older)
        .map(|(((slot, readiness), nominal), is_older)| Candidate {
            nominal: at(nominal),
            schedule: &id,
            slot,
            readiness: *readiness,
            is_done_already: done.contains(&nominal),
            overlap: if is_older { OverlapPolicy::All } else { pipeline.catchup.overlap },
            lane: lane(slot),
            is_unheard: false,
        })
        .collect();
    let planned: BTreeMap<_, _> =
        plan_slots(pipeline, &candidates, flow, room, at(NOW)).into_iter().collect();
    let word = |index: usize| match planned.get(&index) {
        None => "-".to_owned(),
        Some(Move::Start(attempt)) => format!("start{attempt}"),
        Some(Move::Queue) => "queue".to_owned(),
        Some(Move::WaitAgain) => "wait".to_owned(),
        Some(Move::Drift) => "drift".to_owned(),
        Some(Move::Close(disposition)) => SlotState::Closed(*disposition).to_string(),
    };
    (0..slots.len()).map(word).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(overlap: OverlapPolicy, slots: &str, expected: &str) {
    assert_eq!(moves(&pipeline(overlap), Flow::Open, slots), expected, "{slots}");
}

#[test]
fn a_ready_slot_starts_and_others_wait() {
    use OverlapPolicy::Skip;
    check(Skip, "w", "start1");
    check(Skip, "wn", "-");
    check(Skip, "w?", "-");
    // A waiting slot holds nobody back.
    check(Skip, "wn w", "- start1");
}

#[test]
fn s6_skip_closes_what_finds_a_run() {
    use OverlapPolicy::Skip;
    check(Skip, "R w", "- skipped(overlap)");
    check(Skip, "b w", "start2 skipped(overlap)");
    check(Skip, "w w w", "start1 skipped(overlap) skipped(overlap)");
    // An older one that was only waiting does so too once it is startable.
    check(Skip, "w R", "skipped(overlap) -");
    // Monitoring frees its place.
    check(Skip, "M w", "- start1");
    // Not ready is not startable: it goes on waiting.
    check(Skip, "R wn", "- -");
}

#[test]
fn s6_all_queues_in_order() {
    use OverlapPolicy::All;
    check(All, "R w w", "- queue queue");
    check(All, "q q w", "start1 - queue");
    check(All, "M q q", "- start1 -");
}

#[test]
fn s6_latest_keeps_the_newest_queued() {
    use OverlapPolicy::Latest;
    check(Latest, "R w w w", "- skipped(superseded) skipped(superseded) queue");
    check(Latest, "R q w", "- skipped(superseded) queue");
    check(Latest, "q", "start1");
}

/// The policy picks among what it chose itself; all that was asked for runs.
#[test]
fn what_is_asked_to_be_caught_up_is_never_skipped() {
    use OverlapPolicy::{Latest, Skip};
    check(Latest, "qc qc qc w", "start1 skipped(superseded) skipped(superseded) queue");
    check(Latest, "qa qa qa w", "start1 - - queue");
    check(Latest, "R qa qa q w", "- - - skipped(superseded) queue");
    // Not ready at its turn, and ready again while another runs.
    check(Skip, "qan w", "wait start1");
    check(Skip, "wc R", "skipped(overlap) -");
    check(Skip, "wa R", "queue -");
    // It is a run that the schedule owed: a live slot that finds it is skipped.
    check(Skip, "qa qa w", "start1 - skipped(overlap)");
    let done = (u32::MAX, &[1_i64, 2][..]);
    let orders = pipeline(Skip);
    assert_eq!(moves_with(&orders, Flow::Open, "qc qa", done), "skipped(superseded) start1");
}

#[test]
fn what_people_ask_for_queues_and_never_makes_a_live_slot_skip() {
    use OverlapPolicy::Skip;
    check(Skip, "R wm", "- queue");
    check(Skip, "Rm w", "- queue");
    // The live slot goes first although the other was asked for earlier.
    check(Skip, "qm q", "- start1");
}

#[test]
fn s8_a_queued_slot_is_asked_again_at_its_turn() {
    check(OverlapPolicy::All, "qn w", "wait start1");
    check(OverlapPolicy::All, "q? q", "wait start1");
}

#[test]
fn more_places_take_more_runs() {
    let mut two = pipeline(OverlapPolicy::Skip);
    two.active_runs_max = 2;
    assert_eq!(moves(&two, Flow::Open, "R w w"), "- start1 skipped(overlap)");
}

#[test]
fn fail_open_runs_when_it_cannot_be_told_and_only_then() {
    let mut open = pipeline(OverlapPolicy::Skip);
    open.readiness.fail_open = true;
    assert_eq!(moves(&open, Flow::Open, "w?"), "start1");
    assert_eq!(moves(&open, Flow::Open, "wn"), "-");
}

#[test]
fn a_dry_run_starts_nothing() {
    let mut dry = pipeline(OverlapPolicy::Skip);
    dry.dry_run = true;
    assert_eq!(moves(&dry, Flow::Open, "w w"), "skipped(dry_run) skipped(dry_run)");
}

#[test]
fn s19_what_is_over_is_closed_by_its_state() {
    use OverlapPolicy::Skip;
    check(Skip, "wnx", "skipped(not_ready)");
    check(Skip, "w?x", "skipped(not_ready)");
    // Whoever opened it died before it looked: nobody ever found it not ready.
    check(Skip, "wrx", "start1");
    check(Skip, "qx", "skipped(expired)");
    check(Skip, "bx", "failed");
    check(Skip, "Mx", "completed");
    check(Skip, "Rx", "failed");
}

#[test]
fn what_is_found_ready_later_than_it_would_be_caught_up_is_skipped_as_that() {
    let mut orders = pipeline(OverlapPolicy::Skip);
    orders.starts.push(cron("cron", "* * * * *"));
    // Over for 100 s, and live for 60.
    assert_eq!(moves(&orders, Flow::Open, "wrx"), "skipped(no_catchup)");
    assert_eq!(moves(&orders, Flow::Open, "wrmx"), "start1", "people do not ask in vain");
    orders.catchup.window = Some(SignedDuration::from_secs(90));
    assert_eq!(moves(&orders, Flow::Open, "wrx"), "skipped(expired)");
    orders.catchup.window = Some(SignedDuration::from_secs(100));
    assert_eq!(moves(&orders, Flow::Open, "wrx"), "start1");
    assert_eq!(moves(&orders, Flow::Open, "wnx"), "skipped(not_ready)");
}

#[test]
fn a_pause_starts_nothing_and_lets_runs_end() {
    let orders = pipeline(OverlapPolicy::Skip);
    assert_eq!(moves(&orders, Flow::Paused, "w q R b"), "- - - -");
    assert_eq!(moves(&orders, Flow::Paused, "wx qx"), "skipped(paused) skipped(paused)");
}

#[test]
fn a_retired_pipeline_closes_what_has_not_begun() {
    let orders = pipeline(OverlapPolicy::Skip);
    let expected = "skipped(retired) skipped(retired) - failed -";
    assert_eq!(moves(&orders, Flow::Retired, "w q R b M"), expected);
}

#[test]
fn a_watch_only_slot_is_missed_at_its_deadline_and_never_started() {
    let mut watched = pipeline(OverlapPolicy::Skip);
    watched.trigger.as_mut().unwrap().kind = TriggerKind::External;
    assert_eq!(moves(&watched, Flow::Open, "w"), "-");
    assert_eq!(moves(&watched, Flow::Open, "wx"), "missed");
}

#[test]
fn s19_the_owner_gives_the_watchdog_a_minute_for_a_run() {
    let (mut running, _) = slot("R");
    let id = ScheduleId::from_static("cron");
    let orders = pipeline(OverlapPolicy::Skip);
    for (late, expected) in [(59, 0), (60, 1)] {
        running.closes_at = at(NOW - late);
        let candidate = Candidate {
            nominal: at(1),
            schedule: &id,
            slot: &running,
            readiness: Outcome::Ready,
            is_done_already: false,
            overlap: OverlapPolicy::Skip,
            lane: None,
            is_unheard: false,
        };
        assert_eq!(
            plan_slots(&orders, &[candidate], Flow::Open, all(1), at(NOW)).len(),
            expected,
            "{late}"
        );
    }
}

#[test]
fn monitored_data_that_is_not_ready_any_more_has_drifted() {
    let orders = pipeline(OverlapPolicy::Skip);
    assert_eq!(moves(&orders, Flow::Open, "Mn"), "drift");
    // What cannot be told is no drift, and a window that is over is over.
    assert_eq!(moves(&orders, Flow::Open, "M? M Mnx"), "- - completed");
    // Its success is not given up for a rerun that may not begin.
    assert_eq!(moves(&orders, Flow::Paused, "Mn Mnx"), "- completed");
    assert_eq!(moves(&orders, Flow::Retired, "Mn Mnx"), "- completed");
    let mut watched = pipeline(OverlapPolicy::Skip);
    watched.trigger.as_mut().unwrap().kind = TriggerKind::External;
    assert_eq!(moves(&watched, Flow::Open, "Mn Mnx"), "- completed");
}

#[test]
fn no_more_runs_begin_than_there_is_room_over_all_pipelines() {
    let mut orders = pipeline(OverlapPolicy::All);
    orders.active_runs_max = 9;
    assert_eq!(moves_with(&orders, Flow::Open, "w w b", (2, &[])), "start1 queue start2");
    assert_eq!(moves_with(&orders, Flow::Open, "w q b", (0, &[])), "queue - -");
}

#[test]
fn work_that_was_done_since_the_last_slot_is_not_done_again() {
    let orders = pipeline(OverlapPolicy::Skip);
    let none = (u32::MAX, &[1_i64, 2][..]);
    assert_eq!(moves_with(&orders, Flow::Open, "w wm", none), "skipped(superseded) start1");
    // Not before it is ready: until then nobody knows whether it is the same data.
    assert_eq!(moves_with(&orders, Flow::Open, "wn", none), "-");
}

#[test]
fn a_rerun_for_late_data_queues_where_a_live_slot_would_be_skipped() {
    let mut candidates = [slot("R"), slot("w")];
    for (generation, expected) in [(1, "skipped(overlap)"), (2, "queue")] {
        candidates[1].0.opened_by = TriggerType::Sensor;
        candidates[1].0.generation = generation;
        let id = ScheduleId::from_static("stream");
        let slots: Vec<_> = candidates
            .iter()
            .zip(1..)
            .map(|((slot, readiness), nominal)| Candidate {
                nominal: at(nominal),
                schedule: &id,
                slot,
                readiness: *readiness,
                is_done_already: false,
                overlap: OverlapPolicy::Skip,
                lane: None,
                is_unheard: false,
            })
            .collect();
        let orders = pipeline(OverlapPolicy::Skip);
        let planned = plan_slots(&orders, &slots, Flow::Open, all(9), at(NOW));
        let step = match planned.as_slice() {
            [(1, Move::Queue)] => "queue".to_owned(),
            [(1, Move::Close(disposition))] => SlotState::Closed(*disposition).to_string(),
            other => format!("{other:?}"),
        };
        assert_eq!(step, expected, "generation {generation}");
    }
}

#[test]
fn limits_on_catch_up_hold_up_no_live_slot() {
    let mut orders = pipeline(OverlapPolicy::All);
    orders.active_runs_max = 9;
    let id = ScheduleId::from_static("cron");
    let (mut missed, ready) = slot("q");
    missed.opened_by = TriggerType::Catchup;
    let (live, _) = slot("w");
    let candidates = [&missed, &missed, &live].map(|slot| Candidate {
        nominal: at(1),
        schedule: &id,
        slot,
        readiness: ready,
        is_done_already: false,
        overlap: OverlapPolicy::All,
        lane: None,
        is_unheard: false,
    });
    let with = |catchup| {
        let room = Room { runs: 9, kept_free: 0, catchup };
        let moves = plan_slots(&orders, &candidates, Flow::Open, room, at(NOW));
        moves.into_iter().map(|(index, _)| index).collect::<Vec<_>>()
    };
    assert_eq!(with(0), [2]);
    assert_eq!(with(1), [0, 2]);
    assert_eq!(with(9), [0, 1, 2]);
}

#[test]
fn who_finds_no_room_queues_and_is_not_overtaken() {
    let with = |slots: &str, room| {
        let orders = pipeline(OverlapPolicy::All);
        moves_in(&orders, Flow::Open, slots, (room, &[]))
    };
    let none_for_catch_up = Room { runs: 9, kept_free: 0, catchup: 0 };
    assert_eq!(with("qc wr", none_for_catch_up), "- queue");
    assert_eq!(with("wc wr", none_for_catch_up), "queue queue");
    assert_eq!(with("wr wr", all(0)), "queue queue");
    // Under `latest` the newer one does the work of the one that waits.
    let latest = pipeline(OverlapPolicy::Latest);
    let newest = moves_in(&latest, Flow::Open, "qc wr", (none_for_catch_up, &[]));
    assert_eq!(newest, "skipped(superseded) start1");
    assert_eq!(
        moves_with(&latest, Flow::Open, "wr qn wr", (0, &[])),
        "skipped(superseded) wait queue"
    );
    // Under `skip` live ones do not pile up; that it was not ready is not what they are skipped for.
    let skipping = pipeline(OverlapPolicy::Skip);
    let of_none = |slots| moves_with(&skipping, Flow::Open, slots, (0, &[]));
    assert_eq!(of_none("wr wr"), "- -");
    assert_eq!(of_none("wr wr wrm"), "- - queue");
    assert_eq!(of_none("wrx"), "skipped(overlap)");
    assert_eq!(of_none("wcx"), "queue", "a missed slot that was to run runs");
    assert_eq!(of_none("wrmx"), "queue", "people do not ask in vain");
}

#[test]
fn what_is_kept_free_is_not_for_the_past() {
    let with = |slots: &str, runs| {
        let orders = wide(OverlapPolicy::All, 5);
        let room = Room { runs, kept_free: 2, catchup: 9 };
        moves_in(&orders, Flow::Open, slots, (room, &[]))
    };
    assert_eq!(with("qc q1 wr", 2), "- - start1");
    assert_eq!(with("qc q1 wr wrm", 2), "- - start1 start1");
    assert_eq!(with("qc qc wr", 3), "start1 - start1");
    assert_eq!(with("q1 q1", 3), "start1 -");
}

#[test]
fn s16_a_slot_keeps_the_policy_that_it_was_recorded_under() {
    let orders = pipeline(OverlapPolicy::Latest);
    assert_eq!(
        moves(&orders, Flow::Open, "R qc qc wr"),
        "- superseded superseded queue".replace("superseded", "skipped(superseded)")
    );
    assert_eq!(moves(&orders, Flow::Open, "R qco qco wr"), "- - - queue");
}

fn wide(overlap: OverlapPolicy, places: u32) -> Pipeline {
    Pipeline { active_runs_max: places, ..pipeline(overlap) }
}

#[test]
fn live_slots_come_first_then_people_then_backfills() {
    for overlap in [OverlapPolicy::Skip, OverlapPolicy::All, OverlapPolicy::Latest] {
        check(overlap, "q1 wrm wr", "- queue start1");
        check(overlap, "q1 wrm", "- start1");
        // One that a backfill's run alone holds up queues, whatever the policy.
        check(overlap, "R1 q1 wr", "- - queue");
        check(overlap, "q1 qr", "- start1");
    }
}

#[test]
fn a_backfill_never_makes_live_slots_skip() {
    // Of two places one is free but for the backfill.
    let two = wide(OverlapPolicy::Skip, 2);
    assert_eq!(moves(&two, Flow::Open, "R1 R wr"), "- - queue");
    assert_eq!(moves(&two, Flow::Open, "R R wr"), "- - skipped(overlap)");
    assert_eq!(moves(&two, Flow::Open, "R Rm wr"), "- - queue");
    // Nor those that meet live runs which it made late.
    check(OverlapPolicy::Skip, "q1 R wr", "- - queue");
    check(OverlapPolicy::Skip, "R qr wr", "- - queue");
    check(OverlapPolicy::Skip, "R wr", "- skipped(overlap)");
}

#[test]
fn a_lane_has_so_many_places_of_the_pipelines() {
    let five = wide(OverlapPolicy::Skip, 5);
    assert_eq!(moves(&five, Flow::Open, "R1 w1 w1 w1"), "- start1 queue queue");
    assert_eq!(moves(&five, Flow::Open, "b1x R1 w1"), "failed - start1");
    // Two lanes do not share; the second takes its newest.
    assert_eq!(moves(&five, Flow::Open, "w1 w2 w1 w2 w1"), "start1 queue start1 start1 queue");
    // The pipeline's own places are the other bound.
    assert_eq!(moves(&wide(OverlapPolicy::Skip, 1), Flow::Open, "w1 w1"), "start1 queue");
}

#[test]
fn a_backfill_goes_on_while_the_pipeline_is_paused() {
    let two = wide(OverlapPolicy::Skip, 3);
    assert_eq!(moves(&two, Flow::Paused, "w1 wr qr b1 b"), "start1 - - start2 -");
    assert_eq!(
        moves(&two, Flow::Paused, "w1nx wx q1x"),
        "skipped(not_ready) skipped(paused) skipped(expired)"
    );
    assert_eq!(
        moves(&two, Flow::Retired, "w1 q1 b1 R1"),
        "skipped(retired) skipped(retired) failed -"
    );
}

#[test]
fn a_paused_backfill_starts_nothing_and_its_slots_queue() {
    let two = wide(OverlapPolicy::Skip, 2);
    assert_eq!(moves(&two, Flow::Open, "w3 w3n q3 q3n R3"), "queue queue - - -");
    // What has begun is brought to its end.
    assert_eq!(moves(&two, Flow::Open, "b3"), "start2");
}
