//! The checkers: they see every group that the store accepts and what jobs, evaluators and channels saw, keep books of
//! their own, and call no plan of the engine.
//!
//! A group is judged when it is accepted, row by row, then as a whole. The first violation ends the run.

mod absence;
mod alerts;
mod arrivals;
mod backfills;
mod beacons;
mod book;
mod end;
mod owed;
mod reports;
mod scene;
mod silences;
mod slots;

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    sync::Arc,
};

use interlock_core::{
    id::{PipelineId, ScheduleId, fnv1a},
    readiness::TraitStatus,
};
use interlock_store::{
    Accepted, Change, Group, Key, Lease, LedgerRow, OutboxRow, Record, Refusal, Role, RunKey, Term,
    record::{EventRecord, OutboxRecord},
};
use jiff::{SignedDuration, Timestamp};

pub(crate) use self::scene::Scene;
use self::{
    alerts::Alerts,
    arrivals::TakenFact,
    backfills::SeenBackfill,
    beacons::{Beacons, Manners},
    book::{Book, Place, SeenSlot, SeenSpan},
    reports::Reports,
    silences::Hush,
};
use crate::{
    clockwork::{Clockwork, Pid},
    feeds::Fact,
    files::Files,
    jobs::Jobs,
    luck::Luck,
    road::Reach,
    work::{LoopId, Work, WorkBook},
};

/// How long after the faults ended things may still be slow.
pub(crate) const SETTLING: SignedDuration = SignedDuration::from_hours(2);

/// Something that must never be.
#[derive(Debug, Clone)]
pub struct Violation {
    /// Which promise of the design: `S1` to `L5`.
    pub invariant: &'static str,
    /// When, by the true time.
    pub at: Timestamp,
    /// Whose.
    pub pipeline: String,
    /// Which slot.
    pub slot: Option<(ScheduleId, Timestamp)>,
    /// What is wrong.
    pub message: String,
}

impl fmt::Display for Violation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} violated at {}: {}", self.invariant, self.at, self.pipeline)?;
        if let Some((schedule, nominal)) = &self.slot {
            write!(f, "/{schedule}/{nominal}")?;
        }
        write!(f, ": {}", self.message)
    }
}

/// What a check found, before it is known whose it is.
#[derive(Debug)]
pub(crate) struct Finding {
    invariant: &'static str,
    message: String,
    slot: Option<Place>,
}

impl Finding {
    pub(crate) fn of(invariant: &'static str, message: impl Into<String>) -> Self {
        Self { invariant, message: message.into(), slot: None }
    }

    pub(crate) fn about(mut self, place: &Place) -> Self {
        self.slot = Some(place.clone());
        self
    }
}

/// How much was checked.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Tally {
    /// Groups that were accepted.
    pub groups: u64,
    /// Slots that got their fate, spans included.
    pub dispositions: u64,
    /// Runs.
    pub runs: u64,
    /// Slots that schedules owe, enumerated and found.
    pub owed: u64,
    /// Events, and the hash of all of them in their order.
    pub events: u64,
    /// See `events`.
    pub hash: u64,
    /// Notifications that channels took.
    pub deliveries: u64,
    /// Jobs that a process began which had lost the shard by then.
    pub orphans: u64,
    /// The most that a loop asked of the store in two minutes, where that is counted.
    pub work: Work,
}

/// All checkers.
#[derive(Debug)]
pub struct Checker {
    clockwork: Clockwork,
    files: Files,
    luck: Arc<Luck>,
    jobs: Option<Jobs>,
    books: BTreeMap<PipelineId, Book>,
    /// Whose turn it is in a role, and under which term.
    owners: BTreeMap<Role, (Term, Pid)>,
    /// Instances whose engine is at work.
    live: BTreeSet<Pid>,
    /// What a process was last told about a pipeline's trait, and when.
    answers: BTreeMap<(Pid, PipelineId), (TraitStatus, Timestamp)>,
    /// Runs whose end somebody reported by hand.
    by_hand: BTreeSet<String>,
    alerts: Alerts,
    /// What the outside heard of the instances.
    beacons: Beacons,
    /// What jobs that somebody else runs said, and who listened when.
    reports: Reports,
    calm_since: Option<Timestamp>,
    /// What the loops asked of the store.
    work: WorkBook,
    /// How much was checked.
    pub tally: Tally,
    violation: Option<Violation>,
}

