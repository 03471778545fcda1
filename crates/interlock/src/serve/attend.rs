//! From the moment that everything runs to the end of the process.
//!
//! The end is bounded: whatever does not end in time is left, because everything that matters is in the store. Shards are
//! given back, the engine's and the watchdog's, so that another instance need not wait until their leases are over.

use std::{path::PathBuf, sync::Arc, time::Duration};

use interlock_api::{Phase, Surface};
use interlock_engine::EngineError;
use tokio::{
    join,
    runtime::Handle,
    sync::{mpsc, watch},
    task::{JoinError, JoinHandle},
    time::{sleep, timeout},
};

use crate::{
    exit::Failure,
    place::Held,
    serve::{
        guard::{self, Guard},
        http::Interface,
        sentinel::Sentinel,
        signals::{Asked, Requests},
        stand_in,
        watchdog::Beside,
    },
};

/// How long the end may take.
pub(crate) const END_IN: Duration = Duration::from_secs(10);
/// How long the watchdog's part of it may take.
const WATCHDOG_ENDS_IN: Duration = Duration::from_secs(2);
/// How long the notifier's part of it may take.
const NOTIFIER_ENDS_IN: Duration = Duration::from_secs(2);
const STOPPED: &str = "stopped; jobs that run go on, and the next `serve` takes them up";

/// Everything that runs, and how to reach it.
pub(crate) struct Parties {
    pub(crate) surface: Arc<Surface>,
    pub(crate) interface: Option<Interface>,
    pub(crate) engine: Option<Engine>,
    pub(crate) watchdog: Option<Loop<()>>,
    pub(crate) notifier: Option<Loop<()>>,
    /// The folder of a ledger that this process lets go of when another one wants it.
    pub(crate) stands_in_for: Option<PathBuf>,
    /// Watches the others, where there are any.
    pub(crate) sentinel: Option<Sentinel>,
    /// Ends this process when it hangs.
    pub(crate) guard: Option<Guard>,
    /// Has the files read again.
    pub(crate) reload: mpsc::UnboundedSender<()>,
    /// What the engine cannot block.
    #[expect(dead_code, reason = "it ends when it is dropped")]
    pub(crate) runtime: Beside,
    /// Keeps a second one away.
    #[expect(dead_code, reason = "it ends when it is dropped")]
    pub(crate) held: Held,
}

/// How serving ended.
#[derive(Debug)]
pub(crate) enum ServeEnd {
    /// It is over; this is what to say about it.
    Stopped(&'static str),
    /// Another process wants the ledger. The guard keeps its post until the next image is there: it would say that the
    /// process stops.
    HandedOver(Option<Guard>),
}

/// The engine's loop.
pub(crate) type Engine = Loop<Result<(), EngineError>>;

/// A loop that ends when it is asked to, and gives back what it holds.
pub(crate) struct Loop<T> {
    task: JoinHandle<T>,
    stop: watch::Sender<bool>,
}

impl<T: Send + 'static> Loop<T> {
    /// Begins one on a runtime.
    pub(crate) fn begin<F: Future<Output = T> + Send + 'static>(
        runtime: &Handle,
        work: impl FnOnce(watch::Receiver<bool>) -> F,
    ) -> Self {
        let (stop, stopped) = watch::channel(false);
        Self { task: runtime.spawn(work(stopped)), stop }
    }

    /// Asks it to end, and waits for that.
    async fn end(self) -> Result<T, JoinError> {
        self.stop.send_replace(true);
        self.task.await
    }
}

/// Waits until a loop is asked to end.
pub(crate) async fn asked(mut stop: watch::Receiver<bool>) {
    // A sender that is gone asks for the same.
    let _asked = stop.wait_for(|is_asked| *is_asked).await;
}

impl Parties {
    /// Serves until a signal, the engine's own end, or until another process wants the ledger.
    pub(crate) async fn attend(mut self, signals: &mut impl Requests) -> Result<ServeEnd, Failure> {
        let ended = match self.engine.take() {
            Some(engine) => self.attend_engine(engine, signals).await.map(ServeEnd::Stopped),
            None => self.attend_others(signals).await,
        };
        let watchdog = self.watchdog.take();
        let watchdog = async { timeout(WATCHDOG_ENDS_IN, watchdog?.end()).await.ok() };
        let notifier = self.notifier.take();
        let notifier = async { timeout(NOTIFIER_ENDS_IN, notifier?.end()).await.ok() };
        let _they_are_left = join!(watchdog, notifier);
        if let Some(interface) = self.interface.take() {
            interface.stop();
        }
        ended
    }

