//! Groups, as arguments of the script that applies them.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use interlock_core::id::PipelineId;
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Record, Refusal, Shard, StoreError, Term,
};
use interlock_store_remote::Stored;
use redis::Value;

use crate::{
    keys::{Entry, Keys, claimed, rest},
    link::Script,
    numbers::Wanted,
    place::Place,
    request::{Server, list, number, text},
    views::Views,
};

/// How many groups one script applies: others wait meanwhile.
const GROUPS_MAX: usize = 500;

type Outcome = Result<Accepted, Refusal>;

/// Applies the groups of one call; a result each.
pub(crate) async fn commit(
    server: &Server,
    views: &Views,
    groups: Vec<Group>,
) -> Result<Vec<Outcome>, StoreError> {
    let mut refused: BTreeSet<PipelineId> = BTreeSet::new();
    let mut results: Vec<(usize, Outcome)> = Vec::with_capacity(groups.len());
    for (place, own) in by_place(server, &groups) {
        for part in own.chunks(GROUPS_MAX) {
            let groups: Vec<&Group> = part.iter().map(|(_, group)| *group).collect();
            let outcomes = commit_part((server, place), views, &groups, &mut refused).await?;
            results.extend(part.iter().map(|(at, _)| *at).zip(outcomes));
        }
    }
    results.sort_by_key(|(at, _)| *at);
    Ok(results.into_iter().map(|(_, outcome)| outcome).collect())
}

/// Groups with their numbers in the call, those of one place together.
fn by_place<'a>(
    server: &'a Server,
    groups: &'a [Group],
) -> Vec<(&'a Place, Vec<(usize, &'a Group)>)> {
    let mut places: Vec<(&Place, Vec<(usize, &Group)>)> = Vec::new();
    for (at, group) in groups.iter().enumerate() {
        let place = server.places.of(&group.pipeline);
        match places.iter_mut().find(|(known, _)| std::ptr::eq(*known, place)) {
            Some((_, own)) => own.push((at, group)),
            None => places.push((place, vec![(at, group)])),
        }
    }
    places
}

async fn commit_part(
    (server, place): (&Server, &Place),
    views: &Views,
    groups: &[&Group],
    refused: &mut BTreeSet<PipelineId>,
) -> Result<Vec<Outcome>, StoreError> {
    // What can never be applied is not sent, and nothing of its pipeline after it.
    let mut stopped = refused.clone();
    let mut sent = Vec::new();
    for group in groups.iter().copied() {
        if stopped.contains(&group.pipeline) {
            continue;
        }
        if group.refusal().is_some() {
            stopped.insert(group.pipeline.clone());
        } else {
            sent.push(group);
        }
    }
    let mut answers = if sent.is_empty() {
        Vec::new()
    } else {
        let wanted = numbers(&sent);
        let most = wanted.events + wanted.notes;
        let mut arguments = vec![most.to_string(), sent.len().to_string()];
        for group in &sent {
            encode((&place.keys, server.shard_count()), views, group, &mut arguments);
        }
        if place.shard.is_some() && most > 0 {
            server.write_numbered(place, (Script::Commit, wanted), arguments).await?
        } else {
            server.write(place, Script::Commit, arguments).await?
        }
    }
    .into_iter();
    let mut waiting = sent.into_iter().peekable();
    let mut results = Vec::with_capacity(groups.len());
    for group in groups.iter().copied() {
        let is_sent = waiting.next_if(|next| std::ptr::eq(*next, group)).is_some();
        let answer = if is_sent { answers.next() } else { None };
        let outcome = match (refused.contains(&group.pipeline), answer) {
            (true, _) => Err(Refusal::Behind),
            (false, Some(answer)) => decode(group, answer)?,
            (false, None) => Err(group.refusal().unwrap_or(Refusal::Behind)),
        };
        if let Ok(accepted) = &outcome {
            server.last_event.fetch_max(accepted.last_event, Ordering::Relaxed);
        } else {
            refused.insert(group.pipeline.clone());
        }
        results.push(outcome);
    }
    Ok(results)
}

/// How many numbers the groups can need: one for each event, and one for each note to an archive.
fn numbers(groups: &[&Group]) -> Wanted {
    let changes = || groups.iter().flat_map(|group| &group.changes);
    let events = changes().filter(|change| change.key().is_none()).count();
    let notes = changes().filter(|change| change.key().is_some_and(Key::is_followed)).count();
    Wanted { events, notes }
}

