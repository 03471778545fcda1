//! Listings of slots and spans.
//!
//! Slots are keyed by time, so a listing of all pipelines is a range of the table. For one pipeline the
//! index by hour is walked: one short range for each hour in which it had a slot. That is what makes
//! opening 10,000 slots at one instant cheap (docs/adr/0004-ledger-layout.md).

use std::{cmp::Ordering, collections::BinaryHeap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Key, LedgerEntry, LedgerQuery, LedgerRow, ListOrder, Page};
use jiff::Timestamp;
use rusqlite::{Connection, OptionalExtension, Row, ToSql, named_params, params};

use crate::{
    failure::Failure,
    memory::name_id,
    read::{decoded, direction, instant, one_more, page, timestamp},
};

/// An hour of the index; see schema/0001.sql.
pub(crate) const HOUR: i64 = 3_600_000_000;

/// Hours of a pipeline that are looked at together: few at first, because a page is often full soon, then twice as many each time.
const HOURS_FIRST: i64 = 8;
const HOURS_MAX: i64 = 512;

/// Greater than every name, since names are ASCII.
const PAST_NAMES: &str = "\u{7f}";

/// The ledger, in the order of its places.
pub(crate) fn ledger(db: &Connection, query: &LedgerQuery) -> Result<Page<LedgerRow>, Failure> {
    let is_open = query.disposition.as_deref() == Some("open");
    let mut found = match &query.pipeline {
        Some(pipeline) => slots_of(db, pipeline, query)?,
        None if is_open => open_in_time(db, query)?,
        None => slots(db, query)?,
    };
    // Slots come in order already.
    let spans = if is_open { vec![] } else { spans(db, query)? };
    if !spans.is_empty() {
        found.extend(spans);
        found.sort_by_cached_key(LedgerRow::place);
        if query.order == ListOrder::NewestFirst {
            found.reverse();
        }
    }
    Ok(page(found, query.limit))
}

/// Where a search begins: the bounds of the question, and what was seen already.
struct Start<'a> {
    from: i64,
    until: i64,
    /// Rows up to this place were seen, in the order of the listing: instant, pipeline, schedule.
    after: (i64, &'a str, &'a str),
}

impl<'a> Start<'a> {
    fn of(query: &'a LedgerQuery) -> Self {
        let begin = match query.order {
            ListOrder::OldestFirst => (i64::MIN, "", ""),
            ListOrder::NewestFirst => (i64::MAX, "", ""),
        };
        let after = query.after.as_ref().map_or(begin, |after| {
            (instant(after.nominal), after.pipeline.as_str(), after.schedule.as_str())
        });
        // What is finer than stored instants is rounded so that `from ≤ nominal < until` stays true.
        Self { from: rounded_up(query.from), until: rounded_up(query.until), after }
    }

    /// The instants between which a slot can be: the first, and the first that is too late.
    fn range(&self, order: ListOrder) -> (i64, i64) {
        match order {
            ListOrder::OldestFirst => (self.from.max(self.after.0), self.until),
            ListOrder::NewestFirst => (self.from, self.until.min(self.after.0.saturating_add(1))),
        }
    }
}

/// How a place compares with the one after which to go on, as SQL says it. A span and the slot with which it begins have one
/// place; the span comes later where the oldest come first.
fn is_after(query: &LedgerQuery, table: LedgerTable) -> &'static str {
    let was_span = query.after.as_ref().map(|after| after.is_span);
    match (query.order, table) {
        (ListOrder::OldestFirst, LedgerTable::Spans) if was_span == Some(false) => ">=",
        (ListOrder::OldestFirst, _) => ">",
        (ListOrder::NewestFirst, LedgerTable::Slots) if was_span == Some(true) => "<=",
        (ListOrder::NewestFirst, _) => "<",
    }
}

/// The tables that the ledger is listed from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum LedgerTable {
    Slots,
    Spans,
}

fn rounded_up(at: Timestamp) -> i64 {
    let whole = instant(at);
    let is_whole = Timestamp::from_microsecond(whole).is_ok_and(|whole| whole >= at);
    if is_whole { whole } else { whole.saturating_add(1) }
}

