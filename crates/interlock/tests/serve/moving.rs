//! Moving house: a ledger goes from a file to a server and back, and `serve` carries on there.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Command, ExitStatus, Stdio},
    sync::atomic::{AtomicBool, Ordering},
    thread,
};

use interlock_core::id::PipelineId;
use interlock_private_server::{PrivateCluster, PrivatePostgres, PrivateRedis};
use interlock_store::{
    Freight, Key, Record, Row, Store as _, StoredRow, block_on,
    kept::COPYING_KEY,
    record::{InboxRecord, SensorRecord},
};
use interlock_store_conformance::START;
use interlock_store_redis::{RedisSettings, RedisStore};
use jiff::{SignedDuration, Timestamp};
use rustix::process::Signal;

use crate::{
    Daemon, archive,
    process::{PLAIN, Started, started_by},
    project::{Project, TICKER},
};

const HERE: &str = "server: {addr: '127.0.0.1:0'}\n";

fn write(project: &Project, name: &str, settings: &str) -> PathBuf {
    let path = project.path().join(name);
    fs::write(&path, format!("{settings}{HERE}")).unwrap();
    path
}

/// The instants of the slots whose jobs began, with how often.
fn begun(project: &Project) -> BTreeMap<Timestamp, usize> {
    let text = fs::read_to_string(project.path().join("ran.log")).unwrap_or_default();
    let mut begun = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("start ")) {
        *begun.entry(line.split(' ').nth(2).unwrap().parse().unwrap()).or_insert(0) += 1;
    }
    begun
}

fn serve_for_a_while(project: &Project) {
    let before = begun(project).len();
    let _daemon = Daemon::start(project.path());
    project.until("it works", || (begun(project).len() > before + 2).then_some(()));
    project.until("all are done", || {
        let open = project.run(&["slots", "--disposition", "open"]);
        (open.code == 0 && !open.stdout.contains("ticker")).then_some(())
    });
}

fn copy(project: &Project, from: &Path, to: &Path) {
    let (from, to) = (from.to_str().unwrap(), to.to_str().unwrap());
    // The lease of the daemon that was killed runs out first.
    let ran = project.until("it is copied", || {
        let ran = project.run(&["store", "copy", "--from", from, "--to", to]);
        (!ran.stderr.contains("another process writes")).then_some(ran)
    });
    assert_eq!(ran.code, 0, "{ran:?}");
    assert!(ran.stdout.contains("both hold the same"), "{ran:?}");
}

/// From a file to a server, back to another file: no slot is lost, none runs twice (S2, S3).
fn there_and_back(server: &str) {
    let project = Project::new(&[("ticker", TICKER)]);
    write(&project, "interlock.yaml", "");
    serve_for_a_while(&project);
    let ran = project.run(&["sensor", "put", "ticker", "landed", "{\"rows\": 7}"]);
    assert_eq!(ran.code, 0, "{ran:?}");

    let next = write(&project, "server.yaml", server);
    copy(&project, project.path(), &next);
    let again = project.run(&["store", "copy", "--to", next.to_str().unwrap()]);
    assert!(again.code != 0 && again.stderr.contains("is not empty"), "{again:?}");
    // Whoever still serves the one that was left would run everything a second time.
    let old = project.run(&["serve"]);
    assert!(old.code != 0 && old.stderr.contains("was moved to"), "{old:?}");
    write(&project, "interlock.yaml", server);
    serve_for_a_while(&project);

    let back = write(&project, "back.yaml", "embedded: {path: back}\n");
    copy(&project, &next, &back);
    write(&project, "interlock.yaml", "embedded: {path: back}\n");
    serve_for_a_while(&project);

    let begun = begun(&project);
    assert!(begun.values().all(|times| *times == 1), "{begun:?}");
    let instants: Vec<Timestamp> = begun.keys().copied().collect();
    let second = SignedDuration::from_secs(1);
    let gaps = instants.windows(2).filter(|pair| pair[1].duration_since(pair[0]) != second);
    assert_eq!(gaps.count(), 0, "no slot is lost: {instants:?}");
    let sensor = project.run(&["sensor", "get", "ticker", "landed"]);
    assert!(sensor.stdout.contains('7'), "{sensor:?}");
}

#[test]
fn ledger_moves_to_redis_and_back() {
    let server = PrivateRedis::start();
    there_and_back(&format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address()));
}

#[test]
fn ledger_moves_to_a_redis_cluster_and_back() {
    let cluster = PrivateCluster::start();
    let addr = cluster.addresses().remove(2);
    there_and_back(&format!("provider: redis\nredis: {{addr: '{addr}'}}\n"));
}

