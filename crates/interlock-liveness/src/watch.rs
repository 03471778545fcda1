//! What a program holds: a watch that it kicks, a section that must end, a counter that somebody else keeps.
//!
//! Nothing here kicks by itself. A kick is made by the code whose progress is to be proven, after the progress; a thread that
//! kicks on a timer proves that timers work.

use std::{
    cell::Cell,
    marker::PhantomData,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::Duration,
};

use crate::{
    breaker::{Breaker, Fuse, State},
    fence::FenceCell,
    hooks::{Caller, Expiry, Hook},
    ladder::{Ladder, Rung},
    monitor::{Monitor, RegisterError},
    names::Phase,
    roster::{Pump, Row, Weight},
    slot::{Mandate, Slot},
};

/// A watch that is being described.
#[must_use = "a watch counts once it is registered"]
pub struct Registration<'a> {
    monitor: &'a Monitor,
    name: Arc<str>,
    ladder: Ladder,
    weight: Weight,
    fence: Option<FenceCell>,
    breaker: Option<Breaker>,
    hooks: Vec<(Rung, Hook)>,
}

impl std::fmt::Debug for Registration<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Registration").field("name", &self.name).finish_non_exhaustive()
    }
}

impl<'a> Registration<'a> {
    pub(crate) fn new(monitor: &'a Monitor, name: &str, ladder: Ladder) -> Self {
        Self {
            monitor,
            name: name.into(),
            ladder,
            weight: Weight::Critical,
            fence: None,
            breaker: None,
            hooks: vec![],
        }
    }

    /// The process counts as well even while this one is not.
    pub fn aside(mut self) -> Self {
        self.weight = Weight::Aside;
        self
    }

    /// Takes a leader's term away as soon as this expires.
    pub fn guards(mut self, fence: &FenceCell) -> Self {
        self.fence = Some(fence.clone());
        self
    }

    /// Sets it aside when it keeps expiring.
    pub fn breaker(mut self, breaker: Breaker) -> Self {
        self.breaker = Some(breaker);
        self
    }

    /// Calls something at a step, on a thread that belongs to this watch. Nothing waits for it.
    pub fn on(mut self, rung: Rung, hook: impl FnMut(&Expiry) + Send + 'static) -> Self {
        self.hooks.push((rung, Box::new(hook)));
        self
    }

    /// A watch for one loop. It is at rest until it is armed.
    pub fn register(self) -> Result<Watch, RegisterError> {
        let slot = self.hand_over(|row| row, None)?;
        Ok(Watch { slot: Owned(slot), one_thread: PhantomData })
    }

    /// A watch that several threads kick, armed at once.
    pub fn register_shared(self) -> Result<SharedWatch, RegisterError> {
        let slot = self.hand_over(|row| row, None)?;
        slot.command(Mandate::Armed);
        Ok(SharedWatch(Arc::new(Owned(slot))))
    }

    /// A watch of a counter that somebody else keeps, armed at once. `read` is called once per scan, on the monitor's
    /// thread: it must read a number and do nothing else.
    pub fn observe(
        self,
        read: impl Fn() -> u64 + Send + 'static,
    ) -> Result<Observed, RegisterError> {
        let slot = self.hand_over(|row| row, Some(Box::new(read)))?;
        slot.command(Mandate::Armed);
        Ok(Observed(Owned(slot)))
    }

    /// A section of code that must end within the ladder's limit.
    pub fn section(self) -> Result<Section, RegisterError> {
        let slot = self.hand_over(Row::moved, None)?;
        Ok(Section(Owned(slot)))
    }

    fn hand_over(
        self,
        shape: impl FnOnce(Row) -> Row,
        read: Option<Box<dyn Fn() -> u64 + Send>>,
    ) -> Result<Slot, RegisterError> {
        let slot = self.monitor.allot()?;
        let mut row = shape(Row::new(Arc::clone(&self.name), slot.clone(), self.ladder));
        row.pump = read.map(|read| Pump { slot: slot.clone(), read });
        row.cold.weight = self.weight;
        row.cold.fence = self.fence;
        row.cold.fuse = self.breaker.map(Fuse::new);
        if !self.hooks.is_empty() {
            row.cold.hooks = match Caller::start(&self.name, self.hooks) {
                Ok(hooks) => Some(hooks),
                Err(error) => {
                    self.monitor.give_back(&slot);
                    return Err(RegisterError::HookThread(error));
                }
            };
        }
        self.monitor.take_in(row, &slot);
        Ok(slot)
    }
}

