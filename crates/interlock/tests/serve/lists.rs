//! Lists of what happened to very many pipelines at one instant: what they read, what a person sees of them, and what is done about them.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_store::Store;
use interlock_store_embedded::EmbeddedStore;
use interlock_store_postgres::{PostgresSettings, PostgresStore};
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::{BOUND, wait_for};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Daemon,
    archive::numbers,
    missed_fleet::{OWNERS, fill, missed_hour, write_files},
    project::{Project, Ran},
};

/// Two sizes: what is read for the difference is pages.
const FEW: usize = 500;
const MANY: usize = 3_000;
/// What a list may ask for the first page of each kind of row, and of every shard.
const READS_BASE: u64 = 40;
/// What it may ask for each further thousand pipelines: their rows are pages of 500 and of 1,000, of five kinds at most.
const READS_OF_A_THOUSAND: u64 = 20;
/// Files that changed a moment ago are not trusted.
const FILES_SETTLE: Duration = Duration::from_millis(2_500);

fn settings(project: &Project, text: &str) {
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
}

/// A project of so many pipelines that missed an hour.
fn missed(count: usize, settled: &str, open: impl FnOnce(&Project) -> Arc<dyn Store>) -> Project {
    let project = Project::new(&[]);
    write_files(project.path(), count);
    if !settled.is_empty() {
        settings(&project, settled);
    }
    fill(project.path(), open(&project).as_ref(), missed_hour(Timestamp::now()));
    thread::sleep(FILES_SETTLE);
    project
}

fn missed_here(count: usize) -> Project {
    missed(count, "", |project| {
        let store = EmbeddedStore::open_daemon(&project.folder(), Arc::new(Timestamp::now));
        Arc::new(store.unwrap())
    })
}

#[track_caller]
fn ask(project: &Project, arguments: &[&str]) -> Ran {
    let ran = project.run(arguments);
    assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.stderr);
    ran
}

#[track_caller]
fn array(project: &Project, arguments: &[&str]) -> Vec<Value> {
    serde_json::from_str(&ask(project, arguments).stdout).unwrap()
}

/// Each list is whole, and what it asks of the server grows by pages, not by rows.
fn read_by_pages(project_of: impl Fn(usize) -> Project, reads: impl Fn() -> u64) {
    let lists = [
        (&["status", "--json"][..], 1),
        (&["slots", "--json"], 2),
        (&["slots", "--disposition", "missed", "--json"], 1),
        (&["incidents", "--json"], 1),
        (&["runs", "--limit", "100000", "--json"], 1),
    ];
    let asked = [FEW, MANY].map(|count| {
        let project = project_of(count);
        // The first one reads the files.
        ask(&project, &["status"]);
        lists.map(|(arguments, each)| {
            let before = reads();
            assert_eq!(array(&project, arguments).len(), each * count, "{arguments:?}");
            reads() - before
        })
    });
    for ((arguments, _), (few, many)) in lists.iter().zip(asked[0].iter().zip(asked[1])) {
        let more = (MANY - FEW) as u64 * READS_OF_A_THOUSAND / 1_000;
        println!("{arguments:?}: {few} reads for {FEW}, {many} for {MANY}");
        assert!(*few <= READS_BASE && many <= few + more, "{arguments:?}: {few}, {many}");
    }
}

/// How many scripts a Redis has run.
fn scripts_run(server: &PrivateRedis) -> u64 {
    let mut stream = TcpStream::connect(server.address()).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(b"INFO commandstats\r\n").unwrap();
    let mut reader = BufReader::new(stream);
    let mut length = String::new();
    reader.read_line(&mut length).unwrap();
    let length: usize = length.trim_start_matches('$').trim().parse().unwrap();
    let mut text = vec![0; length];
    reader.read_exact(&mut text).unwrap();
    let text = String::from_utf8(text).unwrap();
    let calls = |line: &str| {
        let is_script = line.starts_with("cmdstat_eval") || line.starts_with("cmdstat_fcall");
        let (_, rest) = line.split_once("calls=").filter(|_| is_script)?;
        rest.split_once(',')?.0.parse::<u64>().ok()
    };
    text.lines().filter_map(calls).sum()
}

#[test]
fn lists_on_a_redis_read_pages_and_not_rows() {
    let server = std::cell::RefCell::new(PrivateRedis::start());
    let project_of = |count| {
        *server.borrow_mut() = PrivateRedis::start();
        let address = server.borrow().address();
        let text = format!("provider: redis\nredis: {{addr: '{address}'}}\n");
        missed(count, &text, |_| Arc::new(RedisStore::open(&RedisSettings::new(address)).unwrap()))
    };
    read_by_pages(project_of, || scripts_run(&server.borrow()));
}

