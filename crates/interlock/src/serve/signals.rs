//! What the system tells the process: stop, stop at once, read the files again.

use std::io;

use tokio::signal::unix::{Signal, SignalKind, signal};

/// What a signal asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// SIGTERM or SIGINT, by name.
    Stop(&'static str),
    /// SIGHUP.
    Reload,
}

/// Where requests come from: signals, or a test, which must not signal the process that it shares with others.
pub(crate) trait Requests {
    /// The next one.
    async fn next(&mut self) -> Asked;

    /// The next one that asks to stop, by name.
    async fn stop(&mut self) -> &'static str {
        loop {
            if let Asked::Stop(name) = self.next().await {
                return name;
            }
        }
    }
}

/// The signals that `serve` listens to, also those that it inherited as ignored: `serve` does not end on SIGHUP, so `nohup` has
/// what it wants. SIGPIPE needs no ear: Rust ignores it, and the log forgives it.
#[derive(Debug)]
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
    hang_up: Signal,
}

impl Signals {
    /// From now on these signals end nothing by themselves.
    pub(crate) fn listen() -> io::Result<Self> {
        Ok(Self {
            terminate: signal(SignalKind::terminate())?,
            interrupt: signal(SignalKind::interrupt())?,
            hang_up: signal(SignalKind::hangup())?,
        })
    }
}

impl Requests for Signals {
    async fn next(&mut self) -> Asked {
        tokio::select! {
            biased;
            Some(()) = self.terminate.recv() => Asked::Stop("SIGTERM"),
            Some(()) = self.interrupt.recv() => Asked::Stop("SIGINT"),
            Some(()) = self.hang_up.recv() => Asked::Reload,
            else => std::future::pending().await,
        }
    }
}
