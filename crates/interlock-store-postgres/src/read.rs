//! Reads of rows by key, and of the small listings. Each is one statement, so that it sees whole groups only.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    AgendaRow, BackfillQuery, BackfillRow, DueRow, EventQuery, EventRow, IncidentQuery, Key,
    ListOrder, OutboxRow, Page, Record, Row, Shard, StoreError,
    record::{EventRecord, IncidentRecord, SensorRecord, WatermarkRecord},
};
use interlock_store_remote::{Found, key_text, micros, one_more, page};
use jiff::Timestamp;
use tokio_postgres::types::Type;

use crate::{
    apply::table,
    pool::{Param, Pool},
};

/// What [`found`] reads, of a table that is called `r`.
pub(crate) const COLUMNS: &str = "r.pipeline, r.kind, r.key, r.revision, r.until_us, r.body";

/// A row out of [`COLUMNS`].
pub(crate) fn found(row: &tokio_postgres::Row) -> Result<Found, StoreError> {
    let revision = row.get::<_, i64>(3) as u64;
    Found::read(row.get(0), (row.get(1), row.get(2)), revision, row.get(4), row.get(5))
}

/// A page of rows: what follows `SELECT … FROM @` with one more row than asked for.
pub(crate) async fn listing<T>(
    pool: &Arc<Pool>,
    from: &str,
    params: &[Param<'_>],
    (limit, make): (usize, impl Fn(Found) -> Result<T, StoreError>),
) -> Result<Page<T>, StoreError> {
    let sql = format!("SELECT {COLUMNS} FROM @{from}");
    let rows = pool.query(&sql, params).await?;
    let rows = rows.iter().map(|row| make(found(row)?));
    Ok(page(rows.collect::<Result<_, _>>()?, limit))
}

/// The order of a listing, as SQL says it.
pub(crate) fn direction(order: ListOrder) -> &'static str {
    match order {
        ListOrder::OldestFirst => "ASC",
        ListOrder::NewestFirst => "DESC",
    }
}

/// Reads rows by their keys, of several pipelines at once.
pub(crate) async fn rows(
    pool: &Arc<Pool>,
    asked: &[(&PipelineId, &[Key])],
) -> Result<Vec<Vec<Option<Row<Record>>>>, StoreError> {
    let places: Vec<(&PipelineId, &Key)> = asked
        .iter()
        .flat_map(|(pipeline, keys)| keys.iter().map(move |key| (*pipeline, key)))
        .collect();
    let mut found_rows: Vec<Option<Row<Record>>> = vec![None; places.len()];
    // A key with a NUL was never written.
    let text = |key: &Key| key_text(key).replace('\0', "\u{fffd}");
    let by_kind = places.iter().map(|(pipeline, key)| (key.kind(), (pipeline.as_str(), text(key))));
    let by_kind = ByKind::of(by_kind);
    if !by_kind.is_empty() {
        for row in pool.query(&by_kind.sql(COLUMNS), &by_kind.params()).await? {
            let at = row.get::<_, i64>(6) as usize;
            if let Some(place) = found_rows.get_mut(at) {
                *place = Some(found(&row)?.row());
            }
        }
    }
    let mut rest = found_rows.into_iter();
    Ok(asked.iter().map(|(_, keys)| rest.by_ref().take(keys.len()).collect()).collect())
}

/// Rows that are asked for, by their tables. All of them could be asked for as `rows`, of which each table is a part; but then the
/// server plans for every one of these, with all their indexes, and locks them: for one row, longer than it takes to read it.
pub(crate) struct ByKind<'a> {
    kinds: BTreeMap<&'static str, Asked<'a>>,
}

/// Which ones they are, of which pipelines, with which keys.
type Asked<'a> = (Vec<i64>, Vec<&'a str>, Vec<String>);

