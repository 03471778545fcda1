//! What the engine did, in numbers: for `/metrics`, and for whoever judges whether the loop still turns.
//!
//! Every number about slots, runs and the inbox follows from a group that the store accepted, in one place
//! ([`Vitals::count`]), so that none can say something else than the ledger. Nothing here reads a clock; the
//! numbers start from nothing with each process, except the open slots, which are loaded.

use std::cmp::Reverse;
use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering::Relaxed},
};
use std::time::Duration;

use interlock_core::{
    id::PipelineId,
    readiness::{TraitResult, TraitSpec, TraitStatus},
    run::{RunState, TriggerType},
    slot::{Disposition, SkipReason},
};
use interlock_ports::trigger::Report;
use interlock_store::{
    Change, Expect, Group, Key, Record,
    kept::HEARD_PREFIX,
    record::{RunRecord, SlotRecord},
};
use jiff::Timestamp;

use crate::{
    engine::News,
    seam::{Evaluators, Task},
    state::{OpenSlot, PipelineState, Pipelines, SlotPlace},
    write::Planned,
};

/// What an engine keeps in memory, and the bytes of one entry without what it points to.
pub(crate) const KEPT: [(&str, usize); 6] = [
    ("agenda", size_of::<Reverse<(Timestamp, PipelineId)>>()),
    ("pipelines", size_of::<PipelineState>()),
    ("queue of pipelines to look at", size_of::<PipelineId>()),
    ("queue of run updates", size_of::<News>()),
    ("queue of groups to commit", size_of::<Planned>()),
    ("queue of reports and messages", size_of::<Report>()),
];

/// How late slots are opened, in seconds: L1 promises one.
const LAG_BOUNDS: [f64; 12] =
    [0.01, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 15.0, 60.0, 300.0, 3_600.0];
/// How long a pass takes, in seconds.
const PASS_BOUNDS: [f64; 12] =
    [0.000_1, 0.000_5, 0.001, 0.005, 0.01, 0.05, 0.1, 0.5, 1.0, 2.5, 5.0, 15.0];

/// A number that is read while it changes.
#[derive(Debug, Default)]
pub struct Number(AtomicU64);

impl Number {
    /// The number now.
    pub fn get(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// Adds to it.
    pub fn add(&self, more: u64) {
        self.0.fetch_add(more, Relaxed);
    }

    /// A part of it was so much, and is so much now.
    pub(crate) fn moved(&self, before: u64, after: u64) {
        self.0.fetch_add(after.wrapping_sub(before), Relaxed);
    }
}

/// The proof that a loop turns: a number that grows once for each time it comes round, and one for each time that it
/// tried to and could not. A loop that only tries does not do its work, and does not hang either.
#[derive(Debug, Clone, Default)]
pub struct Pulse(Arc<Turns>);

#[derive(Debug, Default)]
struct Turns {
    round: Number,
    in_vain: Number,
}

impl Pulse {
    /// The loop came round once more.
    pub fn beat(&self) {
        self.0.round.add(1);
    }

    /// The loop tried to come round, and what it does failed.
    pub fn try_in_vain(&self) {
        self.0.in_vain.add(1);
    }

    /// How often it came round.
    pub fn count(&self) -> u64 {
        self.0.round.get()
    }

