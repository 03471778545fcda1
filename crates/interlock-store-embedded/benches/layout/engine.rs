//! The engine beside plain SQLite: durable slot opens, with everything that belongs to one.

use std::{path::Path, sync::Arc, time::Duration};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{
    Change, DueKind, Expect, Group, Key, Record, Role, Shard, Store, Writer, block_on,
    record::{DueRecord, EventRecord, MarksRecord, SlotRecord, WatermarkRecord},
};
use interlock_store_conformance::START;
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp};
use rusqlite::{Connection, params};

use crate::{Outcome, now, percentile};

const PIPELINES: usize = 10_000;
const ROUNDS: i64 = 20;
/// How many groups one call brings; several calls are on their way at once.
const CALL: usize = 500;
/// How many groups plain SQLite takes into one transaction, as the engine does.
const GROUPS: usize = 2_000;

/// Measures both, in turns on the same disk, so that a busy machine is as bad for the one as for the other.
pub(crate) fn run() -> Outcome<()> {
    let folder = tempfile::tempdir_in(".")?;
    let (store, writer) = open(&folder.path().join("engine"))?;
    let mut db = open_plain(&folder.path().join("plain"))?;
    let mut latencies = Vec::new();
    let (mut total, mut total_plain) = (Duration::ZERO, Duration::ZERO);
    for round in 0..ROUNDS {
        total += engine_round(&store, writer, round, &mut latencies)?;
        total_plain += plain_round(&mut db, round)?;
    }
    let slots = PIPELINES * ROUNDS as usize;
    assert_eq!(latencies.len(), slots);
    latencies.sort();
    println!(
        "RESULT name=embedded/slot_opens per_second={:.0}",
        slots as f64 / total.as_secs_f64()
    );
    println!(
        "RESULT name=embedded/slot_opens@limit per_second={:.0}",
        slots as f64 / total_plain.as_secs_f64()
    );
    println!("RESULT name=embedded/instant_10k seconds={:.4}", percentile(&latencies, 0.99));
    single(&folder.path().join("single"))
}

fn open(folder: &Path) -> Outcome<(EmbeddedStore, Writer)> {
    let store = EmbeddedStore::open_daemon(folder, Arc::new(|| START))?;
    let ttl = SignedDuration::from_hours(1);
    let lease = block_on(store.acquire(Role::Engine, Shard(0), "bench", ttl))?;
    let writer = lease.ok_or("somebody else holds the lease")?.writer;
    Ok((store, writer))
}

/// Opens the slots of all pipelines at one instant; each is done when its call is answered.
fn engine_round(
    store: &EmbeddedStore,
    writer: Writer,
    round: i64,
    latencies: &mut Vec<Duration>,
) -> Outcome<Duration> {
    let groups: Vec<Group> =
        pipelines()?.iter().map(|pipeline| group(writer, pipeline, round)).collect();
    let calls: Vec<Vec<Group>> = groups.chunks(CALL).map(<[Group]>::to_vec).collect();
    let due = now();
    let calls: Vec<_> = calls.into_iter().map(|call| store.commit(call)).collect();
    for call in calls {
        let results = block_on(call)?;
        assert!(results.iter().all(Result::is_ok), "{:?}", results.first());
        latencies.extend(results.iter().map(|_| due.elapsed()));
    }
    Ok(due.elapsed())
}

/// A ledger with the same names, in the hands of plain SQLite.
fn open_plain(folder: &Path) -> Outcome<Connection> {
    drop(open(folder)?);
    let mut db = Connection::open(folder.join("ledger.db"))?;
    db.execute_batch(
        "PRAGMA synchronous = FULL; PRAGMA wal_autocheckpoint = 4000; PRAGMA cache_size = -65536;",
    )?;
    let transaction = db.transaction()?;
    for pipeline in pipelines()? {
        transaction.execute("INSERT INTO names (name) VALUES (?1)", [pipeline.as_str()])?;
    }
    transaction.commit()?;
    Ok(db)
}

