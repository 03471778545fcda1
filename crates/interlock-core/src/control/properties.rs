//! What holds for every plan, whatever the slots: places (S6), turns, ends, and that a plan is all there is
//! to do.

use jiff::civil::Date;
use proptest::prelude::*;

use super::*;
use crate::{
    sample::pipeline,
    slot::{Opening, Wish},
};

const NOW: i64 = 10_000;

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(second).unwrap()
}

/// So many runs, of whatever slots.
fn all(runs: u32) -> Room {
    Room { runs, kept_free: 0, catchup: runs }
}

/// A slot, whether it may run, and whether its work was done already.
type Given = (Slot, Outcome, bool);

/// Everything that a plan is made from.
#[derive(Debug, Clone)]
struct World {
    pipeline: Pipeline,
    slots: Vec<Given>,
    flow: Flow,
    room: u32,
}

impl World {
    fn candidates<'a>(&'a self, id: &'a ScheduleId) -> Vec<Candidate<'a>> {
        let numbered = self.slots.iter().zip(1..);
        let candidate = |((slot, readiness, done), nominal): (&'a Given, i64)| Candidate {
            nominal: at(nominal),
            schedule: id,
            slot,
            readiness: *readiness,
            is_done_already: *done,
            overlap: self.pipeline.catchup.overlap,
            lane: None,
            is_unheard: false,
        };
        numbered.map(candidate).collect()
    }

    fn plan(&self) -> Vec<(usize, Move)> {
        let id = ScheduleId::from_static("cron");
        plan_slots(&self.pipeline, &self.candidates(&id), self.flow, all(self.room), at(NOW))
    }

    /// The move of each slot.
    fn moves(&self) -> Vec<Option<Move>> {
        let mut moves = vec![None; self.slots.len()];
        for (index, step) in self.plan() {
            moves[index] = Some(step);
        }
        moves
    }

    /// The world after the moves: what is closed is gone, and drift opened its next generation.
    fn after(&self) -> Self {
        let mut next = self.clone();
        next.slots.clear();
        for (given, step) in self.slots.iter().zip(self.moves()) {
            let later = at(NOW + 1_000);
            let (slot, readiness, done) = given.clone();
            let slot = match step {
                None => slot,
                Some(Move::Start(attempt)) => {
                    next.room -= 1;
                    Slot { attempt, ..slot.advance(OpenState::Running, later).unwrap() }
                }
                Some(Move::Queue) => slot.advance(OpenState::Queued, later).unwrap(),
                Some(Move::WaitAgain) => slot.advance(OpenState::Waiting, later).unwrap(),
                Some(Move::Close(disposition)) => {
                    slot.close(disposition, at(NOW)).unwrap();
                    continue;
                }
                Some(Move::Drift) => {
                    let opening = Opening {
                        opened_by: TriggerType::Reconcile,
                        date: slot.date,
                        at: at(NOW),
                        closes_at: later,
                        version: 1,
                    };
                    let closed = slot.close(Disposition::Completed, at(NOW)).unwrap();
                    closed.reopen(OpenState::Waiting, opening).unwrap()
                }
            };
            next.slots.push((slot, readiness, done));
        }
        next
    }

    fn occupied(&self) -> u32 {
        self.slots.iter().filter(|given| occupies(given)).count() as u32
    }

    fn may_run(&self, (_, readiness, _): &Given) -> bool {
        match readiness {
            Outcome::Ready => true,
            Outcome::CannotTell => self.pipeline.readiness.fail_open,
            Outcome::NotReady => false,
        }
    }
}

fn is(given: &Given, state: OpenState) -> bool {
    given.0.state == SlotState::Open(state)
}

fn occupies(given: &Given) -> bool {
    is(given, OpenState::Running) || is(given, OpenState::Backoff)
}

/// Whoever looks finds it ready, however late that is.
fn is_found_ready(given: &Given) -> bool {
    is(given, OpenState::Waiting) && given.1 == Outcome::Ready
}

/// It waits for its turn or for its data.
fn has_not_begun(given: &Given) -> bool {
    is(given, OpenState::Waiting) || is(given, OpenState::Queued)
}

/// What a schedule owes, as against what people, backfills and reruns ask for.
fn is_owed((slot, ..): &Given) -> bool {
    let is_asked_for = matches!(
        slot.opened_by,
        TriggerType::Manual | TriggerType::Webhook | TriggerType::Backfill
    );
    slot.generation == 1 && !is_asked_for
}

fn is_start(step: Option<Move>) -> bool {
    matches!(step, Some(Move::Start(_)))
}

const OVERLAP: Option<Move> = Some(Move::Close(Disposition::Skipped(SkipReason::Overlap)));
const SUPERSEDED: Option<Move> = Some(Move::Close(Disposition::Skipped(SkipReason::Superseded)));

