//! What people do with incidents: acknowledge and resolve them, keep quiet about some, and test the alerts.
//!
//! All of it is an event of the pipeline; what becomes of the incident and who hears of it follows from the event
//! (`tell`). The pipeline need not exist any more, and `_system` never does: incidents outlive files.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    id::PipelineId,
    incident::{Hand, IncidentState, Noticed, by_hand, noticed},
};
use interlock_store::{
    Change, Expect, InboxEntry, Key, Record, Row, RowsQuery,
    record::{InboxRecord, OutboxRecord, SensorRecord},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    engine::{Engine, EngineError},
    inbox::Answer,
    keeping::Keeping,
    tell::file_event,
    write::{Event, Planned},
};

/// What the keys of silences begin with, among the sensors of `_system`.
pub const SILENCE_PREFIX: &str = "silence/";

impl Engine {
    /// Applies a request that is about no declaration; `None` if it is about one.
    pub(crate) async fn apply_without_declaration(
        &self,
        entry: &InboxEntry,
        now: Timestamp,
        plan: &mut Planned,
    ) -> Result<Option<Answer>, EngineError> {
        let pipeline = &entry.pipeline;
        Ok(Some(match &entry.record {
            InboxRecord::File { file, problem } => {
                file_event(file, problem.as_deref(), now, plan);
                Ok(json!({ "file": file }))
            }
            InboxRecord::Incident { key, hand, by, note } => {
                let done = self.take_hand(pipeline, (key, hand)).await?;
                done.map(|(kind, state)| {
                    plan.event(hand_event(kind, key, (by, note.as_deref()), now));
                    json!({ "incident": key, "state": state.as_str() })
                })
            }
            InboxRecord::Silence { id, silence, by } => {
                self.silence(pipeline, (id, silence.as_ref()), (by, now), plan).await?
            }
            InboxRecord::Keep { kind, id, value, by } => {
                let asked = Keeping { kind, id, value: value.as_ref(), by };
                self.keep(pipeline, &asked, now, plan).await?
            }
            InboxRecord::Noticed { event, thing, message, over } => {
                let when = if *over { Noticed::IsOver } else { Noticed::Begins };
                match noticed(event, when) {
                    Some(kind) => {
                        let event = Event::of(kind, now, message.as_str());
                        plan.event(event.detail("thing", thing.as_str()));
                        Ok(json!({ "event": kind }))
                    }
                    None => Err(format!("`{event}` is not a notice of Interlock")),
                }
            }
            InboxRecord::Heard { instance, since, until, after } => {
                self.hear((instance, after.as_deref()), (*since, *until), now, plan).await?
            }
            InboxRecord::Bark { id, by } => {
                let message = format!("{by} sent a test alert; nothing is wrong, nothing to do");
                let event = Event::of("BARK", now, message).detail("bark", id.as_str());
                plan.event(event.detail("test", true));
                Ok(json!({ "incident": format!("bark:{id}") }))
            }
            InboxRecord::SendAgain { notification } => {
                self.send_again(pipeline, (notification, now), plan).await?
            }
            InboxRecord::Unreadable { reason, .. } => Err(reason.clone()),
            InboxRecord::Sensor { .. }
            | InboxRecord::Run { .. }
            | InboxRecord::Rerun { .. }
            | InboxRecord::Cancel { .. }
            | InboxRecord::Pause { .. }
            | InboxRecord::Resume { .. }
            | InboxRecord::Catchup {}
            | InboxRecord::StopCatchup { .. }
            | InboxRecord::Asked { .. }
            | InboxRecord::Look {}
            | InboxRecord::Report(_)
            | InboxRecord::Job { .. }
            | InboxRecord::StartBackfill { .. }
            | InboxRecord::PauseBackfill { .. }
            | InboxRecord::ResumeBackfill { .. }
            | InboxRecord::CancelBackfill { .. }
            | InboxRecord::Complete { .. } => return Ok(None),
        }))
    }

    /// The event that a hand is, and how the incident stands then.
    async fn take_hand(
        &self,
        pipeline: &PipelineId,
        (key, word): (&str, &str),
    ) -> Result<Result<(&'static str, IncidentState), String>, EngineError> {
        let Some(hand) = Hand::parse(word) else {
            return Ok(Err(format!("`{word}` is not an action on an incident")));
        };
        let known = self.pipelines.0.get(pipeline).and_then(|state| state.incidents.get(key));
        let state = match known {
            Some((record, _)) => Some(record.standing()?),
            None => match self.stored_state(pipeline, key).await {
                Err(EngineError::Damaged(reason)) => return Ok(Err(reason)),
                state => state?,
            },
        };
        let stands = match hand {
            Hand::Acknowledge => IncidentState::Acknowledged,
            Hand::Resolve => IncidentState::Resolved,
            Hand::Note => state.unwrap_or(IncidentState::Resolved),
        };
        let event = by_hand(state, hand).map(|event| (event, stands));
        Ok(event.map_err(|reason| format!("{key}: {reason}")))
    }

