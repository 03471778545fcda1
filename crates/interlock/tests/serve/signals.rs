//! A daemon that inherits ignored and blocked signals, and what its jobs inherit from it.

use std::{
    fs,
    process::{Command, Stdio},
};

use rustix::process::Signal;

use crate::{
    any_port, log, open_log,
    process::{PLAIN, Started, UNUSUAL, signals, started_by},
    project::Project,
};

/// A job that writes down what it inherited, through the shell and without it.
const SHOWN: &str = "
name: shown
schedule: {cron: '* * * * * *', seconds: true}
trigger: {type: command, command: 'cat /proc/self/status > shell; mv shell shown-by-shell'}
";
const SHOWN_BARE: &str = "
name: bare
schedule: {cron: '* * * * * *', seconds: true}
trigger: {type: command, command: [cp, /proc/self/status, shown-bare]}
";

/// `serve` as others start it.
fn serve(project: &Project, words: &[&[&str]]) -> Started {
    any_port(project.path());
    let mut serve = Command::new(env!("CARGO_BIN_EXE_interlock"));
    serve.args(["serve", "--log", "json"]).arg(project.path());
    serve.env("INTERLOCK_SPOOL", project.path().join("spool"));
    let mut serve = started_by(words, &serve);
    Started::new(serve.stdin(Stdio::null()).stdout(Stdio::null()).stderr(open_log(project.path())))
}

#[test]
fn jobs_ignore_and_block_nothing_however_serve_was_started() {
    for words in UNUSUAL {
        let project = Project::new(&[("shown", SHOWN), ("bare", SHOWN_BARE)]);
        let serve = serve(&project, &[PLAIN, words]);
        for name in ["shown-by-shell", "shown-bare"] {
            let shown = project.until(&format!("{name} is written, {words:?}"), || {
                let shown = fs::read(project.path().join(name)).ok()?;
                String::from_utf8_lossy(&shown).contains("SigCgt:").then_some(shown)
            });
            assert_eq!(signals(&shown), [0; 3], "{name}, {words:?}");
        }
        drop(serve);
    }
}

#[test]
fn under_nohup_a_hangup_has_the_files_read_and_sigterm_ends_serve_although_it_was_blocked() {
    let blocked = ["env", "--ignore-signal=TERM", "--block-signal=TERM,HUP"];
    let project = Project::new(&[("shown", SHOWN)]);
    let mut serve = serve(&project, &[PLAIN, &["nohup"], &blocked]);
    let shown = || project.path().join("shown-by-shell").exists().then_some(());
    project.until("it serves", shown);
    let reads = || log(project.path()).matches("FILES_READ").count();
    let before = reads();
    serve.signal(Signal::HUP);
    project.until("the files are read again", || (reads() > before).then_some(()));
    serve.signal(Signal::TERM);
    assert_eq!(serve.ends("`serve` that was asked to end").code(), Some(0));
}
