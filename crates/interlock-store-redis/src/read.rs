//! Reads of rows by key, and of the small listings.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::PipelineId;
use interlock_store::{
    AgendaRow, BackfillQuery, BackfillRow, DueRow, EventQuery, EventRow, FoundRows, IncidentPlace,
    IncidentQuery, Key, ListOrder, OutboxRow, Page, READ_MAX, Record, Row, RowsQuery, Shard,
    StoreError, for_each,
    record::{EventRecord, IncidentRecord, SensorRecord},
};
use interlock_store_remote::{Found, key_text, micros, one_more, page};
use jiff::Timestamp;
use redis::Value;

use crate::{
    keys::{self, found},
    numbers,
    place::{Place, merged},
    request::{Server, list, number, optional, text},
};

/// A member with its value.
pub(crate) fn pair(row: Value) -> Result<(String, String), StoreError> {
    let mut parts = list(row)?.into_iter();
    let mut next = || parts.next().map_or_else(|| Ok(String::new()), text);
    Ok((next()?, next()?))
}

/// What is looked for by score.
pub(crate) struct Scores<'a> {
    /// How members are read.
    pub(crate) kind: &'a str,
    pub(crate) set: String,
    /// `up` or `down`.
    pub(crate) direction: &'a str,
    /// The first score that is wanted.
    pub(crate) first: String,
    /// Upwards the first score that is not, downwards the last that is; of all if empty.
    pub(crate) last: String,
    /// After this place: a score and a member.
    pub(crate) after: (String, String),
    pub(crate) limit: i64,
    pub(crate) word: &'a str,
    pub(crate) more: &'a str,
}

impl Scores<'_> {
    pub(crate) fn arguments(&self) -> Vec<String> {
        let Self { kind, set, direction, first, last, after, limit, word, more } = self;
        let (score, member) = after.clone();
        vec![
            (*kind).to_owned(),
            set.clone(),
            (*direction).to_owned(),
            first.clone(),
            last.clone(),
            score,
            member,
            limit.to_string(),
            (*word).to_owned(),
            (*more).to_owned(),
        ]
    }
}

/// Rows by score, in as many calls as it takes.
pub(crate) async fn by_score(
    server: &Server,
    place: &Place,
    mut scores: Scores<'_>,
) -> Result<Vec<Found>, StoreError> {
    let mut rows = Vec::new();
    loop {
        let mut asked = vec!["scores".to_owned()];
        asked.extend(scores.arguments());
        let mut parts = list(server.read(place, asked).await?)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        let is_over = text(next())? == "end";
        let found_now = rows_of(scores.kind, next())?;
        scores.limit -= found_now.len() as i64;
        rows.extend(found_now);
        if is_over || scores.limit <= 0 {
            return Ok(rows);
        }
        let (score, member) = (text(next())?, text(next())?);
        scores.first.clone_from(&score);
        scores.after = (score, member);
    }
}

/// Rows out of pairs of member and value.
pub(crate) fn rows_of(kind: &str, rows: Value) -> Result<Vec<Found>, StoreError> {
    let read = |row: Value| {
        let (member, value) = pair(row)?;
        found(kind, &member, &value)
    };
    list(rows)?.into_iter().map(read).collect()
}

/// What is looked for by member.
pub(crate) struct Members<'a> {
    pub(crate) kind: &'a str,
    pub(crate) set: String,
    /// Bounds as Redis writes them: `[a`, `(a`, `-`, `+`.
    pub(crate) first: String,
    pub(crate) last: String,
    pub(crate) limit: i64,
    pub(crate) word: &'a str,
}

/// Rows by member, in as many calls as it takes.
pub(crate) async fn by_member(
    server: &Server,
    place: &Place,
    mut members: Members<'_>,
) -> Result<Vec<Found>, StoreError> {
    let mut rows = Vec::new();
    loop {
        let Members { kind, set, first, last, limit, word } = &members;
        let words = ["members", kind, set, first, last, &limit.to_string(), word];
        let asked = words.iter().map(|word| (*word).to_owned()).collect();
        let mut parts = list(server.read(place, asked).await?)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        let is_over = text(next())? == "end";
        let found_now = rows_of(kind, next())?;
        members.limit -= found_now.len() as i64;
        rows.extend(found_now);
        if is_over || members.limit <= 0 {
            return Ok(rows);
        }
        next();
        members.first = format!("({}", text(next())?);
    }
}

/// After a member, or from the start.
pub(crate) fn after(member: Option<String>) -> String {
    member.map_or_else(|| "-".to_owned(), |member| format!("({member}"))
}

