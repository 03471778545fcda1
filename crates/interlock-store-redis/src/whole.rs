//! The store as a whole: what an archive follows, and what a move takes along.
//!
//! Not everything is in an index, so all rows are found by `SCAN`, and those of a hash by `HSCAN`: what is there all
//! the while comes at least once. The place in between is text: the cursor of each, and the hashes that were found and
//! not read yet.

use std::collections::VecDeque;

use interlock_core::id::PipelineId;
use interlock_store::{
    Archived, ChangedRow, Changes, Forgetting, Freight, Key, Portion, Row, RunKey, Shard,
    StoreError, StoredRow, kept,
};
use interlock_store_remote::{Found, key_text};
use jiff::Timestamp;
use redis::Value;

use crate::{
    apply::{entries, measured, put},
    keys::{self, Keys, found},
    link::Script,
    request::{Server, list, number, optional, text},
    views::Views,
};

/// How many keys the server looks at in one step.
const LOOKS: usize = 1_000;
/// How many hashes of one row each are read at once.
const SINGLES: usize = 500;

/// The hashes that hold rows as fields.
const KINDS: [&str; 10] = [
    "version",
    "watermark",
    "slot",
    "span",
    "sensor",
    "incident",
    "due",
    "outbox",
    "applied",
    "backfill",
];

/// Changes after a number, each row as it is now.
pub(crate) async fn changes(
    server: &Server,
    after: u64,
    limit: usize,
) -> Result<Changes, StoreError> {
    let count = interlock_store_remote::one_more(limit);
    let asked = vec!["changes".to_owned(), after.to_string(), count.to_string()];
    let mut parts = list(server.read(asked).await?)?.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let (since, last) = (text(next())?, number(next())?);
    let (events, changes) = (text(next())?, text(next())?);
    let mut noted = Vec::new();
    for entry in list(next())? {
        let mut parts = list(entry)?.into_iter();
        let mut next = || parts.next().map_or_else(|| Ok(String::new()), text);
        noted.push(change(&next()?, &next()?, &next()?)?);
    }
    let more = noted.len() > limit;
    noted.truncate(limit);
    let mut asked = vec!["rows".to_owned(), noted.len().to_string()];
    for (_, pipeline, key) in &noted {
        asked.extend(server.keys.address(pipeline, key));
    }
    let values = list(server.read(asked).await?)?.into_iter();
    let item = |((number, pipeline, key), value): ((u64, PipelineId, Key), Value)| {
        let value = optional(value)?;
        let place = |key: &Key| (key.kind(), key_text(key));
        let (kind, rest) = place(&key);
        let read = |value: String| keys::read(pipeline.as_str(), (kind, &rest), &value);
        let row = value.map(read).transpose()?.map(Found::row);
        Ok(ChangedRow { number, pipeline, key, row })
    };
    let items = noted.into_iter().zip(values).map(item).collect::<Result<_, StoreError>>()?;
    let since = since.parse().ok();
    let told = |text: String| text.parse().unwrap_or(0);
    let archived = since.map(|_: u64| Archived { events: told(events), changes: told(changes) });
    Ok(Changes { items, more, since, last, archived })
}

fn change(id: &str, pipeline: &str, key: &str) -> Result<(u64, PipelineId, Key), StoreError> {
    let number = id.split('-').next().and_then(|number| number.parse().ok());
    number
        .and_then(|number| Some((number, PipelineId::any(pipeline).ok()?, Key::parse(key)?)))
        .ok_or_else(|| StoreError::permanent(format!("the change {id} of {key} cannot be read")))
}

/// Keeps how far an archive has read; or follows no longer.
pub(crate) async fn archived(server: &Server, up_to: Option<Archived>) -> Result<(), StoreError> {
    let mut asked = vec!["archived".to_owned()];
    match up_to {
        None => asked.push("nobody".to_owned()),
        Some(Archived { events, changes }) => {
            asked.extend(["somebody".to_owned(), events.to_string(), changes.to_string()]);
        }
    }
    server.write(Script::Whole, asked).await.map(drop)
}

/// Where a walk through all rows stands.
struct Walk {
    /// The cursor of `SCAN`; nothing once it is through.
    scan: Option<String>,
    /// The cursor of `HSCAN` in the first hash.
    fields: String,
    hashes: VecDeque<String>,
}

