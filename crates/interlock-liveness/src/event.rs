//! What the monitor has to tell, through a queue that never makes it wait.
//!
//! The sink of a log may be what hangs. So the monitor only drops events into a bounded queue; a thread of its own hands them
//! to whoever listens, and what did not fit is counted.

use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::{hooks::Expiry, roster::Forgiven, stall::Cause};

const QUEUE: usize = 64;

/// Something that happened to the watches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// A watch stands still, and a step was taken.
    Expired(Expiry),
    /// It moves again; the step is the highest that was taken.
    Recovered(Expiry),
    /// It expired too often, and is set aside.
    BreakerOpened(Arc<str>),
    /// It moves again, and is judged as ever.
    BreakerClosed(Arc<str>),
    /// The term that it guards ended without having been prolonged.
    TermEnded(Arc<str>),
    /// The whole process did not run for a time.
    Stalled {
        /// For how long.
        stalled: Duration,
        /// For how long the machine slept.
        slept: Duration,
        /// Why, as far as can be told.
        cause: Cause,
        /// Whether the watches are held to account for it.
        forgiven: Forgiven,
    },
    /// A debugger holds the process: it is not ended.
    Held(Expiry),
}

impl fmt::Display for Event {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Expired(expiry) => write!(f, "{expiry}"),
            Self::Recovered(expiry) => {
                let Expiry { watch, age, rung, .. } = expiry;
                write!(f, "`{watch}` moves again after {:.3} s ({rung})", age.as_secs_f64())
            }
            Self::BreakerOpened(watch) => {
                write!(f, "`{watch}` expires again and again: it is set aside for a while")
            }
            Self::BreakerClosed(watch) => write!(f, "`{watch}` is judged as ever again"),
            Self::TermEnded(watch) => write!(f, "the term that `{watch}` guards has ended"),
            Self::Stalled { stalled, slept, cause, forgiven } => {
                let (stalled, slept) = (stalled.as_secs_f64(), slept.as_secs_f64());
                let forgiven = match forgiven {
                    Forgiven::Yes => "no watch is blamed",
                    Forgiven::No => "too often: it counts",
                };
                write!(
                    f,
                    "the process did not run for {stalled:.3} s, slept {slept:.3} s ({cause}): {forgiven}"
                )
            }
            Self::Held(expiry) => write!(f, "{expiry}; a debugger is attached: not ended"),
        }
    }
}

/// The way to whoever listens.
#[derive(Debug)]
pub(crate) struct Teller(Option<SyncSender<Event>>);

/// Who listens.
pub(crate) type Listener = Box<dyn FnMut(Event) + Send>;

impl Teller {
    pub(crate) fn start(listener: Option<Listener>) -> io::Result<Self> {
        let Some(listener) = listener else { return Ok(Self(None)) };
        let (tell, told) = sync_channel(QUEUE);
        thread::Builder::new()
            .name("lv-events".to_owned())
            .spawn(move || hand_on(&told, listener))?;
        Ok(Self(Some(tell)))
    }

    /// Tells an event; says whether it was taken.
    pub(crate) fn tell(&self, event: Event) -> bool {
        self.0.as_ref().is_none_or(|tell| tell.try_send(event).is_ok())
    }
}

fn hand_on(told: &Receiver<Event>, mut listener: Listener) {
    for event in told {
        listener(event);
    }
}
