//! The daemon as the first process of a container: its end is the end of its jobs (S18).

use std::{
    fs,
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};

use crate::{
    checker::{JobLog, Ledger, check},
    log, open_log,
    project::{Project, kill, tail},
};

/// Long enough to be killed in the middle.
const LONG: &str = "
name: longish
schedule: '0 0 1 1 *'
trigger: {type: command, command: sh job.sh whole 300 0}
";

/// A namespace of processes whose first one is the daemon; all of it ends with this.
struct Container(Child);

impl Container {
    fn start(project: &Project) -> Self {
        let mut unshare = Command::new("unshare");
        unshare.args(["--fork", "--pid", "--mount-proc", "--kill-child=SIGKILL"]);
        unshare.arg(env!("CARGO_BIN_EXE_interlock")).arg("serve");
        unshare.arg(project.path()).stdin(Stdio::null());
        // What is said at start-up is said to people, on standard output.
        let out = fs::File::create(project.path().join("serve.out")).unwrap();
        Self(unshare.stdout(out).stderr(open_log(project.path())).spawn().unwrap())
    }
}

impl Drop for Container {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

/// Only root may make a namespace of processes, and not everywhere.
fn may_make_containers() -> bool {
    let mut unshare = Command::new("unshare");
    let output = unshare.args(["--fork", "--pid", "--mount-proc", "true"]).output_within(BOUND);
    output.is_ok_and(|output| output.status.success())
}

#[test]
fn jobs_end_with_the_container_and_the_next_start_says_uncertain() {
    if !may_make_containers() {
        println!("namespaces are not allowed here: not tried");
        return;
    }
    let project = Project::new(&[("longish", LONG)]);
    let container = Container::start(&project);
    project.until("the pipeline is declared", || {
        Ledger::read(&project.folder())?.agenda.into_iter().next()
    });
    project.until("it says what that means", || {
        let said = fs::read_to_string(project.path().join("serve.out")).unwrap();
        said.contains("jobs end with it, and are then uncertain").then_some(())
    });
    assert_eq!(project.run(&["run", "longish", "--detach"]).code, 0);
    project.until("the job runs", || JobLog::read(project.path()).runs.into_iter().next());
    drop(container);

    let container = Container::start(&project);
    let slot = project.until("the slot is uncertain", || {
        let ledger = Ledger::read(&project.folder())?;
        let slot = ledger.slots().next()?.1.clone();
        slot.marks.uncertain.then_some(slot)
    });
    // It holds its place while it is looked for; `points` shows what becomes of it.
    assert!(slot.attempt == 1 && slot.disposition.as_deref() != Some("completed"), "{slot:?}");
    let found =
        check(&Ledger::read(&project.folder()).unwrap(), &JobLog::read(project.path()), &[]);
    assert!(found.is_empty(), "{found:?}\n{}", tail(&log(project.path())));
    assert!(log(project.path()).contains("run uncertain"), "{}", log(project.path()));
    drop(container);
}

#[test]
fn outside_of_a_container_nothing_is_said_about_one() {
    let project = Project::new(&[("longish", LONG)]);
    let mut serve = Command::new(env!("CARGO_BIN_EXE_interlock"));
    let out = fs::File::create(project.path().join("serve.out")).unwrap();
    let mut serve =
        serve.arg("serve").arg(project.path()).stdout(out).stderr(Stdio::null()).spawn().unwrap();
    let said = || fs::read_to_string(project.path().join("serve.out")).unwrap();
    // The last line of the summary.
    project.until("it is at work", || said().contains("problems").then_some(()));
    assert!(kill(serve.id()));
    serve.wait_within("the end of `serve` after SIGKILL", BOUND);
    let said = said();
    assert!(said.contains("serving 1 pipeline") && !said.contains("container"), "{said}");
}
