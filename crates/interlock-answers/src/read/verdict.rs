//! Whether a slot may run, by what is recorded and by what evaluators say.

use std::future::ready;

use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    pipeline::Pipeline,
    readiness::{Outcome, TraitResult, TraitSpec, TraitStatus, Verdict, Weight},
    run::TriggerType,
    zone::Zone,
};
use interlock_engine::{
    AskedSlot, ZoneOf,
    seam::{Evaluators, Task},
    verdict_now,
};
use interlock_store::{Key, LedgerEntry, Record, Store};
use jiff::{SignedDuration, Timestamp};

use crate::{
    AnswerError, ErrorCode, Reader,
    model::verdict::{EvaluationAnswer, ReadinessQuery, VerdictAnswer},
};

/// Asks no evaluator: what only one of them knows cannot be told.
#[derive(Debug, Clone, Copy)]
pub struct UnaskedEvaluators;

impl Evaluators for UnaskedEvaluators {
    fn evaluate(&self, _pipeline: &PipelineId, _trait_spec: &TraitSpec) -> Task<TraitResult> {
        Box::pin(ready(TraitResult {
            status: TraitStatus::Error,
            value: None,
            reason: Some("its evaluator was not asked".to_owned()),
            category: None,
        }))
    }
}

impl Reader<'_> {
    /// Whether a slot of a pipeline may run; nothing is written.
    pub async fn readiness(
        &self,
        name: &str,
        asked: &ReadinessQuery,
        evaluators: &dyn Evaluators,
    ) -> Result<EvaluationAnswer, AnswerError> {
        let reader = self.at(asked.at);
        let declared = reader.declared_pipeline(name).await?;
        let slot = match &asked.slot {
            Some(text) => named_slot(&declared, text)?,
            None => reader.slot_in_question(&declared).await?,
        };
        let verdict = reader.verdict(&declared, &slot, evaluators).await?;
        Ok(evaluation_answer(&declared, &slot, reader.now, &verdict))
    }

    /// The slot that is meant when none is named: the oldest that waits, else the last that was owed, else a run by hand.
    pub async fn slot_in_question(&self, declared: &Pipeline) -> Result<SlotKey, AnswerError> {
        let is_waiting = |entry: &LedgerEntry| match entry {
            LedgerEntry::Slot(slot) => slot.state == "waiting",
            LedgerEntry::Span(_) => false,
        };
        let open = self.open_slots_of(&declared.name, usize::MAX).await?;
        let pipeline = declared.name.clone();
        if let Some(row) = open.into_iter().find(|row| is_waiting(&row.entry)) {
            return Ok(SlotKey { pipeline, schedule: row.schedule, nominal: row.nominal });
        }
        Ok(last_owed(declared, self.now))
    }

    /// Gathers the evidence of a slot and judges it.
    pub async fn verdict(
        &self,
        declared: &Pipeline,
        slot: &SlotKey,
        evaluators: &dyn Evaluators,
    ) -> Result<Verdict, AnswerError> {
        let SlotKey { pipeline, schedule, nominal } = slot;
        let keys = [Key::Slot(schedule.clone(), *nominal)];
        let row = self.store.read(pipeline, &keys).await?.into_iter().flatten().next();
        let recorded = row.and_then(|row| {
            let Record::Slot(slot) = row.record else { return None };
            Some(slot)
        });
        let zone = zone_of(declared, schedule);
        let local = || nominal.to_zoned(zone.time_zone().clone()).date();
        let opened_by = recorded.as_ref().filter(|slot| slot.is_open());
        let asked = AskedSlot {
            schedule: schedule.clone(),
            nominal: *nominal,
            date: recorded.as_ref().map_or_else(local, |slot| slot.date),
            opened_by: opened_by.and_then(|slot| TriggerType::parse(&slot.opened_by).ok()),
        };
        let zones = |name: &str| self.declarations.zone(name);
        let source: (&dyn Store, ZoneOf<'_>) = (self.store, &zones);
        Ok(verdict_now(source, evaluators, declared, &asked, self.now).await?)
    }
}

