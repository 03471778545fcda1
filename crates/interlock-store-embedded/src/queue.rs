//! What waits, inside the writer's transaction: reports on their way in, notifications on their way out.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_store::{Key, OutboxRow, Record, SettleOutcome, Settlement, record::OutboxRecord};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, params, params_from_iter};

use crate::{
    failure::Failure,
    read::{decoded, instant},
    table::{Address, searched},
    writer::Ledger,
};

/// A report or request, encoded.
#[derive(Debug, Clone)]
pub(crate) struct Letter {
    pub(crate) pipeline: PipelineId,
    pub(crate) key: String,
    pub(crate) received_at: Timestamp,
    pub(crate) body: String,
}

/// Puts a letter into the inbox, unless its key is there or was answered.
pub(crate) fn post(ledger: &mut Ledger<'_>, letter: &Letter) -> Result<(), Failure> {
    let pipeline = ledger.memory.name(ledger.db, &letter.pipeline)?;
    if is_known(ledger.db, pipeline, &letter.key)? {
        return Ok(());
    }
    let number = ledger.memory.next_inbox();
    let insert = "INSERT INTO inbox (number, pipeline, key, received_at, body)
                  VALUES (?1, ?2, ?3, ?4, ?5)";
    let at = letter.received_at.as_microsecond();
    let mut insert = ledger.db.prepare_cached(insert)?;
    insert.execute(params![number, pipeline, letter.key, at, letter.body])?;
    Ok(())
}

/// Whether a key of a pipeline is in the inbox or was answered.
pub(crate) fn is_known(db: &Connection, pipeline: i64, key: &str) -> Result<bool, rusqlite::Error> {
    let known = "SELECT EXISTS (SELECT 1 FROM inbox WHERE pipeline = ?1 AND key = ?2)
              OR EXISTS (SELECT 1 FROM applied WHERE pipeline = ?1 AND key = ?2)";
    db.prepare_cached(known)?.query_one(params![pipeline, key], |row| row.get(0))
}

/// What waits in the inbox under a key of a pipeline, encoded.
pub(crate) fn posted(
    db: &Connection,
    pipeline: i64,
    key: &str,
) -> Result<Option<String>, rusqlite::Error> {
    db.prepare_cached("SELECT body FROM inbox WHERE pipeline = ?1 AND key = ?2")?
        .query_row(params![pipeline, key], |row| row.get(0))
        .optional()
}

/// Takes over letters from the `inbox.db` of an epoch, up to a number, once.
pub(crate) fn import(
    ledger: &mut Ledger<'_>,
    epoch: &str,
    letters: &[(i64, Letter)],
) -> Result<(), Failure> {
    let last = imported(ledger.db, epoch)?;
    for (_, letter) in letters.iter().filter(|(number, _)| *number > last) {
        post(ledger, letter)?;
    }
    let reached = letters.iter().map(|(number, _)| *number).fold(last, i64::max);
    let mut keep = ledger.db.prepare_cached("INSERT OR REPLACE INTO imports VALUES (?1, ?2)")?;
    keep.execute(params![epoch, reached])?;
    Ok(())
}

/// Up to which number an `inbox.db` was taken over.
pub(crate) fn imported(db: &Connection, epoch: &str) -> Result<i64, rusqlite::Error> {
    let number = db
        .prepare_cached("SELECT number FROM imports WHERE epoch = ?1")?
        .query_row([epoch], |row| row.get(0))
        .optional()?;
    Ok(number.unwrap_or(0))
}

