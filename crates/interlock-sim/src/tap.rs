//! The tap in front of the memory store: everything that is accepted passes it, and so do deliberate mistakes.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::{id::PipelineId, readiness::TraitStatus};
use interlock_store::{
    Accepted, CHANGES_MAX, Change, Expect, Group, Key, Lease, OutboxRow, Record, Refusal, Role,
    Store as _, Term, Writer, block_on, memory::MemoryStore, record::OutboxRecord,
};

use crate::{
    around::Onlooker,
    check::Checker,
    clockwork::Pid,
    gated::{Gate, Passage},
    jobs::JobWatcher,
    road::Reach,
    truth::Truth,
};

/// A deliberate mistake between engine and store, to see it caught.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mutation {
    /// The store accepts groups of owners whose term is over.
    StaleTerms,
    /// Groups lose their watermarks' rows: the watermark moves, its slots are not there.
    LostRows,
    /// Watermarks move too far.
    HastyWatermark,
    /// Starts are made twice.
    DoubleStarts,
    /// Readiness is passed over: every answer is taken for a yes.
    BlindTrust,
    /// Notifications that failed are taken for delivered.
    DroppedAlerts,
    /// Incidents are opened without their notifications.
    SilentIncidents,
    /// What is not known is called missed.
    CertainMisses,
    /// A job that says that it failed is called completed.
    KindLedger,
    /// Slots are recorded a minute beside where they are owed.
    ShiftedSlots,
    /// Watermarks are written back.
    BackwardWatermarks,
    /// Missed slots run however old they are.
    LongWindows,
    /// One run more than may be begins.
    ExtraPlaces,
    /// A backfill goes beyond its range.
    GreedyBackfills,
    /// Silenced alerts are told.
    LoudSilences,
    /// What is silenced is not recorded either.
    SilencedRecords,
    /// Pauses begin and end without an event.
    QuietPauses,
    /// Instances act ten minutes before their time.
    HastyInstances,
    /// An open slot takes up another version.
    ChangedVersions,
    /// Groups are larger than may be.
    LargeGroups,
    /// That a start is uncertain is forgotten when it has failed.
    ForgottenDoubt,
    /// After conflicts and large commits all pipelines are read again, once for each group.
    CarelessReloads,
    /// The time of open slots is over before it begins.
    NoTime,
    /// Instances wake five seconds late.
    LazyInstances,
    /// Instances hang when everything is calm.
    HungInstances,
    /// The watchdog finds nothing.
    BlindWatchdog,
    /// Nobody delivers alerts.
    NoNotifiers,
    /// Instances say that they are well, whatever they find.
    ContentSentinels,
    /// A report opens a second slot of its period, a minute after the first.
    SecondSlots,
    /// What reports open is not written, neither by the engine nor by the watchdog.
    DroppedArrivals,
    /// A slot that waits for its report does not learn that it came.
    DeafSlots,
}

impl Mutation {
    /// The promise that each of them breaks.
    pub const ALL: [(Self, &'static str); 31] = [
        (Self::ShiftedSlots, "S1"),
        (Self::DoubleStarts, "S2"),
        (Self::SecondSlots, "S2"),
        (Self::LostRows, "S3"),
        (Self::HastyWatermark, "S3"),
        (Self::BackwardWatermarks, "S4"),
        (Self::LongWindows, "S5"),
        (Self::ExtraPlaces, "S6"),
        (Self::GreedyBackfills, "S7"),
        (Self::BlindTrust, "S8"),
        (Self::StaleTerms, "S9"),
        (Self::CertainMisses, "S10"),
        (Self::DeafSlots, "S10"),
        (Self::KindLedger, "S11"),
        (Self::SilentIncidents, "S12"),
        (Self::DroppedAlerts, "S13"),
        (Self::LoudSilences, "S14"),
        (Self::SilencedRecords, "S14"),
        (Self::QuietPauses, "S14"),
        (Self::HastyInstances, "S15"),
        (Self::ChangedVersions, "S16"),
        (Self::LargeGroups, "S17"),
        (Self::CarelessReloads, "S17"),
        (Self::ForgottenDoubt, "S18"),
        (Self::NoTime, "S19"),
        (Self::LazyInstances, "L1"),
        (Self::HungInstances, "L2"),
        (Self::DroppedArrivals, "L2"),
        (Self::BlindWatchdog, "L3"),
        (Self::NoNotifiers, "L4"),
        (Self::ContentSentinels, "L5"),
    ];

    /// What is taken for what a file says.
    pub(crate) fn misread(self, truth: &Truth) -> Truth {
        let mut misread = truth.clone();
        if self == Self::LongWindows {
            misread.window_minutes = truth.window_minutes.map(|_| 7 * 24 * 60);
        } else if self == Self::ExtraPlaces {
            misread.active_max += 1;
        }
        misread
    }
}

/// Hands everything to the checkers.
#[derive(Debug, Clone)]
pub struct Tap {
    checker: Arc<Mutex<Checker>>,
    memory: Arc<MemoryStore>,
    mutation: Option<Mutation>,
    /// The term in force of each role.
    last_terms: Arc<Mutex<BTreeMap<Role, Term>>>,
    /// Under which terms the groups of the present commit really came.
    terms: Arc<Mutex<Vec<Term>>>,
}

impl Tap {
    /// A tap in front of a store.
    pub fn new(
        checker: Arc<Mutex<Checker>>,
        memory: Arc<MemoryStore>,
        mutation: Option<Mutation>,
    ) -> Self {
        Self { checker, memory, mutation, last_terms: Arc::default(), terms: Arc::default() }
    }

