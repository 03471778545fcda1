//! The schema of the archive and its migrations: steps with checksums, under a lock of their transaction.

use interlock_core::id::fnv1a;
use tokio_postgres::{Client, types::Type};

use crate::{SCHEMA, failure::ArchiveError};

/// The steps, in order; never edited once released.
const STEPS: &[&str] = &[include_str!("schema/0001.sql"), include_str!("schema/0002.sql")];

/// A statement with the schema's name in place of each `@`.
pub(crate) fn sql(text: &str) -> String {
    text.replace('@', &format!("{SCHEMA}."))
}

/// Brings the schema to the present, or refuses it.
pub(crate) async fn prepare(client: &Client) -> Result<(), ArchiveError> {
    let lock = format!(
        "BEGIN; SET LOCAL client_min_messages = warning; SELECT pg_advisory_xact_lock({})",
        fnv1a(SCHEMA.as_bytes()) as i64
    );
    client.batch_execute(&lock).await?;
    let prepared = take_steps(client).await;
    let end = if prepared.is_ok() { "COMMIT" } else { "ROLLBACK" };
    client.batch_execute(end).await?;
    prepared
}

async fn take_steps(client: &Client) -> Result<(), ArchiveError> {
    let done = steps_done(client).await?;
    for (index, step) in STEPS.iter().enumerate().skip(done) {
        // Comments may hold an `@` of their own.
        let code: Vec<&str> = step.lines().filter(|line| !line.starts_with("--")).collect();
        client.batch_execute(&sql(&code.join("\n"))).await?;
        let (number, sum) = (index as i32 + 1, sum(step));
        let keep = sql("INSERT INTO @migrations VALUES ($1, $2)");
        client.execute_typed(&keep, &[(&number, Type::INT4), (&sum, Type::TEXT)]).await?;
    }
    Ok(())
}

/// How many steps were taken; makes the schema if it is not there.
async fn steps_done(client: &Client) -> Result<usize, ArchiveError> {
    let find = "SELECT to_regclass($1 || '.migrations') IS NOT NULL,
        (SELECT count(*) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1)";
    let rows = client.query_typed(find, &[(&SCHEMA, Type::TEXT)]).await?;
    let found = rows.first().map(|row| (row.get::<_, bool>(0), row.get::<_, i64>(1)));
    match found {
        Some((true, _)) => check_steps(client).await,
        Some((false, tables)) if tables > 0 => Err(ArchiveError::refused(format!(
            "the schema `{SCHEMA}` holds another program's tables: name another database in `archiver.dsn`; nothing \
             was changed"
        ))),
        Some((false, _)) | None => {
            let make =
                sql("CREATE TABLE @migrations (step int4 PRIMARY KEY, checksum text NOT NULL)");
            client.batch_execute(&format!("CREATE SCHEMA IF NOT EXISTS {SCHEMA}; {make}")).await?;
            Ok(0)
        }
    }
}

async fn check_steps(client: &Client) -> Result<usize, ArchiveError> {
    let rows =
        client.query_typed(&sql("SELECT checksum FROM @migrations ORDER BY step"), &[]).await?;
    if rows.len() > STEPS.len() {
        return Err(ArchiveError::refused(format!(
            "the archive was made by a newer Interlock (step {}, this one knows {}): use that version; nothing was changed",
            rows.len(),
            STEPS.len()
        )));
    }
    let wrong = rows.iter().zip(STEPS).position(|(row, step)| row.get::<_, &str>(0) != sum(step));
    match wrong {
        Some(index) => Err(ArchiveError::refused(format!(
            "step {} of the archive's schema is not the one that this version knows",
            index + 1
        ))),
        None => Ok(rows.len()),
    }
}

fn sum(step: &str) -> String {
    format!("{:016x}", fnv1a(step.as_bytes()))
}
