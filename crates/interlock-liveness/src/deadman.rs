//! The kernel's timer behind the monitor.
//!
//! The monitor moves it with each look. Should the monitor hang, or be starved, or should the whole process be stopped, nobody
//! moves it any more and the kernel ends the process. That is the only step of the ladder that needs no code of ours to run.

use std::{io, time::Duration};

use crate::{clock::nanos, sys};

/// The exit code of a process 1 that was ended by its timer.
pub const EXIT_CODE: i32 = 113;

/// Who ends the process when the monitor cannot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadman {
    /// Nobody. For debugging, and where somebody outside looks after it.
    Off,
    /// The kernel, when the monitor has not looked for this long, or this long after a hard end was due.
    Kernel {
        /// How long. A process that is stopped for longer is ended too.
        slack: Duration,
    },
}

/// How the kernel ends the process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Way {
    /// By SIGKILL, which also reaches a stopped process.
    Kill,
    /// By a signal whose handler ends it with [`EXIT_CODE`]: a process 1 does not receive SIGKILL from its own
    /// namespace. It does not work while the process is stopped.
    Exit,
}

/// The timer, armed.
#[derive(Debug)]
pub(crate) struct Timer {
    kernel: sys::KernelTimer,
    pub(crate) slack: u64,
    pub(crate) way: Way,
}

impl Deadman {
    pub(crate) fn arm(self) -> io::Result<Option<Timer>> {
        let Self::Kernel { slack } = self else { return Ok(None) };
        let way = if std::process::id() == 1 { Way::Exit } else { Way::Kill };
        let kernel = sys::KernelTimer::new(way)?;
        Ok(Some(Timer { kernel, slack: nanos(slack), way }))
    }
}

impl Timer {
    /// The process ends at this moment, unless it is set again before.
    pub(crate) fn set(&self, at: u64) {
        self.kernel.set(at);
    }

    /// The signal that must reach some thread for it to work, if it is one that can be blocked.
    pub(crate) fn signal(&self) -> Option<i32> {
        self.kernel.signal()
    }
}
