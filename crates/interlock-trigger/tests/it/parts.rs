//! The parts that this binary plays when it is called as a child.

use std::{
    ffi::OsString,
    fs::OpenOptions,
    io::Write,
    path::{Path, PathBuf},
};

use interlock_trigger::{Triggers, runner};

use crate::world::{World, request, shell};

const RUNNER: &str = "child-runner";
const DAEMON: &str = "child-daemon";

/// Arguments that make this binary play a part; the directory follows.
fn part(name: &str) -> Vec<OsString> {
    let test = ["--exact", "parts::child_plays_its_part", "--nocapture", "--test-threads=1", name];
    let program = std::env::current_exe().unwrap().into_os_string();
    std::iter::once(program).chain(test.map(OsString::from)).collect()
}

/// The command that is the runner.
pub(crate) fn runner_command() -> Vec<OsString> {
    part(RUNNER)
}

/// The command that is a daemon.
pub(crate) fn daemon_command() -> Vec<OsString> {
    part(DAEMON)
}

fn directory_after(name: &str) -> Option<PathBuf> {
    let mut arguments = std::env::args_os().skip_while(|argument| argument != name).skip(1);
    arguments.next().map(PathBuf::from)
}

/// No test: plays a part if the arguments name one.
#[test]
fn child_plays_its_part() {
    if let Some(dir) = directory_after(RUNNER) {
        runner::main(&dir);
    }
    if let Some(dir) = directory_after(DAEMON) {
        daemon(&dir);
    }
}

/// Starts the jobs of the file `jobs` (run id, then shell text), writes every report to the file
/// `reports`, acknowledges nothing, and waits to be killed.
#[tokio::main]
async fn daemon(dir: &Path) {
    let mut world = World::join(dir);
    for line in std::fs::read_to_string(dir.join("jobs")).unwrap().lines() {
        let (run_id, text) = line.split_once(' ').unwrap();
        world.triggers.start(request(run_id, shell(text))).await.unwrap();
    }
    let mut file = OpenOptions::new().create(true).append(true).open(dir.join("reports")).unwrap();
    loop {
        // Bounded: the test that started this process kills it.
        let report = world.reports.recv().await.unwrap();
        writeln!(file, "{} {:?}", report.run_id, report.what).unwrap();
    }
}
