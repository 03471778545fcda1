//! Three instances on one server: how evenly they divide many pipelines, and how late jobs begin when many are due every
//! second, with the server and all instances on the same cores.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{Role, RunQuery, RunRow, Shard, Store, block_on};
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::{SignedDuration, Timestamp};

use crate::{
    scale::p99,
    served::{Served, now, project},
};

const INSTANCES: usize = 3;
/// How many slots are due in each second; each pipeline that is due at all is due once a minute.
const PER_SECOND: usize = 300;
/// What is watched: after everybody has what is theirs.
const SETTLING: Duration = Duration::from_secs(30);
const WATCHED: Duration = Duration::from_mins(1);
const PAGE: usize = 5_000;

/// One that is due every minute, at a second of its own, and does nothing.
const DUE: &str = "name: due-N\nschedules:\n  - {id: minutely, cron: \"SECOND * * * * *\", seconds: true}\n\
    trigger: {type: command, command: \"true\"}\n";
const IDLE: &str = "name: idle-N\nschedule: \"0 4 29 2 *\"\ntrigger: {type: external}\n";

/// What one instance that has nothing to do costs, with few pipelines and with many.
const FEW: usize = 1_000;
const MANY: usize = 30_000;
/// How long it is watched; a look at all files, which comes once in a long while, is over by then.
const IDLE_AFTER: Duration = Duration::from_secs(15);
const IDLE_FOR: Duration = Duration::from_secs(30);

/// Idle on Redis.
pub(crate) fn idle_redis() {
    idle("redis", &|| {
        let server = PrivateRedis::start();
        (format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address()), Box::new(server))
    });
}

/// Idle on PostgreSQL.
pub(crate) fn idle_postgres() {
    idle("postgres", &|| {
        let server = PrivatePostgres::start();
        let settings = format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn());
        (settings, Box::new(server))
    });
}

/// What `interlock.yaml` says of a server, and the server for as long as it is kept.
type Kept = (String, Box<dyn std::any::Any>);

fn idle(name: &str, start: &dyn Fn() -> Kept) {
    let shares = [FEW, MANY].map(|count| {
        let (settings, _server) = start();
        let files = project(count, &[IDLE]);
        let home = home(files.path(), &settings);
        // What is declared anew is looked at once by everybody: a second start finds all as it was.
        drop(Served::start(home.path()));
        thread::sleep(Duration::from_secs(5));
        let served = Served::start(home.path());
        thread::sleep(IDLE_AFTER);
        let (own, all) = (served.cpu_seconds(), machine_seconds());
        thread::sleep(IDLE_FOR);
        let share = |before: f64, now: f64| 100.0 * (now - before) / IDLE_FOR.as_secs_f64();
        let own = share(own, served.cpu_seconds());
        let all = share(all, machine_seconds());
        println!("RESULT name=idle/{name}_{count} percent={own:.2}");
        println!(
            "{count} pipelines: {own:.2} % of a core, {all:.2} % with the server and all else"
        );
        own
    });
    let [few, many] = shares;
    println!("RESULT name=idle/{name}_grows percent={:.0}", 100.0 * many / few.max(0.01));
}

/// Seconds of processor time that this machine has spent on anything.
fn machine_seconds() -> f64 {
    let stat = fs::read_to_string("/proc/stat").expect("the kernel tells");
    let fields = stat.lines().next().unwrap_or_default().split_whitespace().skip(1);
    let ticks: Vec<f64> = fields.filter_map(|field| field.parse().ok()).collect();
    // User, nice, system, then idle and waiting, then interrupts.
    let busy = [0, 1, 2, 5, 6].iter().filter_map(|at| ticks.get(*at)).sum::<f64>();
    busy / 100.0
}

/// So many pipelines on Redis.
pub(crate) fn redis(label: &str, count: usize) {
    let server = PrivateRedis::start();
    let settings = format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address());
    let open = || -> Box<dyn Store> {
        Box::new(RedisStore::open(&RedisSettings::new(server.address())).expect("it opens"))
    };
    measure(&format!("fleet/redis_{label}"), count, &settings, &open);
}

/// So many pipelines on PostgreSQL.
pub(crate) fn postgres(label: &str, count: usize) {
    let server = PrivatePostgres::start();
    let settings = format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn());
    let open = || -> Box<dyn Store> {
        Box::new(PostgresStore::open(&PostgresSettings::new(server.dsn())).expect("it opens"))
    };
    measure(&format!("fleet/postgres_{label}"), count, &settings, &open);
}

