//! The parts that a sick process plays.

use std::{
    io::{Write as _, stdout},
    process::Command,
    sync::{Arc, Barrier, Mutex, mpsc},
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{
    BootInstant, Builder, Deadman, Event, FenceCell, Ladder, Monitor, Phase, Rung, Watch,
    forensics::Forensics,
    heartbeat::{Ear, FileBeat, Heard, inherited},
};
use interlock_wait::{BOUND, ChannelWithin as _, wait_until};

/// When the watches of patients expire.
pub(crate) const LIMIT: Duration = Duration::from_millis(400);
/// When they end the process.
pub(crate) const ENDS: Duration = Duration::from_millis(1_200);
/// How long after that the kernel does.
pub(crate) const SLACK: Duration = Duration::from_secs(2);

/// Where reports are to be written.
pub(crate) const REPORTS: &str = "LIVENESS_REPORTS";

/// Says a line at once.
pub(crate) fn say(line: &str) {
    println!("{line}");
    stdout().flush().unwrap();
}

fn tell(event: &Event) {
    match event {
        Event::Expired(expiry) => {
            say(&format!("EXPIRED {} {} {}", expiry.rung, expiry.age.as_millis(), event));
        }
        Event::Recovered(_) => say(&format!("RECOVERED {event}")),
        Event::Stalled { .. } => say(&format!("STALLED {event}")),
        Event::Held(_) => say(&format!("HELD {event}")),
        Event::BreakerOpened(_) | Event::BreakerClosed(_) | Event::TermEnded(_) => {
            say(&format!("EVENT {event}"));
        }
    }
}

/// The helper of a patient: it is started with more arguments than a test.
fn help() {
    let arguments: Vec<String> = std::env::args().collect();
    let own = &arguments[arguments.len() - 4..];
    interlock_liveness::forensics::help(own, |_| {}).unwrap();
}

/// A monitor whose reports are written where the test wants them, if it does.
fn monitor() -> Builder {
    let builder = Monitor::builder().on_event(|event| tell(&event));
    let Ok(folder) = std::env::var(REPORTS) else { return builder };
    let mut helper = Command::new(std::env::current_exe().unwrap());
    helper.args(["--exact", "patient", "--nocapture"]).env(crate::PART, "helper");
    let forensics = Forensics::start(helper, folder, "patient").unwrap();
    builder.forensics(forensics.saying(|out| {
        let _full = writeln!(out, "accounts: 2 entries");
    }))
}

fn ladder() -> Ladder {
    Ladder::hard(LIMIT, ENDS)
}

/// Longer than a test waits. A process that no test ended, because the test was killed itself, then ends by itself.
fn for_ever() -> ! {
    let began = Instant::now();
    while began.elapsed() < BOUND * 3 {
        thread::park_timeout(BOUND);
    }
    std::process::abort();
}

pub(crate) fn play(part: &str) {
    match part {
        "helper" => return help(),
        "deadlock" => deadlock(),
        "blocks-signals" => blocks_signals(),
        "many-threads" => many_threads(),
        "spin" => spin(),
        "supervise" => return crate::supervised::supervise(),
        "beats" => beats(),
        "full-disk" => return full_disk(),
        "hung-hook" => hung_hook(),
        "blocked-log" => blocked_log(),
        "hung-monitor" => hung_monitor(),
        "panicking-monitor" => panicking_monitor(),
        "kicks" => kicks(),
        "kicks-hungry" => kicks_hungry(),
        "kicks-deadman" => kicks_deadman(),
        "forgotten-pause" => forgotten_pause(),
        "soft" => soft(),
        other => panic!("no part `{other}`"),
    }
    for_ever();
}

/// Two threads that each hold what the other wants.
fn deadlock() {
    let monitor = monitor().start().unwrap();
    let watch = monitor.watch("transfer", ladder()).register().unwrap();
    let (a, b) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(())));
    let both = Arc::new(Barrier::new(2));
    let (a2, b2, both2) = (Arc::clone(&a), Arc::clone(&b), Arc::clone(&both));
    thread::spawn(move || {
        let _held = b2.lock();
        // Bounded: the test that started this process kills it at its own bound.
        both2.wait();
        let _never = a2.lock();
        for_ever();
    });
    watch.arm();
    watch.kick();
    let _phase = watch.phase(Phase::named("commit"));
    let _held = a.lock();
    // Bounded: the test that started this process kills it at its own bound.
    both.wait();
    let _never = b.lock();
    for_ever();
}