    /// The checkers.
    pub fn checker(&self) -> MutexGuard<'_, Checker> {
        self.checker.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn has(&self, mutation: Mutation) -> bool {
        self.mutation == Some(mutation)
    }

    /// What the store holds under a key, as the precondition that would be met.
    fn as_it_is(&self, pipeline: &PipelineId, key: &Key) -> Expect {
        let rows = block_on(self.memory.read(pipeline, std::slice::from_ref(key)));
        let revision = rows.ok().and_then(|rows| rows.into_iter().next().flatten());
        revision.map_or(Expect::Absent, |row| Expect::Revision(row.revision))
    }

    fn mutate(&self, group: &mut Group) {
        if self.has(Mutation::StaleTerms) {
            let last = self.last_terms.lock().unwrap_or_else(PoisonError::into_inner);
            group.writer.term = *last.get(&group.writer.role).unwrap_or(&group.writer.term);
        }
        let has_watermark =
            group.changes.iter().any(|change| matches!(change.key(), Some(Key::Watermark(_))));
        if self.has(Mutation::LostRows) && has_watermark {
            group.changes.retain(|change| !matches!(change.key(), Some(Key::Slot(..))));
        }
        if self.has(Mutation::HastyWatermark) {
            for change in &mut group.changes {
                if let Change::Put(Key::Watermark(_), _, Record::Watermark(row)) = change {
                    row.at += jiff::SignedDuration::from_hours(2);
                }
            }
        }
        if self.has(Mutation::CertainMisses) {
            for change in &mut group.changes {
                match change {
                    Change::Put(_, _, Record::Slot(row))
                        if row.disposition.as_deref() == Some("unknown") =>
                    {
                        Arc::make_mut(row).disposition = Some("missed".into());
                    }
                    Change::Put(_, _, Record::Span(row)) if row.disposition == "unknown" => {
                        Arc::make_mut(row).disposition = "missed".into();
                    }
                    Change::Put(..) | Change::Delete(..) | Change::Append(_) => {}
                }
            }
        }
        let is_report = |change: &Change| matches!(change.key(), Some(Key::Applied(key)) if key.starts_with("report "));
        if self.has(Mutation::KindLedger) && group.changes.iter().any(is_report) {
            for change in &mut group.changes {
                if let Change::Put(_, _, Record::Slot(row)) = change
                    && row.disposition.as_deref() == Some("failed")
                {
                    Arc::make_mut(row).disposition = Some("completed".into());
                }
            }
        }
        if self.has(Mutation::SilentIncidents) {
            group.changes.retain(|change| !matches!(change.key(), Some(Key::Outbox(_))));
        }
        if self.has(Mutation::SilencedRecords) && self.checker().is_silenced(&group.pipeline) {
            group
                .changes
                .retain(|change| !matches!(change.key(), Some(Key::Incident(_) | Key::Outbox(_))));
        }
        if self.has(Mutation::QuietPauses) {
            group.changes.retain(|change| {
                !matches!(change, Change::Append(event) if event.kind == "PIPELINE_PAUSED")
            });
        }
        if self.has(Mutation::LargeGroups) && has_watermark {
            let event = group.changes.iter().find(|change| matches!(change, Change::Append(_)));
            let events = vec![event.cloned(); CHANGES_MAX];
            group.changes.extend(events.into_iter().flatten());
        }
        self.mutate_arrivals(group);
        group.changes.iter_mut().for_each(|change| self.mutate_change(change));
    }

