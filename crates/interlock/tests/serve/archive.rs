//! Keeping history in PostgreSQL: the real command killed again and again, and the archiver of `serve`.

use std::{
    collections::BTreeSet,
    fs,
    process::{Child, Command, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::{
    EventRow, Freight, Key, Record, Row, RunKey, Store, StoredRow, block_on,
    record::{EventRecord, RunRecord, SlotRecord},
};
use interlock_store_conformance::{START, closed_slot};
use interlock_store_embedded::EmbeddedStore;
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::ChildWithin as _;
use jiff::{SignedDuration, Timestamp};

use crate::{Daemon, project::Project, tokens::metrics_page};

/// Slots, runs and two events for each.
const SLOTS: u64 = 6_000;
/// How often the archiver is killed at least.
const KILLS: usize = 12;

/// What somebody with SQL finds: one number for each statement.
pub(crate) fn numbers(server: &PrivatePostgres, statements: &[&str]) -> Vec<i64> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let (client, connection) =
            tokio_postgres::connect(&server.dsn(), tokio_postgres::NoTls).await.unwrap();
        tokio::spawn(async move { connection.await.unwrap_or_default() });
        let mut found = Vec::new();
        for statement in statements {
            // Tables that are not there yet hold nothing.
            let row = client.query_one(*statement, &[]).await;
            found.push(row.map_or(0, |row| row.get(0)));
        }
        found
    })
}

fn minute(minutes: u64) -> Timestamp {
    START + SignedDuration::from_mins(i64::try_from(minutes).unwrap())
}

/// A long history of one pipeline, in parts.
fn history() -> impl Iterator<Item = Freight> {
    let pipeline = || PipelineId::parse("orders").unwrap();
    let schedule = || ScheduleId::any("minutely").unwrap();
    let slot = move |at: u64| {
        Record::Slot(
            SlotRecord {
                attempt: 1,
                opened_at: minute(at),
                closes_at: minute(at + 1),
                ..closed_slot("completed")
            }
            .into(),
        )
    };
    let run = move |at: u64| {
        Record::Run(
            RunRecord {
                status: "COMPLETED".into(),
                trigger_type: "scheduler".into(),
                created_at: minute(at),
                started_at: Some(minute(at)),
                ended_at: Some(minute(at)),
                message: None,
                category: None,
                metadata: [].into(),
            }
            .into(),
        )
    };
    let event = move |number: u64| {
        let (kind, message) = ("JOB_COMPLETED".to_owned(), format!("event {number}"));
        let (slot, run_id, details) = (None, None, [].into());
        let record =
            EventRecord { kind: kind.into(), at: minute(number), slot, run_id, message, details };
        EventRow { number, pipeline: pipeline(), record: record.into() }
    };
    (0..SLOTS).step_by(500).map(move |first| {
        let part = first..first + 500;
        let stored =
            |key, record| StoredRow { pipeline: pipeline(), key, row: Row { record, revision: 3 } };
        let rows = part.clone().flat_map(|at| {
            let key =
                RunKey { schedule: schedule(), nominal: minute(at), generation: 1, attempt: 1 };
            [stored(Key::Slot(schedule(), minute(at)), slot(at)), stored(Key::Run(key), run(at))]
        });
        let events = part.clone().flat_map(|at| [event(2 * at + 1), event(2 * at + 2)]);
        Freight { rows: rows.collect(), events: events.collect(), ..Freight::default() }
    })
}

pub(crate) fn fill(store: &dyn Store) {
    history().for_each(|freight| block_on(store.import(freight)).unwrap());
}

pub(crate) fn embedded(project: &Project) -> EmbeddedStore {
    EmbeddedStore::open_daemon(&project.folder(), Arc::new(Timestamp::now)).unwrap()
}

pub(crate) fn redis(server: &PrivateRedis) -> RedisStore {
    RedisStore::open(&RedisSettings::new(server.address())).unwrap()
}

fn archiving(project: &Project) -> Child {
    Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["archive", "--once", "-C"])
        .arg(project.path())
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .unwrap()
}

