//! The schema, its migrations, and what a server must promise.
//!
//! `migrations` says which steps were applied, each with its checksum, so that a step that was edited after it
//! was released is found. Steps run in one transaction under an advisory lock of that transaction, so that two
//! instances that start at once do not both take them.

use std::sync::Arc;

use interlock_core::id::fnv1a;
use interlock_store::{Role, StoreError};
use tokio_postgres::types::Type;

use crate::{
    failure::said,
    pool::{Lent, Pool, bounded},
};

/// The steps, in order; never edited once released.
const STEPS: &[&str] = &[
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
    include_str!("schema/0005.sql"),
    include_str!("schema/0006.sql"),
    include_str!("schema/0007.sql"),
    include_str!("schema/0008.sql"),
];

/// The oldest server that has all that is used: partitions that are pruned while a statement runs.
const OLDEST: i32 = 130_000;

/// Brings a schema to the present, or refuses it; tells how many shards it has. One that is not there is made with so many, if any;
/// without, nothing is changed.
pub(crate) async fn prepare(
    pool: &Arc<Pool>,
    schema: &str,
    made_with: Option<u16>,
) -> Result<Option<u16>, StoreError> {
    if let Some(message) = unfitness(pool).await?.filter(|_| made_with.is_some()) {
        return Err(StoreError::permanent(message));
    }
    bounded(async {
        let lent = pool.take().await?;
        let lock = format!("SELECT pg_advisory_xact_lock({})", fnv1a(schema.as_bytes()) as i64);
        let ((), ()) = tokio::try_join!(biased; lent.begin(), lent.client().batch_execute(&lock))
            .map_err(|error| said(&error))?;
        let found = steps_done(&lent, schema).await?;
        let count = match (made_with, found) {
            (None, None) => None,
            (None, Some(steps)) if steps < STEPS.len() => {
                let message = format!(
                    "the schema `{schema}` was made by an older Interlock; `interlock serve` brings it to the present"
                );
                return Err(StoreError::permanent(message));
            }
            (None, Some(_)) => shards_found(&lent).await?,
            (Some(shards), found) => {
                if found.is_none() {
                    make_schema(&lent, schema).await.map_err(|error| said(&error))?;
                }
                for (index, step) in STEPS.iter().enumerate().skip(found.unwrap_or(0)) {
                    take_step(&lent, index, step).await.map_err(|error| said(&error))?;
                }
                let known = shards_found(&lent).await?;
                if known.is_none() {
                    make_shards(&lent, shards.max(1)).await?;
                }
                Some(known.unwrap_or(shards.max(1)))
            }
        };
        lent.commit().await.map_err(|error| said(&error))?;
        lent.done();
        Ok(count)
    })
    .await
}

/// Why a server cannot keep what it acknowledges, if so; refuses one on which nothing would work.
pub(crate) async fn unfitness(pool: &Arc<Pool>) -> Result<Option<String>, StoreError> {
    let sql = "SELECT current_setting('server_version_num')::int4, current_setting('fsync'),
        current_setting('synchronous_commit'), pg_is_in_recovery()";
    let rows = pool.query(sql, &[]).await?;
    let Some(row) = rows.first() else { return Ok(None) };
    if row.get::<_, i32>(0) < OLDEST {
        let message = "this PostgreSQL is too old: Interlock needs 13 or later";
        return Err(StoreError::permanent(message));
    }
    for (setting, value) in [("fsync", row.get::<_, &str>(1)), ("synchronous_commit", row.get(2))] {
        if value == "off" {
            return Ok(Some(format!(
                "this PostgreSQL has `{setting} = off` and may forget what it acknowledged: set it to `on` for \
                 the server, or for Interlock's user with `ALTER ROLE … SET {setting} = on`"
            )));
        }
    }
    if row.get(3) {
        let message = "this PostgreSQL is a standby, which takes no writes: name the primary in `postgres.dsn`";
        return Err(StoreError::retryable(message));
    }
    Ok(None)
}

