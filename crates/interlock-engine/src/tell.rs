//! Who is told: the incidents and notifications that follow from events, in the events' own groups (S12, S13).
//!
//! One pass over planned groups before they are committed. Because the rows are part of the group, there is no
//! alert without its event and no event without its alert, wherever the process dies. What follows is decided
//! by `interlock_core::incident`; here it becomes rows.
//!
//! Open incidents are known in memory, so that a success, which resolves nothing most of the time, reads
//! nothing. One that is to be opened and is not known may be in the store as resolved, and is read.

mod life;
mod load;
mod unfilled;

pub(crate) use self::unfilled::Gaps;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    incident::{
        Consequence, Fact, IncidentState, Step, consequences, has_consequences, older_days, step,
    },
    run::TriggerType,
};
use interlock_store::{
    CHANGES_MAX, Change, Expect, Group, Key, Record, Row, RowsQuery,
    record::{EventRecord, IncidentRecord, OutboxRecord},
    whole_milliseconds,
};
use jiff::{Timestamp, civil::Date};
use serde_json::Value;

use self::life::{Telling, notification};
use crate::{
    engine::{Engine, EngineError},
    state::{OpenSlot, SlotPlace},
    unfit::Unfit,
    write::{Event, Planned},
};

/// The open slots of a pipeline.
type OpenSlots = BTreeMap<SlotPlace, OpenSlot>;

/// Incidents of pipelines by their dedup keys, each with its revision.
pub type Known = BTreeMap<(PipelineId, String), (Arc<IncidentRecord>, u64)>;

impl Engine {
    /// Adds to each group what follows from its events. The incidents of all of them are read in batches, not group by group: ten
    /// thousand jobs may fail at once.
    ///
    /// Of a pipeline whose incidents cannot be read nothing is written: its groups are taken out.
    pub(crate) async fn tell(&mut self, planned: &mut Vec<Planned>) -> Result<(), EngineError> {
        let Incidents { mut known, followed, unreadable } = self.incidents_of(planned).await?;
        let nothing = OpenSlots::new();
        let mut refused = BTreeSet::new();
        for (index, follow) in followed {
            let Some(plan) = planned.get_mut(index) else { continue };
            if unreadable.contains_key(&plan.group.pipeline) {
                refused.insert(index);
                continue;
            }
            if !follow.changes_anything(&plan.group, &known) {
                continue;
            }
            let unfilled = self.unfilled(&plan.group, &known).await?;
            let state = self.pipelines.0.get(&plan.group.pipeline);
            let open = state.map_or(&nothing, |state| &state.open);
            follow.add(&mut plan.group, &mut known, (open, &unfilled));
        }
        if !unreadable.is_empty() {
            self.take_out_unreadable(planned, &refused, &unreadable);
        }
        Ok(())
    }

    /// Takes out what is planned of pipelines whose incidents cannot be read. Who asked for it hears why; else the pipeline is set aside, and
    /// loaded and planned again when that is over: at once, a job's end would be looked up, found and taken out again without an end.
    fn take_out_unreadable(
        &mut self,
        planned: &mut Vec<Planned>,
        refused: &BTreeSet<usize>,
        unreadable: &BTreeMap<PipelineId, String>,
    ) {
        for (index, plan) in std::mem::take(planned).into_iter().enumerate() {
            match unreadable.get(&plan.group.pipeline) {
                Some(reason) if refused.contains(&index) => {
                    let reason = reason.clone();
                    match plan.request {
                        Some(_) => self.unfit.push(Unfit { plan, reason }),
                        None => self.poisoned.push((plan.group.pipeline, reason)),
                    }
                }
                Some(_) if !plan.is_held => {}
                Some(_) | None => planned.push(plan),
            }
        }
    }

