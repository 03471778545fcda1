//! A store in front of which, and behind which, the engine can be killed.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    task::Poll,
};

use interlock_sim::gated::{Gate, Gated, Passage};
use interlock_store::{Store, StoreError};

/// A store behind a gate at which its process dies.
pub(crate) type Crashing = Gated<Dying>;

/// Every call waits once before and once after it was done; at the chosen wait the process dies.
#[derive(Debug)]
pub(crate) struct Dying {
    waits: AtomicU64,
    dies_at: u64,
    is_dead: AtomicBool,
}

pub(crate) fn crashing(inner: Arc<dyn Store>, dies_at: u64) -> Crashing {
    let gate = Dying { waits: AtomicU64::new(0), dies_at, is_dead: AtomicBool::new(false) };
    Gated::new(inner, gate)
}

/// A process that ends with its life or dies with its store, whichever comes first.
pub(crate) async fn end_of(store: &Crashing, life: impl Future<Output = ()>) {
    let mut life = std::pin::pin!(life);
    std::future::poll_fn(|context| {
        let ended = life.as_mut().poll(context).is_ready();
        if ended || store.gate().is_dead.load(Ordering::Relaxed) {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

impl Dying {
    async fn wait(&self) -> Result<(), StoreError> {
        let number = self.waits.fetch_add(1, Ordering::Relaxed);
        if number >= self.dies_at {
            self.is_dead.store(true, Ordering::Relaxed);
            std::future::pending::<()>().await;
        }
        let mut waited = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
        Ok(())
    }
}

impl Gate for Dying {
    fn enter(&self, _verb: &'static str) -> Option<Passage<'_>> {
        Some(Box::pin(self.wait()))
    }

    fn leave(&self, _verb: &'static str) -> Option<Passage<'_>> {
        Some(Box::pin(self.wait()))
    }
}
