//! The ledger as a whole: what an archive follows, and what a move takes along.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Archived, ChangedRow, Changes, DueKind, Freight, Key, Portion, Record, Row, RunKey, StoreError,
    StoredRow,
};
use rusqlite::{CachedStatement, Connection, OptionalExtension, params, params_from_iter};

use crate::{
    failure::Failure,
    memory::name_id,
    queue::{self, Letter},
    read::{self, one_more, timestamp},
    table::{Address, Kind, searched, tables},
    writer::Ledger,
};

/// Notes that a row was written or deleted, if somebody follows.
pub(crate) fn note(ledger: &mut Ledger<'_>, pipeline: i64, key: &Key) -> Result<(), Failure> {
    if !ledger.memory.is_followed || !key.is_followed() {
        return Ok(());
    }
    let number = ledger.memory.next_event();
    let insert = "INSERT INTO changes (number, pipeline, key) VALUES (?1, ?2, ?3)";
    ledger.db.prepare_cached(insert)?.execute(params![number, pipeline, key.to_string()])?;
    Ok(())
}

/// Changes after a number, each row as it is now.
pub(crate) fn changes(db: &Connection, after: u64, limit: usize) -> Result<Changes, Failure> {
    let after = i64::try_from(after).unwrap_or(i64::MAX);
    let mut statement = db.prepare_cached(
        "SELECT c.number, c.pipeline, n.name, c.key FROM changes c JOIN names n ON n.id = c.pipeline
         WHERE c.number > ?1 ORDER BY c.number LIMIT ?2",
    )?;
    let mut rows = statement.query(params![after, one_more(limit)])?;
    let mut items = Vec::new();
    while let Some(row) = rows.next()? {
        let text: String = row.get(3)?;
        let key = Key::parse(&text)
            .ok_or_else(|| Failure::Unreadable(format!("a change of `{text}`")))?;
        items.push(ChangedRow {
            number: row.get::<_, i64>(0)? as u64,
            pipeline: PipelineId::any(&row.get::<_, String>(2)?)?,
            row: read::row(db, row.get(1)?, &key)?,
            key,
        });
    }
    let more = items.len() > limit;
    items.truncate(limit);
    let since = counter(db, "followed")?.map(|since| since as u64);
    Ok(Changes { items, more, since, last: counter(db, "event")?.unwrap_or(0) as u64 })
}

fn counter(db: &Connection, name: &str) -> Result<Option<i64>, rusqlite::Error> {
    let mut find = db.prepare_cached("SELECT value FROM counters WHERE name = ?1")?;
    find.query_row([name], |row| row.get(0)).optional()
}

/// Keeps how far an archive has read, and forgets what it has; or follows no longer.
pub(crate) fn archived(ledger: &mut Ledger<'_>, up_to: Option<Archived>) -> Result<(), Failure> {
    let db = ledger.db;
    let Some(up_to) = up_to else {
        ledger.memory.is_followed = false;
        db.execute_batch("DELETE FROM changes; DELETE FROM counters WHERE name = 'followed'")?;
        return Ok(());
    };
    let last = ledger.memory.last_event();
    let known = counter(db, "followed")?;
    // What was before the first call was not noted.
    let read = i64::try_from(up_to.changes).unwrap_or(last).min(last);
    let since = known.map_or(last, |known| known.max(read));
    let keep = "INSERT OR REPLACE INTO counters VALUES ('followed', ?1)";
    db.prepare_cached(keep)?.execute([since])?;
    db.prepare_cached("DELETE FROM changes WHERE number <= ?1")?.execute([since])?;
    ledger.memory.is_followed = true;
    Ok(())
}

/// Some of all rows, table by table, each in the order of its primary key.
pub(crate) fn portion(db: &Connection, from: &str, limit: usize) -> Result<Portion, Failure> {
    let place = if from.is_empty() { None } else { Some(place(from)?) };
    let limit = limit.max(1);
    let mut items: Vec<StoredRow> = Vec::new();
    let mut kinds = tables().skip(place.as_ref().map_or(0, |(_, key)| Kind::of(key) as usize));
    if let Some((pipeline, key)) = &place
        && let Some((kind, table)) = kinds.next()
    {
        let id = name_id(db, pipeline)?.ok_or_else(|| no_place(from))?;
        let mut values = vec![rusqlite::types::Value::Integer(id)];
        values.extend(Address::of(key).key);
        values.push((limit as i64).into());
        let mut statement = db.prepare_cached(&table.walk_on)?;
        collect(&mut statement, kind, values, &mut items)?;
    }
    for (kind, table) in kinds {
        if items.len() >= limit {
            break;
        }
        let room = vec![((limit - items.len()) as i64).into()];
        collect(&mut db.prepare_cached(&table.walk)?, kind, room, &mut items)?;
    }
    let last = items.last().filter(|_| items.len() >= limit);
    let next = last.map(|last| format!("{} {}", last.pipeline, last.key));
    Ok(Portion { items, next })
}

