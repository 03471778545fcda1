//! Lists after very many pipelines missed one instant: how long a person waits for them.

use std::{fs, path::Path, process::Command, sync::Arc, thread, time::Duration};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::Store;
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};

use crate::{
    missed_fleet::{fill, missed_hour, write_files},
    served::now,
};

/// Each is asked so often, and the best counts: others use the machine too.
const TRIES: usize = 3;

const LISTS: [(&str, &[&str]); 4] = [
    ("status", &["status"]),
    ("slots", &["slots"]),
    ("incidents", &["incidents"]),
    ("incidents_all", &["incidents", "--all"]),
];

/// On the embedded store.
pub(crate) fn embedded(label: &str, count: usize) {
    measure(&format!("embedded_{label}"), count, "", |folder| {
        let store = EmbeddedStore::open_daemon(&folder.join(".interlock"), Arc::new(now));
        Arc::new(store.expect("it is made"))
    });
}

/// On Redis.
pub(crate) fn redis(label: &str, count: usize) {
    let server = PrivateRedis::start();
    let text = format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address());
    measure(&format!("redis_{label}"), count, &text, |_| {
        let settings = RedisSettings { shards: 16, ..RedisSettings::new(server.address()) };
        Arc::new(RedisStore::open(&settings).expect("it is made"))
    });
}

/// On PostgreSQL.
pub(crate) fn postgres(label: &str, count: usize) {
    let server = PrivatePostgres::start();
    let text = format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn());
    measure(&format!("postgres_{label}"), count, &text, |_| {
        let settings = PostgresSettings { shards: 16, ..PostgresSettings::new(server.dsn()) };
        Arc::new(PostgresStore::open(&settings).expect("it is made"))
    });
}

fn measure(name: &str, count: usize, settings: &str, open: impl FnOnce(&Path) -> Arc<dyn Store>) {
    let folder = tempfile::tempdir().expect("a temporary folder");
    write_files(folder.path(), count);
    if !settings.is_empty() {
        fs::write(folder.path().join("interlock.yaml"), settings).expect("a file");
    }
    // As on a machine that serves: there is where what lists need of the files is remembered.
    fs::create_dir_all(folder.path().join(".interlock")).expect("a folder");
    fill(folder.path(), open(folder.path()).as_ref(), missed_hour(now()));
    // Files that changed a moment ago are not trusted.
    thread::sleep(Duration::from_secs(3));
    let first = seconds(folder.path(), &["status"]);
    println!("{name}: the first list reads the files, {first:.2} s");
    for (what, arguments) in LISTS {
        let tries = (0..TRIES).map(|_| seconds(folder.path(), arguments));
        let best = tries.fold(f64::INFINITY, f64::min);
        println!("RESULT name=lists/{name}_{what} seconds={best:.3}");
    }
}

fn seconds(project: &Path, arguments: &[&str]) -> f64 {
    let began = now();
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(project)
        .args(arguments)
        .output()
        .expect("the binary runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    now().duration_since(began).as_secs_f64()
}