impl Walk {
    fn read(from: &str) -> Self {
        let start = "0".to_owned();
        let mut lines = from.lines().map(str::to_owned);
        let scan = lines.next().unwrap_or_else(|| start.clone());
        let fields = lines.next().unwrap_or(start);
        Self { scan: Some(scan).filter(|scan| scan != "-"), fields, hashes: lines.collect() }
    }

    fn write(&self) -> Option<String> {
        if self.scan.is_none() && self.hashes.is_empty() {
            return None;
        }
        let mut lines = vec![self.scan.as_deref().unwrap_or("-"), &self.fields];
        lines.extend(self.hashes.iter().map(String::as_str));
        Some(lines.join("\n"))
    }

    /// Takes the next step: rows of a hash, rows of hashes that hold one each, or more hashes.
    async fn step(&mut self, server: &Server, limit: usize) -> Result<Vec<StoredRow>, StoreError> {
        let keys = &server.keys;
        let is_single = |hash: &String| single(keys, hash).is_some();
        if self.hashes.front().is_some_and(is_single) {
            let count = self.hashes.iter().take(SINGLES).take_while(|hash| is_single(hash)).count();
            return singles(server, self.hashes.drain(..count).collect()).await;
        }
        if let Some(hash) = self.hashes.front() {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(hash).arg(&self.fields).arg("COUNT").arg(limit);
            let (next, fields): (String, Vec<(String, String)>) = server.link.ask(&scan).await?;
            let rows = fields.iter().map(|(field, value)| row(keys, hash, (field, value)));
            let rows = rows.collect::<Result<_, _>>()?;
            if next == "0" {
                self.hashes.pop_front();
            }
            self.fields = next;
            return Ok(rows);
        }
        if let Some(cursor) = &self.scan {
            let pattern = format!("{}:*", escaped(&keys.prefix));
            let asked = vec!["scan".to_owned(), cursor.clone(), pattern, LOOKS.to_string()];
            let mut parts = list(server.read(asked).await?)?.into_iter();
            let mut part = || parts.next().unwrap_or(Value::Nil);
            let next = text(part())?;
            let found = list(part())?.into_iter().map(text).collect::<Result<Vec<_>, _>>()?;
            let holds_rows =
                |hash: &String| single(keys, hash).is_some() || kind_of(keys, hash).is_some();
            self.hashes.extend(found.into_iter().filter(holds_rows));
            self.scan = Some(next).filter(|next| next != "0");
        }
        Ok(vec![])
    }
}

/// Some of all rows.
pub(crate) async fn portion(
    server: &Server,
    from: &str,
    limit: usize,
) -> Result<Portion, StoreError> {
    let mut walk = Walk::read(from);
    let mut items = Vec::new();
    loop {
        items.extend(walk.step(server, limit.max(1)).await?);
        let next = walk.write();
        if next.is_none() || items.len() >= limit.max(1) {
            return Ok(Portion { items, next });
        }
    }
}

/// A text that `MATCH` takes as it is.
fn escaped(prefix: &str) -> String {
    let escape = |letter: char| match letter {
        '*' | '?' | '[' | ']' | '\\' | '^' | '-' => format!("\\{letter}"),
        other => other.to_string(),
    };
    prefix.chars().map(escape).collect()
}

fn rest_of<'a>(keys: &Keys, hash: &'a str) -> Option<(&'a str, &'a str)> {
    hash.strip_prefix(&keys.prefix)?.strip_prefix(':')?.split_once(':')
}

/// The kind and the pipeline of a hash with many rows.
fn kind_of<'a>(keys: &Keys, hash: &'a str) -> Option<(&'static str, &'a str)> {
    let (word, name) = rest_of(keys, hash)?;
    let kind = KINDS.into_iter().find(|kind| *kind == word)?;
    PipelineId::any(name).is_ok().then_some((kind, name))
}

/// Whose row, and which, a hash holds that holds only one.
fn single(keys: &Keys, hash: &str) -> Option<(PipelineId, Key)> {
    match rest_of(keys, hash)? {
        ("pipeline", name) => Some((PipelineId::any(name).ok()?, Key::Pipeline)),
        ("run", id) => {
            let (name, place) = id.split_once('~')?;
            // Whose it is makes no difference to the rest, and `_system` is no name of a run that people write.
            let (_, run) = RunKey::parse(&format!("any~{place}")).ok()?;
            Some((PipelineId::any(name).ok()?, Key::Run(run)))
        }
        _ => None,
    }
}