/// Reads rows by their keys.
pub(crate) async fn rows(
    server: &Server,
    pipeline: &PipelineId,
    keys: &[Key],
) -> Result<FoundRows, StoreError> {
    let asked: Vec<_> = keys.iter().map(|key| (pipeline, key)).collect();
    rows_in(server, server.places.of(pipeline), &asked).await
}

/// Reads rows of a place by their keys.
async fn rows_in(
    server: &Server,
    place: &Place,
    rows: &[(&PipelineId, &Key)],
) -> Result<FoundRows, StoreError> {
    let mut asked = vec!["rows".to_owned(), rows.len().to_string()];
    for (pipeline, key) in rows {
        asked.extend(place.keys.address(pipeline, key));
    }
    let values = list(server.read(place, asked).await?)?;
    let row = |(&(pipeline, key), value): (&(&PipelineId, &Key), Value)| {
        let Some(value) = optional(value)? else { return Ok(None) };
        let found = keys::read(pipeline.as_str(), (key.kind(), &key_text(key)), &value)?;
        Ok(Some(found.row()))
    };
    rows.iter().zip(values).map(row).collect()
}

/// Reads rows of many pipelines: those of one place together, in scripts that do not keep others waiting for long.
pub(crate) async fn rows_of_many(
    server: &Server,
    asked: &[RowsQuery],
) -> Result<Vec<FoundRows>, StoreError> {
    let mut by_place: BTreeMap<&str, (&Place, Vec<usize>)> = BTreeMap::new();
    let wanted: Vec<(&PipelineId, &Key)> =
        asked.iter().flat_map(|of| of.keys.iter().map(|key| (&of.pipeline, key))).collect();
    for (number, (pipeline, _)) in wanted.iter().enumerate() {
        let place = server.places.of(pipeline);
        by_place.entry(&place.anchor).or_insert_with(|| (place, vec![])).1.push(number);
    }
    let chunks = by_place.values().flat_map(|(place, numbers)| {
        numbers.chunks(READ_MAX).map(move |numbers| (*place, numbers))
    });
    let parts = for_each(chunks.collect(), |(place, numbers)| {
        let rows: Vec<_> =
            numbers.iter().filter_map(|number| wanted.get(*number)).copied().collect();
        async move { Ok((numbers, rows_in(server, place, &rows).await?)) }
    })
    .await?;
    let mut found: FoundRows = vec![None; wanted.len()];
    for (numbers, rows) in parts {
        for (number, row) in numbers.iter().zip(rows) {
            if let Some(empty) = found.get_mut(*number) {
                *empty = row;
            }
        }
    }
    let mut rest = found.into_iter();
    Ok(asked.iter().map(|of| rest.by_ref().take(of.keys.len()).collect()).collect())
}

/// The pipelines of a shard with their watermarks, by name.
pub(crate) async fn agenda(
    server: &Server,
    shard: Shard,
    last: Option<PipelineId>,
    limit: usize,
) -> Result<Page<AgendaRow>, StoreError> {
    let last = after(last.map(|name| name.to_string()));
    let lists = for_each(server.places.listed_with(shard), |place: &Place| {
        let set = place.keys.index(&format!("pipelines:{}", shard.0));
        let asked = vec!["agenda".to_owned(), set, last.clone(), one_more(limit).to_string()];
        async move { agenda_of(server.read(place, asked).await?) }
    })
    .await?;
    Ok(page(merged(lists, |row| row.pipeline.clone()), limit))
}

fn agenda_of(answer: Value) -> Result<Vec<AgendaRow>, StoreError> {
    let mut rows = Vec::new();
    for row in list(answer)? {
        let mut parts = list(row)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        let name = text(next())?;
        let own = keys::read(&name, ("pipeline", ""), &text(next())?)?;
        let Record::Pipeline(record) = own.record else { continue };
        let record = Arc::unwrap_or_clone(record);
        let mut watermarks = BTreeMap::new();
        let mut marks = list(next())?.into_iter();
        while let (Some(schedule), Some(value)) = (marks.next(), marks.next()) {
            let mark = keys::read(&name, ("watermark", &text(schedule)?), &text(value)?)?;
            if let (Key::Watermark(schedule), Record::Watermark(record)) = (mark.key, mark.record) {
                watermarks.insert(schedule, Row { record, revision: mark.revision });
            }
        }
        let record = Row { record, revision: own.revision };
        rows.push(AgendaRow { pipeline: own.pipeline, record, watermarks });
    }
    Ok(rows)
}