    /// Moves whenever the loop does anything at all.
    pub fn signs_of_life(&self) -> u64 {
        self.0.round.get().wrapping_add(self.0.in_vain.get())
    }
}

/// How often each word of a closed list was met.
#[derive(Debug)]
pub struct Tally<const N: usize> {
    words: [&'static str; N],
    counts: [Number; N],
}

impl<const N: usize> Tally<N> {
    fn of(words: [&'static str; N]) -> Self {
        Self { words, counts: std::array::from_fn(|_| Number::default()) }
    }

    /// Counts a word; one that is not of the list is nobody's.
    pub fn add(&self, word: &str, more: u64) {
        if let Some(at) = self.words.iter().position(|known| *known == word)
            && let Some(count) = self.counts.get(at)
        {
            count.add(more);
        }
    }

    /// Every word with its count.
    pub fn read(&self) -> [(&'static str, u64); N] {
        let mut counts = self.counts.iter();
        self.words.map(|word| (word, counts.next().map_or(0, Number::get)))
    }
}

/// How measured values are spread.
#[derive(Debug)]
pub struct Histogram {
    bounds: &'static [f64],
    /// One more than bounds: the last is for what is above all of them.
    counts: Vec<Number>,
    sum_micros: Number,
}

impl Histogram {
    fn new(bounds: &'static [f64]) -> Self {
        let counts = (0..=bounds.len()).map(|_| Number::default()).collect();
        Self { bounds, counts, sum_micros: Number::default() }
    }

    pub(crate) fn measure(&self, value: Duration) {
        let seconds = value.as_secs_f64();
        let at = self.bounds.partition_point(|bound| *bound < seconds);
        if let Some(count) = self.counts.get(at) {
            count.add(1);
        }
        self.sum_micros.add(u64::try_from(value.as_micros()).unwrap_or(u64::MAX));
    }

    /// How many values were at or below each bound, in seconds; the last is how many there were.
    pub fn read(&self) -> (Vec<(f64, u64)>, u64) {
        let mut total = 0;
        let mut below = self.counts.iter().map(|count| {
            total += count.get();
            total
        });
        let bounds = self.bounds.iter().zip(&mut below).map(|(bound, below)| (*bound, below));
        let bounds = bounds.collect();
        (bounds, below.last().unwrap_or(0))
    }

    /// All values together, in seconds.
    pub fn sum(&self) -> f64 {
        Duration::from_micros(self.sum_micros.get()).as_secs_f64()
    }
}

/// What the engine did since it started, and how much it has before it.
#[derive(Debug)]
pub struct Vitals {
    /// Grows once per pass.
    pub pulse: Pulse,
    /// How long passes took.
    pub pass_duration: Histogram,
    /// How long after its instant a slot was opened by its schedule.
    pub lag: Histogram,
    /// Slots opened, by trigger type.
    pub slots_opened: Tally<10>,
    /// Slots closed, by disposition.
    pub slots_closed: Tally<6>,
    /// Slots skipped, by reason.
    pub slots_skipped: Tally<10>,
    /// Runs created, by trigger type.
    pub runs_started: Tally<10>,
    /// Runs ended, by status.
    pub runs_ended: Tally<7>,
    /// What was in the inbox: `accepted` or `refused`.
    pub inbox_applied: Tally<2>,
    /// Groups that the store accepted.
    pub groups_accepted: Number,
    /// Groups that the store refused because something had changed.
    pub groups_refused: Number,
    /// Questions to evaluators.
    pub evaluators_asked: Number,
    /// Those that got no answer.
    pub evaluator_errors: Number,
    /// Events that were recorded.
    pub events_recorded: Number,
    /// Some of them, by kind.
    pub events: Tally<4>,
    /// Notifications by what came of the attempt: `delivered`, `retried` or `dead`; `held` are those that are not told
    /// yet for a reason, `unheard` those that were over before it was gone.
    pub notifications: Tally<5>,
    /// Messages that stood for many notifications.
    pub digests: Number,
    /// How many they stood for.
    pub digested: Number,
    /// Slots that are not decided.
    pub open_slots: Number,
    /// What the engines kept in memory after their last passes, in the order of [`KEPT`].
    pub(crate) kept: [Number; KEPT.len()],
    /// Pipelines that are declared and not retired.
    pub pipelines: Number,
}

impl Default for Vitals {
    fn default() -> Self {
        let kinds = || Tally::of(TriggerType::ALL.map(TriggerType::as_str));
        Self {
            pulse: Pulse::default(),
            pass_duration: Histogram::new(&PASS_BOUNDS),
            lag: Histogram::new(&LAG_BOUNDS),
            slots_opened: kinds(),
            slots_closed: Tally::of(Disposition::WORDS),
            slots_skipped: Tally::of(SkipReason::ALL.map(SkipReason::as_str)),
            runs_started: kinds(),
            runs_ended: Tally::of(RunState::ALL.map(RunState::as_str)),
            inbox_applied: Tally::of(["accepted", "refused"]),
            groups_accepted: Number::default(),
            groups_refused: Number::default(),
            evaluators_asked: Number::default(),
            evaluator_errors: Number::default(),
            events_recorded: Number::default(),
            events: Tally::of([
                "JOB_TRIGGERED",
                "JOB_FAILED",
                "RETRY_SCHEDULED",
                "MONITORING_DRIFT_DETECTED",
            ]),
            notifications: Tally::of(["delivered", "retried", "dead", "held", "unheard"]),
            digests: Number::default(),
            digested: Number::default(),
            open_slots: Number::default(),
            kept: std::array::from_fn(|_| Number::default()),
            pipelines: Number::default(),
        }
    }
}

impl Vitals {
    /// Counts what an accepted group changes in what was known before it.
    pub(crate) fn count(&self, group: &Group, known: &Pipelines) {
        self.groups_accepted.add(1);
        for change in &group.changes {
            if let Change::Append(event) = change {
                self.events_recorded.add(1);
                self.events.add(&event.kind, 1);
            }
            let Change::Put(key, expect, record) = change else { continue };
            match (key, record) {
                (Key::Slot(schedule, nominal), Record::Slot(slot)) => {
                    let place = (*nominal, schedule.clone());
                    let open_before = open_generation(known, &group.pipeline, &place);
                    self.count_slot(slot, *nominal, open_before);
                }
                (Key::Span(..), Record::Span(span)) => {
                    self.slots_closed.add(&span.disposition, span.count);
                    self.slots_skipped.add(span.reason.as_deref().unwrap_or_default(), span.count);
                }
                (Key::Run(_), Record::Run(run)) => self.count_run(run, *expect),
                (Key::Applied(key), Record::Applied(applied)) if !key.starts_with(HEARD_PREFIX) => {
                    let word = if applied.accepted { "accepted" } else { "refused" };
                    self.inbox_applied.add(word, 1);
                }
                _ => {}
            }
        }
    }

    fn count_slot(&self, slot: &SlotRecord, nominal: Timestamp, open_before: Option<u32>) {
        match (slot.disposition.as_deref(), open_before) {
            (Some(disposition), before) => {
                self.slots_closed.add(disposition, 1);
                self.slots_skipped.add(slot.reason.as_deref().unwrap_or_default(), 1);
                if before.is_some() {
                    self.open_slots.moved(1, 0);
                }
            }
            (None, Some(generation)) if generation == slot.generation => {}
            (None, before) => {
                self.slots_opened.add(&slot.opened_by, 1);
                if slot.opened_by == TriggerType::Scheduler.as_str() {
                    let lag = Duration::try_from(slot.opened_at.duration_since(nominal));
                    self.lag.measure(lag.unwrap_or(Duration::ZERO));
                }
                if before.is_none() {
                    self.open_slots.add(1);
                }
            }
        }
    }

    fn count_run(&self, run: &RunRecord, expect: Expect) {
        if expect == Expect::Absent {
            self.runs_started.add(&run.trigger_type, 1);
        }
        if run.state().is_ok_and(RunState::is_terminal) {
            self.runs_ended.add(&run.status, 1);
        }
    }

    /// A pass is over: the loop came round.
    pub(crate) fn pass_ended(&self, took: Duration) {
        self.pass_duration.measure(took);
        self.pulse.beat();
    }

    /// Instants on the agenda.
    pub fn agenda(&self) -> u64 {
        self.kept.first().map_or(0, Number::get)
    }

    /// What the engines keep in memory: a name, how many, and the bytes of that without what it points to. Reads numbers,
    /// and nothing else: a report of a hang has them.
    pub fn memory(&self) -> impl Iterator<Item = (&'static str, u64, u64)> {
        let own = KEPT.iter().zip(&self.kept);
        let own = own.map(|((name, bytes), number)| (*name, number.get(), *bytes));
        let open = ("open slots", self.open_slots.get(), size_of::<OpenSlot>());
        let all = own.chain(std::iter::once(open));
        all.map(|(name, entries, bytes)| (name, entries, entries.saturating_mul(bytes as u64)))
    }

    /// A pipeline was loaded again: no group says what changed of its open slots.
    pub(crate) fn open_slots_reloaded(&self, before: usize, after: usize) {
        self.open_slots.moved(before as u64, after as u64);
    }

    /// Counts the open slots of all pipelines of an engine, when it begins and when it ends.
    pub(crate) fn recount(&self, known: &Pipelines, begins: Begins) {
        let open: usize = known.0.values().map(|state| state.undecided()).sum();
        match begins {
            Begins::Yes => self.open_slots.moved(0, open as u64),
            Begins::No => self.open_slots.moved(open as u64, 0),
        }
    }
}

/// Whether an engine begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Begins {
    Yes,
    No,
}

/// The generation of a slot that is open, if it is.
fn open_generation(known: &Pipelines, pipeline: &PipelineId, place: &SlotPlace) -> Option<u32> {
    Some(known.0.get(pipeline)?.open.get(place)?.slot.generation)
}

/// Counts the questions on their way to the evaluators.
pub(crate) struct Counting {
    pub(crate) evaluators: Arc<dyn Evaluators>,
    pub(crate) vitals: Arc<Vitals>,
}

impl Evaluators for Counting {
    fn evaluate(&self, pipeline: &PipelineId, trait_spec: &TraitSpec) -> Task<TraitResult> {
        self.vitals.evaluators_asked.add(1);
        let (asked, vitals) =
            (self.evaluators.evaluate(pipeline, trait_spec), Arc::clone(&self.vitals));
        Box::pin(async move {
            let result = asked.await;
            if result.status == TraitStatus::Error {
                vitals.evaluator_errors.add(1);
            }
            result
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_fall_into_the_first_bound_that_holds_them() {
        let histogram = Histogram::new(&[0.1, 1.0]);
        for millis in [100, 101, 1_000, 5_000] {
            histogram.measure(Duration::from_millis(millis));
        }
        assert_eq!(histogram.read(), (vec![(0.1, 1), (1.0, 3)], 4));
        assert!((histogram.sum() - 6.201).abs() < 1e-9);
    }

    #[test]
    fn a_word_of_no_list_is_not_counted() {
        let tally = Tally::of(["a", "b"]);
        tally.add("b", 2);
        tally.add("c", 1);
        assert_eq!(tally.read(), [("a", 0), ("b", 2)]);
    }
}