/// Kills the archiver again and again: later after a life that got nowhere, sooner after one that did, so that on a fast
/// and on a slow machine it is killed in the middle.
fn kill_again_and_again(project: &Project, archive: &PrivatePostgres) {
    let count = || numbers(archive, &["SELECT count(*) FROM archive.events"])[0];
    let (mut kills, mut seen, mut life) = (0, BTreeSet::new(), 60);
    for _ in 0..40 {
        let mut child = archiving(project);
        thread::sleep(Duration::from_millis(life));
        if child.try_wait().unwrap().is_some() {
            break;
        }
        child.kill_and_wait();
        kills += 1;
        life = if seen.insert(count()) { life.saturating_sub(30).max(10) } else { life + 20 };
    }
    println!("{kills} kills; events in the archive after them: {seen:?}");
    assert!(kills >= KILLS && seen.len() > 3, "it was not killed in the middle: {kills} {seen:?}");
}

/// From a store that holds the history, with the archiver killed in the middle; everything is there once.
fn survives_kills(settings: &str) {
    let archive = PrivatePostgres::start();
    let project = Project::new(&[]);
    let dsn = archive.dsn();
    let text = format!("{settings}archiver: {{enabled: true, interval: 5m, dsn: '{dsn}'}}\n");
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    if settings.is_empty() {
        fill(&embedded(&project));
    }
    kill_again_and_again(&project, &archive);
    let ran = project.run(&["archive", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let found = numbers(
        &archive,
        &[
            "SELECT count(*) FROM archive.events",
            "SELECT count(DISTINCT message) FROM archive.events WHERE message = 'event ' || number",
            "SELECT count(*) FROM archive.runs WHERE status = 'COMPLETED'",
            "SELECT count(*) FROM archive.slots WHERE disposition = 'completed'",
        ],
    );
    let (slots, events) = (i64::try_from(SLOTS).unwrap(), i64::try_from(2 * SLOTS).unwrap());
    assert_eq!(found, [events, events, slots, slots]);
    let ran = project.run(&["archive", "--once"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "the archive has everything\n"), "{ran:?}");
}

#[test]
fn killed_archiver_of_the_embedded_store_archives_every_row_once() {
    survives_kills("");
}

#[test]
fn killed_archiver_of_a_redis_archives_every_row_once() {
    let server = PrivateRedis::start();
    fill(&redis(&server));
    survives_kills(&format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address()));
}

const TICKER: &str = "
name: ticker
schedule: {cron: '* * * * * *', seconds: true}
catchupWindow: 1h
overlapPolicy: all
trigger: {type: command, command: 'true'}
";

/// Beside the engine, with the daemon killed in between: the archive has what the ledger says.
#[test]
fn serve_archives_what_it_does() {
    let archive = PrivatePostgres::start();
    let project = Project::new(&[("ticker", TICKER)]);
    let text = format!(
        "server: {{addr: '127.0.0.1:0'}}\narchiver: {{enabled: true, interval: 1s, dsn: '{}'}}\n",
        archive.dsn()
    );
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    let completed = || {
        numbers(&archive, &["SELECT count(*) FROM archive.slots WHERE disposition = 'completed'"])
            [0]
    };
    for wanted in [2, 4, 6] {
        let daemon = Daemon::start(project.path());
        project.until("it is archived", || (completed() >= wanted).then_some(()));
        if wanted == 4 {
            let beside = project.run(&["archive"]);
            assert_eq!(beside.code, 0, "{beside:?}");
        }
        drop(daemon);
    }
    assert_eq!(project.run(&["archive", "--once"]).code, 0);
    let store = EmbeddedStore::open_reader(&project.folder(), Arc::new(Timestamp::now)).unwrap();
    let events = block_on(store.events(None, 0, 100_000)).unwrap().items.len();
    let query = interlock_store::LedgerQuery::everything(100_000);
    let slots = block_on(store.ledger(&query)).unwrap().items.len();
    let counted = ["SELECT count(*) FROM archive.events", "SELECT count(*) FROM archive.slots"];
    let found = numbers(&archive, &counted);
    assert_eq!(found, [events, slots].map(|count| i64::try_from(count).unwrap()));
}

/// An archive that is not there: the ledger goes on, people hear of it, and hear of its end, also from a process that
/// did not tell of it.
#[test]
fn archive_that_cannot_be_reached_is_an_incident() {
    let mut archive = PrivatePostgres::start();
    let project = Project::new(&[("ticker", TICKER)]);
    let text = format!(
        "server: {{addr: '127.0.0.1:0'}}\narchiver: {{enabled: true, interval: 1s, dsn: '{}'}}\n",
        archive.dsn()
    );
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    let daemon = Daemon::start(project.path());
    let count = || numbers(&archive, &["SELECT count(*) FROM archive.slots"])[0];
    project.until("it is archived", || (count() > 0).then_some(()));
    archive.kill();
    let open = || project.run(&["incidents", "list", "--json"]).stdout;
    project.until("people hear of it", || open().contains("ARCHIVE_BEHIND").then_some(()));
    // Whoever told is gone.
    drop(daemon);
    let _daemon = Daemon::start(project.path());
    assert!(archive.start_again());
    project.until("and of its end", || {
        let listed = project.run(&["events", "--json"]).stdout;
        listed.contains("ARCHIVE_CURRENT").then_some(())
    });
}

/// An archiver with a process of its own that dies: nobody is left there to say so, and the engine's process does.
#[test]
fn archiver_that_is_gone_is_an_incident() {
    let (archive, server) = (PrivatePostgres::start(), PrivateRedis::start());
    let settings = format!(
        "provider: redis\nredis: {{addr: '{}'}}\nserver: {{addr: '127.0.0.1:0'}}\n\
         archiver: {{enabled: true, interval: 1s, dsn: '{}'}}\n",
        server.address(),
        archive.dsn()
    );
    let (engine, archiver) = (Project::new(&[("ticker", TICKER)]), Project::new(&[]));
    for project in [&engine, &archiver] {
        fs::write(project.path().join("interlock.yaml"), &settings).unwrap();
    }
    let part = |project: &Project, roles: &str| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
        command.args(["serve", "--roles", roles]).arg(project.path());
        Daemon(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap())
    };
    let _engine = part(&engine, "engine,api,watchdog");
    let count = || numbers(&archive, &["SELECT count(*) FROM archive.slots"])[0];
    let said = |kind: &str| {
        let listed = engine.run(&["events", "--json"]).stdout;
        listed.contains(kind).then_some(())
    };
    // Declared, and never started.
    engine.until("nobody archives", || said("ARCHIVE_BEHIND"));
    let waited = || -> Option<u64> {
        let page = metrics_page(&engine, "")?;
        let line = page.lines().find(|line| line.starts_with("interlock_archive_waiting_seconds "));
        line?.split(' ').nth(1)?.parse().ok()
    };
    engine.until("the metric says how long", || waited().filter(|seconds| *seconds >= 3));
    let alive = part(&archiver, "archiver");
    engine.until("it is archived", || (count() > 0).then_some(()));
    engine.until("that is over", || said("ARCHIVE_CURRENT"));
    engine.until("nothing waits", || waited().filter(|seconds| *seconds < 3));
    drop(alive);
    let is_open = || {
        let listed = engine.run(&["incidents", "list", "--json"]).stdout;
        let listed: serde_json::Value = serde_json::from_str(&listed).unwrap();
        let found =
            listed.as_array().unwrap().iter().any(|incident| {
                incident["kind"] == "ARCHIVE_BEHIND" && incident["state"] == "open"
            });
        found.then_some(())
    };
    engine.until("people hear of it again", is_open);
}

