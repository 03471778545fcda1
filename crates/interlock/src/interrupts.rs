//! SIGINT and SIGTERM while a command waits: it says what it leaves behind instead of being ended in mid-sentence.

use std::time::Duration;

use tokio::{
    runtime::{Builder, Runtime},
    signal::unix::{Signal, SignalKind, signal},
};

use crate::exit::Failure;

/// The signals that end a wait, listened to from the moment this is made.
pub(crate) struct Interrupts {
    runtime: Runtime,
    interrupted: Signal,
    terminated: Signal,
}

impl Interrupts {
    /// Listens; from now on neither signal ends the process by itself.
    pub(crate) fn listen() -> Result<Self, Failure> {
        let failed = |error: std::io::Error| Failure::failed(format!("cannot wait: {error}"), "");
        let runtime = Builder::new_current_thread().enable_all().build().map_err(failed)?;
        let (interrupted, terminated) = {
            let _inside = runtime.enter();
            (listen(SignalKind::interrupt())?, listen(SignalKind::terminate())?)
        };
        Ok(Self { runtime, interrupted, terminated })
    }

    /// Sleeps so long; whether a signal came before the time was over.
    pub(crate) fn is_interrupted_within(&mut self, length: Duration) -> bool {
        let Self { runtime, interrupted, terminated } = self;
        runtime.block_on(async {
            tokio::select! {
                biased;
                _ = interrupted.recv() => true,
                _ = terminated.recv() => true,
                () = tokio::time::sleep(length) => false,
            }
        })
    }
}

/// Listens to one signal; call it on a runtime.
pub(crate) fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|error| Failure::failed(format!("cannot listen to signals: {error}"), ""))
}
