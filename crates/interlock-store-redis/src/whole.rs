//! The store as a whole: what an archive follows, and what a move takes along.
//!
//! Not everything is in an index, so all rows are found by `SCAN`, and those of a hash by `HSCAN`: what is there all
//! the while comes at least once. The place in between is text: the cursor of each, and the hashes that were found and
//! not read yet.

use std::collections::VecDeque;

use interlock_core::id::PipelineId;
use interlock_store::{
    Archived, ChangedRow, Changes, EventRow, Forgetting, Freight, InboxEntry, Key, Portion, Row,
    Rows, RunKey, Shard, StoreError, StoredRow, for_each, kept,
};
use interlock_store_remote::{Found, key_text};
use jiff::Timestamp;
use redis::Value;

use crate::{
    apply::{entries, measured, put},
    keys::{self, Keys, found},
    link::Script,
    numbers,
    place::{Place, merged},
    request::{Server, list, number, optional, text},
    views::Views,
};

/// How many keys the server looks at in one step.
const LOOKS: usize = 1_000;
/// How many such steps one portion takes at most, however little they find.
const SCANS: usize = 20;
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
    if server.places.are_apart() {
        let (Header { since, last, events, changes }, _) =
            noted(server, &server.places.home, (after, None, count)).await?;
        // Whoever only wants to know whether somebody follows needs no shard.
        if after >= last {
            let archived = since.map(|_| Archived { events, changes });
            return Ok(Changes { items: vec![], more: false, since, last, archived });
        }
    }
    let up_to = numbers::settled(server, &server.places.all()).await?;
    let asked = (after, up_to, count);
    let own = |place| async move { noted(server, place, asked).await };
    let mut lists: Vec<Vec<Note>> = for_each(server.places.shards.iter().collect(), own)
        .await?
        .into_iter()
        .map(|(_, notes)| notes)
        .collect();
    // The home last: what shards have been told to forget before they were asked is before its `since`.
    let (header, notes) = noted(server, &server.places.home, asked).await?;
    lists.push(notes);
    let Header { since, last, events, changes } = header;
    let mut notes = merged(lists, |note| note.number);
    notes.retain(|note| since.is_some_and(|since| note.number > since));
    let more = notes.len() > limit;
    notes.truncate(limit);
    let items = as_they_are(server, notes).await?;
    let archived = since.map(|_| Archived { events, changes });
    Ok(Changes { items, more, since, last: up_to.unwrap_or(last), archived })
}

/// That a row was written or deleted.
struct Note {
    number: u64,
    pipeline: PipelineId,
    key: Key,
}

/// What a place says beside its notes; only the home knows.
struct Header {
    since: Option<u64>,
    last: u64,
    events: u64,
    changes: u64,
}

/// Notes of a place after a number, up to another if there is one.
async fn noted(
    server: &Server,
    place: &Place,
    (after, up_to, count): (u64, Option<u64>, i64),
) -> Result<(Header, Vec<Note>), StoreError> {
    let mut asked = vec!["changes".to_owned(), after.to_string()];
    asked.extend([numbers::bound(up_to), count.to_string()]);
    let mut parts = list(server.read(place, asked).await?)?.into_iter();
    let mut next = || parts.next().unwrap_or(Value::Nil);
    let (since, last) = (text(next())?.parse().ok(), number(next())?);
    let told = |text: String| text.parse().unwrap_or(0);
    let (events, changes) = (told(text(next())?), told(text(next())?));
    let mut notes = Vec::new();
    for entry in list(next())? {
        let mut parts = list(entry)?.into_iter();
        let mut next = || parts.next().map_or_else(|| Ok(String::new()), text);
        notes.push(note(&next()?, &next()?, &next()?)?);
    }
    Ok((Header { since, last, events, changes }, notes))
}

/// The rows of notes as they are now.
async fn as_they_are(server: &Server, notes: Vec<Note>) -> Result<Vec<ChangedRow>, StoreError> {
    let mut by_place: Vec<(&Place, Vec<Note>)> = Vec::new();
    for note in notes {
        let place = server.places.of(&note.pipeline);
        match by_place.iter_mut().find(|(known, _)| std::ptr::eq(*known, place)) {
            Some((_, own)) => own.push(note),
            None => by_place.push((place, vec![note])),
        }
    }
    let lists = for_each(by_place, |(place, notes): (&Place, Vec<Note>)| async move {
        let mut asked = vec!["rows".to_owned(), notes.len().to_string()];
        for Note { pipeline, key, .. } in &notes {
            asked.extend(place.keys.address(pipeline, key));
        }
        let values = list(server.read(place, asked).await?)?.into_iter();
        notes.into_iter().zip(values).map(changed).collect::<Result<Vec<_>, StoreError>>()
    })
    .await?;
    Ok(merged(lists, |row| row.number))
}

fn changed((note, value): (Note, Value)) -> Result<ChangedRow, StoreError> {
    let Note { number, pipeline, key } = note;
    let (kind, rest) = (key.kind(), key_text(&key));
    let read = |value: String| keys::read(pipeline.as_str(), (kind, &rest), &value);
    let row = optional(value)?.map(read).transpose()?.map(Found::row);
    Ok(ChangedRow { number, pipeline, key, row })
}