fn encode((keys, count): (&Keys, u16), views: &Views, group: &Group, into: &mut Vec<String>) {
    let Group { pipeline, writer, changes } = group;
    let [lease, _lock] = keys.lease(writer.role, writer.shard);
    // Its own: the writer's may be another one for `_system`.
    let shard = Shard::of(pipeline, count);
    // An answer to a letter is two changes of the script.
    let answers = |change: &&Change| matches!(change, Change::Put(Key::Applied(_), ..));
    let all = changes.len() + changes.iter().filter(answers).count();
    into.extend([pipeline.to_string(), lease, writer.term.0.to_string(), all.to_string()]);
    for change in changes {
        match change {
            Change::Append(event) => {
                into.extend(["event".to_owned(), pipeline.to_string(), event.kind.to_string()]);
                into.push(event.encode());
                into.extend([views.events_max.to_string(), views.retention_ms.to_string()]);
                measured(into, |into| views.of_event(keys, pipeline, event, into));
            }
            Change::Delete(key, expected) => {
                let whole = matches!(key, Key::Pipeline | Key::Run(_));
                into.push(if whole { "drop" } else { "delete" }.to_owned());
                into.extend(keys.address(pipeline, key));
                into.push(expect(*expected));
                into.push(note(key));
                measured(into, |into| {
                    entries(keys.entries((pipeline, shard), key, None), into);
                });
            }
            Change::Put(key, expected, record) => {
                into.push("put".to_owned());
                into.extend(keys.address(pipeline, key));
                into.push(expect(*expected));
                into.push(note(key));
                measured(into, |into| {
                    put(keys, views, ((pipeline, shard), key, record), into);
                });
            }
        }
    }
    for change in changes.iter().filter(answers) {
        let Some(Key::Applied(name)) = change.key() else { continue };
        into.push("answered".to_owned());
        into.extend([keys.name(&format!("letters:{pipeline}")), name.clone()]);
        into.push(keys.name(&format!("inbox:{}", writer.shard.0)));
        into.push(format!("{pipeline} {name}"));
    }
}

/// Words with their number in front, so that the script can pass over them.
pub(crate) fn measured(into: &mut Vec<String>, write: impl FnOnce(&mut Vec<String>)) {
    let place = into.len();
    into.push(String::new());
    write(into);
    let count = into.len() - place - 1;
    if let Some(first) = into.get_mut(place) {
        *first = count.to_string();
    }
}

/// What a row will hold, its entries in the indexes, and the views of it.
pub(crate) fn put(
    keys: &Keys,
    views: &Views,
    (place, key, record): ((&PipelineId, Shard), &Key, &Record),
    into: &mut Vec<String>,
) {
    let stored = Stored::of(key, record);
    into.extend([rest(&stored), claimed(key, &stored)]);
    entries(keys.entries(place, key, Some(&stored)), into);
    views.of(keys, place.0, (key, record), into);
}

/// Entries, with their number in front.
pub(crate) fn entries(entries: Vec<Entry>, into: &mut Vec<String>) {
    into.push(entries.len().to_string());
    for Entry { set, member, score } in entries {
        into.extend([set, member, score.map(|score| score.to_string()).unwrap_or_default()]);
    }
}

/// What an archive is told of a row, if it is told of such rows.
fn note(key: &Key) -> String {
    if key.is_followed() { key.to_string() } else { String::new() }
}

fn expect(expect: Expect) -> String {
    match expect {
        Expect::Absent => "-".to_owned(),
        Expect::Any => "*".to_owned(),
        Expect::Revision(revision) => revision.to_string(),
    }
}

fn decode(group: &Group, answer: Value) -> Result<Outcome, StoreError> {
    let mut parts = list(answer)?.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let word = text(next())?;
    Ok(match word.as_str() {
        "done" => Ok(Accepted { last_event: number(next())? }),
        "term" => Err(Refusal::Term { current: Term(number(next())?) }),
        "conflict" => {
            let at: usize = number(next())?;
            let found = number(next())?;
            let change = at.checked_sub(1).and_then(|at| group.changes.get(at));
            let key = change.and_then(Change::key).cloned().unwrap_or(Key::Pipeline);
            Err(Refusal::Conflict { key, found })
        }
        _ => Err(Refusal::Behind),
    })
}
