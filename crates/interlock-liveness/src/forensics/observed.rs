//! What `/proc` says of a process and its threads: who waits where in the kernel, memory, descriptors.

use std::{collections::BTreeMap, fmt::Write as _, fs, path::PathBuf};

/// So many descriptors are listed.
const LISTED_MAX: usize = 64;

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
    let stat = read("stat");
    let state = stat.rsplit_once(')').and_then(|(_, after)| after.split_whitespace().next());
    Observed {
        name: read("comm"),
        state: state.unwrap_or("?").to_owned(),
        waits_in: read("wchan"),
        call: read("syscall"),
    }
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
