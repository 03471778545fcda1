//! What `serve` shows and how it behaves as a process: HTTP, signals, roles, summary, and files that vanish.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{TcpListener, TcpStream},
    os::unix::process::ExitStatusExt as _,
    path::{Path, PathBuf},
    process::{Child, Command, ExitStatus, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use interlock_store::{Shard, Store as _, block_on};
use interlock_store_embedded::EmbeddedStore;
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, read_within, wait_for};
use jiff::Timestamp;
use serde_json::Value;
use tempfile::TempDir;

use crate::{end_the_runner, project::signal};

/// A job every second, which writes down that it ran.
const TICKER: &str = r#"
name: ticker
schedules: [{id: second, every: 1s}]
overlapPolicy: all
trigger:
  type: command
  command: echo "$INTERLOCK_RUN_ID" >> ran.log
"#;

/// Nothing that is waited for takes longer, however busy the machine.
const PATIENCE: Duration = Duration::from_mins(1);
/// A free port, whatever else runs on the machine.
const ANY_PORT: &str = "server: {addr: '127.0.0.1:0'}\n";

/// A project in a folder of its own.
struct Project {
    home: TempDir,
}

impl Project {
    fn new(config: &str, pipelines: &[&str]) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::create_dir(home.path().join("pipelines")).unwrap();
        fs::write(home.path().join("interlock.yaml"), config).unwrap();
        let project = Self { home };
        for name in pipelines {
            fs::write(project.file(name), TICKER.replace("ticker", name)).unwrap();
        }
        project
    }

    fn path(&self) -> &Path {
        self.home.path()
    }

    fn file(&self, pipeline: &str) -> PathBuf {
        self.path().join(format!("pipelines/{pipeline}.yaml"))
    }

    fn serve(&self, arguments: &[&str]) -> Served {
        let open = |name: &str| {
            let path = self.path().join(name);
            fs::OpenOptions::new().create(true).append(true).open(path).unwrap()
        };
        let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .arg("serve")
            .args(arguments)
            .arg(self.path())
            .stdout(open("out.log"))
            .stderr(open("serve.log"))
            .spawn()
            .unwrap();
        Served { child, path: self.path().to_owned() }
    }

    fn text(&self, name: &str) -> String {
        fs::read_to_string(self.path().join(name)).unwrap_or_default()
    }

    /// The log's lines that are about an event.
    fn logged(&self, event: &str) -> Vec<Value> {
        let log = self.text("serve.log");
        let lines = log.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.filter(|line| line["event"] == event).collect()
    }

    /// The pipelines that the ledger knows, and whether they are retired.
    fn retired(&self) -> Vec<(String, bool)> {
        let folder = self.path().join(".interlock");
        let store = EmbeddedStore::open_reader(&folder, Arc::new(Timestamp::now)).unwrap();
        let rows = block_on(store.agenda(Shard(0), None, 100)).unwrap().items.into_iter();
        let shown =
            rows.map(|row| (row.pipeline.to_string(), row.record.record.retired_at.is_some()));
        shown.collect()
    }

    fn completed(&self, pipeline: &str) -> usize {
        let ran = self.text("ran.log");
        ran.lines().filter(|run| run.starts_with(&format!("{pipeline}~"))).count()
    }
}

impl Drop for Project {
    fn drop(&mut self) {
        if self.path().join(".interlock/runner").exists() {
            end_the_runner(self.path());
        }
    }
}

/// A `serve` at work; killed when the test is over.
struct Served {
    child: Child,
    path: PathBuf,
}

impl Served {
    /// Where it answers, once it does.
    fn address(&self) -> String {
        let mut address = String::new();
        wait_until("http.json", || {
            let text = fs::read_to_string(self.path.join(".interlock/http.json"));
            let told = text.ok().and_then(|text| serde_json::from_str::<Value>(&text).ok());
            let ours = told.filter(|told| told["pid"] == self.child.id());
            let found = ours.and_then(|told| Some(told["address"].as_str()?.to_owned()));
            found.map(|found| address = found)
        });
        address
    }

