//! Who is told: the incidents and notifications that follow from events, in the events' own groups (S12, S13).
//!
//! One pass over planned groups before they are committed. Because the rows are part of the group, there is no
//! alert without its event and no event without its alert, wherever the process dies. What follows is decided
//! by `interlock_core::incident`; here it becomes rows.
//!
//! Open incidents are known in memory, so that a success, which resolves nothing most of the time, reads
//! nothing. One that is to be opened and is not known may be in the store as resolved, and is read.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    incident::{
        Alert, Consequence, Fact, Finding, IncidentState, Step, consequences, has_consequences,
        step,
    },
};
use interlock_store::{
    CHANGES_MAX, Change, Expect, Group, Key, Record, Row,
    record::{EventRecord, IncidentRecord, OutboxRecord},
    whole_milliseconds,
};
use jiff::{Timestamp, civil::Date};
use serde_json::Value;

use crate::{
    engine::{Engine, EngineError},
    state::{OpenSlot, SlotPlace},
    write::{Event, Planned},
};

/// Rows per page when loading.
const PAGE: usize = 1_000;

/// The detail of an event that is the whole sentence for people, where the event's own is for programs.
const ALERT: &str = "alert";

/// The open slots of a pipeline.
type OpenSlots = BTreeMap<SlotPlace, OpenSlot>;

/// Incidents of pipelines by their dedup keys, each with its revision.
pub type Known = BTreeMap<(PipelineId, String), (IncidentRecord, u64)>;

impl Engine {
    /// Loads the incidents that are open.
    pub(crate) async fn load_incidents(&mut self) -> Result<(), EngineError> {
        self.load_incidents_after(None, None).await
    }

    /// Forgets what it thought of a pipeline's incidents and loads them again.
    pub(crate) async fn reload_incidents(&mut self, name: &PipelineId) -> Result<(), EngineError> {
        self.pipelines.get_mut(name).incidents.clear();
        // Every key comes after the empty one.
        self.load_incidents_after(Some((name.clone(), String::new())), Some(name)).await
    }