/// Slots of all pipelines, open ones excepted.
fn slots(db: &Connection, query: &LedgerQuery) -> Result<Vec<LedgerRow>, Failure> {
    let (source, only) = match query.disposition.as_deref() {
        None => ("slots s", ":word IS NULL"),
        Some("completed") => ("slots s", "s.disposition = :word"),
        Some(_) => (
            "slots s INDEXED BY slots_by_disposition",
            "s.disposition = :word AND s.disposition NOT IN ('open', 'completed')",
        ),
    };
    let (after, direction) = (is_after(query, LedgerTable::Slots), direction(query.order));
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.nominal, n.name, s.schedule, s.revision, s.body
         FROM {source} CROSS JOIN names n ON n.id = s.pipeline
         WHERE {only} AND s.nominal >= :first AND s.nominal < :until
           AND (s.nominal, n.name, s.schedule) {after} (:nominal, :pipeline, :schedule)
         ORDER BY s.nominal {direction}, n.name {direction}, s.schedule {direction} LIMIT :limit"
    ))?;
    let start = Start::of(query);
    let (first, until) = start.range(query.order);
    let mut rows = statement.query(named_params! {
        ":word": query.disposition,
        ":first": first,
        ":until": until,
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
        Ordering::Less => "",
        Ordering::Equal => start.after.2,
        Ordering::Greater => PAST_NAMES,
    };
    if query.disposition.as_deref() == Some("open") {
        return open_slots_of(db, (id, pipeline), (&start, query));
    }
    let (from, until) = start.range(query.order);
    let Some((first, last)) = bounds(db, from, until)? else { return Ok(vec![]) };
    let (after, direction) = (is_after(query, LedgerTable::Slots), direction(query.order));
    let mut statement = db.prepare_cached(&format!(
        "SELECT nominal, NULL, schedule, revision, body FROM slots INDEXED BY slots_by_hour
         WHERE nominal / 3600000000 = :hour AND pipeline = :pipeline
           AND nominal >= :first AND nominal < :until
           AND (nominal, schedule) {after} (:nominal, :schedule)
           AND (:word IS NULL OR disposition = :word)
         ORDER BY nominal {direction}, schedule {direction} LIMIT :limit"
    ))?;
    let mut found = Vec::new();
    let mut walk =
        HourWalk { left: HourRange { first: first / HOUR, last: last / HOUR }, width: HOURS_FIRST };
    while found.len() <= query.limit
        && let Some(window) = walk.next(query.order)
    {
        let own = hours_of(db, id, window, query.order)?;
        for hour in &own {
            let mut rows = statement.query(named_params! {
                ":hour": hour,
                ":pipeline": id,
                ":first": from,
                ":until": until,
                ":nominal": start.after.0,
                ":schedule": start.after.2,
                ":word": query.disposition,
                ":limit": one_more(query.limit) - found.len() as i64,
            })?;
            while let Some(row) = rows.next()? {
                found.push(slot_row(pipeline.clone(), row)?);
            }
            if found.len() > query.limit {
                break;
            }
        }
        if own.is_empty() {
            walk.jump(db, query.order)?;
        }
    }
    Ok(found)
}

/// Hours of the index; both ends are included.
#[derive(Debug, Clone, Copy)]
struct HourRange {
    first: i64,
    last: i64,
}

/// The hours that are left to look at, and how many of them are next.
struct HourWalk {
    left: HourRange,
    width: i64,
}

impl HourWalk {
    /// The next hours, in the order of a listing; nothing when all were looked at.
    fn next(&mut self, order: ListOrder) -> Option<HourRange> {
        let HourRange { first, last } = self.left;
        if first > last {
            return None;
        }
        let width = self.width;
        self.width = (width * 2).min(HOURS_MAX);
        Some(match order {
            ListOrder::OldestFirst => {
                let end = last.min(first.saturating_add(width - 1));
                self.left.first = end.saturating_add(1);
                HourRange { first, last: end }
            }
            ListOrder::NewestFirst => {
                let begin = first.max(last.saturating_sub(width - 1));
                self.left.last = begin.saturating_sub(1);
                HourRange { first: begin, last }
            }
        })
    }

