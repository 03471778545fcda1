//! Keeps everybody else from owning a store for as long as it lives, and hears when the copy is to end.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
        mpsc::{self, RecvTimeoutError},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use interlock_liveness::signals;
use interlock_store::{Lease, Role, Shard, Store, Writer, block_on};
use jiff::SignedDuration;
use tokio::signal::unix::SignalKind;

use super::{WHAT, busy};
use crate::{
    exit::Failure,
    place::Place,
    serve::signals::{Asked, Requests as _, Signals},
};

/// How long a lease lasts that is not renewed: so long does everybody wait after a copy that was killed.
pub(super) const HELD: SignedDuration = SignedDuration::from_secs(6);
const RENEW_EVERY: Duration = Duration::from_secs(1);

/// The leases of all shards of a store, renewed by a thread of its own: one portion may take longer than a lease.
pub(super) struct Keeper {
    pub(super) leases: Vec<Writer>,
    store: Arc<dyn Store>,
    has_lost: Arc<AtomicBool>,
    /// Ends the thread when it is dropped.
    stop: Option<mpsc::Sender<()>>,
    thread: Option<JoinHandle<()>>,
}

impl Keeper {
    /// Takes all of them, or none.
    pub(super) fn hold(place: &Place, store: &Arc<dyn Store>) -> Result<Self, Failure> {
        let mut holder = place.holder();
        if !place.is_embedded() {
            // Who is kept waiting reads it.
            holder = format!("{holder}, {WHAT}");
        }
        let (leases, has_lost) = (Vec::new(), Arc::default());
        let store = Arc::clone(store);
        let mut keeper = Self { leases, store, has_lost, stop: None, thread: None };
        for shard in (0..keeper.store.shard_count()).map(Shard) {
            for role in [Role::Engine, Role::Watchdog] {
                let lease = block_on(keeper.store.acquire(role, shard, &holder, HELD))?;
                let Some(Lease { writer, .. }) = lease else {
                    let roll = block_on(keeper.store.roll())?;
                    let owner = roll.and_then(|mut roll| roll.held.remove(&(role, shard)));
                    return Err(busy(place, owner));
                };
                keeper.leases.push(writer);
            }
        }
        keeper.renew()?;
        Ok(keeper)
    }

    fn renew(&mut self) -> Result<(), Failure> {
        let (stop, stopped) = mpsc::channel();
        let (store, leases) = (Arc::clone(&self.store), self.leases.clone());
        let has_lost = Arc::clone(&self.has_lost);
        let renewing = move || {
            while stopped.recv_timeout(RENEW_EVERY) == Err(RecvTimeoutError::Timeout) {
                // A server that does not answer now may a second later; one that does decides.
                let renewed = |writer: &Writer| block_on(store.renew(*writer, HELD));
                if leases.iter().any(|writer| matches!(renewed(writer), Ok(None))) {
                    has_lost.store(true, Ordering::Relaxed);
                }
            }
        };
        let thread = thread::Builder::new().name("keeper".to_owned()).spawn(renewing);
        let failed = |error| Failure::failed(format!("cannot start a thread: {error}"), "");
        self.thread = Some(thread.map_err(failed)?);
        self.stop = Some(stop);
        Ok(())
    }

    /// Whether somebody else may own a part of it.
    pub(super) fn has_lost(&self) -> bool {
        self.has_lost.load(Ordering::Relaxed)
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        drop(self.stop.take());
        // One that panicked renews nothing either.
        let _ended = self.thread.take().map(JoinHandle::join);
        for writer in &self.leases {
            // One that cannot be released runs out by itself.
            let _runs_out = block_on(self.store.release(*writer));
        }
    }
}

/// Whether somebody has asked the copy to end.
#[derive(Clone, Default)]
pub(super) struct Interrupt(Arc<AtomicBool>);

impl Interrupt {
    /// From now on a signal ends nothing by itself: leases are given back first. Under `nohup` a hangup does not end it at all.
    pub(super) fn listen() -> Result<Self, Failure> {
        let failed = |error| Failure::failed(format!("cannot listen to signals: {error}"), "");
        let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build();
        let runtime = runtime.map_err(failed)?;
        let survives_hangup = signals::is_ignored(SignalKind::hangup().as_raw_value());
        let mut signals = runtime.block_on(async { Signals::listen() }).map_err(failed)?;
        let asked = Self::default();
        let heard = asked.clone();
        let listening = move || {
            while runtime.block_on(signals.next()) == Asked::Reload && survives_hangup {}
            heard.0.store(true, Ordering::Relaxed);
        };
        thread::Builder::new().name("signals".to_owned()).spawn(listening).map_err(failed)?;
        Ok(asked)
    }

    pub(super) fn is_asked_for(&self) -> bool {
        self.0.load(Ordering::Relaxed)
    }
}