    fn get(&self, path: &str) -> (u16, String) {
        ask(&self.address(), path)
    }

    fn ready(self) -> Self {
        wait_until("ready", || (self.get("/readyz").0 == 200).then_some(()));
        self
    }

    fn signal(&self, name: &str) {
        assert!(signal(self.child.id(), name));
    }

    /// How it ended, by itself.
    fn ended(mut self) -> ExitStatus {
        self.child.wait_within("the end of `serve`", PATIENCE)
    }

    fn stop(self) {
        self.signal("-TERM");
        assert_eq!(self.ended().code(), Some(0));
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill_and_wait();
    }
}

#[track_caller]
fn wait_until(what: &str, holds: impl FnMut() -> Option<()>) {
    wait_for(what, PATIENCE, holds);
}

fn ask(address: &str, path: &str) -> (u16, String) {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    write!(stream, "GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n").unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let status = text.split(' ').nth(1).unwrap().parse().unwrap();
    (status, text.split_once("\r\n\r\n").unwrap().1.to_owned())
}

/// The value of a metric.
fn metric(page: &str, name: &str) -> u64 {
    let line = page.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(' '));
    line.unwrap_or_else(|| panic!("no {name} in {page}")).parse().unwrap()
}

#[test]
fn it_tells_its_port_shows_what_it_did_and_ends_on_a_signal() {
    let project = Project::new(ANY_PORT, &["ticker"]);
    let served = project.serve(&["--log", "json"]).ready();
    let done = "interlock_slots_closed_total{disposition=\"completed\"}";
    wait_until("two slots in the metrics", || {
        (metric(&served.get("/metrics").1, done) >= 2).then_some(())
    });
    let page = served.get("/metrics").1;
    assert!(metric(&page, "interlock_slots_opened_total{trigger_type=\"scheduler\"}") >= 2);
    assert!(metric(&page, "interlock_runs_ended_total{status=\"COMPLETED\"}") >= 2);
    assert!(metric(&page, "interlock_scheduling_lag_seconds_count") >= 2);
    assert!(metric(&page, "interlock_scheduling_lag_seconds_bucket{le=\"5\"}") >= 2, "{page}");
    assert!(metric(&page, "interlock_slots_open") <= 2, "{page}");
    assert!(metric(&page, "interlock_engine_passes_total") >= 2, "{page}");
    assert!(metric(&page, "process_resident_memory_bytes") > 1_000_000);
    assert_eq!(metric(&page, "interlock_watch_step{watch=\"engine\"}"), 0, "{page}");
    assert_eq!(metric(&page, "interlock_watch_state{watch=\"engine\"}"), 1, "{page}");
    assert_eq!(metric(&page, "interlock_watch_expiries_total{watch=\"engine\"}"), 0, "{page}");
    for name in ["age", "limit", "longest_gap"] {
        let name = format!("\ninterlock_watch_{name}_seconds{{watch=\"watchdog\"}} ");
        assert!(page.contains(&name), "no {name} in {page}");
    }
    assert!(page.contains("\ninterlock_guard_scan_seconds 0.0"), "{page}");
    let (status, health) = served.get("/healthz");
    assert_eq!(status, 200, "{health}");
    assert!(health.contains("\"engine\"") && health.contains("\"reload\""), "{health}");
    served.stop();
    assert!(!project.path().join(".interlock/http.json").exists(), "the port is told no more");
    assert!(project.text("serve.log").contains("SIGTERM: stopping; waiting up to 10 s"));
}