async fn singles(server: &Server, hashes: Vec<String>) -> Result<Vec<StoredRow>, StoreError> {
    let mut asked = vec!["rows".to_owned(), hashes.len().to_string()];
    for hash in &hashes {
        asked.extend([hash.clone(), "row".to_owned()]);
    }
    let values = list(server.read(asked).await?)?;
    let mut rows = Vec::new();
    for (hash, value) in hashes.iter().zip(values) {
        if let (Some((pipeline, key)), Some(value)) = (single(&server.keys, hash), optional(value)?)
        {
            let text = key_text(&key);
            rows.push(stored(keys::read(pipeline.as_str(), (key.kind(), &text), &value)?));
        }
    }
    Ok(rows)
}

fn row(keys: &Keys, hash: &str, (field, value): (&str, &str)) -> Result<StoredRow, StoreError> {
    let (kind, pipeline) = kind_of(keys, hash)
        .ok_or_else(|| StoreError::permanent(format!("{hash} holds no rows")))?;
    Ok(stored(found(kind, &format!("{pipeline} {field}"), value)?))
}

fn stored(found: Found) -> StoredRow {
    let Found { pipeline, key, record, revision } = found;
    StoredRow { pipeline, key, row: Row { record, revision } }
}

/// Takes over what another store holds.
pub(crate) async fn import(
    server: &Server,
    views: &Views,
    freight: Freight,
) -> Result<(), StoreError> {
    let Freight { rows, events, inbox, last, store } = freight;
    let (count, keys) = (server.shard_count(), &server.keys);
    let mut asked = vec!["import".to_owned(), rows.len().to_string()];
    for StoredRow { pipeline, key, row } in &rows {
        asked.extend(keys.address(pipeline, key));
        asked.push(row.revision.to_string());
        let place = (pipeline, Shard::of(pipeline, count));
        put(server, views, (place, key, &row.record), &mut asked);
    }
    asked.push(events.len().to_string());
    for event in &events {
        asked.extend([event.number.to_string(), event.pipeline.to_string()]);
        asked.extend([event.record.kind.clone(), event.record.encode()]);
    }
    asked.push(inbox.len().to_string());
    for entry in &inbox {
        let (pipeline, key) = (&entry.pipeline, &entry.key);
        asked.extend([keys.name(&format!("letters:{pipeline}")), key.clone()]);
        asked.push(keys.name(&format!("inbox:{}", Shard::of(pipeline, count).0)));
        asked.push(format!("{pipeline} {key}"));
        asked.push(entry.received_at.as_millisecond().to_string());
        asked.push(entry.record.encode());
    }
    asked.push(last.to_string());
    asked.push(store.map(|store| store.to_string()).unwrap_or_default());
    server.write(Script::Whole, asked).await.map(drop)
}

/// Takes out what is old, and says below which instant.
pub(crate) async fn forget(
    server: &Server,
    views: &Views,
    (what, now): (Forgetting, Timestamp),
) -> Result<usize, StoreError> {
    let (count, keys) = (server.shard_count(), &server.keys);
    let mut asked = Vec::new();
    match what.floor {
        None => asked.push(String::new()),
        Some(floor) => {
            asked.push(floor.to_string());
            let (pipeline, key) = (PipelineId::system(), Key::Sensor(kept::FLOOR_KEY.to_owned()));
            asked.extend(keys.address(&pipeline, &key));
            let record = kept::floor_record(floor, now);
            let place = (&pipeline, Shard::of(&pipeline, count));
            measured(&mut asked, |into| put(server, views, (place, &key, &record), into));
        }
    }
    asked.push(what.rows.len().to_string());
    for (pipeline, key, revision) in &what.rows {
        let runs =
            if let Key::Slot(..) = key { keys::member(pipeline, key) } else { String::new() };
        asked.extend([pipeline.to_string(), runs]);
        asked.extend(keys.address(pipeline, key));
        asked.push(revision.to_string());
        let place = (pipeline, Shard::of(pipeline, count));
        measured(&mut asked, |into| entries(keys.entries(place, key, None), into));
    }
    asked.push(what.events.to_string());
    let answer = server.write(Script::Forget, asked).await?;
    answer.into_iter().next().map_or(Ok(0), number)
}
