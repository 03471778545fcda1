//! What this process knows to be written, and a server that does not have it any more.
//!
//! A restored backup, a snapshot of the machine, a failover to a replica that lagged: the server comes back as it was, and
//! says nothing of it. So whoever writes says what it knows: the last number that was given, by anybody, as far as it has
//! heard; and the last event that it wrote itself, under which right. Numbers are given in the order of commits, so a
//! server that has given fewer, or has somebody else's event in that place, has forgotten something. This is asked in the
//! first journey of every commit, and with every lease.

use std::{
    fmt,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use interlock_core::id::PipelineId;
use interlock_store::{Mark, Recalled, Shard, StoreError, StoreId};
use interlock_store_remote::{
    EVERY_TERM, NUMBERS_SKIPPED, OnRollback, THE_STORE, forgotten, letter,
};
use tokio_postgres::{Row, types::Type};

use crate::{
    failure::said,
    lease::NOW_MS,
    pool::{Lent, Param, Pool, bounded},
};

/// How it comes about.
const HOW: &str = "a backup or a snapshot was put in its place, or a replica that lagged took over";

/// What is known to be written.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Known {
    /// The last number that was given.
    newest: i64,
    /// Our last event, 0 if there is none, and the right under which it was written.
    own: i64,
    writer: String,
}

impl Known {
    /// Its part of a statement, whose parameters begin at `first`: the last number, and whether something is forgotten. Our
    /// event may have been taken out because it is old: then older ones are gone too. Who was told of by somebody else
    /// already has its term ended: numbers then go on above what anybody knew.
    pub(crate) fn sql(first: usize) -> String {
        let (newest, own, writer) = (first, first + 1, first + 2);
        format!(
            "(SELECT value FROM @counters WHERE name = 'event'),
             (SELECT value < ${newest} FROM @counters WHERE name = 'event')
             OR (${own} > 0
                 AND NOT EXISTS (SELECT 1 FROM @events WHERE number = ${own} AND writer = ${writer})
                 AND EXISTS (SELECT 1 FROM @events WHERE number < ${own})
                 AND NOT EXISTS (SELECT 1 FROM @counters WHERE name = 'recovered' AND value >= ${own}))"
        )
    }

    pub(crate) fn params(&self) -> [Param<'_>; 3] {
        [
            (&self.newest as _, Type::INT8),
            (&self.own as _, Type::INT8),
            (&self.writer as _, Type::TEXT),
        ]
    }
}

/// What this process knows, and whom it tells.
pub(crate) struct Witness {
    known: Mutex<Known>,
    shards: u16,
    pub(crate) rollbacks: AtomicU64,
    on_rollback: Option<OnRollback>,
}