#[test]
fn probes_are_answered_by_the_guard_at_an_address_of_their_own() {
    let config = "server: {addr: '127.0.0.1:0', probes: '127.0.0.1:0'}\n";
    let project = Project::new(config, &["ticker"]);
    let served = project.serve(&["--log", "json"]).ready();
    let mut address = String::new();
    wait_until("somebody answers probes", || {
        let said = project.logged("PROBES");
        address = said.first()?["address"].as_str()?.to_owned();
        Some(())
    });
    wait_until("every loop has come round", || (ask(&address, "/readyz").0 == 200).then_some(()));
    assert_eq!(ask(&address, "/livez"), (200, "ok\n".to_owned()));
    let other = Project::new(
        &format!("server: {{addr: '127.0.0.1:0', probes: '{address}'}}\n"),
        &["ticker"],
    );
    assert_eq!(other.serve(&[]).ended().code(), Some(3));
    let log = other.text("serve.log");
    assert!(log.contains(&format!("cannot answer probes at {address}: ")), "{log}");
    assert!(log.contains("`server.probes` in interlock.yaml says where."), "{log}");
    served.stop();
}

#[test]
fn what_is_counted_is_what_the_ledger_says() {
    let project = Project::new(ANY_PORT, &["ticker"]);
    let served = project.serve(&["--log", "json"]).ready();
    wait_until("three runs", || (project.completed("ticker") >= 3).then_some(()));
    let paused = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["pause", "ticker", "--reason", "to count", "-C"])
        .arg(project.path())
        .stdout(Stdio::null())
        .status_within(BOUND);
    assert!(paused.unwrap().success());
    let mut page = String::new();
    wait_until("nothing is open", || {
        page = served.get("/metrics").1;
        (metric(&page, "interlock_slots_open") == 0).then_some(())
    });
    let slots = crate::ledger(project.path());
    let recorded = slots.len() as u64;
    let opened = "interlock_slots_opened_total{trigger_type=\"scheduler\"}";
    assert_eq!(metric(&page, opened), recorded, "{slots:#?}");
    assert_eq!(metric(&page, "interlock_scheduling_lag_seconds_count"), recorded);
    let completed = "interlock_slots_closed_total{disposition=\"completed\"}";
    assert_eq!(metric(&page, completed), recorded, "{slots:#?}");
    let runs = "interlock_runs_started_total{trigger_type=\"scheduler\"}";
    assert_eq!(metric(&page, runs), recorded);
    assert_eq!(metric(&page, "interlock_runs_ended_total{status=\"COMPLETED\"}"), recorded);
    assert_eq!(metric(&page, "interlock_inbox_applied_total{answer=\"accepted\"}"), 1);
    served.stop();

    // A restart counts from nothing, but knows what is open.
    let served = project.serve(&["--log", "json"]).ready();
    let page = served.get("/metrics").1;
    assert_eq!((metric(&page, completed), metric(&page, "interlock_slots_open")), (0, 0));
    served.stop();
}

#[test]
fn the_summary_says_what_it_serves_for_people_and_for_machines() {
    let project = Project::new(ANY_PORT, &["ticker", "tacker"]);
    fs::write(project.file("broken"), "name: broken\nschedule: nonsense\n").unwrap();
    let served = project.serve(&["--log", "json"]).ready();
    let url = format!("http://{}", served.address());
    served.stop();
    let [summary] = project.logged("SERVING").try_into().unwrap();
    assert_eq!((summary["pipelines"].as_u64(), summary["schedules"].as_u64()), (Some(2), Some(2)));
    assert_eq!(summary["url"].as_str(), Some(url.as_str()));
    assert_eq!(summary["roles"].as_str(), Some("engine,api,notifier,watchdog"));
    assert!(summary["problems"].as_u64() >= Some(1), "{summary}");
    for key in ["time", "level", "message", "nextAt", "nextPipeline", "openSlots", "ledger"] {
        assert!(!summary[key].is_null(), "{key} in {summary}");
    }
    for line in project.text("serve.log").lines() {
        let line: Value = serde_json::from_str(line).unwrap();
        assert!(line["time"].is_string() && line["level"].is_string(), "{line}");
    }

    project.serve(&[]).ready().stop();
    let said = project.text("out.log");
    assert!(
        said.contains("serving 2 pipelines with 2 schedules; engine, api, notifier, watchdog"),
        "{said}"
    );
    assert!(said.contains("  next      t") && said.contains("  http      http://127."), "{said}");
    assert!(said.contains("stopped; jobs that run go on"), "{said}");
}