    /// What follows from groups, and the incidents that those are about.
    async fn incidents_of(&mut self, planned: &[Planned]) -> Result<Incidents, EngineError> {
        let (mut known, nothing) = (Known::new(), OpenSlots::new());
        let (mut followed, mut unknown) = (Vec::new(), BTreeMap::<_, BTreeSet<String>>::new());
        for (index, plan) in planned.iter().enumerate().filter(|(_, plan)| !plan.is_held) {
            let pipeline = &plan.group.pipeline;
            let state = self.pipelines.0.get(pipeline);
            let follow = Follow::from(&plan.group, state.map_or(&nothing, |state| &state.open));
            let mut keys = follow.keys(&plan.group);
            if keys.is_empty() {
                continue;
            }
            let incidents = state.map(|state| &state.incidents);
            keys.extend(incidents.into_iter().flat_map(|all| follow.older(&plan.group, all)));
            for (key, need) in keys {
                match (incidents.and_then(|all| all.get(&key)), need) {
                    (Some(open), _) => {
                        known.insert((pipeline.clone(), key), open.clone());
                    }
                    (None, Need::Any) => {
                        unknown.entry(pipeline).or_default().insert(key);
                    }
                    (None, Need::Open) => {}
                }
            }
            followed.push((index, follow));
        }
        let keys = |keys: BTreeSet<String>| keys.into_iter().map(Key::Incident).collect();
        let queries = unknown
            .into_iter()
            .map(|(pipeline, all)| RowsQuery { pipeline: pipeline.clone(), keys: keys(all) });
        let queries: Vec<_> = queries.collect();
        let (found, mut unreadable) = (self.read_rows(&queries).await?, BTreeMap::new());
        for (query, rows) in queries.into_iter().zip(found) {
            let rows = match rows {
                Ok(rows) => rows,
                Err(error) => {
                    unreadable.insert(query.pipeline, error.message);
                    continue;
                }
            };
            for (key, row) in query.keys.into_iter().zip(rows) {
                let Some(Row { record: Record::Incident(record), revision }) = row else {
                    continue;
                };
                if let Key::Incident(key) = key {
                    known.insert((query.pipeline.clone(), key), (record, revision));
                }
            }
        }
        Ok(Incidents { followed, known, unreadable })
    }
}

/// Incidents that groups are about.
struct Incidents {
    /// What follows from groups that incidents follow from, each by its place among them.
    followed: Vec<(usize, Follow)>,
    known: Known,
    /// Pipelines whose incidents cannot be read, and why.
    unreadable: BTreeMap<PipelineId, String>,
}

/// Whether a resolved incident matters too, or only an open one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Need {
    Any,
    Open,
}

/// What follows from a group's events, for each of them in its order: found once, asked for three times.
struct Follow(Vec<Vec<Consequence>>);

impl Follow {
    fn from(group: &Group, open: &OpenSlots) -> Self {
        Self(events(group).map(|event| of_event(group, event, open)).collect())
    }

    /// The incidents that the events of the group are about.
    fn keys(&self, group: &Group) -> BTreeSet<(String, Need)> {
        let resolves = if may_be_watched(group) { Need::Any } else { Need::Open };
        let keys = self.0.iter().flatten().map(|consequence| match consequence {
            Consequence::Open(finding) => (finding.key.clone(), Need::Any),
            Consequence::Resolve { key } => (key.clone(), resolves),
            Consequence::Acknowledge { key } => (key.clone(), Need::Open),
        });
        keys.collect()
    }

    /// Whether there is anything to open, or to end: most good slots end nothing.
    fn changes_anything(&self, group: &Group, known: &Known) -> bool {
        let mut own = known.range((group.pipeline.clone(), String::new())..);
        own.next().is_some_and(|((pipeline, _), _)| *pipeline == group.pipeline)
            || self.0.iter().flatten().any(|it| matches!(it, Consequence::Open(_)))
    }

    /// Those of the open incidents that are over because of a later good slot of their schedule.
    fn older(
        &self,
        group: &Group,
        incidents: &BTreeMap<String, (Arc<IncidentRecord>, u64)>,
    ) -> Vec<(String, Need)> {
        let mut found = Vec::new();
        if incidents.is_empty() {
            return found;
        }
        for (event, follow) in events(group).zip(&self.0) {
            for consequence in follow {
                let Some(days) = older_days(&event.kind, consequence.key()) else { continue };
                let older = incidents.range(days.to_owned()..consequence.key().to_owned());
                found.extend(older.map(|(key, _)| (key.clone(), Need::Open)));
            }
        }
        found
    }
}