impl Checker {
    /// A checker that has seen nothing.
    pub fn new(clockwork: Clockwork, files: Files, luck: Arc<Luck>) -> Self {
        Self {
            clockwork,
            files,
            luck,
            jobs: None,
            books: BTreeMap::new(),
            owners: BTreeMap::new(),
            live: BTreeSet::new(),
            answers: BTreeMap::new(),
            by_hand: BTreeSet::new(),
            alerts: Alerts::default(),
            beacons: Beacons::default(),
            reports: Reports::default(),
            calm_since: None,
            tally: Tally::default(),
            work: WorkBook::default(),
            violation: None,
        }
    }

    /// Lets it ask jobs what became of them.
    pub fn meet(&mut self, jobs: Jobs) {
        self.jobs = Some(jobs);
    }

    /// What was violated, if anything.
    pub fn violation(&self) -> Option<&Violation> {
        self.violation.as_ref()
    }

    /// From now on nothing goes wrong any more.
    pub fn calm_down(&mut self) {
        self.calm_since = Some(self.clockwork.time());
    }

    /// How often instances say outside that they are well, and how long any of their loops may stand still.
    pub(crate) fn expect_beacons(&mut self, look: SignedDuration, bound: SignedDuration) {
        self.beacons.expect(Manners { look, bound });
    }

    /// An instance says outside that it is well.
    pub(crate) fn is_well(&mut self, pid: Pid, reach: Reach) {
        let now = self.clockwork.time();
        if let Err(finding) = self.beacons.is_well(pid, reach, now, self.calm_since) {
            self.found(&PipelineId::system(), finding);
        }
    }

    /// A loop of an instance stands still from now on.
    pub(crate) fn stands_still(&mut self, pid: Pid, name: &'static str) {
        self.beacons.stands_still(pid, name, self.clockwork.time());
    }

    /// It goes on.
    pub(crate) fn goes_on(&mut self, pid: Pid, name: &'static str) {
        self.beacons.goes_on(pid, name);
    }

    /// An instance died, or all of it goes on.
    pub(crate) fn died(&mut self, pid: Pid) {
        self.beacons.died(pid);
    }

    /// At the end everybody was heard of.
    pub(crate) fn were_heard(&mut self, pids: &[Pid]) {
        let now = self.clockwork.time();
        if let Err(finding) = self.beacons.were_heard(pids, now, self.calm_since) {
            self.found(&PipelineId::system(), finding);
        }
    }

