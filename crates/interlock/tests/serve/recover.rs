//! A ledger that is damaged under a project: a start is refused and told, and with `--recover` it begins again without
//! running anything twice.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _};

use crate::{
    end_the_runner, log, open_log,
    project::{Dice, Project, TICKER, signal},
};

const PAGE: usize = 4096;
const PIPELINES: usize = 6;

/// A daemon, and the end of it when the test is over.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

fn serve(project: &Project, more: &[&str]) -> Serving {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.args(["serve", "--log", "json"]).args(more).arg(project.path());
    command.stdout(Stdio::null()).stderr(open_log(project.path()));
    Serving(command.spawn().unwrap())
}

fn project() -> Project {
    let names: Vec<_> = (0..PIPELINES).map(|number| format!("ticker-{number}")).collect();
    let texts: Vec<_> =
        names.iter().map(|name| TICKER.replace("name: ticker", &format!("name: {name}"))).collect();
    let files = names.iter().zip(&texts).map(|(name, text)| (name.as_str(), text.as_str()));
    let project = Project::new(&files.collect::<Vec<_>>());
    let text =
        "server: {addr: '127.0.0.1:0'}\nalerts: [{type: file, name: log, path: alerts.jsonl}]\n";
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    project
}

/// How often a job began for each slot.
fn began(project: &Project) -> BTreeMap<String, usize> {
    let text = fs::read_to_string(project.path().join("ran.log")).unwrap_or_default();
    let mut began = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("start ")) {
        let run = line.split(' ').nth(1).unwrap();
        let slot = run.splitn(4, '~').take(3).collect::<Vec<_>>().join("~");
        *began.entry(slot).or_default() += 1;
    }
    began
}

/// How the ledger is damaged.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Damage {
    /// Twenty of its pages, after an orderly end.
    Pages,
    /// The log beside it after a crash, which SQLite would take for a shorter one.
    Log,
    /// The page that names the tables.
    FirstPage,
}

fn damage(folder: &Path, how: Damage) {
    let (path, wal) = (folder.join("ledger.db"), folder.join("ledger.db-wal"));
    let file = if how == Damage::Log { wal } else { path };
    let mut bytes = fs::read(&file).unwrap();
    match how {
        Damage::Log => bytes[200..264].fill(0x5a),
        Damage::FirstPage => bytes[..PAGE].fill(0x5a),
        Damage::Pages => {
            let mut dice = Dice::new();
            let pages = bytes.len() / PAGE;
            for _ in 0..20 {
                let page = 1 + dice.below(pages as u64 - 1) as usize;
                bytes[page * PAGE..(page + 1) * PAGE].fill(0);
            }
        }
    }
    fs::write(file, bytes).unwrap();
}

/// Puts what the log holds into the file.
fn into_one_file(project: &Project) {
    let (folder, whole) = (project.folder(), project.path().join("whole.db"));
    let backup = project.run(&["store", "backup", whole.to_str().unwrap()]);
    assert_eq!(backup.code, 0, "{backup:?}");
    for name in ["ledger.db-wal", "ledger.db-shm"] {
        let _not_there = fs::remove_file(folder.join(name));
    }
    fs::rename(whole, folder.join("ledger.db")).unwrap();
}

fn set_aside(project: &Project) -> Vec<PathBuf> {
    let entries = fs::read_dir(project.folder()).unwrap().map(|entry| entry.unwrap().path());
    entries.filter(|path| path.to_string_lossy().contains("ledger.db.damaged-")).collect()
}

/// Serves until so many slots ran, and ends it in order.
fn work(project: &Project, slots: usize) {
    let mut daemon = serve(project, &[]);
    project.until("it works", || (began(project).len() >= slots).then_some(()));
    assert!(signal(daemon.0.id(), "-TERM"));
    daemon.0.wait_within("`interlock serve`", BOUND);
}