/// Whether the watchdog may have opened an incident that this group ends, which is then not known here: a slot was
/// called missed, promised something or took its time, or a pause ended.
fn may_be_watched(group: &Group) -> bool {
    const A_WHILE: jiff::SignedDuration = jiff::SignedDuration::from_mins(1);
    let began = events(group).map(|event| event.at).min();
    let of_the_watchdog = ["PIPELINE_RESUMED", "POST_RUN_PASSED", "POST_RUN_SENSORS_ARRIVED"];
    if events(group).any(|event| of_the_watchdog.contains(&&*event.kind)) {
        return true;
    }
    group.changes.iter().any(|change| match change {
        Change::Put(Key::Slot(..), _, Record::Slot(slot)) => {
            slot.marks.missed_at.is_some()
                || slot.marks.late
                || slot.sla.is_some()
                || slot.marks.recovered
                || is_out_of_turn(&slot.opened_by)
                || began.is_some_and(|at| at.duration_since(slot.opened_at) > A_WHILE)
        }
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => false,
    })
}

/// Whether a slot may be one of those that were given up: a span of them bears no marks.
fn is_out_of_turn(opened_by: &str) -> bool {
    let words =
        [TriggerType::Backfill, TriggerType::Catchup, TriggerType::Manual, TriggerType::Webhook];
    words.iter().any(|word| word.as_str() == opened_by)
}

/// The dedup keys of the incidents that a group's events are about, for a writer that keeps no slots in memory.
pub fn incident_keys(group: &Group) -> Vec<String> {
    let follow = Follow::from(group, &OpenSlots::new());
    follow.keys(group).into_iter().map(|(key, _)| key).collect()
}

/// Adds to such a writer's group what follows from its events, given the incidents as they are.
pub fn add_incidents(group: &mut Group, known: &mut Known) {
    add_what_follows(group, known, (&OpenSlots::new(), &BTreeSet::new()));
}

fn events(group: &Group) -> impl Iterator<Item = &EventRecord> {
    group.changes.iter().filter_map(|change| match change {
        Change::Append(event) => Some(event.as_ref()),
        Change::Put(..) | Change::Delete(..) => None,
    })
}

/// The details of an event that say what it is about, if that is no slot.
const THINGS: [&str; 4] = ["file", "incident", "bark", "thing"];

/// What an event is about, if that is no slot, such as a file.
pub fn thing_of(event: &EventRecord) -> Option<&str> {
    THINGS.iter().find_map(|name| event.details.get(*name)).and_then(Value::as_str)
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
        thing: thing_of(event),
    })
}