#[test]
fn roles_are_run_in_parts() {
    let project = Project::new(ANY_PORT, &["ticker"]);
    let refused = project.serve(&["--roles", "engine,archiver"]).ended();
    assert_eq!(refused.code(), Some(2));
    let log = project.text("serve.log");
    assert!(log.contains("the role `archiver` has no target"), "{log}");

    let engine = project.serve(&["--log", "json", "--roles", "engine"]);
    wait_until("the engine works", || (project.completed("ticker") > 0).then_some(()));
    assert!(!project.path().join(".interlock/http.json").exists(), "nobody asked for HTTP");
    let api = project.serve(&["--log", "json", "--roles", "api"]).ready();
    assert!(!api.get("/metrics").1.contains("interlock_slots_open "), "it has no engine");
    api.stop();
    engine.stop();
}

#[test]
fn a_port_that_is_taken_stops_only_who_asked_for_it() {
    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let written = Project::new(&format!("server: {{addr: '{taken}'}}\n"), &["ticker"]);
    assert_eq!(written.serve(&[]).ended().code(), Some(3));
    let log = written.text("serve.log");
    assert!(log.contains(&format!("{taken} is taken by another process")), "{log}");
    assert!(log.contains("127.0.0.1:0 takes any free port"), "{log}");

    // The default is the one port that a test cannot choose. Of two that would have it one finds it taken,
    // by the other or by another test's; both go on.
    let projects = [Project::new("{}\n", &["ticker"]), Project::new("{}\n", &["ticker"])];
    let served = projects.each_ref().map(|project| {
        let served = project.serve(&["--log", "json"]);
        wait_until("it works all the same", || (project.completed("ticker") > 0).then_some(()));
        served
    });
    let log = projects.map(|project| project.text("serve.log")).concat();
    assert!(log.contains("127.0.0.1:8420 is taken by another process; going on without"), "{log}");
    served.into_iter().for_each(Served::stop);
}

#[test]
fn other_machines_may_reach_it_only_with_a_token() {
    let open = Project::new("server: {addr: '0.0.0.0:0'}\n", &["ticker"]);
    assert_eq!(open.serve(&[]).ended().code(), Some(3));
    let log = open.text("serve.log");
    assert!(log.contains("can be reached from other machines, and no token is set"), "{log}");
    assert!(log.contains("server.tokens"), "{log}");

    let tokens = "tokens: [{name: probe, token: s3cret}]";
    let guarded = Project::new(&format!("server: {{addr: '0.0.0.0:0', {tokens}}}\n"), &["ticker"]);
    let served = guarded.serve(&[]).ready();
    assert_eq!(served.get("/metrics").0, 401);
    assert_eq!(served.get("/healthz").0, 200);
    served.stop();
}

#[test]
fn sighup_reads_the_files_again_even_if_none_changed() {
    let project = Project::new(ANY_PORT, &["ticker"]);
    let served = project.serve(&["--log", "json"]).ready();
    assert!(project.logged("FILES_READ").is_empty());
    served.signal("-HUP");
    wait_until("read again", || (project.logged("FILES_READ").len() == 1).then_some(()));
    served.stop();
}

#[test]
fn a_reader_of_the_log_that_goes_away_stops_nothing() {
    let project = Project::new(ANY_PORT, &["ticker"]);
    let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("serve")
        .arg(project.path())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    drop((child.stdout.take(), child.stderr.take()));
    let served = Served { child, path: project.path().to_owned() };
    wait_until("it works unheard", || (project.completed("ticker") >= 2).then_some(()));
    served.stop();
}

