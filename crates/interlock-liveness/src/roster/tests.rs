//! The judgement in made-up time.

use std::time::Duration;

use super::*;
use crate::{
    breaker::{Breaker, Fuse, State},
    fence::{BootInstant, FenceCell},
    slot::Places,
};
use std::sync::atomic::Ordering::Relaxed;

const SECOND: u64 = 1_000_000_000;

/// A roster with one watch, and a clock that the test moves.
struct World {
    roster: Roster,
    slot: Slot,
    places: Places,
    now: Reading,
    acts: Vec<Act>,
}

impl World {
    fn new(ladder: Ladder, shape: impl FnOnce(&mut Cold)) -> Self {
        Self::booted(1_000 * SECOND, ladder, shape)
    }

    /// One on a machine that has been up for so long.
    fn booted(boottime: u64, ladder: Ladder, shape: impl FnOnce(&mut Cold)) -> Self {
        let slots = Slots::new(BLOCK * 3).unwrap();
        let mut places = Places::of(&slots);
        let slot = places.allot().unwrap();
        let mut row = Row::new("loop".into(), slot.clone(), ladder);
        shape(&mut row.cold);
        let mut roster = Roster::of(&slots);
        // So seldom that every look is at everybody.
        roster.set_tick(SECOND / 4);
        roster.add(row);
        let start = 1_000 * SECOND;
        let now = Reading { monotonic: start, boottime, planned: start };
        let mut world = Self { roster, slot, places, now, acts: vec![] };
        world.slot.command(Mandate::Armed);
        world.after(0);
        world
    }

    /// Looks again after so many milliseconds, as planned.
    fn after(&mut self, millis: u64) -> Verdict {
        self.now.monotonic += millis * 1_000_000;
        self.now.boottime += millis * 1_000_000;
        self.now.planned = self.now.monotonic;
        self.look()
    }

    fn look(&mut self) -> Verdict {
        self.acts.clear();
        self.roster.scan(self.now, &mut self.acts)
    }

    /// Looks every 100 ms for so long; answers with the steps and their times since now, in milliseconds.
    fn climbs(&mut self, millis: u64) -> Vec<(Rung, u64)> {
        let mut climbs = Vec::new();
        for _ in 0..millis / 100 {
            self.after(100);
            climbs.extend(self.acts.iter().filter_map(|act| match act {
                Act::Climbed { rung, age, .. } => Some((*rung, age / 1_000_000)),
                Act::Recovered { .. }
                | Act::Opened { .. }
                | Act::Closed { .. }
                | Act::TermEnded { .. }
                | Act::Stalled { .. } => None,
            }));
        }
        climbs
    }
}

fn ladder() -> Ladder {
    Ladder::hard(Duration::from_secs(10), Duration::from_secs(30))
}

#[test]
fn every_step_is_taken_at_its_time_and_not_before() {
    let mut world = World::new(ladder(), |_| {});
    let expected = [
        (Rung::Late, 5_000),
        (Rung::Soft, 10_000),
        (Rung::Release, 11_000),
        (Rung::Drain, 12_000),
        (Rung::Hard, 30_000),
    ];
    assert_eq!(world.climbs(60_000), expected);
}

#[test]
fn progress_begins_the_count_again_and_says_how_long_it_took() {
    let mut world = World::new(ladder(), |_| {});
    assert_eq!(world.climbs(11_000).len(), 3);
    assert_eq!(world.after(100).worst, Rung::Release);
    world.slot.own().advance(1);
    let verdict = world.after(100);
    assert_eq!((verdict.worst, verdict.is_well, verdict.ends_at), (Rung::Well, true, None));
    assert!(matches!(world.acts[..], [Act::Recovered { from: Rung::Release, .. }]));
    assert_eq!(world.slot.found().longest_gap.load(Relaxed), 11_200 * 1_000_000);
    assert_eq!(world.climbs(4_900), []);
}

#[test]
fn the_end_is_known_from_the_first_expiry_on() {
    let mut world = World::new(ladder(), |_| {});
    let since = world.now.monotonic;
    assert_eq!(world.after(9_900).ends_at, None);
    world.after(100);
    assert_eq!(world.look().ends_at, Some(since + 30 * SECOND));
}

