//! Reads that are asked for at the same time go to the server as one.
//!
//! A statement without a name is parsed and planned each time, which takes longer than to find the row that it asks for. Engines
//! and watchdogs ask for rows of many pipelines side by side; while two statements are on their way, what others ask for waits
//! and is then asked for together. One that comes alone goes at once.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::id::PipelineId;
use interlock_store::{Key, Record, Row, StoreError};
use tokio::sync::oneshot;

use crate::{pool::Pool, read};

/// How many statements are on their way at once.
const LANES: usize = 2;
/// How many rows one statement asks for, about.
const ROWS_MAX: usize = 500;

/// Rows of one pipeline, in the order asked.
pub(crate) type Answer = Result<Vec<Option<Row<Record>>>, StoreError>;

/// Those who ask.
#[derive(Debug, Default)]
pub(crate) struct Crowd(Mutex<Waiting>);

#[derive(Debug, Default)]
struct Waiting {
    asked: VecDeque<Asked>,
    lanes: usize,
}

#[derive(Debug)]
struct Asked {
    pipeline: PipelineId,
    keys: Vec<Key>,
    answer: oneshot::Sender<Answer>,
}

impl Crowd {
    /// Reads rows by their keys, with what others ask for.
    pub(crate) async fn read(
        self: Arc<Self>,
        pool: &Arc<Pool>,
        pipeline: PipelineId,
        keys: Vec<Key>,
    ) -> Answer {
        let (answer, answered) = oneshot::channel();
        let is_free = {
            let mut waiting = self.waiting();
            waiting.asked.push_back(Asked { pipeline, keys, answer });
            let is_free = waiting.lanes < LANES;
            waiting.lanes += usize::from(is_free);
            is_free
        };
        if is_free {
            let (crowd, pool) = (Arc::clone(&self), Arc::clone(pool));
            tokio::spawn(async move { crowd.serve(&pool).await });
        }
        let gone = |_| StoreError::retryable("the store was closed before it answered");
        answered.await.map_err(gone)?
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Asks for what waits until nothing does.
    async fn serve(&self, pool: &Arc<Pool>) {
        while let Some(portion) = self.take() {
            let asked: Vec<(&PipelineId, &[Key])> =
                portion.iter().map(|it| (&it.pipeline, it.keys.as_slice())).collect();
            match read::rows(pool, &asked).await {
                Ok(answers) => {
                    for (Asked { answer, .. }, rows) in portion.into_iter().zip(answers) {
                        let _nobody_waits = answer.send(Ok(rows));
                    }
                }
                Err(error) => apart(pool, portion, error).await,
            }
        }
    }

    /// What goes as one; nothing, and the lane is free, when nobody waits.
    fn take(&self) -> Option<Vec<Asked>> {
        let mut waiting = self.waiting();
        let (mut portion, mut rows) = (Vec::new(), 0);
        while rows < ROWS_MAX
            && let Some(asked) = waiting.asked.pop_front()
        {
            rows += asked.keys.len();
            portion.push(asked);
        }
        if portion.is_empty() {
            waiting.lanes -= 1;
            return None;
        }
        Some(portion)
    }
}

/// A row that cannot be read is the trouble of whoever asked for it: the others are asked for again, each alone.
async fn apart(pool: &Arc<Pool>, portion: Vec<Asked>, error: StoreError) {
    let is_one = portion.len() == 1;
    for Asked { pipeline, keys, answer } in portion {
        let told = if is_one || error.is_retryable {
            Err(StoreError { message: error.message.clone(), is_retryable: error.is_retryable })
        } else {
            let found = read::rows(pool, &[(&pipeline, keys.as_slice())]).await;
            found.map(|mut answers| answers.pop().unwrap_or_default())
        };
        let _nobody_waits = answer.send(told);
    }
}
