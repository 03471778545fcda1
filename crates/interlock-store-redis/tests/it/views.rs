//! The keys of the first Interlock, as `redis-cli` sees them.

use std::sync::Arc;

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::PrivateRedis;
use interlock_store::{
    Archived, Change, Expect, Key, ReadinessView, Record, RunKey, Store as _, block_on,
    record::{EventRecord, MarksRecord, PipelineRecord, RunRecord, SlotRecord},
};
use interlock_store_conformance::START;
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::SignedDuration;

use crate::cast::{LONG, acquire, commit, orders, redis_cli};

fn daily() -> ScheduleId {
    ScheduleId::any("daily").unwrap()
}

fn slot() -> Record {
    Record::Slot(
        SlotRecord {
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
        }
        .into(),
    )
}

fn run() -> Record {
    Record::Run(
        RunRecord {
            status: "RUNNING".into(),
            trigger_type: "scheduler".into(),
            created_at: START,
            started_at: None,
            ended_at: None,
            message: None,
            category: None,
            metadata: [].into(),
        }
        .into(),
    )
}

fn event(message: &str) -> Change {
    Change::Append(
        EventRecord {
            kind: "RUN_STARTED".into(),
            at: START,
            slot: None,
            run_id: None,
            message: message.into(),
            details: [].into(),
        }
        .into(),
    )
}

#[test]
fn keys_of_the_seed_are_where_it_says() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let store = RedisStore::open(&RedisSettings::new(addr.clone())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let pipeline = Record::Pipeline(
        PipelineRecord {
            version: "00000000000000ab".into(),
            first_seen: START,
            retired_at: None,
            disabled_since: None,
            pause: None,
            agenda: None,
            about: None,
        }
        .into(),
    );
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
    assert_eq!(ask(&["HGET", runlog, "status"]), "RUNNING");
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

/// Case 71: nothing is shown before anything was decided; case 68: what is shown expires.
#[test]
fn cases_68_and_71_readiness_is_shown_once_it_was_decided_and_expires() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let shown = RedisSettings {
        readiness_ttl: SignedDuration::from_mins(10),
        ..RedisSettings::new(addr.clone())
    };
    let store = RedisStore::open(&shown).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let key = "interlock:readiness:orders";
    let decided = |kind: &'static str, details: serde_json::Value| {
        let details = serde_json::from_value(details).unwrap();
        let slot = Some(format!("daily/{START}"));
        let (at, message) = (START, String::new());
        let record = EventRecord { kind: kind.into(), at, slot, run_id: None, message, details };
        commit(&store, writer, vec![Change::Append(record.into())]).unwrap().unwrap();
    };
    let field = |name: &str| redis_cli(&addr, &["HGET", key, name]);
    decided("SLOT_OPENED", serde_json::json!({}));
    assert_eq!(redis_cli(&addr, &["EXISTS", key]), "0");
    let blocking = serde_json::json!({ "blocking": ["landed: 0 rows", "fresh: too old"] });
    decided("VALIDATION_EXHAUSTED", blocking);
    assert_eq!(field("status"), "NOT_READY");
    assert_eq!(field("blocking"), "landed: 0 rows; fresh: too old");
    let traits = serde_json::json!({
        "landed": { "status": "PASS", "reason": "PASS", "value": { "rows": 7 } },
        "fresh": { "status": "FAIL", "reason": "FAIL: too old", "value": null },
    });
    let evidence = serde_json::json!({ "evidence": "landed: 7 rows", "traits": traits });
    decided("JOB_TRIGGERED", evidence);
    let of_trait = |kind: &str, name: &str| {
        redis_cli(&addr, &["HGET", &format!("interlock:trait:orders:{kind}"), name])
    };
    assert_eq!(of_trait("landed", "status"), "PASS");
    assert_eq!(of_trait("landed", "value"), "{\"rows\":7}");
    assert_eq!(
        (of_trait("fresh", "reason"), of_trait("fresh", "value")),
        ("FAIL: too old".into(), String::new())
    );
    let ttl = redis_cli(&addr, &["TTL", "interlock:trait:orders:landed"]).parse::<i64>().unwrap();
    assert!((590..=600).contains(&ttl), "{ttl}");
    assert_eq!((field("status"), field("blocking")), ("READY".to_owned(), String::new()));
    assert_eq!(field("evidence"), "landed: 7 rows");
    assert_eq!(field("slot"), format!("daily/{START}"));
    let ttl = redis_cli(&addr, &["TTL", key]).parse::<i64>().unwrap();
    assert!((590..=600).contains(&ttl), "{ttl}");
}