    /// Attends everything but an engine.
    async fn attend_others(&mut self, signals: &mut impl Requests) -> Result<ServeEnd, Failure> {
        let mut hangs = self.guard.as_ref().map(Guard::hangs);
        loop {
            tokio::select! {
                biased;
                asked = signals.next() => match asked {
                    Asked::Stop(signal) => {
                        drop(self.guard.take());
                        tracing::info!("{signal}: stopping");
                        return Ok(ServeEnd::Stopped("stopped"));
                    }
                    Asked::Reload if self.reload.send(()).is_ok() => {
                        tracing::info!("SIGHUP: reading interlock.yaml");
                    }
                    Asked::Reload => tracing::warn!("SIGHUP: this process does not read the project files"),
                },
                () = stand_in::is_wanted(self.stands_in_for.as_ref()) => {
                    tracing::info!("another process wants the ledger: handing it over");
                    return Ok(ServeEnd::HandedOver(self.guard.take()));
                }
                what = guard::hung(hangs.as_mut()) => {
                    let watchdog = self.watchdog.take();
                    return Err(guard::give_back(what, async { watchdog?.end().await.ok() }).await);
                }
                reason = stands_down(self.sentinel.as_mut()) => {
                    return Err(Failure::failed(reason, "Set the clocks right; another instance goes on."));
                }
            }
        }
    }

    async fn attend_engine(
        &mut self,
        mut engine: Engine,
        signals: &mut impl Requests,
    ) -> Result<&'static str, Failure> {
        let mut hangs = self.guard.as_ref().map(Guard::hangs);
        let signal = loop {
            tokio::select! {
                biased;
                asked = signals.next() => match asked {
                    Asked::Stop(signal) => break signal,
                    Asked::Reload if self.reload.send(()).is_ok() => {
                        tracing::info!("SIGHUP: reading the files");
                    }
                    Asked::Reload => tracing::warn!("SIGHUP: the files are no longer read"),
                },
                ended = &mut engine.task => {
                    say_last(self.sentinel.as_ref(), &ended).await;
                    return judged(ended).map(|()| "stopped");
                }
                what = guard::hung(hangs.as_mut()) => {
                    let watchdog = self.watchdog.take();
                    let watchdog = async { watchdog?.end().await.ok() };
                    return Err(guard::give_back(what, async { join!(engine.end(), watchdog) }).await);
                }
                reason = stands_down(self.sentinel.as_mut()) => {
                    return Err(Failure::failed(reason, "Set the clocks right; another instance goes on."));
                }
            }
        };
        // What ends need not come round.
        drop(self.guard.take());
        self.surface.enter(Phase::Stopping("the engine ends its pass"));
        let seconds = END_IN.as_secs();
        tracing::info!(
            "{signal}: stopping; waiting up to {seconds} s for the engine to end its pass (a second signal ends at once)"
        );
        tokio::select! {
            biased;
            ended = engine.end() => return judged(ended).map(|()| STOPPED),
            signal = signals.stop() => tracing::warn!("{signal} again: ending at once"),
            () = sleep(END_IN) => {
                tracing::error!("the engine did not end its pass in {seconds} s: ending without it; nothing is lost");
            }
        }
        // Nor are the others waited for.
        (self.watchdog, self.notifier) = (None, None);
        Ok(STOPPED)
    }
}

/// People hear that the store failed before the process that could tell them is gone.
async fn say_last(sentinel: Option<&Sentinel>, ended: &Result<Result<(), EngineError>, JoinError>) {
    if let (Some(sentinel), Ok(Err(error))) = (sentinel, ended)
        && let Some(error) = error.of_the_store()
    {
        sentinel.last_words(error.to_string()).await;
    }
}

/// Why this instance should end, once it should.
async fn stands_down(sentinel: Option<&mut Sentinel>) -> String {
    let Some(sentinel) = sentinel else { return std::future::pending().await };
    match sentinel.stand_down.wait_for(Option::is_some).await {
        Ok(reason) => reason.clone().unwrap_or_default(),
        Err(_gone) => std::future::pending().await,
    }
}

fn judged(ended: Result<Result<(), EngineError>, JoinError>) -> Result<(), Failure> {
    match ended {
        Ok(Ok(())) => Ok(()),
        Ok(Err(error)) => Err(Failure::failed(error.to_string(), "")),
        Err(panic) => Err(Failure::failed(
            format!("the engine crashed: {panic}"),
            "This is a bug in Interlock. Start it again: nothing that was recorded is lost.",
        )),
    }
}

#[cfg(test)]
mod tests;