fn note(id: &str, pipeline: &str, key: &str) -> Result<Note, StoreError> {
    let number = id.split('-').next().and_then(|number| number.parse().ok());
    let note = |number| {
        let (pipeline, key) = (PipelineId::any(pipeline).ok()?, Key::parse(key)?);
        Some(Note { number, pipeline, key })
    };
    number
        .and_then(note)
        .ok_or_else(|| StoreError::permanent(format!("the change {id} of {key} cannot be read")))
}

/// Keeps how far an archive has read; or follows no longer.
pub(crate) async fn archived(server: &Server, up_to: Option<Archived>) -> Result<(), StoreError> {
    let mut asked = vec!["archived".to_owned()];
    match up_to {
        None => asked.push("none".to_owned()),
        Some(Archived { events, changes }) => {
            asked.extend(["some".to_owned(), events.to_string(), changes.to_string()]);
        }
    }
    let answer = server.write(&server.places.home, Script::Whole, asked).await?;
    if !server.places.are_apart() {
        return Ok(());
    }
    let since = answer.into_iter().next().map_or_else(|| Ok(String::new()), text)?;
    for_each(server.places.shards.iter().collect(), |place: &Place| {
        let asked = vec!["noted".to_owned(), since.clone()];
        async move { server.write(place, Script::Whole, asked).await.map(drop) }
    })
    .await?;
    // Whoever got numbers before the home knew that somebody archives notes nothing; the walk through all rows that begins now
    // must not be too early for what they write.
    numbers::settled(server, &server.places.all()).await.map(drop)
}

