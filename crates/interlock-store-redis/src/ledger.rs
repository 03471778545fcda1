//! Listings of slots, spans and runs.

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Key, LedgerEntry, LedgerPlace, LedgerQuery, LedgerRow, ListOrder, Page, RunQuery, RunRow,
    Shard, StoreError, for_each,
};
use interlock_store_remote::{Found, micros, one_more, page, rounded_up};
use jiff::{SignedDuration, Timestamp};
use redis::Value;

use crate::{
    keys::{self, fixed, score},
    place::{Place, merged},
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
        let places = query
            .pipeline
            .as_ref()
            .map_or_else(|| server.places.all(), |name| vec![server.places.of(name)]);
        let lists = for_each(places, |place| slots_and_spans(server, place, query)).await?;
        lists.into_iter().flatten().collect()
    };
    rows.retain(|row| is_asked_for(query, row));
    rows.sort_by_cached_key(LedgerRow::place);
    if query.order == ListOrder::NewestFirst {
        rows.reverse();
    }
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
        && query.after.as_ref().is_none_or(|after| match query.order {
            ListOrder::OldestFirst => row.place() > *after,
            ListOrder::NewestFirst => row.place() < *after,
        })
}

/// Slots and spans from the place on, as many of each as are asked for.
async fn slots_and_spans(
    server: &Server,
    place: &Place,
    query: &LedgerQuery,
) -> Result<Vec<LedgerRow>, StoreError> {
    let of = |name: &str| match &query.pipeline {
        Some(pipeline) => place.keys.index(&format!("{name}:{pipeline}")),
        None => place.keys.index(name),
    };
    let (from, until) = (rounded_up(query.from), rounded_up(query.until));
    let after = query.after.as_ref().map(|last| {
        let key = Key::Slot(last.schedule.clone(), last.nominal);
        (micros(last.nominal), keys::member(&last.pipeline, &key), last.is_span)
    });
    let (direction, bounds, after) = match (query.order, after) {
        (ListOrder::OldestFirst, Some((at, member, _))) => {
            ("up", (from.max(at), until), (at.to_string(), member))
        }
        (ListOrder::OldestFirst, None) => ("up", (from, until), Default::default()),
        (ListOrder::NewestFirst, Some((at, member, is_span))) => {
            // The slot with which a span begins comes after it: the place is a little before the slot's.
            let member = if is_span { format!("{member}!") } else { member };
            ("down", ((until - 1).min(at), from), (at.to_string(), member))
        }
        (ListOrder::NewestFirst, None) => ("down", (until - 1, from), Default::default()),
    };
    let mut scores = Scores {
        kind: "slot",
        set: of("slots"),
        direction,
        first: bounds.0.to_string(),
        last: bounds.1.to_string(),
        after,
        limit: one_more(query.limit),
        word: query.disposition.as_deref().unwrap_or_default(),
        more: "",
    };
    let spans = spans_after(query);
    let mut rows = Vec::new();
    loop {
        let mut asked =
            vec!["ledger".to_owned(), of("spans"), from.to_string(), direction.to_owned()];
        asked.extend(spans.clone());
        asked.extend(scores.arguments());
        let mut parts = list(server.read(place, asked).await?)?.into_iter();
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

/// Which spans a page is to have: after which place, whether that is a slot's, how many, and with which disposition.
fn spans_after(query: &LedgerQuery) -> [String; 4] {
    // Only instants since 1970 have a text that sorts by time.
    let after = query.after.as_ref().filter(|after| bound(after.nominal).is_some());
    let member = |after: &LedgerPlace| {
        keys::member(&after.pipeline, &Key::Span(after.schedule.clone(), after.nominal))
    };
    let kind = after.map_or("", |after| if after.is_span { "span" } else { "slot" });
    // The newest come first: those at the end of the question and later are none of them.
    let end = until_text(query).filter(|_| query.order == ListOrder::NewestFirst);
    let is_before_end = |after: &&LedgerPlace| after.nominal < query.until;
    let (place, is_exact) = match (after, &query.after, end) {
        (None, Some(_), _) => (String::new(), false),
        (after, _, Some(end)) => (after.filter(is_before_end).map_or(end, member), true),
        (after, _, None) => {
            let is_upwards = query.order == ListOrder::OldestFirst;
            (after.map(member).unwrap_or_default(), is_upwards)
        }
    };
    // Those that are not asked for are counted out by the one who asks.
    let limit = if is_exact { one_more(query.limit) } else { i64::MAX };
    let word = query.disposition.clone().unwrap_or_default();
    [place, kind.to_owned(), limit.to_string(), word]
}

/// The end of a question as the place before all spans that begin then, if its text sorts by time. Slots are at whole
/// milliseconds.
fn until_text(query: &LedgerQuery) -> Option<String> {
    let whole = Timestamp::from_millisecond(query.until.as_millisecond()).ok()?;
    let rest = i64::from(whole < query.until);
    let end = whole.checked_add(SignedDuration::from_millis(rest)).ok()?;
    bound(end).map(|end| format!(" {end}"))
}

/// Open slots: of one pipeline a range of its shard's, else all.
async fn open(server: &Server, query: &LedgerQuery) -> Result<Vec<LedgerRow>, StoreError> {
    let members =
        |place: &Place, (shard, first, last, limit): (u16, String, String, i64)| Members {
            kind: "open",
            set: place.keys.index(&format!("open:{shard}")),
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
        let is_upwards = query.order == ListOrder::OldestFirst;
        let first = match &query.after {
            Some(place) if is_upwards && place.nominal >= query.from => {
                format!("[{pipeline} {}", fixed(place.nominal))
            }
            Some(_) | None => first,
        };
        // Rows at the place itself were seen. The newest are the last of a range.
        let page = one_more(query.limit).saturating_add(1_000);
        let limit = if is_upwards { page } else { i64::MAX };
        let place = server.places.of(pipeline);
        let own = members(place, (shard, first, last, limit));
        rows.extend(by_member(server, place, own).await?);
    } else {
        for shard in 0..count {
            for place in server.places.listed_with(Shard(shard)) {
                let all = members(place, (shard, "-".to_owned(), "+".to_owned(), i64::MAX));
                rows.extend(by_member(server, place, all).await?);
            }
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
    let first = after(last.map(|(name, at, schedule)| format!("{name} {} {schedule}", fixed(at))));
    let lists = for_each(server.places.listed_with(shard), |place: &Place| {
        let members = Members {
            kind: "open",
            set: place.keys.index(&format!("open:{}", shard.0)),
            first: first.clone(),
            last: "+".to_owned(),
            limit: one_more(limit),
            word: "",
        };
        async move {
            let rows = by_member(server, place, members).await?.into_iter().map(Found::ledger);
            rows.collect::<Result<Vec<_>, _>>()
        }
    })
    .await?;
    let in_turn = |row: &LedgerRow| (row.pipeline.clone(), row.nominal, row.schedule.clone());
    Ok(page(merged(lists, in_turn), limit))
}

/// Runs, newest first.
pub(crate) async fn runs(server: &Server, query: &RunQuery) -> Result<Page<RunRow>, StoreError> {
    let found = match (&query.pipeline, &query.slot) {
        (Some(pipeline), Some((schedule, nominal))) => {
            let place = server.places.of(pipeline);
            let slot = format!("{pipeline} {schedule} {}", fixed(*nominal));
            let members = Members {
                kind: "run",
                set: place.keys.index(&format!("attempts:{pipeline}")),
                first: format!("[{slot} "),
                last: format!("({slot}!"),
                limit: i64::MAX,
                word: "",
            };
            by_member(server, place, members).await?
        }
        (Some(pipeline), None) => {
            let place = server.places.of(pipeline);
            by_score(server, place, newest(place, query)).await?
        }
        (None, _) => {
            let newest_of = |place| by_score(server, place, newest(place, query));
            let lists = for_each(server.places.all(), newest_of).await?;
            lists.into_iter().flatten().collect()
        }
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

fn newest<'a>(place: &Place, query: &'a RunQuery) -> Scores<'a> {
    let set =
        query.pipeline.as_ref().map_or_else(|| "runs".to_owned(), |name| format!("runs:{name}"));
    let (first, after) = match &query.after {
        None => ("+inf".to_owned(), (String::new(), String::new())),
        Some(last) => {
            let member = keys::member(&last.pipeline, &Key::Run(last.key.clone()));
            (score(last.created_at), (score(last.created_at), member))
        }
    };
    // A slot of all pipelines is found among all runs: nobody asks for that but a test.
    let limit = if query.slot.is_some() { i64::MAX } else { one_more(query.limit) };
    Scores {
        kind: "run",
        set: place.keys.index(&set),
        direction: "down",
        first,
        last: String::new(),
        after,
        limit,
        word: query.status.as_deref().unwrap_or_default(),
        more: query.trigger_type.as_deref().unwrap_or_default(),
    }
}
