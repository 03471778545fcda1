//! Reads of rows by key, and of the small listings.
//!
//! Each runs inside a read transaction of its own, so that it sees whole groups only.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    AgendaRow, BackfillQuery, BackfillRow, DueKind, DueRow, EventQuery, EventRow, InboxEntry,
    IncidentQuery, Key, ListOrder, OutboxRow, Page, Record, Row,
    record::{EventRecord, InboxRecord, IncidentRecord, SensorRecord},
};
use jiff::Timestamp;
use rusqlite::{
    Connection, OptionalExtension, named_params, params, params_from_iter, types::Value,
};

use crate::{failure::Failure, memory::name_id, table::Address};

/// The record of a kind that a text stands for; the kind is the key's.
macro_rules! decoded {
    ($kind:ident, $key:expr, $text:expr) => {{
        let interlock_store::Record::$kind(record) = interlock_store::Record::decode($key, $text)?
        else {
            let what = format!("a row of another kind under {:?}", $key);
            return Err($crate::failure::Failure::Unreadable(what));
        };
        record
    }};
}
pub(crate) use decoded;

/// How many events stand in one block of the index by pipeline; see schema/0001.sql.
const BLOCK: i64 = 4_096;

/// An instant as it is stored.
pub(crate) fn instant(at: Timestamp) -> i64 {
    at.as_microsecond()
}

/// An instant as it was stored.
pub(crate) fn timestamp(stored: i64) -> Result<Timestamp, Failure> {
    Ok(Timestamp::from_microsecond(stored)?)
}

/// A limit for SQL: one more than asked for, to see whether there is more.
pub(crate) fn one_more(limit: usize) -> i64 {
    i64::try_from(limit).unwrap_or(i64::MAX - 1).saturating_add(1)
}

/// A page out of one more than was asked for.
pub(crate) fn page<T>(mut items: Vec<T>, limit: usize) -> Page<T> {
    let more = items.len() > limit;
    items.truncate(limit);
    Page { items, more }
}

/// Reads rows by their keys.
pub(crate) fn rows(
    db: &Connection,
    pipeline: &PipelineId,
    keys: &[Key],
) -> Result<Vec<Option<Row<Record>>>, Failure> {
    let Some(pipeline) = name_id(db, pipeline)? else { return Ok(vec![None; keys.len()]) };
    keys.iter().map(|key| row(db, pipeline, key)).collect()
}

/// Reads one row of a pipeline.
pub(crate) fn row(
    db: &Connection,
    pipeline: i64,
    key: &Key,
) -> Result<Option<Row<Record>>, Failure> {
    let address = Address::of(key);
    let values = std::iter::once(Value::Integer(pipeline)).chain(address.key);
    let mut get = db.prepare_cached(&address.table.get)?;
    let pair = |row: &rusqlite::Row<'_>| Ok((row.get::<_, i64>(0)?, row.get::<_, String>(1)?));
    let Some((revision, body)) = get.query_row(params_from_iter(values), pair).optional()? else {
        return Ok(None);
    };
    Ok(Some(Row { record: Record::decode(key, &body)?, revision: revision as u64 }))
}

/// The pipelines with their watermarks, by name.
pub(crate) fn agenda(
    db: &Connection,
    after: Option<&PipelineId>,
    limit: usize,
) -> Result<Page<AgendaRow>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT n.name, p.revision, p.body, w.schedule, w.revision, w.body
         FROM names n JOIN pipelines p ON p.pipeline = n.id
         LEFT JOIN watermarks w ON w.pipeline = n.id
         WHERE n.name > ?1 ORDER BY n.name, w.schedule",
    )?;
    let mut rows = statement.query([after.map_or("", PipelineId::as_str)])?;
    let mut found: Vec<AgendaRow> = Vec::new();
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        if found.last().is_none_or(|last| last.pipeline.as_str() != name) {
            if found.len() > limit {
                break;
            }
            let record =
                Arc::unwrap_or_clone(decoded!(Pipeline, &Key::Pipeline, &row.get::<_, String>(2)?));
            found.push(AgendaRow {
                pipeline: PipelineId::any(name)?,
                record: Row { record, revision: row.get::<_, i64>(1)? as u64 },
                watermarks: BTreeMap::new(),
            });
        }
        if let (Some(last), Some(schedule)) = (found.last_mut(), row.get::<_, Option<String>>(3)?) {
            let schedule = ScheduleId::any(&schedule)?;
            let key = Key::Watermark(schedule.clone());
            let record = decoded!(Watermark, &key, &row.get::<_, String>(5)?);
            let revision = row.get::<_, i64>(4)? as u64;
            last.watermarks.insert(schedule, Row { record, revision });
        }
    }
    Ok(page(found, limit))
}