/// The same rows in the same tables, encoded beforehand, without any question asked.
fn plain_round(db: &mut Connection, round: i64) -> Outcome<Duration> {
    let writer = Writer { role: Role::Engine, shard: Shard(0), term: interlock_store::Term(1) };
    let pipeline = PipelineId::parse("pipeline-000000").map_err(|error| error.message)?;
    let bodies = bodies(group(writer, &pipeline, round));
    let begun = now();
    for chunk in 0..PIPELINES / GROUPS {
        let transaction = db.transaction()?;
        for index in 0..GROUPS {
            insert(&transaction, (chunk * GROUPS + index + 1) as i64, round, &bodies)?;
        }
        transaction.commit()?;
    }
    Ok(begun.elapsed())
}

fn insert(db: &Connection, pipeline: i64, round: i64, bodies: &[String; 4]) -> Outcome<()> {
    let at = nominal(round).as_microsecond();
    let [slot, due, watermark, event] = bodies;
    db.prepare_cached("INSERT INTO slots VALUES (?1, ?2, 'hourly', 1, 'open', ?3)")?
        .execute(params![at, pipeline, slot])?;
    db.prepare_cached("INSERT INTO due VALUES (?1, ?2, 'closes', 'hourly', 1, ?3)")?
        .execute(params![at, pipeline, due])?;
    db.prepare_cached("INSERT OR REPLACE INTO watermarks VALUES (?1, 'hourly', ?2, ?3)")?
        .execute(params![pipeline, round + 1, watermark])?;
    db.prepare_cached("INSERT INTO events (pipeline, body) VALUES (?1, ?2)")?
        .execute(params![pipeline, event])?;
    Ok(())
}

/// One caller who waits for each group: what a durable decision takes.
fn single(folder: &Path) -> Outcome<()> {
    let (store, writer) = open(folder)?;
    let pipelines = pipelines()?;
    let mut latencies = Vec::new();
    for pipeline in pipelines.iter().take(2_000) {
        let group = group(writer, pipeline, 0);
        let begun = now();
        block_on(store.commit(vec![group]))?;
        latencies.push(begun.elapsed());
    }
    latencies.sort();
    println!("RESULT name=embedded/commit_p50 seconds={:.6}", percentile(&latencies, 0.5));
    println!("RESULT name=embedded/commit_p99 seconds={:.6}", percentile(&latencies, 0.99));
    Ok(())
}

fn pipelines() -> Outcome<Vec<PipelineId>> {
    let name = |number| PipelineId::parse(&format!("pipeline-{number:06}"));
    (0..PIPELINES).map(|number| name(number).map_err(|error| error.message.into())).collect()
}

fn nominal(round: i64) -> Timestamp {
    START + SignedDuration::from_hours(round)
}

/// A slot that is due, with all its consequences.
fn group(writer: Writer, pipeline: &PipelineId, round: i64) -> Group {
    let schedule = ScheduleId::from_static("hourly");
    let at = nominal(round);
    let slot = SlotRecord {
        state: "waiting".into(),
        disposition: None,
        reason: None,
        generation: 1,
        attempt: 0,
        opened_by: "schedule".into(),
        date: jiff::civil::date(2026, 2, 25),
        opened_at: at,
        closes_at: at + SignedDuration::from_hours(24),
        retry_at: None,
        marks: MarksRecord::default(),
        version: "0123456789abcdef".to_owned(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    };
    let event = EventRecord {
        kind: "SLOT_OPENED".into(),
        at,
        slot: Some(format!("{schedule}/{at}")),
        run_id: None,
        message: "the slot is due".to_owned(),
        details: std::collections::BTreeMap::new(),
    };
    let due = DueRecord { details: std::collections::BTreeMap::new() };
    let before = if round == 0 { Expect::Absent } else { Expect::Revision(round as u64) };
    let changes = vec![
        Change::Put(Key::Slot(schedule.clone(), at), Expect::Absent, Record::Slot(slot.into())),
        Change::Put(
            Key::Due(at, DueKind::Closes, schedule.to_string()),
            Expect::Absent,
            Record::Due(due),
        ),
        Change::Put(Key::Watermark(schedule), before, Record::Watermark(WatermarkRecord { at })),
        Change::Append(event.into()),
    ];
    Group { pipeline: pipeline.clone(), writer, changes }
}

/// The texts of a group's rows.
fn bodies(group: Group) -> [String; 4] {
    let mut texts = group.changes.into_iter().map(|change| match change {
        Change::Put(_, _, record) => record.encode(),
        Change::Append(event) => event.encode(),
        Change::Delete(..) => String::new(),
    });
    std::array::from_fn(|_| texts.next().unwrap_or_default())
}
