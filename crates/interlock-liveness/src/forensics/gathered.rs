//! Everything that can only be had while a process is there.

use std::{collections::BTreeMap, fs, time::Duration};

use super::{arena::Copied, observed};
use crate::{
    clock::{monotonic, nanos},
    kin,
    sys::stacks::Tracer,
};

/// So many processes of a program are described; the others are counted.
const PROCESSES_MAX: usize = 16;
/// How long may be spent on stopping threads to read them: one that hangs in the kernel is waited for a while, and there may be many.
const TRACED_IN: Duration = Duration::from_secs(1);
/// How long threads may take to get back to where they waited, after the signal that had them store their stacks.
const AT_REST_IN: Duration = Duration::from_millis(200);

/// What there is to know of one process.
pub(super) struct Gathered {
    pub(super) pid: u32,
    pub(super) parent: String,
    pub(super) command: String,
    pub(super) threads: BTreeMap<i32, observed::Observed>,
    pub(super) copied: Vec<Copied>,
    pub(super) memory: String,
    pub(super) descriptors: String,
    pub(super) maps: String,
}

impl Gathered {
    /// Gathers it. The stacks of threads that did not store them are read from outside.
    fn of(
        pid: u32,
        threads: BTreeMap<i32, observed::Observed>,
        mut copied: Vec<Copied>,
        tracer: &mut Tracer,
        until: u64,
    ) -> Self {
        let is_missing = |thread: &&i32| !copied.iter().any(|known| known.thread == **thread);
        let missing: Vec<i32> = threads.keys().filter(is_missing).copied().collect();
        let in_time = missing.into_iter().take_while(|_| monotonic() < until);
        let traced: Vec<Copied> =
            in_time.filter_map(|thread| tracer.copy(pid.cast_signed(), thread).ok()).collect();
        copied.extend(traced);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let (memory, descriptors) = (observed::memory(pid), observed::descriptors(pid));
        let (parent, command) = (observed::parent(pid), observed::command(pid));
        Self { pid, parent, command, threads, copied, memory, descriptors, maps }
    }
}

/// Those that a report is about.
pub(super) struct Scene {
    pub(super) processes: Vec<Gathered>,
    /// How many more there were.
    pub(super) left_out: usize,
}

impl Scene {
    /// One process alone, most of whose threads have stored their stacks themselves.
    pub(super) fn of_one(pid: u32, copied: Vec<Copied>, tracer: &mut Tracer) -> Self {
        let until = monotonic().saturating_add(nanos(TRACED_IN));
        let threads = observed::threads_at_rest(pid, AT_REST_IN);
        let process = Gathered::of(pid, threads, copied, tracer, until);
        Self { processes: vec![process], left_out: 0 }
    }

    /// A child of ours and all else that descends from us: what hangs may be behind a shell.
    pub(super) fn of_family(pid: u32, tracer: &mut Tracer) -> Self {
        let until = monotonic().saturating_add(nanos(TRACED_IN));
        let kin = kin::descendants_of(std::process::id().cast_signed()).into_iter();
        let kin: Vec<u32> = kin.map(i32::cast_unsigned).filter(|it| *it != pid).collect();
        let described = std::iter::once(pid).chain(kin.iter().copied()).take(PROCESSES_MAX);
        let gather = |pid| Gathered::of(pid, observed::threads(pid), vec![], tracer, until);
        let processes = described.map(gather).collect();
        Self { processes, left_out: (kin.len() + 1).saturating_sub(PROCESSES_MAX) }
    }
}
