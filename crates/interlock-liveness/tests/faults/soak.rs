//! False alarms: loops that are well on a machine that is full are never blamed.

use std::{
    fs,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{Event, Ladder, Monitor, Rung, Watch};
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
            while !stops.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
}

/// A loop that is well: it does one thing again and again.
fn go_round(
    watch: Watch,
    stops: Arc<AtomicBool>,
    rounds: Arc<AtomicU64>,
    once: impl Fn() + Send + 'static,
) {
    thread::spawn(move || {
        watch.arm();
        while !stops.load(Relaxed) {
            once();
            watch.kick();
            rounds.fetch_add(1, Relaxed);
        }
        watch.disarm();
    });
}

#[test]
fn fault_38_loops_that_are_well_are_not_blamed_while_the_machine_is_full() {
    let seconds = std::env::var(VARIABLE).map_or(SECONDS, |text| text.parse().unwrap());
    let (tell, told) = mpsc::channel();
    let listen = move |event: Event| tell.send(event).unwrap_or_default();
    let monitor = Monitor::builder().on_event(listen).start().unwrap();
    let stops = Arc::new(AtomicBool::new(false));
    let rounds = Arc::new(AtomicU64::new(0));
    let folder = TempDir::new().unwrap();
    hogs(&stops);
    for number in 1..=LOOPS {
        let go = |name: &str, once: Box<dyn Fn() + Send>| {
            let ladder = Ladder::soft(LIMIT * number);
            let watch = monitor.watch(&format!("{name} {number}"), ladder).register().unwrap();
            go_round(watch, Arc::clone(&stops), Arc::clone(&rounds), once);
        };
        let (pause, path) =
            (Duration::from_millis(number.into()), folder.path().join(number.to_string()));
        go("sleeps", Box::new(move || thread::sleep(pause)));
        go("allocates", Box::new(|| drop(std::hint::black_box(vec![1_u8; 1 << 20]))));
        go("writes", Box::new(move || fs::write(&path, [0; 4_096]).unwrap()));
    }
    let began = Instant::now();
    let (mut blamed, mut stalls) = (Vec::new(), 0);
    while let Some(left) = Duration::from_secs(seconds).checked_sub(began.elapsed()) {
        match told.recv_timeout(left) {
            Ok(Event::Expired(expiry)) if expiry.rung >= Rung::Soft => blamed.push(expiry),
            Ok(Event::Stalled { .. }) => stalls += 1,
            Ok(_) | Err(_) => {}
        }
    }
    let watches = monitor.probe().watches();
    let longest = watches.iter().map(|it| it.longest_gap).max().unwrap();
    println!(
        "{seconds} s, {} watches, {} rounds, {} false expiries, {stalls} stalls; longest gap {longest:?}",
        watches.len(),
        rounds.load(Relaxed),
        blamed.len(),
    );
    assert!(blamed.is_empty(), "{blamed:?}");
    assert!(watches.iter().all(|it| it.moves > 5), "all of them moved: {watches:?}");
    // And whoever really hangs is found on the same full machine.
    let stuck = monitor.watch("stuck", Ladder::soft(LIMIT)).register().unwrap();
    stuck.arm();
    let is_stuck = |event: &Event| matches!(event, Event::Expired(it) if &*it.watch == "stuck" && it.rung == Rung::Soft);
    assert!(told.iter().any(|event| is_stuck(&event)));
    stops.store(true, Relaxed);
}
