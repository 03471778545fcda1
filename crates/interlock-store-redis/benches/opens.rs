//! How many slots are opened through the store in a second, as a share of what a pipelined script reaches that writes the same
//! keys from one client and checks nothing, in the same run.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::time::Instant;

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::PrivateRedis;
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, Writer,
    conformance::{START, block_on, closed_slot},
    record::{EventRecord, SlotRecord, WatermarkRecord},
};
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::SignedDuration;

/// Pipelines that each open one slot at the same instant.
const PIPELINES: u32 = 20_000;
/// Groups in one call.
const BATCH: usize = 1_000;
const ROUNDS: u32 = 3;

fn names() -> Vec<PipelineId> {
    (0..PIPELINES).map(|number| PipelineId::parse(&format!("pipeline-{number}")).unwrap()).collect()
}

fn schedule() -> ScheduleId {
    ScheduleId::any("minutely").unwrap()
}

fn slot() -> SlotRecord {
    let open = closed_slot("completed");
    let (opened_at, closes_at) = (START, START + SignedDuration::from_mins(1));
    SlotRecord { state: "waiting".into(), disposition: None, opened_at, closes_at, ..open }
}

fn event() -> EventRecord {
    EventRecord {
        kind: "SLOT_OPENED".into(),
        at: START,
        slot: Some(format!("minutely/{START}")),
        run_id: None,
        message: "the schedule owes it".into(),
        details: [].into(),
    }
}

/// What the scheduler commits when a slot is due: its row, the watermark and an event, for every pipeline.
fn opens(writer: Writer, names: &[PipelineId]) -> Vec<Group> {
    let group = |pipeline: &PipelineId| {
        let watermark = Record::Watermark(WatermarkRecord { at: START });
        let slot = Record::Slot(slot());
        let changes = vec![
            Change::Put(Key::Slot(schedule(), START), Expect::Absent, slot),
            Change::Put(Key::Watermark(schedule()), Expect::Absent, watermark),
            Change::Append(event()),
        ];
        Group { pipeline: pipeline.clone(), writer, changes }
    };
    names.iter().map(group).collect()
}

/// Seconds that the store takes, with the next batch handed in before the last is answered, as the engine does.
fn opened(store: &dyn Store) -> f64 {
    let names = names();
    let lease =
        block_on(store.acquire(Role::Engine, Shard(0), "bench", SignedDuration::from_hours(1)));
    let writer = lease.unwrap().unwrap().writer;
    let batches: Vec<_> = names.chunks(BATCH).map(|names| opens(writer, names)).collect();
    let began = Instant::now();
    let mut under_way = None;
    for batch in batches {
        let next = store.commit(batch);
        if let Some(last) = under_way.replace(next) {
            assert!(block_on(last).unwrap().iter().all(Result::is_ok));
        }
    }
    assert!(block_on(under_way.unwrap()).unwrap().iter().all(Result::is_ok));
    began.elapsed().as_secs_f64()
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

fn tell(engine: &str, ceiling: &str, (store, limit): (Vec<f64>, Vec<f64>)) {
    println!("opened {store:?} s, {ceiling} {limit:?} s");
    // Side by side: what else the machine does changes from round to round.
    let share = median(store.iter().zip(&limit).map(|(store, limit)| limit / store).collect());
    let (store, limit) = (median(store), median(limit));
    let slots = f64::from(PIPELINES);
    println!("RESULT name={engine}/opens per_second={:.0}", slots / store);
    println!("RESULT name={engine}/{ceiling} per_second={:.0}", slots / limit);
    println!("RESULT name={engine}/opens_share percent={:.1}", 100.0 * share);
}

/// Writes what opening a slot writes, and looks at nothing: four words for each.
const SCRIPT: &str = "
local prefix = ARGV[1]
for at = 2, #ARGV, 4 do
    local pipeline, field, body, event = ARGV[at], ARGV[at + 1], ARGV[at + 2], ARGV[at + 3]
    local member = pipeline .. ' ' .. field
    redis.call('HSET', prefix .. ':slot:' .. pipeline, field, body)
    redis.call('ZADD', prefix .. ':index:slots', at, member)
    redis.call('ZADD', prefix .. ':index:slots:' .. pipeline, at, member)
    redis.call('ZADD', prefix .. ':index:open:0', 0, member)
    redis.call('HSET', prefix .. ':watermark:' .. pipeline, 'minutely', field)
    local log = prefix .. ':runlog:' .. pipeline .. ':2026-02-25:minutely'
    redis.call('HSET', log, 'pipelineId', pipeline, 'scheduleId', 'minutely', 'date', '2026-02-25', 'slot', field,
        'status', 'waiting', 'attempt', '0')
    redis.call('PEXPIRE', log, 604800000)
    redis.call('ZADD', prefix .. ':runlogs:' .. pipeline, at, '2026-02-25:minutely')
    local number = redis.call('HINCRBY', prefix .. ':about', 'event', 1) .. '-0'
    redis.call('XADD', prefix .. ':events:' .. pipeline, number, 'kind', 'SLOT_OPENED', 'data', event)
    redis.call('XADD', prefix .. ':feed', number, 'pipeline', pipeline)
end
return 1";
/// As many slots in one call as the store has groups in one.
const IN_ONE: usize = 500;

/// Seconds that the script takes.
async fn scripted(server: &PrivateRedis, prefix: &str) -> f64 {
    let client = redis::Client::open(format!("redis://{}", server.address())).unwrap();
    // All of it is one request, which takes its time.
    let config = redis::AsyncConnectionConfig::new().set_response_timeout(None);
    let connection = client.get_multiplexed_async_connection_with_config(&config);
    let mut connection = connection.await.unwrap();
    let load = redis::cmd("SCRIPT").arg("LOAD").arg(SCRIPT).to_owned();
    let hash: String = load.query_async(&mut connection).await.unwrap();
    let mut pipe = redis::pipe();
    for names in names().chunks(IN_ONE) {
        let call = pipe.cmd("EVALSHA").arg(&hash).arg(0).arg(prefix);
        for name in names {
            let body = format!("1 - open - {}", Record::Slot(slot()).encode());
            call.arg(name.as_str()).arg(format!("minutely {START}")).arg(body);
            call.arg(event().encode());
        }
    }
    let began = Instant::now();
    let _answers: Vec<i64> = pipe.query_async(&mut connection).await.unwrap();
    began.elapsed().as_secs_f64()
}

fn main() {
    let server = PrivateRedis::start();
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let (mut store, mut limit) = (Vec::new(), Vec::new());
    for round in 0..ROUNDS {
        let key_prefix = format!("store-{round}");
        let settings = RedisSettings { key_prefix, ..RedisSettings::new(server.address()) };
        store.push(opened(&RedisStore::open(&settings).unwrap()));
        limit.push(runtime.block_on(scripted(&server, &format!("script-{round}"))));
    }
    tell("redis", "script", (store, limit));
}
