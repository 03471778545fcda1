//! What people and machines get wrong: each is answered with a clear error, and loses nothing.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::{Command, Output, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};

use crate::{
    Daemon,
    checker::{JobLog, Ledger, Owed, check},
    completed, ledger, log,
    project::{Project, Ran, interlock, kill, tail},
    wait_until,
};

const TICKER: &str = "
name: ticker
schedules: [{id: second, every: 1s}]
overlapPolicy: all
trigger: {type: command, command: sh job.sh whole 0 0}
";

const OWED: [Owed; 1] =
    [Owed { pipeline: "ticker", schedule: "second", every: 1, at_once_max: usize::MAX }];

/// A project that has completed some slots, and its daemon.
fn serving() -> (Project, Daemon) {
    let project = Project::new(&[("ticker", TICKER)]);
    let daemon = Daemon::start(project.path());
    goes_on(&project, "the ticker ticks");
    (project, daemon)
}

/// Two more slots are completed.
#[track_caller]
fn goes_on(project: &Project, what: &str) {
    let before = completed(&ledger(project.path()));
    wait_until(project.path(), what, |slots| completed(slots) >= before + 2);
}

/// Everything so far is accounted for.
#[track_caller]
fn nothing_is_lost(project: &Project) {
    project.until("what is open is decided", || {
        let ledger = Ledger::read(&project.folder())?;
        (!ledger.slots().any(|(_, slot)| slot.is_open())).then_some(())
    });
    let (ledger, jobs) = (Ledger::read(&project.folder()).unwrap(), JobLog::read(project.path()));
    let found = check(&ledger, &jobs, &OWED);
    assert!(found.is_empty(), "{}\n{}", found.join("\n"), tail(&log(project.path())));
}

#[track_caller]
fn refuses(ran: &Ran, code: i32, sentences: &[&str]) {
    assert_eq!(ran.code, code, "{ran:?}");
    for sentence in sentences {
        assert!(ran.stderr.contains(sentence), "`{sentence}` is not in {ran:?}");
    }
}

#[test]
fn unknown_pipelines_and_malformed_slots_are_refused_and_nothing_stops() {
    let (project, _daemon) = serving();
    for command in [
        &["run", "tickr"][..],
        &["pause", "tickr", "--reason", "x"],
        &["sensor", "put", "tickr", "key", "{}"],
        &["rerun", "tickr", "2026-11-15T09:00Z", "--reason", "x"],
        &["slots", "tickr"],
        &["why", "tickr", "2026-11-15T09:00Z"],
    ] {
        refuses(&project.run(command), 2, &["there is no pipeline `tickr`", "ticker"]);
    }
    for command in [
        &["rerun", "ticker", "at-nine", "--reason", "x"][..],
        &["cancel", "ticker", "second/at-nine"],
        &["run", "ticker", "--slot", "at-nine"],
        &["why", "ticker", "at-nine"],
    ] {
        refuses(&project.run(command), 2, &["at-nine"]);
    }
    // Well formed, and not a slot.
    let ran = project.run(&["run", "ticker", "--slot", "second/2026-11-15T09:00:00.5Z"]);
    refuses(&ran, 1, &["second has no slot at 2026-11-15T09:00:00.5Z"]);
    let ran = project.run(&["rerun", "ticker", "hourly/2026-11-15T09:00Z", "--reason", "x"]);
    refuses(&ran, 1, &["hourly/2026-11-15T09:00:00Z was never recorded"]);
    let ran = project.run(&["sensor", "put", "ticker", "key", "{not json"]);
    refuses(&ran, 2, &["JSON"]);
    goes_on(&project, "it goes on");
    nothing_is_lost(&project);
}

#[test]
fn a_second_daemon_is_refused_with_the_pid_of_the_first() {
    let (project, first) = serving();
    let second = project.run(&["serve"]);
    let pid = format!("process {} (interlock serve) is using the ledger", first.0.id());
    refuses(&second, 3, &[&pid, "only one may write it"]);
    goes_on(&project, "the first goes on");
    nothing_is_lost(&project);
}

/// A small disk, as far as this user may mount one.
pub(crate) struct SmallDisk(pub(crate) PathBuf);

