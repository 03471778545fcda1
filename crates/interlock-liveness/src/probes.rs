//! Answers for Kubernetes and load balancers, from a thread that no runtime can hold up.
//!
//! A server on the runtime that hangs answers nobody, which is right for it and late: the probe times out a few times
//! first. And one on another runtime says that all is well. This thread needs nothing of the process but what the
//! monitor found. It reads a line, answers it and hangs up, for a bounded number of callers at once: whoever says nothing
//! holds up nobody.

mod caller;

use std::{
    io::{self, PipeReader, PipeWriter},
    net::{SocketAddr, TcpListener, ToSocketAddrs},
    thread::JoinHandle,
    time::Duration,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use self::caller::Caller;
use crate::{
    clock::monotonic,
    ladder::Rung,
    status::{Probe, WatchStatus},
};

/// So many are heard at once; for one more the one that came first has to go.
const CALLERS_MAX: usize = 64;
/// How often is looked for callers who took too long.
const LOOK_EVERY: Duration = Duration::from_millis(500);

/// `GET /livez` and `GET /readyz`, until it is dropped.
#[derive(Debug)]
pub struct Probes {
    address: SocketAddr,
    /// Closed to end the thread.
    stops: Option<PipeWriter>,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Listens, and answers what the probe says.
    pub fn listen(address: impl ToSocketAddrs, probe: Probe) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        let address = listener.local_addr()?;
        let (told, stops) = io::pipe()?;
        let thread = std::thread::Builder::new()
            .name("lv-probes".to_owned())
            .spawn(move || answer_all(&listener, &told, &probe))?;
        Ok(Self { address, stops: Some(stops), thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        drop(self.stops.take());
        if let Some(thread) = self.thread.take() {
            let _ended = thread.join();
        }
    }
}

fn answer_all(listener: &TcpListener, told: &PipeReader, probe: &Probe) {
    let timeout = Timespec { tv_sec: 0, tv_nsec: LOOK_EVERY.subsec_nanos().into() };
    let answer = |asked: &str| answer(asked, probe);
    let mut callers: Vec<Caller> = Vec::with_capacity(CALLERS_MAX + 1);
    loop {
        let wanted = callers.iter().map(|it| PollFd::new(it.stream(), it.awaits()));
        let doors = [PollFd::new(told, PollFlags::IN), PollFd::new(listener, PollFlags::IN)];
        let mut polled: Vec<PollFd<'_>> = doors.into_iter().chain(wanted).collect();
        let _interrupted = poll(&mut polled, Some(&timeout));
        let is_ready: Vec<bool> = polled.iter().map(|it| !it.revents().is_empty()).collect();
        let [is_over, is_called, ready @ ..] = is_ready.as_slice() else { return };
        if *is_over {
            return;
        }
        let now = monotonic();
        let mut ready = ready.iter();
        callers.retain_mut(|caller| {
            let is_ready = ready.next().is_some_and(|it| *it);
            (!is_ready || caller.proceed(answer).is_ok()) && !caller.is_late(now)
        });
        if *is_called {
            match listener.accept() {
                Ok((stream, _)) => callers.extend(Caller::new(stream, now).ok()),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                // No descriptor is left, most likely: that passes, or the process ends for it. The caller still waits at the door.
                Err(_) => std::thread::sleep(LOOK_EVERY / 10),
            }
        }
        if callers.len() > CALLERS_MAX {
            callers.remove(0);
        }
    }
}

/// All that is sent to whoever asks.
fn answer(asked: &str, probe: &Probe) -> String {
    let mut words = asked.split(' ');
    let (status, body) = match (words.next(), words.next()) {
        (Some("GET" | "HEAD"), Some("/livez")) => verdict(probe, Probe::is_live),
        (Some("GET" | "HEAD"), Some("/readyz")) => verdict(probe, Probe::is_ready),
        (Some("GET" | "HEAD"), Some(_)) => {
            ("404 Not Found", "ask for /livez or /readyz\n".to_owned())
        }
        _ => ("400 Bad Request", "ask with GET for /livez or /readyz\n".to_owned()),
    };
    let length = body.len();
    let body = if asked.starts_with("HEAD") { String::new() } else { body };
    format!(
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )
}

fn verdict(probe: &Probe, is_well: impl Fn(&Probe) -> bool) -> (&'static str, String) {
    let watches = probe.watches();
    let late = watches.iter().filter(|watch| watch.rung >= Rung::Soft);
    let body = late.map(sentence).collect::<String>();
    match (is_well(probe), body.is_empty()) {
        (true, true) => ("200 OK", "ok\n".to_owned()),
        (true, false) => ("200 OK", body),
        (false, true) => ("503 Service Unavailable", "not every watch has moved yet\n".to_owned()),
        (false, false) => ("503 Service Unavailable", body),
    }
}

fn sentence(watch: &WatchStatus) -> String {
    let (age, limit) = (watch.age.as_secs_f64(), watch.limit.as_secs_f64());
    format!("{} has made no progress for {age:.1} s; it may for {limit:.1} s\n", watch.name)
}