impl<'a> ByKind<'a> {
    /// Of rows, each by its kind, pipeline and key.
    pub(crate) fn of(rows: impl Iterator<Item = (&'static str, (&'a str, String))>) -> Self {
        let mut kinds: BTreeMap<_, Asked<'a>> = BTreeMap::new();
        for (number, (kind, (pipeline, key))) in (0..).zip(rows) {
            let (numbers, pipelines, keys) = kinds.entry(kind).or_default();
            numbers.push(number);
            pipelines.push(pipeline);
            keys.push(key);
        }
        Self { kinds }
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kinds.is_empty()
    }

    /// A statement for columns of those that are there, and behind them which of those that were asked for it is, from 0 on. The
    /// subquery keeps its limit so that it stays one probe of an index for each row.
    pub(crate) fn sql(&self, columns: &str) -> String {
        let part = |(first, kind): (usize, &&str)| {
            format!(
                "SELECT {columns}, u.n
                 FROM unnest(${}, ${}, ${}) u(n, pipeline, key),
                 LATERAL (SELECT * FROM @{} r
                     WHERE r.pipeline = u.pipeline AND r.key = u.key LIMIT 1) r",
                first,
                first + 1,
                first + 2,
                table(kind)
            )
        };
        let parts: Vec<String> = (1..).step_by(3).zip(self.kinds.keys()).map(part).collect();
        parts.join(" UNION ALL ")
    }

    /// What it is asked with.
    pub(crate) fn params(&self) -> Vec<Param<'_>> {
        let mut params: Vec<Param<'_>> = Vec::with_capacity(3 * self.kinds.len());
        for (numbers, pipelines, keys) in self.kinds.values() {
            params.push((numbers, Type::INT8_ARRAY));
            params.push((pipelines, Type::TEXT_ARRAY));
            params.push((keys, Type::TEXT_ARRAY));
        }
        params
    }
}

/// The pipelines of a shard with their watermarks, by name.
pub(crate) async fn agenda(
    pool: &Arc<Pool>,
    shard: Shard,
    after: Option<PipelineId>,
    limit: usize,
) -> Result<Page<AgendaRow>, StoreError> {
    let sql = format!(
        "WITH r AS (SELECT * FROM @pipelines WHERE shard = $1 AND pipeline > $2 ORDER BY pipeline LIMIT $3)
         SELECT {COLUMNS}, w.name, w.revision, w.body
         FROM r LEFT JOIN LATERAL (SELECT * FROM @watermarks w WHERE w.pipeline = r.pipeline OFFSET 0) w ON TRUE
         ORDER BY r.pipeline, w.name"
    );
    let (number, rows_max) = (i32::from(shard.0), one_more(limit));
    let after = after.as_ref().map_or("", PipelineId::as_str);
    let params =
        [(&number as _, Type::INT4), (&after as _, Type::TEXT), (&rows_max as _, Type::INT8)];
    let mut list: Vec<AgendaRow> = Vec::new();
    for row in pool.query(&sql, &params).await? {
        if list.last().is_none_or(|last| last.pipeline.as_str() != row.get::<_, &str>(0)) {
            let Found { pipeline, record, revision, .. } = found(&row)?;
            let Record::Pipeline(record) = record else { continue };
            let record = Row { record: Arc::unwrap_or_clone(record), revision };
            list.push(AgendaRow { pipeline, record, watermarks: BTreeMap::new() });
        }
        if let (Some(last), Some(schedule)) = (list.last_mut(), row.get::<_, Option<&str>>(6)) {
            let (schedule, mark) = watermark(&last.pipeline, schedule, (row.get(7), row.get(8)))?;
            last.watermarks.insert(schedule, mark);
        }
    }
    Ok(page(list, limit))
}

/// The pipelines of a shard with the revisions of their rows.
pub(crate) async fn revisions(
    pool: &Arc<Pool>,
    shard: Shard,
    after: Option<PipelineId>,
    limit: usize,
) -> Result<Page<(PipelineId, u64)>, StoreError> {
    let sql = "SELECT pipeline, revision FROM @pipelines WHERE shard = $1 AND pipeline > $2
        ORDER BY pipeline LIMIT $3";
    let (number, rows_max) = (i32::from(shard.0), one_more(limit));
    let after = after.as_ref().map_or("", PipelineId::as_str);
    let params =
        [(&number as _, Type::INT4), (&after as _, Type::TEXT), (&rows_max as _, Type::INT8)];
    let mut list = Vec::new();
    for row in pool.query(sql, &params).await? {
        let name: &str = row.get(0);
        let pipeline = PipelineId::any(name).map_err(|_broken| {
            StoreError::permanent(format!("a pipeline of the store cannot be read: {name}"))
        })?;
        list.push((pipeline, row.get::<_, i64>(1) as u64));
    }
    Ok(page(list, limit))
}