impl Witness {
    pub(crate) fn new(shards: u16, on_rollback: Option<OnRollback>) -> Self {
        Self { known: Mutex::default(), shards, rollbacks: AtomicU64::new(0), on_rollback }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What is known before something is asked; the answer must not be older.
    pub(crate) fn known(&self) -> Known {
        self.lock().clone()
    }

    /// Looks at the two columns of [`Known::sql`]; true if something is forgotten.
    pub(crate) fn hears(&self, row: &Row, first: usize) -> bool {
        let is_forgotten: bool = row.get(first + 1);
        if !is_forgotten {
            self.learn(row.get(first));
        }
        is_forgotten
    }

    fn learn(&self, newest: i64) {
        let mut known = self.lock();
        known.newest = known.newest.max(newest);
    }

    /// What we wrote was acknowledged.
    pub(crate) fn wrote(&self, number: u64, writer: &str) {
        let (number, mut known) = (number as i64, self.lock());
        known.newest = known.newest.max(number);
        if number > known.own {
            (known.own, known.writer) = (number, writer.to_owned());
        }
    }

    /// Which store it is, and the last number that it has given.
    pub(crate) async fn mark(&self, pool: &Arc<Pool>) -> Result<Mark, StoreError> {
        let sql =
            format!("SELECT (SELECT value FROM @about WHERE name = 'identity'), {}", Known::sql(1));
        loop {
            let known = self.known();
            let rows = pool.query(&sql, &known.params()).await?;
            let strange = || StoreError::permanent("the store does not say which one it is");
            let row = rows.first().ok_or_else(strange)?;
            if self.hears(row, 1) {
                self.recover(pool, &known).await?;
                continue;
            }
            let store = row.get::<_, Option<&str>>(0).and_then(StoreId::parse);
            let number = row.get::<_, i64>(1) as u64;
            return Ok(Mark { store: store.ok_or_else(strange)?, number });
        }
    }

    /// Compares with what somebody remembers of before.
    pub(crate) async fn recall(
        &self,
        pool: &Arc<Pool>,
        remembered: Mark,
    ) -> Result<Recalled, StoreError> {
        let recalled = self.mark(pool).await?.recall(remembered);
        if recalled == Recalled::Forgotten {
            let newest = i64::try_from(remembered.number).unwrap_or(i64::MAX);
            self.recover(pool, &Known { newest, ..Known::default() }).await?;
        }
        Ok(recalled)
    }

    /// Ends every term, since nobody knows any more what was done under it; owners then read again. Nothing, if somebody
    /// else was first.
    pub(crate) async fn recover(&self, pool: &Arc<Pool>, known: &Known) -> Result<(), StoreError> {
        let message = forgotten("PostgreSQL", HOW, EVERY_TERM);
        let is_first = bounded(async {
            let lent = pool.take().await?;
            let is_first = self.end_terms(&lent, known, &message).await?;
            lent.commit().await.map_err(|error| said(&error))?;
            lent.done();
            Ok(is_first)
        })
        .await?;
        if is_first {
            self.rollbacks.fetch_add(1, Ordering::Relaxed);
            if let Some(tell) = &self.on_rollback {
                tell(&format!("STORE_ROLLBACK: {message}"));
            }
        }
        Ok(())
    }

    /// In one transaction, in the order in which commits lock: leases, then the counter.
    async fn end_terms(
        &self,
        lent: &Lent,
        known: &Known,
        message: &str,
    ) -> Result<bool, StoreError> {
        let client = lent.client();
        let failed = |error: tokio_postgres::Error| said(&error);
        let lock = lent.sql("SELECT 1 FROM @leases ORDER BY shard, role FOR UPDATE");
        let count = lent.sql("SELECT 1 FROM @counters WHERE name = 'event' FOR UPDATE");
        let look = lent.sql(&format!("SELECT {}", Known::sql(1)));
        let look_params = known.params();
        let ((), _, _, found) = tokio::try_join!(
            biased;
            lent.begin(),
            client.query_typed(&lock, &[]),
            client.query_typed(&count, &[]),
            client.query_typed(&look, &look_params),
        )
        .map_err(failed)?;
        if !found.first().is_some_and(|row| row.get(1)) {
            return Ok(false);
        }
        let end = lent
            .sql(&format!("UPDATE @leases SET term = greatest(term + 1, {NOW_MS}), holder = NULL"));
        // An archive has to read all rows again: some of what it has never was.
        let skip = lent.sql(&format!(
            "WITH skipped AS (UPDATE @counters
                SET value = greatest(value, $1, $2) + {NUMBERS_SKIPPED},
                    since = CASE WHEN since IS NULL THEN NULL ELSE greatest(value, $1, $2) + {NUMBERS_SKIPPED} END
                WHERE name = 'event' RETURNING value),
             forgotten AS (DELETE FROM @changes)
             INSERT INTO @counters (name, value) SELECT 'recovered', value FROM skipped
             ON CONFLICT (name) DO UPDATE SET value = EXCLUDED.value"
        ));
        let post = lent.sql(&format!(
            "INSERT INTO @inbox (shard, pipeline, key, received_ms, body) VALUES ($1, $2, $3, {NOW_MS}, $4)
             ON CONFLICT (pipeline, key) DO NOTHING"
        ));
        let system = PipelineId::system();
        let shard = i32::from(Shard::of(&system, self.shards).0);
        let key = format!("rollback/{}/{}", known.newest, known.own);
        let (pipeline, body) = (system.as_str(), letter(THE_STORE, message.to_owned()).encode());
        let skip_params = [(&known.newest as _, Type::INT8), (&known.own as _, Type::INT8)];
        let post_params = [
            (&shard as _, Type::INT4),
            (&pipeline as _, Type::TEXT),
            (&key as _, Type::TEXT),
            (&body as _, Type::TEXT),
        ];
        tokio::try_join!(
            biased;
            client.execute_typed(&end, &[]),
            client.execute_typed(&skip, &skip_params),
            client.execute_typed(&post, &post_params),
        )
        .map_err(failed)?;
        Ok(true)
    }
}

impl fmt::Debug for Witness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Witness").field("known", &self.known()).finish_non_exhaustive()
    }
}
