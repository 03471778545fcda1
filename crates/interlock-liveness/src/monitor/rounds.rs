//! What the monitor's thread does: read the clocks, judge, arm what kills, then do what follows.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    thread,
    time::Duration,
};

use super::Shared;
use crate::{
    beat::{Beater, Sign},
    clock::{Reading, monotonic, nanos},
    deadman::Timer,
    event::{Event, Teller},
    forensics::{Dumped, Dumper, Wait},
    hooks::Expiry,
    ladder::Rung,
    roster::{Act, Roster, Verdict},
    stall::Witness,
    sys,
};

/// How urgently the monitor wants to run; others may be hogging the machine.
const NICE: i32 = -10;
/// What whoever listens gets to say that the process ends.
const LAST_WORDS: Duration = Duration::from_millis(100);

/// The monitor's thread, and all that it needs.
pub(super) struct Rounds {
    pub(super) roster: Roster,
    /// Room for what follows from a scan.
    pub(super) acts: Vec<Act>,
    pub(super) shared: Arc<Shared>,
    pub(super) fixed_tick: Option<Duration>,
    pub(super) timer: Option<Timer>,
    pub(super) teller: Teller,
    pub(super) beater: Beater,
    pub(super) dumper: Option<Box<dyn Dumper>>,
    pub(super) witness: Witness,
}

impl Rounds {
    pub(super) fn run(mut self) {
        sys::block_signals(self.timer.as_ref().and_then(Timer::signal));
        // Without the right to it the monitor is as urgent as anybody.
        let _not_allowed = rustix::process::setpriority_process(None, NICE);
        self.witness = Witness::here();
        let unwinding = EndsProcess;
        let mut planned = monotonic();
        while !self.shared.stops.load(Relaxed) {
            let reading = Reading::take(planned);
            self.round(reading);
            planned = reading.monotonic.saturating_add(self.tick());
            wait_until(planned);
        }
        std::mem::forget(unwinding);
        self.beater.send(Sign::Stopping);
    }

    fn tick(&mut self) -> u64 {
        let tick = self.fixed_tick.map_or_else(|| self.roster.impatience(), nanos);
        self.roster.set_tick(tick);
        self.shared.numbers.tick.store(tick, Relaxed);
        tick
    }
}

/// Waits for the moment, or until there is somebody new.
fn wait_until(planned: u64) {
    let left = planned.saturating_sub(monotonic());
    if left > 0 {
        thread::park_timeout(Duration::from_nanos(left));
    }
}

impl Rounds {
    /// One look: whatever kills is armed before anything is done that takes time.
    fn round(&mut self, reading: Reading) {
        // Before anything else: reading somebody's counter may be what hangs.
        self.arm_timer(reading.monotonic, self.roster.verdict());
        self.take_newcomers();
        let mut acts = std::mem::take(&mut self.acts);
        acts.clear();
        let verdict = self.roster.scan(reading, &mut acts);
        if verdict.ends_at.is_some() {
            self.arm_timer(reading.monotonic, verdict);
        }
        let numbers = &self.shared.numbers;
        numbers.worst.store(verdict.worst as u32, Relaxed);
        numbers.is_ready.store(verdict.is_well && verdict.is_proven, Relaxed);
        numbers.scan_nanos.store(monotonic().saturating_sub(reading.monotonic), Relaxed);
        numbers.scanned_at.store(reading.monotonic, Relaxed);
        for act in &acts {
            self.perform(*act, reading.monotonic);
        }
        self.acts = acts;
        self.witness.is_well(reading.monotonic);
        if verdict.is_well && verdict.is_proven {
            self.beat(reading.monotonic);
        }
    }

    /// Takes in who is new, and puts out who is gone, unless somebody is just at it: then the next time.
    fn take_newcomers(&mut self) {
        let Ok(mut yard) = self.shared.yard.try_lock() else { return };
        for row in yard.newcomers.drain(..) {
            self.roster.add(row);
        }
        self.roster.retire(&mut yard.gone);
    }

    fn arm_timer(&self, now: u64, verdict: Verdict) {
        let Some(timer) = &self.timer else { return };
        let ends_at = verdict.ends_at.filter(|_| !self.is_debugged());
        let own = now.saturating_add(timer.slack);
        timer.set(ends_at.map_or(own, |ends_at| ends_at.saturating_add(timer.slack).min(own)));
    }

