//! What waits: reports on their way in, notifications on their way out.

use interlock_core::id::PipelineId;
use interlock_store::{
    InboxEntry, Key, OutboxRow, Page, ReadinessView, Record, SettleOutcome, Settlement, Shard,
    StoreError, for_each,
    record::{InboxRecord, OutboxRecord},
};
use interlock_store_remote::{instant, one_more, page, whole_ttl};
use jiff::SignedDuration;

use crate::{
    apply::{entries, measured, put},
    keys::found,
    link::Script,
    place::{Place, merged},
    read::pair,
    request::{Server, list, number, optional, text},
    views::Views,
};

/// Appends to the inbox, unless the key is there or was answered.
pub(crate) async fn post(
    server: &Server,
    pipeline: &PipelineId,
    key: &str,
    body: String,
) -> Result<(), StoreError> {
    let shard = Shard::of(pipeline, server.shard_count()).0;
    let place = server.places.of(pipeline);
    let keys = &place.keys;
    let arguments = vec![
        "post".to_owned(),
        keys.name(&format!("letters:{pipeline}")),
        keys.name(&format!("applied:{pipeline}")),
        key.to_owned(),
        keys.name(&format!("inbox:{shard}")),
        format!("{pipeline} {key}"),
        body,
    ];
    server.write(place, Script::Queue, arguments).await.map(drop)
}

/// Pipelines whose readiness is shown by one request.
const SHOWN: usize = 200;

/// Shows what pipelines wait for.
pub(crate) async fn show_readiness(
    server: &Server,
    views: &Views,
    shown: &[ReadinessView],
) -> Result<(), StoreError> {
    let mut places: Vec<(&Place, Vec<&ReadinessView>)> = Vec::new();
    for view in shown {
        let place = server.places.of(&view.pipeline);
        match places.iter_mut().find(|(known, _)| std::ptr::eq(*known, place)) {
            Some((_, own)) => own.push(view),
            None => places.push((place, vec![view])),
        }
    }
    for (place, own) in places {
        for portion in own.chunks(SHOWN) {
            let mut arguments = vec!["show".to_owned(), portion.len().to_string()];
            for view in portion {
                views.of_readiness(&place.keys, view, &mut arguments);
            }
            server.write(place, Script::Queue, arguments).await?;
        }
    }
    Ok(())
}

/// The entry that waits under a key.
pub(crate) async fn posted(
    server: &Server,
    pipeline: &PipelineId,
    key: &str,
) -> Result<Option<InboxRecord>, StoreError> {
    let place = server.places.of(pipeline);
    let letters = place.keys.name(&format!("letters:{pipeline}"));
    let asked = ["rows", "1", &letters, key].map(str::to_owned).to_vec();
    let Some(value) = list(server.read(place, asked).await?)?.into_iter().next() else {
        return Ok(None);
    };
    let Some(value) = optional(value)? else { return Ok(None) };
    let found = entry(&format!("{pipeline} {key}"), &value).ok_or_else(|| {
        StoreError::permanent(format!("an entry of the inbox cannot be read: {pipeline} {key}"))
    })?;
    Ok(Some(found.record))
}

/// Entries that are not applied, oldest first.
pub(crate) async fn inbox(
    server: &Server,
    shard: Shard,
    limit: usize,
) -> Result<Page<InboxEntry>, StoreError> {
    let lists = for_each(server.places.listed_with(shard), |place: &Place| async move {
        let set = place.keys.name(&format!("inbox:{}", shard.0));
        let asked = vec!["inbox".to_owned(), set, one_more(limit).to_string()];
        let read = |row| {
            let (member, value) = pair(row)?;
            entry(&member, &value).ok_or_else(|| {
                StoreError::permanent(format!("an entry of the inbox cannot be read: {member}"))
            })
        };
        let rows = list(server.read(place, asked).await?)?.into_iter().map(read);
        rows.collect::<Result<Vec<_>, _>>()
    })
    .await?;
    // Each place counts its own: no pipeline is in two.
    let entries = merged(lists, |entry| (entry.received_at, entry.number));
    Ok(page(entries, limit))
}

