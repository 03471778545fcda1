//! The keys of the first Interlock, as `redis-cli` sees them.

use interlock_core::id::ScheduleId;
use interlock_private_server::PrivateRedis;
use interlock_store::{
    Archived, Change, Expect, Key, Record, RunKey, Store as _,
    conformance::{START, block_on},
    record::{EventRecord, MarksRecord, PipelineRecord, RunRecord, SlotRecord},
};
use interlock_store_redis::{RedisSettings, RedisStore};

use crate::cast::{LONG, acquire, commit, orders, redis_cli};

fn daily() -> ScheduleId {
    ScheduleId::any("daily").unwrap()
}

fn slot() -> Record {
    Record::Slot(SlotRecord {
        state: "running".into(),
        disposition: None,
        reason: None,
        generation: 1,
        attempt: 1,
        opened_by: "scheduler".into(),
        date: "2026-02-25".parse().unwrap(),
        opened_at: START,
        closes_at: START,
        retry_at: None,
        marks: MarksRecord::default(),
        version: "00000000000000ab".into(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    })
}

fn run() -> Record {
    Record::Run(RunRecord {
        status: "RUNNING".into(),
        trigger_type: "scheduler".into(),
        created_at: START,
        started_at: None,
        ended_at: None,
        message: None,
        category: None,
        metadata: [].into(),
    })
}

fn event(message: &str) -> Change {
    Change::Append(EventRecord {
        kind: "RUN_STARTED".into(),
        at: START,
        slot: None,
        run_id: None,
        message: message.into(),
        details: [].into(),
    })
}

#[test]
fn keys_of_the_seed_are_where_it_says() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let store = RedisStore::open(&RedisSettings::new(addr.clone())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let pipeline = Record::Pipeline(PipelineRecord {
        version: "00000000000000ab".into(),
        first_seen: START,
        retired_at: None,
        disabled_since: None,
        pause: None,
        agenda: None,
    });
    let key = RunKey { schedule: daily(), nominal: START, generation: 1, attempt: 1 };
    let id = key.id(&orders());
    let changes = vec![
        Change::Put(Key::Pipeline, Expect::Absent, pipeline),
        Change::Put(Key::Slot(daily(), START), Expect::Absent, slot()),
        Change::Put(Key::Run(key.clone()), Expect::Absent, run()),
        event("began"),
    ];
    commit(&store, writer, changes).unwrap().unwrap();
    let ask = |words: &[&str]| redis_cli(&addr, words);
    assert_eq!(ask(&["TYPE", "interlock:pipeline:orders"]), "hash");
    assert_eq!(ask(&["HGET", &format!("interlock:run:{id}"), "status"]), "RUNNING");
    assert_eq!(ask(&["TTL", &format!("interlock:run:{id}")]), "-1", "a run's row never expires");
    assert_eq!(ask(&["ZRANGE", "interlock:runs:orders", "0", "-1"]), id);
    let runlog = "interlock:runlog:orders:2026-02-25:daily";
    assert_eq!(ask(&["HGET", runlog, "status"]), "running");
    assert!(ask(&["TTL", runlog]).parse::<i64>().unwrap() > 604_000, "case 81: it expires");
    assert_eq!(ask(&["ZRANGE", "interlock:runlogs:orders", "0", "-1"]), "2026-02-25:daily");
    assert!(ask(&["XRANGE", "interlock:events:orders", "-", "+"]).contains("RUN_STARTED"));
    assert_eq!(ask(&["GET", "interlock:lock:engine:0"]), "one");
    assert!(ask(&["TTL", "interlock:lock:engine:0"]).parse::<i64>().unwrap() > 3_000);
    commit(&store, writer, vec![Change::Delete(Key::Run(key), Expect::Revision(1))])
        .unwrap()
        .unwrap();
    assert_eq!(ask(&["EXISTS", &format!("interlock:run:{id}")]), "0");
}

#[test]
fn stream_of_a_pipeline_has_a_limit() {
    let server = PrivateRedis::start();
    let limited = RedisSettings { event_stream_max: 200, ..RedisSettings::new(server.address()) };
    let store = RedisStore::open(&limited).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    for _ in 0..40 {
        commit(&store, writer, (0..25).map(|_| event("x")).collect()).unwrap().unwrap();
    }
    let kept = block_on(store.events(Some(&orders()), 0, 10_000)).unwrap().items.len();
    assert!((200..400).contains(&kept), "{kept} of 1,000: whole nodes are trimmed");
    let all = block_on(store.events(None, 0, 10_000)).unwrap().items.len();
    assert_eq!(all, kept, "the feed passes over what is gone");
}

/// A sensor may be called like the field that holds the row of a run.
#[test]
fn sensor_called_row_is_deleted_alone() {
    let server = PrivateRedis::start();
    let store = RedisStore::open(&RedisSettings::new(server.address())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let sensor = |name: &str| Key::Sensor(name.to_owned());
    let value = || {
        Record::Sensor(interlock_store::record::SensorRecord {
            value: 1.into(),
            at: START,
            received_at: START,
        })
    };
    let puts = ["row", "other"].map(|name| Change::Put(sensor(name), Expect::Any, value()));
    commit(&store, writer, puts.to_vec()).unwrap().unwrap();
    commit(&store, writer, vec![Change::Delete(sensor("row"), Expect::Any)]).unwrap().unwrap();
    let left = block_on(store.sensors(&orders())).unwrap();
    assert_eq!(left.keys().collect::<Vec<_>>(), ["other"]);
}

/// What an archive has not read is not trimmed, however long a stream gets; what it has read is.
#[test]
fn streams_are_not_trimmed_past_the_archive() {
    let server = PrivateRedis::start();
    let short = RedisSettings { event_stream_max: 100, ..RedisSettings::new(server.address()) };
    let store = RedisStore::open(&short).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let archived = |events| {
        let up_to = Archived { events, changes: 0 };
        block_on(store.archived(Some(up_to))).unwrap();
    };
    let append = |times: usize| {
        for _ in 0..times {
            commit(&store, writer, vec![event("x"); 20]).unwrap().unwrap();
        }
    };
    let numbers = || -> Vec<u64> {
        let all = block_on(store.events(None, 0, 10_000)).unwrap().items;
        all.iter().map(|event| event.number).collect()
    };
    archived(0);
    append(100);
    assert_eq!(numbers(), (1..=2_000).collect::<Vec<_>>());
    archived(1_500);
    append(20);
    let kept = numbers();
    assert!(kept.len() < 2_000 && kept[0] <= 1_501, "{:?} of {}", kept[0], kept.len());
    assert_eq!(kept.last(), Some(&2_400), "and nothing in between is gone");
    assert!(kept.windows(2).all(|pair| pair[1] == pair[0] + 1));
}