/// How many transactions a PostgreSQL has done once everybody has left: each statement is one.
fn statements_done(server: &PrivatePostgres) -> u64 {
    let others = "SELECT count(*) FROM pg_stat_activity
        WHERE backend_type = 'client backend' AND pid <> pg_backend_pid()";
    wait_for("all have left the server", BOUND, || {
        (numbers(server, &[others])[0] == 0).then_some(())
    });
    let done = "SELECT sum(xact_commit + xact_rollback)::bigint FROM pg_stat_database";
    numbers(server, &[done])[0].cast_unsigned()
}

#[test]
fn lists_on_a_postgres_read_pages_and_not_rows() {
    let server = std::cell::RefCell::new(PrivatePostgres::start());
    let project_of = |count| {
        *server.borrow_mut() = PrivatePostgres::start();
        let dsn = server.borrow().dsn();
        let text = format!("provider: postgres\npostgres: {{dsn: '{dsn}'}}\n");
        let settings = PostgresSettings::new(dsn);
        missed(count, &text, |_| Arc::new(PostgresStore::open(&settings).unwrap()))
    };
    read_by_pages(project_of, || statements_done(&server.borrow()));
}

#[test]
fn many_incidents_are_groups_first_and_lines_on_request() {
    let count = 200;
    let project = missed_here(count);
    let ran = ask(&project, &["incidents"]);
    let lines: Vec<_> = ran.stdout.lines().collect();
    assert_eq!(lines[0], "200 incidents are open; `interlock incidents --all` lists each");
    for word in ["KIND", "OWNER", "UPSTREAM"] {
        assert!(lines.iter().any(|line| line.starts_with(word)), "{word}: {}", ran.stdout);
    }
    let kind = lines.iter().find(|line| line.starts_with("SCHEDULE_MISSED")).unwrap();
    assert!(kind.contains(" 200 "), "{kind}");
    assert!(kind.ends_with("interlock incidents --kind SCHEDULE_MISSED"), "{kind}");
    let owner = lines.iter().find(|line| line.starts_with("team-3 ")).unwrap();
    assert!(owner.ends_with("interlock incidents --owner team-3"), "{owner}");
    // One line for each where it is asked for, and why it was not told.
    let listed = ask(&project, &["incidents", "--all"]).stdout;
    assert_eq!(listed.lines().count(), 1 + count);
    assert!(listed.contains("[alert held back: its upstream has an incident]"), "{listed}");
    let matching =
        |arguments: &[&str]| array(&project, &[&["incidents", "--json"], arguments].concat());
    let each = count / OWNERS;
    assert_eq!(matching(&["--owner", "team-3"]).len(), each);
    assert_eq!(matching(&["--owner", "team-3", "--owner", "team-4"]).len(), 2 * each);
    assert_eq!(matching(&["--label", "part=1"]).len(), count / 2);
    assert_eq!(matching(&["--owner", "team-3", "--label", "part=0"]).len(), 0);
    assert_eq!(matching(&["--upstream", "p000003"]).len(), each - 1);
    assert_eq!(matching(&["--kind", "schedule_missed"]).len(), count);
    assert_eq!(matching(&["--kind", "RETRY_EXHAUSTED"]).len(), 0);
    let unknown = project.run(&["incidents", "--kind", "JOB_FAILED"]);
    assert_eq!(unknown.code, 2, "{unknown:?}");
    assert!(unknown.stderr.contains("RETRY_EXHAUSTED"), "it names those that are: {unknown:?}");
    let groups = matching(&["--group-by", "owner"]);
    assert_eq!(groups.len(), OWNERS);
    let counts = groups.iter().map(|group| group["count"].as_u64().unwrap());
    assert!(counts.eq(std::iter::repeat_n(each as u64, OWNERS)), "{groups:?}");
}

