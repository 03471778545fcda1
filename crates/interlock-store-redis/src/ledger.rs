//! Listings of slots, spans and runs.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, LedgerRow, Page, RunQuery, RunRow, Shard, StoreError,
};
use interlock_store_remote::{Found, micros, one_more, page, rounded_up};
use jiff::{SignedDuration, Timestamp};
use redis::Value;

use crate::{
    keys::{self, fixed, score},
    read::{Members, Scores, after, by_member, by_score, rows_of},
    request::{Server, list, text},
};

/// The ledger, in the order of its places.
pub(crate) async fn ledger(
    server: &Server,
    query: &LedgerQuery,
) -> Result<Page<LedgerRow>, StoreError> {
    let mut rows = if query.disposition.as_deref() == Some("open") {
        open(server, query).await?
    } else {
        slots_and_spans(server, query).await?
    };
    rows.retain(|row| is_asked_for(query, row));
    rows.sort_by_cached_key(LedgerRow::place);
    Ok(page(rows, query.limit))
}

fn is_asked_for(query: &LedgerQuery, row: &LedgerRow) -> bool {
    let (last, word) = match &row.entry {
        LedgerEntry::Slot(slot) if slot.is_open() => (row.nominal, Some("open")),
        LedgerEntry::Slot(slot) => (row.nominal, slot.disposition.as_deref()),
        LedgerEntry::Span(span) => (span.last, Some(span.disposition.as_str())),
    };
    row.nominal < query.until
        && last >= query.from
        && query.disposition.as_deref().is_none_or(|wanted| word == Some(wanted))
        && query.after.as_ref().is_none_or(|after| row.place() > *after)
}

/// Slots from the place on, as many as are asked for, and every span that touches the interval.
async fn slots_and_spans(
    server: &Server,
    query: &LedgerQuery,
) -> Result<Vec<LedgerRow>, StoreError> {
    let of = |name: &str| match &query.pipeline {
        Some(pipeline) => server.keys.index(&format!("{name}:{pipeline}")),
        None => server.keys.index(name),
    };
    let from = rounded_up(query.from);
    let (first, place) = match &query.after {
        None => (from, (String::new(), String::new())),
        Some(place) => {
            let key = Key::Slot(place.schedule.clone(), place.nominal);
            let member = keys::member(&place.pipeline, &key);
            (from.max(micros(place.nominal)), (score(place.nominal), member))
        }
    };
    let mut scores = Scores {
        kind: "slot",
        set: of("slots"),
        direction: "up",
        first: first.to_string(),
        last: rounded_up(query.until).to_string(),
        after: place,
        limit: one_more(query.limit),
        word: query.disposition.as_deref().unwrap_or_default(),
        more: "",
    };
    let mut rows = Vec::new();
    loop {
        let mut asked = vec!["ledger".to_owned(), of("spans"), from.to_string()];
        asked.extend(scores.arguments());
        let mut parts = list(server.read(asked).await?)?.into_iter();
        let mut next = || parts.next().unwrap_or(Value::Nil);
        let is_over = text(next())? == "end";
        let slots = rows_of("slot", next())?;
        scores.limit -= slots.len() as i64;
        rows.extend(slots);
        let (last_score, member) = (text(next())?, text(next())?);
        if is_over || scores.limit <= 0 {
            rows.extend(rows_of("span", next())?);
            return rows.into_iter().map(Found::ledger).collect();
        }
        scores.first.clone_from(&last_score);
        scores.after = (last_score, member);
    }
}

