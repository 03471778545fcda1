//! Whether the kernel ended somebody because memory was short: it counts that, per control group.

use std::{fs, path::PathBuf};

/// How often that happened in our group; nothing, where it is not counted.
pub(super) fn kills() -> Option<u64> {
    let own = fs::read_to_string("/proc/self/cgroup").ok()?;
    let group = own.lines().find_map(|line| line.strip_prefix("0::"))?;
    let path = PathBuf::from("/sys/fs/cgroup").join(group.trim_start_matches('/'));
    let events = fs::read_to_string(path.join("memory.events")).ok()?;
    events.lines().find_map(|line| line.strip_prefix("oom_kill "))?.trim().parse().ok()
}