/// The pipelines with the revisions of their rows, in the order in which they lie in the file: those are read one after
/// the other, and bodies not at all.
pub(crate) fn revisions(
    db: &Connection,
    after: Option<&PipelineId>,
    limit: usize,
) -> Result<Page<(PipelineId, u64)>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT n.name, p.revision FROM pipelines p CROSS JOIN names n ON n.id = p.pipeline
         WHERE p.pipeline > coalesce((SELECT id FROM names WHERE name = ?1), 0)
         ORDER BY p.pipeline LIMIT ?2",
    )?;
    let after = after.map(PipelineId::as_str);
    let mut rows = statement.query(params![after, one_more(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name = row.get_ref(0)?.as_str().map_err(rusqlite::Error::from)?;
        found.push((PipelineId::any(name)?, row.get::<_, i64>(1)? as u64));
    }
    Ok(page(found, limit))
}

/// The sensors of a pipeline.
pub(crate) fn sensors(
    db: &Connection,
    pipeline: &PipelineId,
) -> Result<BTreeMap<String, Row<SensorRecord>>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT key, revision, body FROM sensors
         WHERE pipeline = (SELECT id FROM names WHERE name = ?1)",
    )?;
    let mut rows = statement.query([pipeline.as_str()])?;
    let mut found = BTreeMap::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(0)?;
        let key = Key::Sensor(name.clone());
        let record = Arc::unwrap_or_clone(decoded!(Sensor, &key, &row.get::<_, String>(2)?));
        found.insert(name, Row { record, revision: row.get::<_, i64>(1)? as u64 });
    }
    Ok(found)
}

/// An incident with its address.
type IncidentRow = (PipelineId, String, Row<IncidentRecord>);

/// Incidents, newest first.
pub(crate) fn incidents(
    db: &Connection,
    query: &IncidentQuery,
) -> Result<Page<IncidentRow>, Failure> {
    let only = match query.pipeline {
        Some(_) => "i.pipeline = (SELECT id FROM names WHERE name = :only)",
        None => ":only IS NULL",
    };
    // The first comparison follows from the second; it is the one that an index is entered by.
    let after = match query.after {
        Some(_) => "i.opened_at <= :at AND (i.opened_at, n.name, i.key) < (:at, :name, :key)",
        None => ":at IS NULL AND :name IS NULL AND :key IS NULL",
    };
    // Of all pipelines, those that are not resolved have an index of their own.
    let (source, state) = match (&query.pipeline, query.is_open) {
        (None, Some(true)) => (
            "INDEXED BY incidents_open_by_time",
            "iif(json_valid(i.body), json_extract(i.body, '$.state') <> 'resolved', TRUE) AND :open",
        ),
        _ => ("", "(:open IS NULL OR (json_extract(i.body, '$.state') <> 'resolved') = :open)"),
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT n.name, i.key, i.revision, i.body
         FROM incidents i {source} CROSS JOIN names n ON n.id = i.pipeline
         WHERE {only} AND {after} AND {state}
         ORDER BY i.opened_at DESC, n.name DESC, i.key DESC LIMIT :limit"
    ))?;
    let after = query.after.as_ref();
    let rows = statement.query(named_params! {
        ":only": query.pipeline.as_ref().map(PipelineId::as_str),
        ":at": after.map(|after| instant(after.opened_at)),
        ":name": after.map(|after| after.pipeline.as_str()),
        ":key": after.map(|after| after.key.as_str()),
        ":open": query.is_open,
        ":limit": one_more(query.limit),
    })?;
    Ok(page(incident_rows(rows)?, query.limit))
}

/// Incidents that are not resolved, in the order (pipeline, key), after a given one.
pub(crate) fn open_incidents(
    db: &Connection,
    after: Option<&(PipelineId, String)>,
    limit: usize,
) -> Result<Page<IncidentRow>, Failure> {
    let mut statement = db.prepare_cached(OPEN_INCIDENTS)?;
    let (name, key) = after.map_or(("", ""), |(name, key)| (name.as_str(), key.as_str()));
    let rows = statement.query(params![name, key, one_more(limit)])?;
    Ok(page(incident_rows(rows)?, limit))
}