#[test]
fn a_filter_is_acknowledged_and_resolved_at_once() {
    let project = missed_here(500);
    let unnamed = project.run(&["incidents", "ack"]);
    assert_eq!(unnamed.code, 2, "{unnamed:?}");
    let filter = ["--owner", "team-3"];
    let deal = |verb: &str, more: &[&str]| {
        project.run(&[&["incidents", verb], &filter[..], more].concat())
    };
    let unsure = deal("ack", &[]);
    assert_eq!(unsure.code, 2, "{unsure:?}");
    assert!(
        unsure.stderr.contains("25 incidents match, and there is no terminal to ask at"),
        "{unsure:?}"
    );
    assert_eq!(deal("ack", &["--dry-run"]).stdout.lines().count(), 1 + 25);
    let open = || {
        let all = array(&project, &["incidents", "--json"]);
        let state = |word: &str| all.iter().filter(|one| one["state"] == *word).count();
        (state("open"), state("acknowledged"))
    };
    assert_eq!(open(), (500, 0), "nothing was done yet");
    let alone = deal("ack", &["--yes", "--by", "ann", "--wait", "2m"]);
    assert_eq!((alone.code, &*alone.stdout), (0, "acknowledged 25 of 25 incidents\n"), "{alone:?}");
    assert_eq!(open(), (475, 25));
    assert_eq!(deal("ack", &["--yes"]).stdout, "no open incidents match\n");
    // More than fit into one page of the inbox at once are several passes of one owner.
    let others = ask(&project, &["incidents", "ack", "--label", "part=0", "--yes", "--wait", "1m"]);
    assert_eq!(others.stdout, "acknowledged 250 of 250 incidents\n");
    assert_eq!(open(), (225, 275));
    // `serve` applies them, however many there are.
    let daemon = Daemon::start(project.path());
    project.until("it serves", || (project.run(&["status"]).code == 0).then_some(()));
    let all =
        ["incidents", "resolve", "--kind", "SCHEDULE_MISSED", "--yes", "--json", "--wait", "2m"];
    let ran = ask(&project, &all);
    let answer: Value = serde_json::from_str(&ran.stdout).unwrap();
    assert_eq!((&answer["matched"], &answer["accepted"]), (&500.into(), &500.into()), "{answer}");
    assert_eq!(open(), (0, 0));
    drop(daemon);
}

#[test]
fn status_reads_no_file_that_serve_has_read() {
    let count = 50;
    let project = missed_here(count);
    let daemon = Daemon::start(project.path());
    project.until("it serves", || project.folder().join("files.index").exists().then_some(()));
    let rows = array(&project, &["status", "--json"]);
    assert_eq!(rows.len(), count);
    assert!(rows.iter().all(|row| !row["next"].is_null()), "{rows:?}");
    let kept = project.folder().join("files.summary");
    assert!(!kept.exists(), "who loads all files remembers what they say");
    // A new file is not in the index, so all are loaded.
    drop(daemon);
    project.write("new", "name: new\nschedule: '0 0 * * *'\ntrigger: {type: external}\n");
    let with_new = ask(&project, &["status"]).stdout;
    assert!(with_new.contains("not seen by `interlock serve` yet"), "{with_new}");
}

#[test]
fn status_of_a_store_that_others_serve_goes_by_their_rows() {
    let server = PrivateRedis::start();
    let address = server.address();
    let text = format!("provider: redis\nredis: {{addr: '{address}'}}\n");
    let open = || RedisStore::open(&RedisSettings::new(address)).unwrap();
    let theirs = missed(30, &text, |_| Arc::new(open()));
    let here = Project::new(&[("broken", "name: broken\nschedule: [")]);
    settings(&here, &text);
    let (ran, rows) = (ask(&here, &["status"]), array(&here, &["status", "--json"]));
    assert!(!ran.stderr.contains("problem"), "the file here is in force nowhere: {ran:?}");
    assert_eq!(rows.len(), 30);
    assert!(rows.iter().all(|row| !row["next"].is_null()), "{rows:?}");
    // A machine that serves goes by its files again.
    fs::create_dir_all(here.folder()).unwrap();
    fs::write(here.folder().join("files.index"), "").unwrap();
    let ran = ask(&here, &["status"]);
    assert!(ran.stderr.contains("problem"), "{ran:?}");
    drop(theirs);
}

#[test]
fn status_reads_files_that_changed_and_says_what_is_broken() {
    let project = missed_here(20);
    let all = |ran: &Ran| ran.stdout.lines().count();
    let first = ask(&project, &["status"]);
    let kept = project.folder().join("files.summary");
    let summary = fs::read_to_string(&kept).unwrap();
    assert_eq!(ask(&project, &["status"]).stdout, first.stdout, "it is the same without the files");
    // What is edited is read again, a moment after it was written too.
    project.write("p000003", "name: p000003\nschedules: [");
    let broken = ask(&project, &["status"]);
    assert!(broken.stderr.contains("problem"), "{}", broken.stderr);
    assert_eq!(
        fs::read_to_string(&kept).unwrap(),
        summary,
        "files that just changed are not trusted"
    );
    thread::sleep(FILES_SETTLE);
    ask(&project, &["status"]);
    let again = ask(&project, &["status"]);
    assert!(again.stderr.contains("problem") && all(&again) == all(&broken), "{again:?}");
    assert_ne!(fs::read_to_string(&kept).unwrap(), summary);
    project.write("new", "name: new\nschedule: '0 0 * * *'\ntrigger: {type: external}\n");
    let with_new = ask(&project, &["status"]).stdout;
    assert!(with_new.contains("not seen by `interlock serve` yet"), "{with_new}");
    // Half of a summary is none.
    fs::write(&kept, &summary[..summary.len() / 2]).unwrap();
    assert!(ask(&project, &["status"]).stdout.contains("not seen by `interlock serve` yet"));
}