/// The ends of older days that follow from what follows from an event.
fn ends_of_older_days(
    group: &Group,
    (event, follow): (&EventRecord, &[Consequence]),
    known: &Known,
) -> Vec<Consequence> {
    let mut ends = Vec::new();
    for today in follow.iter().map(Consequence::key) {
        let Some(days) = older_days(&event.kind, today) else { continue };
        let first = (group.pipeline.clone(), days.to_owned());
        let last = (group.pipeline.clone(), today.to_owned());
        let older = known.range(first..last).filter(|(_, (record, _))| record.is_open());
        ends.extend(older.map(|((_, key), _)| Consequence::Resolve { key: key.clone() }));
    }
    ends
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

/// Whether an incident of checks after runs is about a later slot than the one whose check passed: that one is still to pass.
fn is_about_later_slot(event: &EventRecord, incident: &IncidentRecord) -> bool {
    if !event.kind.starts_with("POST_RUN_") || &*event.kind == "POST_RUN_FAILED" {
        return false;
    }
    let nominal =
        |slot: &str| slot.rsplit_once('/').and_then(|(_, at)| at.parse::<Timestamp>().ok());
    let last = ["lastSlot", "slot"].iter().find_map(|name| incident.details.get(*name));
    let last = last.and_then(Value::as_str).and_then(nominal);
    last.zip(event.slot.as_deref().and_then(nominal)).is_some_and(|(last, own)| last > own)
}

/// Adds to a group the incidents and notifications that follow from its events, given the incidents as they
/// are; those are then as they will be. Needs no role: whoever writes events may call it. What is unfilled stays open.
pub(crate) fn add_what_follows(
    group: &mut Group,
    known: &mut Known,
    about: (&OpenSlots, &BTreeSet<String>),
) {
    Follow::from(group, about.0).add(group, known, about);
}

impl Follow {
    /// The same, given what follows.
    fn add(
        &self,
        group: &mut Group,
        known: &mut Known,
        (open, unfilled): (&OpenSlots, &BTreeSet<String>),
    ) {
        let mut changed: BTreeMap<String, IncidentRecord> = BTreeMap::new();
        let mut notifications = Vec::new();
        for (event, follow) in events(group).zip(&self.0) {
            let ends = ends_of_older_days(group, (event, follow), known);
            for consequence in follow.iter().chain(&ends) {
                let rows = group.changes.len() + changed.len() + notifications.len();
                if rows + 2 > CHANGES_MAX && older_days(&event.kind, consequence.key()).is_some() {
                    // There is no room in the group; the next good slot ends the others.
                    break;
                }
                let key = consequence.key().to_owned();
                // A person's hand names the incident, and always ends it.
                if event.kind == "JOB_COMPLETED" && unfilled.contains(&key) {
                    continue;
                }
                let place = (group.pipeline.clone(), key.clone());
                let (stored, revision) =
                    known.get(&place).map_or((None, 0), |(r, n)| (Some(r.as_ref()), *n));
                let before = changed.get(&key).or(stored);
                if before.is_some_and(|before| is_about_later_slot(event, before)) {
                    continue;
                }
                // A state that only a later version knows is not resolved.
                let state = before.map(|r| r.standing().unwrap_or(IncidentState::Open));
                let name = |word: &str| format!("{key}~{}~{word}", revision + 1);
                let at = whole_milliseconds(event.at);
                let telling = Telling { group, event, open, at };
                let after = match (step(state, consequence), before, consequence) {
                    (Step::Open, _, Consequence::Open(finding)) => {
                        let name = name("opened");
                        let opened = telling.opened(finding, before, &name);
                        let row = notification(&opened, (&group.pipeline, &key), None);
                        notifications.push((name, row));
                        opened
                    }
                    (Step::Join, Some(before), _) => telling.joined(before),
                    (Step::Acknowledge, Some(before), _) => {
                        let acknowledged = telling.acknowledged(before);
                        let told = before.told.clone().filter(|_| before.acknowledged.is_none());
                        if let Some(told) = told {
                            let row =
                                notification(&acknowledged, (&group.pipeline, &key), Some(told));
                            notifications.push((name("acknowledged"), row));
                        }
                        acknowledged
                    }
                    (Step::Resolve, Some(before), _) => {
                        let resolved = telling.resolved(before);
                        if let Some(told) = &before.told {
                            let after = Some(told.clone());
                            let row = notification(&resolved, (&group.pipeline, &key), after);
                            notifications.push((name("resolved"), row));
                        }
                        resolved
                    }
                    (
                        Step::Open | Step::Join | Step::Acknowledge | Step::Resolve | Step::Nothing,
                        ..,
                    ) => continue,
                };
                changed.insert(key, after);
            }
        }
        add_rows(group, known, changed, notifications);
    }
}

/// Incidents as they will be, and who is to be told.
fn add_rows(
    group: &mut Group,
    known: &mut Known,
    changed: BTreeMap<String, IncidentRecord>,
    notifications: Vec<(String, OutboxRecord)>,
) {
    for (key, record) in changed {
        let place = (group.pipeline.clone(), key.clone());
        let revision = known.get(&place).map_or(0, |(_, revision)| *revision);
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        known.insert(place, (record.clone().into(), revision + 1));
        group.changes.push(Change::Put(
            Key::Incident(key),
            expect,
            Record::Incident(record.into()),
        ));
    }
    for (name, record) in notifications {
        let (key, record) = (Key::Outbox(name), Record::Outbox(record.into()));
        group.changes.push(Change::Put(key, Expect::Absent, record));
    }
    assert!(
        group.changes.len() <= CHANGES_MAX,
        "a group with incidents is small: {:?}",
        group.changes
    );
}

/// Records that a file cannot be used, or can be used again.
pub(crate) fn file_event(file: &str, problem: Option<&str>, now: Timestamp, plan: &mut Planned) {
    let event = match problem {
        Some(problem) => Event::of("CONFIG_BROKEN", now, problem),
        None => Event::of("CONFIG_RESTORED", now, format!("{file} can be read again")),
    };
    plan.event(event.detail("file", file));
}

#[cfg(test)]
mod tests;
