//! Declarations: what the files say becomes what the engine owes.
//!
//! A pipeline that is seen for the first time owes nothing from before that moment. An edit first records
//! what was due under the old version (S16); a file that went away retires its pipeline. Only what changed
//! is told, so that one edited file among a hundred thousand costs one row.

use std::sync::Arc;

use interlock_core::{
    agenda::{Agenda, Work},
    catchup::{self, Gap},
    id::{PipelineId, ScheduleId},
    pipeline::{Pipeline, StartSchedule},
    succession::{Away, Heir, Succession},
};
use interlock_store::{
    CHANGES_MAX, FoundRows, Key, Record, RowsQuery,
    record::{AboutRecord, AgendaRecord, PauseRecord, PipelineRecord, VersionRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::{Declaration, Engine, EngineError},
    gap::Ahead,
    quarantine::guarded,
    recording::Recording,
    scheduler::{Opener, plus},
    state::PipelineState,
    write::{Event, Planned},
};

/// Rows of a declaration besides its watermarks: pipeline, version and event.
const OTHER_ROWS: usize = 3;

/// What is different in the files.
#[derive(Debug, Default)]
pub struct Changes {
    /// New, edited, and come back.
    pub declared: Vec<Declaration>,
    /// Their files are gone.
    pub removed: Vec<PipelineId>,
}

impl Engine {
    /// The pipelines that are declared as far as the store knows, by version: what [`Changes`] are told
    /// against after a start. One whose row lacks something has no version, so that its declaration is told again.
    pub fn in_force(&self) -> impl Iterator<Item = (&PipelineId, u64)> {
        // The system's own rows are of no declaration.
        let all = self.pipelines.0.iter().filter(|(_, state)| state.is_declared());
        all.map(|(name, state)| (name, if state.has_about() { state.version } else { 0 }))
    }

    /// Takes over what changed in the files.
    pub async fn declare(&mut self, changes: &Changes) -> Result<(), EngineError> {
        let Changes { declared, removed } = changes;
        let now = self.world.now();
        // A gap found after a start is the new version's.
        if self.is_live {
            self.settle_old_versions(declared, now).await?;
        }
        let mut planned = Vec::new();
        for new in declared {
            planned.extend(self.plan_succession(new, now).await?);
        }
        self.commit(planned).await?;
        let mut planned = Vec::new();
        for (name, about) in self.abouts_of(removed).await? {
            planned.extend(self.plan_retirement(name, about, now).await?);
        }
        self.commit(planned).await?;
        for name in declared.iter().map(|new| &new.pipeline.name).chain(removed) {
            self.take_up(name);
            if self.pipelines.0.get(name).is_some_and(|state| !state.open.is_empty()) {
                self.dirty.insert(name.clone());
            }
        }
        Ok(())
    }

    /// Records what is due under the versions that are edited, and moves their watermarks to now: the new
    /// versions owe nothing from before they came (S16).
    async fn settle_old_versions(
        &mut self,
        declared: &[Declaration],
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let is_edit = |new: &&Declaration| {
            let state = self.pipelines.0.get(&new.pipeline.name);
            state.is_some_and(|old| old.version != 0 && old.version != new.version)
        };
        let edited: Vec<_> =
            declared.iter().filter(is_edit).map(|new| new.pipeline.name.clone()).collect();
        let missed = self.missed_by(edited.iter(), now);
        self.announce_what_was_missed(&missed, now).await?;
        let mut due = Vec::new();
        for name in &edited {
            match guarded(self.plan_controls(name, now)).await? {
                Ok(controls) => due.extend(controls),
                Err(reason) => self.poisoned.push((name.clone(), reason)),
            }
            due.extend(self.plan_opening(name, now, usize::MAX).await?.groups);
        }
        self.commit(due).await?;
        let settled = edited.iter().flat_map(|name| self.plan_settled(name, now)).collect();
        self.commit(settled).await
    }

    /// The watermarks of a pipeline, moved to now where nothing before it is owed any more.
    fn plan_settled(&self, name: &PipelineId, now: Timestamp) -> Vec<Planned> {
        let Some(state) = self.pipelines.0.get(name) else { return vec![] };
        // A pause's gap is planned when it ends, by what is declared then.
        if state.is_paused(now) || state.is_retired() {
            return vec![];
        }
        let starts = state.agenda.owed().map(|start| (&start.schedule, start.delay(name)));
        let controls = state.agenda.acting();
        let controls = controls.map(|control| (&control.schedule, SignedDuration::ZERO));
        let settled: Vec<_> = starts
            .chain(controls)
            .filter_map(|(schedule, delay)| {
                let (watermark, revision) = state.watermark(schedule.id())?;
                let until = plus(now, -delay);
                let is_settled = schedule.after(watermark).is_none_or(|slot| slot > until);
                (is_settled && watermark < until).then(|| (schedule.id(), revision, until))
            })
            .collect();
        let portions = settled.chunks(CHANGES_MAX).map(|portion| {
            let mut plan = Planned::new(name, self.writer);
            for (id, revision, until) in portion {
                plan.watermark(id, *revision, *until);
            }
            plan
        });
        portions.collect()
    }

    /// What a declaration changes: slots of schedules that come back are recorded before them, slots of those that go
    /// after what takes their place, which begins where they stood. A death in between leaves nothing unowed.
    pub(crate) async fn plan_succession(
        &self,
        new: &Declaration,
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        let name = &new.pipeline.name;
        let agenda = Agenda::of(&new.pipeline);
        let state = self.pipelines.0.get(name);
        let succession = match state {
            Some(state) => state.succeeded_by(Some(&agenda), (self.is_live, now)),
            None => Heir {
                old: None,
                last: None,
                new: Some(&agenda),
                watermark: |_: &ScheduleId| None,
                is_settled: false,
                now,
            }
            .succeed(),
        };
        let (back, gone): (Vec<_>, Vec<_>) = succession.away.iter().partition(|away| away.is_back);
        let mut planned = self.plan_away(name, (&agenda, Some(new)), &back, now).await?;
        planned.extend(self.plan_declaration(new, &succession.begins, now));
        if let Some(state) = state {
            planned.extend(self.plan_away(name, (&state.agenda, Some(new)), &gone, now).await?);
        }
        Ok(planned)
    }

    /// Records the slots of schedules that were not declared: by what was declared last, as far as that is known and
    /// has them, else by what is declared now.
    async fn plan_away(
        &self,
        name: &PipelineId,
        (agenda, new): (&Agenda, Option<&Declaration>),
        away: &[&Away<'_>],
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        let state = self.pipelines.0.get(name).filter(|_| !away.is_empty());
        let Some(state) = state else { return Ok(vec![]) };
        let mut planned = Vec::new();
        let last = self.last_declared(name, state).await;
        for Away { start, from, until, is_back } in away {
            let is_it = |known: &&Arc<StartSchedule>| known.schedule.id() == start.schedule.id();
            let known =
                last.as_ref().and_then(|last| Some((last.agenda.timed().find(is_it)?, last)));
            let before = last.as_ref().filter(|_| known.is_none()).map(|last| &last.agenda);
            if before.is_some_and(|before| has(before, start)) {
                // It was declared all the time, and reports opened its slots: without a deadline the clock owed none.
                planned.push(state.pass_over(start, *until, Planned::new(name, self.writer)));
                continue;
            }
            if !is_back && new.is_some_and(|new| has(&Agenda::of(&new.pipeline), start)) {
                // It lost its deadline, and is still there: a report may open what the clock has not.
                continue;
            }
            let (start, version, source) = match (known, new) {
                (Some((known, last)), _) => (&**known, last.version, last.source.as_ref()),
                (None, Some(new)) => (*start, new.version, Some(&new.source)),
                (None, None) => (*start, state.version, None),
            };
            let Some(first) = start.schedule.after(*from).filter(|slot| slot <= until) else {
                continue;
            };
            if let Some(source) = source {
                let mut plan = Planned::new(name, self.writer);
                plan.put_any(Key::Version(version), Record::Version(source.clone().into()));
                planned.push(plan);
            }
            let ahead = Ahead::since(self.store.as_ref(), name, (first, now)).await?;
            let recording = Recording {
                pipeline: name,
                agenda,
                ahead: &ahead,
                deaf: &[],
                uncertain_until: None,
                version,
                now,
                writer: self.writer,
                rest_of: None,
            };
            let (_, mut revision) = state.watermark(start.schedule.id()).unwrap_or_default();
            let mut from = *from;
            loop {
                let owed = ahead.owed((start, from), SignedDuration::ZERO);
                let plan = catchup::plan_away(&owed, *until);
                let moved = plan.portions.iter().filter_map(|portion| portion.watermark).max();
                from = moved.unwrap_or(from);
                let is_cut_off = plan.is_cut_off;
                let gap = Gap {
                    owed: vec![owed],
                    work: agenda.work,
                    catchup: &agenda.catchup,
                    pauses: vec![],
                    deaf: vec![],
                    ran: vec![],
                    uncertain_until: None,
                    now,
                };
                let groups = recording.groups((&gap, &plan), &[revision], usize::MAX).groups;
                revision += groups.iter().filter(|plan| plan.moves_watermark()).count() as u64;
                planned.extend(groups);
                if !is_cut_off {
                    break;
                }
            }
        }
        Ok(planned)
    }

    /// What a pipeline declared last, in the version that today's data of its zones makes of it: an agenda is read with
    /// that data, whatever the data was when it was declared.
    async fn last_declared(&self, name: &PipelineId, state: &PipelineState) -> Option<Last> {
        if state.version == 0 {
            return None;
        }
        match self.specs.today(name, state.version).await {
            Ok(Declaration { pipeline, version, source }) if version != state.version => {
                Some(Last { agenda: Agenda::of(&pipeline), version, source: Some(source) })
            }
            Ok(_) => Some(Last::as_read(state)),
            Err(reason) => {
                tracing::warn!(pipeline = %name, %reason, "cannot read the last declaration again");
                Some(Last::as_read(state))
            }
        }
    }

    /// The rows that are missing or have another version; where the watermarks of schedules begin that have none.
    fn plan_declaration(
        &self,
        new: &Declaration,
        begins: &[(&ScheduleId, Timestamp)],
        now: Timestamp,
    ) -> Vec<Planned> {
        let name = &new.pipeline.name;
        let state = self.pipelines.0.get(name);
        let row = state.and_then(|state| state.row.as_ref());
        let mut planned = vec![Planned::new(name, self.writer)];
        let has_watermark =
            |id: &ScheduleId| state.is_some_and(|state| state.watermark(id).is_some());
        let controls = new.pipeline.controls.iter().map(|control| (control.schedule.id(), now));
        let controls = controls.filter(|(id, _)| !has_watermark(id));
        let returned = row.is_some_and(|(row, _)| row.retired_at.is_some());
        let is_edit = returned || state.is_none_or(|state| state.version != new.version);
        for start in new.pipeline.starts.iter().filter(|start| is_edit && start.is_switch()) {
            planned.extend(self.plan_switch((&new.pipeline, new.version), start, now));
        }
        for (id, first) in begins.iter().copied().chain(controls) {
            // The pipeline's row is in the last group: until it is there, nothing is owed.
            if planned
                .last()
                .is_none_or(|plan| plan.group.changes.len() + OTHER_ROWS >= CHANGES_MAX)
            {
                planned.push(Planned::new(name, self.writer));
            }
            if let Some(plan) = planned.last_mut() {
                plan.watermark(id, 0, first);
            }
        }
        let is_known = row.is_some_and(|(row, _)| row.version == new.version);
        let is_whole = state.is_some_and(|state| state.version == new.version && state.has_about());
        if let Some(plan) = planned.last_mut()
            && (!is_whole || returned)
        {
            let record = PipelineRecord {
                version: version_text(new.version),
                first_seen: row.map_or(now, |(row, _)| row.first_seen),
                retired_at: None,
                pause: pause_after(
                    row.and_then(|(row, _)| row.pause.as_deref()),
                    row.and_then(|(row, _)| row.disabled_since).filter(|_| new.pipeline.enabled),
                    now,
                ),
                disabled_since: (!new.pipeline.enabled)
                    .then(|| row.and_then(|(row, _)| row.disabled_since).unwrap_or(now)),
                agenda: Some(Box::new(AgendaRecord::from_core(&Agenda::of(&new.pipeline)))),
                about: Some(Box::new(AboutRecord::of(&new.pipeline))),
            };
            let revision = row.map_or(0, |(_, revision)| *revision);
            plan.put(Key::Pipeline, revision, Record::Pipeline(record.into()));
            plan.put_any(Key::Version(new.version), Record::Version(new.source.clone().into()));
            if !is_known || returned {
                let kind = if row.is_some() { "PIPELINE_CHANGED" } else { "PIPELINE_DECLARED" };
                let message = format!("version {}", version_text(new.version));
                plan.event(Event::of(kind, now, message));
            }
        }
        planned
    }

    /// Sets the dead-man's switches of a pipeline that are not set.
    pub(crate) fn set_switches(&self, of: (&Pipeline, u64), now: Timestamp, plan: &mut Planned) {
        let switches = of.0.starts.iter().filter(|start| start.is_switch());
        let set = switches.filter_map(|start| self.plan_switch(of, start, now));
        plan.group.changes.extend(set.flat_map(|set| set.group.changes));
    }

    /// Sets a dead-man's switch that is not set: from now on its first report is owed.
    fn plan_switch(
        &self,
        (pipeline, version): (&Pipeline, u64),
        start: &StartSchedule,
        now: Timestamp,
    ) -> Option<Planned> {
        let (name, agenda) = (&pipeline.name, Agenda::of(pipeline));
        let state = self.pipelines.0.get(name);
        let is_set = state.is_some_and(|state| {
            state.open.keys().any(|(_, schedule)| schedule == start.schedule.id())
        });
        if is_set || agenda.work != Work::Watched {
            return None;
        }
        let (watermark, revision) =
            state.and_then(|state| state.watermark(start.schedule.id())).unwrap_or((now, 0));
        let next = start.next_of_switch(now.max(watermark))?;
        let mut plan = Planned::new(name, self.writer);
        plan.switch(&Opener { agenda: &agenda, start, version, now }, (next, revision));
        Some(plan)
    }

    /// What lists say of pipelines, as their rows have it: their declarations are gone. One whose row cannot be read is left as it is.
    async fn abouts_of<'a>(
        &mut self,
        pipelines: &'a [PipelineId],
    ) -> Result<Vec<(&'a PipelineId, Option<AboutRecord>)>, EngineError> {
        let query =
            |name: &PipelineId| RowsQuery { pipeline: name.clone(), keys: vec![Key::Pipeline] };
        let queries: Vec<_> = pipelines.iter().map(query).collect();
        let found = self.read_rows(&queries).await?;
        let about = |rows: FoundRows| {
            let row = rows.into_iter().flatten().next()?;
            if let Record::Pipeline(row) = row.record {
                row.about.as_deref().cloned()
            } else {
                None
            }
        };
        let mut abouts = Vec::with_capacity(pipelines.len());
        for (name, rows) in pipelines.iter().zip(found) {
            match rows {
                Ok(rows) => abouts.push((name, about(rows))),
                Err(error) => self.poisoned.push((name.clone(), error.message)),
            }
        }
        Ok(abouts)
    }

    /// What is owed of a pipeline whose file is gone is owed no more.
    async fn plan_retirement(
        &self,
        name: &PipelineId,
        about: Option<AboutRecord>,
        now: Timestamp,
    ) -> Result<Vec<Planned>, EngineError> {
        let Some(state) = self.pipelines.0.get(name) else { return Ok(vec![]) };
        let row = state.record(about).filter(|(row, _)| row.retired_at.is_none());
        let Some((record, revision)) = row else {
            return Ok(vec![]);
        };
        let succession = state.succeeded_by(None, (self.is_live, now));
        let gone: Vec<_> = succession.away.iter().collect();
        let mut planned = self.plan_away(name, (&state.agenda, None), &gone, now).await?;
        let mut plan = Planned::new(name, self.writer);
        let record = PipelineRecord { retired_at: Some(now), ..record };
        plan.put(Key::Pipeline, revision, Record::Pipeline(record.into()));
        plan.event(Event::of("PIPELINE_RETIRED", now, "its file is gone"));
        planned.push(plan);
        Ok(planned)
    }
}

impl PipelineState {
    /// What becomes of its schedules when it is declared anew, or not any more.
    fn succeeded_by<'a>(
        &'a self,
        new: Option<&'a Agenda>,
        (is_live, now): (bool, Timestamp),
    ) -> Succession<'a> {
        let row = self.row.as_ref().map(|(row, _)| row);
        let was_disabled = row.is_some_and(|row| row.disabled_since.is_some());
        let was_owed = self.agenda.work != Work::Dormant || was_disabled;
        let old = match row {
            // Its first declaration was cut short, or its row is of a time that kept no agendas: it goes on.
            None => new,
            Some(row) if self.version == 0 && row.retired_at.is_none() => new,
            Some(row) => (was_owed && row.retired_at.is_none()).then_some(&self.agenda),
        };
        let watermark = |id: &ScheduleId| self.watermark(id).map(|(at, _)| at);
        // What a pause has left, or has yet to leave, is planned by what is declared when it ends.
        let is_settled = is_live && !self.is_paused(now) && !was_disabled;
        let last = (self.version != 0).then_some(&self.agenda);
        Heir { old, last, new, watermark, is_settled, now }.succeed()
    }

    /// Moves the watermark of a schedule over a time in which the clock owed nothing.
    fn pass_over(&self, start: &StartSchedule, until: Timestamp, mut plan: Planned) -> Planned {
        let id = start.schedule.id();
        let (_, revision) = self.watermark(id).unwrap_or_default();
        plan.watermark(id, revision, until);
        plan
    }
}

