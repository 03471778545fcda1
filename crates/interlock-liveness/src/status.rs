//! How the watches stand, for metrics and for probes. Read without asking the monitor, which may be what hangs.

use std::{
    sync::{
        Arc, PoisonError,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use crate::{
    breaker::State,
    clock::monotonic,
    ladder::{Ladder, Rung},
    monitor::Shared,
    slot::{Found, Mandate, Slot},
};

/// The monitor's own numbers.
#[derive(Debug, Default)]
pub(crate) struct Numbers {
    pub(crate) scanned_at: AtomicU64,
    pub(crate) scan_nanos: AtomicU64,
    pub(crate) tick: AtomicU64,
    pub(crate) stalls: AtomicU64,
    pub(crate) events_lost: AtomicU64,
    pub(crate) hooks_unheard: AtomicU64,
    pub(crate) dumps: AtomicU64,
    pub(crate) dumps_suppressed: AtomicU64,
    pub(crate) dump_nanos: AtomicU64,
    pub(crate) step_late_nanos: AtomicU64,
    pub(crate) beats: AtomicU64,
    pub(crate) beats_lost: AtomicU64,
    pub(crate) worst: AtomicU32,
    pub(crate) is_ready: AtomicBool,
}

/// A watch that is known by name.
#[derive(Debug, Clone)]
pub(crate) struct Listed {
    pub(crate) name: Arc<str>,
    pub(crate) ladder: Ladder,
    pub(crate) slot: Slot,
}

/// How a watch stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WatchStatus {
    /// Its name.
    pub name: Arc<str>,
    /// What its owner wants of it.
    pub state: WatchState,
    /// The step that it has reached.
    pub rung: Rung,
    /// For how long no progress was seen.
    pub age: Duration,
    /// How long it may make none.
    pub limit: Duration,
    /// When it ends the process, if it does.
    pub ends: Option<Duration>,
    /// How often progress was seen.
    pub moves: u64,
    /// How often it expired.
    pub expiries: u64,
    /// The longest time without progress so far.
    pub longest_gap: Duration,
    /// What its limit could be, once enough was seen: three times what 99 of 100 gaps are no longer than.
    pub suggested_limit: Option<Duration>,
    /// Whether it is set aside.
    pub breaker: State,
    /// What it is doing, as far as it says.
    pub phase: Option<&'static str>,
}

/// What the owner of a watch wants of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WatchState {
    /// Nothing.
    AtRest,
    /// To be watched.
    Armed,
    /// To be given more time.
    Paused,
}

/// How the monitor itself does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct MonitorStatus {
    /// How long ago it last looked.
    pub age: Duration,
    /// How often it means to look.
    pub tick: Duration,
    /// How long its last look took.
    pub scan: Duration,
    /// How often the whole process did not run.
    pub stalls: u64,
    /// Events that nobody took.
    pub events_lost: u64,
    /// Steps that the hooks of a watch were too busy to hear of.
    pub hooks_unheard: u64,
    /// Dumps that were taken.
    pub dumps: u64,
    /// Dumps that would have been too many.
    pub dumps_suppressed: u64,
    /// How long taking the stacks took the last time.
    pub dump: Duration,
    /// How much later than it was due a step was ever taken.
    pub step_late: Duration,
    /// Heartbeats that were sent.
    pub beats: u64,
    /// Heartbeats that nobody took, because the last one was still under way.
    pub beats_lost: u64,
}

/// Reads how things stand, from any thread.
#[derive(Debug, Clone)]
pub struct Probe(pub(crate) Arc<Shared>);

impl Probe {
    /// Whether the process should go on: the monitor looks, and nothing is about to be ended. For a liveness probe.
    pub fn is_live(&self) -> bool {
        self.is_watched() && self.worst() < Rung::Hard
    }

    /// Whether the process should be given work: every critical watch is within its bound. For a readiness probe.
    pub fn is_ready(&self) -> bool {
        self.is_watched() && self.0.numbers.is_ready.load(Relaxed)
    }

    /// The worst step of a critical watch.
    pub fn worst(&self) -> Rung {
        Rung::from_number(self.0.numbers.worst.load(Relaxed))
    }

    /// Whether the monitor has looked within its last three ticks, or the last second.
    fn is_watched(&self) -> bool {
        let MonitorStatus { age, tick, .. } = self.monitor();
        age <= (tick * 3).max(Duration::from_secs(1))
    }

    /// How the monitor does.
    pub fn monitor(&self) -> MonitorStatus {
        let numbers = &self.0.numbers;
        let length = |number: &AtomicU64| Duration::from_nanos(number.load(Relaxed));
        let scanned_at = numbers.scanned_at.load(Relaxed);
        MonitorStatus {
            age: Duration::from_nanos(monotonic().saturating_sub(scanned_at)),
            tick: length(&numbers.tick),
            scan: length(&numbers.scan_nanos),
            stalls: numbers.stalls.load(Relaxed),
            events_lost: numbers.events_lost.load(Relaxed),
            hooks_unheard: numbers.hooks_unheard.load(Relaxed),
            dumps: numbers.dumps.load(Relaxed),
            dumps_suppressed: numbers.dumps_suppressed.load(Relaxed),
            dump: length(&numbers.dump_nanos),
            step_late: length(&numbers.step_late_nanos),
            beats: numbers.beats.load(Relaxed),
            beats_lost: numbers.beats_lost.load(Relaxed),
        }
    }

    /// How every watch stands.
    pub fn watches(&self) -> Vec<WatchStatus> {
        let listed = self.0.directory.lock().unwrap_or_else(PoisonError::into_inner);
        let now = monotonic();
        listed.iter().filter_map(|listed| status(listed, now)).collect()
    }
}

fn status(listed: &Listed, now: u64) -> Option<WatchStatus> {
    let Listed { name, ladder, slot } = listed;
    let state = match slot.own().mandate().mandate() {
        Mandate::Rest => WatchState::AtRest,
        Mandate::Armed => WatchState::Armed,
        Mandate::Paused(_) => WatchState::Paused,
        Mandate::Retired => return None,
    };
    let found = slot.found();
    // Nothing has been seen of it yet: its count begins now.
    let since = match found.since.load(Relaxed) {
        0 => now,
        since => since,
    };
    Some(WatchStatus {
        name: Arc::clone(name),
        state,
        rung: found.rung(),
        age: Duration::from_nanos(now.saturating_sub(since)),
        limit: ladder.limit(),
        ends: ladder.ends(),
        moves: found.moves.load(Relaxed),
        expiries: found.expiries.load(Relaxed),
        longest_gap: Duration::from_nanos(found.longest_gap.load(Relaxed)),
        suggested_limit: suggested(found),
        breaker: State::from_number(found.breaker.load(Relaxed)),
        phase: slot.own().phase().name(),
    })
}

/// How many gaps say something about the next.
const ENOUGH: u64 = 200;

fn suggested(found: &Found) -> Option<Duration> {
    let is_enough = found.moves.load(Relaxed) >= ENOUGH;
    is_enough.then(|| Duration::from_nanos(found.usual_gap.load(Relaxed).saturating_mul(3)))
}
