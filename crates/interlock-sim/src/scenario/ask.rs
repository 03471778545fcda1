//! What people and other people's jobs ask for: left in the inbox, as the commands do it, and answered by the owner.

use std::sync::Arc;

use interlock_core::{
    backfill::{Fingerprint, Place, Verdict},
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
};
use interlock_engine::{Prospect, backfill_of, seam::Specs as _};
use interlock_store::{
    BackfillQuery, Key, Record, Store as _, block_on,
    record::{AppliedRecord, InboxRecord, ReportRecord, SlotName, version_text},
    story,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    house::{Commanded, House},
    line::{Ping, Slot, Wish},
};

/// How long somebody waits for an answer.
const PATIENCE: SignedDuration = SignedDuration::from_secs(10);
/// How often it is looked for.
const LOOK_EVERY: SignedDuration = SignedDuration::from_millis(500);
/// How long a command drives what it asked for.
const COMMAND_PATIENCE: SignedDuration = SignedDuration::from_hours(1);
/// Slots of a backfill that are judged at a time.
const AT_ONCE: usize = 1_000;

impl House {
    /// Asks for something and waits for the answer.
    pub(super) fn ask(
        &mut self,
        pipeline: &PipelineId,
        wish: &Wish,
    ) -> Result<Vec<String>, String> {
        let record = self.record(pipeline, wish)?;
        let key = self.post(pipeline, &record)?;
        if !self.is_any_up()
            && let Wish::Run(Some(_)) | Wish::Backfill { .. } = wish
        {
            return self.command(pipeline, (&record, &key));
        }
        if !self.is_any_up() {
            return Ok(vec![
                "accepted, not yet applied: the next `interlock serve` applies it".to_owned(),
            ]);
        }
        let latest = self.now() + PATIENCE;
        while self.now() < latest {
            self.pass_until(self.now() + LOOK_EVERY)?;
            if let Some(answer) = self.applied(pipeline, &key)? {
                return Ok(vec![said(&answer)]);
            }
        }
        Ok(vec!["accepted, not yet applied: `interlock serve` has not applied it yet".to_owned()])
    }

    /// Without a daemon a command does by itself what it asks for, and stays until that has ended.
    fn command(
        &mut self,
        pipeline: &PipelineId,
        (record, key): (&InboxRecord, &str),
    ) -> Result<Vec<String>, String> {
        let declared = self.files.declarations().into_iter();
        let declared = declared.clone().find(|it| it.pipeline.name == *pipeline);
        let declared = declared.ok_or_else(|| format!("there is no file of {pipeline}"))?;
        let slot = if let InboxRecord::Run { slot: Some(name), .. } = record {
            let schedule = ScheduleId::any(&name.schedule).map_err(|error| error.message)?;
            Some((schedule, name.nominal))
        } else {
            None
        };
        self.begin_command(Commanded { pipeline: pipeline.clone(), slot: slot.clone(), declared })?;
        let latest = self.now() + COMMAND_PATIENCE;
        while self.now() < latest {
            self.pass_until(self.now() + LOOK_EVERY)?;
            if let Some(answer) = self.applied(pipeline, key)?
                && (!answer.accepted || self.has_ended(pipeline, slot.as_ref())?)
            {
                self.end_command()?;
                return Ok(vec![said(&answer)]);
            }
        }
        self.end_command()?;
        Ok(vec!["left as it is: the next `interlock serve` takes it up".to_owned()])
    }

    /// Whether a slot, or every backfill of a pipeline, has come to its end.
    fn has_ended(
        &self,
        pipeline: &PipelineId,
        slot: Option<&(ScheduleId, Timestamp)>,
    ) -> Result<bool, String> {
        let said = |error: interlock_store::StoreError| error.to_string();
        if let Some((schedule, nominal)) = slot {
            let key = Key::Slot(schedule.clone(), *nominal);
            let rows = block_on(self.store.read(pipeline, &[key])).map_err(said)?;
            let row = rows.into_iter().next().flatten().map(|row| row.record);
            return Ok(matches!(row, Some(Record::Slot(slot)) if !slot.is_open()));
        }
        let query = BackfillQuery {
            pipeline: Some(pipeline.clone()),
            unfinished: true,
            limit: 1,
            ..BackfillQuery::default()
        };
        Ok(block_on(self.store.backfills(&query)).map_err(said)?.items.is_empty())
    }

    /// A job that somebody else runs says something; nobody waits for what becomes of it.
    pub(super) fn ping(
        &mut self,
        pipeline: &PipelineId,
        ping: &Ping,
    ) -> Result<Vec<String>, String> {
        if !self.is_any_up() {
            return Ok(vec!["nobody listens: the report is lost".to_owned()]);
        }
        let at = ping.of.map_or_else(|| self.now(), |of| self.instant(of));
        let mut report = ReportRecord::of(&ping.said, at, None);
        report.rid.clone_from(&ping.rid);
        self.post(pipeline, &InboxRecord::Report(Box::new(report)))?;
        Ok(vec![])
    }