fn entry(member: &str, value: &str) -> Option<InboxEntry> {
    let (pipeline, key) = member.split_once(' ')?;
    let mut parts = value.splitn(3, ' ');
    Some(InboxEntry {
        number: parts.next()?.parse().ok()?,
        pipeline: PipelineId::any(pipeline).ok()?,
        key: key.to_owned(),
        received_at: instant(parts.next()?.parse().ok()?).ok()?,
        record: InboxRecord::read(parts.next()?),
    })
}

/// Hands out notifications that may be tried now, those that waited longest first.
pub(crate) async fn claim(
    server: &Server,
    limit: usize,
    ttl: SignedDuration,
) -> Result<Vec<OutboxRow>, StoreError> {
    if !server.places.are_apart() {
        return claim_here(server, &server.places.home, (limit, ttl)).await;
    }
    let (mut places, mut rows): (Vec<&Place>, Vec<OutboxRow>) = (server.places.all(), Vec::new());
    // A place that does not answer holds up nobody else's notifications; that it is away is found by whoever works on its shard.
    let (mut away, mut failed) = (None, None);
    while rows.len() < limit {
        let waiting =
            ask_each(&mut places, &mut away, |place| waiting(server, place, limit - rows.len()))
                .await?;
        let shares = shares(waiting, limit - rows.len());
        let wanted: usize = shares.iter().map(|(_, share)| share).sum();
        let mut got = 0;
        let claims = for_each(shares, |(place, share)| async move {
            Ok(claim_here(server, place, (share, ttl)).await)
        });
        for claimed in claims.await? {
            match claimed {
                Ok(claimed) => {
                    // A claim may be so short that it is over by now.
                    let is_again = |row: &OutboxRow| {
                        claimed
                            .iter()
                            .any(|own| (&own.pipeline, &own.name) == (&row.pipeline, &row.name))
                    };
                    rows.retain(|row| !is_again(row));
                    got += claimed.len();
                    rows.extend(claimed);
                }
                Err(error) => failed = Some(error),
            }
        }
        // What somebody else claimed meanwhile is missing from the share of its place: then there may be more elsewhere.
        if got >= wanted || failed.is_some() {
            break;
        }
    }
    let nobody_answers = away.filter(|_| places.is_empty());
    match failed.or(nobody_answers) {
        Some(error) if rows.is_empty() => Err(error),
        Some(_) | None => Ok(rows),
    }
}