#[test]
fn a_reader_of_the_log_that_hangs_stops_nothing() {
    // Enough of them to fill the smallest pipe with the lines of two seconds.
    let many = ["ticker", "t1", "t2", "t3", "t4", "t5", "t6", "t7", "t8", "t9"];
    let project = Project::new(ANY_PORT, &many);
    let (unread, log) = std::io::pipe().unwrap();
    rustix::pipe::fcntl_setpipe_size(&log, 4_096).unwrap();
    let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("serve")
        .arg(project.path())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .unwrap();
    let served = Served { child, path: project.path().to_owned() }.ready();
    wait_until("it works unread", || (project.completed("ticker") >= 6).then_some(()));
    assert_eq!(served.get("/healthz").0, 200);
    served.signal("-TERM");
    assert_eq!(served.ended().code(), Some(0));
    let unread_text = read_within(unread, "the end of the log", BOUND);
    assert!(unread_text.len() > 3_500, "the pipe was never full: {}", unread_text.len());
}

#[test]
fn a_loop_that_hangs_is_told_and_does_not_hold_up_the_end() {
    let project = Project::new(ANY_PORT, &["ticker"]);
    let served = project.serve(&["--log", "json"]).ready();
    // To read a pipe that nobody writes is what a dead network drive is like.
    let pipe = project.file("pipe");
    assert!(Command::new("mkfifo").arg(&pipe).status_within(BOUND).unwrap().success());
    wait_until("unhealthy", || (served.get("/healthz").0 == 503).then_some(()));
    let (_, body) = served.get("/healthz");
    assert!(body.contains("the loop `reload` has made no progress for 2"), "{body}");
    let before = project.completed("ticker");
    wait_until("jobs go on", || (project.completed("ticker") > before).then_some(()));
    served.signal("-TERM");
    let asked = Instant::now();
    let status = served.ended();
    assert_eq!((status.code(), status.signal()), (Some(0), None));
    assert!(asked.elapsed() < Duration::from_secs(15), "the end is bounded");
}

#[test]
fn the_doctor_asks_the_interface_and_the_runner() {
    let doctor = |project: &Project| {
        let asked = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["doctor", "-C"])
            .arg(project.path())
            .output_within(BOUND);
        let asked = asked.unwrap();
        (asked.status.code(), String::from_utf8(asked.stdout).unwrap())
    };
    let project = Project::new(ANY_PORT, &["ticker"]);
    let (code, said) = doctor(&project);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("127.0.0.1:0 is free") && said.contains("none yet"), "{said}");

    let served = project.serve(&["--log", "json"]).ready();
    wait_until("a job ran", || (project.completed("ticker") > 0).then_some(()));
    let (code, said) = doctor(&project);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains(&format!("http://{} is healthy", served.address())), "{said}");
    assert!(said.contains("runner  ok       running"), "{said}");
    served.stop();

    let holder = TcpListener::bind("127.0.0.1:0").unwrap();
    let taken = holder.local_addr().unwrap();
    let taken = Project::new(&format!("server: {{addr: '{taken}'}}\n"), &["ticker"]);
    let (code, said) = doctor(&taken);
    assert_eq!(code, Some(1), "{said}");
    assert!(said.contains("server  problem"), "{said}");
}