impl SmallDisk {
    pub(crate) fn mount(at: PathBuf) -> Option<Self> {
        fs::create_dir(&at).unwrap();
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=4m", "tmpfs"]).arg(&at);
        mount.output_within(BOUND).is_ok_and(|output| output.status.success()).then(|| Self(at))
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        // A disk that stays mounted is untidy, no more.
        drop(Command::new("umount").arg("-l").arg(&self.0).status_within(BOUND));
    }
}

#[test]
fn a_full_disk_is_said_and_after_it_everything_is_accounted_for() {
    let project = Project::new(&[("ticker", TICKER)]);
    let Some(disk) = SmallDisk::mount(project.folder()) else {
        println!("only root may mount a small disk: not tried");
        return;
    };
    let daemon = Daemon::start(project.path());
    goes_on(&project, "the ticker ticks");
    let filler = disk.0.join("filler");
    // All that is left; the write ends with "no space left on device".
    drop(fs::write(&filler, vec![0; 8 << 20]));
    let full = || log(project.path()).contains("the disk is full").then_some(());
    project.until("it says that the disk is full", full);
    fs::remove_file(&filler).unwrap();
    // Whether it went on or gave up: the next one finds everything.
    drop(daemon);
    let next = Daemon::start(project.path());
    goes_on(&project, "it goes on");
    nothing_is_lost(&project);
    drop(next);
    project.kill_runner();
}

#[test]
fn pipelines_that_vanish_while_serving_stay_in_force() {
    let (project, _daemon) = serving();
    let (here, away) = (project.path().join("pipelines"), project.path().join("away"));
    fs::rename(&here, &away).unwrap();
    let said = || log(project.path()).contains("they stay in force").then_some(());
    project.until("it says that they are gone", said);
    goes_on(&project, "it goes on without the files");
    fs::rename(&away, &here).unwrap();
    goes_on(&project, "it goes on with them");
    nothing_is_lost(&project);
    let retired = Ledger::read(&project.folder()).unwrap().agenda.into_values();
    assert!(retired.into_iter().all(|row| row.record.record.retired_at.is_none()));
}

#[test]
fn a_project_that_is_moved_away_while_serving_is_taken_up_where_it_is() {
    let (project, daemon) = serving();
    let moved = tempfile::tempdir().unwrap();
    let there = moved.path().join("project");
    fs::create_dir(&there).unwrap();
    for name in ["pipelines", ".interlock", "job.sh", "ran.log", "serve.log"] {
        fs::rename(project.path().join(name), there.join(name)).unwrap();
    }
    // What it would record and start from here on, no other process would know of.
    project.until("it says that the ledger is gone", || {
        log(&there).contains("was moved or deleted while this process used it").then_some(())
    });
    drop(daemon);
    let before = completed(&ledger(&there));
    let next = Daemon::start(&there);
    wait_until(&there, "it goes on in its new place", |slots| completed(slots) >= before + 2);
    drop(next);
    crate::end_the_runner(&there);
    // Jobs may have failed for want of a directory; no slot vanished, and no job ran twice.
    let mut found = Vec::new();
    Ledger::read(&there.join(".interlock")).unwrap().unaccounted(&OWED[0], &mut found);
    assert!(found.is_empty(), "{}", found.join("\n"));
    let ran = JobLog::read(&there).runs;
    assert!(ran.values().all(|ran| ran.starts.values().all(|count| *count == 1)), "{ran:?}");
}

#[test]
fn a_damaged_ledger_is_refused_and_left_as_it_is() {
    let (project, daemon) = serving();
    let backup = project.path().join("backup.db");
    let ran = project.run(&["store", "backup", backup.to_str().unwrap()]);
    assert_eq!(ran.code, 0, "{ran:?}");
    drop(daemon);
    let path = project.folder().join("ledger.db");
    for beside in ["ledger.db-wal", "ledger.db-shm"] {
        drop(fs::remove_file(project.folder().join(beside)));
    }
    fs::write(&path, "somebody wrote over it".repeat(100)).unwrap();
    let damaged = fs::read(&path).unwrap();
    let ran = project.run(&["serve"]);
    refuses(&ran, 3, &["is damaged", "Nothing was changed", "interlock store check", "backup"]);
    for command in [&["status"][..], &["slots", "ticker"], &["run", "ticker"]] {
        refuses(&project.run(command), 3, &["is damaged"]);
    }
    assert_eq!(fs::read(&path).unwrap(), damaged);
    // A backup over it, as the sentence says.
    fs::copy(&backup, &path).unwrap();
    let _daemon = Daemon::start(project.path());
    goes_on(&project, "it goes on from what was restored");
}

