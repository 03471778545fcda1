//! The watchdog without an engine: a process beside one that is killed, the stand-in of an embedded ledger, and single
//! passes that deliver what they find.

use std::{
    collections::BTreeMap,
    fs,
    os::unix::net::UnixDatagram,
    process::{Command, Stdio},
    time::{Duration, Instant},
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{Daemon, any_port, log, project::Project};

/// It runs at these seconds of each minute as long as an engine starts it, and is missed when it could not have started late
/// either: a lease and a second after its time.
fn ticking(name: &str, seconds: &str, start_grace: i64) -> String {
    format!(
        "name: {name}\nschedule: {{cron: '{seconds} * * * * *', seconds: true, grace: 1s}}\n\
         startGrace: {start_grace}s\ntrigger: {{type: command, command: 'true'}}\n"
    )
}

/// On a server, where leases are short, and on the embedded store.
const ON_SERVER: i64 = 6;
const EMBEDDED: i64 = 16;

/// How soon after its deadline a miss has to have reached its channel.
const TOLD_IN: i128 = 1_000;
/// On a machine that is busy with other tests some come later.
const TOLD_IN_ANY_CASE: i128 = 10_000;
/// How soon an engine has to have the ledger of a stand-in.
const HANDED_OVER_IN: Duration = Duration::from_secs(5);

fn project(settings: &str, start_grace: i64) -> Project {
    let all = [("one", "0,15,30,45"), ("two", "5,20,35,50"), ("three", "10,25,40,55")];
    let texts = all.map(|(name, seconds)| (name, ticking(name, seconds, start_grace)));
    let texts: Vec<_> = texts.iter().map(|(name, text)| (*name, text.as_str())).collect();
    let project = Project::new(&texts);
    let config = format!(
        "{settings}server: {{addr: '127.0.0.1:0'}}\n\
         alerts:\n- {{type: file, name: log, path: alerts.jsonl}}\n\
         - {{type: file, name: events, path: events.jsonl, format: events}}\n"
    );
    fs::write(project.path().join("interlock.yaml"), config).unwrap();
    project
}

fn lines(project: &Project, file: &str) -> Vec<Value> {
    let text = fs::read_to_string(project.path().join(file)).unwrap_or_default();
    text.lines().filter_map(|line| serde_json::from_str(line).ok()).collect()
}

fn alerts(project: &Project) -> Vec<Value> {
    let mut alerts = lines(project, "alerts.jsonl");
    alerts.retain(|alert| alert["alertType"] == "schedule_missed");
    alerts
}

fn completed(project: &Project) -> usize {
    let ran = project.run(&["runs", "--json", "--status", "COMPLETED"]);
    let runs: Value = serde_json::from_str(&ran.stdout).unwrap_or_default();
    runs.as_array().map_or(0, Vec::len)
}

/// How many milliseconds after its deadline the first miss of each pipeline was in the file.
fn lateness(project: &Project) -> BTreeMap<String, i128> {
    let mut late = BTreeMap::new();
    project.until("a miss of each pipeline is told", || {
        let seen = Timestamp::now();
        for alert in alerts(project) {
            let expected = alert["details"]["expectedTime"].as_str()?.parse::<Timestamp>().ok()?;
            let after = seen.duration_since(expected).as_millis() - i128::from(ON_SERVER) * 1_000;
            late.entry(alert["pipelineId"].as_str()?.to_owned()).or_insert(after);
        }
        (late.len() == 3).then_some(())
    });
    late
}

/// A watchdog beside an engine that is killed: what is missed then is told in time.
fn beside_a_dead_engine(settings: &str) {
    let project = project(settings, ON_SERVER);
    let engine = Daemon::with_roles(project.path(), "engine,api");
    let _watchdog = Daemon::with_roles(project.path(), "watchdog,notifier");
    // By then the watchdog has stopped giving the engine the time that a start takes.
    project.until("it runs", || (completed(&project) >= 4).then_some(()));
    project.until("the watchdog runs", || {
        log(project.path()).contains("running notifier, watchdog").then_some(())
    });
    assert_eq!(alerts(&project), Vec::<Value>::new(), "nothing is missing while it runs");
    drop(engine);
    let late = lateness(&project);
    println!("told after {late:?} ms");
    assert!(late.values().any(|late| *late <= TOLD_IN), "{late:?} ms after the deadline");
    assert!(late.values().all(|late| *late <= TOLD_IN_ANY_CASE), "{late:?} ms after the deadline");
    project.kill_what_the_daemon_left();
}

#[test]
fn redis_a_watchdog_beside_a_dead_engine_tells_a_miss_within_a_second_of_its_deadline() {
    let server = PrivateRedis::start();
    beside_a_dead_engine(&format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address()));
}

