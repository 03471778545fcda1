//! What those hear who ask from outside.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    thread,
    time::{Duration, Instant},
};

use interlock_liveness::{Ladder, Monitor, Probes};
use interlock_wait::BOUND;

fn ask(address: SocketAddr, request: &str) -> String {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(BOUND)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = String::new();
    stream.read_to_string(&mut answer).unwrap();
    answer
}

fn get(address: SocketAddr, path: &str) -> String {
    ask(address, &format!("GET {path} HTTP/1.1\r\nHost: here\r\n\r\n"))
}

/// Asks until the answer begins so.
fn until(address: SocketAddr, path: &str, begins: &str) -> String {
    let began = Instant::now();
    loop {
        let answer = get(address, path);
        if answer.starts_with(begins) {
            return answer;
        }
        assert!(began.elapsed() < Duration::from_secs(20), "{path} says {answer}");
        thread::sleep(Duration::from_millis(5));
    }
}

#[test]
fn a_process_that_hangs_says_so_from_a_thread_of_its_own_and_is_live_until_it_is_to_be_ended() {
    let monitor = Monitor::builder().tick(Duration::from_millis(5)).start().unwrap();
    let ladder = Ladder::soft(Duration::from_millis(300));
    let watch = monitor.watch("worker", ladder).register().unwrap();
    let probes = Probes::listen("127.0.0.1:0", monitor.probe()).unwrap();
    let address = probes.address();
    watch.arm();
    let unproven = until(address, "/readyz", "HTTP/1.1 503 Service Unavailable\r\n");
    assert!(unproven.ends_with("\r\n\r\nnot every watch has moved yet\n"), "{unproven}");
    watch.kick();
    until(address, "/readyz", "HTTP/1.1 200 OK\r\n");
    let late = until(address, "/readyz", "HTTP/1.1 503 Service Unavailable\r\n");
    assert!(late.contains("\r\n\r\nworker has made no progress for 0."), "{late}");
    assert!(get(address, "/livez").starts_with("HTTP/1.1 200 OK\r\n"), "nobody is to be ended");
    watch.kick();
    until(address, "/readyz", "HTTP/1.1 200 OK\r\n");
    drop(probes);
    assert!(TcpStream::connect(address).is_err(), "nobody answers any more");
}

#[test]
fn who_has_just_begun_to_look_is_live_from_the_first_moment() {
    for _ in 0..100 {
        assert!(Monitor::builder().start().unwrap().probe().is_live());
    }
}

#[test]
fn bad_questions_are_answered_and_silent_ones_hold_up_nobody() {
    let monitor = Monitor::builder().start().unwrap();
    let probes = Probes::listen("127.0.0.1:0", monitor.probe()).unwrap();
    let address = probes.address();
    assert!(get(address, "/").starts_with("HTTP/1.1 404 "));
    assert!(ask(address, "POST /livez HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 400 "));
    assert!(ask(address, &"x".repeat(5_000)).starts_with("HTTP/1.1 400 "));
    let head = ask(address, "HEAD /livez HTTP/1.1\r\n\r\n");
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n") && head.ends_with("\r\n\r\n"), "{head}");
    // More than are heard at once: some say nothing, some half a line.
    let silent: Vec<TcpStream> = (0..100)
        .map(|number| {
            let mut stream = TcpStream::connect(address).unwrap();
            stream.write_all(if number % 2 == 0 { b"GET /li" } else { b"" }).unwrap();
            stream
        })
        .collect();
    for _ in 0..20 {
        let began = Instant::now();
        assert!(get(address, "/livez").starts_with("HTTP/1.1 200 OK\r\n"));
        assert!(began.elapsed() < Duration::from_millis(400), "{:?}", began.elapsed());
    }
    // Half a line and then the other half is a whole one, for whoever is still heard.
    let mut last = silent.iter().rev().nth(1).unwrap();
    last.set_read_timeout(Some(BOUND)).unwrap();
    last.write_all(b"vez HTTP/1.1\r\n\r\n").unwrap();
    let mut answer = String::new();
    last.read_to_string(&mut answer).unwrap();
    assert!(answer.starts_with("HTTP/1.1 200 OK\r\n"), "{answer}");
    let began = Instant::now();
    drop(probes);
    assert!(began.elapsed() < Duration::from_secs(1), "it ends although somebody is silent");
}
