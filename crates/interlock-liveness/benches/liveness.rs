//! What watching costs, and how late it is. Each limit of the issue is measured with its ceiling in the same run (`X@limit`).
//!
//! A plain program, because it plays several parts: with `LIVENESS_BENCH=helper` it is the helper of its own dumps, and with
//! `hangs` a program that a supervisor is to notice.

use std::{
    hint::black_box,
    path::Path,
    process::Command,
    sync::{
        Arc, Barrier,
        atomic::{AtomicBool, AtomicU64, Ordering::Relaxed},
        mpsc,
    },
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{
    Event, Ladder, Monitor, Rung, Watch,
    forensics::{Forensics, help},
    supervise::{Backoff, GiveUp, Note, Restart, Supervision, run},
};

const PART: &str = "LIVENESS_BENCH";
const KICKS: u32 = 200_000_000;
const WATCHES: usize = 10_000;
/// Rounds in which all watches are new, and are looked at at once.
const NEWCOMERS: usize = 20;
const HOGS: usize = 4;
const EXPIRIES: usize = 200;
const THREADS: usize = 50;
const DUMPS: usize = 40;
const HANGS: usize = 20;

fn main() {
    #[expect(clippy::disallowed_methods, reason = "a part is given by the environment")]
    let part = std::env::var(PART).unwrap_or_default();
    let arguments: Vec<String> = std::env::args().collect();
    if part == "helper" {
        let own = arguments.len() - 4;
        help(arguments.get(own..).unwrap_or_default(), |_| {}).expect("the helper helps");
        return;
    }
    let filter = arguments.get(1).filter(|it| !it.starts_with('-')).cloned().unwrap_or_default();
    for (name, measure) in [
        ("liveness/kick", kick as fn()),
        ("liveness/scan_10000", scan),
        ("liveness/detection", detection),
        ("liveness/dump_50_threads", dump),
        ("liveness/supervisor_notices", supervisor),
    ] {
        if name.contains(&filter) || filter.contains("liveness") {
            measure();
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Instant {
    Instant::now()
}

#[expect(clippy::print_stdout, reason = "results are printed")]
fn result(name: &str, seconds: f64) {
    println!("RESULT name={name} seconds={seconds:e}");
}

fn quantile(values: &mut [f64], part: f64) -> f64 {
    values.sort_by(f64::total_cmp);
    let last = u32::try_from(values.len().saturating_sub(1)).unwrap_or_default();
    values.get((f64::from(last) * part).round() as usize).copied().unwrap_or_default()
}

/// The best of five: what disturbs a measurement only ever makes it longer.
fn best(mut measure: impl FnMut() -> f64) -> f64 {
    (0..5).map(|_| measure()).fold(f64::MAX, f64::min)
}

fn kick() {
    let monitor = Monitor::builder().start().expect("a monitor");
    let watch =
        monitor.watch("bench", Ladder::soft(Duration::from_mins(1))).register().expect("a watch");
    watch.arm();
    let per_kick = |work: &dyn Fn()| {
        best(|| {
            let began = now();
            work();
            began.elapsed().as_secs_f64() / f64::from(KICKS)
        })
    };
    let kicks = |watch: &Watch| (0..KICKS).for_each(|_| black_box(watch).kick());
    result("liveness/kick", per_kick(&|| kicks(&watch)));
    // Of a full monitor two watches share a line: what a kick costs while the neighbour kicks without a pause.
    let full = Monitor::builder().capacity(64).start().expect("a monitor");
    let ladder = Ladder::soft(Duration::from_mins(1));
    let mut watches: Vec<Watch> =
        (0..64).map(|_| full.watch("bench", ladder).register().expect("a watch")).collect();
    let (neighbour, stops) = (watches.remove(0), &AtomicBool::new(false));
    let shared = thread::scope(|scope| {
        scope.spawn(move || {
            while !stops.load(Relaxed) {
                neighbour.kick();
            }
        });
        let shares = watches.get(31).expect("the other one of the first line");
        let measured = per_kick(&|| (0..KICKS / 10).for_each(|_| black_box(shares).kick())) * 10.0;
        stops.store(true, Relaxed);
        measured
    });
    result("liveness/kick_beside_a_neighbour", shared);
    // The least there is: a counter of its own.
    let counter = AtomicU64::new(0);
    let bump = || {
        (0..KICKS).for_each(|_| {
            let counter = black_box(&counter);
            counter.store(counter.load(Relaxed) + 1, Relaxed);
        });
    };
    result("liveness/kick@limit", per_kick(&bump));
}

/// Scans of watches that are looked at as often as their limits ask for.
fn scan() {
    let (mut still, mut moving) = scans(Duration::from_mins(1));
    result("liveness/scan_10000", quantile(&mut still, 0.5));
    result("liveness/scan_10000_p99", quantile(&mut still, 0.99));
    result("liveness/scan_10000_moving", quantile(&mut moving, 0.5));
    // All of them so impatient that every scan has to look at every one.
    let (mut still, mut moving) = scans(Duration::from_millis(160));
    result("liveness/scan_10000_impatient", quantile(&mut still, 0.5));
    result("liveness/scan_10000_impatient_moving", quantile(&mut moving, 0.5));
    let counters: Vec<Box<AtomicU64>> = (0..WATCHES).map(|_| Box::default()).collect();
    let ceiling = best(|| {
        let began = now();
        black_box(counters.iter().map(|it| it.load(Relaxed)).sum::<u64>());
        began.elapsed().as_secs_f64()
    });
    result("liveness/scan_10000@limit", ceiling);
}

/// How long scans take while nothing moves, and after everything moved.
fn scans(limit: Duration) -> (Vec<f64>, Vec<f64>) {
    let tick = Duration::from_millis(20);
    let monitor = Monitor::builder().capacity(WATCHES).tick(tick).start().expect("a monitor");
    let ladder = Ladder::soft(limit);
    let watches: Vec<Watch> = (0..WATCHES)
        .map(|at| monitor.watch(&format!("watch {at}"), ladder).register().expect("a watch"))
        .inspect(Watch::arm)
        .collect();
    let probe = monitor.probe();
    let (mut still, mut moving) = (Vec::new(), Vec::new());
    for round in 0..200 {
        if round % 2 == 0 {
            watches.iter().for_each(Watch::kick);
        }
        thread::sleep(Duration::from_millis(25));
        let took = probe.monitor().scan.as_secs_f64();
        if round < NEWCOMERS {
            continue;
        }
        if round % 2 == 0 { moving.push(took) } else { still.push(took) }
    }
    (still, moving)
}

/// How late an expiry is noticed while four threads use two cores.
fn detection() {
    let stops = Arc::new(AtomicBool::new(false));
    for _ in 0..HOGS {
        let stops = Arc::clone(&stops);
        thread::spawn(move || {
            while !stops.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
    }
    let limit = Duration::from_millis(40);
    let (tell, told) = mpsc::channel();
    let monitor = Monitor::builder()
        .on_event(move |event| {
            if let Event::Expired(expiry) = event
                && expiry.rung == Rung::Soft
            {
                tell.send(expiry.age).expect("somebody listens");
            }
        })
        .start()
        .expect("a monitor");
    let watch = monitor.watch("bench", Ladder::soft(limit)).register().expect("a watch");
    let mut late: Vec<f64> = (0..EXPIRIES)
        .map(|_| {
            watch.arm();
            let age = told.recv().expect("it expires");
            assert!(age >= limit, "too early: {age:?}");
            age.as_secs_f64() - limit.as_secs_f64()
        })
        .collect();
    stops.store(true, Relaxed);
    result("liveness/detection_late_p99", quantile(&mut late, 0.99));
}

fn helper() -> Command {
    let mut helper = Command::new(std::env::current_exe().expect("a path"));
    helper.env(PART, "helper");
    helper
}

fn dump() {
    let all = Arc::new(Barrier::new(THREADS + 1));
    for _ in 0..THREADS {
        let all = Arc::clone(&all);
        thread::spawn(move || {
            all.wait();
            loop {
                thread::park();
            }
        });
    }
    all.wait();
    let folder = tempfile::tempdir().expect("a folder");
    let forensics = Forensics::start(helper(), folder.path(), "bench").expect("a helper");
    let monitor = Monitor::builder().forensics(forensics.unlimited()).start().expect("a monitor");
    let watch = monitor
        .watch("bench", Ladder::soft(Duration::from_millis(100)))
        .register()
        .expect("a watch");
    let probe = monitor.probe();
    let mut took: Vec<f64> = (0..DUMPS)
        .map(|_| {
            let before = probe.monitor().dumps;
            watch.arm();
            while probe.monitor().dumps == before {
                thread::sleep(Duration::from_millis(1));
            }
            probe.monitor().dump.as_secs_f64()
        })
        .collect();
    result("liveness/dump_50_threads", quantile(&mut took, 0.5));
    result("liveness/dump_50_threads_p99", quantile(&mut took, 0.99));
}

/// How long after `max_age` a supervisor notices that a program hangs.
fn supervisor() {
    let max_age = Duration::from_millis(300);
    let folder = tempfile::tempdir().expect("a folder");
    let mut late = Vec::new();
    for at in 0..HANGS {
        let script = "i=0; while [ $i -lt 3 ]; do i=$((i+1)); echo $i > $INTERLOCK_HEARTBEAT_FILE; sleep 0.02; done; sleep 60";
        let path = folder.path().join(at.to_string());
        let supervision = Supervision {
            command: ["sh", "-c", script].map(Into::into).to_vec(),
            name: "bench".to_owned(),
            heartbeat: Some(path.join("beat")),
            max_age: Some(max_age),
            first_beat: Duration::from_secs(5),
            grace: Duration::from_millis(200),
            restart: Restart::Never,
            backoff: Backoff::default(),
            give_up: GiveUp::default(),
            folder: path.clone(),
        };
        let mut tell = |note: Note<'_>| {
            if let Note::Silent(_) = note {
                late.push(since_beat(&path).as_secs_f64() - max_age.as_secs_f64());
            }
        };
        run(&supervision, &mut tell).expect("it is supervised");
    }
    result("liveness/supervisor_late", quantile(&mut late, 0.99));
}

/// How long ago the last beat was, by the clock of the file system.
#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn since_beat(folder: &Path) -> Duration {
    let beat = folder.join("beat").metadata().and_then(|it| it.modified()).expect("a beat");
    std::time::SystemTime::now().duration_since(beat).unwrap_or_default()
}