/// While a slot waits nothing is recorded; what it waits for is shown all the same, and expires.
#[test]
fn what_a_pipeline_waits_for_is_shown_without_an_event_and_without_a_lease() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let shown = RedisSettings {
        readiness_ttl: SignedDuration::from_mins(10),
        ..RedisSettings::new(addr.clone())
    };
    let store = RedisStore::open(&shown).unwrap();
    assert_eq!(store.readiness_ttl(), Some(SignedDuration::from_mins(10)));
    let view = |pipeline: &str, blocking: &[&str]| ReadinessView {
        pipeline: PipelineId::parse(pipeline).unwrap(),
        slot: format!("daily/{START}"),
        at: START,
        blocking: blocking.iter().map(|it| (*it).to_owned()).collect(),
        evidence: "x landed exists".to_owned(),
        traits:
            serde_json::json!({ "fresh": { "status": "FAIL", "reason": "too old", "value": 3 } })
                .as_object()
                .unwrap()
                .clone(),
    };
    let many = (0..450).map(|number| view(&format!("p-{number}"), &["landed: it is not there"]));
    block_on(store.show_readiness(many.collect())).unwrap();
    let ask = |words: &[&str]| redis_cli(&addr, words);
    for pipeline in ["p-0", "p-199", "p-200", "p-449"] {
        let (key, of) = (
            format!("interlock:readiness:{pipeline}"),
            format!("interlock:trait:{pipeline}:fresh"),
        );
        assert_eq!(ask(&["HGET", &key, "status"]), "NOT_READY");
        assert_eq!(ask(&["HGET", &key, "blocking"]), "landed: it is not there");
        assert_eq!(ask(&["HGET", &of, "status"]), "FAIL");
        assert_eq!(ask(&["HGET", &of, "value"]), "3");
        for key in [key, of] {
            let ttl = ask(&["TTL", &key]).parse::<i64>().unwrap();
            assert!((590..=600).contains(&ttl), "{key}: {ttl}");
        }
    }
    block_on(store.show_readiness(vec![view("p-0", &[])])).unwrap();
    assert_eq!(ask(&["HGET", "interlock:readiness:p-0", "status"]), "READY");
}

/// Who looked for the status of a trigger finds the words of the first Interlock.
#[test]
fn a_run_log_has_the_status_that_its_readers_know() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let store = RedisStore::open(&RedisSettings::new(addr.clone())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let Record::Slot(running) = slot() else { unreachable!("it is one") };
    for (revision, (disposition, status)) in
        [("completed", "COMPLETED"), ("failed", "FAILED_FINAL"), ("skipped", "SKIPPED")]
            .into_iter()
            .enumerate()
    {
        let closed = SlotRecord {
            state: "closed".into(),
            disposition: Some(disposition.into()),
            ..running.as_ref().clone()
        };
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision as u64) };
        let record = Record::Slot(closed.into());
        let change = Change::Put(Key::Slot(daily(), START), expect, record);
        commit(&store, writer, vec![change]).unwrap().unwrap();
        let log = "interlock:runlog:orders:2026-02-25:daily";
        assert_eq!(redis_cli(&addr, &["HGET", log, "status"]), status);
    }
}

/// Case 81: run logs expire, and each change counts anew. A run's row does not: what decides is taken out by retention alone.
#[test]
fn case_81_run_logs_expire_and_runs_do_not() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let kept = RedisSettings {
        retention_ttl: SignedDuration::from_hours(2),
        ..RedisSettings::new(addr.clone())
    };
    let store = RedisStore::open(&kept).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let put = |expect| {
        let change = Change::Put(Key::Slot(daily(), START), expect, slot());
        commit(&store, writer, vec![change]).unwrap().unwrap();
    };
    let log = "interlock:runlog:orders:2026-02-25:daily";
    let ttl = || redis_cli(&addr, &["PTTL", log]).parse::<i64>().unwrap();
    put(Expect::Absent);
    assert!((7_100_000..=7_200_000).contains(&ttl()), "{}", ttl());
    redis_cli(&addr, &["PEXPIRE", log, "5000"]);
    put(Expect::Revision(1));
    assert!((7_100_000..=7_200_000).contains(&ttl()), "{}", ttl());
    let key = RunKey { schedule: daily(), nominal: START, generation: 1, attempt: 1 };
    let id = format!("interlock:run:{}", key.id(&orders()));
    commit(&store, writer, vec![Change::Put(Key::Run(key), Expect::Absent, run())])
        .unwrap()
        .unwrap();
    assert_eq!(redis_cli(&addr, &["TTL", &id]), "-1");
}

#[test]
fn index_of_runs_has_a_limit_and_keeps_the_newest() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let few = RedisSettings { run_index_limit: 3, ..RedisSettings::new(addr.clone()) };
    let store = RedisStore::open(&few).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    for attempt in 1..=5 {
        let key = RunKey { schedule: daily(), nominal: START, generation: 1, attempt };
        let created_at = START + SignedDuration::from_secs(i64::from(attempt));
        let Record::Run(run) = run() else { unreachable!("it is one") };
        let record = Record::Run(RunRecord { created_at, ..Arc::unwrap_or_clone(run) }.into());
        commit(&store, writer, vec![Change::Put(Key::Run(key), Expect::Absent, record)])
            .unwrap()
            .unwrap();
    }
    let shown = redis_cli(&addr, &["ZRANGE", "interlock:runs:orders", "0", "-1"]);
    let shown: Vec<&str> = shown.lines().map(|id| id.rsplit('~').next().unwrap()).collect();
    assert_eq!(shown, ["3", "4", "5"]);
    let query = interlock_store::RunQuery { limit: 10, ..interlock_store::RunQuery::default() };
    assert_eq!(block_on(store.runs(&query)).unwrap().items.len(), 5, "none is lost");
}

