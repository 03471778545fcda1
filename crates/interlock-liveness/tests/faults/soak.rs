//! False alarms: loops that are well on a machine that is full are never blamed.
//!
//! An expiry is false unless the loop waited for the disk and, by its own clock, took longer from one kick to the next than
//! its watch allows.

use std::{
    collections::BTreeSet,
    fs,
    path::Path,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{Event, Ladder, Monitor, Rung, Watch};
use interlock_wait::{BOUND, ChannelWithin as _, ThreadWithin as _};
use tempfile::TempDir;

/// For how many seconds, unless it is said.
const SECONDS: u64 = 4;
const VARIABLE: &str = "INTERLOCK_LIVENESS_SECONDS";
/// The shortest limit of a watch. The others are multiples of it.
const LIMIT: Duration = Duration::from_secs(1);
/// How many loops of each kind.
const LOOPS: u32 = 8;

/// Two threads for each processor that do nothing but take it.
fn hogs(stops: &Arc<AtomicBool>) {
    let processors = thread::available_parallelism().map_or(2, usize::from);
    for _ in 0..processors * 2 {
        let stops = Arc::clone(stops);
        thread::spawn(move || {
            // Bounded: the test stops them, and their process ends with it.
            while !stops.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
}

/// A loop that is well, and knows by its own clock how long it ever took from one kick to the next.
struct Loop {
    name: String,
    limit: Duration,
    thread: thread::JoinHandle<(Duration, u64)>,
}

fn go_round(watch: &Watch, stops: &AtomicBool, once: &dyn Fn()) -> (Duration, u64) {
    watch.arm();
    let (mut kicked, mut longest, mut rounds) = (Instant::now(), Duration::ZERO, 0);
    while !stops.load(Relaxed) {
        once();
        let before = Instant::now();
        watch.kick();
        // From before one kick to after the next: whoever was held up in between is not well.
        longest = longest.max(kicked.elapsed());
        (kicked, rounds) = (before, rounds + 1);
    }
    watch.disarm();
    (longest, rounds)
}

fn loops(monitor: &Monitor, stops: &Arc<AtomicBool>, folder: &Path) -> Vec<Loop> {
    let mut loops = Vec::new();
    for number in 1..=LOOPS {
        let mut go = |name: &str, once: Box<dyn Fn() + Send>| {
            let (name, limit) = (format!("{name} {number}"), LIMIT * number);
            let watch = monitor.watch(&name, Ladder::soft(limit)).register().unwrap();
            let stops = Arc::clone(stops);
            let thread = thread::spawn(move || go_round(&watch, &stops, &*once));
            loops.push(Loop { name, limit, thread });
        };
        let (pause, path) = (Duration::from_millis(number.into()), folder.join(number.to_string()));
        go("sleeps", Box::new(move || thread::sleep(pause)));
        go("allocates", Box::new(|| drop(std::hint::black_box(vec![1_u8; 1 << 20]))));
        go("writes", Box::new(move || fs::write(&path, [0; 4_096]).unwrap()));
    }
    loops
}

/// The watches that expire until a time is over.
fn expired(told: &mpsc::Receiver<Event>, seconds: u64) -> (BTreeSet<String>, u32) {
    let began = Instant::now();
    let (mut expired, mut stalls) = (BTreeSet::new(), 0);
    while let Some(left) = Duration::from_secs(seconds).checked_sub(began.elapsed()) {
        match told.recv_timeout(left) {
            Ok(Event::Expired(expiry)) if expiry.rung == Rung::Soft => {
                expired.insert(expiry.watch.to_string());
            }
            Ok(Event::Stalled { .. }) => stalls += 1,
            Ok(_) | Err(_) => {}
        }
    }
    (expired, stalls)
}

#[test]
fn fault_38_loops_that_are_well_are_not_blamed_while_the_machine_is_full() {
    let seconds = std::env::var(VARIABLE).map_or(SECONDS, |text| text.parse().unwrap());
    let (tell, told) = mpsc::channel();
    let listen = move |event: Event| tell.send(event).unwrap_or_default();
    let monitor = Monitor::builder().on_event(listen).start().unwrap();
    let stops = Arc::new(AtomicBool::new(false));
    let folder = TempDir::new().unwrap();
    hogs(&stops);
    let loops = loops(&monitor, &stops, folder.path());
    let (expired, stalls) = expired(&told, seconds);
    // And whoever really hangs is found on the same full machine.
    let stuck = monitor.watch("stuck", Ladder::soft(LIMIT)).register().unwrap();
    stuck.arm();
    let is_stuck = |event: &Event| matches!(event, Event::Expired(it) if &*it.watch == "stuck" && it.rung == Rung::Soft);
    told.find_within("the expiry of `stuck`", BOUND, is_stuck);
    stops.store(true, Relaxed);
    let (mut blamed, mut all, mut slowest) = (Vec::new(), 0, Duration::ZERO);
    for Loop { name, limit, thread } in loops {
        let (longest, rounds) =
            thread.join_within(&format!("the end of the loop that {name}"), BOUND).unwrap();
        assert!(rounds > 5, "{name} came round {rounds} times");
        (all, slowest) = (all + rounds, slowest.max(longest));
        // A disk that takes longer than its watch allows was noticed rightly. A full processor is no excuse.
        let is_rightly = name.starts_with("writes") && longest >= limit;
        if expired.contains(&name) && !is_rightly {
            blamed.push((name, longest, limit));
        }
    }
    println!(
        "{seconds} s, {all} rounds of {} loops, the slowest {slowest:?}; {stalls} stalls, {} watches expired, {} of them falsely",
        LOOPS * 3,
        expired.len(),
        blamed.len(),
    );
    assert!(blamed.is_empty(), "{blamed:?}");
}