    /// How things stand, in the words of [`STATES`](crate::luck::STATES).
    pub fn states(&self) -> Vec<&'static str> {
        let now = self.clockwork.time();
        let mut states = BTreeSet::new();
        for book in self.books.values() {
            for slot in book.open_slots() {
                match slot.state {
                    "running" if slot.is_uncertain => states.insert("start uncertain"),
                    "running" => states.insert("run under way"),
                    "queued" => states.insert("slots queued"),
                    _ => false,
                };
                if slot.backfill.is_some() {
                    states.insert("backfill open");
                }
            }
            if book.is_paused(now) {
                states.insert("pipeline paused");
            }
            if book.incidents.values().any(|is_open| *is_open) {
                states.insert("incident open");
            }
            if book.slots.values().rev().take(20).any(SeenSlot::is_missing) {
                states.insert("slot missed");
            }
        }
        states.into_iter().collect()
    }

    /// Somebody reports a run's end by hand.
    pub fn report_by_hand(&mut self, run_id: String) {
        self.by_hand.insert(run_id);
    }

    /// Whether somebody silenced a pipeline.
    pub(crate) fn is_silenced(&self, pipeline: &PipelineId) -> bool {
        self.alerts.hush(pipeline, self.clockwork.time()) == Hush::Yes
    }

    /// The true time.
    pub fn time(&self) -> Timestamp {
        self.clockwork.time()
    }

    /// A job that somebody else runs said something about a slot, and it is durable.
    pub fn reported(&mut self, pipeline: &PipelineId, slot: Timestamp, said: &str) {
        let now = self.clockwork.time();
        self.reports.said(pipeline, slot, (said, now));
    }

    /// A report that may open a slot of a pipeline is durable.
    pub(crate) fn sensor_taken(&mut self, pipeline: &PipelineId, key: &str, fact: Fact) {
        let taken = TakenFact::new(fact, self.clockwork.time());
        let book = self.books.entry(pipeline.clone()).or_default();
        book.facts.entry(key.to_owned()).or_insert(taken);
    }

    /// Somebody listened, from one instant to another.
    pub fn listened(&mut self, stretch: (Timestamp, Timestamp)) {
        self.reports.listened(stretch);
    }

    /// The backfills of a pipeline that there ever were, and whether each is paused.
    pub fn backfills(&self, pipeline: &PipelineId) -> Vec<(u64, bool)> {
        let all = self.books.get(pipeline).into_iter().flat_map(|book| &book.backfills);
        all.map(|(number, backfill)| (*number, backfill.is_paused())).collect()
    }

    /// Slots of a pipeline that were recorded lately, newest first.
    pub fn recent(
        &self,
        pipeline: &PipelineId,
        count: usize,
    ) -> Vec<(ScheduleId, Timestamp, String)> {
        let Some(book) = self.books.get(pipeline) else { return vec![] };
        let mut slots: Vec<_> = book.slots.iter().collect();
        slots.sort_by_key(|((_, at), _)| std::cmp::Reverse(*at));
        let run_id = |(schedule, nominal): &Place, slot: &SeenSlot| {
            RunKey {
                schedule: schedule.clone(),
                nominal: *nominal,
                generation: slot.generation,
                attempt: slot.attempt,
            }
            .id(pipeline)
        };
        let slots = slots.into_iter().take(count);
        slots.map(|(place, slot)| (place.0.clone(), place.1, run_id(place, slot))).collect()
    }

    /// A process has a lease.
    pub fn acquired(&mut self, holder: &str, lease: Lease) {
        let pid = holder.parse().unwrap_or(0);
        let role = lease.writer.role;
        let (last, _) = self.owner(role);
        if lease.writer.term <= last {
            let message = format!("{:?} was given after {last:?}", lease.writer.term);
            self.found(&PipelineId::system(), Finding::of("S9", message));
        }
        self.owners.insert(role, (lease.writer.term, pid));
        if role == Role::Watchdog {
            return;
        }
        self.live.remove(&pid);
        // A new engine knows no answers.
        self.answers.retain(|(of, _), _| *of != pid);
    }

    /// Who has a role, and under which term.
    fn owner(&self, role: Role) -> (Term, Pid) {
        self.owners.get(&role).copied().unwrap_or((Term(0), 0))
    }

    /// An instance's engine is at work.
    pub fn live(&mut self, pid: Pid) {
        self.live.insert(pid);
    }

    /// An evaluator answered.
    pub fn answered(&mut self, by: Pid, pipeline: &PipelineId, status: TraitStatus) {
        let now = self.clockwork.time();
        self.answers.insert((by, pipeline.clone()), (status, now));
    }

    /// A process could not find out what is silenced, and does not know it from before.
    pub fn could_not_ask(&mut self) {
        let now = self.clockwork.time();
        self.alerts.could_not_ask(now);
    }

    /// A channel took an alert.
    pub fn delivered(&mut self, channel: &str, key: &str) {
        self.tally.deliveries += 1;
        let pipeline = key.split_once('/').and_then(|(name, _)| PipelineId::any(name).ok());
        let now = self.clockwork.time();
        if let Err(finding) = self.alerts.delivered(channel, key, now) {
            self.found(&pipeline.unwrap_or(PipelineId::system()), finding);
        }
    }

    /// A job began.
    pub fn began(&mut self, run_id: &str, times: u32, by: Pid) {
        let Ok((pipeline, key)) = RunKey::parse(run_id) else { return };
        let place = (key.schedule.clone(), key.nominal);
        if times > 1 {
            let message = format!("{run_id} began {times} times");
            self.found(&pipeline, Finding::of("S2", message).about(&place));
            return;
        }
        let known = self.books.get(&pipeline).and_then(|book| book.runs.get(&key).copied());
        match known {
            None => {
                let message = format!("{run_id} began, and no run is recorded");
                self.found(&pipeline, Finding::of("S2", message).about(&place));
            }
            Some("TRIGGERING" | "RUNNING") => {}
            Some(_) if self.owner(Role::Engine).1 != by => {
                // Whoever lost the shard cannot take back what is on its way: no store can refuse it.
                self.tally.orphans += 1;
            }
            Some(status) => {
                let message = format!("{run_id} began when it was already {status}");
                self.found(&pipeline, Finding::of("S18", message).about(&place));
            }
        }
    }

    /// What came of groups.
    pub fn committed(&mut self, groups: &[Group], results: &[Result<Accepted, Refusal>]) {
        self.accept_all(groups, results);
        for group in groups.iter().zip(results).filter(|(_, result)| result.is_ok()) {
            self.live_come_first(group.0);
        }
    }

    fn accept_all(&mut self, groups: &[Group], results: &[Result<Accepted, Refusal>]) {
        for (group, result) in groups.iter().zip(results) {
            match result {
                Ok(_) => self.accept(group),
                Err(Refusal::Term { .. }) => self.luck.saw("stale owner refused"),
                Err(Refusal::Conflict { .. }) => self.luck.saw("conflict"),
                Err(Refusal::Behind) => {}
                Err(refusal) => {
                    let finding = Finding::of("S17", format!("a group that cannot be: {refusal}"));
                    self.found(&group.pipeline, finding);
                }
            }
        }
    }

    /// S7, once everything that was committed together is taken over.
    fn live_come_first(&mut self, group: &Group) {
        let Some(book) = self.books.get(&group.pipeline).filter(|_| backfills::begins(group))
        else {
            return;
        };
        let Some(truth) = self.files.truth_of(&group.pipeline, book.version) else { return };
        let now = self.clockwork.time() + self.clockwork.clock_of(self.owner(Role::Engine).1);
        if let Err(finding) = backfills::live_come_first(book, now, &truth.gate) {
            self.found(&group.pipeline, finding);
        }
    }

    fn accept(&mut self, group: &Group) {
        if self.violation.is_some() {
            return;
        }
        self.tally.groups += 1;
        let Some(jobs) = self.jobs.clone() else { return };
        let now = self.clockwork.time();
        let role = group.writer.role;
        let (last, owner) = self.owner(role);
        if group.writer.term != last {
            let message = format!("{:?} wrote after {last:?} was given", group.writer.term);
            return self.found(&group.pipeline, Finding::of("S9", message));
        }
        // Taken out, so that others can be looked at beside it.
        let mut book = match self.books.get_mut(&group.pipeline) {
            Some(book) => std::mem::take(book),
            None => Book::default(),
        };
        let scene = Scene {
            pipeline: &group.pipeline,
            now,
            ahead: self.clockwork.clock_of(owner),
            owner,
            files: &self.files,
            jobs: &jobs,
            by_hand: &self.by_hand,
            reports: &self.reports,
            answers: &self.answers,
            books: &self.books,
            calm_since: self.calm_since,
            planned_at: planned_at(group).unwrap_or(now),
            is_live: role == Role::Engine && self.live.contains(&owner),
        };
        let hush = self.alerts.hush(&group.pipeline, now);
        let judged = judge(&mut book, group, &scene)
            .and_then(|count| silences::is_recorded(group, hush).map(|()| count))
            .and_then(|count| self.alerts.group(group, &mut book, now).map(|()| count));
        match self.books.get_mut(&group.pipeline) {
            Some(place) => *place = book,
            None => {
                self.books.insert(group.pipeline.clone(), book);
            }
        }
        match judged {
            Ok(count) => {
                self.tally.owed += count.owed;
                self.tally.runs += count.runs;
                self.tally.dispositions += count.dispositions;
                for name in count.saw {
                    self.luck.saw(name);
                }
            }
            Err(finding) => self.found(&group.pipeline, finding),
        }
        for change in &group.changes {
            if let Change::Append(event) = change {
                self.tally.events += 1;
                self.tally.hash = mixed_in(self.tally.hash, &group.pipeline, event);
            }
        }
    }

    /// A notification is about to become something else.
    pub fn settles(&mut self, row: &OutboxRow, becomes: &[(String, OutboxRecord)]) {
        let now = self.clockwork.time();
        if let Err(finding) = self.alerts.settles(row, becomes, now) {
            self.found(&row.pipeline, finding);
        }
    }

    /// Forgets what is old, except what is left of it in the store.
    pub fn forget_before(&mut self, before: Timestamp, left: &[LedgerRow]) {
        let mut places: BTreeMap<&PipelineId, BTreeSet<Place>> = BTreeMap::new();
        for row in left {
            places.entry(&row.pipeline).or_default().insert((row.schedule.clone(), row.nominal));
        }
        for (pipeline, book) in &mut self.books {
            book.forget_before(before, &places.remove(pipeline).unwrap_or_default());
        }
        self.reports.forget_before(before);
        self.by_hand.clear();
    }

    /// A task of a process panicked.
    pub fn report_panic(&mut self, pid: Pid, words: &str) {
        let message = format!("instance {pid} panicked: {words}");
        self.found(&PipelineId::system(), Finding::of("PANIC", message));
    }

    /// So many slots are due now, or to be judged.
    pub(crate) fn are_due(&mut self, count: u64) {
        self.work.are_due(self.clockwork.time(), count);
    }

    /// A loop asked something of the store, or was answered.
    pub(crate) fn worked(&mut self, now: Timestamp, id: LoopId, did: Work) {
        let complaint = self.work.add(now, id, did);
        self.tally.work = self.work.most;
        if let Some(message) = complaint {
            self.found(&PipelineId::system(), Finding::of("S17", message));
        }
    }

    /// A process does something for ever, and time stands still.
    pub fn report_restless(&mut self, (pid, task): (Pid, &str)) {
        let message = format!("instance {pid} never sleeps, at last in `{task}`");
        self.found(&PipelineId::system(), Finding::of("S17", message));
    }

    pub(crate) fn found(&mut self, pipeline: &PipelineId, finding: Finding) {
        if self.violation.is_some() {
            return;
        }
        let Finding { invariant, message, slot } = finding;
        let (at, pipeline) = (self.clockwork.time(), pipeline.to_string());
        self.violation = Some(Violation { invariant, at, pipeline, slot, message });
        self.clockwork.halt();
    }
}

