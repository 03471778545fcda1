//! What instances say of themselves in the store, and what is left of one that is killed.

use std::{path::Path, sync::Arc, time::Duration};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{InstanceRow, Store, block_on};
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::wait_for_seeing;
use jiff::{SignedDuration, Timestamp};

use crate::{
    Daemon,
    deaf::address,
    log,
    project::{Project, TICKER},
};

const SOON: Duration = Duration::from_mins(1);

/// Another process reads the ledger in a file.
fn in_the_file(project: &Path) -> Vec<InstanceRow> {
    let folder = project.join(".interlock");
    let Ok(store) = EmbeddedStore::open_reader(&folder, Arc::new(Timestamp::now)) else {
        return vec![];
    };
    block_on(store.instances()).unwrap()
}

fn wait_for_row(project: &Path, what: &str, holds: impl Fn(&InstanceRow) -> bool) -> InstanceRow {
    let look = || in_the_file(project).into_iter().find(&holds);
    wait_for_seeing(what, SOON, look, || format!("{:#?}\n{}", in_the_file(project), log(project)))
}

#[test]
fn an_instance_says_what_it_is_like_and_is_still_listed_when_it_is_killed() {
    let project = Project::new(&[("ticker", TICKER)]);
    let before = Timestamp::now();
    let daemon = Daemon::start(project.path());
    let all_loops = |row: &InstanceRow| {
        ["engine", "watchdog", "notifier"]
            .iter()
            .all(|name| row.record.loops.iter().any(|it| *it.name == **name))
    };
    let row = wait_for_row(project.path(), "what the instance says of itself", all_loops);
    let record = &row.record;
    assert_eq!(record.version, env!("CARGO_PKG_VERSION"));
    assert_eq!(record.pid, daemon.0.id());
    assert!((before..=row.said_at).contains(&record.started_at), "{row:?}");
    assert!(record.loops.iter().all(|it| !it.late && it.age < it.bound), "{row:?}");
    let leases: Vec<_> = record.leases.iter().map(|it| (it.role.as_str(), it.shard)).collect();
    assert_eq!(leases, [("engine", 0), ("watchdog", 0)]);
    let told = address(&project).map(|address| format!("http://{address}"));
    assert!(told.is_some() && record.address == told, "{row:?}");
    assert_eq!(record.clock_skew, None, "the ledger in a file goes by our clock");
    let later = |next: &InstanceRow| next.said_at > row.said_at;
    let last = wait_for_row(project.path(), "what it says a while later", later);
    assert!(last.said_at < row.said_at + SignedDuration::from_secs(30), "every few seconds");
    drop(daemon);
    let found = in_the_file(project.path());
    assert_eq!(found.len(), 1, "{found:#?}");
    assert!(found[0].said_at >= last.said_at && found[0].record.pid == record.pid);
}

/// Two instances on a server are each listed, with the shards that they hold between them.
fn check_two(settings: &str, open: impl Fn() -> Option<Arc<dyn Store>>) {
    let machines = [Project::new(&[("ticker", TICKER)]), Project::new(&[("ticker", TICKER)])];
    let _daemons = machines.each_ref().map(|machine| {
        let text = format!("{settings}server: {{addr: '127.0.0.1:0'}}\n");
        std::fs::write(machine.path().join("interlock.yaml"), text).unwrap();
        Daemon::start(machine.path())
    });
    let rows = || open().map(|store| block_on(store.instances()).unwrap()).unwrap_or_default();
    let divided = || {
        let rows = rows();
        let leases = rows.iter().flat_map(|row| &row.record.leases);
        let shards = leases.filter(|it| *it.role == *"engine").count();
        let has_each = rows.iter().all(|row| !row.record.leases.is_empty());
        (rows.len() == 2 && shards == 4 && has_each).then_some(rows)
    };
    let seen = || format!("{:#?}\n{}", rows(), log(machines[0].path()));
    let rows = wait_for_seeing("both instances with their shards", SOON, divided, seen);
    for row in rows {
        let skew = row.record.clock_skew.expect("the server has a clock of its own");
        assert!(skew.abs() < SignedDuration::from_secs(5), "one machine has one clock: {row:?}");
    }
}

#[test]
fn two_instances_on_a_redis_are_listed_with_their_shards() {
    let server = PrivateRedis::start();
    let settings = format!("provider: redis\nredis: {{addr: '{}', shards: 4}}\n", server.address());
    check_two(&settings, || {
        let store = RedisStore::find(&RedisSettings::new(server.address()));
        store.ok().flatten().map(|store| Arc::new(store) as Arc<dyn Store>)
    });
}

#[test]
fn two_instances_on_a_postgres_are_listed_with_their_shards() {
    let server = PrivatePostgres::start();
    let settings =
        format!("provider: postgres\npostgres: {{dsn: '{}', shards: 4}}\n", server.dsn());
    check_two(&settings, || {
        let store = PostgresStore::find(&PostgresSettings::new(server.dsn()));
        store.ok().flatten().map(|store| Arc::new(store) as Arc<dyn Store>)
    });
}