/// Open slots: of one pipeline a range of its shard's, else all.
async fn open(server: &Server, query: &LedgerQuery) -> Result<Vec<LedgerRow>, StoreError> {
    let members = |shard: u16, first: String, last: String, limit| Members {
        kind: "open",
        set: server.keys.index(&format!("open:{shard}")),
        first,
        last,
        limit,
        word: "",
    };
    let count = server.shard_count();
    let mut rows = Vec::new();
    if let Some(pipeline) = &query.pipeline {
        let shard = Shard::of(pipeline, count).0;
        // What is finer than a millisecond is left to the one who asks.
        let later = query.until.checked_add(SignedDuration::from_millis(1));
        let first = bound(query.from)
            .map_or_else(|| format!("[{pipeline} "), |from| format!("[{pipeline} {from}"));
        let last = later
            .ok()
            .and_then(bound)
            .map_or_else(|| format!("({pipeline}!"), |until| format!("({pipeline} {until}"));
        let first = match &query.after {
            Some(place) if place.nominal >= query.from => {
                format!("[{pipeline} {}", fixed(place.nominal))
            }
            Some(_) | None => first,
        };
        // Rows at the place itself were seen.
        let limit = one_more(query.limit).saturating_add(1_000);
        rows.extend(by_member(server, members(shard, first, last, limit)).await?);
    } else {
        for shard in 0..count {
            let all = members(shard, "-".to_owned(), "+".to_owned(), i64::MAX);
            rows.extend(by_member(server, all).await?);
        }
    }
    rows.into_iter().map(Found::ledger).collect()
}

/// An instant whose text sorts by time, if it has one.
fn bound(at: Timestamp) -> Option<String> {
    (at.as_second() >= 0).then(|| fixed(at))
}

/// Every open slot of a shard, in the order (pipeline, nominal, schedule).
pub(crate) async fn open_slots(
    server: &Server,
    shard: Shard,
    last: Option<(PipelineId, Timestamp, ScheduleId)>,
    limit: usize,
) -> Result<Page<LedgerRow>, StoreError> {
    let members = Members {
        kind: "open",
        set: server.keys.index(&format!("open:{}", shard.0)),
        first: after(last.map(|(name, at, schedule)| format!("{name} {} {schedule}", fixed(at)))),
        last: "+".to_owned(),
        limit: one_more(limit),
        word: "",
    };
    let rows = by_member(server, members).await?.into_iter().map(Found::ledger);
    Ok(page(rows.collect::<Result<_, _>>()?, limit))
}

/// Runs, newest first.
pub(crate) async fn runs(server: &Server, query: &RunQuery) -> Result<Page<RunRow>, StoreError> {
    let found = match (&query.pipeline, &query.slot) {
        (Some(pipeline), Some((schedule, nominal))) => {
            let place = format!("{pipeline} {schedule} {}", fixed(*nominal));
            let members = Members {
                kind: "run",
                set: server.keys.index(&format!("attempts:{pipeline}")),
                first: format!("[{place} "),
                last: format!("({place}!"),
                limit: i64::MAX,
                word: "",
            };
            by_member(server, members).await?
        }
        _ => by_score(server, newest(server, query)).await?,
    };
    let mut rows: Vec<RunRow> = found.into_iter().map(Found::run).collect::<Result<_, _>>()?;
    rows.retain(|row| {
        query.slot.as_ref().is_none_or(|(schedule, nominal)| {
            row.key.schedule == *schedule && row.key.nominal == *nominal
        }) && query.status.as_ref().is_none_or(|status| row.record.status == *status)
            && query.trigger_type.as_ref().is_none_or(|kind| row.record.trigger_type == *kind)
            && query.after.as_ref().is_none_or(|after| row.place() < *after)
    });
    rows.sort_by_cached_key(|row| std::cmp::Reverse(row.place()));
    Ok(page(rows, query.limit))
}

fn newest<'a>(server: &Server, query: &'a RunQuery) -> Scores<'a> {
    let set =
        query.pipeline.as_ref().map_or_else(|| "runs".to_owned(), |name| format!("runs:{name}"));
    let (first, place) = match &query.after {
        None => ("+inf".to_owned(), (String::new(), String::new())),
        Some(place) => {
            let member = keys::member(&place.pipeline, &Key::Run(place.key.clone()));
            (score(place.created_at), (score(place.created_at), member))
        }
    };
    // A slot of all pipelines is found among all runs: nobody asks for that but a test.
    let limit = if query.slot.is_some() { i64::MAX } else { one_more(query.limit) };
    Scores {
        kind: "run",
        set: server.keys.index(&set),
        direction: "down",
        first,
        last: String::new(),
        after: place,
        limit,
        word: query.status.as_deref().unwrap_or_default(),
        more: query.trigger_type.as_deref().unwrap_or_default(),
    }
}