#[test]
fn postgres_a_watchdog_beside_a_dead_engine_tells_a_miss_within_a_second_of_its_deadline() {
    let server = PrivatePostgres::start();
    beside_a_dead_engine(&format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", server.dsn()));
}

/// Passes from a crontab after an engine was killed: what each wrote has reached its channel when it ends.
fn passes_after_a_dead_engine(settings: &str, start_grace: i64) {
    let project = project(settings, start_grace);
    let engine = Daemon::start(project.path());
    project.until("it runs", || (completed(&project) >= 1).then_some(()));
    drop(engine);
    let mut delivered = 0;
    project.until("passes have told of each pipeline", || {
        let ran = project.run(&["watchdog", "--once", "--json"]);
        assert_eq!(ran.code, 0, "{ran:?}");
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        if said["alerts"].is_null() {
            // On a server the dead one's lease has yet to run out.
            assert!(ran.stderr.contains("another watchdog is at work"), "{ran:?}");
            return None;
        }
        delivered += said["alerts"]["delivered"].as_u64().unwrap();
        assert_eq!(said["alerts"]["undelivered"], serde_json::json!([]), "{said}");
        // By the end of the command, not some time later.
        assert_eq!(alerts(&project).len() as u64, delivered, "{said}");
        (delivered == 3).then_some(())
    });
    let ran = project.run(&["watchdog", "--once"]);
    assert_eq!(alerts(&project).len(), 3, "nothing is told twice: {ran:?}");
    project.kill_what_the_daemon_left();
}

#[test]
fn embedded_a_pass_from_a_crontab_delivers_what_a_dead_engine_missed_before_it_ends() {
    passes_after_a_dead_engine("", EMBEDDED);
}

#[test]
fn redis_and_postgres_a_pass_delivers_what_a_dead_engine_missed_on_any_shard() {
    let (redis, postgres) = (PrivateRedis::start(), PrivatePostgres::start());
    let on_redis = format!("provider: redis\nredis: {{addr: '{}'}}\n", redis.address());
    let on_postgres = format!("provider: postgres\npostgres: {{dsn: '{}'}}\n", postgres.dsn());
    std::thread::scope(|both| {
        both.spawn(|| passes_after_a_dead_engine(&on_redis, ON_SERVER));
        both.spawn(|| passes_after_a_dead_engine(&on_postgres, ON_SERVER));
    });
}

#[test]
fn s10_after_an_engine_that_listened_passes_call_a_silent_job_missed() {
    let silent = "name: silent\nschedule: {cron: '*/5 * * * * *', seconds: true, grace: 1s}\n\
                  trigger: {type: external}\n";
    let project = Project::new(&[("silent", silent)]);
    any_port(project.path());
    let engine = Daemon::start(project.path());
    project.until("it watches", || {
        project.run(&["slots", "silent", "--json"]).stdout.contains("missed").then_some(())
    });
    drop(engine);
    let killed = Timestamp::now();
    // What a listener said last is up to ten seconds old, and fifteen more cannot be told from its pace.
    let from = killed + SignedDuration::from_secs(30);
    let found = project.until("passes judge a slot of long after its end", || {
        let ran = project.run(&["watchdog", "--once", "--json"]);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        let found = said["findings"].as_array().unwrap().iter().find(|finding| {
            let expected = &finding["details"]["expectedTime"];
            expected.as_str().is_some_and(|at| at.parse::<Timestamp>().unwrap() > from)
        });
        found.cloned()
    });
    assert_eq!(found["event"], "SCHEDULE_MISSED", "{found}");
}

#[test]
fn a_pass_whose_channel_is_away_says_so_and_the_next_one_delivers() {
    let project = project("", EMBEDDED);
    let engine = Daemon::start(project.path());
    project.until("it runs", || (completed(&project) >= 1).then_some(()));
    drop(engine);
    // A directory in the file's place: every write fails.
    let file = project.path().join("alerts.jsonl");
    let _there_is_none = fs::remove_file(&file);
    fs::create_dir(&file).unwrap();
    let said = project.until("a pass finds something", || {
        let ran = project.run(&["watchdog", "--once", "--json"]);
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        let found = said["alerts"]["written"].as_u64().unwrap() > 0;
        assert_eq!(ran.code, i32::from(found), "{ran:?}");
        found.then_some(said)
    });
    let left = &said["alerts"]["undelivered"][0];
    assert_eq!((&left["channel"], &left["state"]), (&"log".into(), &"retrying".into()), "{said}");
    assert!(left["reason"].as_str().unwrap().contains("alerts.jsonl"), "{said}");
    fs::remove_dir(&file).unwrap();
    project.until("a later pass delivers it", || {
        project.run(&["watchdog", "--once"]);
        (!alerts(&project).is_empty()).then_some(())
    });
    project.kill_what_the_daemon_left();
}

/// A stand-in under a service manager, which expects signs of life.
fn stand_in(project: &Project) -> (Daemon, UnixDatagram) {
    let path = project.path().join("notify");
    let manager = UnixDatagram::bind(&path).unwrap();
    manager.set_nonblocking(true).unwrap();
    let log =
        fs::OpenOptions::new().create(true).append(true).open(project.path().join("serve.log"));
    let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json", "--roles", "watchdog,notifier"])
        .arg(project.path())
        .env("NOTIFY_SOCKET", path)
        .env("WATCHDOG_USEC", "30000000")
        .stdout(Stdio::null())
        .stderr(log.unwrap())
        .spawn();
    (Daemon(child.unwrap()), manager)
}

/// What a service manager was told since it last looked.
fn heard(manager: &UnixDatagram) -> String {
    let (mut heard, mut buffer) = (String::new(), [0; 4_096]);
    while let Ok(length) = manager.recv(&mut buffer) {
        heard.push_str(&String::from_utf8_lossy(&buffer[..length]));
    }
    heard
}

/// The children of a process that have ended, and that it has not taken leave of.
fn zombies(pid: u32) -> usize {
    let children =
        fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let is_dead = |child: &&str| {
        let stat = fs::read_to_string(format!("/proc/{child}/stat")).unwrap_or_default();
        stat.rsplit_once(')').is_some_and(|(_, rest)| rest.trim_start().starts_with('Z'))
    };
    children.split_whitespace().filter(is_dead).count()
}

#[test]
fn embedded_a_stand_in_hands_the_ledger_over_and_takes_it_when_the_engine_dies() {
    let project = project("", EMBEDDED);
    let engine = Daemon::start(project.path());
    project.until("it runs", || (completed(&project) >= 1).then_some(()));
    drop(engine);
    let (mut stand_in, manager) = stand_in(&project);
    project.until("it has the ledger", || {
        log(project.path()).contains("running notifier, watchdog").then_some(())
    });
    // A command gets the ledger too, and so does an engine.
    let ran = project.run(&["sensor", "put", "one", "landed", "1"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    project.until("it has the ledger again", || {
        let ran = project.run(&["watchdog", "--once"]);
        ran.stderr.contains("`interlock serve without the engine`").then_some(())
    });
    let before = log(project.path()).matches("\"SERVING\"").count();
    let (began, engine) = (Instant::now(), Daemon::start(project.path()));
    let serving = || log(project.path()).matches("\"SERVING\"").count();
    project.until("the engine serves", || (serving() > before).then_some(()));
    assert!(began.elapsed() < HANDED_OVER_IN, "{:?}", began.elapsed());
    project.until("it stands by", || log(project.path()).contains("STANDING_BY").then_some(()));
    let runs = completed(&project);
    project.until("the engine runs jobs", || (completed(&project) > runs).then_some(()));
    assert!(stand_in.0.try_wait().unwrap().is_none(), "it waits");
    // What is edited while it waits holds when it tells.
    let config = project.path().join("interlock.yaml");
    let text = fs::read_to_string(&config).unwrap();
    fs::write(&config, text.replace("path: alerts.jsonl", "path: elsewhere.jsonl")).unwrap();
    // To its service manager it is one process that lives, and it leaves nothing behind.
    let said = heard(&manager);
    assert!(said.contains("READY=1") && !said.contains("STOPPING=1"), "{said}");
    project
        .until("it gives signs of life", || heard(&manager).contains("WATCHDOG=1").then_some(()));
    assert_eq!(zombies(stand_in.0.id()), 0);
    drop(engine);
    project.until("it tells what a dead engine misses", || {
        let told = lines(&project, "elsewhere.jsonl");
        told.iter().any(|alert| alert["alertType"] == "schedule_missed").then_some(())
    });
    drop(stand_in);
    project.kill_what_the_daemon_left();
}

/// The first line that `serve` prints with these settings and arguments.
fn first_line(settings: &str, arguments: &[&str]) -> String {
    let project = Project::new(&[("one", &ticking("one", "0", EMBEDDED))]);
    fs::write(project.path().join("interlock.yaml"), settings).unwrap();
    any_port(project.path());
    let out = project.path().join("serve.out");
    let mut serve = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("serve")
        .args(arguments)
        .arg(project.path())
        .stdout(Stdio::from(fs::File::create(&out).unwrap()))
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let line = project.until("it says what it runs", || {
        fs::read_to_string(&out).ok()?.lines().next().map(str::to_owned)
    });
    serve.kill_and_wait();
    project.kill_what_the_daemon_left();
    line
}

#[test]
fn the_greeting_names_the_roles_that_run() {
    let without = "the engine runs elsewhere, or not at all";
    for (settings, arguments, expected) in [
        (
            "watchdog: {enabled: false}\n",
            &[][..],
            "serving 1 pipeline with 1 schedule; engine, api, notifier".to_owned(),
        ),
        ("watcher: {enabled: false}\n", &[], format!("running api, notifier, watchdog; {without}")),
        ("", &["--roles", "watchdog,notifier"], format!("running notifier, watchdog; {without}")),
    ] {
        assert_eq!(first_line(settings, arguments), expected, "{settings}{arguments:?}");
    }
    let project = Project::new(&[]);
    fs::write(project.path().join("interlock.yaml"), "watcher: {enabled: false}\n").unwrap();
    let refused = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--roles", "engine"])
        .arg(project.path())
        .output_within(BOUND)
        .unwrap();
    let said = String::from_utf8_lossy(&refused.stderr).into_owned();
    assert!(
        refused.status.code() == Some(2) && said.contains("watcher: {enabled: false}"),
        "{said}"
    );
}

/// A project whose engine was killed, and whose due index has an entry that no version can read.
fn damaged() -> Project {
    let project = project("", EMBEDDED);
    let engine = Daemon::start(project.path());
    project.until("it runs", || (completed(&project) >= 3).then_some(()));
    drop(engine);
    project.kill_what_the_daemon_left();
    let db = rusqlite::Connection::open(project.folder().join("ledger.db")).unwrap();
    let insert = "INSERT INTO due (at, pipeline, kind, name, body, revision)
                  SELECT 1, id, 'no such kind', 'damaged', '{}', 1 FROM names WHERE name = 'one'";
    assert_eq!(db.execute(insert, []).unwrap(), 1);
    project
}

const FAILED_CHECKS: &str = "watchdog checks failed: stuck-runs, stale-triggers, sla-scheduling, trigger-deadlines, \
                             post-run-sensors, relative-sla-breaches, paused-too-long";

/// What the channel for events got of a kind.
fn events(project: &Project, kind: &str) -> Vec<Value> {
    let mut events = lines(project, "events.jsonl");
    events.retain(|event| event["detail-type"] == kind);
    events
}

/// That checks failed is told, with their names, and what the others find is told too.
fn is_all_told(project: &Project) -> Option<()> {
    let degraded = events(project, "WATCHDOG_DEGRADED");
    if degraded.is_empty() || alerts(project).is_empty() {
        return None;
    }
    let [degraded] = degraded.as_slice() else { panic!("{degraded:?}") };
    assert_eq!(degraded["detail"]["message"], FAILED_CHECKS);
    assert_eq!(degraded["source"], "interlock");
    assert!(!events(project, "SCHEDULE_MISSED").is_empty());
    let told = lines(project, "alerts.jsonl");
    let told = told.iter().filter(|alert| alert["alertType"] == "watchdog_degraded");
    assert_eq!(told.count(), 1, "once, however many passes fail");
    Some(())
}

#[test]
fn a_pass_delivers_which_checks_failed_as_a_whole_and_what_the_others_found() {
    let project = damaged();
    project.until("both are told", || {
        let ran = project.run(&["watchdog", "--once", "--json"]);
        assert_eq!(ran.code, 1, "{ran:?}");
        let said: Value = serde_json::from_str(&ran.stdout).unwrap();
        assert_eq!(said["failed"].as_array().map(Vec::len), Some(7), "{said}");
        is_all_told(&project)
    });
    // Once it can be read again, a pass says so.
    let db = rusqlite::Connection::open(project.folder().join("ledger.db")).unwrap();
    assert_eq!(db.execute("DELETE FROM due WHERE name = 'damaged'", []).unwrap(), 1);
    drop(db);
    let ran = project.run(&["watchdog", "--once"]);
    assert_eq!(ran.code, 0, "{ran:?}");
    let over = events(&project, "INCIDENT_RESOLVED");
    assert!(over.iter().any(|event| event["detail"]["event"] == "WATCHDOG_DEGRADED"), "{over:?}");
}

#[test]
fn serve_delivers_which_checks_failed_as_a_whole_and_what_the_others_found() {
    let project = damaged();
    let _watchdog = Daemon::with_roles(project.path(), "watchdog,notifier");
    project.until("both are told", || is_all_told(&project));
}