/// The archive is reached long after the first events, of which the store keeps no more than it has to: all of them are
/// there in the end.
#[test]
fn events_before_the_archive_is_first_reached_are_archived() {
    let server = PrivateRedis::start();
    let project = Project::new(&[("ticker", TICKER)]);
    let settings = |dsn: &str| {
        let text = format!(
            "provider: redis\nredis: {{addr: '{}', eventStreamMax: 10}}\nserver: {{addr: '127.0.0.1:0'}}\n\
             archiver: {{enabled: true, interval: 1s, dsn: '{dsn}'}}\n",
            server.address()
        );
        fs::write(project.path().join("interlock.yaml"), text).unwrap();
    };
    // Nobody is there.
    settings("postgres://interlock@127.0.0.1:1/postgres");
    let daemon = Daemon::start(project.path());
    let store = redis(&server);
    let last = || block_on(store.mark()).unwrap().number;
    project.until("more happened than a stream holds", || (last() > 100).then_some(()));
    drop(daemon);
    let kept = block_on(store.events(None, 0, 100_000)).unwrap().items;
    let archive = PrivatePostgres::start();
    settings(&archive.dsn());
    let ran = project.run(&["archive", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let ticks = "SELECT count(*) FROM archive.events WHERE kind = 'JOB_COMPLETED'";
    let slots = "SELECT count(*) FROM archive.slots WHERE disposition = 'completed'";
    let found = numbers(&archive, &[ticks, slots, "SELECT count(*) FROM archive.events"]);
    println!("{found:?}, kept {}", kept.len());
    assert_eq!(found[2], i64::try_from(kept.len()).unwrap());
    assert_eq!(found[0], found[1], "an event for each slot");
}