/// The pipelines of a shard with the revisions of their rows.
pub(crate) async fn revisions(
    server: &Server,
    shard: Shard,
    last: Option<PipelineId>,
    limit: usize,
) -> Result<Page<(PipelineId, u64)>, StoreError> {
    let last = after(last.map(|name| name.to_string()));
    let read = |row: Value| {
        let (name, revision) = pair(row)?;
        let found = PipelineId::any(&name).ok().zip(revision.parse().ok());
        found.ok_or_else(|| {
            StoreError::permanent(format!("a pipeline of the store cannot be read: {name}"))
        })
    };
    let lists = for_each(server.places.listed_with(shard), |place: &Place| {
        let set = place.keys.index(&format!("pipelines:{}", shard.0));
        let asked = vec!["revisions".to_owned(), set, last.clone(), one_more(limit).to_string()];
        async move {
            let rows = list(server.read(place, asked).await?)?.into_iter().map(read);
            rows.collect::<Result<Vec<_>, _>>()
        }
    })
    .await?;
    Ok(page(merged(lists, |(name, _)| name.clone()), limit))
}

/// The sensors of a pipeline.
pub(crate) async fn sensors(
    server: &Server,
    pipeline: &PipelineId,
) -> Result<BTreeMap<String, Row<SensorRecord>>, StoreError> {
    let mut all = redis::cmd("HGETALL");
    let place = server.places.of(pipeline);
    all.arg(place.keys.name(&format!("sensor:{pipeline}")));
    let fields: BTreeMap<String, String> = server.ask(place, &all).await?;
    let mut sensors = BTreeMap::new();
    for (key, value) in fields {
        let found = keys::read(pipeline.as_str(), ("sensor", &key), &value)?;
        if let Record::Sensor(record) = found.record {
            let record = Arc::unwrap_or_clone(record);
            sensors.insert(key, Row { record, revision: found.revision });
        }
    }
    Ok(sensors)
}

/// An incident with its address.
pub(crate) type IncidentRow = (PipelineId, String, Row<IncidentRecord>);

/// Incidents, newest first.
pub(crate) async fn incidents(
    server: &Server,
    query: &IncidentQuery,
) -> Result<Page<IncidentRow>, StoreError> {
    let (set, places) = match &query.pipeline {
        Some(name) => (format!("incidents:{name}"), vec![server.places.of(name)]),
        None => ("incidents".to_owned(), server.places.all()),
    };
    let (first, last) = match &query.after {
        None => ("+inf".to_owned(), (String::new(), String::new())),
        Some(last) => {
            let member = keys::member(&last.pipeline, &Key::Incident(last.key.clone()));
            (keys::score(last.opened_at), (keys::score(last.opened_at), member))
        }
    };
    let lists = for_each(places, |place: &Place| {
        let scores = Scores {
            kind: "incident",
            set: place.keys.index(&set),
            direction: "down",
            first: first.clone(),
            last: String::new(),
            after: last.clone(),
            limit: one_more(query.limit),
            word: match query.is_open {
                None => "",
                Some(true) => "!resolved",
                Some(false) => "resolved",
            },
            more: "",
        };
        async move {
            let rows = by_score(server, place, scores).await?.into_iter().map(Found::incident);
            rows.collect::<Result<Vec<_>, _>>()
        }
    })
    .await?;
    let newest_first = |row: &IncidentRow| std::cmp::Reverse(IncidentPlace::of(row));
    let mut rows = merged(lists, newest_first);
    // What is finer than a score is left to the one who asks.
    rows.retain(|row| query.after.as_ref().is_none_or(|after| IncidentPlace::of(row) < *after));
    Ok(page(rows, query.limit))
}

/// Incidents of a shard that are not resolved, in the order (pipeline, key), after a given one.
pub(crate) async fn open_incidents(
    server: &Server,
    shard: Shard,
    last: Option<(PipelineId, String)>,
    limit: usize,
) -> Result<Page<IncidentRow>, StoreError> {
    let first = after(last.map(|(name, key)| format!("{name} {key}")));
    let lists = for_each(server.places.listed_with(shard), |place: &Place| {
        let members = Members {
            kind: "incident",
            set: place.keys.index(&format!("incidents:open:{}", shard.0)),
            first: first.clone(),
            last: "+".to_owned(),
            limit: one_more(limit),
            word: "",
        };
        async move {
            let rows = by_member(server, place, members).await?.into_iter().map(Found::incident);
            rows.collect::<Result<Vec<_>, _>>()
        }
    })
    .await?;
    let by_name = |(name, key, _): &IncidentRow| (name.clone(), key.clone());
    Ok(page(merged(lists, by_name), limit))
}

