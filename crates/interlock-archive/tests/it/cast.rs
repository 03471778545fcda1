//! A ledger that grows, and an archive that is compared with it.

use std::{collections::BTreeMap, sync::Arc};

use interlock_archive::{Archiver, Telling};
use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::PrivatePostgres;
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Rows, RunKey, Shard, Store, Writer,
    record::{EventRecord, IncidentRecord, RunRecord, SlaRecord, SlotRecord, SpanRecord},
};
use interlock_store_conformance::{START, closed_slot};
use jiff::{SignedDuration, Timestamp};
use tokio_postgres::{Client, NoTls, Row};

/// Longer than any test.
const LONG: SignedDuration = SignedDuration::from_hours(1);

/// A store that something is written to.
pub(crate) struct Grown {
    pub(crate) store: Arc<dyn Store>,
    writer: Writer,
}

pub(crate) fn orders() -> PipelineId {
    PipelineId::parse("orders").unwrap()
}

pub(crate) fn hourly() -> ScheduleId {
    ScheduleId::any("hourly").unwrap()
}

pub(crate) fn hour(hours: i64) -> Timestamp {
    START + SignedDuration::from_hours(hours)
}

pub(crate) fn slot(state: &'static str, hours: i64) -> SlotRecord {
    let is_closed = state == "completed";
    SlotRecord {
        state: if is_closed { "closed".into() } else { state.into() },
        disposition: is_closed.then(|| state.into()),
        attempt: 1,
        date: hour(hours).to_zoned(jiff::tz::TimeZone::UTC).date(),
        opened_at: hour(hours),
        closes_at: hour(hours + 1),
        sla: Some(Box::new(SlaRecord {
            breach_at: Some(hour(hours) + SignedDuration::from_mins(10)),
            ..SlaRecord::default()
        })),
        ..closed_slot("completed")
    }
}

pub(crate) fn run_key(hours: i64) -> RunKey {
    RunKey { schedule: hourly(), nominal: hour(hours), generation: 1, attempt: 1 }
}

fn run(status: &'static str, hours: i64) -> Record {
    let ended_at = (status == "COMPLETED")
        .then(|| hour(hours) + SignedDuration::from_secs(if hours % 2 == 0 { 60 } else { 1_200 }));
    Record::Run(
        RunRecord {
            status: status.into(),
            trigger_type: "scheduler".into(),
            created_at: hour(hours),
            started_at: Some(hour(hours)),
            ended_at,
            message: None,
            category: None,
            metadata: [("host".to_owned(), "né ☃ \u{0}".into())].into(),
        }
        .into(),
    )
}

pub(crate) fn event(kind: &'static str, hours: i64) -> Change {
    Change::Append(
        EventRecord {
            kind: kind.into(),
            at: hour(hours),
            slot: Some(format!("hourly/{}", hour(hours))),
            run_id: Some(run_key(hours).id(&orders())),
            message: "a \"message\"\twith\\everything\nand a NUL \u{0}".into(),
            details: [("why".to_owned(), serde_json::json!({"rows": [1, 2.5, null, "\u{0}"]}))]
                .into(),
        }
        .into(),
    )
}

fn incident(hours: i64) -> Record {
    Record::Incident(
        IncidentRecord {
            state: "open".into(),
            kind: "SCHEDULE_MISSED".into(),
            level: "error".into(),
            message: "missed".into(),
            details: [].into(),
            opened_at: hour(hours),
            updated_at: hour(hours),
            count: 1,
            told: None,
            acknowledged: None,
            resolved: None,
            openings: [].into(),
        }
        .into(),
    )
}

impl Grown {
    pub(crate) async fn new(store: Arc<dyn Store>) -> Self {
        let lease = store.acquire(Role::Engine, Shard(0), "test", LONG).await.unwrap().unwrap();
        Self { store, writer: lease.writer }
    }

    pub(crate) async fn commit(&self, changes: Vec<Change>) {
        let group = Group { pipeline: orders(), writer: self.writer, changes };
        for result in self.store.commit(vec![group]).await.unwrap() {
            result.unwrap();
        }
    }

    /// Opens slots and starts their runs.
    pub(crate) async fn open(&self, hours: std::ops::Range<i64>) {
        for at in hours {
            let running = Record::Slot(slot("running", at).into());
            self.commit(vec![
                Change::Put(Key::Slot(hourly(), hour(at)), Expect::Absent, running),
                Change::Put(Key::Run(run_key(at)), Expect::Absent, run("RUNNING", at)),
                event("JOB_STARTED", at),
            ])
            .await;
        }
    }

