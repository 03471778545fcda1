//! What becomes of an incident's row, and the notification that tells of it.

use std::collections::BTreeMap;

use interlock_core::{
    id::PipelineId,
    incident::{Alert, EVENT, EVENT_MESSAGE, Finding, IncidentState, RESOLVED_BY_HAND},
    message::{ACTION, RUNBOOK, default_runbook, runbook},
};
use interlock_store::{
    Group,
    record::{EventRecord, HandRecord, IncidentRecord, OutboxRecord},
};
use jiff::Timestamp;
use serde_json::Value;

use super::{OpenSlots, day_of, events};

/// The detail of an event that is the whole sentence for people, where the event's own is for programs.
const ALERT: &str = "alert";

/// How many former openings are remembered: enough to tell flapping.
const OPENINGS_MAX: usize = 8;

/// An incident's change, and the event that makes it.
pub(super) struct Telling<'a> {
    pub(super) group: &'a Group,
    pub(super) event: &'a EventRecord,
    pub(super) open: &'a OpenSlots,
    pub(super) at: Timestamp,
}

impl Telling<'_> {
    pub(super) fn opened(
        &self,
        finding: &Finding,
        before: Option<&IncidentRecord>,
        notification: &str,
    ) -> IncidentRecord {
        let openings = before.map(|before| before.openings.to_vec());
        let mut openings = openings.unwrap_or_default();
        openings.extend(before.map(|before| before.opened_at));
        openings.drain(..openings.len().saturating_sub(OPENINGS_MAX));
        IncidentRecord {
            state: IncidentState::Open.as_str().into(),
            kind: self.event.kind.clone(),
            level: finding.level.as_str().into(),
            message: self.message(finding),
            details: self.details(finding.alert_type),
            opened_at: self.at,
            updated_at: self.at,
            count: 1,
            told: Some(notification.to_owned()),
            acknowledged: None,
            resolved: None,
            openings: openings.into(),
        }
    }

    pub(super) fn joined(&self, before: &IncidentRecord) -> IncidentRecord {
        let mut joined = before.clone();
        joined.count += 1;
        joined.updated_at = self.at;
        if let Some(slot) = &self.event.slot {
            joined.details.insert("lastSlot".to_owned(), slot.clone().into());
        }
        joined
    }

    pub(super) fn resolved(&self, before: &IncidentRecord) -> IncidentRecord {
        let mut resolved = before.clone();
        resolved.state = IncidentState::Resolved.as_str().into();
        resolved.updated_at = self.at;
        resolved.resolved = (self.event.kind == RESOLVED_BY_HAND).then(|| Box::new(self.hand()));
        resolved
    }

    pub(super) fn acknowledged(&self, before: &IncidentRecord) -> IncidentRecord {
        let mut acknowledged = before.clone();
        acknowledged.state = IncidentState::Acknowledged.as_str().into();
        acknowledged.updated_at = self.at;
        acknowledged.acknowledged = Some(Box::new(self.hand()));
        acknowledged
    }

    fn hand(&self) -> HandRecord {
        let text = |key: &str| self.event.details.get(key).and_then(Value::as_str);
        let by = text("by").unwrap_or("an operator").to_owned();
        HandRecord { at: self.at, by, note: text("note").map(str::to_owned) }
    }

    /// The sentence for people: what, and every reason that the group gives.
    fn message(&self, finding: &Finding) -> String {
        if let Some(whole) = self.event.details.get(ALERT).and_then(Value::as_str) {
            return whole.to_owned();
        }
        let blocking = self.event.details.get("blocking").and_then(Value::as_array);
        let blocking = blocking.into_iter().flatten().filter_map(Value::as_str);
        // That no attempt is left says little; why the last one failed is in the event before.
        let failed = events(self.group)
            .filter(|event| event.kind == "JOB_FAILED" && event.run_id == self.event.run_id)
            .map(|event| event.message.as_str());
        let mut reasons: Vec<&str> = blocking.chain(failed).collect();
        if reasons.is_empty() || self.event.kind == "RETRY_EXHAUSTED" {
            reasons.push(&self.event.message);
        }
        reasons.retain(|reason| !reason.is_empty());
        match reasons.as_slice() {
            [] => finding.summary.clone(),
            reasons => format!("{}: {}", finding.summary, reasons.join("; ")),
        }
    }

    fn details(&self, alert_type: &str) -> BTreeMap<String, Value> {
        let mut details = self.event.details.clone();
        details.remove(ALERT);
        details.insert("type".to_owned(), alert_type.into());
        details.insert(EVENT.to_owned(), self.event.kind.to_string().into());
        if !self.event.message.is_empty() {
            details.insert(EVENT_MESSAGE.to_owned(), self.event.message.clone().into());
        }
        details.insert(RUNBOOK.to_owned(), default_runbook(&self.event.kind).into());
        if let Some(runbook) = runbook(&self.event.kind) {
            // A check that knows more of the slot says so itself.
            details.entry(ACTION.to_owned()).or_insert_with(|| runbook.act.into());
        }
        if let Some((schedule, date)) = day_of(self.group, self.event, self.open) {
            details.insert("scheduleId".to_owned(), schedule.as_str().into());
            details.insert("date".to_owned(), date.to_string().into());
        }
        if let Some(slot) = &self.event.slot {
            details.insert("slot".to_owned(), slot.clone().into());
        }
        if let Some(run) = &self.event.run_id {
            details.insert("runId".to_owned(), run.clone().into());
        }
        details
    }
}

/// The notification of an incident that was opened, acknowledged or resolved, for whoever it concerns.
pub(super) fn notification(
    incident: &IncidentRecord,
    (pipeline, key): (&PipelineId, &str),
    after: Option<String>,
) -> OutboxRecord {
    let mut details = incident.details.clone();
    let alert_type = details.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    details.insert("state".to_owned(), incident.state.clone().into());
    details.insert("incident".to_owned(), key.into());
    let hand = match incident.standing() {
        Ok(IncidentState::Resolved) => incident.resolved.as_ref(),
        Ok(IncidentState::Acknowledged) => incident.acknowledged.as_ref(),
        Ok(IncidentState::Open) | Err(_) => None,
    };
    if let Some(hand) = hand {
        details.insert("by".to_owned(), hand.by.clone().into());
        details.extend(hand.note.clone().map(|note| ("note".to_owned(), note.into())));
    }
    let alert = Alert {
        level: incident.level.to_string(),
        alert_type,
        pipeline_id: pipeline.to_string(),
        message: incident.message.clone(),
        details,
        timestamp: incident.updated_at,
    };
    OutboxRecord {
        channel: String::new(),
        alert: alert.to_json().into(),
        tries: 0,
        not_before: incident.updated_at,
        claimed_until: None,
        last_error: None,
        dead: false,
        after,
        held: None,
    }
}