/// Backfills, in the order (pipeline, number). There are few: those of other shards are passed over here.
pub(crate) async fn backfills(
    server: &Server,
    query: &BackfillQuery,
) -> Result<Page<BackfillRow>, StoreError> {
    let first =
        query.after.as_ref().map(|(name, number)| keys::member(name, &Key::Backfill(*number)));
    let first = after(first);
    let places = match (&query.pipeline, query.shard) {
        (Some(name), _) => vec![server.places.of(name)],
        (None, Some(shard)) => server.places.listed_with(shard),
        (None, None) => server.places.all(),
    };
    let lists = for_each(places, |place: &Place| {
        let members = Members {
            kind: "backfill",
            set: place.keys.index("backfills"),
            first: first.clone(),
            last: "+".to_owned(),
            limit: i64::MAX,
            word: if query.unfinished { "unfinished" } else { "" },
        };
        async move {
            let rows = by_member(server, place, members).await?.into_iter().map(Found::backfill);
            rows.collect::<Result<Vec<_>, _>>()
        }
    })
    .await?;
    let member = |row: &BackfillRow| keys::member(&row.pipeline, &Key::Backfill(row.number));
    let mut rows = merged(lists, member);
    let count = server.shard_count();
    rows.retain(|row| {
        query.pipeline.as_ref().is_none_or(|name| row.pipeline == *name)
            && query.shard.is_none_or(|shard| Shard::of(&row.pipeline, count) == shard)
    });
    Ok(page(rows, query.limit))
}

/// Dead letters, those that came first first.
pub(crate) async fn dead_letters(
    server: &Server,
    limit: usize,
) -> Result<Page<OutboxRow>, StoreError> {
    let lists = for_each(server.places.all(), |place: &Place| async move {
        let set = place.keys.index("dead");
        let scores = upwards(("outbox", set), "-inf".to_owned(), "inf", limit);
        let rows = by_score(server, place, scores).await?.into_iter().map(Found::outbox);
        rows.collect::<Result<Vec<_>, _>>()
    })
    .await?;
    let in_turn = |row: &OutboxRow| (row.record.not_before, row.pipeline.clone(), row.name.clone());
    Ok(page(merged(lists, in_turn), limit))
}

/// Due entries of a shard at or before an instant, earliest first.
pub(crate) async fn due(
    server: &Server,
    shard: Shard,
    until: Timestamp,
    limit: usize,
) -> Result<Page<DueRow>, StoreError> {
    let last = micros(until).saturating_add(1).to_string();
    let lists = for_each(server.places.listed_with(shard), |place: &Place| {
        let set = place.keys.index(&format!("due:{}", shard.0));
        let scores = upwards(("due", set), "-inf".to_owned(), &last, limit);
        async move {
            let rows = by_score(server, place, scores).await?.into_iter().map(Found::due);
            rows.collect::<Result<Vec<_>, _>>()
        }
    })
    .await?;
    let in_turn = |row: &DueRow| {
        (row.at, keys::member(&row.pipeline, &Key::Due(row.at, row.kind, row.name.clone())))
    };
    Ok(page(merged(lists, in_turn), limit))
}

fn upwards<'a>(
    (kind, set): (&'a str, String),
    first: String,
    last: &str,
    limit: usize,
) -> Scores<'a> {
    Scores {
        kind,
        set,
        direction: "up",
        first,
        last: last.to_owned(),
        after: (String::new(), String::new()),
        limit: one_more(limit),
        word: "",
        more: "",
    }
}

/// The notifications of a pipeline, in the order of their names, after one: they are fields of one hash.
pub(crate) async fn notifications(
    server: &Server,
    pipeline: &PipelineId,
    after: Option<&str>,
    limit: usize,
) -> Result<Page<OutboxRow>, StoreError> {
    let mut all = redis::cmd("HGETALL");
    let place = server.places.of(pipeline);
    all.arg(place.keys.name(&format!("outbox:{pipeline}")));
    let fields: BTreeMap<String, String> = server.ask(place, &all).await?;
    let later =
        fields.into_iter().filter(|(name, _)| after.is_none_or(|after| name.as_str() > after));
    let rows = later
        .take(limit.saturating_add(1))
        .map(|(name, value)| keys::read(pipeline.as_str(), ("outbox", &name), &value)?.outbox());
    Ok(page(rows.collect::<Result<_, _>>()?, limit))
}