fn measure(name: &str, count: usize, settings: &str, open: &dyn Fn() -> Box<dyn Store>) {
    let due = PER_SECOND * 60;
    let texts: Vec<String> = (0..60).map(|it| DUE.replace("SECOND", &it.to_string())).collect();
    let mut texts: Vec<&str> = texts.iter().map(String::as_str).collect();
    // In each round of the texts every second of the minute once, and idle ones between.
    texts.extend(vec![IDLE; count / PER_SECOND - 60]);
    let files = project(count, &texts);
    let homes: Vec<_> = (0..INSTANCES).map(|_| home(files.path(), settings)).collect();
    let began = now();
    let fleet: Vec<Served> = homes.iter().map(|home| Served::start(home.path())).collect();
    println!("RESULT name={name}_start seconds={:.1}", now().duration_since(began).as_secs_f64());
    let store = open();
    settle(store.as_ref(), count);
    // Shares that are not even are made so one shard after the other.
    thread::sleep(SETTLING);
    let shares: Vec<usize> = shares(store.as_ref()).into_values().collect();
    #[expect(clippy::cast_precision_loss, reason = "a count of pipelines")]
    let off = |share: &usize| {
        let even = count as f64 / INSTANCES as f64;
        100.0 * (*share as f64 - even).abs() / even
    };
    let uneven = shares.iter().map(off).fold(0.0, f64::max);
    println!("pipelines of each instance: {shares:?}");
    println!("RESULT name={name}_uneven percent={uneven:.1}");
    let from = now();
    thread::sleep(WATCHED + Duration::from_secs(10));
    let until = from + SignedDuration::try_from(WATCHED).expect("a minute");
    let late = late(store.as_ref(), (from, until));
    let processor: f64 = fleet.iter().map(Served::cpu_seconds).sum();
    println!(
        "{} jobs began in {WATCHED:?} of {due}, {processor:.0} s of the instances' processor time",
        late.len()
    );
    println!("RESULT name={name}_begun per_second={:.0}", per_second(late.len()));
    println!("RESULT name={name}_late seconds={:.3}", p99(late));
}

#[expect(clippy::cast_precision_loss, reason = "a count of jobs")]
fn per_second(jobs: usize) -> f64 {
    jobs as f64 / WATCHED.as_secs_f64()
}

/// A project of its own with the same files: an instance on a machine of its own, as far as it can see.
fn home(files: &Path, settings: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    let dirs = format!(
        "pipelineDirs: ['{0}/pipelines']\ncalendarDirs: ['{0}/calendars']\n",
        files.display()
    );
    let rest = "server: {addr: '127.0.0.1:0'}\nengine: {maxConcurrentRuns: 1000}\n";
    fs::write(folder.path().join("interlock.yaml"), format!("{settings}{dirs}{rest}"))
        .expect("a file");
    folder
}

/// Waits until every instance owns something and every pipeline is declared.
fn settle(store: &dyn Store, count: usize) {
    let began = now();
    loop {
        thread::sleep(Duration::from_secs(2));
        assert!(now().duration_since(began) < SignedDuration::from_mins(4), "they do not settle");
        let shares = shares(store);
        if shares.values().sum::<usize>() == count && shares.len() == INSTANCES {
            return;
        }
    }
}

/// How many pipelines each instance has.
fn shares(store: &dyn Store) -> BTreeMap<String, usize> {
    let roll = block_on(store.roll()).expect("it answers").expect("it is shared");
    let mut shares = BTreeMap::new();
    for ((_, shard), (holder, _)) in roll.held.iter().filter(|held| held.0.0 == Role::Engine) {
        *shares.entry(holder.clone()).or_insert(0) += declared(store, *shard);
    }
    shares
}

fn declared(store: &dyn Store, shard: Shard) -> usize {
    let (mut after, mut found) = (None, 0);
    loop {
        let page = block_on(store.revisions(shard, after.as_ref(), PAGE)).expect("it answers");
        found += page.items.len();
        after = page.items.last().map(|(pipeline, _)| pipeline.clone());
        if !page.more {
            return found;
        }
    }
}

/// How late each job began whose slot lies in an interval, by what the ledger says of it.
fn late(store: &dyn Store, (from, until): (Timestamp, Timestamp)) -> Vec<f64> {
    let mut query = RunQuery { limit: PAGE, ..RunQuery::default() };
    let mut late = Vec::new();
    loop {
        let page = block_on(store.runs(&query)).expect("it answers");
        for run in page.items.iter().filter(|run| (from..until).contains(&run.key.nominal)) {
            let begun = run.record.started_at.unwrap_or(run.record.created_at);
            late.push(begun.duration_since(run.key.nominal).as_secs_f64());
        }
        let last = page.items.last();
        if !page.more || last.is_none_or(|run| run.record.created_at < from) {
            return late;
        }
        query.after = last.map(RunRow::place);
    }
}