/// Events that are older than they are kept go, by `MINID`, also where each commit takes an even number of numbers, so that
/// those of the events are all odd.
#[test]
fn events_older_than_the_retention_go() {
    let server = PrivateRedis::start();
    let brief = RedisSettings {
        retention_ttl: SignedDuration::from_millis(50),
        ..RedisSettings::new(server.address())
    };
    let store = RedisStore::open(&brief).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    // Each change of a slot is noted for an archive, and an archive that has everything holds nothing up.
    block_on(store.archived(Some(Archived { events: 1_000_000, changes: 0 }))).unwrap();
    let mut revision = 0;
    let first = || block_on(store.events(None, 0, 1)).unwrap().items[0].number;
    // Fewer than `eventStreamMax`, which would trim them too.
    for _ in 0..8_000 {
        let expect = if revision == 0 { Expect::Absent } else { Expect::Revision(revision) };
        let put = Change::Put(Key::Slot(daily(), START), expect, slot());
        commit(&store, writer, vec![event("x"), put]).unwrap().unwrap();
        revision += 1;
        if revision.is_multiple_of(100) && first() > 1 {
            break;
        }
    }
    assert!(first() > 1, "nothing went in {revision} events");
    let numbers: Vec<u64> = block_on(store.events(Some(&orders()), 0, 100_000))
        .unwrap()
        .items
        .iter()
        .map(|event| event.number)
        .collect();
    assert!(numbers.iter().all(|number| number % 2 == 1), "they are all odd");
    assert_eq!(numbers.last(), Some(&(2 * revision - 1)), "and the last is there");
}

/// A stream with a limit, and a pipeline whose events never come at a round number.
#[test]
fn pointers_to_events_that_are_gone_go_too() {
    let server = PrivateRedis::start();
    let limited = RedisSettings { event_stream_max: 200, ..RedisSettings::new(server.address()) };
    let store = RedisStore::open(&limited).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    for _ in 0..1_000 {
        commit(&store, writer, vec![event("x"); 25]).unwrap().unwrap();
    }
    let length = redis_cli(&server.address(), &["XLEN", "interlock:feed"]);
    let length: usize = length.parse().unwrap();
    assert!(length < 5_000, "{length} of 25,000 pointers are left");
    let all = block_on(store.events(None, 0, 100_000)).unwrap().items;
    assert!((200..400).contains(&all.len()), "{}", all.len());
    assert_eq!(all.last().unwrap().number, 25_000);
}

/// A reader that begins far back passes over what is gone in several steps, and finds what is there.
#[test]
fn events_behind_many_that_are_gone_are_found() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let store = RedisStore::open(&RedisSettings::new(addr.clone())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    for _ in 0..500 {
        commit(&store, writer, vec![event("x"); 25]).unwrap().unwrap();
    }
    redis_cli(&addr, &["XTRIM", "interlock:events:orders", "MAXLEN", "10"]);
    let page = block_on(store.events(None, 0, 4)).unwrap();
    let numbers: Vec<u64> = page.items.iter().map(|event| event.number).collect();
    assert_eq!((numbers, page.more), (vec![12_491, 12_492, 12_493, 12_494], true));
}

/// A request takes numbers for all that it may need; those that it does not need are given to the next.
#[test]
fn numbers_of_groups_that_were_refused_are_not_lost() {
    let server = PrivateRedis::start();
    let store = RedisStore::open(&RedisSettings::new(server.address())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let put = |expect| Change::Put(Key::Slot(daily(), START), expect, slot());
    let first = commit(&store, writer, vec![event("x"), put(Expect::Absent)]).unwrap().unwrap();
    commit(&store, writer, vec![event("x"), event("x"), put(Expect::Absent)]).unwrap().unwrap_err();
    let next = commit(&store, writer, vec![event("x")]).unwrap().unwrap();
    assert_eq!((first.last_event, next.last_event), (1, 2));
}

#[test]
fn event_says_under_which_right_it_was_written() {
    let server = PrivateRedis::start();
    let addr = server.address();
    let store = RedisStore::open(&RedisSettings::new(addr.clone())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    commit(&store, writer, vec![event("x")]).unwrap().unwrap();
    let stream = redis_cli(&addr, &["XRANGE", "interlock:events:orders", "-", "+"]);
    assert_eq!(stream.lines().last(), Some(format!("engine:0:{}", writer.term.0).as_str()));
}

/// A sensor may be called like the field that holds the row of a run.
#[test]
fn sensor_called_row_is_deleted_alone() {
    let server = PrivateRedis::start();
    let store = RedisStore::open(&RedisSettings::new(server.address())).unwrap();
    let writer = acquire(&store, "one", LONG).unwrap();
    let sensor = |name: &str| Key::Sensor(name.to_owned());
    let value = || {
        Record::Sensor(
            interlock_store::record::SensorRecord {
                value: 1.into(),
                at: START,
                received_at: START,
                unheeded: false,
            }
            .into(),
        )
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
