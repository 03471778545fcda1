//! What waits: reports on their way in, notifications on their way out.

use interlock_core::id::PipelineId;
use interlock_store::{
    InboxEntry, Key, OutboxRow, Page, Record, Shard, StoreError,
    record::{InboxRecord, OutboxRecord},
};
use interlock_store_remote::{instant, one_more, page, whole_ttl};
use jiff::SignedDuration;

use crate::{
    apply::{entries, put},
    keys::found,
    link::Script,
    read::pair,
    request::{Server, list},
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
    let keys = &server.keys;
    let arguments = vec![
        "post".to_owned(),
        keys.name(&format!("letters:{pipeline}")),
        keys.name(&format!("applied:{pipeline}")),
        key.to_owned(),
        keys.name(&format!("inbox:{shard}")),
        format!("{pipeline} {key}"),
        body,
    ];
    server.write(Script::Queue, arguments).await.map(drop)
}

/// Entries that are not applied, oldest first.
pub(crate) async fn inbox(
    server: &Server,
    shard: Shard,
    limit: usize,
) -> Result<Page<InboxEntry>, StoreError> {
    let set = server.keys.name(&format!("inbox:{}", shard.0));
    let asked = vec!["inbox".to_owned(), set, one_more(limit).to_string()];
    let mut entries = Vec::new();
    for row in list(server.read(asked).await?)? {
        let (member, value) = pair(row)?;
        entries.push(entry(&member, &value).ok_or_else(|| {
            StoreError::permanent(format!("an entry of the inbox cannot be read: {member}"))
        })?);
    }
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
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let asked = vec!["claim".to_owned(), limit.to_string(), whole_ttl(ttl).to_string()];
    let rows = server.write(Script::Queue, asked).await?.into_iter().map(|row| {
        let (member, value) = pair(row)?;
        found("outbox", &member, &value)?.outbox()
    });
    rows.collect()
}

/// Replaces a claimed notification by what came of it, if its row is still as it was handed out.
pub(crate) async fn settle(
    server: &Server,
    views: &Views,
    row: &OutboxRow,
    becomes: Vec<(String, OutboxRecord)>,
) -> Result<(), StoreError> {
    let place = (&row.pipeline, Shard::of(&row.pipeline, server.shard_count()));
    let own = Key::Outbox(row.name.clone());
    let mut arguments = vec!["settle".to_owned()];
    arguments.extend(server.keys.address(&row.pipeline, &own));
    arguments.push(row.revision.to_string());
    entries(server.keys.entries(place, &own, None), &mut arguments);
    arguments.push(becomes.len().to_string());
    for (name, record) in becomes {
        let key = Key::Outbox(name.clone());
        let record = Record::Outbox(OutboxRecord { claimed_until: None, ..record });
        let mut rest = Vec::new();
        put(server, views, (place, &key, &record), &mut rest);
        arguments.extend([name, rest.len().to_string()]);
        arguments.extend(rest);
    }
    server.write(Script::Queue, arguments).await.map(drop)
}
