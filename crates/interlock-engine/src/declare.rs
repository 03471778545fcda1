//! Declarations: what the files say becomes what the engine owes.
//!
//! A pipeline that is seen for the first time owes nothing from before that moment. An edit first records
//! what was due under the old version (S16); a file that went away retires its pipeline.

use std::collections::BTreeSet;

use interlock_core::{id::PipelineId, schedule::Recurrence};
use interlock_store::{
    Key, Record,
    record::{PipelineRecord, version_number, version_text},
};
use jiff::Timestamp;

use crate::{
    engine::{Declaration, Engine, EngineError},
    state::ScheduleState,
    write::{Event, Planned},
};

impl Engine {
    /// Takes over what the files declare, all of it: a pipeline that is not named is retired.
    pub async fn declare(&mut self, declarations: &[Declaration]) -> Result<(), EngineError> {
        let now = self.world.now();
        // What is due under the old versions comes first.
        let edited: Vec<_> = declarations
            .iter()
            .filter(|new| {
                self.pipelines
                    .0
                    .get(&new.pipeline.name)
                    .is_some_and(|old| old.version != 0 && old.version != new.version)
            })
            .map(|new| new.pipeline.name.clone())
            .collect();
        let mut due = Vec::new();
        for pipeline in &edited {
            due.extend(self.plan_opening(pipeline, now).await);
        }
        self.commit(due).await?;

        let planned =
            declarations.iter().filter_map(|new| self.plan_declaration(new, now)).collect();
        self.commit(planned).await?;
        for declaration in declarations {
            self.install(declaration);
        }
        let named: BTreeSet<_> = declarations.iter().map(|new| &new.pipeline.name).collect();
        let gone: Vec<_> =
            self.pipelines.0.keys().filter(|name| !named.contains(name)).cloned().collect();
        let planned = gone.iter().filter_map(|name| self.plan_retirement(name, now)).collect();
        self.commit(planned).await?;
        self.dirty.extend(gone);
        Ok(())
    }

    /// The rows that are missing or have another version.
    pub(crate) fn plan_declaration(&self, new: &Declaration, now: Timestamp) -> Option<Planned> {
        let name = &new.pipeline.name;
        let state = self.pipelines.0.get(name);
        let row = state.and_then(|state| state.row.as_ref());
        let known = row.and_then(|(row, _)| version_number(&row.version).ok());
        let returned = row.is_some_and(|(row, _)| row.retired_at.is_some());
        let mut plan = Planned::new(name, self.writer);
        for start in &new.pipeline.starts {
            let id = start.schedule.id();
            if state.is_none_or(|state| state.watermark(id).is_none()) {
                plan.watermark(id, 0, now);
            }
        }
        if known != Some(new.version) || returned {
            let record = PipelineRecord {
                version: version_text(new.version),
                first_seen: row.map_or(now, |(row, _)| row.first_seen),
                retired_at: None,
                pause: row.and_then(|(row, _)| row.pause.clone()),
            };
            let revision = row.map_or(0, |(_, revision)| *revision);
            plan.put(Key::Pipeline, revision, Record::Pipeline(record));
            let version = Record::Version(new.source.clone());
            plan.put_any(Key::Version(new.version), version);
            let kind = if row.is_some() { "PIPELINE_CHANGED" } else { "PIPELINE_DECLARED" };
            plan.event(Event::of(kind, now, format!("version {}", version_text(new.version))));
        }
        (!plan.group.changes.is_empty()).then_some(plan)
    }

    pub(crate) fn install(&mut self, new: &Declaration) {
        let state = self.pipelines.get_mut(&new.pipeline.name);
        if state.version == new.version {
            return;
        }
        state.version = new.version;
        state.evaluation_interval = new.pipeline.evaluation.interval;
        self.dependents.set(&new.pipeline);
        let state = self.pipelines.get_mut(&new.pipeline.name);
        let starts = new.pipeline.starts.iter();
        let enumerated = starts.filter(|start| {
            !matches!(
                start.schedule.recurrence(),
                Recurrence::Sensor { .. } | Recurrence::SinceLast { .. }
            ) || start.deadline.is_some()
        });
        state.schedules = enumerated
            .map(|start| ScheduleState {
                schedule: start.schedule.clone(),
                start_grace: start.start_grace,
            })
            .collect();
        // Dormant: neither scheduled nor started.
        if !new.pipeline.enabled || new.pipeline.trigger.is_none() {
            state.schedules.clear();
        }
        self.arm(&new.pipeline.name);
        self.dirty.insert(new.pipeline.name.clone());
    }

    fn plan_retirement(&self, name: &PipelineId, now: Timestamp) -> Option<Planned> {
        let (row, revision) = self.pipelines.0.get(name)?.row.as_ref()?;
        if row.retired_at.is_some() {
            return None;
        }
        let mut plan = Planned::new(name, self.writer);
        let record = PipelineRecord { retired_at: Some(now), ..row.clone() };
        plan.put(Key::Pipeline, *revision, Record::Pipeline(record));
        plan.event(Event::of("PIPELINE_RETIRED", now, "its file is gone"));
        Some(plan)
    }
}
