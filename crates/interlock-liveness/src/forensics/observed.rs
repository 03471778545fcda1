//! What `/proc` says of a process and its threads: who waits where in the kernel, memory, descriptors.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf, thread, time::Duration};

use crate::{
    clock::{monotonic, nanos},
    kin::after_name,
};

/// The state of a thread that runs or could.
const RUNS: &str = "R";
/// How often a thread that runs is looked at again.
const LOOK_EVERY: Duration = Duration::from_millis(5);

/// So many descriptors are listed.
const LISTED_MAX: usize = 64;
/// So much of a command line is said.
const COMMAND_MAX: usize = 200;

/// What the kernel says of a thread.
#[derive(Debug, Default)]
pub(super) struct Observed {
    pub(super) name: String,
    /// `R` runs, `S` waits, `D` waits and cannot be interrupted, `T` is stopped.
    pub(super) state: String,
    /// The function of the kernel in which it waits.
    pub(super) waits_in: String,
    /// The system call and its arguments.
    pub(super) call: String,
}

/// All threads of a process.
pub(super) fn threads(pid: u32) -> BTreeMap<i32, Observed> {
    let Ok(tasks) = fs::read_dir(format!("/proc/{pid}/task")) else { return BTreeMap::new() };
    let ids = tasks.flatten().filter_map(|task| task.file_name().to_str()?.parse().ok());
    ids.map(|thread: i32| (thread, observe(pid, thread))).collect()
}

/// The same for a process whose threads were just woken by a signal: those that run are looked at again until they wait or
/// `patience` is over. On a busy machine a thread that hangs in a system call needs a while to get back into it, and would
/// be taken for one that spins.
pub(super) fn threads_at_rest(pid: u32, patience: Duration) -> BTreeMap<i32, Observed> {
    let until = monotonic().saturating_add(nanos(patience));
    let mut threads = threads(pid);
    loop {
        let mut is_any_running = false;
        for (thread, observed) in threads.iter_mut().filter(|(_, it)| it.state == RUNS) {
            *observed = observe(pid, *thread);
            is_any_running |= observed.state == RUNS;
        }
        if !is_any_running || monotonic() >= until {
            return threads;
        }
        thread::sleep(LOOK_EVERY);
    }
}

fn observe(pid: u32, thread: i32) -> Observed {
    let read = |file: &str| {
        let text = fs::read_to_string(format!("/proc/{pid}/task/{thread}/{file}"));
        text.unwrap_or_default().trim().to_owned()
    };
    Observed {
        name: read("comm"),
        state: after_name(&read("stat")).next().unwrap_or("?").to_owned(),
        waits_in: read("wchan"),
        call: read("syscall"),
    }
}

/// The number of a process's parent.
pub(super) fn parent(pid: u32) -> String {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    after_name(&stat).nth(1).unwrap_or("?").to_owned()
}

/// With what a process was started, on one line.
pub(super) fn command(pid: u32) -> String {
    let bytes = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
    let text = String::from_utf8_lossy(&bytes);
    let mut text: String = text
        .trim_end_matches('\0')
        .chars()
        .map(|it| if it.is_control() { ' ' } else { it })
        .take(COMMAND_MAX + 1)
        .collect();
    if text.chars().count() > COMMAND_MAX {
        text.pop();
        text.push('…');
    }
    text
}

/// Memory, in the kernel's words.
pub(super) fn memory(pid: u32) -> String {
    let read = |file: &str| fs::read_to_string(format!("/proc/{pid}/{file}")).unwrap_or_default();
    let status = read("status");
    let wanted = ["VmPeak", "VmRSS", "VmSwap", "Threads", "voluntary", "nonvoluntary", "TracerPid"];
    let mut text = String::new();
    for line in status.lines().filter(|line| wanted.iter().any(|start| line.starts_with(start))) {
        let _written = writeln!(text, "{line}");
    }
    for line in read("smaps_rollup").lines().skip(1).take(20) {
        let _written = writeln!(text, "{line}");
    }
    text
}

/// How many descriptors are open, and to what, as far as they are listed.
pub(super) fn descriptors(pid: u32) -> String {
    let Ok(open) = fs::read_dir(format!("/proc/{pid}/fd")) else {
        return "not readable\n".to_owned();
    };
    let open: Vec<PathBuf> = open.flatten().map(|entry| entry.path()).collect();
    let mut text = format!("{} open\n", open.len());
    for path in open.iter().take(LISTED_MAX) {
        let number = path.file_name().unwrap_or_default().to_string_lossy();
        let target = fs::read_link(path).unwrap_or_default();
        let _written = writeln!(text, "{number} -> {}", target.display());
    }
    text
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use interlock_wait::{BOUND, ChildWithin as _, ThreadWithin as _, wait_for};

    use super::*;

    #[test]
    fn a_thread_that_still_runs_is_looked_at_until_it_waits() {
        let home = tempfile::tempdir().unwrap();
        let enough = home.path().join("enough");
        // It computes until it is told, and then hangs.
        let busy = "while [ ! -e \"$0\" ]; do :; done; exec sleep 600";
        let mut child = Command::new("sh").args(["-c", busy]).arg(&enough).spawn().unwrap();
        let state = |threads: BTreeMap<i32, Observed>| threads.into_values().next().unwrap().state;
        wait_for("the shell computes", BOUND, || {
            (state(threads(child.id())) == RUNS).then_some(())
        });
        let telling = thread::spawn(move || {
            thread::sleep(LOOK_EVERY * 10);
            fs::write(enough, "").unwrap();
        });
        let at_rest = state(threads_at_rest(child.id(), BOUND));
        telling.join_within("the thread that tells it", BOUND).unwrap();
        child.kill_and_wait();
        assert_eq!(at_rest, "S");
    }
}