prop_compose! {
    fn any_slot()(
        state in prop::sample::select(OpenState::ALL.to_vec()),
        opened_by in prop::sample::select(vec![
            TriggerType::Scheduler, TriggerType::Scheduler, TriggerType::Catchup,
            TriggerType::Sensor, TriggerType::Reconcile, TriggerType::Manual, TriggerType::Webhook, TriggerType::Backfill,
        ]),
        again in any::<bool>(),
        closes_in in prop::sample::select(vec![-100_i64, -30, 50, 500, 500, 500]),
        retry_in in prop::sample::select(vec![-5_i64, 0, 5]),
        readiness in prop::sample::select(vec![
            Outcome::Ready, Outcome::Ready, Outcome::NotReady, Outcome::CannotTell,
        ]),
        done in prop::bool::weighted(0.1),
        asked in any::<bool>(),
    ) -> Given {
        let date = Date::constant(2026, 1, 1);
        let closes_at = at(NOW + closes_in);
        let mut slot = Slot::open(state, Opening { opened_by, date, at: at(0), closes_at, version: 1 });
        // A schedule's own slot is opened again by somebody else only.
        let owed = matches!(opened_by, TriggerType::Scheduler | TriggerType::Catchup);
        slot.generation = if again && !owed { 2 } else { 1 };
        slot.attempt = u32::from(!matches!(state, OpenState::Waiting | OpenState::Queued));
        slot.wish = (asked && opened_by == TriggerType::Catchup).then(Box::<Wish>::default);
        slot.retry_at = (state == OpenState::Backoff).then(|| at(NOW + retry_in));
        (slot, readiness, done)
    }
}

prop_compose! {
    fn any_world()(
        overlap in prop::sample::select(vec![OverlapPolicy::Skip, OverlapPolicy::All, OverlapPolicy::Latest]),
        active_runs_max in 1_u32..4,
        fail_open in any::<bool>(),
        slots in prop::collection::vec(any_slot(), 0..9),
        flow in prop::sample::select(vec![Flow::Open, Flow::Open, Flow::Open, Flow::Paused, Flow::Retired]),
        room in prop::sample::select(vec![0_u32, 1, 2, 1_000, 1_000, 1_000]),
    ) -> World {
        let mut pipeline = pipeline(overlap);
        pipeline.active_runs_max = active_runs_max;
        pipeline.readiness.fail_open = fail_open;
        World { pipeline, slots, flow, room }
    }
}

