//! What a report says, and that there is one.

use std::{fs, path::Path};

use interlock_liveness::forensics::found;
use interlock_wait::{BOUND, wait_for, wait_for_seeing};
use tempfile::TempDir;

use crate::{Patient, patient::REPORTS, signal_of};

/// Plays a part to its end; answers with the last report.
fn reported(part: &str) -> String {
    let folder = TempDir::new().unwrap();
    let mut command = Patient::command(&[], part);
    let mut patient = Patient::spawn(command.env(REPORTS, folder.path()));
    assert_eq!(signal_of(patient.ends()), Some(6), "{:?}", patient.heard());
    last(folder.path())
}

/// The report of the end; the helper goes on writing when the process is gone.
fn last(folder: &Path) -> String {
    let last = wait_for("the report of the hard end", BOUND, || {
        let found = found(folder);
        let last = found.iter().find(|report| report.why.ends_with("(hard)"))?;
        assert_eq!(found.len(), 3, "half-time, expiry and end: {found:?}");
        Some(last.path.clone())
    });
    named(&last)
}

/// A report with the names of functions: it is there without them first.
fn named(path: &Path) -> String {
    let read = || fs::read_to_string(path).unwrap();
    let is_named = |text: &String| text.contains("patient.rs:");
    wait_for_seeing("the names in the report", BOUND, || Some(read()).filter(is_named), read)
}

/// The part of a report that is about a thread.
fn of_thread<'a>(report: &'a str, name: &str) -> &'a str {
    let at = report.find(name).unwrap_or_else(|| panic!("no {name} in {report}"));
    let rest = &report[at..];
    rest.find("\n\n").map_or(rest, |end| &rest[..end])
}

#[test]
fn fault_01_the_report_names_both_threads_of_a_deadlock_their_lines_and_their_locks() {
    let report = reported("deadlock");
    assert!(report.starts_with("why: `transfer` has made no progress"), "{report}");
    let stuck = report
        .split("\n\n")
        .filter(|part| part.contains("deadlock") && part.contains("patient.rs:"));
    let stuck: Vec<&str> = stuck.collect();
    assert_eq!(stuck.len(), 2, "{report}");
    for thread in stuck {
        assert!(thread.contains("patient.rs:") && thread.contains("call 202 0x"), "{thread}");
        assert!(thread.contains("Mutex"), "{thread}");
    }
    // The allocator's numbers, beside what the program counts itself.
    let heap = of_thread(&report, "== heap\nallocator: ");
    let in_use = heap.split("allocator: ").nth(1).and_then(|it| it.split(' ').next()).unwrap();
    assert!(in_use.parse::<u64>().unwrap() > 1_000, "{heap}");
    assert!(heap.contains(" bytes free, ") && heap.ends_with("\naccounts: 2 entries"), "{heap}");
    for part in ["== watches\ntransfer: ", "phase commit", "VmRSS:", "Rss:", " open\n"] {
        assert!(report.contains(part), "{part}: {report}");
    }
}

#[test]
fn fault_02_the_report_shows_where_a_thread_spins() {
    let report = reported("spin");
    let spinning = of_thread(&report, "spin_here at ");
    assert!(spinning.contains("patient.rs:"), "{report}");
    let head = report.split("\n\n").find(|part| part.contains("spin_here")).unwrap();
    assert!(head.contains("` R, "), "it runs: {head}");
}

#[test]
fn fault_08_the_stack_of_a_thread_that_no_signal_reaches_is_read_from_outside() {
    let report = reported("blocks-signals");
    // The monitor blocks every signal.
    let monitor = of_thread(&report, "`lv-monitor`");
    assert!(monitor.contains("Rounds"), "{monitor}");
}

#[test]
fn fault_39_fifty_threads_are_copied_in_milliseconds_and_all_are_in_the_report() {
    let folder = TempDir::new().unwrap();
    let mut command = Patient::command(&[], "many-threads");
    let mut patient = Patient::spawn(command.env(REPORTS, folder.path()));
    let micros: u64 = patient.until("DUMPED ").parse().unwrap();
    // The bound of the benchmark is 5 ms on a quiet machine; here others are at work.
    assert!(micros < 100_000, "{micros} µs");
    let second = || found(folder.path()).get(1).map(|found| found.path.clone());
    let report = named(&wait_for("the second report", BOUND, second));
    for number in 0..50 {
        let thread = of_thread(&report, &format!("`waiter-{number}`"));
        assert!(thread.contains("for_ever"), "{thread}");
    }
}