/// Hands out notifications that may be tried now, those that waited longest first.
pub(crate) fn claim(
    ledger: &mut Ledger<'_>,
    limit: usize,
    claimed_until: Timestamp,
    now: Timestamp,
) -> Result<Vec<OutboxRow>, Failure> {
    let free = "SELECT o.pipeline, n.name, o.name, o.revision, o.body
        FROM outbox o INDEXED BY outbox_waiting JOIN names n ON n.id = o.pipeline
        WHERE o.dead = 0 AND o.not_before <= ?1
          AND (o.claimed_until IS NULL OR o.claimed_until <= ?1)
        ORDER BY o.not_before, n.name, o.name LIMIT ?2";
    let mut free = ledger.db.prepare_cached(free)?;
    let mut rows = free.query(params![now.as_microsecond(), limit as i64])?;
    let mut claimed = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(2)?;
        let key = Key::Outbox(name.clone());
        let record = Arc::unwrap_or_clone(decoded!(Outbox, &key, &row.get::<_, String>(4)?));
        let row = OutboxRow {
            pipeline: PipelineId::any(&row.get::<_, String>(1)?)?,
            name,
            record: OutboxRecord { claimed_until: Some(claimed_until), ..record },
            revision: row.get::<_, i64>(3)? as u64 + 1,
        };
        claimed.push(row);
    }
    for row in &claimed {
        keep(ledger, row, &row.record, row.revision)?;
    }
    Ok(claimed)
}

/// Replaces claimed notifications by what came of them.
pub(crate) fn settle_many(
    ledger: &mut Ledger<'_>,
    settlements: &[Settlement],
) -> Result<Vec<SettleOutcome>, Failure> {
    settlements.iter().map(|settlement| settle(ledger, settlement).map(Ok)).collect()
}

/// Replaces a claimed notification by what came of it, if its row is still as it was handed out. Answers with the rows that
/// stay claimed.
fn settle(ledger: &mut Ledger<'_>, settlement: &Settlement) -> Result<Vec<OutboxRow>, Failure> {
    let row = &settlement.row;
    let Some(pipeline) = ledger.memory.find_name(ledger.db, &row.pipeline)? else {
        return Ok(Vec::new());
    };
    let find = "SELECT revision FROM outbox WHERE pipeline = ?1 AND name = ?2";
    let found: Option<i64> = ledger
        .db
        .prepare_cached(find)?
        .query_row(params![pipeline, row.name], |row| row.get(0))
        .optional()?;
    if found != Some(row.revision as i64) {
        return Ok(Vec::new());
    }
    if !settlement.becomes.iter().any(|(name, _)| *name == row.name) {
        let delete = "DELETE FROM outbox WHERE pipeline = ?1 AND name = ?2";
        ledger.db.prepare_cached(delete)?.execute(params![pipeline, row.name])?;
    }
    let mut claimed = Vec::new();
    for (name, record) in settlement.claimed() {
        if *name == row.name {
            keep(ledger, row, &record, row.revision + 1)?;
        } else if add(ledger, pipeline, name, record.clone())? && record.claimed_until.is_some() {
            let (pipeline, name) = (row.pipeline.clone(), name.clone());
            claimed.push(OutboxRow { pipeline, name, record, revision: 1 });
        }
    }
    Ok(claimed)
}

/// Adds a notification, unless its name is taken; says whether it did.
fn add(
    ledger: &Ledger<'_>,
    pipeline: i64,
    name: &str,
    record: OutboxRecord,
) -> Result<bool, Failure> {
    let key = Key::Outbox(name.to_owned());
    let record = Record::Outbox(record.into());
    let mut values = vec![rusqlite::types::Value::Integer(pipeline)];
    let address = Address::of(&key);
    values.extend(address.key);
    values.extend(searched(&record));
    values.push(record.encode().into());
    let mut create = ledger.db.prepare_cached(&address.table.create)?;
    Ok(create.execute(params_from_iter(values))? > 0)
}

fn keep(
    ledger: &mut Ledger<'_>,
    row: &OutboxRow,
    record: &OutboxRecord,
    revision: u64,
) -> Result<(), Failure> {
    let pipeline = ledger.memory.name(ledger.db, &row.pipeline)?;
    let update = "UPDATE outbox SET revision = ?3, not_before = ?4, claimed_until = ?5, dead = ?6,
        body = ?7 WHERE pipeline = ?1 AND name = ?2";
    let (not_before, claimed) = (instant(record.not_before), record.claimed_until.map(instant));
    let body = Record::Outbox(record.clone().into()).encode();
    ledger.db.prepare_cached(update)?.execute(params![
        pipeline,
        row.name,
        revision as i64,
        not_before,
        claimed,
        record.dead,
        body
    ])?;
    Ok(())
}