#[test]
fn a_watch_at_rest_is_not_judged() {
    let mut world = World::new(ladder(), |_| {});
    world.slot.command(Mandate::Rest);
    assert_eq!(world.climbs(100_000), []);
}

#[test]
fn fault_37_a_pause_holds_for_its_bound_and_one_that_is_forgotten_expires() {
    let mut world = World::new(ladder(), |_| {});
    world.slot.command(Mandate::Paused(120_000));
    world.after(0);
    let climbs = world.climbs(119_900);
    assert_eq!(climbs, [(Rung::Late, 115_000)]);
    assert_eq!(world.climbs(30_000)[0], (Rung::Soft, 120_000));
}

#[test]
fn fault_13_a_process_that_did_not_run_blames_no_watch_three_times_in_ten_minutes() {
    let mut world = World::new(ladder(), |_| {});
    for time in 0..4 {
        world.after(100);
        world.now.monotonic += 60 * SECOND;
        world.now.boottime += 60 * SECOND;
        world.look();
        let forgiven = if time < 3 { Forgiven::Yes } else { Forgiven::No };
        let stalled = Act::Stalled { nanos: 60 * SECOND, slept: 0, forgiven };
        assert_eq!(world.acts[0], stalled, "{time}");
        assert_eq!(world.acts.len() > 1, time == 3, "only the fourth counts: {:?}", world.acts);
    }
}

#[test]
fn fault_17_sleep_is_forgiven_to_a_watch_and_ends_a_term_at_once() {
    let cell = FenceCell::default();
    let _term = cell.grant(1, BootInstant::now().after(Duration::from_secs(30))).unwrap();
    let held = cell.clone();
    // The term is one of this machine's real time; a made-up one that is later would end it on a machine that has just booted.
    let real = crate::clock::boottime();
    let mut world = World::booted(real, ladder(), |cold| cold.fence = Some(held));
    world.look();
    assert!(cell.is_held());
    // The lid is closed for an hour.
    world.now.boottime = real + 3_600 * SECOND;
    world.look();
    assert!(world.acts.contains(&Act::TermEnded { at: 0 }), "{:?}", world.acts);
    assert!(!world.acts.iter().any(|act| matches!(act, Act::Climbed { .. })));
    assert!(!cell.is_held());
}

#[test]
fn a_watch_that_keeps_expiring_is_set_aside_and_gets_one_chance() {
    let breaker =
        Breaker { expiries: 2, within: Duration::from_mins(10), open_for: Duration::from_mins(5) };
    let soft = Ladder::soft(Duration::from_secs(10));
    let mut world = World::new(soft, |cold| cold.fuse = Some(Fuse::new(breaker)));
    let expire = |world: &mut World| {
        world.slot.own().advance(1);
        world.after(100);
        world.after(5_000);
        world.after(5_000);
        world.acts.contains(&Act::Opened { at: 0 })
    };
    assert!(!expire(&mut world));
    assert!(expire(&mut world), "the second within ten minutes");
    assert_eq!(State::from_number(world.slot.found().breaker.load(Relaxed)), State::Open);
    assert_eq!(world.climbs(299_000), [], "it is left alone");
    world.after(1_000);
    assert_eq!(State::from_number(world.slot.found().breaker.load(Relaxed)), State::HalfOpen);
    world.after(5_000);
    world.after(5_000);
    assert!(world.acts.contains(&Act::Opened { at: 0 }), "one expiry is enough now");
    world.after(300_000);
    world.slot.own().advance(1);
    world.after(100);
    assert!(world.acts.contains(&Act::Closed { at: 0 }), "{:?}", world.acts);
}

#[test]
fn fault_38_the_suggested_limit_is_within_twice_of_three_times_the_99th_percentile() {
    let mut world = World::new(ladder(), |_| {});
    // Gaps of 100 to 199 ms, and one in fifty of a second: the 99th percentile is a second.
    for round in 0..20_000_u64 {
        let gap = if round % 50 == 49 { 1_000 } else { 100 + round * 7 % 100 };
        world.slot.own().advance(1);
        world.after(gap);
        assert!(world.acts.is_empty(), "nobody is blamed: {:?}", world.acts);
    }
    let usual = world.slot.found().usual_gap.load(Relaxed) / 1_000_000;
    assert!((500..=2_000).contains(&usual), "{usual} ms");
}

