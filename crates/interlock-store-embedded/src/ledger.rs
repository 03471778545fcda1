//! Listings of slots and spans.
//!
//! Slots are keyed by time, so a listing of all pipelines is a range of the table. For one pipeline the
//! index by hour is walked: one short range for each hour in which anybody had a slot. That is what makes
//! opening 10,000 slots at one instant cheap (docs/adr/0004-ledger-layout.md).

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Key, LedgerEntry, LedgerQuery, LedgerRow, Page};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, named_params, params};

use crate::{
    failure::Failure,
    memory::name_id,
    read::{decoded, instant, one_more, page, timestamp},
};

/// An hour of the index; see schema/0001.sql.
pub(crate) const HOUR: i64 = 3_600_000_000;

/// Greater than every name, since names are ASCII.
const PAST_NAMES: &str = "\u{7f}";

/// The ledger, in the order of its places.
pub(crate) fn ledger(db: &Connection, query: &LedgerQuery) -> Result<Page<LedgerRow>, Failure> {
    let mut found = match &query.pipeline {
        Some(pipeline) => slots_of(db, pipeline, query)?,
        None => slots(db, query)?,
    };
    if query.disposition.as_deref() != Some("open") {
        found.extend(spans(db, query)?);
        found.sort_by_cached_key(LedgerRow::place);
    }
    Ok(page(found, query.limit))
}

/// Where a search begins: the bounds of the question, and what was seen already.
struct Start<'a> {
    from: i64,
    until: i64,
    /// Rows at or before this place were seen: instant, pipeline, schedule.
    after: (i64, &'a str, &'a str),
}

impl<'a> Start<'a> {
    fn of(query: &'a LedgerQuery) -> Self {
        let after = query.after.as_ref().map_or((i64::MIN, "", ""), |after| {
            (instant(after.nominal), after.pipeline.as_str(), after.schedule.as_str())
        });
        // What is finer than stored instants is rounded so that `from ≤ nominal < until` stays true.
        Self { from: rounded_up(query.from), until: rounded_up(query.until), after }
    }

    /// The first instant at which a slot can be.
    fn first(&self) -> i64 {
        self.from.max(self.after.0)
    }
}

fn rounded_up(at: Timestamp) -> i64 {
    let whole = instant(at);
    let is_whole = Timestamp::from_microsecond(whole).is_ok_and(|whole| whole >= at);
    if is_whole { whole } else { whole.saturating_add(1) }
}

/// Slots of all pipelines.
fn slots(db: &Connection, query: &LedgerQuery) -> Result<Vec<LedgerRow>, Failure> {
    let (source, only) = match query.disposition.as_deref() {
        None => ("slots s", ":word IS NULL"),
        Some("completed") => ("slots s", "s.disposition = :word"),
        Some("open") => {
            ("slots s INDEXED BY slots_open", "s.disposition = 'open' AND s.disposition = :word")
        }
        Some(_) => (
            "slots s INDEXED BY slots_by_disposition",
            "s.disposition = :word AND s.disposition NOT IN ('open', 'completed')",
        ),
    };
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.nominal, n.name, s.schedule, s.revision, s.body
         FROM {source} CROSS JOIN names n ON n.id = s.pipeline
         WHERE {only} AND s.nominal >= :first AND s.nominal < :until
           AND (s.nominal, n.name, s.schedule) > (:nominal, :pipeline, :schedule)
         ORDER BY s.nominal, n.name, s.schedule LIMIT :limit"
    ))?;
    let start = Start::of(query);
    let mut rows = statement.query(named_params! {
        ":word": query.disposition,
        ":first": start.first(),
        ":until": start.until,
        ":nominal": start.after.0,
        ":pipeline": start.after.1,
        ":schedule": start.after.2,
        ":limit": one_more(query.limit),
    })?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(slot_row(PipelineId::any(&row.get::<_, String>(1)?)?, row)?);
    }
    Ok(found)
}