#[inline(never)]
fn spin_here() {
    // Bounded: the test that started this process kills it at its own bound.
    loop {
        std::hint::spin_loop();
    }
}

fn spin() {
    let monitor = monitor().start().unwrap();
    let watch = monitor.watch("spinner", ladder()).register().unwrap();
    watch.arm();
    spin_here();
}

/// The hook that gives the lease back never comes back itself.
fn hung_hook() {
    let monitor = monitor().start().unwrap();
    let fence = FenceCell::default();
    let term = fence.grant(3, BootInstant::now().after(Duration::from_mins(1))).unwrap();
    let watch = monitor.watch("leader", ladder()).guards(&fence);
    let watch = watch.on(Rung::Soft, move |_| {
        let held = term.check(Duration::ZERO).is_ok();
        say(&format!("HOOK term held: {held}"));
        for_ever();
    });
    let watch = watch.register().unwrap();
    watch.arm();
    for_ever();
}

/// Whoever listens to events never comes back, and there is more to tell than anybody keeps.
fn blocked_log() {
    let monitor = Monitor::builder().on_event(|_| for_ever()).start().unwrap();
    let crowd = (0..40).map(|number| {
        let watch = monitor.watch(&format!("one of many {number}"), Ladder::soft(LIMIT / 4));
        watch.aside().register().unwrap()
    });
    let crowd: Vec<Watch> = crowd.inspect(Watch::arm).collect();
    let probe = monitor.probe();
    let loses = || probe.monitor().events_lost > 0;
    wait_until("events that the monitor loses", Duration::from_secs(10), loses);
    say("LOST");
    let watch = monitor.watch("worker", ladder()).register().unwrap();
    watch.arm();
    drop(crowd);
    for_ever();
}

/// The monitor's thread panics, in a counter that cannot be read.
fn panicking_monitor() {
    let monitor = monitor().start().unwrap();
    say("READY");
    let _observed = monitor.watch("counter", ladder()).observe(|| panic!("on purpose")).unwrap();
    for_ever();
}

/// The monitor itself is made to hang, by a counter that cannot be read.
fn hung_monitor() {
    let monitor = monitor().deadman(Deadman::Kernel { slack: SLACK }).start().unwrap();
    say(&format!("DEADMAN {:?}", monitor.deadman()));
    let probe = monitor.probe();
    let (hangs, hung) = mpsc::channel();
    let read = move || {
        hangs.send(()).unwrap();
        for_ever();
    };
    let _observed = monitor.watch("counter", ladder()).observe(read).unwrap();
    hung.recv_within("the counter to hang", BOUND);
    say("HUNG");
    wait_until("the probe to say that it is not live", BOUND, || !probe.is_live());
    say("NOT LIVE");
    for_ever();
}

/// A loop that is well: it kicks until it is told otherwise.
fn kick_on(monitor: &Monitor) {
    let watch = monitor.watch("worker", ladder()).register().unwrap();
    watch.arm();
    let (began, mut said) = (Instant::now(), false);
    let (mut last, mut since_gap) = (began, None);
    loop {
        watch.kick();
        thread::sleep(Duration::from_millis(5));
        if !said && began.elapsed() > LIMIT / 2 {
            said = true;
            say("READY");
        }
        // Whoever was stopped says so when it has gone on for longer than its watch allows.
        let now = Instant::now();
        if now - last > LIMIT * 2 {
            since_gap = Some(now);
        }
        last = now;
        if since_gap.take_if(|gap| now - *gap > LIMIT).is_some() {
            say("GOES ON");
        }
    }
}

fn kicks() {
    kick_on(&monitor().start().unwrap());
}

/// Well, beside somebody who takes all there is of the processor.
fn kicks_hungry() {
    thread::spawn(spin_here);
    kicks();
}

