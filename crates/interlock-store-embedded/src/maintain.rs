//! What an operator does with a ledger: check it, copy it.
//!
//! These block, and open connections of their own: they work beside a running daemon, and on a file that
//! a store refuses to open.

use std::path::{Path, PathBuf};

use interlock_store::{Key, StoreError};
use rusqlite::{Connection, backup::Backup};

use crate::{
    failure::{Failure, Trouble},
    file::{create_database, ledger_path, open_reading},
    read::{decoded, timestamp},
    schema,
};

/// Questions whose answer should be empty, with what it means if not. Each answers with one text per row.
const QUESTIONS: &[(&str, &str)] = &[
    (
        "a run has no slot",
        "SELECT n.name || '/' || r.schedule || ' at ' || r.nominal FROM runs r
         JOIN names n ON n.id = r.pipeline LEFT JOIN slots s ON s.nominal = r.nominal
           AND s.pipeline = r.pipeline AND s.schedule = r.schedule
         WHERE s.nominal IS NULL",
    ),
    (
        "two spans overlap (S3)",
        "SELECT n.name || '/' || a.schedule || ' at ' || b.nominal FROM spans a
         JOIN spans b ON b.pipeline = a.pipeline AND b.schedule = a.schedule
           AND b.nominal > a.nominal AND b.nominal <= a.last
         JOIN names n ON n.id = a.pipeline",
    ),
    (
        "an event has a number that was not given",
        "SELECT 'event ' || number FROM events
         WHERE number > (SELECT coalesce(max(value), 0) FROM counters WHERE name = 'event')",
    ),
    (
        "an inbox entry was answered and still waits",
        "SELECT n.name || '/' || i.key FROM inbox i JOIN names n ON n.id = i.pipeline
         JOIN applied a ON a.pipeline = i.pipeline AND a.key = i.key",
    ),
];

/// The tables whose rows belong to pipelines and hold JSON.
const TABLES: &[&str] = &[
    "pipelines",
    "versions",
    "watermarks",
    "slots",
    "spans",
    "runs",
    "sensors",
    "incidents",
    "backfills",
    "due",
    "outbox",
    "applied",
    "events",
    "inbox",
];

/// Most examples of one kind of problem.
const EXAMPLES_MAX: usize = 10;

/// Looks for damage in the ledger of a folder; a sentence for each problem, none if it is sound.
pub fn check(folder: &Path) -> Result<Vec<String>, StoreError> {
    let path = ledger_path(folder);
    let db = open_reading(&path)?;
    schema::expect_present(&db, &path)?;
    find_problems(&db).map_err(|failure| Trouble::of(failure, &path).error())
}

fn find_problems(db: &Connection) -> Result<Vec<String>, Failure> {
    let mut problems = texts(db, "PRAGMA integrity_check(100)")?;
    problems.retain(|found| found != "ok");
    if !problems.is_empty() {
        // Questions to a damaged file have answers that mean nothing.
        return Ok(problems);
    }
    for (meaning, question) in QUESTIONS {
        report(db, meaning, question, &mut problems)?;
    }
    for table in TABLES {
        let orphans =
            format!("SELECT '{table}' FROM {table} WHERE pipeline NOT IN (SELECT id FROM names)");
        report(db, "a row belongs to no pipeline", &orphans, &mut problems)?;
        let question = format!("SELECT '{table}' FROM {table} WHERE NOT json_valid(body)");
        report(db, "a row cannot be read", &question, &mut problems)?;
    }
    problems.extend(spans_past_watermarks(db)?);
    Ok(problems)
}

fn report(
    db: &Connection,
    meaning: &str,
    question: &str,
    problems: &mut Vec<String>,
) -> Result<(), Failure> {
    let found = texts(db, &format!("{question} LIMIT {EXAMPLES_MAX}"))?;
    problems.extend(found.into_iter().map(|what| format!("{meaning}: {what}")));
    Ok(())
}

fn texts(db: &Connection, question: &str) -> Result<Vec<String>, rusqlite::Error> {
    let mut statement = db.prepare(question)?;
    statement.query_map([], |row| row.get(0))?.collect()
}

/// S4: a span and the watermark that covers it are written in one group.
fn spans_past_watermarks(db: &Connection) -> Result<Vec<String>, Failure> {
    let mut statement = db.prepare(
        "SELECT n.name, s.schedule, max(s.last), w.body FROM spans s
         JOIN names n ON n.id = s.pipeline
         LEFT JOIN watermarks w ON w.pipeline = s.pipeline AND w.schedule = s.schedule
         GROUP BY s.pipeline, s.schedule",
    )?;
    let mut rows = statement.query([])?;
    let mut problems = Vec::new();
    while let Some(row) = rows.next()? {
        let (name, schedule): (String, String) = (row.get(0)?, row.get(1)?);
        let last = timestamp(row.get(2)?)?;
        let watermark = match row.get::<_, Option<String>>(3)? {
            Some(body) => {
                let key = Key::Watermark(interlock_core::id::ScheduleId::any(&schedule)?);
                Some(decoded!(Watermark, &key, &body).at)
            }
            None => None,
        };
        if watermark.is_none_or(|at| at < last) {
            problems.push(format!("{name}/{schedule} has a span past its watermark (S4): {last}"));
        }
    }
    Ok(problems)
}

/// Copies the ledger of a folder, as it is at one instant, to a file that does not exist yet.
pub fn backup(folder: &Path, to: &Path) -> Result<(), StoreError> {
    if to.exists() {
        let message = format!("{} exists: a backup never overwrites a file", to.display());
        return Err(StoreError::permanent(message));
    }
    let path = ledger_path(folder);
    let from = open_reading(&path)?;
    schema::expect_present(&from, &path)?;
    let mut partial = to.as_os_str().to_owned();
    partial.push(".partial");
    let partial = PathBuf::from(partial);
    copy(&from, &partial).map_err(|error| Trouble::of(Failure::Sql(error), &partial).error())?;
    std::fs::rename(&partial, to).map_err(|error| {
        StoreError::retryable(format!("{} cannot be written: {error}", to.display()))
    })
}

fn copy(from: &Connection, to: &Path) -> Result<(), rusqlite::Error> {
    create_database(to);
    let mut copy = Connection::open(to)?;
    // All pages in one step: it reads one state, and a busy daemon cannot make it begin again.
    Backup::new(from, &mut copy)?.step(-1)?;
    // One file, without a log beside it.
    copy.execute_batch("PRAGMA journal_mode = DELETE;")
}
