//! The schema and its migrations.
//!
//! `PRAGMA user_version` says how many steps were applied. Each step runs in a transaction of its own and
//! leaves its checksum, so that a step that was edited after it was released is found. A file of a newer
//! Interlock is refused, and so is a database that is not ours.

use std::path::Path;

use interlock_core::id::fnv1a;
use interlock_store::StoreError;
use rusqlite::{Connection, TransactionBehavior, params};

use crate::failure::{Failure, Trouble, damaged};

/// The steps, in order; never edited once released.
const STEPS: &[&str] = &[
    include_str!("schema/0001.sql"),
    include_str!("schema/0002.sql"),
    include_str!("schema/0003.sql"),
    include_str!("schema/0004.sql"),
    include_str!("schema/0005.sql"),
    include_str!("schema/0006.sql"),
];

/// Marks the file as ours: `ILCK`.
const APPLICATION: i64 = 0x494C_434B;

/// What is known of the file before it is touched.
struct Found {
    version: usize,
    application: i64,
    is_empty: bool,
}

/// Refuses a file that is not ours, or newer than we are, without changing it.
pub(crate) fn refuse_foreign(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = examine(db).map_err(|error| Trouble::of(error.into(), path).error())?;
    check(&found, path)
}

/// Whether a newer Interlock wrote a file, as far as it says.
pub(crate) fn is_newer(db: &Connection) -> bool {
    let newer = |found: &Found| found.application == APPLICATION && found.version > STEPS.len();
    examine(db).is_ok_and(|found| newer(&found))
}

/// Brings a file to the present schema, or refuses it.
pub(crate) fn migrate(db: &mut Connection, path: &Path) -> Result<(), StoreError> {
    let said = |failure: Failure| Trouble::of(failure, path).error();
    let found = examine(db).map_err(|error| said(error.into()))?;
    check(&found, path)?;
    let done = STEPS.iter().take(found.version);
    for (index, step) in done.enumerate() {
        check_sum(db, index, step, path).map_err(said)?;
    }
    for (index, step) in STEPS.iter().enumerate().skip(found.version) {
        take_step(db, index, step).map_err(|error| said(error.into()))?;
    }
    Ok(())
}

/// Refuses a file that is not ours or not of this version: for those who only read.
pub(crate) fn expect_present(db: &Connection, path: &Path) -> Result<(), StoreError> {
    let found = examine(db).map_err(|error| Trouble::of(error.into(), path).error())?;
    check(&found, path)?;
    if found.version == STEPS.len() {
        return Ok(());
    }
    let message = format!(
        "{} was written by an older Interlock: start `interlock serve` once, which brings it up to date",
        path.display()
    );
    Err(StoreError::retryable(message))
}

fn examine(db: &Connection) -> Result<Found, rusqlite::Error> {
    // As one: another process may be making the file just now.
    let moment = db.unchecked_transaction()?;
    let number = |sql: &str| moment.query_row(sql, [], |row| row.get::<_, i64>(0));
    Ok(Found {
        is_empty: number("SELECT count(*) FROM sqlite_schema")? == 0,
        version: usize::try_from(number("PRAGMA user_version")?).unwrap_or(usize::MAX),
        application: number("PRAGMA application_id")?,
    })
}

fn check(found: &Found, path: &Path) -> Result<(), StoreError> {
    if found.is_empty && found.version == 0 {
        return Ok(());
    }
    if found.application != APPLICATION {
        return Err(StoreError::permanent(damaged(path, "it is another program's database")));
    }
    if found.version > STEPS.len() {
        let message = format!(
            "{} was written by a newer Interlock (schema {}, this one knows {}): use that version, or \
             restore a backup from before the upgrade; nothing was changed",
            path.display(),
            found.version,
            STEPS.len()
        );
        return Err(StoreError::permanent(message));
    }
    Ok(())
}

fn check_sum(db: &Connection, index: usize, step: &str, path: &Path) -> Result<(), Failure> {
    let sql = "SELECT checksum FROM migrations WHERE step = ?1";
    let found: String = db.query_row(sql, [index as i64 + 1], |row| row.get(0))?;
    if found == sum(step) {
        return Ok(());
    }
    let detail = format!("step {} of its schema is not the one that this version knows", index + 1);
    Err(Failure::Said(StoreError::permanent(damaged(path, &detail))))
}

fn take_step(db: &mut Connection, index: usize, step: &str) -> Result<(), rusqlite::Error> {
    let transaction = db.transaction_with_behavior(TransactionBehavior::Immediate)?;
    if index == 0 {
        transaction.pragma_update(None, "application_id", APPLICATION)?;
        transaction.execute_batch(
            "CREATE TABLE migrations (step INTEGER PRIMARY KEY, checksum TEXT NOT NULL) STRICT;",
        )?;
    }
    transaction.execute_batch(step)?;
    transaction
        .execute("INSERT INTO migrations VALUES (?1, ?2)", params![index as i64 + 1, sum(step)])?;
    transaction.pragma_update(None, "user_version", index as i64 + 1)?;
    transaction.commit()
}

fn sum(step: &str) -> String {
    format!("{:016x}", fnv1a(step.as_bytes()))
}
