//! What must end, ends: in time, and not before.

use std::{
    process::Stdio,
    time::{Duration, Instant},
};

use interlock_wait::{BOUND, CommandWithin as _};

use crate::{
    Patient, is_between,
    patient::{ENDS, LIMIT, SLACK},
    signal_of,
};

const ABORTED: i32 = 6;
const KILLED: i32 = 9;
/// A machine that is busy with other tests is late, never early.
const LATE: Duration = Duration::from_secs(3);

fn millis(age: &str) -> Duration {
    let age = age.split_whitespace().next().unwrap();
    Duration::from_millis(age.parse().unwrap())
}

/// Follows a patient through the whole ladder.
fn expires_and_aborts(patient: &mut Patient) {
    for (rung, after) in [("late", LIMIT / 2), ("soft", LIMIT), ("hard", ENDS)] {
        let age = patient.until(&format!("EXPIRED {rung} "));
        assert!(is_between(millis(&age), after, after + LATE), "{rung}: {age}");
    }
    assert_eq!(signal_of(patient.ends()), Some(ABORTED), "{:?}", patient.heard());
    assert!(patient.began.elapsed() >= ENDS);
}

#[test]
fn fault_01_two_threads_in_a_deadlock_are_named_and_the_process_leaves() {
    let mut patient = Patient::start("deadlock");
    expires_and_aborts(&mut patient);
    assert!(patient.said("`transfer`") && patient.said("in commit"), "{:?}", patient.heard());
}

#[test]
fn fault_02_an_endless_loop_is_ended() {
    expires_and_aborts(&mut Patient::start("spin"));
}

#[test]
fn fault_10_a_monitor_that_hangs_is_ended_by_the_kernel() {
    let mut patient = Patient::start("hung-monitor");
    assert_eq!(patient.until("DEADMAN "), "Some(Kill)");
    patient.until("HUNG");
    patient.until("NOT LIVE");
    assert_eq!(signal_of(patient.ends()), Some(KILLED));
    assert!(is_between(patient.began.elapsed(), SLACK, SLACK + LATE));
}

#[test]
fn fault_11_a_hook_that_never_returns_stops_nothing_and_the_fence_was_revoked_before_it() {
    let mut patient = Patient::start("hung-hook");
    assert_eq!(patient.until("HOOK "), "term held: false");
    assert_eq!(signal_of(patient.ends()), Some(ABORTED));
    assert!(is_between(patient.began.elapsed(), ENDS, ENDS + LATE));
}

#[test]
fn fault_10_a_monitor_that_panics_ends_the_process() {
    let mut patient = Patient::start("panicking-monitor");
    patient.until("READY");
    assert_eq!(signal_of(patient.ends()), Some(ABORTED));
}

#[test]
fn fault_12_a_log_that_takes_nothing_stops_nothing_and_what_it_lost_is_counted() {
    let mut patient = Patient::start("blocked-log");
    patient.until("LOST");
    let began = Instant::now();
    assert_eq!(signal_of(patient.ends()), Some(ABORTED));
    assert!(is_between(began.elapsed(), ENDS / 2, ENDS + LATE));
}

#[test]
fn fault_13_a_process_that_stays_stopped_is_ended_by_the_kernel() {
    let mut patient = Patient::start("kicks-deadman");
    patient.until("READY");
    patient.signal("-STOP");
    assert_eq!(signal_of(patient.ends()), Some(KILLED));
}

#[test]
fn fault_19_process_1_is_ended_by_a_signal_that_it_handles() {
    let unshare = ["unshare", "--pid", "--fork", "--kill-child"];
    let mut patient = Patient::start_by(&unshare, "hung-monitor");
    let Some(way) = patient.find("DEADMAN ") else {
        println!("only root may make a namespace: not tried");
        return;
    };
    assert_eq!(way, "Some(Exit)");
    assert_eq!(patient.ends().code(), Some(113), "{:?}", patient.heard());
    // The hard end works there too, although a signal with no handler does nothing to process 1.
    let mut patient = Patient::start_by(&unshare, "spin");
    let ended = patient.ends();
    assert!(signal_of(ended).is_some() || ended.code() > Some(128), "{ended:?}");
    assert!(is_between(patient.began.elapsed(), ENDS, ENDS + LATE));
}

#[test]
fn fault_35_a_debugger_holds_the_ladder_below_the_hard_end() {
    let mut command = Patient::command(&["strace", "-f", "-o", "/dev/null"], "spin");
    if std::process::Command::new("strace")
        .arg("-V")
        .stdout(Stdio::null())
        .status_within(BOUND)
        .is_err()
    {
        println!("strace is not here: not tried");
        return;
    }
    let mut patient = Patient::spawn(&mut command);
    patient.until("HELD ");
    // Whoever is held outlives the one who held it.
    let strace = patient.child.id();
    let held = std::fs::read_to_string(format!("/proc/{strace}/task/{strace}/children")).unwrap();
    for pid in held.split_whitespace() {
        let kill = std::process::Command::new("kill").args(["-KILL", pid]).status_within(BOUND);
        assert!(kill.unwrap().success());
    }
}

#[test]
fn fault_37_a_pause_that_is_forgotten_expires_after_its_bound_under_its_name() {
    let mut patient = Patient::start("forgotten-pause");
    let age = patient.until("EXPIRED soft ");
    assert!(is_between(millis(&age), LIMIT * 2, LIMIT * 2 + LATE), "{age}");
    assert!(age.contains("paused:vendor call"), "{age}");
    assert_eq!(signal_of(patient.ends()), Some(ABORTED));
}