#[test]
fn who_is_armed_is_counted_from_the_next_tick_on_however_patient_its_group_is() {
    let mut world = World::new(ladder(), |_| {});
    world.roster.set_tick(SECOND / 1_000);
    world.slot.command(Mandate::Rest);
    for _ in 0..401 {
        world.after(1);
    }
    world.slot.command(Mandate::Armed);
    let mut late = None;
    for millis in 0..=5_300 {
        world.after(1);
        if late.is_none() && !world.acts.is_empty() {
            late = Some(millis);
        }
    }
    assert_eq!(late, Some(5_000));
}

#[test]
fn what_is_due_is_looked_at_in_time_however_patient_its_group_is() {
    let mut world = World::new(ladder(), |_| {});
    world.roster.set_tick(SECOND / 1_000);
    let mut late = None;
    for millis in 1..=5_001 {
        world.after(1);
        if late.is_none() && !world.acts.is_empty() {
            late = Some(millis);
        }
    }
    assert_eq!(late, Some(5_000));
}

#[test]
fn who_is_gone_is_taken_out_and_the_others_stay() {
    let mut world = World::new(ladder(), |_| {});
    let other = world.places.allot().unwrap();
    other.command(Mandate::Armed);
    world.roster.add(Row::new("other".into(), other.clone(), ladder()));
    world.slot.command(Mandate::Retired);
    world.after(100);
    let mut gone = Vec::with_capacity(4);
    world.roster.retire(&mut gone);
    assert_eq!((gone.len(), world.roster.cold.iter().flatten().count()), (1, 1));
    assert_eq!(world.climbs(5_000), [(Rung::Late, 5_000)], "{:?}", other.found());
    // Its place is given to somebody else, who is judged as a newcomer.
    world.places.free(gone[0].place());
    let next = world.places.allot().unwrap();
    assert_eq!(next.place(), 0);
    next.command(Mandate::Armed);
    assert_eq!(world.climbs(5_000)[0], (Rung::Soft, 10_000), "the other, and nobody else");
    world.roster.add(Row::new("next".into(), next, ladder()));
    world.after(100);
    let expected = [(Rung::Release, 11_000), (Rung::Drain, 12_000), (Rung::Late, 5_000)];
    assert_eq!(world.climbs(5_000), expected, "each by its own count");
}

#[test]
fn who_comes_out_of_turn_is_watched_as_everybody_else() {
    let mut world = World::new(ladder(), |_| {});
    let all: Vec<Slot> = std::iter::from_fn(|| world.places.allot()).collect();
    let last = all.last().unwrap().clone();
    last.command(Mandate::Armed);
    // The one before the last of its block registers, and is taken in later.
    world.roster.add(Row::new("last".into(), last, ladder()));
    world.after(0);
    assert_eq!(world.climbs(5_000), [(Rung::Late, 5_000), (Rung::Late, 5_000)]);
}

#[test]
fn fault_36_what_the_one_before_counted_proves_nothing_of_who_has_the_place_now() {
    let mut world = World::new(ladder(), |_| {});
    world.slot.own().advance(7);
    assert!(world.after(100).is_proven, "it has moved");
    world.slot.command(Mandate::Retired);
    world.after(100);
    let mut gone = Vec::with_capacity(4);
    world.roster.retire(&mut gone);
    world.places.free(gone[0].place());
    let next = world.places.allot().unwrap();
    assert_eq!((next.place(), next.own().progress()), (0, 7), "the counter goes on");
    world.roster.add(Row::new("next".into(), next.clone(), ladder()));
    next.command(Mandate::Armed);
    world.after(100);
    assert!(!world.after(100).is_proven, "nobody has seen it move");
    next.own().advance(1);
    assert!(world.after(100).is_proven);
}
