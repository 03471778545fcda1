//! How many alerts a second reach a receiver that answers at once, through each store; beside what the same client reaches by
//! plain posts, and a plain program by plain lines, in the same run.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
#![expect(clippy::unwrap_used, reason = "a benchmark that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "time is what is measured")]

#[path = "../../tests/deliveries/house.rs"]
#[expect(dead_code, reason = "the tests look at more than is measured")]
mod house;

use std::{
    fs::OpenOptions,
    io::Write as _,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use interlock_config::server::Channel;
use interlock_engine::Patience;
use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::Store;
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_trigger::web::Call;
use interlock_wait::wait_until;
use jiff::SignedDuration;

use house::{Incidents, Process, Receiver, fill, now, web, webhook};

const ALERTS: u32 = 10_000;
/// As many at once as the notifier has tries under way.
const AT_ONCE: usize = 64;
/// Longer than any run.
const LONG: Duration = Duration::from_mins(5);

fn main() {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    let wanted = |name: &str| format!("deliveries/{name}").contains(&filter);
    if wanted("embedded") {
        let (folder, other) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let open = |folder: &Path| -> Arc<dyn Store> {
            Arc::new(EmbeddedStore::open_daemon(folder, Arc::new(now)).unwrap())
        };
        measure("embedded", [open(folder.path()), open(other.path())]);
    }
    if wanted("redis") {
        let server = PrivateRedis::start();
        let open = |prefix: &str| -> Arc<dyn Store> {
            let key_prefix = prefix.to_owned();
            let settings = RedisSettings { key_prefix, ..RedisSettings::new(server.address()) };
            Arc::new(RedisStore::open(&settings).unwrap())
        };
        measure("redis", [open("a"), open("b")]);
    }
    if wanted("postgres") {
        let server = PrivatePostgres::start();
        let open = |schema: &str| -> Arc<dyn Store> {
            let schema = schema.to_owned();
            let settings = PostgresSettings { schema, ..PostgresSettings::new(server.dsn()) };
            Arc::new(PostgresStore::open(&settings).unwrap())
        };
        measure("postgres", [open("a"), open("b")]);
    }
}

/// The same alerts to a webhook and to a file, each through an empty store.
fn measure(name: &str, [first, second]: [Arc<dyn Store>; 2]) {
    let folder = tempfile::tempdir().unwrap();
    let receiver = Receiver::start(usize::MAX);
    println!("RESULT name=deliveries/{name}_webhook@limit per_second={:.0}", posted(&receiver.url));
    let before = receiver.count();
    let told = told(&first, webhook(&receiver.url), folder.path(), || receiver.count() - before);
    println!("RESULT name=deliveries/{name}_webhook per_second={told:.0}");
    println!("RESULT name=deliveries/{name}_file@limit per_second={:.0}", written(folder.path()));
    let path = "alerts.jsonl".to_owned();
    let file = folder.path().join(&path);
    let lines = || std::fs::read_to_string(&file).map_or(0, |text| text.lines().count());
    let told = self::told(&second, Channel::File { path: path.into() }, folder.path(), lines);
    println!("RESULT name=deliveries/{name}_file per_second={told:.0}");
}

/// How many a second are told, from the first look at the outbox to the last alert.
fn told(store: &Arc<dyn Store>, channel: Channel, folder: &Path, count: impl Fn() -> usize) -> f64 {
    fill(&**store, ALERTS as usize, Incidents::Open);
    let began = Instant::now();
    let process = Process::start(store, channel, (folder, Patience::default()));
    wait_until("all are told", LONG, || count() >= ALERTS as usize);
    let seconds = began.elapsed().as_secs_f64();
    drop(process);
    f64::from(ALERTS) / seconds
}

/// How many posts a second the same client makes, with as many at once.
fn posted(url: &str) -> f64 {
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build();
    let (web, left) = (web(), Arc::new(AtomicUsize::new(ALERTS as usize)));
    let alert =
        format!("{{\"message\": \"{}\", \"details\": {{\"state\": \"open\"}}}}", "x".repeat(400));
    let began = Instant::now();
    runtime.unwrap().block_on(async {
        let posters = (0..AT_ONCE).map(|_| {
            let (web, left, body) = (web.clone(), Arc::clone(&left), alert.clone());
            let call = Call {
                method: "POST".to_owned(),
                url: url.to_owned(),
                headers: vec![],
                body: Some(body),
                timeout: SignedDuration::from_secs(10),
            };
            tokio::spawn(async move {
                while left
                    .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
                    .is_ok()
                {
                    assert!(web.send(&call).await.unwrap().is_success());
                }
            })
        });
        for poster in posters.collect::<Vec<_>>() {
            poster.await.unwrap();
        }
    });
    f64::from(ALERTS) / began.elapsed().as_secs_f64()
}

/// How many lines a second a plain program writes durably, as many at once.
fn written(folder: &Path) -> f64 {
    let lines = format!("{}\n", "x".repeat(500)).repeat(AT_ONCE);
    let path = folder.join("plain.jsonl");
    let mut file = OpenOptions::new().append(true).create(true).open(path).unwrap();
    let began = Instant::now();
    for _ in 0..ALERTS as usize / AT_ONCE {
        file.write_all(lines.as_bytes()).unwrap();
        file.sync_data().unwrap();
    }
    f64::from(ALERTS) / began.elapsed().as_secs_f64()
}