/// Whether a schedule is declared, by its id.
fn has(agenda: &Agenda, start: &StartSchedule) -> bool {
    agenda.starts.iter().any(|known| known.schedule.id() == start.schedule.id())
}

/// What a pipeline declared last.
struct Last {
    agenda: Agenda,
    version: u64,
    /// To be kept with the slots that refer to it, if nobody ever declared it so.
    source: Option<VersionRecord>,
}

impl Last {
    fn as_read(state: &PipelineState) -> Self {
        Self { agenda: state.agenda.clone(), version: state.version, source: None }
    }
}

/// The pause of a pipeline that is declared anew. The time in which it was disabled is one that is over, unless
/// one that somebody asked for is in force.
pub fn pause_after(
    pause: Option<&PauseRecord>,
    was_disabled_since: Option<Timestamp>,
    now: Timestamp,
) -> Option<PauseRecord> {
    let pause = pause.cloned();
    match was_disabled_since {
        Some(since) if pause.as_ref().is_none_or(|pause| !pause.is_in_force(now)) => {
            let reason = "it was disabled".to_owned();
            let before = pause.map(PauseRecord::into_all).unwrap_or_default();
            Some(PauseRecord { reason, since, until: Some(now), catchup: None, before })
        }
        _ => pause,
    }
}