    /// Ends them, with an incident and a span for every tenth.
    pub(crate) async fn close(&self, hours: std::ops::Range<i64>) {
        for at in hours {
            let completed = Record::Slot(slot("completed", at).into());
            let one = Expect::Revision(1);
            let mut changes = vec![
                Change::Put(Key::Slot(hourly(), hour(at)), one, completed),
                Change::Put(Key::Run(run_key(at)), one, run("COMPLETED", at)),
                event("JOB_COMPLETED", at),
            ];
            if at % 10 == 0 {
                let key = Key::Incident(format!("watchdog:orders:{at}"));
                changes.push(Change::Put(key, Expect::Absent, incident(at)));
                let span = Record::Span(
                    SpanRecord {
                        last: hour(at - 5_000),
                        count: 6,
                        disposition: "skipped".into(),
                        reason: Some("no_catchup".into()),
                        version: "00000000000000ab".into(),
                        recorded_at: hour(at),
                    }
                    .into(),
                );
                let key = Key::Span(hourly(), hour(at - 5_005));
                changes.push(Change::Put(key, Expect::Absent, span));
            }
            self.commit(changes).await;
        }
    }
}

/// A connection to the archive, as somebody with SQL has one.
pub(crate) async fn connect(server: &PrivatePostgres) -> Client {
    let (client, connection) = tokio_postgres::connect(&server.dsn(), NoTls).await.unwrap();
    tokio::spawn(async move { connection.await.unwrap_or_default() });
    client
}

/// Archives what there is.
pub(crate) async fn archive(store: &Arc<dyn Store>, server: &PrivatePostgres) -> Archiver {
    let store = Arc::clone(store);
    let mut archiver = Archiver::open(store, &server.dsn(), Telling::Store).await.unwrap();
    archiver.catch_up().await.unwrap();
    archiver
}

pub(crate) async fn texts(client: &Client, sql: &str) -> Vec<String> {
    let rows: Vec<Row> = client.query(sql, &[]).await.unwrap();
    rows.iter().map(|row| row.get(0)).collect()
}

/// Everything that the store holds is in the archive, as it is there, once.
pub(crate) async fn is_archived(store: &dyn Store, client: &Client) {
    let events = store.events(None, 0, usize::MAX).await.unwrap().items;
    let expected: Vec<String> =
        events.iter().map(|event| format!("{} {}", event.number, event.record.kind)).collect();
    let found =
        texts(client, "SELECT number || ' ' || kind FROM archive.events ORDER BY number").await;
    assert_eq!(found, expected);
    let (mut rows, mut from) = (BTreeMap::new(), String::new());
    loop {
        let portion = store.rows(Rows::All, &from, 1_000).await.unwrap();
        for row in portion.items {
            rows.insert((row.pipeline, row.key), row.row.record);
        }
        let Some(next) = portion.next else { break };
        from = next;
    }
    let mut expected = Vec::new();
    for ((pipeline, key), record) in rows {
        let at = |at: Timestamp| at.strftime("%Y-%m-%d %H:%M").to_string();
        expected.extend(match (key, record) {
            (Key::Run(key), Record::Run(run)) => {
                Some(format!("run {} {}", key.id(&pipeline), run.status))
            }
            (Key::Slot(schedule, nominal), Record::Slot(slot)) => {
                Some(format!("slot {pipeline} {schedule} {} {}", at(nominal), slot.state))
            }
            (Key::Span(schedule, first), Record::Span(span)) => {
                let (first, last) = (at(first), at(span.last));
                Some(format!("span {pipeline} {schedule} {first} {last} {}", span.count))
            }
            (Key::Incident(key), Record::Incident(incident)) => {
                Some(format!("incident {pipeline} {key} {}", incident.state))
            }
            _ => None,
        });
    }
    let found = texts(
        client,
        "SELECT 'run ' || run_id || ' ' || status FROM archive.runs
         UNION ALL SELECT concat_ws(' ', 'slot', pipeline_id, schedule_id,
             to_char(slot AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), state) FROM archive.slots
         UNION ALL SELECT concat_ws(' ', 'span', pipeline_id, schedule_id,
             to_char(first AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'),
             to_char(last AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI'), count) FROM archive.spans
         UNION ALL SELECT concat_ws(' ', 'incident', pipeline_id, key, state) FROM archive.incidents",
    )
    .await;
    let sorted = |mut list: Vec<String>| {
        list.sort();
        list
    };
    assert_eq!(sorted(found), sorted(expected));
}