/// Names in their order, and of each what the index has: a page begins where the last one ended.
const OPEN_INCIDENTS: &str = "SELECT n.name, i.key, i.revision, i.body
     FROM names n CROSS JOIN incidents i INDEXED BY incidents_open ON i.pipeline = n.id
     WHERE n.name >= ?1 AND (n.name > ?1 OR i.key > ?2)
       AND iif(json_valid(i.body), json_extract(i.body, '$.state') <> 'resolved', TRUE)
     ORDER BY n.name, i.key LIMIT ?3";

fn incident_rows(mut rows: rusqlite::Rows<'_>) -> Result<Vec<IncidentRow>, Failure> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let key = Key::Incident(row.get(1)?);
        let record = Arc::unwrap_or_clone(decoded!(Incident, &key, &row.get::<_, String>(3)?));
        let pipeline = PipelineId::any(&row.get::<_, String>(0)?)?;
        found.push((pipeline, row.get(1)?, Row { record, revision: row.get::<_, i64>(2)? as u64 }));
    }
    Ok(found)
}

/// Backfills, in the order (pipeline, number). There is one shard.
pub(crate) fn backfills(
    db: &Connection,
    query: &BackfillQuery,
) -> Result<Page<BackfillRow>, Failure> {
    let only = if query.unfinished { "b.unfinished <> 0" } else { "TRUE" };
    let mut statement = db.prepare_cached(&format!(
        "SELECT n.name, b.number, b.revision, b.body
         FROM backfills b JOIN names n ON n.id = b.pipeline
         WHERE {only} AND (?1 IS NULL OR n.name = ?1)
           AND (?2 IS NULL OR (n.name, b.number) > (?2, ?3))
         ORDER BY n.name, b.number LIMIT ?4"
    ))?;
    let after = query.after.as_ref().map(|(name, number)| (name.as_str(), *number as i64));
    let (name, number) = after.unzip();
    let of = query.pipeline.as_ref().map(PipelineId::as_str);
    let mut rows = statement.query(params![of, name, number, one_more(query.limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let number = row.get::<_, i64>(1)? as u64;
        let record = Arc::unwrap_or_clone(decoded!(
            Backfill,
            &Key::Backfill(number),
            &row.get::<_, String>(3)?
        ));
        found.push(BackfillRow {
            pipeline: PipelineId::any(&row.get::<_, String>(0)?)?,
            number,
            record,
            revision: row.get::<_, i64>(2)? as u64,
        });
    }
    Ok(page(found, query.limit))
}

/// Dead letters, those that came first first.
pub(crate) fn dead_letters(db: &Connection, limit: usize) -> Result<Page<OutboxRow>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT n.name, o.name, o.revision, o.body FROM outbox o JOIN names n ON n.id = o.pipeline
         WHERE o.dead <> 0 ORDER BY o.not_before, n.name, o.name LIMIT ?1",
    )?;
    Ok(page(outbox_rows(statement.query([one_more(limit)])?)?, limit))
}

/// The notifications of a pipeline, in the order of their names, after one.
pub(crate) fn notifications(
    db: &Connection,
    pipeline: &PipelineId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<OutboxRow>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT n.name, o.name, o.revision, o.body
         FROM names n CROSS JOIN outbox o ON o.pipeline = n.id
         WHERE n.name = ?1 AND (?2 IS NULL OR o.name > ?2) ORDER BY o.name LIMIT ?3",
    )?;
    let rows = statement.query(params![pipeline.as_str(), after, one_more(limit)])?;
    Ok(page(outbox_rows(rows)?, limit))
}

fn outbox_rows(mut rows: rusqlite::Rows<'_>) -> Result<Vec<OutboxRow>, Failure> {
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let name: String = row.get(1)?;
        let key = Key::Outbox(name.clone());
        let record = Arc::unwrap_or_clone(decoded!(Outbox, &key, &row.get::<_, String>(3)?));
        let pipeline = PipelineId::any(&row.get::<_, String>(0)?)?;
        found.push(OutboxRow { pipeline, name, record, revision: row.get::<_, i64>(2)? as u64 });
    }
    Ok(found)
}

/// The order of a listing, as SQL says it.
pub(crate) fn direction(order: ListOrder) -> &'static str {
    match order {
        ListOrder::OldestFirst => "ASC",
        ListOrder::NewestFirst => "DESC",
    }
}

/// The numbers between which events are asked for, none of which is asked for itself.
fn bounds(query: &EventQuery) -> (i64, i64) {
    let stored = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    (stored(query.after), stored(query.before))
}

