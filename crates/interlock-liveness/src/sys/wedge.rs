//! An allocator that can be made to hang for ever, as one does whose lock is held by a thread that hangs.
//!
//! All unit tests of this crate run on it; one of them, in a process of its own, makes it hang.

use std::{
    alloc::{GlobalAlloc, Layout, System},
    os::unix::process::ExitStatusExt as _,
    process::Command,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
    thread,
    time::Duration,
};

use interlock_wait::{BOUND, CommandWithin as _, wait_for, wait_until};

use crate::{Deadman, Ladder, Monitor, forensics::Forensics};

#[global_allocator]
static ALLOCATOR: Wedging = Wedging(AtomicBool::new(false));

struct Wedging(AtomicBool);

impl Wedging {
    fn pass(&self) {
        // Bounded: the monitor of the patient aborts it, and the test kills it at its own bound.
        while self.0.load(Relaxed) {
            thread::sleep(Duration::from_mins(1));
        }
    }
}

// SAFETY: hands everything on to the system's allocator, or never returns.
unsafe impl GlobalAlloc for Wedging {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        self.pass();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, place: *mut u8, layout: Layout) {
        self.pass();
        // SAFETY: the caller's promise is handed on.
        unsafe { System.dealloc(place, layout) }
    }
}

const PART: &str = "LIVENESS_WEDGE";

/// Not a test: the process that hangs, and its helper.
#[test]
#[expect(clippy::disallowed_methods, reason = "a part is given by the environment")]
fn patient() {
    let Ok(folder) = std::env::var(PART) else { return };
    let arguments: Vec<String> = std::env::args().collect();
    if folder == "helper" {
        crate::forensics::help(&arguments[arguments.len() - 4..], |_| {}).unwrap();
        std::process::abort();
    }
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper.args(["--exact", "sys::wedge::patient", "--nocapture"]).env(PART, "helper");
    let monitor = Monitor::builder()
        .forensics(Forensics::start(helper, folder, "wedged").unwrap())
        .deadman(Deadman::Kernel { slack: Duration::from_secs(20) })
        .start()
        .unwrap();
    let ladder = Ladder::hard(Duration::from_millis(200), Duration::from_millis(600));
    let watch = monitor.watch("worker", ladder).register().unwrap();
    watch.arm();
    watch.kick();
    wait_until("the first move", BOUND, || monitor.probe().watches()[0].moves > 0);
    ALLOCATOR.0.store(true, Relaxed);
    let _never = Box::new(1);
}

#[test]
fn fault_09_a_process_whose_allocator_hangs_is_dumped_and_ended_all_the_same() {
    let folder = tempfile::tempdir().unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "sys::wedge::patient", "--nocapture"]).env(PART, folder.path());
    let ended = command.output_within(BOUND).unwrap();
    // By our own hand, not by the kernel's timer.
    assert_eq!(ended.status.signal(), Some(6), "{ended:?}");
    // The helper goes on when the process is gone.
    let last = wait_for("the report of the hard end, with names", BOUND, || {
        let found = crate::forensics::found(folder.path());
        let last = found.iter().find(|report| report.why.ends_with("(hard)"));
        let text = last.map(|last| std::fs::read_to_string(&last.path).unwrap());
        // Its names come last, where there are any.
        text.filter(|text| !cfg!(feature = "forensics") || text.contains(".rs:"))
    });
    assert!(last.starts_with("why: `worker` has made no progress"), "{last}");
    #[cfg(feature = "forensics")]
    assert!(last.contains("Wedging") && last.contains("wedge.rs"), "{last}");
}