#[test]
fn files_that_vanish_in_a_mass_retire_nothing_until_somebody_agrees() {
    let names = ["one", "three", "two"];
    let project = Project::new(ANY_PORT, &names);
    let served = project.serve(&["--log", "json"]).ready();
    wait_until("two runs", || (project.completed("two") > 0).then_some(()));
    let all = |retired: [bool; 3]| {
        let names = names.map(str::to_owned);
        names.into_iter().zip(retired).collect::<Vec<_>>()
    };

    // Running: they go on with what they last declared.
    fs::remove_file(project.file("two")).unwrap();
    fs::remove_file(project.file("three")).unwrap();
    wait_until("noticed", || {
        project.text("serve.log").contains("the files of 2 pipelines are gone").then_some(())
    });
    let before = project.completed("two");
    wait_until("two goes on", || (project.completed("two") > before + 1).then_some(()));
    assert_eq!(project.retired(), all([false, false, false]));
    served.stop();

    // Started again: they are left alone, and the summary says so.
    project.serve(&["--log", "json"]).ready().stop();
    assert_eq!(project.logged("SERVING").last().unwrap()["held"], 2);
    assert_eq!(project.retired(), all([false, false, false]));

    // Somebody agrees.
    project.serve(&["--retire-missing", "--log", "json"]).ready().stop();
    assert_eq!(project.retired(), all([false, true, true]));
    assert_eq!(project.logged("PIPELINE_RETIRED").len(), 2);
}

#[test]
fn a_file_that_is_broken_at_start_up_does_not_retire_its_pipeline() {
    let project = Project::new(ANY_PORT, &["one", "two", "three"]);
    project.serve(&["--log", "json"]).ready().stop();
    fs::write(project.file("two"), "name: [unclosed\n").unwrap();
    project.serve(&["--log", "json"]).ready().stop();
    assert!(project.retired().iter().all(|(_, retired)| !retired), "{:?}", project.retired());
    let log = project.text("serve.log");
    assert!(log.contains("CONFIG_BROKEN") && log.contains("stays in force"), "{log}");
    fs::remove_file(project.file("two")).unwrap();
    project.serve(&["--log", "json"]).ready().stop();
    assert!(project.retired().contains(&("two".to_owned(), true)), "{:?}", project.retired());
}

#[test]
fn the_number_of_pipelines_is_that_of_the_declared_ones() {
    let project = Project::new(ANY_PORT, &["one", "two", "three"]);
    let served = project.serve(&["--log", "json"]).ready();
    let counted = |served: &Served| metric(&served.get("/metrics").1, "interlock_pipelines");
    wait_until("all three are counted", || (counted(&served) == 3).then_some(()));
    // While it runs, and over a start: what is retired stays in the ledger, and is no pipeline any more.
    fs::remove_file(project.file("two")).unwrap();
    wait_until("one is gone", || (counted(&served) == 2).then_some(()));
    served.stop();
    let served = project.serve(&["--log", "json"]).ready();
    wait_until("two are left", || (counted(&served) == 2).then_some(()));
    // Nobody declares the system's own rows.
    let barked = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["-C", project.path().to_str().unwrap(), "bark"])
        .output_within(BOUND)
        .unwrap();
    assert!(barked.status.code().is_some(), "{barked:?}");
    assert_eq!(counted(&served), 2);
    served.stop();
}

#[test]
fn a_file_with_a_mere_warning_is_not_called_broken() {
    let project = Project::new(ANY_PORT, &["one"]);
    // No trigger: it is never due, which is a warning.
    fs::write(project.file("quiet"), "name: quiet\nschedule: '0 9 * * *'\n").unwrap();
    let served = project.serve(&["--log", "json"]).ready();
    let log = || project.text("serve.log");
    wait_until("the warning is told", || log().contains("IL0901").then_some(()));
    assert!(!log().contains("stays in force"), "{}", log());
    fs::write(project.file("bad"), "name: [unclosed\n").unwrap();
    wait_until("the broken one is named", || {
        log().contains("bad.yaml: broken; the last good version stays in force").then_some(())
    });
    // Another warning is news; that something else is broken is not.
    fs::write(project.file("still"), "name: still\nschedule: '0 9 * * *'\n").unwrap();
    wait_until("the second warning is told", || {
        (log().matches("IL0901").count() == 2).then_some(())
    });
    wait_until("the files were read", || {
        log().contains("3 usable pipelines, 1 error").then_some(())
    });
    assert_eq!(log().matches("stays in force").count(), 1, "{}", log());
    served.stop();
}
