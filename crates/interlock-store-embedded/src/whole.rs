//! The ledger as a whole: what an archive follows, and what a move takes along.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Archived, ChangedRow, Changes, DueKind, Forgetting, Freight, Key, Mark, Portion, Record, Row,
    Rows, RunKey, StoreError, StoreId, StoredRow, kept,
};
use jiff::Timestamp;
use rusqlite::{
    CachedStatement, Connection, OptionalExtension, params, params_from_iter, types::Value,
};

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
    let number = |name| Ok::<_, rusqlite::Error>(counter(db, name)?.map(|number| number as u64));
    let since = number("followed")?;
    let archived = match (number("archived_events")?, number("archived_changes")?) {
        (Some(events), Some(changes)) => Some(Archived { events, changes }),
        // One that was there before this was kept.
        _ => since.map(|_| Archived::default()),
    };
    Ok(Changes { items, more, since, last: number("event")?.unwrap_or(0), archived })
}

/// Which store it is, and the last number that it has given.
pub(crate) fn mark(db: &Connection) -> Result<Mark, Failure> {
    let (identity, last) = (counter(db, "identity")?, counter(db, "event")?);
    let identity = identity.ok_or_else(|| Failure::Unreadable("which store it is".to_owned()))?;
    Ok(Mark { store: StoreId(identity as u64), number: last.unwrap_or(0) as u64 })
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
        db.execute_batch(
            "DELETE FROM changes; DELETE FROM counters
             WHERE name IN ('followed', 'archived_events', 'archived_changes')",
        )?;
        return Ok(());
    };
    let last = ledger.memory.last_event();
    let known = counter(db, "followed")?;
    // What was before the first call was not noted.
    let read = i64::try_from(up_to.changes).unwrap_or(last).min(last);
    let since = known.map_or(last, |known| known.max(read));
    let mut keep = db.prepare_cached("INSERT OR REPLACE INTO counters VALUES (?1, ?2)")?;
    keep.execute(params!["followed", since])?;
    keep.execute(params!["archived_changes", read])?;
    keep.execute(params!["archived_events", i64::try_from(up_to.events).unwrap_or(last)])?;
    db.prepare_cached("DELETE FROM changes WHERE number <= ?1")?.execute([since])?;
    ledger.memory.is_followed = true;
    Ok(())
}

/// Some of the rows, table by table, each in the order of its primary key.
pub(crate) fn portion(
    db: &Connection,
    which: Rows,
    from: &str,
    limit: usize,
) -> Result<Portion, Failure> {
    let place = if from.is_empty() { None } else { Some(place(from)?) };
    let limit = limit.max(1);
    let mut items: Vec<StoredRow> = Vec::new();
    let first = place.as_ref().map_or(0, |(_, key)| Kind::of(key) as usize);
    let only = which.first_key().map(|key| Kind::of(&key));
    let mut kinds = tables().skip(first).filter(|(kind, _)| only.is_none_or(|only| only == *kind));
    if let Some((pipeline, key)) = &place
        && let Some((kind, table)) = kinds.next()
    {
        let id = name_id(db, pipeline)?.ok_or_else(|| no_place(from))?;
        let mut values = vec![Value::Integer(id)];
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
    values: Vec<Value>,
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
    freight.rows.iter().try_for_each(|row| keep(ledger, row))?;
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
    if let Some(StoreId(identity)) = freight.store {
        let keep = "INSERT OR REPLACE INTO counters VALUES ('identity', ?1)";
        ledger.db.prepare_cached(keep)?.execute([identity as i64])?;
    }
    for entry in &freight.inbox {
        let (pipeline, key) = (entry.pipeline.clone(), entry.key.clone());
        let (received_at, body) = (entry.received_at, entry.record.encode());
        queue::post(ledger, &Letter { pipeline, key, received_at, body })?;
    }
    Ok(())
}

/// Writes a row as it is, its revision included.
fn keep(ledger: &mut Ledger<'_>, stored: &StoredRow) -> Result<(), Failure> {
    let StoredRow { pipeline, key, row } = stored;
    let address = Address::of(key);
    let mut values = vec![ledger.memory.name(ledger.db, pipeline)?.into()];
    values.extend(address.key);
    values.extend(searched(&row.record));
    values.push(row.record.encode().into());
    values.push((row.revision as i64).into());
    ledger.db.prepare_cached(&address.table.import)?.execute(params_from_iter(values))?;
    Ok(())
}

/// Takes out what is old, and says below which instant.
pub(crate) fn forget(
    ledger: &mut Ledger<'_>,
    what: &Forgetting,
    now: Timestamp,
) -> Result<usize, Failure> {
    if let Some(floor) = what.floor {
        raise_floor(ledger, floor, now)?;
    }
    let db = ledger.db;
    let mut gone = 0;
    for (pipeline, key, revision) in &what.rows {
        let Some(id) = ledger.memory.find_name(db, pipeline)? else { continue };
        let Address { table, key: place } = Address::of(key);
        let mut values = vec![Value::Integer(id)];
        values.extend(place);
        let its_runs = values.clone();
        values.push((*revision as i64).into());
        if db.prepare_cached(&table.remove)?.execute(params_from_iter(values))? == 0 {
            continue;
        }
        gone += 1;
        if let Key::Slot(..) = key {
            db.prepare_cached(
                "DELETE FROM runs WHERE pipeline = ?1 AND schedule = ?2 AND nominal = ?3",
            )?
            .execute(params_from_iter(its_runs))?;
        }
    }
    if what.events > 0 {
        let events = i64::try_from(what.events).unwrap_or(i64::MAX);
        db.prepare_cached("DELETE FROM events WHERE number <= ?1")?.execute([events])?;
    }
    Ok(gone)
}

fn raise_floor(ledger: &mut Ledger<'_>, floor: Timestamp, now: Timestamp) -> Result<(), Failure> {
    let (pipeline, key) = (PipelineId::system(), Key::Sensor(kept::FLOOR_KEY.to_owned()));
    let id = ledger.memory.name(ledger.db, &pipeline)?;
    let known = read::row(ledger.db, id, &key)?;
    if known.as_ref().and_then(|row| kept::floor_of(&row.record)).is_some_and(|at| at >= floor) {
        return Ok(());
    }
    let revision = known.map_or(1, |row| row.revision + 1);
    let row = Row { record: kept::floor_record(floor, now), revision };
    keep(ledger, &StoredRow { pipeline, key, row })
}
