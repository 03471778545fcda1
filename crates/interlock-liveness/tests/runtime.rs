//! Workers of a real runtime, blocked and merely busy.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "real time is what is tested")]

use std::{
    io::{Read as _, Write as _},
    sync::mpsc,
    time::{Duration, Instant},
};

use interlock_liveness::{Event, Expiry, Monitor, Probes, Rung};
use interlock_wait::{BOUND, ChannelWithin as _, ThreadWithin as _};

const LIMIT: Duration = Duration::from_millis(500);

fn expiries() -> (Monitor, mpsc::Receiver<Expiry>) {
    let (tell, told) = mpsc::channel();
    let listen = move |event| {
        if let Event::Expired(expiry) = event
            && expiry.rung == Rung::Soft
        {
            tell.send(expiry).unwrap();
        }
    };
    (Monitor::builder().on_event(listen).start().unwrap(), told)
}

fn runtime(workers: usize) -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(workers)
        .enable_all()
        .build()
        .unwrap()
}

#[test]
fn fault_04_one_blocked_worker_of_four_is_found_and_the_others_are_not_blamed() {
    let (monitor, told) = expiries();
    let runtime = runtime(4);
    let _workers = monitor.watch_runtime("main", runtime.handle(), LIMIT).unwrap();
    let (release, released) = mpsc::channel::<()>();
    runtime.spawn(async move {
        let _until_the_test_is_over = released.recv_timeout(BOUND);
    });
    let expiry = told.recv_within("an expiry", BOUND);
    assert!(expiry.watch.starts_with("main worker "), "{expiry}");
    assert!(expiry.age >= LIMIT && expiry.age < LIMIT * 4, "{expiry}");
    assert_eq!(told.recv_timeout(LIMIT * 2), Err(mpsc::RecvTimeoutError::Timeout));
    release.send(()).unwrap();
}

#[test]
fn fault_05_all_blocked_workers_are_found() {
    let (monitor, told) = expiries();
    let runtime = runtime(2);
    let _workers = monitor.watch_runtime("main", runtime.handle(), LIMIT).unwrap();
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    for _ in 0..2 {
        let released = std::sync::Arc::clone(&released);
        runtime.spawn(async move {
            let _until_the_test_is_over = released.lock().unwrap().recv_timeout(BOUND);
        });
    }
    let mut names = [0, 1].map(|_| told.recv_within("two expiries", BOUND).watch);
    names.sort();
    assert_eq!(names.map(|name| name.to_string()), ["main worker 0", "main worker 1"]);
    assert!(monitor.probe().is_live(), "the probe answers from outside the runtime");
    drop(release);
}

#[test]
fn fault_05_a_runtime_of_one_thread_that_is_blocked_is_found_and_livez_answers_from_outside() {
    let (monitor, told) = expiries();
    let probes = Probes::listen("127.0.0.1:0", monitor.probe()).unwrap();
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    let _workers = monitor.watch_runtime("one", runtime.handle(), LIMIT).unwrap();
    let (release, released) = mpsc::channel::<()>();
    let blocked =
        std::thread::spawn(move || runtime.block_on(async move { released.recv_timeout(BOUND) }));
    assert_eq!(&*told.recv_within("an expiry", BOUND).watch, "one worker 0");
    let mut stream = std::net::TcpStream::connect(probes.address()).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(b"GET /livez HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    assert!(answer.contains("\r\n\r\none worker 0 has made no progress for "), "{answer}");
    drop(release);
    let blocked = blocked.join_within("the blocked runtime", BOUND).unwrap();
    assert_eq!(blocked, Err(mpsc::RecvTimeoutError::Disconnected), "nothing was sent");
}

#[test]
fn fault_07_an_exhausted_blocking_pool_is_found_and_no_worker_is_blamed() {
    let (monitor, told) = expiries();
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(16)
        .build()
        .unwrap();
    let _workers = monitor.watch_runtime("main", runtime.handle(), LIMIT).unwrap();
    let _pool = monitor.watch_blocking("main", runtime.handle(), LIMIT).unwrap();
    assert_eq!(told.recv_timeout(LIMIT * 2), Err(mpsc::RecvTimeoutError::Timeout), "it is well");
    let (release, released) = mpsc::channel::<()>();
    let released = std::sync::Arc::new(std::sync::Mutex::new(released));
    for _ in 0..16 {
        let released = std::sync::Arc::clone(&released);
        runtime.spawn_blocking(move || {
            let _until_the_test_is_over = released.lock().unwrap().recv_timeout(BOUND);
        });
    }
    let expiry = told.recv_within("an expiry", BOUND);
    assert_eq!(&*expiry.watch, "main blocking pool", "{expiry}");
    assert!(expiry.age >= LIMIT && expiry.age < LIMIT * 4, "{expiry}");
    assert_eq!(told.recv_timeout(LIMIT * 2), Err(mpsc::RecvTimeoutError::Timeout));
    drop(release);
}

#[test]
fn fault_06_a_runtime_that_is_saturated_but_moves_is_not_blamed() {
    let (monitor, told) = expiries();
    let runtime = runtime(2);
    let _workers = monitor.watch_runtime("main", runtime.handle(), LIMIT).unwrap();
    let ends = Instant::now() + LIMIT * 8;
    for _ in 0..16 {
        runtime.spawn(async move {
            while Instant::now() < ends {
                let busy = Instant::now();
                while busy.elapsed() < Duration::from_micros(200) {
                    std::hint::spin_loop();
                }
                tokio::task::yield_now().await;
            }
        });
    }
    assert_eq!(told.recv_timeout(LIMIT * 8), Err(mpsc::RecvTimeoutError::Timeout));
}
