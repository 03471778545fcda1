//! A loop of `serve` that hangs: it is named and written down, the process leaves, and the next one says so.

use std::{fs, os::unix::process::ExitStatusExt as _, process::Command};

use crate::{
    Daemon, log,
    project::{Project, tail},
};

const QUIET: &str = "
name: quiet
schedule: {cron: '0 0 1 1 *'}
trigger: {type: command, command: 'true'}
";

#[test]
fn a_loop_that_hangs_ends_the_process_and_the_next_start_makes_it_an_incident() {
    let project = Project::new(&[("quiet", QUIET)]);
    let config = project.path().join("interlock.yaml");
    fs::write(&config, "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let mut daemon = Daemon::start(project.path());
    project.until("it serves", || log(project.path()).contains("SERVING").then_some(()));
    // A file that can be opened, and never read: what a file system does whose server is gone.
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status().unwrap().success());
    let ended = daemon.0.wait().unwrap();
    let said = log(project.path());
    assert_eq!(ended.signal(), Some(6), "{}", tail(&said));
    assert!(said.contains("`reload` has made no progress"), "{}", tail(&said));
    let folder = project.folder().join("liveness");
    let reports = project.until("the end is written down", || {
        let found = interlock_liveness::forensics::found(&folder);
        found.iter().any(|report| report.why.ends_with("(hard)")).then_some(found)
    });
    let last = reports.iter().find(|report| report.why.ends_with("(hard)")).unwrap();
    let text = fs::read_to_string(&last.path).unwrap();
    // Where the kernel lets a reader wait for a writer.
    assert!(text.contains("reload: hard") && text.contains("wait_for_partner"), "{text}");
    fs::remove_file(&config).unwrap();
    fs::write(&config, "server: {addr: '127.0.0.1:0'}\n").unwrap();
    let _next = Daemon::start(project.path());
    let incidents = project.until("it is an incident", || {
        let listed = project.run(&["incidents", "list", "--json"]).stdout;
        listed.contains("process_hung").then_some(listed)
    });
    assert!(incidents.contains("`reload`"), "{incidents}");
}
