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
use jiff::SignedDuration;

use crate::Machine;

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