/// When a group was planned: it may be committed later.
fn planned_at(group: &Group) -> Option<Timestamp> {
    group.changes.iter().find_map(|change| match change {
        Change::Append(event) => Some(event.at),
        Change::Put(..) | Change::Delete(..) => None,
    })
}

/// What a group added.
#[derive(Default)]
struct Count {
    owed: u64,
    runs: u64,
    dispositions: u64,
    saw: Vec<&'static str>,
}

/// Judges a group: first its rows, then what it is as a whole.
fn judge(book: &mut Book, group: &Group, scene: &Scene<'_>) -> Result<Count, Finding> {
    let mut count = Count::default();
    let mut changed = Vec::new();
    let applied = arrivals::applied_by(book, group);
    for change in &group.changes {
        let Change::Put(key, _, record) = change else { continue };
        match (key, record) {
            (Key::Slot(schedule, nominal), Record::Slot(record)) => {
                let (place, slot) = ((schedule.clone(), *nominal), SeenSlot::of(record));
                backfills::slot_is_opened(book, &place, &slot, scene)?;
                slots::slot_changes(book, &place, &slot, scene)?;
                reports::slot_is_called(book, &place, &slot, scene)?;
                absence::slot_is_called(book, &place, &slot, scene)?;
                arrivals::slot_is_written(book, &place, &slot, (group, &applied), scene)?;
                let was_decided = book.slots.get(&place).is_some_and(|old| !old.is_missing());
                if !was_decided {
                    owed::slot_is_planned(book, &place, &slot, scene)?;
                }
                count.see(&slot, &place, scene);
                book.put_slot(place.clone(), slot);
                changed.push(place);
            }
            (Key::Span(schedule, first), Record::Span(record)) => {
                let (place, span) = ((schedule.clone(), *first), SeenSpan::of(record));
                owed::span_is_planned(book, &place, &span, scene)?;
                arrivals::span_is_written(book, &place, &span, (group, scene))?;
                reports::span_is_called(book, &place, &span, scene)?;
                count.dispositions += span.count;
                count.saw.push(match span.disposition {
                    "missed" => "slot missed",
                    "unknown" => "slot unknown",
                    _ => "slot skipped",
                });
                book.spans.insert(place, span);
            }
            (Key::Sensor(name), Record::Sensor(record)) => {
                book.sensors.insert(name.clone(), record.value.clone());
            }
            _ => {}
        }
    }
    arrivals::are_applied(book, &applied, scene, &mut count.saw)?;
    for change in &group.changes {
        if let Change::Append(event) = change {
            absence::happened(book, event, &mut count.saw);
        }
        let Change::Put(key, _, record) = change else { continue };
        match (key, record) {
            (Key::Run(key), Record::Run(record)) => {
                count.runs += u64::from(!book.runs.contains_key(key));
                slots::run_changes(book, key, record, scene)?;
                absence::run_changes(book, key, record, scene)?;
            }
            (Key::Watermark(schedule), Record::Watermark(record)) => {
                count.owed += owed::watermark_moves(book, schedule, record.at, scene)?;
            }
            (Key::Pipeline, Record::Pipeline(record)) => {
                silences::pause_is_recorded(book, record.pause.as_ref(), group)?;
                book.declare(record, scene);
            }
            (Key::Backfill(number), Record::Backfill(record)) => {
                count.saw.push(backfills::becomes(record));
                book.backfills.insert(*number, SeenBackfill::of(record));
            }
            _ => {}
        }
    }
    for place in &changed {
        slots::slot_is_backed(book, place, scene)?;
    }
    Ok(count)
}

impl Count {
    fn see(&mut self, slot: &SeenSlot, place: &Place, scene: &Scene<'_>) {
        arrivals::see(slot, place, scene, &mut self.saw);
        if !slot.is_open() {
            self.dispositions += 1;
        }
        if slot.opened_by == "catchup" {
            self.saw.push("slot caught up");
        }
        if slot.is_uncertain {
            self.saw.push("slot uncertain");
        }
        if slot.disposition == "skipped" {
            self.saw.push("slot skipped");
        }
        if slot.disposition == "missed" {
            self.saw.push("slot missed");
        }
        if slot.disposition == "unknown" {
            self.saw.push("slot unknown");
        }
    }
}

/// The hash of a log that has one event more.
fn mixed_in(hash: u64, pipeline: &PipelineId, event: &EventRecord) -> u64 {
    let (kind, at) = (fnv1a(event.kind.as_bytes()), event.at.as_millisecond() as u64);
    let slot = event.slot.as_ref().map_or(0, |slot| fnv1a(slot.as_bytes()));
    let parts =
        [fnv1a(pipeline.as_str().as_bytes()), kind, at, slot, fnv1a(event.message.as_bytes())];
    parts
        .into_iter()
        .fold(hash, |hash, part| (hash ^ part).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23))
}