#[test]
fn ledger_moves_to_postgres_and_back() {
    let server = PrivatePostgres::start();
    there_and_back(&format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn()));
}

/// A move that nobody wanted after all: the one that was left is served again once somebody says so.
#[test]
fn ledger_that_was_left_can_be_taken_back() {
    let project = Project::new(&[("ticker", TICKER)]);
    write(&project, "interlock.yaml", "");
    serve_for_a_while(&project);
    let other = write(&project, "other.yaml", "embedded: {path: other}\n");
    copy(&project, project.path(), &other);
    assert_ne!(project.run(&["serve"]).code, 0);
    let ran = project.run(&["store", "reclaim"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    serve_for_a_while(&project);
}

/// The number of shards is fixed when a store is made; a move to another store is how it is changed, and nothing else does.
#[test]
fn shards_are_as_many_as_the_store_was_made_with_until_it_moves() {
    let server = PrivatePostgres::start();
    let settings = |schema: &str, shards: u16| {
        let dsn = server.dsn();
        format!(
            "provider: postgres\npostgres: {{dsn: '{dsn}', schema: {schema}, shards: {shards}}}\n"
        )
    };
    let project = Project::new(&[("ticker", TICKER)]);
    write(&project, "interlock.yaml", &settings("old", 3));
    serve_for_a_while(&project);
    let next = write(&project, "next.yaml", &settings("new", 5));
    write(&project, "interlock.yaml", &settings("old", 5));
    for command in ["serve", "status"] {
        let ran = project.run(&[command]);
        assert!(ran.code != 0 && ran.stderr.contains("interlock store copy"), "{ran:?}");
    }
    let old = write(&project, "old.yaml", &settings("old", 3));
    copy(&project, &old, &next);
    write(&project, "interlock.yaml", &settings("new", 5));
    serve_for_a_while(&project);
    let status = project.run(&["status"]);
    assert!(status.stdout.contains("shards 5"), "{status:?}");
    let begun = begun(&project);
    assert!(begun.values().all(|times| *times == 1), "{begun:?}");
}

#[test]
fn store_that_somebody_serves_is_not_copied() {
    let server = PrivateRedis::start();
    let settings = format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address());
    let project = Project::new(&[("ticker", TICKER)]);
    let other = write(&project, "other.yaml", "embedded: {path: other}\n");
    for settings in ["", settings.as_str()] {
        write(&project, "interlock.yaml", settings);
        let begun_before = begun(&project).len();
        let _daemon = Daemon::start(project.path());
        project.until("it works", || (begun(&project).len() > begun_before).then_some(()));
        let ran = project.run(&["store", "copy", "--to", other.to_str().unwrap()]);
        assert!(ran.code != 0 && ran.stderr.contains("another process writes"), "{ran:?}");
    }
}

/// A copy that was broken off is neither served nor copied to again.
#[test]
fn copy_that_was_not_finished_is_refused() {
    let server = PrivateRedis::start();
    let store = archive::redis(&server);
    let settings = format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address());
    let project = Project::new(&[("ticker", TICKER)]);
    write(&project, "interlock.yaml", &settings);
    let value = serde_json::json!({});
    let record = Record::Sensor(
        SensorRecord { value, at: START, received_at: START, unheeded: false }.into(),
    );
    let marker = StoredRow {
        pipeline: PipelineId::system(),
        key: Key::Sensor(COPYING_KEY.to_owned()),
        row: Row { record, revision: 1 },
    };
    block_on(store.import(Freight { rows: vec![marker], ..Freight::default() })).unwrap();
    let ran = project.run(&["serve"]);
    assert!(ran.code != 0 && ran.stderr.contains("a copy that was not finished"), "{ran:?}");
    let from = Project::new(&[("ticker", TICKER)]);
    let asked = InboxRecord::Catchup {};
    let ticker = PipelineId::parse("ticker").unwrap();
    block_on(archive::embedded(&from).post(&ticker, "k", &asked)).unwrap();
    let target = project.path().join("interlock.yaml");
    let ran = from.run(&["store", "copy", "--to", target.to_str().unwrap()]);
    assert!(ran.code != 0 && ran.stderr.contains("is not empty"), "{ran:?}");
}

/// A copy from a Redis that holds much to another prefix there, which is under way.
struct Copying {
    server: PrivateRedis,
    project: Project,
    elsewhere: RedisSettings,
    process: Started,
}

