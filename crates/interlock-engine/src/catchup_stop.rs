//! The end of a catch-up: slots that it opened and that have not begun are cancelled. What runs goes on.

use interlock_core::{
    id::PipelineId,
    pipeline::Pipeline,
    run::TriggerType,
    slot::{OpenState, SlotState},
};
use jiff::Timestamp;
use serde_json::json;

use crate::{ending::Ender, engine::Engine, inbox::Answer, state::OpenSlot, write::Planned};

/// Slots that one request ends: they are one group.
const ENDED_AT_ONCE: usize = 200;

impl Engine {
    /// Cancels what a catch-up has opened and not started; says how many are left for the next request.
    pub(crate) fn stop_catchup(
        &self,
        (pipeline, spec): (&PipelineId, &Pipeline),
        (why, now): (&str, Timestamp),
        plan: &mut Planned,
    ) -> Answer {
        let state = self.pipelines.0.get(pipeline).ok_or("there is no such pipeline")?;
        let mut waiting = state.open.iter().filter(|(_, open)| waits_for_catchup(open));
        let mut cancelled = 0;
        for (place, open) in waiting.by_ref().take(ENDED_AT_ONCE) {
            let ender = Ender { pipeline, spec, place, open, why, now };
            cancelled += u64::from(ender.end(plan).is_some());
        }
        let left = waiting.count();
        Ok(json!({ "pipeline": pipeline.as_str(), "cancelled": cancelled, "left": left }))
    }
}

/// Whether a catch-up opened a slot of which nothing runs or has run.
fn waits_for_catchup(open: &OpenSlot) -> bool {
    let has_begun = match open.slot.state {
        SlotState::Open(OpenState::Waiting | OpenState::Queued) => false,
        SlotState::Open(OpenState::Running | OpenState::Backoff | OpenState::Monitoring)
        | SlotState::Closed(_) => true,
    };
    !has_begun && open.slot.opened_by == TriggerType::Catchup
}