/// Where a walk through all rows stands.
struct Walk {
    /// In which place: the home is the first.
    place: usize,
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
        let place = lines.next().and_then(|place| place.parse().ok()).unwrap_or(0);
        let scan = lines.next().unwrap_or_else(|| start.clone());
        let fields = lines.next().unwrap_or(start);
        let scan = Some(scan).filter(|scan| scan != "-");
        Self { place, scan, fields, hashes: lines.collect() }
    }

    /// Goes on to the next place when it is through one; false if there is none.
    fn goes_on(&mut self, places: usize) -> bool {
        if self.scan.is_some() || !self.hashes.is_empty() {
            return true;
        }
        self.place += 1;
        self.scan = Some("0".to_owned());
        self.place < places
    }

    fn write(&self) -> String {
        let place = self.place.to_string();
        let mut lines = vec![&place, self.scan.as_deref().unwrap_or("-"), &self.fields];
        lines.extend(self.hashes.iter().map(String::as_str));
        lines.join("\n")
    }

    /// Takes the next step: rows of a hash, rows of hashes that hold one each, or more hashes.
    async fn step(
        &mut self,
        (server, place): (&Server, &Place),
        which: Rows,
        limit: usize,
    ) -> Result<Vec<StoredRow>, StoreError> {
        let keys = &place.keys;
        let is_single = |hash: &String| single(keys, hash).is_some();
        if self.hashes.front().is_some_and(is_single) {
            let count = self.hashes.iter().take(SINGLES).take_while(|hash| is_single(hash)).count();
            return singles((server, place), self.hashes.drain(..count).collect()).await;
        }
        if let Some(hash) = self.hashes.front() {
            let mut scan = redis::cmd("HSCAN");
            scan.arg(hash).arg(&self.fields).arg("COUNT").arg(limit);
            let (next, fields): (String, Vec<(String, String)>) = server.ask(place, &scan).await?;
            let rows = fields.iter().map(|(field, value)| row(keys, hash, (field, value)));
            let rows = rows.collect::<Result<_, _>>()?;
            if next == "0" {
                self.hashes.pop_front();
            }
            self.fields = next;
            return Ok(rows);
        }
        if let Some(cursor) = &self.scan {
            let kind = which.kind().map_or_else(String::new, |kind| format!("{kind}:"));
            let pattern = format!("{}:{kind}*", escaped(&keys.prefix));
            let asked = vec!["scan".to_owned(), cursor.clone(), pattern, LOOKS.to_string()];
            let mut parts = list(server.read(place, asked).await?)?.into_iter();
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

/// Some of the rows.
pub(crate) async fn portion(
    server: &Server,
    which: Rows,
    from: &str,
    limit: usize,
) -> Result<Portion, StoreError> {
    let (mut walk, places) = (Walk::read(from), server.places.all());
    let (mut items, mut scans) = (Vec::new(), 0);
    while let Some(place) = places.get(walk.place) {
        scans += usize::from(walk.hashes.is_empty());
        items.extend(walk.step((server, place), which, limit.max(1)).await?);
        let is_enough = items.len() >= limit.max(1) || scans >= SCANS;
        if walk.goes_on(places.len()) && is_enough {
            return Ok(Portion { items, next: Some(walk.write()) });
        }
    }
    Ok(Portion { items, next: None })
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

async fn singles(
    (server, place): (&Server, &Place),
    hashes: Vec<String>,
) -> Result<Vec<StoredRow>, StoreError> {
    let mut asked = vec!["rows".to_owned(), hashes.len().to_string()];
    for hash in &hashes {
        asked.extend([hash.clone(), "row".to_owned()]);
    }
    let values = list(server.read(place, asked).await?)?;
    let mut rows = Vec::new();
    for (hash, value) in hashes.iter().zip(values) {
        if let (Some((pipeline, key)), Some(value)) = (single(&place.keys, hash), optional(value)?)
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

/// Takes over what another store holds: the home first, so that no shard has a number that was never given.
pub(crate) async fn import(
    server: &Server,
    views: &Views,
    freight: Freight,
) -> Result<(), StoreError> {
    let highest = freight.events.iter().map(|event| event.number).max().unwrap_or(0);
    for place in server.places.all() {
        let is_here = |pipeline: &PipelineId| std::ptr::eq(server.places.of(pipeline), place);
        let Freight { rows, events, inbox, last, store } = &freight;
        let own = Cargo {
            rows: rows.iter().filter(|row| is_here(&row.pipeline)).collect(),
            events: events.iter().filter(|event| is_here(&event.pipeline)).collect(),
            inbox: inbox.iter().filter(|entry| is_here(&entry.pipeline)).collect(),
        };
        let is_home = place.shard.is_none();
        if !is_home && own.is_empty() {
            continue;
        }
        let mut asked = vec!["import".to_owned()];
        own.load((&place.keys, server.shard_count()), views, &mut asked);
        asked.push(if is_home { *last.max(&highest) } else { 0 }.to_string());
        let store = store.filter(|_| is_home);
        asked.push(store.map(|store| store.to_string()).unwrap_or_default());
        server.write(place, Script::Whole, asked).await?;
    }
    Ok(())
}

/// What comes into one place.
struct Cargo<'a> {
    rows: Vec<&'a StoredRow>,
    events: Vec<&'a EventRow>,
    inbox: Vec<&'a InboxEntry>,
}

impl Cargo<'_> {
    fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.events.is_empty() && self.inbox.is_empty()
    }

    /// As arguments.
    fn load(&self, (keys, count): (&Keys, u16), views: &Views, into: &mut Vec<String>) {
        into.push(self.rows.len().to_string());
        for StoredRow { pipeline, key, row } in &self.rows {
            into.extend(keys.address(pipeline, key));
            into.push(row.revision.to_string());
            let place = (pipeline, Shard::of(pipeline, count));
            put(keys, views, (place, key, &row.record), into);
        }
        into.push(self.events.len().to_string());
        for event in &self.events {
            into.extend([event.number.to_string(), event.pipeline.to_string()]);
            into.extend([event.record.kind.to_string(), event.record.encode()]);
        }
        into.push(self.inbox.len().to_string());
        for entry in &self.inbox {
            let (pipeline, key) = (&entry.pipeline, &entry.key);
            into.extend([keys.name(&format!("letters:{pipeline}")), key.clone()]);
            into.push(keys.name(&format!("inbox:{}", Shard::of(pipeline, count).0)));
            into.push(format!("{pipeline} {key}"));
            into.push(entry.received_at.as_millisecond().to_string());
            into.push(entry.record.encode());
        }
    }
}

/// Takes out what is old, and says below which instant: the home first, which has the floor.
pub(crate) async fn forget(
    server: &Server,
    views: &Views,
    (what, now): (Forgetting, Timestamp),
) -> Result<usize, StoreError> {
    let count = server.shard_count();
    let mut gone = 0;
    for place in server.places.all() {
        let keys = &place.keys;
        let mut asked = Vec::new();
        match what.floor.filter(|_| place.shard.is_none()) {
            None => asked.push(String::new()),
            Some(floor) => {
                asked.push(floor.to_string());
                let (pipeline, key) =
                    (PipelineId::system(), Key::Sensor(kept::FLOOR_KEY.to_owned()));
                asked.extend(keys.address(&pipeline, &key));
                let record = kept::floor_record(floor, now);
                let place = (&pipeline, Shard::of(&pipeline, count));
                measured(&mut asked, |into| put(keys, views, (place, &key, &record), into));
            }
        }
        let is_here =
            |(pipeline, ..): &&(PipelineId, _, _)| std::ptr::eq(server.places.of(pipeline), place);
        let rows: Vec<_> = what.rows.iter().filter(is_here).collect();
        if rows.is_empty() && what.events == 0 && place.shard.is_some() {
            continue;
        }
        asked.push(rows.len().to_string());
        for (pipeline, key, revision) in rows {
            let runs =
                if let Key::Slot(..) = key { keys::member(pipeline, key) } else { String::new() };
            asked.extend([pipeline.to_string(), runs]);
            asked.extend(keys.address(pipeline, key));
            asked.push(revision.to_string());
            let place = (pipeline, Shard::of(pipeline, count));
            measured(&mut asked, |into| entries(keys.entries(place, key, None), into));
        }
        asked.push(what.events.to_string());
        let answer = server.write(place, Script::Forget, asked).await?;
        gone += answer.into_iter().next().map_or(Ok(0), number::<usize>)?;
    }
    Ok(gone)
}
