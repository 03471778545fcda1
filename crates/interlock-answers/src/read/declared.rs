//! What lists say of a declaration: out of the declaration itself, or out of the pipeline's row.

use interlock_core::{
    agenda::{Agenda, Work},
    id::PipelineId,
    pipeline::{ControlAction, Pipeline},
    schedule::Schedule,
};
use interlock_store::record::{AboutRecord, version_text};
use jiff::Timestamp;

use crate::{
    declaration,
    model::pipeline::{DeclaredAnswer, NextAnswer, ScheduleAnswer},
};

/// What lists say of a declaration of some version, but for its next slot, which depends on when it is asked about.
pub fn declared_answer(pipeline: &Pipeline, version: u64) -> DeclaredAnswer {
    let about = AboutRecord::of(pipeline);
    let recorded = RecordedDeclaration {
        name: &pipeline.name,
        version: &version_text(version),
        is_enabled: pipeline.enabled,
    };
    recorded.answer(&about, &Agenda::of(pipeline))
}

/// The same with its next slot.
pub fn declared_with_next(pipeline: &Pipeline, version: u64, now: Timestamp) -> DeclaredAnswer {
    let next = next_slot(&Agenda::of(pipeline), now);
    DeclaredAnswer { next, ..declared_answer(pipeline, version) }
}

/// A declaration, besides what its row says about it.
pub(crate) struct RecordedDeclaration<'a> {
    pub(crate) name: &'a PipelineId,
    pub(crate) version: &'a str,
    pub(crate) is_enabled: bool,
}

impl RecordedDeclaration<'_> {
    /// What lists say of it, but for its next slot.
    pub(crate) fn answer(&self, about: &AboutRecord, agenda: &Agenda) -> DeclaredAnswer {
        let starts = agenda.starts.iter().map(|start| schedule_answer(&start.schedule, None));
        let controls = agenda.controls.iter();
        let controls = controls.map(|it| schedule_answer(&it.schedule, Some(it.action)));
        let mut upstreams: Vec<_> = agenda.upstreams.iter().map(ToString::to_string).collect();
        upstreams.sort();
        upstreams.dedup();
        DeclaredAnswer {
            pipeline: self.name.to_string(),
            version: Some(self.version.to_owned()),
            owner: about.owner.clone(),
            description: about.description.clone(),
            tier: about.tier,
            labels: about.labels.clone(),
            enabled: self.is_enabled,
            schedules: starts.chain(controls).collect(),
            trigger: about.trigger.as_ref().map(ToString::to_string),
            upstreams,
            next: None,
        }
    }
}

fn schedule_answer(schedule: &Schedule, action: Option<ControlAction>) -> ScheduleAnswer {
    ScheduleAnswer {
        id: schedule.id().to_string(),
        action: action.map_or("start", ControlAction::as_str).to_owned(),
        when: declaration::recurrence(schedule),
        zone: schedule.timing().zone.name().to_owned(),
    }
}

/// The next slot of an agenda that owes any.
pub(crate) fn next_slot(agenda: &Agenda, now: Timestamp) -> Option<NextAnswer> {
    if agenda.work == Work::Dormant {
        return None;
    }
    let next = |schedule: &Schedule| {
        let utc = schedule.after(now)?;
        Some(NextAnswer { schedule: schedule.id().to_string(), utc })
    };
    agenda.starts.iter().filter_map(|start| next(&start.schedule)).min_by_key(|next| next.utc)
}