impl Copying {
    /// Begins one, started by these words.
    fn begin(words: &[&[&str]]) -> Self {
        let server = PrivateRedis::start();
        archive::fill(&archive::redis(&server));
        let project = Project::new(&[("ticker", TICKER)]);
        let to = write(&project, "to.yaml", &settings(&server, "elsewhere"));
        write(&project, "interlock.yaml", &settings(&server, "interlock"));
        let mut copy = Command::new(env!("CARGO_BIN_EXE_interlock"));
        copy.args(["store", "copy", "--to", to.to_str().unwrap(), "-C"]).arg(project.path());
        let mut copy = started_by(words, &copy);
        let process = Started::new(copy.stdout(Stdio::null()).stderr(Stdio::null()));
        let elsewhere = RedisSettings {
            key_prefix: "elsewhere".to_owned(),
            ..RedisSettings::new(server.address())
        };
        project.until("it has begun", || {
            let target = RedisStore::find(&elsewhere).unwrap()?;
            let key = Key::Sensor(COPYING_KEY.to_owned());
            block_on(target.read(&PipelineId::system(), &[key])).unwrap().remove(0)
        });
        let busy = project.run(&["store", "copy", "--to", to.to_str().unwrap()]);
        assert!(busy.stderr.contains(", interlock store copy has it until"), "{busy:?}");
        Self { server, project, elsewhere, process }
    }

    /// Signals it, and waits for its end.
    fn ends_after(&mut self, signal: Signal) -> ExitStatus {
        self.process.signal(signal);
        self.process.ends("a copy that got a signal")
    }
}

fn settings(server: &PrivateRedis, prefix: &str) -> String {
    format!("provider: redis\nredis: {{addr: '{}', keyPrefix: {prefix}}}\n", server.address())
}

/// Ends a copy by a signal, and says until when its leases keep others away, by the server's clock.
fn broken_off_by(signal: Signal) -> Option<SignedDuration> {
    let mut copying = Copying::begin(&[PLAIN]);
    let ended = copying.ends_after(signal);
    assert!(!ended.success(), "{ended:?}");
    let Copying { server, project, elsewhere, .. } = &copying;
    let (store, target) = (archive::redis(server), RedisStore::find(elsewhere).unwrap().unwrap());
    let kept = [&store, &target].map(|store| {
        let roll = block_on(store.roll()).unwrap().unwrap();
        roll.held.values().map(|(_, until)| until.duration_since(roll.now)).max()
    });
    write(project, "interlock.yaml", &settings(server, "elsewhere"));
    let ran = project.run(&["serve"]);
    let how = "--scan --pattern 'elsewhere:*'";
    assert!(ran.stderr.contains("not finished") && ran.stderr.contains(how), "{ran:?}");
    kept.into_iter().flatten().max()
}

/// A copy that is interrupted gives back what it held, and one that is killed keeps nobody waiting for long: it was two
/// minutes, in which slots were missed.
#[test]
fn copy_that_is_broken_off_keeps_nobody_away() {
    for signal in [Signal::INT, Signal::TERM, Signal::HUP] {
        assert_eq!(broken_off_by(signal), None, "{signal:?}");
    }
    let kept = broken_off_by(Signal::KILL).unwrap();
    assert!(kept <= SignedDuration::from_secs(6), "{kept:?}");
}

#[test]
fn under_nohup_a_hangup_does_not_break_a_copy_off() {
    let ended = Copying::begin(&[PLAIN, &["nohup"]]).ends_after(Signal::HUP);
    assert!(ended.success(), "{ended:?}");
}

/// Leases keep owners away, and nobody keeps a report away: the comparison finds it, and the copy is not served.
#[test]
fn report_that_comes_meanwhile_is_found() {
    let server = PrivateRedis::start();
    let store = archive::redis(&server);
    let project = Project::new(&[("ticker", TICKER)]);
    let settings = format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address());
    let from = write(&project, "from.yaml", &settings);
    write(&project, "interlock.yaml", "");
    let is_over = AtomicBool::new(false);
    let ran = thread::scope(|scope| {
        scope.spawn(|| {
            let ticker = PipelineId::parse("ticker").unwrap();
            for number in 0.. {
                let key = format!("k-{number}");
                block_on(store.post(&ticker, &key, &InboxRecord::Catchup {})).unwrap();
                if is_over.load(Ordering::Relaxed) {
                    break;
                }
            }
        });
        let to = project.path().to_str().unwrap();
        let ran = project.run(&["store", "copy", "--from", from.to_str().unwrap(), "--to", to]);
        is_over.store(true, Ordering::Relaxed);
        ran
    });
    assert!(ran.code != 0 && ran.stderr.contains("the copy is not the same"), "{ran:?}");
    let ran = project.run(&["serve"]);
    assert!(ran.code != 0 && ran.stderr.contains("a copy that was not finished"), "{ran:?}");
}