    /// Mistakes about what reports open.
    fn mutate_arrivals(&self, group: &mut Group) {
        let opened_by_report = |change: &Change| match change {
            Change::Put(Key::Slot(..), expect, Record::Slot(row))
                if matches!(&*row.opened_by, "sensor" | "reconcile")
                    && row.is_open()
                    && row.generation == 1
                    && row.attempt == 0 =>
            {
                Some(*expect == Expect::Absent)
            }
            Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
        };
        match self.mutation {
            Some(Mutation::SecondSlots) => {
                let found = group.changes.iter().find(|it| opened_by_report(it) == Some(true));
                if let Some(Change::Put(Key::Slot(id, at), expect, record)) = found.cloned() {
                    let after = at + jiff::SignedDuration::from_mins(1);
                    group.changes.push(Change::Put(Key::Slot(id, after), expect, record));
                }
            }
            Some(Mutation::DroppedArrivals) => {
                group.changes.retain(|change| opened_by_report(change) != Some(true));
            }
            Some(Mutation::DeafSlots) => {
                group.changes.retain(|change| opened_by_report(change) != Some(false));
            }
            _ => {}
        }
    }

    fn mutate_change(&self, change: &mut Change) {
        let Change::Put(key, expect, record) = change else { return };
        let is_first = *expect == Expect::Absent;
        match (self.mutation, key, record) {
            (Some(Mutation::ShiftedSlots), Key::Slot(_, nominal), Record::Slot(row))
                if is_first && row.opened_by == "scheduler" =>
            {
                *nominal += jiff::SignedDuration::from_mins(-1);
            }
            (Some(Mutation::BackwardWatermarks), Key::Watermark(_), Record::Watermark(row))
                if !is_first =>
            {
                row.at -= jiff::SignedDuration::from_hours(48);
            }
            (Some(Mutation::GreedyBackfills), _, Record::Backfill(row)) => {
                Arc::make_mut(row).to = row.from;
            }
            (Some(Mutation::ChangedVersions), _, Record::Slot(row))
                if !is_first && row.is_open() =>
            {
                Arc::make_mut(row).version = "1".into();
            }
            (Some(Mutation::ForgottenDoubt), _, Record::Slot(row)) if row.state != "running" => {
                Arc::make_mut(row).marks.uncertain = false;
            }
            (Some(Mutation::NoTime), _, Record::Slot(row)) if row.is_open() => {
                Arc::make_mut(row).closes_at = row.opened_at - jiff::SignedDuration::from_secs(1);
            }
            _ => {}
        }
    }
}

impl Gate for Tap {
    fn enter(&self, _verb: &'static str) -> Option<Passage<'_>> {
        None
    }

    fn leave(&self, _verb: &'static str) -> Option<Passage<'_>> {
        None
    }

    fn commits(&self, mut groups: Vec<Group>) -> Vec<Group> {
        if self.mutation.is_some() {
            let terms = groups.iter().map(|group| group.writer.term).collect();
            *self.terms.lock().unwrap_or_else(PoisonError::into_inner) = terms;
            for group in &mut groups {
                self.mutate(group);
            }
        }
        groups
    }

    fn looks_on(&self) -> bool {
        true
    }

    fn committed(&self, mut groups: Vec<Group>, results: &[Result<Accepted, Refusal>]) {
        let terms = std::mem::take(&mut *self.terms.lock().unwrap_or_else(PoisonError::into_inner));
        for (group, term) in groups.iter_mut().zip(terms) {
            group.writer.term = term;
        }
        self.checker().committed(&groups, results);
    }

    fn acquired(&self, holder: &str, lease: Lease) {
        let Writer { role, term, .. } = lease.writer;
        self.last_terms.lock().unwrap_or_else(PoisonError::into_inner).insert(role, term);
        self.checker().acquired(holder, lease);
    }

    fn settles(&self, row: &OutboxRow, becomes: &[(String, OutboxRecord)]) -> bool {
        let key = Key::Outbox(row.name.clone());
        // Who is too late changes nothing.
        if self.as_it_is(&row.pipeline, &key) != Expect::Revision(row.revision) {
            return false;
        }
        self.checker().settles(row, becomes);
        true
    }
}

impl JobWatcher for Tap {
    fn began(&self, run_id: &str, times: u32, by: Pid) {
        self.checker().began(run_id, times, by);
    }
}

impl Onlooker for Tap {
    fn live(&self, pid: Pid) {
        self.checker().live(pid);
    }

    fn answered(&self, by: Pid, pipeline: &PipelineId, status: TraitStatus) {
        self.checker().answered(by, pipeline, status);
    }

    fn could_not_ask(&self) {
        self.checker().could_not_ask();
    }

    fn delivered(&self, channel: &str, key: &str) {
        self.checker().delivered(channel, key);
    }

    fn is_well(&self, pid: Pid, reach: Reach) {
        self.checker().is_well(pid, reach);
    }

    fn died(&self, pid: Pid) {
        self.checker().died(pid);
    }
}