    fn post(&mut self, pipeline: &PipelineId, record: &InboxRecord) -> Result<String, String> {
        self.posted += 1;
        let key = format!("request {}", self.posted);
        block_on(self.store.post(pipeline, &key, record)).map_err(|error| error.to_string())?;
        Ok(key)
    }

    fn applied(&self, pipeline: &PipelineId, key: &str) -> Result<Option<AppliedRecord>, String> {
        let rows = block_on(self.store.read(pipeline, &[Key::Applied(key.to_owned())]));
        let row = rows.map_err(|error| error.to_string())?.into_iter().next().flatten();
        Ok(match row.map(|row| row.record) {
            Some(Record::Applied(applied)) => Some(Arc::unwrap_or_clone(applied)),
            _ => None,
        })
    }

    /// What is left in the inbox.
    fn record(&self, pipeline: &PipelineId, wish: &Wish) -> Result<InboxRecord, String> {
        let reason = || "asked for by hand".to_owned();
        Ok(match wish {
            Wish::Run(slot) => InboxRecord::Run {
                slot: slot.as_ref().map(|slot| self.slot_name(pipeline, slot)).transpose()?,
                force: false,
                params: std::collections::BTreeMap::new(),
                webhook: false,
            },
            Wish::Rerun(slot) => {
                InboxRecord::Rerun { slot: self.slot_name(pipeline, slot)?, reason: reason() }
            }
            Wish::Cancel(slot) => {
                InboxRecord::Cancel { slot: self.slot_name(pipeline, slot)?, reason: reason() }
            }
            Wish::Pause(reason) => InboxRecord::Pause { reason: reason.clone(), until: None },
            Wish::Resume(catchup) => InboxRecord::Resume { catchup: catchup.clone() },
            Wish::Catchup => InboxRecord::Catchup {},
            Wish::Backfill { from, to, reprocess } => {
                let range = (self.instant(*from), self.instant(*to));
                return self.backfill(pipeline, range, reprocess);
            }
            Wish::Sensor { key, value, of } => InboxRecord::Sensor {
                key: key.clone(),
                value: value.clone(),
                at: of.map_or_else(|| self.now(), |of| self.instant(of)),
            },
        })
    }

    fn slot_name(&self, pipeline: &PipelineId, slot: &Slot) -> Result<SlotName, String> {
        let nominal = self.instant(slot.at);
        let schedule = match &slot.schedule {
            Some(schedule) => schedule.to_string(),
            None => self.only_schedule(pipeline)?.to_string(),
        };
        Ok(SlotName { schedule, nominal })
    }

    fn only_schedule(&self, pipeline: &PipelineId) -> Result<ScheduleId, String> {
        let declared = self.declared(pipeline)?;
        match declared.starts.as_slice() {
            [only] => Ok(only.schedule.id().clone()),
            _ => Err(format!("{pipeline} has several schedules: write `SCHEDULE/INSTANT`")),
        }
    }

    /// What a pipeline's file says.
    pub(super) fn declared(
        &self,
        pipeline: &PipelineId,
    ) -> Result<std::sync::Arc<Pipeline>, String> {
        let declarations = self.files.declarations();
        let found = declarations.into_iter().find(|it| it.pipeline.name == *pipeline);
        let found = found.ok_or_else(|| format!("there is no file of {pipeline}"))?;
        block_on(self.files.pipeline(pipeline, found.version))
    }

    /// A backfill, planned as the command plans it.
    fn backfill(
        &self,
        pipeline: &PipelineId,
        (from, to): (Timestamp, Timestamp),
        reprocess: &str,
    ) -> Result<InboxRecord, String> {
        let request = |total, plan: String| InboxRecord::StartBackfill {
            from,
            to,
            schedules: vec![],
            reprocess: reprocess.to_owned(),
            order: "asc".to_owned(),
            concurrency: 1,
            reason: String::new(),
            by: "ada".to_owned(),
            total,
            plan,
        };
        let spec = self.declared(pipeline)?;
        let first = request(0, String::new());
        // What makes no sense is refused by the owner, with the same words.
        let Ok(record) = backfill_of(&spec, &first, self.now()) else {
            return Ok(first);
        };
        let said = |error: &dyn std::fmt::Display| error.to_string();
        let recorded_until =
            |id: &ScheduleId| self.watermark(pipeline, id).filter(|_| self.is_any_up());
        let prospect =
            Prospect::new(&spec, &record, recorded_until).map_err(|error| said(&error))?;
        let (mut total, mut hash, mut cursor) = (0, Fingerprint::default(), None::<Place>);
        loop {
            let portion = block_on(prospect.portion(self.store.as_ref(), cursor.as_ref(), AT_ONCE));
            let portion = portion.map_err(|error| said(&error))?;
            for (place, verdict) in &portion.slots {
                if matches!(verdict, Verdict::Run) {
                    total += 1;
                    hash = hash.with(place);
                }
            }
            cursor = portion.slots.last().map(|(place, _)| place.clone()).or(cursor);
            if portion.is_end {
                return Ok(request(total, version_text(hash.0)));
            }
        }
    }
}

fn said(answer: &AppliedRecord) -> String {
    if answer.accepted {
        format!("done{}", story::answer(&answer.result))
    } else {
        format!("refused: {}", story::refusal(&answer.result))
    }
}