fn recovers(how: Damage) {
    let project = project();
    let enough = PIPELINES * 6;
    work(&project, enough);
    into_one_file(&project);
    if how == Damage::Log {
        // What runs from here on is in the log alone.
        let daemon = serve(&project, &[]);
        project.until("it goes on", || (began(&project).len() >= 2 * enough).then_some(()));
        drop(daemon);
    }
    // Nor is there a journal any more that would know a run by its id.
    end_the_runner(project.path());
    fs::remove_dir_all(project.folder().join("runner")).unwrap();
    damage(&project.folder(), how);
    let before = began(&project).len();
    let daemon = serve(&project, &["--recover"]);
    let incidents = || project.run(&["incidents", "list", "--json"]).stdout;
    project.until("people are told", || incidents().contains("STORE_RECOVERED").then_some(()));
    let more = before + PIPELINES * 2;
    project.until("slots go on", || (began(&project).len() >= more).then_some(()));
    let check = project.run(&["store", "check"]);
    assert_eq!(check.code, 0, "{how:?}: {check:?}");
    let unknown = project.run(&["slots", "--disposition", "unknown", "--json"]).stdout;
    drop(daemon);
    let twice: Vec<_> = began(&project).into_iter().filter(|(_, count)| *count > 1).collect();
    assert_eq!(twice, [], "{how:?}: {}\n{}", unknown, log(project.path()));
    assert!(!set_aside(&project).is_empty(), "{how:?}");
    // Once it has begun again it is an ordinary one.
    let sound = serve(&project, &["--recover"]);
    let count = began(&project).len();
    project.until("it serves", || (began(&project).len() > count).then_some(()));
    drop(sound);
    assert_eq!(incidents().matches("\"kind\": \"STORE_RECOVERED\"").count(), 1, "{}", incidents());
}

#[test]
fn a_ledger_with_twenty_pages_cut_begins_again_and_no_slot_runs_twice() {
    for _ in 0..2 {
        recovers(Damage::Pages);
    }
}

#[test]
fn a_ledger_whose_log_was_damaged_begins_again_and_no_slot_runs_twice() {
    recovers(Damage::Log);
}

#[test]
fn a_ledger_without_its_first_page_begins_again_and_no_slot_runs_twice() {
    recovers(Damage::FirstPage);
}

/// There is no store to keep an alert in; the channels of the files hear of it all the same, once.
#[test]
fn a_start_that_is_refused_for_a_damaged_ledger_is_told_without_it() {
    let project = project();
    fs::create_dir_all(project.folder()).unwrap();
    fs::write(project.folder().join("ledger.db"), "no database ".repeat(1_000)).unwrap();
    let told = || fs::read_to_string(project.path().join("alerts.jsonl")).unwrap_or_default();
    for _ in 0..2 {
        let refused = project.run(&["serve"]);
        assert_eq!(refused.code, 3, "{refused:?}");
        assert!(refused.stderr.contains("serve --recover"), "{}", refused.stderr);
        assert_eq!(told().lines().count(), 1, "once, however often it is started: {}", told());
    }
    assert!(told().contains("STORE_UNREACHABLE"), "{}", told());
    assert!(told().contains("`interlock serve` does not start"), "{}", told());
    // What is printed works, and ends the alarm.
    let _daemon = serve(&project, &["--recover"]);
    project.until("it is over", || told().contains("the store accepts writes again").then_some(()));
    let aside = set_aside(&project);
    let text = fs::read_to_string(aside.first().expect("it is set aside")).unwrap();
    assert_eq!(text, "no database ".repeat(1_000));
}

/// A file that opens, and is found to be damaged when it is loaded.
#[test]
fn a_start_that_ends_at_a_damaged_page_is_told_without_the_ledger() {
    let project = project();
    work(&project, PIPELINES);
    into_one_file(&project);
    let path = project.folder().join("ledger.db");
    let mut bytes = fs::read(&path).unwrap();
    // All but the page that names the tables.
    bytes[PAGE..].fill(0);
    fs::write(&path, bytes).unwrap();
    let refused = project.run(&["serve"]);
    assert_eq!(refused.code, 3, "{refused:?}");
    assert!(refused.stderr.contains("serve --recover"), "{}", refused.stderr);
    let told = fs::read_to_string(project.path().join("alerts.jsonl")).unwrap_or_default();
    assert!(told.contains("`interlock serve` does not start"), "{told}");
}

#[test]
fn recovering_is_for_the_one_who_writes_a_file() {
    let project = project();
    let refused = project.run(&["serve", "--recover", "--roles", "api"]);
    assert_eq!(refused.code, 2, "{refused:?}");
    assert!(refused.stderr.contains("`--recover` is about a ledger in a file"), "{refused:?}");
}