/// Events by their numbers.
pub(crate) fn events(db: &Connection, query: &EventQuery) -> Result<Page<EventRow>, Failure> {
    if let Some(pipeline) = &query.pipeline {
        return Ok(page(events_of(db, pipeline, query)?, query.limit));
    }
    let mut all = db.prepare_cached(&format!(
        "SELECT e.number, n.name, e.body FROM events e JOIN names n ON n.id = e.pipeline
         WHERE e.number > ?1 AND e.number < ?2 ORDER BY e.number {} LIMIT ?3",
        direction(query.order)
    ))?;
    let (after, before) = bounds(query);
    let mut rows = all.query(params![after, before, one_more(query.limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let pipeline = PipelineId::any(&row.get::<_, String>(1)?)?;
        found.push(event(row.get(0)?, pipeline, &row.get::<_, String>(2)?)?);
    }
    Ok(page(found, query.limit))
}

/// The events of one pipeline, block by block: each is one short range of the index.
fn events_of(
    db: &Connection,
    pipeline: &PipelineId,
    query: &EventQuery,
) -> Result<Vec<EventRow>, Failure> {
    let Some(id) = name_id(db, pipeline)? else { return Ok(vec![]) };
    let (after, before) = bounds(query);
    let last: Option<i64> = db
        .prepare_cached("SELECT max(number) FROM events WHERE number < ?1")?
        .query_one([before], |row| row.get(0))?;
    let first: Option<i64> = db
        .prepare_cached("SELECT min(number) FROM events WHERE number > ?1")?
        .query_one([after], |row| row.get(0))?;
    let (Some(first), Some(last)) = (first, last) else { return Ok(vec![]) };
    let mut statement = db.prepare_cached(&format!(
        "SELECT number, body FROM events INDEXED BY events_by_block
         WHERE number / 4096 = ?1 AND pipeline = ?2 AND number > ?3 AND number < ?4
         ORDER BY number {} LIMIT ?5",
        direction(query.order)
    ))?;
    let mut found = Vec::new();
    let mut blocks = first / BLOCK..=last / BLOCK;
    while let Some(block) = match query.order {
        ListOrder::OldestFirst => blocks.next(),
        ListOrder::NewestFirst => blocks.next_back(),
    } {
        let room = one_more(query.limit) - found.len() as i64;
        let mut rows = statement.query(params![block, id, after, before, room])?;
        while let Some(row) = rows.next()? {
            found.push(event(row.get(0)?, pipeline.clone(), &row.get::<_, String>(1)?)?);
        }
        if found.len() > query.limit {
            break;
        }
    }
    Ok(found)
}

fn event(number: i64, pipeline: PipelineId, body: &str) -> Result<EventRow, Failure> {
    Ok(EventRow { number: number as u64, pipeline, record: EventRecord::decode(body)?.into() })
}

/// Due entries at or before an instant, earliest first.
pub(crate) fn due(
    db: &Connection,
    until: Timestamp,
    limit: usize,
) -> Result<Page<DueRow>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT d.at, n.name, d.kind, d.name, d.body FROM due d JOIN names n ON n.id = d.pipeline
         WHERE d.at <= ?1 ORDER BY d.at, d.pipeline, d.kind, d.name LIMIT ?2",
    )?;
    let mut rows = statement.query(params![instant(until), one_more(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        let word: String = row.get(2)?;
        let kind = DueKind::ALL.into_iter().find(|kind| kind.as_str() == word);
        let kind = kind.ok_or_else(|| Failure::Unreadable(format!("due for a `{word}`")))?;
        let (at, name): (_, String) = (timestamp(row.get(0)?)?, row.get(3)?);
        let key = Key::Due(at, kind, name.clone());
        let record = decoded!(Due, &key, &row.get::<_, String>(4)?);
        let pipeline = PipelineId::any(&row.get::<_, String>(1)?)?;
        found.push(DueRow { pipeline, at, kind, name, record });
    }
    Ok(page(found, limit))
}

/// Unapplied entries that are in the ledger, oldest first.
pub(crate) fn inbox(db: &Connection, limit: usize) -> Result<Vec<InboxEntry>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT i.number, n.name, i.key, i.received_at, i.body
         FROM inbox i JOIN names n ON n.id = i.pipeline ORDER BY i.number LIMIT ?1",
    )?;
    let mut rows = statement.query([one_more(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(InboxEntry {
            number: row.get::<_, i64>(0)? as u64,
            pipeline: PipelineId::any(&row.get::<_, String>(1)?)?,
            key: row.get(2)?,
            received_at: timestamp(row.get(3)?)?,
            record: InboxRecord::read(&row.get::<_, String>(4)?),
        });
    }
    Ok(found)
}