fn watermark(
    pipeline: &PipelineId,
    schedule: &str,
    (revision, body): (i64, &str),
) -> Result<(ScheduleId, Row<WatermarkRecord>), StoreError> {
    let found =
        Found::read(pipeline.as_str(), ("watermark", schedule), revision as u64, None, body)?;
    match (found.key, found.record) {
        (Key::Watermark(schedule), Record::Watermark(record)) => {
            Ok((schedule, Row { record, revision: found.revision }))
        }
        (key, _) => Err(StoreError::permanent(format!("{key} is no watermark"))),
    }
}

/// The sensors of a pipeline.
pub(crate) async fn sensors(
    pool: &Arc<Pool>,
    pipeline: &PipelineId,
) -> Result<BTreeMap<String, Row<SensorRecord>>, StoreError> {
    let name = pipeline.as_str();
    let make = |found: Found| match (found.key, found.record) {
        (Key::Sensor(key), Record::Sensor(record)) => {
            let record = Arc::unwrap_or_clone(record);
            Ok((key, Row { record, revision: found.revision }))
        }
        (key, _) => Err(StoreError::permanent(format!("{key} is no sensor"))),
    };
    let from = "sensors r WHERE r.pipeline = $1";
    let page = listing(pool, from, &[(&name, Type::TEXT)], (usize::MAX, make)).await?;
    Ok(page.items.into_iter().collect())
}

/// An incident with its address.
pub(crate) type IncidentRow = (PipelineId, String, Row<IncidentRecord>);

/// Incidents, newest first.
pub(crate) async fn incidents(
    pool: &Arc<Pool>,
    query: &IncidentQuery,
) -> Result<Page<IncidentRow>, StoreError> {
    let name = query.pipeline.as_ref().map(PipelineId::as_str);
    let after = query.after.as_ref();
    let at = after.map(|after| micros(after.opened_at));
    let (of, key) = after.map_or(("", ""), |after| (after.pipeline.as_str(), after.key.as_str()));
    let rows_max = one_more(query.limit);
    // Said as it is, so that those that are not resolved are found by the index of those.
    let state = match query.is_open {
        None => "TRUE",
        Some(true) => "r.word <> 'resolved'",
        Some(false) => "r.word = 'resolved'",
    };
    // The comparison of instants alone is the one that an index is entered by.
    let from = format!(
        "incidents r WHERE ($1 IS NULL OR r.pipeline = $1) AND {state}
        AND ($2 IS NULL OR (r.at_us <= $2 AND (r.at_us, r.pipeline, r.name) < ($2, $3, $4)))
        ORDER BY r.at_us DESC, r.pipeline DESC, r.name DESC LIMIT $5"
    );
    let params = [
        (&name as _, Type::TEXT),
        (&at as _, Type::INT8),
        (&of as _, Type::TEXT),
        (&key as _, Type::TEXT),
        (&rows_max as _, Type::INT8),
    ];
    listing(pool, &from, &params, (query.limit, Found::incident)).await
}

/// Incidents of a shard that are not resolved, in the order (pipeline, key), after a given one.
pub(crate) async fn open_incidents(
    pool: &Arc<Pool>,
    shard: Shard,
    after: Option<(PipelineId, String)>,
    limit: usize,
) -> Result<Page<IncidentRow>, StoreError> {
    let (number, rows_max) = (i32::from(shard.0), one_more(limit));
    let (name, key) = after.as_ref().map_or(("", ""), |(name, key)| (name.as_str(), key.as_str()));
    let from = "incidents r WHERE r.shard = $1 AND r.word <> 'resolved' AND (r.pipeline, r.name) > ($2, $3)
        ORDER BY r.pipeline, r.name LIMIT $4";
    let params = [
        (&number as _, Type::INT4),
        (&name as _, Type::TEXT),
        (&key as _, Type::TEXT),
        (&rows_max as _, Type::INT8),
    ];
    listing(pool, from, &params, (limit, Found::incident)).await
}

