//! What is well stays well, and what recovers is told so.

use std::{
    io::Write as _,
    process::Stdio,
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{Carrier, Event, Ladder, Monitor, RegisterError, Rung, Sign};
use interlock_wait::{BOUND, ChannelWithin as _, CommandWithin as _, wait_for};

use crate::Patient;

#[test]
fn fault_13_a_process_that_was_stopped_for_a_while_blames_no_watch() {
    let mut patient = Patient::start("kicks");
    patient.until("READY");
    patient.signal("-STOP");
    // What is tested is that time goes by while it stands still.
    thread::sleep(Duration::from_secs(2));
    patient.signal("-CONT");
    let stalled = patient.until("STALLED ");
    assert!(stalled.contains("it was stopped, or its machine was"), "{stalled}");
    patient.until("GOES ON");
    assert!(!patient.said("EXPIRED"), "{:?}", patient.heard());
}

#[test]
fn a_soft_watch_that_moves_again_is_ready_again_and_was_live_all_the_time() {
    let mut command = Patient::command(&[], "soft");
    let mut patient = Patient::spawn(command.stdin(Stdio::piped()));
    patient.until("READY");
    for rung in ["late", "soft", "release", "drain"] {
        patient.until(&format!("EXPIRED {rung} "));
    }
    writeln!(patient.child.stdin.take().unwrap(), "go on").unwrap();
    assert_eq!(patient.until("IS READY "), "false LIVE true");
    assert_eq!(patient.until("READY AGAIN "), "expiries 1");
    // Whoever tells of it has a thread of its own.
    if !patient.said("RECOVERED ") {
        patient.until("RECOVERED ");
    }
}

/// Beats into a file that can be opened, and never is: what a file system does whose disk is gone.
#[derive(Debug)]
struct HungDisk(std::path::PathBuf);

impl Carrier for HungDisk {
    fn carry(&mut self, _: &Sign) {
        let _never = std::fs::File::open(&self.0);
    }
}

#[test]
fn fault_22_a_heartbeat_disk_that_hangs_is_named_and_holds_up_nobody() {
    let folder = tempfile::TempDir::new().unwrap();
    let path = folder.path().join("beat");
    assert!(
        std::process::Command::new("mkfifo").arg(&path).status_within(BOUND).unwrap().success()
    );
    let (tell, told) = std::sync::mpsc::channel();
    let monitor = Monitor::builder()
        .beat(HungDisk(path.clone()))
        .beat_every(Duration::from_millis(50))
        .on_event(move |event| tell.send(event).unwrap_or_default())
        .start()
        .unwrap();
    let ladder = Ladder::soft(Duration::from_secs(2));
    let well = monitor.watch("well", ladder).register().unwrap();
    well.arm();
    let probe = monitor.probe();
    let named = wait_for("an expiry of the heartbeat", BOUND, || {
        well.kick();
        match told.recv_timeout(Duration::from_millis(5)) {
            Ok(Event::Expired(expiry)) if expiry.rung == Rung::Soft => Some(expiry),
            Ok(_) | Err(_) => None,
        }
    });
    assert_eq!(&*named.watch, "heartbeat", "{named}");
    assert!(probe.is_live() && probe.is_ready(), "that is for whoever listens to decide");
    assert!(probe.monitor().beats_lost > 10, "the others are dropped: {:?}", probe.monitor());
    // The monitor goes on judging.
    let stuck =
        monitor.watch("stuck", Ladder::soft(Duration::from_millis(200))).register().unwrap();
    stuck.arm();
    let is_stuck = |event: &Event| matches!(event, Event::Expired(it) if &*it.watch == "stuck");
    told.find_within("the expiry of `stuck`", BOUND, is_stuck);
    // Whoever hangs there may end now.
    std::fs::write(&path, "").unwrap();
}

#[test]
fn fault_36_watches_that_come_and_go_by_the_thousand_lose_no_expiry_and_blame_nobody_else() {
    let expired = std::sync::Arc::new(std::sync::Mutex::new(Vec::new()));
    let hears = std::sync::Arc::clone(&expired);
    let monitor = Monitor::builder()
        .capacity(600)
        .tick(Duration::from_millis(1))
        .on_event(move |event| {
            if let Event::Expired(expiry) = event
                && expiry.rung == Rung::Soft
            {
                hears.lock().unwrap().push(expiry.watch);
            }
        })
        .start()
        .unwrap();
    let ladder = Ladder::soft(Duration::from_secs(2));
    let stuck = monitor.watch("stuck", ladder).aside().register().unwrap();
    stuck.arm();
    let (mut made, counter) = (0, std::sync::Arc::new(AtomicU64::new(0)));
    let began = Instant::now();
    while expired.lock().unwrap().is_empty() {
        assert!(began.elapsed() < BOUND, "no watch expired; {made} came and went");
        let mut alive = Vec::new();
        for at in 0..100 {
            match monitor.watch(&format!("short {at}"), ladder).register() {
                Ok(watch) => {
                    watch.arm();
                    watch.kick();
                    alive.push(watch);
                }
                // Those that were dropped are not freed yet.
                Err(RegisterError::Full(_)) => thread::yield_now(),
                Err(error) => panic!("{error}"),
            }
            let read = std::sync::Arc::clone(&counter);
            let observed = monitor.watch("counter", ladder).observe(move || read.load(Relaxed));
            drop(observed);
        }
        made += alive.len();
    }
    let names: Vec<String> = expired.lock().unwrap().iter().map(ToString::to_string).collect();
    assert_eq!(names, ["stuck"]);
    assert!(made > 10_000, "{made}");
    println!("{made} watches came and went");
    drop(stuck);
}