/// How many steps were taken; nothing if it is not there.
async fn steps_done(lent: &Lent, schema: &str) -> Result<Option<usize>, StoreError> {
    let name = schema.to_owned();
    let sql = "SELECT to_regclass(quote_ident($1) || '.migrations') IS NOT NULL,
        (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1)";
    let rows = lent.client().query_typed(sql, &[(&name, Type::TEXT)]).await;
    let rows = rows.map_err(|error| said(&error))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let (is_ours, tables) = (row.get::<_, bool>(0), row.get::<_, i64>(1));
    if is_ours {
        return check_steps(lent, schema).await.map(Some);
    }
    if tables > 0 {
        let message = format!(
            "the schema `{schema}` holds another program's tables: name another one in `postgres.schema`; \
             nothing was changed"
        );
        return Err(StoreError::permanent(message));
    }
    Ok(None)
}

/// Makes the schema, unless somebody has, with the table of steps.
async fn make_schema(lent: &Lent, schema: &str) -> Result<(), tokio_postgres::Error> {
    let sql = "SELECT to_regnamespace(quote_ident($1)) IS NOT NULL";
    let name = schema.to_owned();
    let rows = lent.client().query_typed(sql, &[(&name, Type::TEXT)]).await?;
    // Asked for, and not `IF NOT EXISTS`: that needs the right to make one even where there is nothing to make.
    let exists = rows.first().is_some_and(|row| row.get(0));
    let make = if exists { String::new() } else { format!("CREATE SCHEMA \"{schema}\"; ") };
    let make =
        format!("{make}CREATE TABLE @migrations (step int4 PRIMARY KEY, checksum text NOT NULL)");
    lent.client().batch_execute(&lent.sql(&make)).await
}

async fn check_steps(lent: &Lent, schema: &str) -> Result<usize, StoreError> {
    let sql = lent.sql("SELECT checksum FROM @migrations ORDER BY step");
    let rows = lent.client().query_typed(&sql, &[]).await.map_err(|error| said(&error))?;
    if rows.len() > STEPS.len() {
        let message = format!(
            "the schema `{schema}` was written by a newer Interlock (step {}, this one knows {}): use that \
             version; nothing was changed",
            rows.len(),
            STEPS.len()
        );
        return Err(StoreError::permanent(message));
    }
    for (index, (row, step)) in rows.iter().zip(STEPS).enumerate() {
        if row.get::<_, &str>(0) != sum(step) {
            let step = index + 1;
            let message = format!(
                "step {step} of the schema `{schema}` is not the one that this version knows"
            );
            return Err(StoreError::permanent(message));
        }
    }
    Ok(rows.len())
}

async fn take_step(lent: &Lent, index: usize, step: &str) -> Result<(), tokio_postgres::Error> {
    // Comments may hold an `@` of their own, and mean nothing to the server.
    let code: Vec<&str> = step.lines().filter(|line| !line.starts_with("--")).collect();
    lent.client().batch_execute(&lent.sql(&code.join("\n"))).await?;
    let keep = lent.sql("INSERT INTO @migrations VALUES ($1, $2)");
    let (number, sum) = (index as i32 + 1, sum(step));
    lent.client().execute_typed(&keep, &[(&number, Type::INT4), (&sum, Type::TEXT)]).await.map(drop)
}

fn sum(step: &str) -> String {
    format!("{:016x}", fnv1a(step.as_bytes()))
}

/// How many shards there are, if that was said.
async fn shards_found(lent: &Lent) -> Result<Option<u16>, StoreError> {
    let find = lent.sql("SELECT value FROM @about WHERE name = 'shards'");
    let rows = lent.client().query_typed(&find, &[]).await.map_err(|error| said(&error))?;
    let Some(row) = rows.first() else { return Ok(None) };
    let text: &str = row.get(0);
    text.parse().map(Some).map_err(|_broken| {
        StoreError::permanent(format!("the store says that it has `{text}` shards"))
    })
}

/// Says how many there are, once, with a place for the lease of each.
async fn make_shards(lent: &Lent, count: u16) -> Result<(), StoreError> {
    let (engine, watchdog) = (Role::Engine.as_str(), Role::Watchdog.as_str());
    let make = format!(
        "INSERT INTO @about VALUES ('shards', '{count}');
         INSERT INTO @leases (shard, role)
         SELECT shard, role FROM generate_series(0, {count} - 1) shard, (VALUES ('{engine}'), ('{watchdog}')) r(role)"
    );
    lent.client().batch_execute(&lent.sql(&make)).await.map_err(|error| said(&error))
}