/// A slot whose watch ends with its owner.
#[derive(Debug)]
struct Owned(Slot);

impl Drop for Owned {
    fn drop(&mut self) {
        self.0.command(Mandate::Retired);
    }
}

/// The watch of one loop. Whoever holds it is the one who makes the progress: it can be sent to a thread, not shared.
#[derive(Debug)]
pub struct Watch {
    slot: Owned,
    /// Kicks are a plain read and a plain write, which two threads would undo each other.
    one_thread: PhantomData<Cell<()>>,
}

impl Watch {
    /// Begins the countdown. Call it where the work begins.
    pub fn arm(&self) {
        self.slot.0.command(Mandate::Armed);
    }

    /// Ends the countdown: there is nothing to do, and nothing to prove.
    pub fn disarm(&self) {
        self.slot.0.command(Mandate::Rest);
    }

    /// Something was done.
    #[inline]
    pub fn kick(&self) {
        self.progress(1);
    }

    /// So much was done; nothing done is no progress.
    #[inline]
    pub fn progress(&self, by: u64) {
        self.own().advance(by);
    }

    /// Says what is being done, until the answer is dropped. What hangs can then be named.
    pub fn phase(&self, phase: Phase) -> InPhase<'_> {
        InPhase { watch: self, before: self.own().enter(phase) }
    }

    /// Something that legitimately takes long, and how long it may take at most. Whoever forgets to drop the answer, or
    /// takes longer, expires all the same.
    pub fn pause(&self, reason: Phase, at_most: Duration) -> Pause<'_> {
        let reason_before = self.own().give_reason(reason);
        let millis = u64::try_from(at_most.as_millis()).unwrap_or(u64::MAX);
        let before = self.slot.0.command(Mandate::Paused(millis));
        Pause { watch: self, before, reason_before }
    }

    /// Whether the breaker has set it aside: then the work is futile, and had better be left.
    pub fn breaker(&self) -> State {
        State::from_number(self.slot.0.found().breaker.load(Relaxed))
    }

    #[inline]
    fn own(&self) -> &crate::slot::Own {
        self.slot.0.own()
    }
}

/// While it lives, its watch says what it is doing.
#[derive(Debug)]
pub struct InPhase<'a> {
    watch: &'a Watch,
    before: Phase,
}

impl Drop for InPhase<'_> {
    fn drop(&mut self) {
        self.watch.own().enter(self.before);
    }
}

/// While it lives, its watch has more time.
#[derive(Debug)]
#[must_use = "a pause that is dropped at once is none"]
pub struct Pause<'a> {
    watch: &'a Watch,
    before: Mandate,
    reason_before: Phase,
}

impl Drop for Pause<'_> {
    fn drop(&mut self) {
        self.watch.own().give_reason(self.reason_before);
        self.watch.slot.0.command(self.before);
    }
}

/// A watch that several threads kick. Each kick costs a little more than one of [`Watch`].
#[derive(Debug, Clone)]
pub struct SharedWatch(Arc<Owned>);

impl SharedWatch {
    /// Something was done.
    #[inline]
    pub fn kick(&self) {
        self.0.0.own().advance_shared(1);
    }
}

/// A counter that is watched until this is dropped.
#[derive(Debug)]
pub struct Observed(Owned);

impl Observed {
    /// Begins the countdown again.
    pub fn arm(&self) {
        self.0.0.command(Mandate::Armed);
    }

    /// Ends the countdown.
    pub fn disarm(&self) {
        self.0.0.command(Mandate::Rest);
    }
}

/// A section of code that must end in time.
#[derive(Debug)]
pub struct Section(Owned);

impl Section {
    /// Enters it; it is left when the answer is dropped.
    pub fn enter(&mut self) -> Inside<'_> {
        self.0.0.command(Mandate::Armed);
        Inside { section: self }
    }
}

/// While it lives, a section is being passed.
#[derive(Debug)]
#[must_use = "a section that is left at once is none"]
pub struct Inside<'a> {
    section: &'a Section,
}

impl Drop for Inside<'_> {
    fn drop(&mut self) {
        self.section.0.0.command(Mandate::Rest);
    }
}
