//! Processes in a control group that gives them little: of the processor, of memory.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use interlock_liveness::supervise::GAVE_UP;
use tempfile::TempDir;

use crate::{Patient, supervised};

/// A group within our own, gone when the test is over.
struct Group(PathBuf);

impl Group {
    /// Makes one, with what it is given; nothing where that is not allowed.
    fn make(controller: &str, name: &str, gives: &[(&str, &str)]) -> Option<Self> {
        let own = fs::read_to_string("/proc/self/cgroup").ok()?;
        let own = own.lines().find_map(|line| line.split_once(&format!(":{controller}:")))?.1;
        let tree = Path::new("/sys/fs/cgroup").join(controller);
        let name = format!("interlock-{name}-{}", std::process::id());
        let path = tree.join(own.trim_start_matches('/')).join(name);
        fs::create_dir(&path).ok()?;
        let group = Self(path);
        gives
            .iter()
            .all(|(file, what)| fs::write(group.0.join(file), what).is_ok())
            .then_some(group)
    }

    /// A shell that goes there, and becomes what follows it.
    fn enter(&self) -> String {
        format!("echo $$ > {}/cgroup.procs && exec \"$0\" \"$@\"", self.0.display())
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        // Whoever was killed there takes a moment to be gone.
        let began = Instant::now();
        while fs::remove_dir(&self.0).is_err() && began.elapsed() < Duration::from_secs(5) {
            std::thread::yield_now();
        }
    }
}

#[test]
fn fault_18_a_process_that_gets_five_percent_of_a_processor_is_not_ended() {
    // It runs for 50 ms and stands still for 950: longer than its watch allows.
    let gives = [("cpu.cfs_period_us", "1000000"), ("cpu.cfs_quota_us", "50000")];
    let Some(group) = Group::make("cpu", "fault-18", &gives) else {
        println!("there is no group to be had here: not tried");
        return;
    };
    let mut patient = Patient::start_by(&["sh", "-c", &group.enter()], "kicks-hungry");
    patient.until("STALLED ");
    // Three are forgiven; then it counts, and is told, and is not worth an end.
    for _ in 0..8 {
        patient.until("STALLED ");
    }
    assert!(
        patient.said("no watch is blamed") && patient.said("too often"),
        "{:?}",
        patient.heard()
    );
    assert!(patient.said("its share of the processors was used up"), "{:?}", patient.heard());
    assert!(!patient.said("EXPIRED hard"), "{:?}", patient.heard());
    assert!(patient.child.try_wait().unwrap().is_none(), "it lives");
    drop(patient);
}

#[test]
fn fault_24_a_program_that_the_kernel_ends_for_want_of_memory_is_called_so_and_counted() {
    let gives = [("memory.limit_in_bytes", "64M")];
    let Some(group) = Group::make("memory", "fault-24", &gives) else {
        println!("there is no group to be had here: not tried");
        return;
    };
    let folder = TempDir::new().unwrap();
    let mut command = Patient::command(&["sh", "-c", &group.enter()], "supervise");
    supervised::tell_what(&mut command, &folder, "exec tail /dev/zero");
    let mut supervisor = Patient::spawn(&mut command);
    for _ in 0..3 {
        assert_eq!(supervisor.until("ENDED "), "OutOfMemory");
    }
    assert_eq!(supervisor.until("CODE "), GAVE_UP.to_string());
    drop(supervisor);
}