    async fn load_incidents_after(
        &mut self,
        mut last: Option<(PipelineId, String)>,
        only: Option<&PipelineId>,
    ) -> Result<(), EngineError> {
        loop {
            let page = self.store.open_incidents(self.writer.shard, last.as_ref(), PAGE).await?;
            for (pipeline, key, row) in page.items {
                if only.is_some_and(|only| pipeline != *only) {
                    return Ok(());
                }
                last = Some((pipeline.clone(), key.clone()));
                let state = self.pipelines.get_mut(&pipeline);
                state.incidents.insert(key, (row.record, row.revision));
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    /// Adds to each group what follows from its events.
    pub(crate) async fn tell(&self, planned: &mut [Planned]) -> Result<(), EngineError> {
        let (mut known, nothing) = (Known::new(), OpenSlots::new());
        for plan in planned.iter_mut().filter(|plan| !plan.is_held) {
            let state = self.pipelines.0.get(&plan.group.pipeline);
            let open = state.map_or(&nothing, |state| &state.open);
            let keys = keys_of(&plan.group, open);
            if keys.is_empty() {
                continue;
            }
            self.know(&plan.group.pipeline, keys, &mut known).await?;
            add_what_follows(&mut plan.group, &mut known, open);
        }
        Ok(())
    }

    /// Finds the incidents that a group is about.
    async fn know(
        &self,
        pipeline: &PipelineId,
        keys: BTreeSet<(String, Need)>,
        known: &mut Known,
    ) -> Result<(), EngineError> {
        let state = self.pipelines.0.get(pipeline);
        let mut unknown = Vec::new();
        for (key, need) in keys {
            let place = (pipeline.clone(), key);
            if known.contains_key(&place) {
                continue;
            }
            match (state.and_then(|state| state.incidents.get(&place.1)), need) {
                (Some(open), _) => {
                    known.insert(place, open.clone());
                }
                (None, Need::Any) => unknown.push(Key::Incident(place.1)),
                (None, Need::Open) => {}
            }
        }
        if unknown.is_empty() {
            return Ok(());
        }
        let rows = self.store.read(pipeline, &unknown).await?;
        for (key, row) in unknown.into_iter().zip(rows) {
            if let (Key::Incident(key), Some(Row { record: Record::Incident(record), revision })) =
                (key, row)
            {
                known.insert((pipeline.clone(), key), (record, revision));
            }
        }
        Ok(())
    }
}

/// Whether a resolved incident matters too, or only an open one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Any,
    Open,
}

/// The incidents that the events of a group are about.
fn keys_of(group: &Group, open: &OpenSlots) -> BTreeSet<(String, Need)> {
    let follow = events(group).flat_map(|event| of_event(group, event, open));
    let resolves = if may_be_watched(group) { Need::Any } else { Need::Open };
    let keys = follow.map(|consequence| match consequence {
        Consequence::Open(finding) => (finding.key, Need::Any),
        Consequence::Resolve { key } => (key, resolves),
    });
    keys.collect()
}

/// Whether the watchdog may have opened an incident that this group ends, which is then not known here: a slot was
/// called missed, promised something or took its time, or a pause ended.
fn may_be_watched(group: &Group) -> bool {
    const A_WHILE: jiff::SignedDuration = jiff::SignedDuration::from_mins(1);
    let began = events(group).map(|event| event.at).min();
    if events(group).any(|event| event.kind == "PIPELINE_RESUMED") {
        return true;
    }
    group.changes.iter().any(|change| match change {
        Change::Put(Key::Slot(..), _, Record::Slot(slot)) => {
            slot.marks.missed_at.is_some()
                || slot.sla.is_some()
                || slot.marks.recovered
                || began.is_some_and(|at| at.duration_since(slot.opened_at) > A_WHILE)
        }
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => false,
    })
}

/// The dedup keys of the incidents that a group's events are about, for a writer that keeps no slots in memory.
pub fn incident_keys(group: &Group) -> Vec<String> {
    keys_of(group, &OpenSlots::new()).into_iter().map(|(key, _)| key).collect()
}

/// Adds to such a writer's group what follows from its events, given the incidents as they are.
pub fn add_incidents(group: &mut Group, known: &mut Known) {
    add_what_follows(group, known, &OpenSlots::new());
}

fn events(group: &Group) -> impl Iterator<Item = &EventRecord> {
    group.changes.iter().filter_map(|change| match change {
        Change::Append(event) => Some(event),
        Change::Put(..) | Change::Delete(..) => None,
    })
}

/// What follows from one event of a group.
fn of_event(group: &Group, event: &EventRecord, open: &OpenSlots) -> Vec<Consequence> {
    if !has_consequences(&event.kind) {
        return vec![];
    }
    let day = day_of(group, event, open);
    consequences(&Fact {
        kind: &event.kind,
        pipeline: &group.pipeline,
        day: day.as_ref().map(|(schedule, date)| (schedule, *date)),
        thing: ["file", "thing"].iter().find_map(|name| event.details.get(*name)?.as_str()),
    })
}

/// The schedule and the local day of the slot that an event is about: one that its group changes, or an open one,
/// else as the event itself says.
fn day_of(group: &Group, event: &EventRecord, open: &OpenSlots) -> Option<(ScheduleId, Date)> {
    let (schedule, nominal) = event.slot.as_ref()?.split_once('/')?;
    let place: SlotPlace = (nominal.parse().ok()?, ScheduleId::any(schedule).ok()?);
    let changed = group.changes.iter().find_map(|change| match change {
        Change::Put(Key::Slot(schedule, nominal), _, Record::Slot(record))
            if (*nominal, schedule) == (place.0, &place.1) =>
        {
            Some(record.date)
        }
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    });
    let date = changed.or_else(|| open.get(&place).map(|open| open.slot.date));
    let said = || event.details.get("date").and_then(Value::as_str)?.parse().ok();
    Some((place.1, date.or_else(said)?))
}

/// Adds to a group the incidents and notifications that follow from its events, given the incidents as they
/// are; those are then as they will be. Needs no role: whoever writes events may call it.
pub(crate) fn add_what_follows(group: &mut Group, known: &mut Known, open: &OpenSlots) {
    let mut changed: BTreeMap<String, IncidentRecord> = BTreeMap::new();
    let mut notifications = Vec::new();
    for event in events(group) {
        for consequence in of_event(group, event, open) {
            let key = consequence.key().to_owned();
            let place = (group.pipeline.clone(), key.clone());
            let (stored, revision) = known.get(&place).map_or((None, 0), |(r, n)| (Some(r), *n));
            let before = changed.get(&key).or(stored);
            // A state that only a later version knows is not resolved.
            let state = before.map(|r| r.standing().unwrap_or(IncidentState::Open));
            let name = |word: &str| format!("{key}~{}~{word}", revision + 1);
            let telling = Telling { group, event, open, at: whole_milliseconds(event.at) };
            let after = match (step(state, &consequence), before, &consequence) {
                (Step::Open, _, Consequence::Open(finding)) => {
                    let name = name("opened");
                    let opened = telling.opened(finding, &name);
                    notifications.push((name, notification(&opened, &group.pipeline, None)));
                    opened
                }
                (Step::Join, Some(before), _) => telling.joined(before),
                (Step::Resolve, Some(before), _) => {
                    let resolved = telling.resolved(before);
                    if let Some(told) = &before.told {
                        let after = Some(told.clone());
                        let row = notification(&resolved, &group.pipeline, after);
                        notifications.push((name("resolved"), row));
                    }
                    resolved
                }
                (Step::Open | Step::Join | Step::Resolve | Step::Nothing, ..) => continue,
            };
            changed.insert(key, after);
        }
    }
    for (key, record) in changed {
        let place = (group.pipeline.clone(), key.clone());
        let revision = known.get(&place).map_or(0, |(_, revision)| *revision);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        known.insert(place, (record.clone(), revision + 1));
        group.changes.push(Change::Put(Key::Incident(key), expect, Record::Incident(record)));
    }
    for (name, record) in notifications {
        let (key, record) = (Key::Outbox(name), Record::Outbox(record));
        group.changes.push(Change::Put(key, Expect::Absent, record));
    }
    debug_assert!(
        group.changes.len() <= CHANGES_MAX,
        "what has consequences is a small group: {:?}",
        group.changes
    );
}

/// An incident's change, and the event that makes it.
struct Telling<'a> {
    group: &'a Group,
    event: &'a EventRecord,
    open: &'a OpenSlots,
    at: Timestamp,
}

impl Telling<'_> {
    fn opened(&self, finding: &Finding, notification: &str) -> IncidentRecord {
        IncidentRecord {
            state: IncidentState::Open.as_str().to_owned(),
            kind: self.event.kind.clone(),
            level: finding.level.as_str().to_owned(),
            message: self.message(finding),
            details: self.details(finding.alert_type),
            opened_at: self.at,
            updated_at: self.at,
            count: 1,
            told: Some(notification.to_owned()),
        }
    }

