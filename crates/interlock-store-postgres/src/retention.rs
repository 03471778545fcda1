//! Taking out events that are old, a bounded number at a time.
//!
//! Only events: slots and runs are what is asked about later, and their rows are few beside them. What an archive has not
//! read stays, however old it is.

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use interlock_store::{Accepted, Refusal};
use jiff::SignedDuration;
use tokio_postgres::types::Type;

use crate::pool::Pool;

/// Old events are looked for once in so many new ones, and so many of them are taken out at most: more than come.
const EVERY: u64 = 1_024;
const AT_ONCE: i64 = 5_000;

/// How long events are kept.
#[derive(Debug)]
pub(crate) struct Retention {
    kept_ms: Option<i64>,
    /// The number from which on old ones are looked for again.
    next: AtomicU64,
}

impl Retention {
    /// For so long; for ever if nothing is said.
    pub(crate) fn new(kept: Option<SignedDuration>) -> Self {
        Self { kept_ms: kept.map(interlock_store_remote::whole_ttl), next: AtomicU64::new(0) }
    }

    /// Looks for old events beside the caller's work, if it is time to. One that fails is made up for by the next.
    pub(crate) fn after(&self, pool: &Arc<Pool>, answers: &[Result<Accepted, Refusal>]) {
        let (Some(kept), Some(last)) = (self.kept_ms, last(answers)) else { return };
        let next = self.next.load(Ordering::Relaxed);
        let ours = last >= next
            && self
                .next
                .compare_exchange(next, last + EVERY, Ordering::Relaxed, Ordering::Relaxed)
                .is_ok();
        if ours {
            let pool = Arc::clone(pool);
            tokio::spawn(async move { pool.query(TAKE_OUT, &params(&kept)).await.map(drop) });
        }
    }
}

fn last(answers: &[Result<Accepted, Refusal>]) -> Option<u64> {
    answers.iter().flatten().map(|accepted| accepted.last_event).max().filter(|last| *last > 0)
}

fn params(kept: &i64) -> [crate::pool::Param<'_>; 2] {
    [(kept, Type::INT8), (&AT_ONCE, Type::INT8)]
}

/// Numbers grow with time, so the oldest come first and nothing else is read.
const TAKE_OUT: &str = "WITH oldest AS (
        SELECT e.number, e.body FROM @events e, @counters c
        WHERE c.name = 'event'
            AND e.number <= CASE WHEN c.since IS NULL THEN c.value ELSE coalesce(c.archived, 0) END
        ORDER BY e.number LIMIT $2)
    DELETE FROM @events e USING oldest o WHERE e.number = o.number
        AND (o.body::json ->> 'at')::timestamptz < now() - $1 * interval '1 millisecond'";
