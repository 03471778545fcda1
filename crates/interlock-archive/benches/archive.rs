//! How fast history is archived from the embedded store, as a share of what `COPY` of the same rows into the same tables
//! with the same indexes reaches in the same run. The server's own `COPY` from a file is the ceiling: no client, no JSON.
//!
//! A plain program, because each figure is one pass over a ledger that takes longer to make than to archive.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::{sync::Arc, time::Instant};

use interlock_archive::{Archiver, Telling};
use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::PrivatePostgres;
use interlock_store::{
    EventRow, Freight, Key, Record, Row, RunKey, Store, StoredRow,
    record::{EventRecord, RunRecord, SlotRecord},
};
use interlock_store_conformance::{START, closed_slot};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp};
use tokio_postgres::{Client, NoTls};

/// Slots, with a run and two events each.
const SLOTS: u64 = 40_000;
const ROUNDS: usize = 3;
const TABLES: [&str; 4] = ["events", "runs", "slots", "run_logs"];

fn minute(minutes: u64) -> Timestamp {
    START + SignedDuration::from_mins(i64::try_from(minutes).unwrap())
}

fn rows(at: u64) -> [(Key, Record); 2] {
    let schedule = ScheduleId::any("minutely").unwrap();
    let slot = SlotRecord {
        attempt: 1,
        date: minute(at).to_zoned(jiff::tz::TimeZone::UTC).date(),
        opened_at: minute(at),
        closes_at: minute(at + 1),
        ..closed_slot("completed")
    };
    let run = RunRecord {
        status: "COMPLETED".into(),
        trigger_type: "scheduler".into(),
        created_at: minute(at),
        started_at: Some(minute(at)),
        ended_at: Some(minute(at)),
        message: None,
        category: None,
        metadata: [("host".to_owned(), "worker-1".into())].into(),
    };
    let key = RunKey { schedule: schedule.clone(), nominal: minute(at), generation: 1, attempt: 1 };
    [
        (Key::Slot(schedule, minute(at)), Record::Slot(slot.into())),
        (Key::Run(key), Record::Run(run.into())),
    ]
}

fn event(number: u64) -> EventRecord {
    let at = minute(number / 2);
    EventRecord {
        kind: if number.is_multiple_of(2) {
            "JOB_TRIGGERED".into()
        } else {
            "JOB_COMPLETED".into()
        },
        at,
        slot: Some(format!("minutely/{at}")),
        run_id: Some(format!("orders~minutely~{number}~1~1")),
        message: "attempt 1, scheduler".into(),
        details: [("evidence".to_owned(), serde_json::json!({"rows": 1_200, "ready": true}))]
            .into(),
    }
}

async fn fill(store: &dyn Store) {
    let names: Vec<PipelineId> =
        (0..100).map(|number| PipelineId::parse(&format!("pipeline-{number}")).unwrap()).collect();
    for first in (0..SLOTS).step_by(1_000) {
        let mut freight = Freight::default();
        for at in first..first + 1_000 {
            let pipeline = &names[usize::try_from(at % 100).unwrap()];
            for (key, record) in rows(at) {
                let row = Row { record, revision: 3 };
                freight.rows.push(StoredRow { pipeline: pipeline.clone(), key, row });
            }
            for number in [2 * at + 1, 2 * at + 2] {
                let (pipeline, record) = (pipeline.clone(), event(number));
                freight.events.push(EventRow { number, pipeline, record: record.into() });
            }
        }
        store.import(freight).await.unwrap();
    }
}

/// Seconds that the server takes to copy the same rows from a file into the same tables, made anew.
async fn copied(client: &Client) -> f64 {
    let folder = tempfile::tempdir().unwrap();
    let open = std::os::unix::fs::PermissionsExt::from_mode(0o777);
    std::fs::set_permissions(folder.path(), open).unwrap();
    client
        .batch_execute("DROP SCHEMA IF EXISTS copied CASCADE; CREATE SCHEMA copied")
        .await
        .unwrap();
    let file = |table: &str| folder.path().join(table).display().to_string();
    for table in TABLES {
        let prepare = format!(
            "COPY archive.{table} TO '{}' BINARY; \
             CREATE TABLE copied.{table} (LIKE archive.{table} INCLUDING ALL)",
            file(table)
        );
        client.batch_execute(&prepare).await.unwrap();
    }
    client.batch_execute("CHECKPOINT").await.unwrap();
    let began = Instant::now();
    for table in TABLES {
        let copy = format!("COPY copied.{table} FROM '{}' BINARY", file(table));
        client.batch_execute(&copy).await.unwrap();
    }
    began.elapsed().as_secs_f64()
}

#[tokio::main]
async fn main() {
    let folder = tempfile::tempdir().unwrap();
    let store = EmbeddedStore::open_daemon(folder.path(), Arc::new(Timestamp::now)).unwrap();
    let store: Arc<dyn Store> = Arc::new(store);
    fill(store.as_ref()).await;
    let server = PrivatePostgres::start();
    let (client, connection) = tokio_postgres::connect(&server.dsn(), NoTls).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    let (mut archiving, mut copying) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        client.batch_execute("DROP SCHEMA IF EXISTS archive CASCADE; CHECKPOINT").await.unwrap();
        let began = Instant::now();
        let mut archiver =
            Archiver::open(Arc::clone(&store), &server.dsn(), Telling::Store).await.unwrap();
        archiver.catch_up().await.unwrap();
        archiving.push(began.elapsed().as_secs_f64());
        assert_eq!(archiver.summary.events + archiver.summary.rows, 4 * SLOTS);
        copying.push(copied(&client).await);
    }
    let median = |mut figures: Vec<f64>| {
        figures.sort_by(f64::total_cmp);
        figures[figures.len() / 2]
    };
    #[expect(clippy::cast_precision_loss, reason = "a count of rows")]
    let rows = (4 * SLOTS) as f64;
    println!("archived {archiving:?} s, copied {copying:?} s, {rows} rows");
    let (archived, copied) = (median(archiving), median(copying));
    println!("RESULT name=archive/rows per_second={:.0}", rows / archived);
    println!("RESULT name=archive/copy per_second={:.0}", rows / copied);
    println!("RESULT name=archive/share_of_copy percent={:.1}", 100.0 * copied / archived);
}
