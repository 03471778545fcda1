//! The guard of one program: a process of its own between the daemon and the evaluator.
//!
//! It ends the program and everything that the program started, whichever comes first:
//!
//! | what happens | what the guard does |
//! |---|---|
//! | the program ends | kills what it left behind, so that nobody holds its output open, and ends with its exit code |
//! | the daemon has enough (its time is up, its output too long) | TERM to the group, a grace, then KILL |
//! | the daemon dies, `kill -9` included | the same: the lifeline, the guard's standard input, ends with it |
//!
//! The lifeline is a pipe, because a parent-death signal would need `unsafe` between fork and exec, would follow the
//! death of a thread rather than of the daemon, and would spare the program's own children. Those that leave the
//! process group are caught too: the guard is the reaper of its descendants, so that whoever loses its parent
//! becomes the guard's child and is found by that.
//!
//! Protocol: the first line of standard input is the question, handed to the program; nothing follows but the end.

use std::{
    ffi::OsStr,
    fs, io,
    io::Write as _,
    os::unix::process::CommandExt as _,
    process::{ChildStdin, Command, Stdio},
    sync::mpsc::{self, Sender},
    thread,
    time::Duration,
};

use rustix::process::{
    Pid, Signal, WaitId, WaitIdOptions, WaitOptions, WaitStatus, getpid, kill_process,
    kill_process_group, set_child_subreaper, wait, waitid,
};

/// From TERM to KILL.
pub const GRACE: Duration = Duration::from_millis(300);

/// Between two looks for what a program left behind.
const LOOK: Duration = Duration::from_millis(5);

/// After so many looks what is left cannot be killed: it waits inside the kernel.
const LOOKS_MAX: u32 = 60;

/// What a shell says about a program that cannot be executed.
const CANNOT_EXECUTE: u8 = 126;

/// What the guard waits for.
enum Event {
    Exited,
    Abandoned,
}

/// Runs a program until it ends or nobody wants its answer any more.
///
/// The binary calls this for its hidden command `evaluator-guard PROGRAM`, and ends with the exit code that it
/// returns.
pub fn main(program: &OsStr) -> u8 {
    run(program).unwrap_or_else(|error| {
        let program = program.display();
        let _lost = writeln!(io::stderr(), "{program} cannot be started: {error}");
        CANNOT_EXECUTE
    })
}

fn run(program: &OsStr) -> io::Result<u8> {
    set_child_subreaper(Some(getpid()))?;
    let mut question = String::new();
    io::stdin().read_line(&mut question)?;
    if !question.ends_with('\n') {
        // The daemon died while it asked.
        return Ok(0);
    }
    let mut child = Command::new(program).stdin(Stdio::piped()).process_group(0).spawn()?;
    let leader = Pid::from_raw(child.id().cast_signed())
        .ok_or_else(|| io::Error::other("it has no process id"))?;
    let (events, happened) = mpsc::channel();
    start("ask", child.stdin.take(), |stdin| hand_over(stdin, &question.into_bytes()))?;
    start("wait", events.clone(), move |events| wait_for(leader, &events))?;
    start("lifeline", events, |events| hold(&events))?;
    if let Ok(Event::Abandoned) = happened.recv() {
        let _gone = kill_process_group(leader, Signal::TERM);
        // A stopped process cannot obey.
        let _gone = kill_process_group(leader, Signal::CONT);
        let _in_time = happened.recv_timeout(GRACE);
    }
    Ok(clean_up(leader).map_or(128 + Signal::KILL.as_raw() as u8, code))
}

fn start<T: Send + 'static>(
    name: &str,
    argument: T,
    body: impl FnOnce(T) + Send + 'static,
) -> io::Result<()> {
    thread::Builder::new().name(name.to_owned()).spawn(move || body(argument)).map(|_detached| ())
}

/// A program that does not read its question may answer all the same.
fn hand_over(stdin: Option<ChildStdin>, question: &[u8]) {
    if let Some(mut stdin) = stdin {
        let _unread = stdin.write_all(question);
    }
}

/// Says that the program ended without waiting for it: until the main thread has killed its group, its number must
/// stay its own.
fn wait_for(leader: Pid, events: &Sender<Event>) {
    let _gone = waitid(WaitId::Pid(leader), WaitIdOptions::EXITED | WaitIdOptions::NOWAIT);
    let _over = events.send(Event::Exited);
}

fn hold(events: &Sender<Event>) {
    let _broken = io::copy(&mut io::stdin(), &mut io::sink());
    let _over = events.send(Event::Abandoned);
}

/// Kills whoever is left; how the program itself ended.
fn clean_up(leader: Pid) -> Option<WaitStatus> {
    let mut ended = None;
    let _gone = kill_process_group(leader, Signal::KILL);
    for _ in 0..LOOKS_MAX {
        loop {
            match wait(WaitOptions::NOHANG) {
                Ok(Some((pid, status))) if pid == leader => ended = Some(status),
                Ok(Some(_)) => {}
                Ok(None) => break,
                Err(_no_child) => return ended,
            }
        }
        // Ours and not waited for, so their numbers are theirs.
        for stray in children() {
            let _gone = kill_process(stray, Signal::KILL);
        }
        thread::sleep(LOOK);
    }
    ended
}

/// The processes whose parent is this one.
fn children() -> Vec<Pid> {
    let own = getpid().as_raw_nonzero().get().to_string();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    let is_child = |stat: &str| {
        // The name in brackets may hold anything; after it come the state and the parent.
        let after = stat.rsplit_once(") ").map(|(_, after)| after);
        after.and_then(|after| after.split(' ').nth(1)).is_some_and(|parent| parent == own)
    };
    let found = entries.filter_map(|entry| {
        let pid: i32 = entry.file_name().to_str()?.parse().ok()?;
        let stat = fs::read_to_string(entry.path().join("stat")).ok()?;
        if is_child(&stat) { Pid::from_raw(pid) } else { None }
    });
    found.collect()
}

/// The exit code as a shell would say it: 128 + n for signal n.
fn code(status: WaitStatus) -> u8 {
    match (status.exit_status(), status.terminating_signal()) {
        (Some(code), _) => code as u8,
        (None, Some(signal)) => 128 + signal as u8,
        (None, None) => u8::MAX,
    }
}