    fn beat(&mut self, now: u64) {
        let numbers = &self.shared.numbers;
        match self.beater.beat(now) {
            Some(true) => numbers.beats.fetch_add(1, Relaxed),
            Some(false) => numbers.beats_lost.fetch_add(1, Relaxed),
            None => 0,
        };
    }

    fn perform(&mut self, act: Act, now: u64) {
        let event = match act {
            Act::Climbed { at, rung, age, late } => {
                self.shared.numbers.step_late_nanos.fetch_max(late, Relaxed);
                let Some(expiry) = self.expiry(at, rung, age) else { return };
                self.climbed(at, &expiry, now);
                Event::Expired(expiry)
            }
            Act::Recovered { at, from, age } => {
                let Some(expiry) = self.expiry(at, from, age) else { return };
                Event::Recovered(expiry)
            }
            Act::Opened { at } => match self.roster.cold(at) {
                Some(cold) => Event::BreakerOpened(Arc::clone(&cold.name)),
                None => return,
            },
            Act::Closed { at } => match self.roster.cold(at) {
                Some(cold) => Event::BreakerClosed(Arc::clone(&cold.name)),
                None => return,
            },
            Act::TermEnded { at } => match self.roster.cold(at) {
                Some(cold) => Event::TermEnded(Arc::clone(&cold.name)),
                None => return,
            },
            Act::Stalled { nanos, slept, forgiven } => {
                self.shared.numbers.stalls.fetch_add(1, Relaxed);
                let cause = self.witness.cause(nanos, slept);
                let (stalled, slept) = (Duration::from_nanos(nanos), Duration::from_nanos(slept));
                Event::Stalled { stalled, slept, cause, forgiven }
            }
        };
        self.tell(event);
    }

    fn expiry(&self, at: usize, rung: Rung, age: u64) -> Option<Expiry> {
        let (cold, own) = (self.roster.cold(at)?, self.roster.own(at)?);
        Some(Expiry {
            watch: Arc::clone(&cold.name),
            rung,
            age: Duration::from_nanos(age),
            phase: own.phase().name(),
            paused: own.reason(),
        })
    }

    fn climbed(&mut self, at: usize, expiry: &Expiry, now: u64) {
        let Some(cold) = self.roster.cold(at) else { return };
        if let Some(fence) = cold.fence.as_ref().filter(|_| expiry.rung >= Rung::Soft) {
            fence.revoke();
        }
        if expiry.rung >= Rung::Soft {
            self.beater.send(Sign::Unwell(expiry.clone()));
        }
        if let Some(hooks) = &cold.hooks
            && !hooks.call(expiry.clone())
        {
            self.shared.numbers.hooks_unheard.fetch_add(1, Relaxed);
        }
        match expiry.rung {
            Rung::Late | Rung::Soft => self.dump(expiry, now, Wait::No),
            Rung::Hard => self.end(expiry, now),
            Rung::Well | Rung::Release | Rung::Drain => {}
        }
    }

    fn dump(&mut self, expiry: &Expiry, now: u64, wait: Wait) {
        let Some(dumper) = &mut self.dumper else { return };
        let numbers = &self.shared.numbers;
        match dumper.dump(expiry, &self.roster, now, wait) {
            Dumped::Taken(took) => {
                numbers.dumps.fetch_add(1, Relaxed);
                numbers.dump_nanos.store(took, Relaxed);
            }
            Dumped::Suppressed => {
                numbers.dumps_suppressed.fetch_add(1, Relaxed);
            }
        }
    }

    /// The hard end. Nobody comes back from here, unless a debugger looks on.
    fn end(&mut self, expiry: &Expiry, now: u64) {
        if self.is_debugged() {
            self.tell(Event::Held(expiry.clone()));
            return;
        }
        self.tell(Event::Expired(expiry.clone()));
        self.dump(expiry, now, Wait::Briefly);
        thread::sleep(LAST_WORDS);
        std::process::abort();
    }

    fn tell(&self, event: Event) {
        if !self.teller.tell(event) {
            self.shared.numbers.events_lost.fetch_add(1, Relaxed);
        }
    }

    /// Whether somebody other than our own helper holds this process.
    fn is_debugged(&self) -> bool {
        let helper = self.dumper.as_ref().and_then(|dumper| dumper.helper());
        sys::tracer().is_some_and(|tracer| Some(tracer) != helper)
    }
}

/// A monitor that panics watches nobody: then the process ends.
struct EndsProcess;

impl Drop for EndsProcess {
    fn drop(&mut self) {
        std::process::abort();
    }
}
