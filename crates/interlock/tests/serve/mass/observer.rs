//! Looks at a running `serve` from outside, all the while: its health, its memory, and what the ledger says that happened.

use std::{
    collections::BTreeMap,
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    path::{Path, PathBuf},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicU32, Ordering::SeqCst},
    },
    thread::{self, JoinHandle},
    time::Duration,
};

use interlock_store::{Store, block_on};
use interlock_wait::ThreadWithin as _;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const HEALTH_EVERY: Duration = Duration::from_millis(250);
const EVENTS_EVERY: Duration = Duration::from_millis(100);
/// How long an answer of `/healthz` or `/readyz` may take.
const ANSWERED_IN: Duration = Duration::from_secs(10);
const PAGE: usize = 5_000;

/// Opens the store to be read; nothing while it is not there yet.
pub(crate) type Opener = Box<dyn Fn() -> Option<Arc<dyn Store>> + Send>;

/// What was seen so far.
#[derive(Debug, Default, Clone)]
pub(crate) struct Sightings {
    /// Answers of `/healthz` that were not 200, each with its time.
    pub(crate) unhealthy: Vec<String>,
    /// The same of `/readyz`, once it was ready for the first time since its start.
    pub(crate) unready: Vec<String>,
    pub(crate) is_ready: bool,
    /// The longest that each loop has not come round, in seconds.
    pub(crate) still: BTreeMap<String, f64>,
    pub(crate) rss_mb: f64,
    /// The events of each kind.
    pub(crate) events: BTreeMap<String, EventSightings>,
}

/// Events of one kind: how many, and when the first and the last of them were seen in the ledger.
#[derive(Debug, Clone)]
pub(crate) struct EventSightings {
    pub(crate) count: usize,
    first: Timestamp,
    last: Timestamp,
}

impl Sightings {
    pub(crate) fn events_of(&self, kind: &str) -> usize {
        self.events.get(kind).map_or(0, |of_kind| of_kind.count)
    }

    /// How long it took until all events of a kind had come.
    pub(crate) fn burst_of(&self, kind: &str) -> SignedDuration {
        let of_kind = self.events.get(kind);
        of_kind.map_or(SignedDuration::ZERO, |it| it.last.duration_since(it.first))
    }

    /// When the last event of a kind was seen in the ledger.
    pub(crate) fn last_of(&self, kind: &str) -> Option<Timestamp> {
        self.events.get(kind).map(|of_kind| of_kind.last)
    }

    /// The longest that any loop has not come round.
    pub(crate) fn longest_still(&self) -> f64 {
        self.still.values().copied().fold(0.0, f64::max)
    }
}

/// Two threads that look, until they are told to end.
pub(crate) struct Observer {
    seen: Arc<Mutex<Sightings>>,
    ends: Arc<AtomicBool>,
    /// The process that is looked at; none while there is none.
    pid: Arc<AtomicU32>,
    threads: Vec<JoinHandle<()>>,
}

impl Observer {
    pub(crate) fn start(folder: &Path, opener: Opener) -> Self {
        let seen: Arc<Mutex<Sightings>> = Arc::default();
        let (ends, pid): (Arc<AtomicBool>, Arc<AtomicU32>) = Default::default();
        let health = Looker {
            seen: Arc::clone(&seen),
            ends: Arc::clone(&ends),
            pid: Arc::clone(&pid),
            http: folder.join("http.json"),
        };
        let ledger = (Arc::clone(&seen), Arc::clone(&ends));
        let threads = vec![
            thread::spawn(move || health.look_at_health()),
            thread::spawn(move || follow(&ledger.0, &ledger.1, &opener)),
        ];
        Self { seen, ends, pid, threads }
    }

    /// From now on this process is looked at; 0 for none.
    pub(crate) fn look_at(&self, pid: u32) {
        lock(&self.seen).is_ready = false;
        self.pid.store(pid, SeqCst);
    }

    pub(crate) fn seen(&self) -> Sightings {
        lock(&self.seen).clone()
    }
}

impl Drop for Observer {
    fn drop(&mut self) {
        self.ends.store(true, SeqCst);
        for thread in self.threads.drain(..) {
            let _panicked = thread.join_within("an observer's end", Duration::from_mins(1));
        }
    }
}

fn lock(seen: &Mutex<Sightings>) -> MutexGuard<'_, Sightings> {
    seen.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Who asks for health.