/// Events by their numbers.
pub(crate) async fn events(
    server: &Server,
    query: &EventQuery,
) -> Result<Page<EventRow>, StoreError> {
    let Some(name) = &query.pipeline else {
        return fed(server, server.places.all(), query).await;
    };
    // A pipeline is in one place, where numbers only grow.
    let place = server.places.of(name);
    let first = format!("({}-0", query.after);
    let last = match query.before {
        u64::MAX => "+".to_owned(),
        before => format!("({before}-0"),
    };
    let (verb, bounds) = match query.order {
        ListOrder::OldestFirst => ("XRANGE", [first, last]),
        ListOrder::NewestFirst => ("XREVRANGE", [last, first]),
    };
    let mut range = redis::cmd(verb);
    range.arg(place.keys.name(&format!("events:{name}"))).arg(&bounds);
    let range = range.arg("COUNT").arg(one_more(query.limit));
    let found: Vec<Value> = server.ask(place, range).await?;
    let mut rows = Vec::new();
    for entry in found {
        let mut parts = list(entry)?.into_iter();
        let id = parts.next().map(text).transpose()?.unwrap_or_default();
        let data = parts.next().map(list).transpose()?.unwrap_or_default().into_iter().nth(3);
        let data = data.map(text).transpose()?.unwrap_or_default();
        rows.push(event(&id, name.as_str(), &data)?);
    }
    Ok(page(rows, query.limit))
}

/// Events after a number, of a shard and of `_system`: of all, where all is at home.
pub(crate) async fn events_for(
    server: &Server,
    shard: Shard,
    after: u64,
    limit: usize,
) -> Result<Page<EventRow>, StoreError> {
    let mut places = vec![&server.places.home];
    places.extend(server.places.shards.get(usize::from(shard.0)));
    fed(server, places, &EventQuery { after, ..EventQuery::new(None, limit) }).await
}

/// Events of several places.
async fn fed(
    server: &Server,
    places: Vec<&Place>,
    query: &EventQuery,
) -> Result<Page<EventRow>, StoreError> {
    let up_to = numbers::settled(server, &places).await?;
    let last = query.before.checked_sub(1).filter(|_| query.before < u64::MAX).or(up_to);
    let last = last.map(|last| up_to.map_or(last, |up_to| last.min(up_to)));
    let lists = for_each(places, |place: &Place| feed(server, place, (query, last))).await?;
    let in_turn = |row: &EventRow| match query.order {
        ListOrder::OldestFirst => row.number,
        ListOrder::NewestFirst => u64::MAX - row.number,
    };
    Ok(page(merged(lists, in_turn), query.limit))
}

/// Events of a place, up to a number if there is one.
async fn feed(
    server: &Server,
    place: &Place,
    (query, last): (&EventQuery, Option<u64>),
) -> Result<Vec<EventRow>, StoreError> {
    let count = one_more(query.limit);
    let (mut first, mut last) = (format!("{}-0", query.after), numbers::bound(last));
    let mut rows = Vec::new();
    loop {
        let left = count.saturating_sub(rows.len() as i64).to_string();
        let direction = match query.order {
            ListOrder::OldestFirst => "up",
            ListOrder::NewestFirst => "down",
        };
        let (feed, way) = ("feed".to_owned(), direction.to_owned());
        let asked = vec![feed, way, first.clone(), last.clone(), left];
        let mut answer = list(server.read(place, asked).await?)?.into_iter();
        let next = answer.next().map(text).transpose()?.unwrap_or_default();
        for entry in answer.next().map(list).transpose()?.unwrap_or_default() {
            let mut parts = list(entry)?.into_iter();
            let mut next = || parts.next().map_or_else(|| Ok(String::new()), text);
            let (id, name, data) = (next()?, next()?, next()?);
            rows.push(event(&id, &name, &data)?);
        }
        if next.is_empty() {
            return Ok(rows);
        }
        match query.order {
            ListOrder::OldestFirst => first = next,
            ListOrder::NewestFirst => last = format!("({next}"),
        }
    }
}

fn event(id: &str, pipeline: &str, data: &str) -> Result<EventRow, StoreError> {
    let unreadable =
        |what: String| StoreError::permanent(format!("event {id} cannot be read: {what}"));
    let number = id.split('-').next().unwrap_or_default().to_owned();
    Ok(EventRow {
        number: self::number(Value::BulkString(number.into_bytes()))?,
        pipeline: PipelineId::any(pipeline).map_err(|error| unreadable(error.message))?,
        record: EventRecord::decode(data).map_err(|error| unreadable(error.to_string()))?.into(),
    })
}