/// The slot that was owed last, else a run by hand.
pub fn last_owed(declared: &Pipeline, now: Timestamp) -> SlotKey {
    let just_after = now.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(now);
    let starts = declared.starts.iter().map(|start| &start.schedule);
    let owed = starts.filter_map(|it| Some((it.previous(just_after)?, it.id())));
    let (nominal, schedule) = owed.max_by_key(|(nominal, _)| *nominal).map_or_else(
        || (now, ScheduleId::from_static("manual")),
        |(nominal, schedule)| (nominal, schedule.clone()),
    );
    SlotKey { pipeline: declared.name.clone(), schedule, nominal }
}

/// The zone of a schedule, else the one in which people speak of its pipeline.
fn zone_of(declared: &Pipeline, schedule: &ScheduleId) -> Zone {
    let own = declared.schedule(schedule).map(|known| known.timing().zone.clone());
    let first = || declared.starts.first().map(|start| start.schedule.timing().zone.clone());
    own.or_else(|| declared.zone.clone()).or_else(first).unwrap_or_else(Zone::utc)
}

/// The slot that a text names.
fn named_slot(declared: &Pipeline, text: &str) -> Result<SlotKey, AnswerError> {
    let wrong = |message: String| {
        let hint = "Write `daily/2026-02-25T09:00:00Z`, as `interlock slots` names them.";
        AnswerError::question(ErrorCode::BadSlot, message, hint.to_owned())
    };
    let pipeline = declared.name.clone();
    let own = text.strip_prefix(pipeline.as_str()).and_then(|rest| rest.strip_prefix('/'));
    let (schedule, instant) = match own.unwrap_or(text).rsplit_once('/') {
        Some((schedule, instant)) => (Some(schedule), instant),
        None => (None, own.unwrap_or(text)),
    };
    let nominal: Timestamp =
        instant.parse().map_err(|_odd| wrong(format!("`{instant}` is not an instant")))?;
    if let Some(schedule) = schedule {
        let schedule = ScheduleId::any(schedule).map_err(|error| wrong(error.message))?;
        return Ok(SlotKey { pipeline, schedule, nominal });
    }
    let starts = declared.starts.iter().map(|start| &start.schedule);
    let mut found = starts.filter(|schedule| schedule.is_slot(nominal)).map(|it| it.id().clone());
    match (found.next(), found.next()) {
        (Some(schedule), None) => Ok(SlotKey { pipeline, schedule, nominal }),
        (None, _) => Err(wrong(format!("{pipeline} has no slot at {nominal}"))),
        (Some(_), Some(_)) => {
            Err(wrong(format!("several schedules of {pipeline} have a slot at {nominal}")))
        }
    }
}

/// A slot with the verdict on it.
pub fn evaluation_answer(
    declared: &Pipeline,
    slot: &SlotKey,
    at: Timestamp,
    verdict: &Verdict,
) -> EvaluationAnswer {
    EvaluationAnswer {
        pipeline: declared.name.to_string(),
        slot: slot.to_string(),
        at,
        may_run: verdict.may_run(&declared.readiness),
        verdict: verdict_answer(verdict),
    }
}

/// What a rule says.
pub fn verdict_answer(verdict: &Verdict) -> VerdictAnswer {
    let outcome = match verdict.outcome {
        Outcome::Ready => "ready",
        Outcome::NotReady => "not ready",
        Outcome::CannotTell => "cannot tell",
    };
    VerdictAnswer {
        outcome: outcome.to_owned(),
        name: verdict.name.clone(),
        asked: verdict.asked.clone(),
        seen: verdict.seen.clone().unwrap_or_default(),
        reason: verdict.reason.clone(),
        optional: verdict.weight == Weight::Optional,
        parts: verdict.parts.iter().map(verdict_answer).collect(),
    }
}
