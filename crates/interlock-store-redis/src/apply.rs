//! Groups, as arguments of the script that applies them.

use std::{collections::BTreeSet, sync::atomic::Ordering};

use interlock_core::id::PipelineId;
use interlock_store::{
    Accepted, Change, Expect, Group, Key, Record, Refusal, Shard, StoreError, Term,
};
use interlock_store_remote::Stored;
use redis::Value;

use crate::{
    keys::{Entry, claimed, rest},
    link::Script,
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
    let mut results = Vec::with_capacity(groups.len());
    for part in groups.chunks(GROUPS_MAX) {
        results.extend(commit_part(server, views, part, &mut refused).await?);
    }
    Ok(results)
}

async fn commit_part(
    server: &Server,
    views: &Views,
    groups: &[Group],
    refused: &mut BTreeSet<PipelineId>,
) -> Result<Vec<Outcome>, StoreError> {
    // What can never be applied is not sent, and nothing of its pipeline after it.
    let mut stopped = refused.clone();
    let mut sent = Vec::new();
    for group in groups {
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
        let mut arguments = vec![numbers(&sent).to_string(), sent.len().to_string()];
        for group in &sent {
            encode(server, views, group, &mut arguments);
        }
        server.write(Script::Commit, arguments).await?
    }
    .into_iter();
    let mut waiting = sent.into_iter().peekable();
    let mut results = Vec::with_capacity(groups.len());
    for group in groups {
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

/// How many numbers of events the groups can need: one for each event, and one for each note to an archive.
fn numbers(groups: &[&Group]) -> usize {
    let needs = |change: &&Change| change.key().is_none_or(Key::is_followed);
    groups.iter().map(|group| group.changes.iter().filter(needs).count()).sum()
}

fn encode(server: &Server, views: &Views, group: &Group, into: &mut Vec<String>) {
    let Group { pipeline, writer, changes } = group;
    let [lease, _lock] = server.keys.lease(writer.role, writer.shard);
    // Its own: the writer's may be another one for `_system`.
    let shard = Shard::of(pipeline, server.shard_count());
    // An answer to a letter is two changes of the script.
    let answers = |change: &&Change| matches!(change, Change::Put(Key::Applied(_), ..));
    let count = changes.len() + changes.iter().filter(answers).count();
    into.extend([pipeline.to_string(), lease, writer.term.0.to_string(), count.to_string()]);
    for change in changes {
        match change {
            Change::Append(event) => {
                into.extend(["event".to_owned(), pipeline.to_string(), event.kind.clone()]);
                into.push(event.encode());
                into.extend([views.events_max.to_string(), views.retention_ms.to_string()]);
                measured(into, |into| views.of_event(&server.keys, pipeline, event, into));
            }
            Change::Delete(key, expected) => {
                let whole = matches!(key, Key::Pipeline | Key::Run(_));
                into.push(if whole { "drop" } else { "delete" }.to_owned());
                into.extend(server.keys.address(pipeline, key));
                into.push(expect(*expected));
                into.push(note(key));
                measured(into, |into| {
                    entries(server.keys.entries((pipeline, shard), key, None), into);
                });
            }
            Change::Put(key, expected, record) => {
                into.push("put".to_owned());
                into.extend(server.keys.address(pipeline, key));
                into.push(expect(*expected));
                into.push(note(key));
                measured(into, |into| {
                    put(server, views, ((pipeline, shard), key, record), into);
                });
            }
        }
    }
    for change in changes.iter().filter(answers) {
        let Some(Key::Applied(name)) = change.key() else { continue };
        into.push("answered".to_owned());
        into.extend([server.keys.name(&format!("letters:{pipeline}")), name.clone()]);
        into.push(server.keys.name(&format!("inbox:{}", writer.shard.0)));
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
    server: &Server,
    views: &Views,
    (place, key, record): ((&PipelineId, Shard), &Key, &Record),
    into: &mut Vec<String>,
) {
    let stored = Stored::of(key, record);
    into.extend([rest(&stored), claimed(key, &stored)]);
    entries(server.keys.entries(place, key, Some(&stored)), into);
    views.of(&server.keys, place.0, (key, record), into);
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
