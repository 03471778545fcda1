//! The store under test, with the words that cases are written in.

use std::{
    collections::BTreeMap,
    fmt,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use super::sample::LONG;
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Page, Refusal, Role, Row, Shard, Store, Writer,
    record::Record,
};

/// A fresh store, and a hand on its clock.
pub struct Subject {
    /// The store; empty, and used by nobody else.
    pub store: Arc<dyn Store>,
    pass: Box<dyn Fn(SignedDuration) + Send + Sync>,
    writers: Mutex<BTreeMap<(Role, Shard), Writer>>,
}

impl fmt::Debug for Subject {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Subject").field("store", &self.store).finish_non_exhaustive()
    }
}

/// Checks a page, and takes it to those before it. Pages that repeat themselves fail and do not hang.
pub(super) fn take<T>(rows: &mut Vec<T>, page: Page<T>, limit: usize) {
    assert!(page.items.len() <= limit, "a page holds no more than asked for");
    assert!(!page.more || page.items.len() == limit, "a page with more after it is full");
    rows.extend(page.items);
    assert!(rows.len() <= 10_000, "pages go on for ever");
}

impl Subject {
    /// A store to be tried. `pass` returns when so much time has passed by the store's clock: it moves a
    /// clock that can be moved, and sleeps otherwise.
    pub fn new(
        store: Arc<dyn Store>,
        pass: impl Fn(SignedDuration) + Send + Sync + 'static,
    ) -> Self {
        Self { store, pass: Box::new(pass), writers: Mutex::default() }
    }

    pub(super) fn pass(&self, time: SignedDuration) {
        (self.pass)(time);
    }

    pub(super) async fn now(&self) -> Timestamp {
        self.store.now().await.expect("now is told")
    }

    pub(super) fn shard(&self, pipeline: &PipelineId) -> Shard {
        Shard::of(pipeline, self.store.shard_count())
    }

    /// The right to write to a pipeline, acquired once per case.
    pub(super) async fn writer(&self, role: Role, pipeline: &PipelineId) -> Writer {
        let shard = self.shard(pipeline);
        if let Some(writer) = self.writers().get(&(role, shard)).copied() {
            return writer;
        }
        let lease = self.store.acquire(role, shard, "suite", LONG).await.expect("acquire answers");
        let writer = lease.expect("nobody else holds it").writer;
        self.writers().insert((role, shard), writer);
        writer
    }

    fn writers(&self) -> MutexGuard<'_, BTreeMap<(Role, Shard), Writer>> {
        self.writers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A group of the engine's.
    pub(super) async fn group(&self, pipeline: &PipelineId, changes: Vec<Change>) -> Group {
        let writer = self.writer(Role::Engine, pipeline).await;
        Group { pipeline: pipeline.clone(), writer, changes }
    }

    /// What comes of groups in one call.
    pub(super) async fn commit(&self, groups: Vec<Group>) -> Vec<Result<Accepted, Refusal>> {
        let asked = groups.len();
        let results = self.store.commit(groups).await.expect("commit answers");
        assert_eq!(results.len(), asked, "there is a result for each group");
        results
    }

    /// What comes of one group.
    pub(super) async fn commit_one(&self, group: Group) -> Result<Accepted, Refusal> {
        self.commit(vec![group]).await.remove(0)
    }

    /// What comes of changes by the engine.
    pub(super) async fn try_write(
        &self,
        pipeline: &PipelineId,
        changes: Vec<Change>,
    ) -> Result<Accepted, Refusal> {
        self.commit_one(self.group(pipeline, changes).await).await
    }

    /// Makes changes as the engine.
    pub(super) async fn write(&self, pipeline: &PipelineId, changes: Vec<Change>) -> Accepted {
        match self.try_write(pipeline, changes).await {
            Ok(accepted) => accepted,
            Err(refusal) => panic!("{pipeline} should take the group: {refusal:?}"),
        }
    }

    /// Creates rows as the engine, in as many groups as it takes.
    pub(super) async fn create(&self, pipeline: &PipelineId, rows: Vec<(Key, Record)>) {
        for rows in rows.chunks(interlock_store::CHANGES_MAX) {
            let put = |(key, record): &(Key, Record)| {
                Change::Put(key.clone(), Expect::Absent, record.clone())
            };
            self.write(pipeline, rows.iter().map(put).collect()).await;
        }
    }

    /// One row.
    pub(super) async fn row(&self, pipeline: &PipelineId, key: &Key) -> Option<Row<Record>> {
        let keys = std::slice::from_ref(key);
        let mut rows = self.store.read(pipeline, keys).await.expect("read answers");
        assert_eq!(rows.len(), 1, "there is an answer for each key");
        rows.remove(0)
    }

    /// How often a row was written, 0 when it is not there.
    pub(super) async fn revision(&self, pipeline: &PipelineId, key: &Key) -> u64 {
        self.row(pipeline, key).await.map_or(0, |row| row.revision)
    }
}