/// Backfills, in the order (pipeline, number).
pub(crate) async fn backfills(
    pool: &Arc<Pool>,
    query: &BackfillQuery,
) -> Result<Page<BackfillRow>, StoreError> {
    let of = query.pipeline.as_ref().map(PipelineId::as_str);
    let shard = query.shard.map(|shard| i32::from(shard.0));
    let after = query.after.as_ref();
    let (name, number) = after.map_or(("", 0), |(name, number)| (name.as_str(), *number as i64));
    let rows_max = one_more(query.limit);
    let from = "backfills r WHERE ($1 IS NULL OR r.pipeline = $1) AND ($2 IS NULL OR r.shard = $2)
        AND (NOT $3 OR r.word = 'unfinished') AND (r.pipeline, r.rank) > ($4, $5)
        ORDER BY r.pipeline, r.rank LIMIT $6";
    let params = [
        (&of as _, Type::TEXT),
        (&shard as _, Type::INT4),
        (&query.unfinished as _, Type::BOOL),
        (&name as _, Type::TEXT),
        (&number as _, Type::INT8),
        (&rows_max as _, Type::INT8),
    ];
    listing(pool, from, &params, (query.limit, Found::backfill)).await
}

/// Dead letters, those that came first first.
pub(crate) async fn dead_letters(
    pool: &Arc<Pool>,
    limit: usize,
) -> Result<Page<OutboxRow>, StoreError> {
    let from = "outbox r WHERE r.word = 'dead' ORDER BY r.at_us, r.pipeline, r.name LIMIT $1";
    listing(pool, from, &[(&one_more(limit), Type::INT8)], (limit, Found::outbox)).await
}

/// The notifications of a pipeline, in the order of their names, after one.
pub(crate) async fn notifications(
    pool: &Arc<Pool>,
    pipeline: &PipelineId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<OutboxRow>, StoreError> {
    let (name, rows_max) = (pipeline.as_str(), one_more(limit));
    let from =
        "outbox r WHERE r.pipeline = $1 AND ($2 IS NULL OR r.key > $2) ORDER BY r.key LIMIT $3";
    let params =
        [(&name as _, Type::TEXT), (&after as _, Type::TEXT), (&rows_max as _, Type::INT8)];
    listing(pool, from, &params, (limit, Found::outbox)).await
}

/// Due entries of a shard at or before an instant, earliest first.
pub(crate) async fn due(
    pool: &Arc<Pool>,
    shard: Shard,
    until: Timestamp,
    limit: usize,
) -> Result<Page<DueRow>, StoreError> {
    let (number, until, rows_max) = (i32::from(shard.0), micros(until), one_more(limit));
    let from = "due r WHERE r.shard = $1 AND r.at_us <= $2 ORDER BY r.at_us, r.pipeline LIMIT $3";
    let params =
        [(&number as _, Type::INT4), (&until as _, Type::INT8), (&rows_max as _, Type::INT8)];
    listing(pool, from, &params, (limit, Found::due)).await
}

/// Events by their numbers.
pub(crate) async fn events(
    pool: &Arc<Pool>,
    query: &EventQuery,
) -> Result<Page<EventRow>, StoreError> {
    let stored = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let (after, before, limit) = (stored(query.after), stored(query.before), query.limit);
    let (name, rows_max) = (query.pipeline.as_ref().map(PipelineId::as_str), one_more(limit));
    let sql = format!(
        "SELECT number, pipeline, body FROM @events
        WHERE number > $1 AND number < $2 AND ($3 IS NULL OR pipeline = $3)
        ORDER BY number {} LIMIT $4",
        direction(query.order)
    );
    let params = [
        (&after as _, Type::INT8),
        (&before as _, Type::INT8),
        (&name as _, Type::TEXT),
        (&rows_max as _, Type::INT8),
    ];
    let rows = pool.query(&sql, &params).await?;
    let event = |row: &tokio_postgres::Row| {
        let number = row.get::<_, i64>(0) as u64;
        let unreadable =
            |what: String| StoreError::permanent(format!("event {number} cannot be read: {what}"));
        Ok(EventRow {
            number,
            pipeline: PipelineId::any(row.get(1)).map_err(|error| unreadable(error.message))?,
            record: EventRecord::decode(row.get(2))
                .map_err(|error| unreadable(error.to_string()))?
                .into(),
        })
    };
    Ok(page(rows.iter().map(event).collect::<Result<_, StoreError>>()?, limit))
}