fn kicks_deadman() {
    kick_on(&monitor().deadman(Deadman::Kernel { slack: SLACK }).start().unwrap());
}

fn forgotten_pause() {
    let monitor = monitor().start().unwrap();
    let watch = monitor.watch("worker", ladder()).register().unwrap();
    watch.arm();
    let pause = watch.pause(Phase::named("vendor call"), LIMIT * 2);
    std::mem::forget(pause);
    for_ever();
}

/// It stands still under a soft ladder, and moves again when it is told to.
fn soft() {
    let monitor = monitor().start().unwrap();
    let watch = monitor.watch("worker", Ladder::soft(LIMIT)).register().unwrap();
    let probe = monitor.probe();
    watch.arm();
    watch.kick();
    wait_until("the watch to be ready", BOUND, || probe.is_ready());
    say("READY");
    let mut line = String::new();
    // Bounded: the test that started this process kills it at its own bound.
    std::io::stdin().read_line(&mut line).unwrap();
    say(&format!("IS READY {} LIVE {}", probe.is_ready(), probe.is_live()));
    watch.kick();
    wait_until("the watch to be ready", BOUND, || probe.is_ready());
    let status = &probe.watches()[0];
    say(&format!("READY AGAIN expiries {}", status.expiries));
}

/// The thread that no signal reaches is the monitor's own.
fn blocks_signals() {
    let monitor = monitor().start().unwrap();
    let watch = monitor.watch("worker", ladder()).register().unwrap();
    watch.arm();
    for_ever();
}

/// Fifty threads that wait, one that hangs.
fn many_threads() {
    let all = Arc::new(Barrier::new(51));
    for number in 0..50 {
        let all = Arc::clone(&all);
        let name = format!("waiter-{number}");
        let wait = move || {
            // Bounded: the test that started this process kills it at its own bound.
            all.wait();
            for_ever();
        };
        thread::Builder::new().name(name).spawn(wait).unwrap();
    }
    // Bounded: the test that started this process kills it at its own bound.
    all.wait();
    let monitor = monitor().start().unwrap();
    let watch = monitor.watch("worker", Ladder::soft(LIMIT)).register().unwrap();
    let probe = monitor.probe();
    watch.arm();
    wait_until("two dumps", BOUND, || probe.monitor().dumps >= 2);
    say(&format!("DUMPED {}", probe.monitor().dump.as_micros()));
    for_ever();
}

/// Beats in every way that a supervisor gave it, until its loop hangs.
fn beats() {
    let mut builder = Monitor::builder().beat_every(Duration::from_millis(20));
    for carrier in inherited(|name| std::env::var(name).ok()).unwrap() {
        builder = builder.beat(carrier);
    }
    let monitor = builder.tick(Duration::from_millis(10)).start().unwrap();
    let watch =
        monitor.watch("worker", Ladder::soft(Duration::from_millis(200))).register().unwrap();
    watch.arm();
    let began = Instant::now();
    while began.elapsed() < Duration::from_millis(600) {
        watch.kick();
        thread::sleep(Duration::from_millis(5));
    }
    // From here on it makes no progress, although its threads are all alive.
    for_ever();
}

/// In a mount namespace of its own: a disk of sixteen kibibytes, filled up while beats go on.
fn full_disk() {
    let folder = std::env::var(REPORTS).unwrap();
    let path = format!("{folder}/beat");
    let monitor = Monitor::builder()
        .beat(FileBeat::create(&path).unwrap())
        .beat_every(Duration::from_millis(20))
        .start()
        .unwrap();
    let watch = monitor.watch("worker", ladder()).register().unwrap();
    watch.arm();
    let mut ear = Ear::file(&path);
    let mut beats = |wanted: u32| {
        let mut heard = 0;
        let began = Instant::now();
        while heard < wanted {
            assert!(began.elapsed() < BOUND, "{heard} of {wanted} beats");
            watch.kick();
            heard += u32::from(ear.listen() == Heard::Beat);
        }
    };
    beats(2);
    let full = std::fs::write(format!("{folder}/filler"), vec![0; 64 * 1_024]);
    assert!(full.is_err(), "the disk is larger than it should be");
    beats(5);
    say("STILL BEATING");
}
