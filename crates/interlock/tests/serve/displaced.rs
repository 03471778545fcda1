//! A ledger that is moved, deleted or replaced under a running `serve`: it says so, ends, and no slot runs twice.

use std::{
    collections::BTreeMap,
    fs,
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _};

use crate::{
    end_the_runner, log, open_log,
    project::{Project, TICKER},
};

/// A daemon, and the end of it when the test is over.
struct Serving(Child);

impl Drop for Serving {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

fn serve(project: &Project) -> Serving {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.args(["serve", "--log", "json"]).arg(project.path());
    command.stdout(Stdio::null()).stderr(open_log(project.path()));
    Serving(command.spawn().unwrap())
}

fn project() -> Project {
    let project = Project::new(&[("ticker", TICKER)]);
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
        *began.entry(line.split(' ').nth(2).unwrap().to_owned()).or_default() += 1;
    }
    began
}

/// Waits until `serve` has ended by itself and people were told, and answers with what it said.
fn ends_and_tells(project: &Project, mut daemon: Serving) -> String {
    let status = daemon.0.wait_within("`serve` whose ledger is gone", BOUND);
    assert_eq!(status.code(), Some(3), "{}", log(project.path()));
    let told = fs::read_to_string(project.path().join("alerts.jsonl")).unwrap_or_default();
    assert!(told.contains("STORE_UNREACHABLE"), "{told}\n{}", log(project.path()));
    told
}

#[test]
fn a_folder_that_is_moved_ends_serve_and_the_next_one_runs_nothing_twice() {
    let project = project();
    let first = serve(&project);
    project.until("it works", || (began(&project).len() >= 3).then_some(()));
    let elsewhere = project.path().join("elsewhere");
    fs::rename(project.folder(), &elsewhere).unwrap();
    // At once, as somebody would who wonders why nothing is recorded.
    let second = serve(&project);
    let told = ends_and_tells(&project, first);
    // By then the second one may have made a ledger in its place.
    assert!(
        ["was moved or deleted", "was replaced by another file"].iter().any(|it| told.contains(it)),
        "{told}"
    );
    let before = began(&project).len();
    project.until("the second one works", || (began(&project).len() > before + 3).then_some(()));
    let twice: Vec<_> = began(&project).into_iter().filter(|(_, count)| *count > 1).collect();
    assert_eq!(twice, [], "{}", log(project.path()));
    drop(second);
    end_the_runner(project.path());
    // The first one's runner lives in the folder that was moved.
    fs::rename(project.folder(), project.path().join("second")).unwrap();
    fs::rename(&elsewhere, project.folder()).unwrap();
}

#[test]
fn a_ledger_that_is_replaced_by_a_copy_ends_serve() {
    let project = project();
    let daemon = serve(&project);
    project.until("it works", || (began(&project).len() >= 2).then_some(()));
    let ledger = project.folder().join("ledger.db");
    let copy = project.path().join("copy.db");
    let backup = project.run(&["store", "backup", copy.to_str().unwrap()]);
    assert_eq!(backup.code, 0, "{backup:?}");
    fs::rename(&copy, &ledger).unwrap();
    let told = ends_and_tells(&project, daemon);
    assert!(told.contains("was replaced by another file"), "{told}");
}