    /// Leaves out hours in which no pipeline has a slot.
    fn jump(&mut self, db: &Connection, order: ListOrder) -> Result<(), rusqlite::Error> {
        match order {
            ListOrder::OldestFirst => {
                let first = &mut self.left.first;
                *first = next_hour(db, first.saturating_sub(1))?.max(*first);
            }
            ListOrder::NewestFirst => {
                let last = &mut self.left.last;
                *last = last_hour(db, last.saturating_add(1))?.min(*last);
            }
        }
        Ok(())
    }
}

/// The hours of a window in which a pipeline has slots: one step in the index for each hour, in one statement.
fn hours_of(
    db: &Connection,
    pipeline: i64,
    window: HourRange,
    order: ListOrder,
) -> Result<Vec<i64>, rusqlite::Error> {
    let mut statement = db.prepare_cached(
        "WITH RECURSIVE hours (hour) AS (SELECT ?1 UNION ALL SELECT hour + 1 FROM hours WHERE hour < ?2)
         SELECT hour FROM hours WHERE EXISTS (
             SELECT 1 FROM slots INDEXED BY slots_by_hour
             WHERE nominal / 3600000000 = hour AND pipeline = ?3)",
    )?;
    let hours =
        statement.query_map(params![window.first, window.last, pipeline], |row| row.get(0))?;
    let mut hours: Vec<i64> = hours.collect::<Result<_, _>>()?;
    hours.sort_unstable();
    if order == ListOrder::NewestFirst {
        hours.reverse();
    }
    Ok(hours)
}

/// Open slots of one pipeline. The bounds on the instant alone are those that the index can begin at.
fn open_of(query: &LedgerQuery) -> String {
    let (after, direction) = (is_after(query, LedgerTable::Slots), direction(query.order));
    format!(
        "SELECT nominal, NULL, schedule, revision, body FROM slots INDEXED BY slots_open
         WHERE disposition = 'open' AND pipeline = ?1 AND nominal >= ?2 AND nominal < ?3
           AND (nominal, schedule) {after} (?4, ?5)
         ORDER BY nominal {direction}, schedule {direction} LIMIT ?6"
    )
}

fn open_slots_of(
    db: &Connection,
    (id, pipeline): (i64, &PipelineId),
    (start, query): (&Start<'_>, &LedgerQuery),
) -> Result<Vec<LedgerRow>, Failure> {
    let mut statement = db.prepare_cached(&open_of(query))?;
    let (after, schedule) = (start.after.0, start.after.2);
    let ((first, until), limit) = (start.range(query.order), one_more(query.limit));
    let mut rows = statement.query(params![id, first, until, after, schedule, limit])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(slot_row(pipeline.clone(), row)?);
    }
    Ok(found)
}

/// The places of open slots of one pipeline, from the index alone.
fn open_places_of(order: ListOrder) -> String {
    let direction = direction(order);
    format!(
        "SELECT nominal, schedule FROM slots INDEXED BY slots_open
         WHERE disposition = 'open' AND pipeline = ?1 AND nominal >= ?2 AND nominal < ?3
         ORDER BY nominal {direction}, schedule {direction}"
    )
}

/// A value that grows in the order of a listing. All of one list have the same order.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Turned<T> {
    value: T,
    order: ListOrder,
}

impl<T: Ord> Ord for Turned<T> {
    fn cmp(&self, other: &Self) -> Ordering {
        match self.order {
            ListOrder::OldestFirst => self.value.cmp(&other.value),
            ListOrder::NewestFirst => other.value.cmp(&self.value),
        }
    }
}

