//! Watchdog timers for processes that must make progress.
//!
//! A [`Monitor`] is one thread of the operating system. Each loop that matters has a [`Watch`] of its own, with its own
//! [`Ladder`]: how long it may stand still before somebody is told, before its lease is given back, and before the process is
//! ended so that whoever supervises it can start it again. The loop proves its progress with [`Watch::kick`], which costs about
//! as much as adding one to a number.
//!
//! ```
//! use interlock_liveness::{Ladder, Monitor};
//! use std::time::Duration;
//!
//! let monitor = Monitor::builder().on_event(|event| eprintln!("{event}")).start()?;
//! let ladder = Ladder::hard(Duration::from_secs(30), Duration::from_secs(90));
//! let watch = monitor.watch("worker", ladder).register()?;
//! watch.arm();
//! for _item in 0..3 {
//!     // … one unit of work …
//!     watch.kick();
//! }
//! watch.disarm();
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! Whoever does not listen ([`Builder::on_event`]) is told nothing: a loop that hangs then ends the process without a word. What the threads were
//! doing is written down by a helper process ([`forensics::Forensics`]), if there is one, and found by the next start ([`forensics::found`]).
//! The kernel's timer behind all that ([`Deadman`]) is off unless it is asked for. The examples are a worker, a leader with a lease, a service on
//! tokio, and a post mortem.
//!
//! **Invariant:** nothing kicks on a timer. What leaves the process as a heartbeat ([`Carrier`]) is let out only after a look
//! at which every critical watch had moved in time.
//!
//! **Invariant:** the monitor allocates nothing and waits for nobody, so that a process whose allocator or whose log is stuck is
//! still ended; and behind it stands the kernel's timer ([`Deadman`]), for when the monitor is what is stuck.

mod aside;
mod beat;
mod breaker;
mod clock;
mod deadman;
mod event;
mod fence;
pub mod forensics;
pub mod heartbeat;
mod hooks;
mod kin;
mod ladder;
mod monitor;
mod names;
mod probes;
mod roster;
pub mod signals;
mod slot;
mod stall;
mod status;
pub mod supervise;
mod sys;
mod systemd;
mod voice;
mod watch;
#[cfg(feature = "tokio")]
mod workers;

#[cfg(feature = "tokio")]
pub use self::workers::{Blocking, Workers};
pub use self::{
    beat::{Carrier, Sign},
    breaker::{Breaker, State as BreakerState},
    deadman::{Deadman, EXIT_CODE, Way},
    event::Event,
    fence::{BootInstant, FenceCell, Fenced, Permit, Term},
    hooks::Expiry,
    ladder::{Ladder, Rung},
    monitor::{Builder, Monitor, RegisterError, StartError},
    names::Phase,
    probes::Probes,
    roster::{Forgiven, Weight},
    stall::Cause,
    status::{MonitorStatus, Probe, WatchState, WatchStatus},
    systemd::Systemd,
    voice::Voice,
    watch::{InPhase, Inside, Observed, Pause, Registration, Section, SharedWatch, Watch},
};