/// Runs the real binary as a user without rights, as far as this one may.
fn as_nobody(directory: &Path, arguments: &[&str]) -> Ran {
    let is_root =
        Command::new("id").arg("-u").output_within(BOUND).is_ok_and(|id| id.stdout == b"0\n");
    if !is_root {
        return interlock(directory, arguments);
    }
    let mut setpriv = Command::new("timeout");
    setpriv.args(["-s", "KILL", "30", "setpriv"]);
    setpriv.args(["--reuid=65534", "--regid=65534", "--clear-groups"]);
    setpriv.arg(env!("CARGO_BIN_EXE_interlock")).args(arguments).arg("-C").arg(directory);
    let output: Output = setpriv.stdin(Stdio::null()).output_within(BOUND).unwrap();
    output.into()
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, fs::Permissions::from_mode(mode)).unwrap();
}

#[test]
fn directories_that_cannot_be_read_or_written_are_named() {
    let project = Project::new(&[("ticker", TICKER)]);
    set_mode(project.path(), 0o755);
    // A ledger's folder that belongs to somebody else.
    fs::create_dir(project.folder()).unwrap();
    set_mode(&project.folder(), 0o555);
    let ran = as_nobody(project.path(), &["serve"]);
    refuses(&ran, 3, &[".interlock", "ermission denied"]);
    assert_eq!(fs::read_dir(project.folder()).unwrap().count(), 0);
    // Pipelines that nobody may read.
    set_mode(&project.folder(), 0o777);
    set_mode(&project.path().join("pipelines"), 0o000);
    let ran = as_nobody(project.path(), &["validate"]);
    set_mode(&project.path().join("pipelines"), 0o755);
    assert_ne!(ran.code, 0, "{ran:?}");
    let said = format!("{}{}", ran.stdout, ran.stderr);
    assert!(said.contains("pipelines") && said.contains("ermission denied"), "{said}");
    // A directory that is not there.
    let nowhere = project.path().join("nowhere");
    refuses(&interlock(&nowhere, &["serve"]), 3, &["there is no directory", "interlock init"]);
}

#[test]
fn files_that_become_unreadable_keep_what_was_loaded() {
    let (project, _daemon) = serving();
    // Root reads everything; a link to itself is what nobody can read.
    let file = project.path().join("pipelines/ticker.yaml");
    fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("ticker.yaml", &file).unwrap();
    let said = || log(project.path()).contains("stays in force").then_some(());
    project.until("it says that what was loaded stays", said);
    goes_on(&project, "it goes on");
    fs::remove_file(&file).unwrap();
    project.write("ticker", TICKER);
    goes_on(&project, "it goes on");
    nothing_is_lost(&project);
}

#[test]
fn a_path_that_is_too_long_for_a_socket_works() {
    let outer = tempfile::tempdir().unwrap();
    let deep = outer.path().join("a".repeat(100)).join("b".repeat(100));
    fs::create_dir_all(deep.join("pipelines")).unwrap();
    fs::write(deep.join("pipelines/ticker.yaml"), TICKER.replace("sh job.sh whole 0 0", "'true'"))
        .unwrap();
    let daemon = Daemon::start(&deep);
    wait_until(&deep, "two slots are completed", |slots| completed(slots) >= 2);
    // The next daemon finds the same runner.
    drop(daemon);
    let before = completed(&ledger(&deep));
    let daemon = Daemon::start(&deep);
    wait_until(&deep, "two more are completed", |slots| completed(slots) >= before + 2);
    drop(daemon);
    crate::end_the_runner(&deep);
}

#[test]
fn jobs_run_in_the_project_however_it_was_named() {
    let project = Project::new(&[("ticker", TICKER)]);
    let mut serve = Command::new(env!("CARGO_BIN_EXE_interlock"));
    serve.args(["serve", "."]).current_dir(project.path()).stdout(Stdio::null());
    let mut serve = serve.stderr(crate::open_log(project.path())).spawn().unwrap();
    let ran = || JobLog::read(project.path()).runs.into_iter().next();
    project.until("a job has written into the project", ran);
    assert!(kill(serve.id()));
    serve.wait_within("the end of `serve` after SIGKILL", BOUND);
}
