//! What the owner of a watch wants done when it expires, on a thread that may hang.
//!
//! A hook talks to networks and locks, so it is exactly what may never return. Each watch with hooks has a thread of its own
//! for them; the monitor only drops a word into a queue that was made beforehand, and climbs on whatever becomes of it.

use std::{
    fmt, io,
    sync::{
        Arc,
        mpsc::{Receiver, SyncSender, TrySendError, sync_channel},
    },
    thread,
    time::Duration,
};

use crate::ladder::Rung;

/// Each step but the first is told once per hang: this never fills up unless a hook hangs.
const QUEUE: usize = 8;

/// A watch that stands still.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Expiry {
    /// Its name.
    pub watch: Arc<str>,
    /// The step that was reached.
    pub rung: Rung,
    /// For how long it has made no progress.
    pub age: Duration,
    /// What it was doing, as far as it said.
    pub phase: Option<&'static str>,
    /// What it was paused for, if it was.
    pub paused: Option<&'static str>,
}

impl fmt::Display for Expiry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "`{}` has made no progress for {:.3} s", self.watch, self.age.as_secs_f64())?;
        if let Some(phase) = self.phase {
            write!(f, ", in {phase}")?;
        }
        if let Some(reason) = self.paused {
            write!(f, ", paused:{reason}")?;
        }
        write!(f, " ({})", self.rung)
    }
}

/// What is called.
pub(crate) type Hook = Box<dyn FnMut(&Expiry) + Send>;

/// The way to the hooks of a watch.
#[derive(Debug)]
pub(crate) struct Caller(SyncSender<Expiry>);

impl Caller {
    /// Starts the thread of a watch's hooks.
    pub(crate) fn start(watch: &str, hooks: Vec<(Rung, Hook)>) -> io::Result<Self> {
        let (tell, told) = sync_channel(QUEUE);
        // The kernel keeps fifteen characters of a thread's name.
        let name = format!("lv-hook {watch}");
        thread::Builder::new().name(name).spawn(move || attend(&told, hooks))?;
        Ok(Self(tell))
    }

    /// Tells the hooks; says whether they can have heard.
    pub(crate) fn call(&self, expiry: Expiry) -> bool {
        match self.0.try_send(expiry) {
            Ok(()) => true,
            Err(TrySendError::Full(_) | TrySendError::Disconnected(_)) => false,
        }
    }
}

fn attend(told: &Receiver<Expiry>, mut hooks: Vec<(Rung, Hook)>) {
    for expiry in told {
        for (_, hook) in hooks.iter_mut().filter(|(rung, _)| *rung == expiry.rung) {
            hook(&expiry);
        }
    }
}