struct Looker {
    seen: Arc<Mutex<Sightings>>,
    ends: Arc<AtomicBool>,
    pid: Arc<AtomicU32>,
    http: PathBuf,
}

impl Looker {
    fn look_at_health(&self) {
        // Bounded: the observer's end, which its drop waits for.
        while !self.ends.load(SeqCst) {
            let pid = self.pid.load(SeqCst);
            if pid != 0 {
                self.look_once(pid);
            }
            thread::sleep(HEALTH_EVERY);
        }
    }

    fn look_once(&self, pid: u32) {
        let Some(address) = address(&self.http) else { return };
        let (healthz, readyz) = (get(address, "/healthz"), get(address, "/readyz"));
        // Who was killed meanwhile is not unhealthy.
        if self.pid.load(SeqCst) != pid {
            return;
        }
        let mut seen = lock(&self.seen);
        seen.rss_mb = seen.rss_mb.max(rss_mb(pid).unwrap_or(0.0));
        let is_ready = readyz.starts_with("200");
        seen.is_ready |= is_ready;
        // A start is no trouble: nothing counts before it was ready once.
        if !seen.is_ready {
            return;
        }
        if !is_ready {
            seen.unready.push(format!("{} {readyz}", Timestamp::now()));
        }
        if !healthz.starts_with("200") {
            seen.unhealthy.push(format!("{} {healthz}", Timestamp::now()));
        }
        let body = healthz.split_once(' ').map_or("", |(_, body)| body);
        let body: Value = serde_json::from_str(body).unwrap_or_default();
        for pulse in body["loops"].as_array().into_iter().flatten() {
            let name = pulse["name"].as_str().unwrap_or_default().to_owned();
            let still = pulse["stillForSeconds"].as_f64().unwrap_or(0.0);
            let longest = seen.still.entry(name).or_default();
            *longest = longest.max(still);
        }
    }
}

/// Where the process listens.
pub(crate) fn address(http: &Path) -> Option<SocketAddr> {
    let told: Value = serde_json::from_str(&fs::read_to_string(http).ok()?).ok()?;
    told["address"].as_str()?.parse().ok()
}

/// The status and the body of an answer, or why there is none.
pub(crate) fn get(address: SocketAddr, path: &str) -> String {
    let ask = || -> std::io::Result<String> {
        let mut stream = TcpStream::connect_timeout(&address, ANSWERED_IN)?;
        stream.set_read_timeout(Some(ANSWERED_IN))?;
        let text = format!("GET {path} HTTP/1.1\r\nhost: {address}\r\nconnection: close\r\n\r\n");
        stream.write_all(text.as_bytes())?;
        let mut answer = String::new();
        stream.read_to_string(&mut answer)?;
        let status = answer.split(' ').nth(1).unwrap_or_default();
        let body = answer.split_once("\r\n\r\n").map_or("", |(_, body)| body);
        Ok(format!("{status} {body}"))
    };
    ask().unwrap_or_else(|error| format!("no answer: {error}"))
}

fn rss_mb(pid: u32) -> Option<f64> {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"))?;
    let kib: f64 = line.trim().trim_end_matches(" kB").parse().ok()?;
    Some(kib / 1024.0)
}

/// Reads what the ledger says, page by page.
fn follow(seen: &Mutex<Sightings>, ends: &AtomicBool, opener: &Opener) {
    let (mut store, mut after) = (None, 0);
    // Bounded: the observer's end, which its drop waits for.
    while !ends.load(SeqCst) {
        store = store.or_else(opener);
        let page = store.as_ref().map(|store| block_on(store.events(None, after, PAGE)));
        let mut has_more = false;
        match page {
            Some(Ok(page)) => {
                let now = Timestamp::now();
                let mut seen = lock(seen);
                for row in page.items {
                    after = row.number;
                    let is_declared = row.record.kind == "PIPELINE_DECLARED";
                    // A miss of the neighbour is a fault of its own, and not the last of the event.
                    if row.pipeline.as_str() == "neighbour" && !is_declared {
                        continue;
                    }
                    let kind = row.record.kind.to_string();
                    let none = EventSightings { count: 0, first: now, last: now };
                    let of_kind = seen.events.entry(kind).or_insert(none);
                    (of_kind.count, of_kind.last) = (of_kind.count + 1, now);
                }
                has_more = page.more;
            }
            Some(Err(_away)) => store = None,
            None => {}
        }
        if !has_more {
            thread::sleep(EVENTS_EVERY);
        }
    }
}