/// Asks places, and goes on with those that answer.
async fn ask_each<'a, T, F>(
    places: &mut Vec<&'a Place>,
    away: &mut Option<StoreError>,
    ask: impl Fn(&'a Place) -> F,
) -> Result<Vec<(&'a Place, T)>, StoreError>
where
    F: Future<Output = Result<T, StoreError>>,
{
    let asked = for_each(std::mem::take(places), |place| {
        let asked = ask(place);
        async move { Ok((place, asked.await)) }
    });
    let mut answers = Vec::new();
    for (place, answer) in asked.await? {
        match answer {
            Ok(answer) => {
                places.push(place);
                answers.push((place, answer));
            }
            Err(error) if error.is_retryable => *away = Some(error),
            Err(error) => return Err(error),
        }
    }
    Ok(answers)
}

/// How many of those that have waited longest are where.
fn shares(waiting: Vec<(&Place, Vec<i64>)>, limit: usize) -> Vec<(&Place, usize)> {
    let each = waiting
        .into_iter()
        .map(|(place, all)| all.into_iter().map(|since| (since, place)).collect::<Vec<_>>());
    let mut shares: Vec<(&Place, usize)> = Vec::new();
    for (_, place) in merged(each.collect(), |(since, _)| *since).into_iter().take(limit) {
        match shares.iter_mut().find(|(known, _)| std::ptr::eq(*known, place)) {
            Some((_, share)) => *share += 1,
            None => shares.push((place, 1)),
        }
    }
    shares
}

async fn claim_here(
    server: &Server,
    place: &Place,
    (limit, ttl): (usize, SignedDuration),
) -> Result<Vec<OutboxRow>, StoreError> {
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let asked = vec!["claim".to_owned(), limit.to_string(), whole_ttl(ttl).to_string()];
    let rows = server.write(place, Script::Queue, asked).await?.into_iter().map(|row| {
        let (member, value) = pair(row)?;
        found("outbox", &member, &value)?.outbox()
    });
    rows.collect()
}

/// Since when notifications of a place wait that may be tried now.
async fn waiting(server: &Server, place: &Place, limit: usize) -> Result<Vec<i64>, StoreError> {
    let asked = vec!["waiting".to_owned(), limit.to_string()];
    list(server.read(place, asked).await?)?.into_iter().map(number).collect()
}

/// Settlements that one script carries out: others wait meanwhile.
const SETTLED: usize = 500;

/// Replaces claimed notifications by what came of them, if their rows are still as they were handed out. A place that does
/// not answer fails its own.
pub(crate) async fn settle_many(
    server: &Server,
    views: &Views,
    settlements: &[Settlement],
) -> Result<Vec<SettleOutcome>, StoreError> {
    let mut portions: Vec<(&Place, Vec<(usize, &Settlement)>)> = Vec::new();
    for numbered in settlements.iter().enumerate() {
        let place = server.places.of(&numbered.1.row.pipeline);
        let known = |(known, own): &&mut (&Place, Vec<_>)| {
            std::ptr::eq(*known, place) && own.len() < SETTLED
        };
        match portions.iter_mut().find(known) {
            Some((_, own)) => own.push(numbered),
            None => portions.push((place, vec![numbered])),
        }
    }
    let asked = for_each(portions, |(place, own)| async move {
        let asked: Vec<&Settlement> = own.iter().map(|(_, settlement)| *settlement).collect();
        let outcomes = match settle_here((server, place), views, &asked).await {
            Ok(outcomes) => outcomes.into_iter().map(Ok).collect(),
            Err(error) => vec![Err(error); own.len()],
        };
        Ok(own.iter().map(|(at, _)| *at).zip(outcomes).collect::<Vec<_>>())
    });
    let mut outcomes: Vec<(usize, SettleOutcome)> = asked.await?.into_iter().flatten().collect();
    outcomes.sort_by_key(|(at, _)| *at);
    Ok(outcomes.into_iter().map(|(_, outcome)| outcome).collect())
}

/// The same in one place; the rows that stay claimed, for each.
async fn settle_here(
    (server, here): (&Server, &Place),
    views: &Views,
    settlements: &[&Settlement],
) -> Result<Vec<Vec<OutboxRow>>, StoreError> {
    let keys = &here.keys;
    let mut arguments = vec!["settle".to_owned(), settlements.len().to_string()];
    for settlement in settlements {
        let row = &settlement.row;
        let place = (&row.pipeline, Shard::of(&row.pipeline, server.shard_count()));
        let own = Key::Outbox(row.name.clone());
        arguments.extend(keys.address(&row.pipeline, &own));
        arguments.push(row.revision.to_string());
        measured(&mut arguments, |into| {
            entries(keys.entries(place, &own, None), into);
            into.push(settlement.becomes.len().to_string());
            for (name, record) in settlement.claimed() {
                let key = Key::Outbox(name.clone());
                let record = Record::Outbox(record.into());
                into.push(name.clone());
                measured(into, |into| put(keys, views, (place, &key, &record), into));
            }
        });
    }
    let answers = server.write(here, Script::Queue, arguments).await?;
    let written = answers.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
    let added = settlements.iter().zip(written).map(|(settlement, written)| {
        let becomes = settlement.claimed().zip(written.chars());
        let claimed = becomes
            .filter(|((_, record), written)| *written == '1' && record.claimed_until.is_some());
        let row = |((name, record), _): ((&String, OutboxRecord), char)| OutboxRow {
            pipeline: settlement.row.pipeline.clone(),
            name: name.clone(),
            record,
            revision: 1,
        };
        claimed.map(row).collect()
    });
    Ok(added.collect())
}
