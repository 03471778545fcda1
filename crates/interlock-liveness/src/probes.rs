//! Answers for Kubernetes and load balancers, from a thread that no runtime can hold up.
//!
//! A server on the runtime that hangs answers nobody, which is right for it and late: the probe times out a few times
//! first. And one on another runtime says that all is well. This thread needs nothing of the process but what the
//! monitor found: it reads a line, answers it and hangs up.

use std::{
    io::{self, Read as _, Write as _},
    net::{SocketAddr, TcpListener, TcpStream, ToSocketAddrs},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
    thread::JoinHandle,
    time::Duration,
};

use crate::{
    clock::monotonic,
    ladder::Rung,
    status::{Probe, WatchStatus},
};

/// How long somebody may take to ask, and to listen: others wait meanwhile.
const PATIENCE: Duration = Duration::from_millis(500);
/// A request's first line is shorter.
const LINE_MAX: usize = 1_024;

/// `GET /livez` and `GET /readyz`, until it is dropped.
#[derive(Debug)]
pub struct Probes {
    address: SocketAddr,
    stops: Arc<AtomicBool>,
    thread: Option<JoinHandle<()>>,
}

impl Probes {
    /// Listens, and answers what the probe says.
    pub fn listen(address: impl ToSocketAddrs, probe: Probe) -> io::Result<Self> {
        let listener = TcpListener::bind(address)?;
        let address = listener.local_addr()?;
        let stops = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&stops);
        let thread = std::thread::Builder::new()
            .name("lv-probes".to_owned())
            .spawn(move || answer_all(&listener, &probe, &told))?;
        Ok(Self { address, stops, thread: Some(thread) })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Probes {
    fn drop(&mut self) {
        self.stops.store(true, Relaxed);
        // Whoever waits for a connection gets one.
        let mut address = self.address;
        if address.ip().is_unspecified() {
            address.set_ip(if address.is_ipv4() {
                std::net::Ipv4Addr::LOCALHOST.into()
            } else {
                std::net::Ipv6Addr::LOCALHOST.into()
            });
        }
        let came = TcpStream::connect_timeout(&address, PATIENCE).is_ok();
        if let Some(thread) = self.thread.take().filter(|_| came) {
            let _ended = thread.join();
        }
    }
}

fn answer_all(listener: &TcpListener, probe: &Probe, stops: &AtomicBool) {
    while !stops.load(Relaxed) {
        match listener.accept() {
            // Somebody who hangs up early has no answer to wait for.
            Ok((stream, _)) => drop(answer(stream, probe)),
            // No descriptor is left, most likely: that passes, or the process ends for it.
            Err(_) => std::thread::sleep(PATIENCE),
        }
    }
}

fn answer(mut stream: TcpStream, probe: &Probe) -> io::Result<()> {
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut line = [0; LINE_MAX];
    let asked = first_line(&mut stream, &mut line)?;
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
    write!(
        stream,
        "HTTP/1.1 {status}\r\nContent-Type: text/plain\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
    )?;
    // What it still wants to say is of no interest, but an end with unread bytes would take the answer back.
    stream.shutdown(std::net::Shutdown::Write)?;
    let _rest = stream.read(&mut line)?;
    Ok(())
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

/// What stands before the first end of line; however slowly it comes, no longer than [`PATIENCE`] is waited.
fn first_line<'a>(stream: &mut TcpStream, line: &'a mut [u8]) -> io::Result<&'a str> {
    let until = monotonic().saturating_add(PATIENCE.as_nanos().try_into().unwrap_or(u64::MAX));
    let mut filled = 0;
    loop {
        let left = until.saturating_sub(monotonic());
        if left == 0 {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(Duration::from_nanos(left)))?;
        let room = line.get_mut(filled..).unwrap_or_default();
        let came = stream.read(room)?;
        filled += came;
        let so_far = line.get(..filled).unwrap_or_default();
        if came == 0 || filled == line.len() || so_far.contains(&b'\n') {
            break;
        }
    }
    let text = line.get(..filled).unwrap_or_default();
    let end = text.iter().position(|byte| *byte == b'\n').unwrap_or(text.len());
    let text = std::str::from_utf8(text.get(..end).unwrap_or_default());
    text.map(str::trim_end).map_err(io::Error::other)
}
