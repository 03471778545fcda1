//! Why the whole process did not run for a time: what the kernel counts says.
//!
//! The files are opened when the monitor begins and read into a buffer of its own, because it allocates nothing afterwards. They are
//! read now and then, so that what is compared after a stall is not older than a moment.

use std::{
    fmt,
    fs::{self, File},
    os::unix::fs::FileExt as _,
    path::PathBuf,
};

/// How often the counts are taken while all is well, in nanoseconds.
const TAKE_EVERY: u64 = 1_000_000_000;

/// Why the whole process did not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// The machine slept.
    Slept,
    /// Its control group had used up its share of the processors.
    Throttled,
    /// It wanted to run, and others did.
    Starved,
    /// It was stopped, or the machine that it runs on was.
    Stopped,
}

impl fmt::Display for Cause {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Slept => "the machine slept",
            Self::Throttled => "its share of the processors was used up",
            Self::Starved => "others had the processors",
            Self::Stopped => "it was stopped, or its machine was",
        })
    }
}

/// What is known of the times in which this thread did not run.
#[derive(Debug, Default)]
pub(crate) struct Witness {
    schedule: Option<File>,
    quota: Option<File>,
    taken_at: u64,
    taken: Counts,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Counts {
    /// How long this thread has waited for a processor, in nanoseconds.
    waited: u64,
    /// How often its group was held back.
    throttled: u64,
}

impl Witness {
    /// The witness of the thread that calls.
    pub(crate) fn here() -> Self {
        let own = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
        let quota = quotas(&own).into_iter().flatten().find_map(|path| File::open(path).ok());
        let schedule = File::open("/proc/thread-self/schedstat").ok();
        let mut witness = Self { schedule, quota, taken_at: 0, taken: Counts::default() };
        witness.taken = witness.counts();
        witness
    }

    /// All is well: the counts are taken anew if they are old.
    pub(crate) fn is_well(&mut self, now: u64) {
        if now.saturating_sub(self.taken_at) >= TAKE_EVERY {
            (self.taken_at, self.taken) = (now, self.counts());
        }
    }

    /// Why this thread woke so much too late, after so much sleep of the machine.
    pub(crate) fn cause(&mut self, late: u64, slept: u64) -> Cause {
        let (before, after) = (self.taken, self.counts());
        self.taken = after;
        judge(before, after, (late, slept))
    }

    fn counts(&self) -> Counts {
        let mut buffer = [0; 512];
        let waited = read(self.schedule.as_ref(), &mut buffer);
        // Time on a processor, time of waiting for one, and how often.
        let waited = waited.split(' ').nth(1).and_then(|number| number.parse().ok());
        let throttled = read(self.quota.as_ref(), &mut buffer);
        let throttled = throttled.lines().find_map(|line| line.strip_prefix("nr_throttled "));
        let throttled = throttled.and_then(|number| number.trim().parse().ok());
        Counts { waited: waited.unwrap_or_default(), throttled: throttled.unwrap_or_default() }
    }
}

fn judge(before: Counts, after: Counts, (late, slept): (u64, u64)) -> Cause {
    if slept > late / 2 {
        Cause::Slept
    } else if after.throttled > before.throttled {
        Cause::Throttled
    } else if after.waited.saturating_sub(before.waited) > late / 2 {
        Cause::Starved
    } else {
        Cause::Stopped
    }
}

fn read<'a>(file: Option<&File>, buffer: &'a mut [u8]) -> &'a str {
    let length = file.and_then(|file| file.read_at(buffer, 0).ok()).unwrap_or_default();
    buffer.get(..length).and_then(|bytes| str::from_utf8(bytes).ok()).unwrap_or_default()
}

/// Where it may be counted how often the group was held back: in the one tree of groups, or in the one that processors have on older
/// systems.
fn quotas(own: &str) -> [Option<PathBuf>; 2] {
    let within = |tree: &str, group: &str| {
        PathBuf::from(tree).join(group.trim_start_matches('/')).join("cpu.stat")
    };
    let older = own.lines().find_map(|line| {
        let (controllers, group) = line.split_once(':')?.1.split_once(':')?;
        controllers.split(',').any(|controller| controller == "cpu").then_some(group)
    });
    let group = own.lines().find_map(|line| line.strip_prefix("0::"));
    [
        older.map(|group| within("/sys/fs/cgroup/cpu", group)),
        group.map(|group| within("/sys/fs/cgroup", group)),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_counted_meanwhile_says_why() {
        let before = Counts { waited: 1_000, throttled: 4 };
        let (late, waited) = (900, Counts { waited: 1_800, ..before });
        assert_eq!(judge(before, before, (late, 0)), Cause::Stopped);
        assert_eq!(judge(before, waited, (late, 0)), Cause::Starved);
        assert_eq!(judge(before, Counts { throttled: 5, ..waited }, (late, 0)), Cause::Throttled);
        assert_eq!(judge(before, waited, (late, 800)), Cause::Slept);
    }

    #[test]
    fn the_kernel_counts_and_its_trees_of_both_kinds_are_known() {
        let own = "4:memory:/a\n2:cpuacct,cpu:/b/c\n0::/d\n";
        let paths = ["/sys/fs/cgroup/cpu/b/c/cpu.stat", "/sys/fs/cgroup/d/cpu.stat"];
        assert_eq!(quotas(own), paths.map(|path| Some(PathBuf::from(path))));
        let mut witness = Witness::here();
        assert!(witness.schedule.is_some(), "every thread has it");
        witness.is_well(TAKE_EVERY);
        assert_eq!(witness.taken_at, TAKE_EVERY);
        assert_eq!(
            Witness::default().counts(),
            Counts::default(),
            "nothing where nothing is counted"
        );
    }
}
