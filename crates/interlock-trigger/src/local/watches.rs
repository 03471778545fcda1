//! Tasks that ask remote jobs for their state, one per run.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, PoisonError},
};

use tokio::{runtime::Handle, task::AbortHandle};

/// The watched runs.
#[derive(Debug, Clone)]
pub(crate) struct Watches {
    runtime: Handle,
    tasks: Arc<Mutex<BTreeMap<String, AbortHandle>>>,
}

impl Watches {
    /// Nothing is watched yet.
    pub(crate) fn new(runtime: Handle) -> Self {
        Self { runtime, tasks: Arc::default() }
    }

    /// Watches a run until the future ends; a run that is watched already is left alone.
    pub(crate) fn watch(&self, run_id: &str, watching: impl Future<Output = ()> + Send + 'static) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        tasks.retain(|_, task| !task.is_finished());
        if !tasks.contains_key(run_id) {
            let task = self.runtime.spawn(watching);
            tasks.insert(run_id.to_owned(), task.abort_handle());
        }
    }

    /// Watches nothing any more.
    pub(crate) fn forget_all(&self) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        std::mem::take(&mut *tasks).values().for_each(AbortHandle::abort);
    }

    /// Watches a run no longer.
    pub(crate) fn forget(&self, run_id: &str) {
        let mut tasks = self.tasks.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(task) = tasks.remove(run_id) {
            task.abort();
        }
    }
}
