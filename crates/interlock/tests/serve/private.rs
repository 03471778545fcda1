//! Who may read what Interlock keeps: its owner alone, whatever the umask, also where an older version left it open.

use std::{
    fs::{self, Permissions},
    os::unix::fs::PermissionsExt as _,
    path::Path,
    process::{Command, Stdio},
};

use interlock_private_files::{Extent, exposed};
use interlock_wait::{BOUND, CommandWithin as _};

use crate::{
    any_port, completed, ledger, open_log,
    process::{Started, started_by},
    project::{Project, Ran},
};

/// A job that says what its own files are made with, each second.
const SECRET: &str = "
name: ticker
schedule: {cron: '* * * * * *', seconds: true}
env: {TOKEN: a-literal-secret}
trigger: {type: command, command: umask > umask.new && mv umask.new umask}
";

/// A job that another user runs; at any time there is a slot that it may report about.
const WATCHED: &str = "
name: nightly
schedules: [{name: s, every: 1h, from: last}]
trigger: {type: external}
";

/// `serve` as a shell with the usual umask starts it.
fn serve(project: &Project) -> Started {
    any_port(project.path());
    let mut serve = Command::new(env!("CARGO_BIN_EXE_interlock"));
    serve.args(["serve", "--log", "json"]).arg(project.path());
    serve.env("INTERLOCK_SPOOL", project.path().join("spool"));
    let mut serve = started_by(&[&["sh", "-c", "umask 022; exec \"$@\"", "sh"]], &serve);
    Started::new(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(open_log(project.path())))
}

fn runs(project: &Project) {
    let before = completed(&ledger(project.path()));
    project
        .until("a run completes", || (completed(&ledger(project.path())) > before).then_some(()));
}

/// What others may read, by name.
#[track_caller]
fn open_to_others(folder: &Path) -> Vec<String> {
    let found = exposed(folder, Extent::Folder).unwrap();
    let mut found: Vec<_> =
        found.iter().map(|it| format!("{} {:o}", it.path.display(), it.mode)).collect();
    found.sort();
    found
}

fn mode(path: &Path) -> u32 {
    fs::metadata(path).unwrap().permissions().mode() & 0o777
}

#[test]
fn the_state_folder_and_its_backups_are_for_their_owner_alone() {
    let project = Project::new(&[("ticker", SECRET)]);
    let _serve = serve(&project);
    runs(&project);
    // A letter in `inbox.db`, which its sender makes.
    let put = project.run(&["sensor", "put", "ticker", "landed", "{}"]);
    assert_eq!(put.code, 0, "{put:?}");
    assert_eq!(open_to_others(&project.folder()), Vec::<String>::new());
    assert!(project.folder().join("ledger.db-wal").exists());
    assert!(project.folder().join("inbox.db").exists());
    let backup = project.path().join("backup.db");
    let made = project.run(&["store", "backup", &backup.display().to_string()]);
    assert_eq!((made.code, mode(&backup)), (0, 0o600), "{made:?}");
    // The job's own files are made as its user wants them.
    let umask = fs::read_to_string(project.path().join("umask")).unwrap();
    assert_eq!(umask.trim(), "0022");
    let doctor = project.run(&["doctor"]);
    assert!(doctor.stdout.contains("private ok"), "{doctor:?}");
}

#[test]
fn a_state_folder_that_was_left_open_is_named_by_doctor_and_closed_by_serve() {
    let project = Project::new(&[("ticker", SECRET)]);
    let first = serve(&project);
    runs(&project);
    drop(first);
    let folder = project.folder();
    let secret = fs::read(folder.join("ledger.db-wal")).unwrap();
    let secret = String::from_utf8_lossy(&secret).contains("a-literal-secret");
    assert!(secret, "the log holds the declaration, so it matters who reads it");
    fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
    for name in ["ledger.db", "ledger.db-wal", "daemon.lock"] {
        fs::set_permissions(folder.join(name), Permissions::from_mode(0o644)).unwrap();
    }
    let doctor = project.run(&["doctor"]);
    assert_ne!(doctor.code, 0, "{doctor:?}");
    assert!(doctor.stdout.contains("ledger.db (0644)"), "{doctor:?}");
    let _second = serve(&project);
    runs(&project);
    assert_eq!(open_to_others(&folder), Vec::<String>::new());
}

/// A command as a user who owns nothing here runs it; only root can become that user.
fn as_nobody(project: &Project, arguments: &[&str]) -> Option<Ran> {
    if !rustix::process::getuid().is_root() {
        return None;
    }
    // Where that user may read it: the folder of a build may be closed too.
    let binary = project.path().join("interlock");
    if !binary.exists() {
        fs::copy(env!("CARGO_BIN_EXE_interlock"), &binary).unwrap();
    }
    let mut command = Command::new("setpriv");
    command.args(["--reuid=65534", "--clear-groups", "--"]).arg(binary);
    command.args(arguments).env("INTERLOCK_SPOOL", project.path().join("spool-of-nobody"));
    Some(command.current_dir(project.path()).output_within(BOUND).unwrap().into())
}

#[test]
fn another_user_is_told_that_the_folder_is_closed_and_reports_by_http() {
    let project = Project::new(&[("ticker", SECRET), ("nightly", WATCHED)]);
    fs::set_permissions(project.path(), Permissions::from_mode(0o755)).unwrap();
    let port = interlock_private_server::Port::take();
    let config = format!("server: {{addr: '127.0.0.1:{}'}}\n", port.number);
    fs::write(project.path().join("interlock.yaml"), config).unwrap();
    let _serve = serve(&project);
    runs(&project);
    let Some(status) = as_nobody(&project, &["status"]) else { return };
    assert_ne!(status.code, 0, "{status:?}");
    assert!(status.stderr.contains("cannot look into"), "{status:?}");
    assert!(status.stderr.contains("Only root may read it"), "{status:?}");
    let exec = as_nobody(&project, &["exec", "nightly", "--", "true"]).unwrap();
    assert_eq!((exec.code, exec.stderr.as_str()), (0, ""));
    project.until("the report is recorded", || {
        let runs = project.run(&["runs", "nightly", "--json"]).stdout;
        runs.contains("\"COMPLETED\"").then_some(())
    });
}

#[test]
fn a_project_whose_folder_holds_the_ledger_too_stays_readable() {
    let project = Project::new(&[("ticker", SECRET)]);
    fs::write(project.path().join("interlock.yaml"), "embedded: {path: .}\n").unwrap();
    fs::set_permissions(project.path(), Permissions::from_mode(0o755)).unwrap();
    let _serve = serve(&project);
    project.until("the job ran", || project.path().join("umask").exists().then_some(()));
    assert_eq!(mode(project.path()), 0o755);
    assert_eq!(mode(&project.path().join("ledger.db")), 0o600);
    assert_eq!(mode(&project.path().join("ledger.db-wal")), 0o600);
}
