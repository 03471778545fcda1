//! Evaluators that do not answer as they should.

use std::sync::{
    Arc,
    atomic::{AtomicU32, Ordering},
};

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
};
use interlock_engine::seam::{Evaluators, Task, World as _};
use interlock_store::{LedgerQuery, Store as _, block_on};
use jiff::SignedDuration;

use crate::{
    Machine,
    stage::{Answer, Job, Stage, at},
};

const GATED: &str = "name: gated\nschedule: \"0 * * * *\"\ntraits: {fresh: {evaluator: e, ttl: 1h}}\ntrigger: {type: command, command: 'true'}\n";

/// What happens when it is asked for the first time; then it passes.
#[derive(Clone, Copy)]
enum First {
    Panics,
    PanicsBeforeTheTask,
    CannotTell,
}

struct Unsteady {
    first: First,
    asked: Arc<AtomicU32>,
}

impl Evaluators for Unsteady {
    fn evaluate(&self, _: &PipelineId, _: &TraitSpec) -> Task<TraitResult> {
        let is_first = self.asked.fetch_add(1, Ordering::Relaxed) == 0;
        let answer = |status| TraitResult { status, value: None, reason: None, category: None };
        match self.first {
            First::Panics if is_first => Box::pin(async { panic!("while it asks") }),
            First::PanicsBeforeTheTask if is_first => panic!("before it asks"),
            First::CannotTell if is_first => {
                Box::pin(std::future::ready(answer(TraitStatus::Error)))
            }
            First::Panics | First::PanicsBeforeTheTask | First::CannotTell => {
                Box::pin(std::future::ready(answer(TraitStatus::Pass)))
            }
        }
    }
}

#[test]
fn whatever_an_evaluator_does_the_slot_is_evaluated_again_and_runs() {
    for first in [First::Panics, First::PanicsBeforeTheTask, First::CannotTell] {
        let asked = Arc::new(AtomicU32::new(0));
        let mut machine = Machine::new(&[GATED]);
        machine.evaluators = Arc::new(Unsteady { first, asked: Arc::clone(&asked) });
        // The slot of 01:00, asked again five minutes later: long before the trait's hour is over.
        let end = machine.world.now() + SignedDuration::from_mins(70);
        machine.live(u64::MAX, end);
        assert_eq!(asked.load(Ordering::Relaxed), 2, "{}", machine.log());
        let starts = machine.jobs.starts();
        assert_eq!(starts.len(), 1, "{}", machine.log());
    }
}

#[test]
fn the_queue_stays_as_it_is_while_an_evaluator_is_asked() {
    // Each run takes longer than the gap, and the answer is too old at each turn.
    let file = "name: gated\nschedule: \"*/5 * * * *\"\noverlapPolicy: all\ntraits: {fresh: {evaluator: e, ttl: 1m}}\n\
                trigger: {type: command, command: 'true'}\n";
    let mut stage = Stage::new(at("09:59"), &[file], |_| Job::Succeeds(720));
    stage.cast.answer("fresh", Answer::PassesAfter(3));
    stage.until(at("12:00"));
    let rows = block_on(stage.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
    assert!(rows.len() > 20 && stage.started().len() > 8, "{:?}", stage.slots());
    // Opened, queued, begun, closed: it was written twice more at each turn of any other.
    assert!(rows.iter().all(|row| row.revision <= 4), "{rows:?}");
}

#[test]
fn nobody_is_asked_about_a_queue_while_a_run_is_under_way() {
    let file = "name: gated\nschedule: \"0 * * * *\"\noverlapPolicy: all\ntraits: {fresh: {evaluator: e, ttl: 1m}}\n\
                trigger: {type: command, command: 'true'}\n";
    let mut stage = Stage::new(at("09:59"), &[file], |_| Job::Succeeds(4 * 3_600));
    stage.cast.answer("fresh", Answer::Is(TraitStatus::Pass));
    stage.until(at("13:59"));
    // When a slot opens, and once more because it waited then for the first answer; it was every five minutes.
    assert_eq!(stage.started().len(), 1, "{:?}", stage.slots());
    assert!(stage.cast.asked().len() <= 8, "{:?}", stage.cast.asked());
    stage.until(at("14:10"));
    assert_eq!(stage.started().len(), 2, "the end of the run has the queue looked at");
}