    async fn stored_state(
        &self,
        pipeline: &PipelineId,
        key: &str,
    ) -> Result<Option<IncidentState>, EngineError> {
        let rows = self.store.read(pipeline, &[Key::Incident(key.to_owned())]).await;
        let rows = rows.map_err(EngineError::of_one_pipeline)?;
        match rows.into_iter().next().flatten() {
            Some(Row { record: Record::Incident(record), .. }) => Ok(Some(record.standing()?)),
            Some(_) | None => Ok(None),
        }
    }

    /// Reads the open incidents that requests are about and that the watchdog opened since: by one call for all of them.
    pub(crate) async fn learn_named_incidents(
        &mut self,
        entries: &[InboxEntry],
    ) -> Result<(), EngineError> {
        let mut unknown: BTreeMap<&PipelineId, BTreeSet<&String>> = BTreeMap::new();
        for InboxEntry { pipeline, record, .. } in entries {
            let InboxRecord::Incident { key, .. } = record.what() else { continue };
            let known = self.pipelines.0.get(pipeline).map(|state| &state.incidents);
            if known.is_none_or(|known| !known.contains_key(key)) {
                unknown.entry(pipeline).or_default().insert(key);
            }
        }
        let query = |(pipeline, keys): (&PipelineId, BTreeSet<&String>)| RowsQuery {
            pipeline: pipeline.clone(),
            keys: keys.into_iter().cloned().map(Key::Incident).collect(),
        };
        let queries: Vec<_> = unknown.into_iter().map(query).collect();
        let found = self.read_rows(&queries).await?;
        for (RowsQuery { pipeline, keys }, rows) in queries.into_iter().zip(found) {
            // The request is answered with why, when its turn comes.
            let Ok(rows) = rows else { continue };
            for (key, row) in keys.into_iter().zip(rows) {
                if let (
                    Key::Incident(key),
                    Some(Row { record: Record::Incident(record), revision }),
                ) = (key, row)
                    && record.is_open()
                {
                    self.remembered.gaps.forget(&pipeline);
                    let state = self.pipelines.get_mut(&pipeline);
                    state.incidents.insert(key, (record, revision));
                }
            }
        }
        Ok(())
    }

    /// Has a notification tried at once that was given up or waits for its next try.
    async fn send_again(
        &self,
        pipeline: &PipelineId,
        (name, now): (&str, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        let key = Key::Outbox(name.to_owned());
        let found = self.store.read(pipeline, std::slice::from_ref(&key)).await?;
        let row = found.into_iter().next().flatten();
        let Some(Row { record: Record::Outbox(record), revision }) = row else {
            return Ok(Err(format!("there is no undelivered alert `{name}`")));
        };
        if record.claimed_until.is_some_and(|until| now < until) {
            return Ok(Err(format!("`{name}` is being sent now")));
        }
        let record = OutboxRecord {
            dead: false,
            tries: 0,
            not_before: now,
            claimed_until: None,
            ..Arc::unwrap_or_clone(record)
        };
        let message = format!("the alert for {} is sent again", record.channel);
        let event = Event::of("ALERT_SENT_AGAIN", now, message).detail("notification", name);
        plan.event(event.detail("channel", record.channel.as_str()));
        plan.put(key, revision, Record::Outbox(record.into()));
        Ok(Ok(json!({ "notification": name })))
    }

    /// Keeps or forgets a silence: a fact about all pipelines, so it is kept under `_system`.
    async fn silence(
        &self,
        pipeline: &PipelineId,
        (id, silence): (&str, Option<&Value>),
        (by, now): (&str, Timestamp),
        plan: &mut Planned,
    ) -> Result<Answer, EngineError> {
        if *pipeline != PipelineId::system() {
            return Ok(Err(format!("silences belong to `_system`, not to {pipeline}")));
        }
        let key = Key::Sensor(format!("{SILENCE_PREFIX}{id}"));
        let found = self.store.read(pipeline, std::slice::from_ref(&key)).await?;
        let found = found.into_iter().next().flatten();
        let event = match (silence, found) {
            (Some(_), Some(_)) => return Ok(Err(format!("there is a silence `{id}` already"))),
            (None, None) => return Ok(Err(format!("there is no silence `{id}`"))),
            (Some(value), None) => {
                let record = SensorRecord {
                    value: value.clone(),
                    at: now,
                    received_at: now,
                    unheeded: false,
                };
                plan.put(key, 0, Record::Sensor(record.into()));
                Event::of("SILENCE_ADDED", now, format!("{by} added the silence {id}"))
                    .detail("says", value.clone())
            }
            (None, Some(row)) => {
                plan.group.changes.push(Change::Delete(key, Expect::Revision(row.revision)));
                Event::of("SILENCE_REMOVED", now, format!("{by} removed the silence {id}"))
            }
        };
        plan.event(event.detail("silence", id).detail("by", by));
        Ok(Ok(json!({ "silence": id })))
    }
}

/// The event of what a person does with an incident.
fn hand_event(
    kind: &'static str,
    key: &str,
    (by, note): (&str, Option<&str>),
    now: Timestamp,
) -> Event<'static> {
    let message = note.map_or_else(|| format!("by {by}"), str::to_owned);
    let event = Event::of(kind, now, message).detail("incident", key).detail("by", by);
    match note {
        Some(note) => event.detail("note", note),
        None => event,
    }
}