    fn joined(&self, before: &IncidentRecord) -> IncidentRecord {
        let mut joined = before.clone();
        joined.count += 1;
        joined.updated_at = self.at;
        if let Some(slot) = &self.event.slot {
            joined.details.insert("lastSlot".to_owned(), slot.clone().into());
        }
        joined
    }

    fn resolved(&self, before: &IncidentRecord) -> IncidentRecord {
        let mut resolved = before.clone();
        IncidentState::Resolved.as_str().clone_into(&mut resolved.state);
        resolved.updated_at = self.at;
        resolved
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

/// The notification of an incident that was opened or resolved, for whoever it concerns.
fn notification(
    incident: &IncidentRecord,
    pipeline: &PipelineId,
    after: Option<String>,
) -> OutboxRecord {
    let mut details = incident.details.clone();
    let alert_type = details.get("type").and_then(Value::as_str).unwrap_or_default().to_owned();
    details.insert("state".to_owned(), incident.state.clone().into());
    let alert = Alert {
        level: incident.level.clone(),
        alert_type,
        pipeline_id: pipeline.to_string(),
        message: incident.message.clone(),
        details,
        timestamp: incident.updated_at,
    };
    OutboxRecord {
        channel: String::new(),
        alert: alert.to_json(),
        tries: 0,
        not_before: incident.updated_at,
        claimed_until: None,
        last_error: None,
        dead: false,
        after,
    }
}

/// Records that a file cannot be used, or can be used again.
pub(crate) fn file_event(file: &str, problem: Option<&str>, now: Timestamp, plan: &mut Planned) {
    let event = match problem {
        Some(problem) => Event::of("CONFIG_BROKEN", now, problem),
        None => Event::of("CONFIG_RESTORED", now, format!("{file} can be used again")),
    };
    plan.event(event.detail("file", file));
}

#[cfg(test)]
mod tests;