/// Slots of one pipeline.
fn slots_of(
    db: &Connection,
    pipeline: &PipelineId,
    query: &LedgerQuery,
) -> Result<Vec<LedgerRow>, Failure> {
    let Some(id) = name_id(db, pipeline)? else { return Ok(vec![]) };
    let mut start = Start::of(query);
    // Within one pipeline the place is (instant, schedule); another pipeline's place is before or after
    // all schedules of this one.
    start.after.2 = match start.after.1.cmp(pipeline.as_str()) {
        std::cmp::Ordering::Less => "",
        std::cmp::Ordering::Equal => start.after.2,
        std::cmp::Ordering::Greater => PAST_NAMES,
    };
    if query.disposition.as_deref() == Some("open") {
        return open_slots_of(db, (id, pipeline), &start, query.limit);
    }
    let Some((first, last)) = bounds(db, start.first(), start.until)? else { return Ok(vec![]) };
    let mut statement = db.prepare_cached(
        "SELECT nominal, NULL, schedule, revision, body FROM slots INDEXED BY slots_by_hour
         WHERE nominal / 3600000000 = :hour AND pipeline = :pipeline
           AND nominal >= :first AND nominal < :until AND (nominal, schedule) > (:nominal, :schedule)
           AND (:word IS NULL OR disposition = :word)
         ORDER BY nominal, schedule LIMIT :limit",
    )?;
    let mut found = Vec::new();
    let mut hour = first / HOUR;
    while hour <= last / HOUR && found.len() <= query.limit {
        let before = found.len();
        let mut rows = statement.query(named_params! {
            ":hour": hour,
            ":pipeline": id,
            ":first": start.first(),
            ":until": start.until,
            ":nominal": start.after.0,
            ":schedule": start.after.2,
            ":word": query.disposition,
            ":limit": one_more(query.limit) - before as i64,
        })?;
        while let Some(row) = rows.next()? {
            found.push(slot_row(pipeline.clone(), row)?);
        }
        hour = if found.len() > before { hour + 1 } else { next_hour(db, hour)? };
    }
    Ok(found)
}

fn open_slots_of(
    db: &Connection,
    (id, pipeline): (i64, &PipelineId),
    start: &Start<'_>,
    limit: usize,
) -> Result<Vec<LedgerRow>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT nominal, NULL, schedule, revision, body FROM slots INDEXED BY slots_open
         WHERE disposition = 'open' AND pipeline = ?1 AND nominal >= ?2 AND nominal < ?3
           AND (nominal, schedule) > (?4, ?5) ORDER BY nominal, schedule LIMIT ?6",
    )?;
    let (after, schedule) = (start.after.0, start.after.2);
    let limit = one_more(limit);
    let mut rows =
        statement.query(params![id, start.first(), start.until, after, schedule, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(slot_row(pipeline.clone(), row)?);
    }
    Ok(found)
}

/// The first and last instant of any slot between two.
fn bounds(db: &Connection, from: i64, until: i64) -> Result<Option<(i64, i64)>, rusqlite::Error> {
    let one = |sql: &str, at: i64| -> Result<Option<i64>, rusqlite::Error> {
        db.prepare_cached(sql)?.query_one([at], |row| row.get(0))
    };
    let first = one("SELECT min(nominal) FROM slots WHERE nominal >= ?1", from)?;
    let last = one("SELECT max(nominal) FROM slots WHERE nominal < ?1", until)?;
    Ok(first.zip(last).filter(|(first, last)| first <= last))
}

/// The next hour in which anybody has a slot.
fn next_hour(db: &Connection, hour: i64) -> Result<i64, rusqlite::Error> {
    // Division rounds towards zero, so the hours before 1970 have other edges: go one by one there.
    if hour < 0 {
        return Ok(hour + 1);
    }
    let mut next = db.prepare_cached("SELECT min(nominal) FROM slots WHERE nominal >= ?1")?;
    let next: Option<i64> = next.query_one([(hour + 1) * HOUR], |row| row.get(0))?;
    Ok(next.map_or(i64::MAX, |nominal| nominal / HOUR))
}

/// Spans that touch the interval. They are few: one for each outage of a schedule.
fn spans(db: &Connection, query: &LedgerQuery) -> Result<Vec<LedgerRow>, Failure> {
    let (source, only) = match &query.pipeline {
        Some(_) => (
            "spans s INDEXED BY spans_by_pipeline",
            "s.pipeline = (SELECT id FROM names WHERE name = :only)",
        ),
        None => ("spans s INDEXED BY spans_by_last", ":only IS NULL"),
    };
    // A span comes after the slot with which it begins.
    let after_slot = query.after.as_ref().is_some_and(|after| !after.is_span);
    let comparison = if after_slot { ">=" } else { ">" };
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.nominal, n.name, s.schedule, s.revision, s.body
         FROM {source} CROSS JOIN names n ON n.id = s.pipeline
         WHERE {only} AND s.last >= :from AND s.nominal < :until
           AND (:word IS NULL OR s.disposition = :word)
           AND (s.nominal, n.name, s.schedule) {comparison} (:nominal, :pipeline, :schedule)
         ORDER BY s.nominal, n.name, s.schedule LIMIT :limit"
    ))?;
    let start = Start::of(query);
    let parameters: &[(&str, &dyn ToSql)] = named_params! {
        ":only": query.pipeline.as_ref().map(PipelineId::as_str),
        ":from": start.from,
        ":until": start.until,
        ":word": query.disposition,
        ":nominal": start.after.0,
        ":pipeline": start.after.1,
        ":schedule": start.after.2,
        ":limit": one_more(query.limit),
    };
    let mut rows = statement.query(parameters)?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(span_row(row)?);
    }
    Ok(found)
}