impl<T: Ord> PartialOrd for Turned<T> {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// The place of an open slot, with the number of its pipeline.
type OpenPlace = Turned<(i64, String, String, i64)>;

/// Open slots of all pipelines, in order of time.
///
/// The index has them by pipeline. So the first of each pipeline is looked up, and pipelines are walked in the order
/// of those until the page is full of what is older than all that is left: a page costs its own length and a step for
/// each pipeline that has open slots, however many those are.
fn open_in_time(db: &Connection, query: &LedgerQuery) -> Result<Vec<LedgerRow>, Failure> {
    let (start, order) = (Start::of(query), query.order);
    let (from, until) = start.range(order);
    let mut walk = db.prepare_cached(&open_places_of(order))?;
    let mut firsts: Vec<(Turned<i64>, i64)> = Vec::new();
    for id in pipelines_with_open_slots(db, usize::MAX)?.unwrap_or_default() {
        let first = walk.query_row(params![id, from, until], |row| row.get(0)).optional()?;
        firsts.extend(first.map(|value| (Turned { value, order }, id)));
    }
    firsts.sort_unstable();
    let mut name_of = db.prepare_cached("SELECT name FROM names WHERE id = ?1")?;
    let room = query.limit.saturating_add(1);
    let seen = query.after.as_ref().map(|after| (start.after, after.is_span));
    let is_seen = |place: (i64, &str, &str)| {
        // A span and the slot with which it begins have one place.
        let slot = Turned { value: (place, false), order };
        seen.is_some_and(|seen| slot <= Turned { value: seen, order })
    };
    // The first so far; the last of them is on top.
    let mut page: BinaryHeap<OpenPlace> = BinaryHeap::new();
    let is_past = |page: &BinaryHeap<OpenPlace>, at: &Turned<i64>| {
        let last = page.peek().filter(|_| page.len() >= room);
        last.is_some_and(|last| *at > Turned { value: last.value.0, order })
    };
    for (first, id) in firsts {
        if is_past(&page, &first) {
            break;
        }
        let name: String = name_of.query_row([id], |row| row.get(0))?;
        let mut rows = walk.query(params![id, from, until])?;
        while let Some(row) = rows.next()? {
            let (nominal, schedule): (i64, String) = (row.get(0)?, row.get(1)?);
            if is_past(&page, &Turned { value: nominal, order }) {
                break;
            }
            if !is_seen((nominal, &name, &schedule)) {
                page.push(Turned { value: (nominal, name.clone(), schedule, id), order });
            }
            if page.len() > room {
                page.pop();
            }
        }
    }
    let mut whole = db.prepare_cached(
        "SELECT nominal, NULL, schedule, revision, body FROM slots
         WHERE nominal = ?1 AND pipeline = ?2 AND schedule = ?3",
    )?;
    let mut found = Vec::new();
    for Turned { value: (nominal, name, schedule, id), .. } in page.into_sorted_vec() {
        let pipeline = PipelineId::any(&name)?;
        let mut rows = whole.query(params![nominal, id, schedule])?;
        if let Some(row) = rows.next()? {
            found.push(slot_row(pipeline, row)?);
        }
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

/// The last hour before one in which anybody has a slot.
fn last_hour(db: &Connection, hour: i64) -> Result<i64, rusqlite::Error> {
    // Division rounds towards zero, so the hours up to 1970 have other edges: go one by one there.
    if hour <= 0 {
        return Ok(hour - 1);
    }
    let mut last = db.prepare_cached("SELECT max(nominal) FROM slots WHERE nominal < ?1")?;
    let last: Option<i64> = last.query_one([hour * HOUR], |row| row.get(0))?;
    Ok(last.map_or(i64::MIN, |nominal| nominal / HOUR))
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
    let (after, direction) = (is_after(query, LedgerTable::Spans), direction(query.order));
    let mut statement = db.prepare_cached(&format!(
        "SELECT s.nominal, n.name, s.schedule, s.revision, s.body
         FROM {source} CROSS JOIN names n ON n.id = s.pipeline
         WHERE {only} AND s.last >= :from AND s.nominal < :until
           AND (:word IS NULL OR s.disposition = :word)
           AND (s.nominal, n.name, s.schedule) {after} (:nominal, :pipeline, :schedule)
         ORDER BY s.nominal {direction}, n.name {direction}, s.schedule {direction} LIMIT :limit"
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
///
/// A page goes on where the last one ended: within that pipeline by its instant, and then by name.
pub(crate) fn open_slots(
    db: &Connection,
    after: Option<&(PipelineId, Timestamp, ScheduleId)>,
    limit: usize,
) -> Result<Page<LedgerRow>, Failure> {
    let mut found = Vec::new();
    if let Some((pipeline, nominal, schedule)) = after
        && let Some(id) = name_id(db, pipeline)?
    {
        let nominal = instant(*nominal);
        let after = (nominal, pipeline.as_str(), schedule.as_str());
        let start = Start { from: nominal, until: i64::MAX, after };
        found = open_slots_of(db, (id, pipeline), (&start, &LedgerQuery::everything(limit)))?;
    }
    if found.len() > limit {
        return Ok(page(found, limit));
    }
    let last = after.map_or("", |(pipeline, ..)| pipeline.as_str());
    // A hundred thousand pipelines without an open slot cost nothing: their names are not looked at.
    let Some(few) = pipelines_with_open_slots(db, PIPELINES_FOUND_MAX)? else {
        found.extend(open_by_name(db, last, limit - found.len())?);
        return Ok(page(found, limit));
    };
    for (name, id) in names_after(db, last, &few)? {
        let pipeline = PipelineId::any(&name)?;
        let start = Start { from: i64::MIN, until: i64::MAX, after: (i64::MIN, "", "") };
        let rest = LedgerQuery::everything(limit - found.len());
        found.extend(open_slots_of(db, (id, &pipeline), (&start, &rest))?);
        if found.len() > limit {
            break;
        }
    }
    Ok(page(found, limit))
}

/// Open slots of the pipelines after a name, by a walk over all names: where many have some, a page is full soon.
fn open_by_name(db: &Connection, last: &str, limit: usize) -> Result<Vec<LedgerRow>, Failure> {
    let mut statement = db.prepare_cached(
        "SELECT s.nominal, n.name, s.schedule, s.revision, s.body
         FROM names n CROSS JOIN slots s INDEXED BY slots_open ON s.pipeline = n.id
         WHERE s.disposition = 'open' AND n.name > ?1
         ORDER BY n.name, s.nominal, s.schedule LIMIT ?2",
    )?;
    let mut rows = statement.query(params![last, one_more(limit)])?;
    let mut found = Vec::new();
    while let Some(row) = rows.next()? {
        found.push(slot_row(PipelineId::any(&row.get::<_, String>(1)?)?, row)?);
    }
    Ok(found)
}

/// The names after one of some pipelines, in order, with their numbers.
fn names_after(db: &Connection, last: &str, ids: &[i64]) -> Result<Vec<(String, i64)>, Failure> {
    let mut name_of = db.prepare_cached("SELECT name FROM names WHERE id = ?1")?;
    let mut names = Vec::new();
    for id in ids {
        let name: String = name_of.query_row([id], |row| row.get(0))?;
        if name.as_str() > last {
            names.push((name, *id));
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The numbers of the pipelines that have open slots; nothing when there are more than so many. One step in the index
/// for each of them.
fn pipelines_with_open_slots(
    db: &Connection,
    max: usize,
) -> Result<Option<Vec<i64>>, rusqlite::Error> {
    let mut next = db.prepare_cached(
        "SELECT pipeline FROM slots INDEXED BY slots_open
         WHERE disposition = 'open' AND pipeline > ?1 ORDER BY pipeline LIMIT 1",
    )?;
    let mut found: Vec<i64> = Vec::new();
    let mut last = i64::MIN;
    while let Some(pipeline) = next.query_row([last], |row| row.get(0)).optional()? {
        if found.len() == max {
            return Ok(None);
        }
        found.push(pipeline);
        last = pipeline;
    }
    Ok(Some(found))
}

/// Columns: instant, pipeline, schedule, revision, body.
fn slot_row(pipeline: PipelineId, row: &Row<'_>) -> Result<LedgerRow, Failure> {
    let text = |column| row.get_ref(column)?.as_str().map_err(rusqlite::Error::from);
    let (nominal, schedule) = (timestamp(row.get(0)?)?, ScheduleId::any(text(2)?)?);
    let key = Key::Slot(schedule.clone(), nominal);
    let entry = LedgerEntry::Slot(decoded!(Slot, &key, text(4)?));
    Ok(LedgerRow { pipeline, schedule, nominal, entry, revision: row.get::<_, i64>(3)? as u64 })
}

fn span_row(row: &Row<'_>) -> Result<LedgerRow, Failure> {
    let pipeline = PipelineId::any(&row.get::<_, String>(1)?)?;
    let (nominal, schedule) =
        (timestamp(row.get(0)?)?, ScheduleId::any(&row.get::<_, String>(2)?)?);
    let key = Key::Span(schedule.clone(), nominal);
    let entry =
        LedgerEntry::Span(Arc::unwrap_or_clone(decoded!(Span, &key, &row.get::<_, String>(4)?)));
    Ok(LedgerRow { pipeline, schedule, nominal, entry, revision: row.get::<_, i64>(3)? as u64 })
}

#[cfg(test)]
mod tests {
    use interlock_store::LedgerPlace;
    use rusqlite::StatementStatus;

    use super::*;

    const BODY: &str = r#"{"v":1,"state":"waiting","generation":1,"attempt":0,"openedBy":"catchup","date":"2026-02-25","openedAt":"2026-02-25T00:00:00Z","closesAt":"2026-02-26T00:00:00Z","version":"0000000000000001"}"#;

    /// A ledger in which three pipelines have so many open slots each.
    fn ledger_of(count: i64) -> Connection {
        let db = Connection::open_in_memory().unwrap();
        db.execute_batch(include_str!("schema/0001.sql")).unwrap();
        for (id, name) in [(1, "cc"), (2, "aa"), (3, "bb")] {
            db.execute("INSERT INTO names (id, name) VALUES (?1, ?2)", params![id, name]).unwrap();
            let mut put =
                db.prepare("INSERT INTO slots VALUES (?1, ?2, 'minutely', 1, 'open', ?3)").unwrap();
            for minute in 0..count {
                put.execute(params![minute * 60_000_000 + id, id, BODY]).unwrap();
            }
        }
        db
    }

    /// The open slots as pages of a hundred tell them, in the order of pipelines.
    fn by_pipeline(db: &Connection) -> Vec<(String, Timestamp)> {
        let (mut found, mut last) = (Vec::new(), None);
        loop {
            let page = open_slots(db, last.as_ref(), 100).unwrap();
            found.extend(page.items.iter().map(|row| (row.pipeline.to_string(), row.nominal)));
            let row = page.items.last();
            last = row.map(|it| (it.pipeline.clone(), it.nominal, it.schedule.clone()));
            if !page.more {
                return found;
            }
        }
    }

    /// The same, in order of time.
    fn by_time(db: &Connection) -> Vec<(Timestamp, String)> {
        let disposition = Some("open".to_owned());
        let mut query = LedgerQuery { disposition, ..LedgerQuery::everything(100) };
        let mut found = Vec::new();
        loop {
            let page = ledger(db, &query).unwrap();
            found.extend(page.items.iter().map(|row| (row.nominal, row.pipeline.to_string())));
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return found;
            }
        }
    }

    fn steps(db: &Connection, sql: &str) -> i32 {
        db.prepare_cached(sql).unwrap().reset_status(StatementStatus::VmStep)
    }

    #[test]
    fn a_page_of_open_slots_costs_its_own_length() {
        let all = |count: i64| {
            let db = ledger_of(count);
            let found = by_pipeline(&db);
            assert_eq!(found.len() as i64, 3 * count);
            assert!(found.is_sorted());
            let own = steps(&db, &open_of(&LedgerQuery::everything(0)));
            let found = by_time(&db);
            assert_eq!(found.len() as i64, 3 * count);
            assert!(found.is_sorted());
            (own, steps(&db, &open_places_of(ListOrder::OldestFirst)))
        };
        let (few, many) = (all(1_000), all(8_000));
        assert!(few.0 > 3_000 && few.1 > 3_000, "{few:?}");
        assert!(many.0 < 12 * few.0, "by pipeline: {few:?} {many:?}");
        assert!(many.1 < 12 * few.1, "by time: {few:?} {many:?}");
    }

    #[test]
    fn open_slots_go_on_after_a_place_of_another_pipeline() {
        let db = ledger_of(3);
        let disposition = Some("open".to_owned());
        let after = LedgerPlace {
            nominal: timestamp(60_000_000 + 2).unwrap(),
            pipeline: PipelineId::any("bb").unwrap(),
            schedule: ScheduleId::from_static("minutely"),
            is_span: false,
        };
        let query = LedgerQuery { disposition, after: Some(after), ..LedgerQuery::everything(2) };
        let page = ledger(&db, &query).unwrap();
        let found: Vec<_> = page.items.iter().map(|row| row.pipeline.as_str()).collect();
        assert_eq!((found, page.more), (vec!["bb", "cc"], true));
    }
}
