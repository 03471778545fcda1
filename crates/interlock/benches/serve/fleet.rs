//! Three instances on one server: how evenly they divide many pipelines, and how late jobs begin when many are due every
//! second, with the server and all instances on the same cores.

use std::{collections::BTreeMap, fs, path::Path, thread, time::Duration};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{Role, RunQuery, RunRow, Shard, Store, conformance::block_on};
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
        let (dsn, schema) = (server.dsn(), "interlock".to_owned());
        let settings = PostgresSettings { dsn, schema, connections_max: 4, shards: 1 };
        Box::new(PostgresStore::open(&settings).expect("it opens"))
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
    let shares = settled(store.as_ref(), count);
    #[expect(clippy::cast_precision_loss, reason = "a count of pipelines")]
    let off = |share: &usize| {
        let even = count as f64 / INSTANCES as f64;
        100.0 * (*share as f64 - even).abs() / even
    };
    let uneven = shares.iter().map(off).fold(0.0, f64::max);
    println!("pipelines of each instance: {shares:?}");
    println!("RESULT name={name}_uneven percent={uneven:.1}");
    thread::sleep(SETTLING);
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

/// How many pipelines each instance has, once every shard has an owner and every pipeline is declared.
fn settled(store: &dyn Store, count: usize) -> Vec<usize> {
    let began = now();
    loop {
        thread::sleep(Duration::from_secs(2));
        assert!(now().duration_since(began) < SignedDuration::from_mins(4), "they do not settle");
        let roll = block_on(store.roll()).expect("it answers").expect("it is shared");
        let mut shares = BTreeMap::new();
        for ((_, shard), (holder, _)) in roll.held.iter().filter(|held| held.0.0 == Role::Engine) {
            *shares.entry(holder.clone()).or_insert(0) += declared(store, *shard);
        }
        if shares.values().sum::<usize>() == count && shares.len() == INSTANCES {
            return shares.into_values().collect();
        }
    }
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