/// Up to how many pipelines with open slots are found by their slots. Where there are more, a walk over all names
/// finds a page of them soon.
const PIPELINES_FOUND_MAX: usize = 1_000;

/// Every open slot, in the order (pipeline, nominal, schedule).
pub(crate) fn open_slots(
    db: &Connection,
    after: Option<&(PipelineId, Timestamp, ScheduleId)>,
    limit: usize,
) -> Result<Page<LedgerRow>, Failure> {
    let (name, nominal, schedule) = after
        .map_or(("", i64::MIN, ""), |(name, nominal, schedule)| {
            (name.as_str(), instant(*nominal), schedule.as_str())
        });
    // A hundred thousand pipelines without an open slot cost nothing: their names are not looked at.
    let few = pipelines_with_open_slots(db)?;
    let names = match &few {
        Some(_) => "(SELECT * FROM names WHERE id IN (SELECT value FROM json_each(?5)))",
        None => "(SELECT * FROM names WHERE ?5 IS NULL)",
    };
    let query = format!(
        "SELECT s.nominal, n.name, s.schedule, s.revision, s.body
         FROM {names} n CROSS JOIN slots s INDEXED BY slots_open ON s.pipeline = n.id
         WHERE s.disposition = 'open' AND n.name >= ?1
           AND (n.name, s.nominal, s.schedule) > (?1, ?2, ?3)
         ORDER BY n.name, s.nominal, s.schedule LIMIT ?4"
    );
    let mut statement = db.prepare_cached(&query)?;
    let mut rows = statement.query(params![name, nominal, schedule, one_more(limit), few])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(slot_row(PipelineId::any(&row.get::<_, String>(1)?)?, row)?);
    }
    Ok(page(found, limit))
}

/// The numbers of the pipelines that have open slots, as a JSON array; nothing when there are many. One step in the index
/// for each of them.
fn pipelines_with_open_slots(db: &Connection) -> Result<Option<String>, rusqlite::Error> {
    let mut next = db.prepare_cached(
        "SELECT pipeline FROM slots INDEXED BY slots_open
         WHERE disposition = 'open' AND pipeline > ?1 ORDER BY pipeline LIMIT 1",
    )?;
    let mut found: Vec<i64> = Vec::new();
    let mut last = i64::MIN;
    while let Some(pipeline) = next.query_row([last], |row| row.get(0)).optional()? {
        if found.len() == PIPELINES_FOUND_MAX {
            return Ok(None);
        }
        found.push(pipeline);
        last = pipeline;
    }
    Ok(Some(format!("{found:?}")))
}

/// Columns: instant, pipeline, schedule, revision, body.
fn slot_row(pipeline: PipelineId, row: &Row<'_>) -> Result<LedgerRow, Failure> {
    let (nominal, schedule) =
        (timestamp(row.get(0)?)?, ScheduleId::any(&row.get::<_, String>(2)?)?);
    let key = Key::Slot(schedule.clone(), nominal);
    let entry = LedgerEntry::Slot(decoded!(Slot, &key, &row.get::<_, String>(4)?));
    Ok(LedgerRow { pipeline, schedule, nominal, entry, revision: row.get::<_, i64>(3)? as u64 })
}

fn span_row(row: &Row<'_>) -> Result<LedgerRow, Failure> {
    let pipeline = PipelineId::any(&row.get::<_, String>(1)?)?;
    let (nominal, schedule) =
        (timestamp(row.get(0)?)?, ScheduleId::any(&row.get::<_, String>(2)?)?);
    let key = Key::Span(schedule.clone(), nominal);
    let entry = LedgerEntry::Span(decoded!(Span, &key, &row.get::<_, String>(4)?));
    Ok(LedgerRow { pipeline, schedule, nominal, entry, revision: row.get::<_, i64>(3)? as u64 })
}
