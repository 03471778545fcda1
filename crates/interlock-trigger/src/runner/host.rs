//! What `/proc` says about the host and its processes.

use std::{
    fs::{self, File},
    io::Read,
};

use jiff::{SignedDuration, Timestamp};

/// A name for the time since the kernel was started; empty where there is none.
pub(crate) fn boot_id() -> String {
    let text = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
    text.trim().to_owned()
}

/// When the kernel was started, by the wall clock; the latest it can have been when in doubt.
pub(crate) fn booted_at(now: Timestamp) -> Timestamp {
    let uptime = fs::read_to_string("/proc/uptime").unwrap_or_default();
    let seconds = uptime.split_whitespace().next().and_then(|text| text.parse::<f64>().ok());
    let up = seconds.and_then(|seconds| SignedDuration::try_from_secs_f64(seconds).ok());
    now.checked_sub(up.unwrap_or_default()).unwrap_or(now)
}

/// When a process was started, in clock ticks since boot; nothing once it is over, even if nobody
/// has waited for it yet and its entry remains.
pub(crate) fn live_start(pid: i32) -> Option<u64> {
    let (state, start) = stat(pid)?;
    (!matches!(state, 'Z' | 'X')).then_some(start)
}

/// The same for a process that may be over and is not waited for.
pub(crate) fn start(pid: i32) -> Option<u64> {
    stat(pid).map(|(_, start)| start)
}

fn stat(pid: i32) -> Option<(char, u64)> {
    // The kernel answers with one piece, which is far shorter than this.
    let mut line = [0; 1024];
    let length = File::open(format!("/proc/{pid}/stat")).ok()?.read(&mut line).ok()?;
    read_stat(&String::from_utf8_lossy(line.get(..length)?))
}

/// The state and the start time of a `stat` line. The program's name stands in parentheses and may
/// contain anything, so what counts begins after the last one.
fn read_stat(line: &str) -> Option<(char, u64)> {
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let state = fields.next()?.chars().next()?;
    // Field 22 of proc(5); the state is field 3.
    let start = fields.nth(22 - 3 - 1)?.parse().ok()?;
    Some((state, start))
}

/// Programs that only pass signals on and end with their child.
const SMALL_INITS: [&str; 5] = ["tini", "docker-init", "dumb-init", "catatonit", "conmon"];

/// Whether everything in this process namespace ends with the daemon, jobs and runner included:
/// true for a daemon that is the first process of a container, or that process's only care.
///
/// `serve` says so at start-up; the jobs' runs are then `uncertain` after a restart (S18).
pub fn is_pid_one_namespace() -> bool {
    let parent = rustix::process::getppid().map(rustix::process::Pid::as_raw_nonzero);
    let init = fs::read_to_string("/proc/1/comm").unwrap_or_default();
    let under_small_init =
        parent.is_some_and(|pid| pid.get() == 1) && SMALL_INITS.contains(&init.trim());
    std::process::id() == 1 || under_small_init
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_mislead() {
        let line = "42 (a) Z (b)) S 1 42 42 0 -1 4194560 100 0 0 0 1 2 0 0 20 0 1 0 98765 1000 10";
        assert_eq!(read_stat(line), Some(('S', 98765)));
        assert_eq!(read_stat("42 (x) S 1"), None);
    }

    #[test]
    fn this_process_is_alive_since_its_start() {
        let pid = std::process::id() as i32;
        assert!(live_start(pid).is_some());
        assert_eq!(live_start(pid), start(pid));
        assert_eq!(live_start(i32::MAX), None);
        assert!(!boot_id().is_empty());
    }
}
