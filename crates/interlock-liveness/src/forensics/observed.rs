//! What `/proc` says of a process and its threads: who waits where in the kernel, memory, descriptors.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

use crate::kin::after_name;

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
