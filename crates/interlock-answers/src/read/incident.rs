//! Incidents, and where their alerts are.

use std::collections::BTreeSet;

use interlock_core::{
    id::PipelineId,
    incident::{Consequence, Fact, consequences},
};
use interlock_engine::thing_of;
use interlock_store::{
    EventRow, Key, Record,
    record::{HandRecord, IncidentRecord},
};
use jiff::civil::Date;
use serde_json::Value;

use super::{delivery::HELD, story::StoryRows};
use crate::{
    AnswerError, Reader,
    model::incident::{HandAnswer, IncidentAnswer, IncidentDetailAnswer},
};

impl Reader<'_> {
    /// The incidents of a pipeline under some dedup keys, as far as they are there, with their alerts.
    pub(super) async fn incidents_under(
        &self,
        pipeline: &PipelineId,
        keys: &BTreeSet<String>,
    ) -> Result<Vec<IncidentDetailAnswer>, AnswerError> {
        let mut found = Vec::new();
        if keys.is_empty() {
            return Ok(found);
        }
        let asked: Vec<_> = keys.iter().cloned().map(Key::Incident).collect();
        let rows = self.store.read(pipeline, &asked).await?;
        for (key, row) in keys.iter().zip(rows) {
            let Some(Record::Incident(record)) = row.map(|row| row.record) else { continue };
            found.push(self.incident_detail(pipeline, key, &record).await?);
        }
        Ok(found)
    }

    async fn incident_detail(
        &self,
        pipeline: &PipelineId,
        key: &str,
        record: &IncidentRecord,
    ) -> Result<IncidentDetailAnswer, AnswerError> {
        let deliveries = self.deliveries(pipeline, key).await?;
        let held = deliveries.iter().find(|it| it.channel.is_none() && it.state == HELD);
        let held = held.and_then(|it| it.reason.clone()).filter(|_| record.is_open());
        let incident = incident_answer(&IncidentRow { pipeline, key, record }, held);
        Ok(IncidentDetailAnswer { incident, deliveries })
    }
}

/// An incident with its address.
#[derive(Debug, Clone, Copy)]
pub struct IncidentRow<'a> {
    /// Whose it is.
    pub pipeline: &'a PipelineId,
    /// Its dedup key.
    pub key: &'a str,
    /// What is stored of it.
    pub record: &'a IncidentRecord,
}

/// What an incident's row says; with why it is not told yet, if there is a reason.
pub fn incident_answer(row: &IncidentRow<'_>, held: Option<String>) -> IncidentAnswer {
    let IncidentRow { pipeline, key, record } = row;
    IncidentAnswer {
        key: (*key).to_owned(),
        pipeline: pipeline.to_string(),
        state: record.state.to_string(),
        level: record.level.to_string(),
        kind: record.kind.to_string(),
        message: record.message.clone(),
        details: record.details.clone(),
        count: record.count,
        opened_at: record.opened_at,
        updated_at: record.updated_at,
        acknowledged: record.acknowledged.as_deref().map(hand_answer),
        resolved: record.resolved.as_deref().map(hand_answer),
        held,
    }
}

fn hand_answer(hand: &HandRecord) -> HandAnswer {
    let HandRecord { at, by, note } = hand.clone();
    HandAnswer { at, by, note }
}

/// The dedup keys of the incidents that the events of a slot opened, or would have if they were not open already.
pub(super) fn opened_incidents(rows: &StoryRows) -> BTreeSet<String> {
    rows.events.found.iter().flat_map(|event| opened_by(rows, event)).collect()
}

fn opened_by(rows: &StoryRows, event: &EventRow) -> Vec<String> {
    let said = || event.record.details.get("date").and_then(Value::as_str)?.parse::<Date>().ok();
    let date = rows.date.or_else(said);
    let follow = consequences(&Fact {
        kind: &event.record.kind,
        pipeline: &rows.key.pipeline,
        day: date.map(|date| (&rows.key.schedule, date)),
        thing: thing_of(&event.record),
    });
    let opened = follow.into_iter().filter_map(|consequence| match consequence {
        Consequence::Open(finding) => Some(finding.key),
        Consequence::Resolve { .. } | Consequence::Acknowledge { .. } => None,
    });
    opened.collect()
}
