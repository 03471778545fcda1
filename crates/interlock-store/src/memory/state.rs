//! What the engine in memory holds, and how groups and leases change it.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    sync::Arc,
};

use interlock_core::id::PipelineId;
use jiff::Timestamp;

use super::{lists::Lists, whole::Followed};
use crate::{
    contract::{
        Accepted, Change, EventRow, Group, INSTANCES_KEPT, InboxEntry, InstanceRow, Lease, Refusal,
        Role, Roll, Row, Shard, StoreError, Term, Writer,
    },
    key::Key,
    record::{EventRecord, InstanceRecord, Record},
};

/// All that a store holds, as plain data.
#[derive(Debug, Clone, PartialEq)]
pub struct State {
    pub(super) shard_count: u16,
    /// Invariant: an entry is never removed, so that terms only grow.
    leases: BTreeMap<(Role, Shard), LeaseState>,
    /// Who said that it is there, and until when.
    present: BTreeMap<(Role, String), Timestamp>,
    /// What instances said of themselves, and when.
    instances: BTreeMap<String, (Timestamp, InstanceRecord)>,
    pub(super) rows: BTreeMap<PipelineId, BTreeMap<Key, Row<Record>>>,
    pub(super) lists: Lists,
    /// Invariant: their numbers grow.
    pub(super) events: VecDeque<EventRow>,
    /// The last number that was given, to an event or to a change.
    pub(super) event_last: u64,
    /// What changed, while somebody follows.
    pub(super) followed: Option<Followed>,
    pub(super) inbox: BTreeMap<u64, InboxEntry>,
    /// Invariant: every entry of the inbox, by what makes it the same entry.
    pub(super) inbox_numbers: BTreeMap<(PipelineId, String), u64>,
    pub(super) inbox_last: u64,
}

/// The last lease of a role's shard.
#[derive(Debug, Clone, PartialEq)]
struct LeaseState {
    term: Term,
    /// Nobody, once it was released.
    holder: Option<String>,
    expires: Timestamp,
}

impl State {
    /// An empty one.
    pub fn new(shard_count: u16) -> Self {
        Self {
            shard_count,
            leases: BTreeMap::new(),
            present: BTreeMap::new(),
            instances: BTreeMap::new(),
            rows: BTreeMap::new(),
            lists: Lists::default(),
            events: VecDeque::new(),
            event_last: 0,
            followed: None,
            inbox: BTreeMap::new(),
            inbox_numbers: BTreeMap::new(),
            inbox_last: 0,
        }
    }

    /// Applies the groups of one call, each by itself, unless one of them is a mistake.
    pub fn commit(
        &mut self,
        groups: Vec<Group>,
    ) -> Result<Vec<Result<Accepted, Refusal>>, StoreError> {
        groups.iter().try_for_each(|group| group.check(self.shard_count))?;
        let mut refused = BTreeSet::new();
        let mut results = Vec::with_capacity(groups.len());
        for group in groups {
            let pipeline = group.pipeline.clone();
            let result =
                if refused.contains(&pipeline) { Err(Refusal::Behind) } else { self.apply(group) };
            if result.is_err() {
                refused.insert(pipeline);
            }
            results.push(result);
        }
        Ok(results)
    }

    /// Applies one group, or changes nothing.
    ///
    /// The caller has passed it through [`Group::check`].
    pub fn apply(&mut self, group: Group) -> Result<Accepted, Refusal> {
        if let Some(refusal) = group.refusal() {
            return Err(refusal);
        }
        self.check_term(group.writer)?;
        self.check_rows(&group)?;
        let Group { pipeline, changes, .. } = group;
        let mut last_event = 0;
        for change in changes {
            match change {
                Change::Put(key, _, record) => self.put(&pipeline, key, record),
                Change::Delete(key, _) => self.delete(&pipeline, &key),
                Change::Append(record) => last_event = self.append(&pipeline, record),
            }
        }
        Ok(Accepted { last_event })
    }

    fn check_term(&self, writer: Writer) -> Result<(), Refusal> {
        match self.leases.get(&(writer.role, writer.shard)) {
            Some(lease) if lease.is_held_by(writer) => Ok(()),
            lease => Err(Refusal::Term { current: lease.map_or(Term(0), |lease| lease.term) }),
        }
    }

