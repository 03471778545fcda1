//! How many slots are opened through the store in a second, as a share of what a pipelined script reaches that writes the same
//! keys from one client and checks nothing, in the same run.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

use std::time::Instant;

use interlock_private_server::PrivateRedis;
use interlock_store::Record;
use interlock_store_conformance::{
    START,
    opens::{names, open_all, opened_event, opened_slot, report},
};
use interlock_store_redis::{RedisSettings, RedisStore};

const ROUNDS: u32 = 5;

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
            let body = format!("1 - open - {}", Record::Slot(opened_slot().into()).encode());
            call.arg(name.as_str()).arg(format!("minutely {START}")).arg(body);
            call.arg(opened_event().encode());
        }
    }
    let began = Instant::now();
    let _answers: Vec<i64> = pipe.query_async(&mut connection).await.unwrap();
    began.elapsed().as_secs_f64()
}

fn main() {
    // What the server rewrites in the background would meet the one or the other.
    let server = PrivateRedis::start_with(&[
        "--appendonly",
        "yes",
        "--appendfsync",
        "always",
        "--auto-aof-rewrite-percentage",
        "0",
    ]);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let rounds: Vec<(f64, f64)> = (0..ROUNDS)
        .map(|round| {
            let key_prefix = format!("store-{round}");
            let settings = RedisSettings { key_prefix, ..RedisSettings::new(server.address()) };
            let store = open_all(&RedisStore::open(&settings).unwrap());
            (store, runtime.block_on(scripted(&server, &format!("script-{round}"))))
        })
        .collect();
    println!("{}", report("redis", "script", &rounds));
}
