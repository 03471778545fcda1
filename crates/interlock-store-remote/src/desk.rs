//! A runtime of the store's own.

use std::{fmt, future::Future};

use interlock_store::{StoreError, StoreFuture};
use tokio::runtime::{Builder, Runtime};

/// How many threads there are: encoding and decoding may take both of a small machine's cores.
const THREADS: usize = 2;

/// The runtime that all connections of a store belong to. Dropped, it ends without waiting.
pub struct Desk {
    runtime: Option<Runtime>,
}

impl Desk {
    /// Starts its threads, under a name that shows in a debugger.
    pub fn start(name: &str) -> Result<Self, StoreError> {
        let runtime = Builder::new_multi_thread()
            .worker_threads(THREADS)
            .thread_name(name)
            .enable_all()
            .build()
            .map_err(|error| StoreError::retryable(format!("no thread could start: {error}")))?;
        Ok(Self { runtime: Some(runtime) })
    }

    /// Hands in work, which goes on to its end even if nobody waits for it any more.
    pub fn ask<'a, T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let Some(runtime) = &self.runtime else { return Box::pin(async { Err(closed()) }) };
        let task = runtime.spawn(work);
        Box::pin(async move { task.await.map_err(|error| broken(&error))? })
    }

    /// Hands in work, and blocks until it is done.
    pub fn wait<T: Send + 'static>(
        &self,
        work: impl Future<Output = Result<T, StoreError>> + Send + 'static,
    ) -> Result<T, StoreError> {
        interlock_store::block_on(self.ask(work))
    }
}

fn closed() -> StoreError {
    StoreError::retryable("the store was closed before it answered")
}

fn broken(error: &tokio::task::JoinError) -> StoreError {
    if error.is_panic() {
        return StoreError::permanent("the store broke off, which is a fault in Interlock");
    }
    closed()
}

impl Drop for Desk {
    fn drop(&mut self) {
        if let Some(runtime) = self.runtime.take() {
            // The one who drops it may itself be a task of a runtime, which must not block.
            runtime.shutdown_background();
        }
    }
}

impl fmt::Debug for Desk {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Desk").finish_non_exhaustive()
    }
}