    fn check_rows(&self, group: &Group) -> Result<(), Refusal> {
        let rows = self.rows.get(&group.pipeline);
        for change in &group.changes {
            let Some(key) = change.key() else { continue };
            let found = rows.and_then(|rows| rows.get(key)).map_or(0, |row| row.revision);
            if !change.expect().holds(found) {
                return Err(Refusal::Conflict { key: key.clone(), found });
            }
        }
        Ok(())
    }

    fn put(&mut self, pipeline: &PipelineId, key: Key, record: Record) {
        if let Key::Applied(name) = &key
            && let Some(number) = self.inbox_numbers.remove(&(pipeline.clone(), name.clone()))
        {
            self.inbox.remove(&number);
        }
        self.note(pipeline, &key);
        self.set(pipeline, key, record, |before| before + 1);
    }

    fn delete(&mut self, pipeline: &PipelineId, key: &Key) {
        self.note(pipeline, key);
        self.unset(pipeline, key);
    }

    fn append(&mut self, pipeline: &PipelineId, record: Arc<EventRecord>) -> u64 {
        self.event_last += 1;
        let number = self.event_last;
        self.events.push_back(EventRow { number, pipeline: pipeline.clone(), record });
        number
    }

    pub(super) fn acquire(
        &mut self,
        (role, shard): (Role, Shard),
        holder: &str,
        expires: Timestamp,
        now: Timestamp,
    ) -> Option<Lease> {
        let last = self.leases.get(&(role, shard));
        let is_taken = |last: &LeaseState| {
            last.expires > now && last.holder.as_deref().is_some_and(|other| other != holder)
        };
        if last.is_some_and(is_taken) {
            return None;
        }
        let term = Term(last.map_or(0, |last| last.term.0) + 1);
        let given = LeaseState { term, holder: Some(holder.to_owned()), expires };
        self.leases.insert((role, shard), given);
        Some(Lease { writer: Writer { role, shard, term }, expires })
    }

    pub(super) fn renew(&mut self, writer: Writer, expires: Timestamp) -> Option<Lease> {
        let lease = self.leases.get_mut(&(writer.role, writer.shard))?;
        lease.is_held_by(writer).then(|| {
            lease.expires = expires;
            Lease { writer, expires }
        })
    }

    pub(super) fn announce(&mut self, role: Role, instance: &str, until: Timestamp) {
        self.present.insert((role, instance.to_owned()), until);
    }

    pub(super) fn roll(&mut self, now: Timestamp) -> Roll {
        self.present.retain(|_, until| *until > now);
        let held = self.leases.iter().filter(|(_, lease)| lease.expires > now);
        let held = held
            .filter_map(|(place, lease)| Some((*place, (lease.holder.clone()?, lease.expires))));
        Roll { now, present: self.present.keys().cloned().collect(), held: held.collect() }
    }

    pub(super) fn report_instance(
        &mut self,
        instance: &str,
        record: &InstanceRecord,
        now: Timestamp,
    ) {
        let is_kept = |at: Timestamp| now.duration_since(at) <= INSTANCES_KEPT;
        self.instances.retain(|_, (said_at, _)| is_kept(*said_at));
        self.instances.insert(instance.to_owned(), (now, record.clone()));
    }

    pub(super) fn instances(&self) -> Vec<InstanceRow> {
        let row = |(instance, (said_at, record)): (&String, &(Timestamp, InstanceRecord))| {
            let (instance, record) = (instance.clone(), record.clone());
            InstanceRow { instance, said_at: *said_at, record }
        };
        self.instances.iter().map(row).collect()
    }

    pub(super) fn release(&mut self, writer: Writer) {
        if let Some(lease) = self.leases.get_mut(&(writer.role, writer.shard))
            && lease.is_held_by(writer)
        {
            lease.holder = None;
        }
    }
}

impl LeaseState {
    /// Whether its term is the writer's and not over. Expiry alone does not end it.
    fn is_held_by(&self, writer: Writer) -> bool {
        self.term == writer.term && self.holder.is_some()
    }
}