/// Nothing but places and readiness decides.
fn any_roomy_world() -> impl Strategy<Value = World> {
    any_world().prop_map(|mut world| {
        (world.flow, world.room) = (Flow::Open, 1_000);
        world.slots.iter_mut().for_each(|(_, _, done)| *done = false);
        world
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(1_000))]

    #[test]
    fn s6_no_more_places_are_taken_than_there_are(world in any_world()) {
        let (before, after) = (world.occupied(), world.after().occupied());
        prop_assert!(after <= before.max(world.pipeline.active_runs_max), "{before} became {after}");
        let starts = world.moves().into_iter().filter(|step| is_start(*step)).count();
        prop_assert!(starts as u32 <= world.room);
    }

    #[test]
    fn a_slot_has_one_move_at_most_and_the_same_each_time(world in any_world()) {
        let plan = world.plan();
        prop_assert!(plan.windows(2).all(|pair| pair[0].0 < pair[1].0), "{plan:?}");
        prop_assert!(plan.iter().all(|(index, _)| *index < world.slots.len()), "{plan:?}");
        prop_assert_eq!(world.plan(), plan);
    }

    /// Every move is one that the slot machine knows (`after` would panic), and once they are made there is
    /// nothing left to do: a plan that was half applied is continued, not contradicted.
    #[test]
    fn a_plan_is_all_there_is_to_do(world in any_world()) {
        let after = world.after();
        prop_assert_eq!(after.plan(), vec![], "{:?}", after);
    }

    #[test]
    fn s8_nothing_starts_that_may_not_run(world in any_world()) {
        for (given, step) in world.slots.iter().zip(world.moves()) {
            if is_start(step) && has_not_begun(given) {
                prop_assert!(world.may_run(given), "{given:?}");
            }
            if is_start(step) {
                prop_assert_eq!(world.flow, Flow::Open);
                prop_assert_eq!(step, Some(Move::Start(given.0.attempt + 1)));
            }
        }
    }

    #[test]
    fn a_waiting_slot_that_is_not_ready_changes_nothing_for_others(world in any_world()) {
        let idle = |given: &Given| is(given, OpenState::Waiting) && !world.may_run(given);
        let mut without = world.clone();
        without.slots.retain(|given| !idle(given));
        let others = world.slots.iter().zip(world.moves()).filter(|(given, _)| !idle(given));
        prop_assert_eq!(without.moves(), others.map(|(_, step)| step).collect::<Vec<_>>());
    }

    /// No place stays free while somebody could use it, and who goes first is in order: what schedules owe
    /// before what people asked for, each by instant.
    #[test]
    fn free_places_go_to_whoever_is_first(world in any_roomy_world()) {
        let moves = world.moves();
        let is_over = |given: &Given| {
            given.0.closes_at <= at(NOW) && has_not_begun(given) && !is_found_ready(given)
        };
        let mut line: Vec<usize> = (0..world.slots.len())
            .filter(|index| {
                let given = &world.slots[*index];
                has_not_begun(given) && !is_over(given) && world.may_run(given)
            })
            .collect();
        line.sort_by_key(|index| !is_owed(&world.slots[*index]));
        let held = world.slots.iter().zip(&moves).filter(|(given, step)| {
            occupies(given) && !matches!(step, Some(Move::Close(_)))
        });
        let free = (world.pipeline.active_runs_max as usize).saturating_sub(held.count());
        let started: Vec<usize> = (0..world.slots.len())
            .filter(|index| has_not_begun(&world.slots[*index]) && is_start(moves[*index]))
            .collect();
        let mut expected: Vec<usize> = line.into_iter().take(free).collect();
        expected.sort_unstable();
        prop_assert_eq!(started, expected);
    }

    #[test]
    fn only_an_owed_run_makes_an_owed_slot_skip(world in any_world()) {
        let moves = world.moves();
        let owed_run = world.after().slots.iter().any(|given| occupies(given) && is_owed(given));
        for (given, step) in world.slots.iter().zip(moves) {
            if step == OVERLAP {
                prop_assert_eq!(world.pipeline.catchup.overlap, OverlapPolicy::Skip);
                let found_no_room = given.0.closes_at <= at(NOW);
                prop_assert!((owed_run || found_no_room) && is_owed(given), "{given:?}");
                prop_assert!(is(given, OpenState::Waiting), "{given:?}");
            }
        }
    }

    #[test]
    fn what_people_and_reruns_ask_for_is_never_skipped_for_another(world in any_world()) {
        for (given, step) in world.slots.iter().zip(world.moves()) {
            if !is_owed(given) || given.0.is_asked_for() {
                prop_assert!(step != OVERLAP && step != SUPERSEDED, "{given:?}");
            }
        }
    }

    #[test]
    fn latest_leaves_one_owed_slot_queued_and_that_is_the_newest(mut world in any_roomy_world()) {
        world.pipeline.catchup.overlap = OverlapPolicy::Latest;
        let queues = |given: &Given, step: Option<Move>| {
            step == Some(Move::Queue) || (step.is_none() && is(given, OpenState::Queued))
        };
        let moves = world.moves();
        let owed: Vec<_> =
            world.slots.iter().zip(moves).filter(|(given, _)| is_owed(given) && !given.0.is_asked_for()).collect();
        let queued: Vec<usize> =
            (0..owed.len()).filter(|index| queues(owed[*index].0, owed[*index].1)).collect();
        prop_assert!(queued.len() <= 1, "{owed:?}");
        let superseded = (0..owed.len()).filter(|index| owed[*index].1 == SUPERSEDED).max();
        prop_assert!(superseded <= queued.first().copied(), "{owed:?}");
    }

    /// S19: what is over ends, and nothing else does except for its neighbours, its data or its pipeline.
    #[test]
    fn s19_what_is_over_ends(world in any_world()) {
        for (given, step) in world.slots.iter().zip(world.moves()) {
            let patience = if is(given, OpenState::Running) { OWNER_WAITS } else { SignedDuration::ZERO };
            let is_over = given.0.closes_at + patience <= at(NOW);
            let ended = matches!(step, Some(Move::Close(_)));
            let goes_on = world.flow == Flow::Open && is_found_ready(given)
                && (is_start(step) || step == Some(Move::Queue));
            prop_assert!(ended || !is_over || goes_on, "{given:?}");
            if ended && !is_over && world.flow == Flow::Open {
                let skipped = step == OVERLAP || step == SUPERSEDED;
                prop_assert!(skipped && has_not_begun(given), "{given:?} {step:?}");
            }
        }
    }

    #[test]
    fn nothing_begins_in_a_pipeline_that_is_paused_or_gone(mut world in any_world()) {
        world.flow = if world.flow == Flow::Open { Flow::Paused } else { world.flow };
        for (given, step) in world.slots.iter().zip(world.moves()) {
            prop_assert!(matches!(step, None | Some(Move::Close(_))), "{given:?} {step:?}");
            if world.flow == Flow::Retired && !is(given, OpenState::Running) && !is(given, OpenState::Monitoring) {
                prop_assert!(step.is_some(), "{given:?}");
            }
        }
    }
}