fn place(from: &str) -> Result<(PipelineId, Key), Failure> {
    let (name, key) = from.split_once(' ').ok_or_else(|| no_place(from))?;
    Ok((PipelineId::any(name)?, Key::parse(key).ok_or_else(|| no_place(from))?))
}

fn no_place(from: &str) -> Failure {
    Failure::Said(StoreError::permanent(format!("`{from}` is no place in this store")))
}

/// Columns: name, revision, body, the pipeline's number, then the key.
fn collect(
    statement: &mut CachedStatement<'_>,
    kind: Kind,
    values: Vec<rusqlite::types::Value>,
    items: &mut Vec<StoredRow>,
) -> Result<(), Failure> {
    let mut rows = statement.query(params_from_iter(values))?;
    while let Some(row) = rows.next()? {
        let key = key_of(kind, row)?;
        let record = Record::decode(&key, &row.get::<_, String>(2)?)?;
        let revision = row.get::<_, i64>(1)? as u64;
        let pipeline = PipelineId::any(&row.get::<_, String>(0)?)?;
        items.push(StoredRow { pipeline, key, row: Row { record, revision } });
    }
    Ok(())
}

/// The key that the columns from the fifth on say; see [`Address::of`].
fn key_of(kind: Kind, row: &rusqlite::Row<'_>) -> Result<Key, Failure> {
    let schedule =
        || -> Result<ScheduleId, Failure> { Ok(ScheduleId::any(&row.get::<_, String>(4)?)?) };
    Ok(match kind {
        Kind::Pipeline => Key::Pipeline,
        Kind::Version => Key::Version(row.get::<_, i64>(4)? as u64),
        Kind::Watermark => Key::Watermark(schedule()?),
        Kind::Slot => Key::Slot(schedule()?, timestamp(row.get(5)?)?),
        Kind::Span => Key::Span(schedule()?, timestamp(row.get(5)?)?),
        Kind::Run => Key::Run(RunKey {
            schedule: schedule()?,
            nominal: timestamp(row.get(5)?)?,
            generation: row.get(6)?,
            attempt: row.get(7)?,
        }),
        Kind::Sensor => Key::Sensor(row.get(4)?),
        Kind::Incident => Key::Incident(row.get(4)?),
        Kind::Due => {
            let word: String = row.get(5)?;
            let kind = DueKind::parse(&word)
                .ok_or_else(|| Failure::Unreadable(format!("something due of a kind `{word}`")))?;
            Key::Due(timestamp(row.get(4)?)?, kind, row.get(6)?)
        }
        Kind::Outbox => Key::Outbox(row.get(4)?),
        Kind::Applied => Key::Applied(row.get(4)?),
        Kind::Backfill => Key::Backfill(row.get::<_, i64>(4)? as u64),
    })
}

/// Takes over what another store holds.
pub(crate) fn import(ledger: &mut Ledger<'_>, freight: &Freight) -> Result<(), Failure> {
    for StoredRow { pipeline, key, row } in &freight.rows {
        let address = Address::of(key);
        let mut values = vec![ledger.memory.name(ledger.db, pipeline)?.into()];
        values.extend(address.key);
        values.extend(searched(&row.record));
        values.push(row.record.encode().into());
        values.push((row.revision as i64).into());
        ledger.db.prepare_cached(&address.table.import)?.execute(params_from_iter(values))?;
    }
    let keep = "INSERT OR IGNORE INTO events (number, pipeline, body) VALUES (?1, ?2, ?3)";
    let mut last = freight.last;
    for event in &freight.events {
        let pipeline = ledger.memory.name(ledger.db, &event.pipeline)?;
        let number = event.number as i64;
        let mut keep = ledger.db.prepare_cached(keep)?;
        keep.execute(params![number, pipeline, event.record.encode()])?;
        last = last.max(event.number);
    }
    ledger.memory.count_from(last as i64);
    for entry in &freight.inbox {
        let (pipeline, key) = (entry.pipeline.clone(), entry.key.clone());
        let (received_at, body) = (entry.received_at, entry.record.encode());
        queue::post(ledger, &Letter { pipeline, key, received_at, body })?;
    }
    Ok(())
}
