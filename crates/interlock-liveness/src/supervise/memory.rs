//! Whether the kernel ended somebody because memory was short: it counts that, per control group.

use std::{fs, path::PathBuf};

/// How often that happened in our group; nothing, where it is not counted.
pub(super) fn kills() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    counters(&own).into_iter().flatten().find_map(|path| {
        let counted = fs::read_to_string(path).ok()?;
        counted.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
    })
}

/// Where it may be counted: in the one tree of groups, or in the tree of its own that memory has on older systems.
fn counters(own: &str) -> [Option<PathBuf>; 2] {
    let within = |tree: &str, group: &str| PathBuf::from(tree).join(group.trim_start_matches('/'));
    let group = own.lines().find_map(|line| line.strip_prefix("0::"));
    let older = own.lines().find_map(|line| line.split_once(":memory:"));
    [
        group.map(|group| within("/sys/fs/cgroup", group).join("memory.events")),
        older.map(|(_, group)| within("/sys/fs/cgroup/memory", group).join("memory.oom_control")),
    ]
}
