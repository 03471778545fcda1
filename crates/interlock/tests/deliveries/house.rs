//! A notifier with the real channels on a real store, and a receiver that remembers what it heard: for tests and benchmarks.

use std::{
    collections::BTreeMap,
    net::SocketAddr,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use interlock_alert::{Book, Known, LocalChannels};
use interlock_config::server::{Alert as Declared, AlertFilter, AlertFormat, Channel};
use interlock_core::{id::PipelineId, incident::Alert, outbound::Outbound, pipeline::Secret};
use interlock_engine::{
    Notifier, NotifierParts, Patience,
    seam::{Task, World},
    vitals::Pulse,
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, Writer, block_on, record::OutboxRecord,
};
use interlock_trigger::web::Web;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use tokio::{
    io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader},
    net::{TcpListener, TcpStream},
    runtime::{Builder, Handle, Runtime},
};

/// The one channel.
pub(crate) const HOOK: &str = "hook";

/// Real time and real tasks.
struct RealWorld {
    runtime: Handle,
    began: Instant,
}

impl World for RealWorld {
    fn now(&self) -> Timestamp {
        now()
    }

    fn uptime(&self) -> Duration {
        self.began.elapsed()
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        let nap = Duration::try_from(at.duration_since(now())).unwrap_or(Duration::ZERO);
        Box::pin(tokio::time::sleep(nap))
    }

    fn spawn(&self, _: &'static str, task: Task<()>) {
        self.runtime.spawn(task);
    }
}

pub(crate) fn now() -> Timestamp {
    let now = Timestamp::now();
    Timestamp::from_millisecond(now.as_millisecond()).unwrap_or(now)
}

/// One channel, and pipelines that declare nothing about alerts.
struct OneChannel(Arc<[Declared]>);

impl Book for OneChannel {
    fn channels(&self) -> Arc<[Declared]> {
        Arc::clone(&self.0)
    }

    fn pipeline<'a>(&'a self, _: &'a PipelineId) -> Known<'a> {
        Box::pin(std::future::ready(None))
    }
}

/// The client of every call that goes out.
pub(crate) fn web() -> Web {
    Web::new(&Outbound::default()).unwrap()
}

pub(crate) fn webhook(url: &str) -> Channel {
    Channel::Webhook { url: Secret::new(url), secret: None, headers: BTreeMap::new() }
}

/// A process with a notifier: it can be killed at any moment.
pub(crate) struct Process(Option<Runtime>);

impl Process {
    pub(crate) fn start(
        store: &Arc<dyn Store>,
        channel: Channel,
        (folder, patience): (&Path, Patience),
    ) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let declared = Declared {
            name: HOOK.to_owned(),
            channel,
            when: AlertFilter::default(),
            after: None,
            findings: 1,
            of: 0,
            recovered: 1,
            repeat: None,
            runbook: None,
            digest: None,
            format: AlertFormat::Alert,
        };
        let book = Arc::new(OneChannel(Arc::new([declared])));
        let channels = LocalChannels::new(book, web(), Arc::new(|_| Ok(())), folder.to_owned());
        let world = RealWorld { runtime: runtime.handle().clone(), began: Instant::now() };
        let notifier = Notifier::new(NotifierParts {
            world: Arc::new(world),
            store: Arc::clone(store),
            channels: Arc::new(channels.within(SignedDuration::from_secs(10))),
            patience,
            vitals: Arc::default(),
            pulse: Pulse::default(),
        });
        runtime.spawn(async move {
            let _killed = notifier.run(Box::pin(std::future::pending())).await;
        });
        Self(Some(runtime))
    }
}

impl Drop for Process {
    /// Ends it in the middle of whatever it does.
    fn drop(&mut self) {
        if let Some(runtime) = self.0.take() {
            runtime.shutdown_background();
        }
    }
}

/// What a receiver heard: the key, the state and the pipeline.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Heard {
    pub(crate) key: String,
    pub(crate) state: String,
    pub(crate) pipeline: String,
}

/// A receiver on a port of its own that answers at once.
pub(crate) struct Receiver {
    pub(crate) url: String,
    heard: Arc<Mutex<Vec<Heard>>>,
    is_mute: Arc<AtomicBool>,
    _runtime: Runtime,
}

impl Receiver {
    /// From a number of messages on it takes them and does not answer any more, until it is asked to ([`Self::speak`]).
    pub(crate) fn start(mute_from: usize) -> Self {
        let runtime = Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
        let heard: Arc<Mutex<Vec<Heard>>> = Arc::default();
        let is_mute = Arc::new(AtomicBool::new(false));
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        listener.set_nonblocking(true).unwrap();
        let address: SocketAddr = listener.local_addr().unwrap();
        let ear = Ear { heard: Arc::clone(&heard), is_mute: Arc::clone(&is_mute), mute_from };
        runtime.spawn(async move {
            let listener = TcpListener::from_std(listener).unwrap();
            // Bounded: nothing awaits this task; it ends with the receiver's runtime.
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(ear.clone().serve(stream));
            }
        });
        Self { url: format!("http://{address}/hook"), heard, is_mute, _runtime: runtime }
    }

    pub(crate) fn is_mute(&self) -> bool {
        self.is_mute.load(Ordering::SeqCst)
    }

    pub(crate) fn speak(&self) {
        self.is_mute.store(false, Ordering::SeqCst);
    }

    pub(crate) fn heard(&self) -> Vec<Heard> {
        self.heard.lock().unwrap().clone()
    }

    pub(crate) fn count(&self) -> usize {
        self.heard.lock().unwrap().len()
    }
}

/// What hears messages, one connection at a time.
#[derive(Clone)]
struct Ear {
    heard: Arc<Mutex<Vec<Heard>>>,
    is_mute: Arc<AtomicBool>,
    mute_from: usize,
}

impl Ear {
    /// Takes messages until the sender hangs up.
    async fn serve(self, stream: TcpStream) {
        let mut stream = BufReader::new(stream);
        // Bounded: the sender hangs up, or is killed.
        while let Some((key, body)) = read(&mut stream).await {
            if self.note(key, &body) == self.mute_from {
                self.is_mute.store(true, Ordering::SeqCst);
            }
            if self.is_mute.load(Ordering::SeqCst) {
                // Bounded: nothing awaits this task; it ends with the receiver's runtime.
                return std::future::pending().await;
            }
            let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n";
            if stream.get_mut().write_all(answer).await.is_err() {
                return;
            }
        }
    }

    /// Notes a message, and says the how manieth it is.
    fn note(&self, key: String, body: &[u8]) -> usize {
        let said: Value = serde_json::from_slice(body).unwrap_or_default();
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let (state, pipeline) = (text(&said["details"]["state"]), text(&said["pipelineId"]));
        let mut heard = self.heard.lock().unwrap();
        heard.push(Heard { key, state, pipeline });
        heard.len()
    }
}

/// The idempotency key and the body of the next request; none when there is none.
async fn read(stream: &mut BufReader<TcpStream>) -> Option<(String, Vec<u8>)> {
    let (mut key, mut length, mut line) = (String::new(), 0, String::new());
    loop {
        line.clear();
        // Bounded: the sender hangs up, or is killed.
        if stream.read_line(&mut line).await.ok()? == 0 {
            return None;
        }
        let Some((name, value)) = line.trim_end().split_once(": ") else {
            if line == "\r\n" {
                break;
            }
            continue;
        };
        match name.to_ascii_lowercase().as_str() {
            "idempotency-key" => key = value.to_owned(),
            "content-length" => length = value.parse().ok()?,
            _ => {}
        }
    }
    let mut body = vec![0; length];
    // Bounded: the sender hangs up, or is killed.
    stream.read_exact(&mut body).await.ok()?;
    Some((key, body))
}

/// What there is to tell of incidents.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Incidents {
    /// Their beginning.
    Open,
    /// Their beginning and their end.
    Over,
}

/// Puts the beginning of an incident of each of so many pipelines into the outbox, and its end if that is wanted.
pub(crate) fn fill(store: &dyn Store, pipelines: usize, incidents: Incidents) {
    let writers: BTreeMap<Shard, Writer> = (0..store.shard_count())
        .map(Shard)
        .map(|shard| {
            let ttl = SignedDuration::from_hours(1);
            let lease =
                block_on(store.acquire(Role::Watchdog, shard, "house", ttl)).unwrap().unwrap();
            (shard, lease.writer)
        })
        .collect();
    let at = block_on(store.now()).unwrap();
    let groups = (0..pipelines).map(|number| {
        let pipeline = PipelineId::parse(&format!("p{number}")).unwrap();
        let mut changes = vec![put(&pipeline, ("opened", None), at)];
        if incidents == Incidents::Over {
            changes.push(put(&pipeline, ("resolved", Some("opened")), at));
        }
        let writer = writers[&Shard::of(&pipeline, store.shard_count())];
        Group { pipeline, writer, changes }
    });
    for outcome in block_on(store.commit(groups.collect())).unwrap() {
        outcome.unwrap();
    }
}

fn put(pipeline: &PipelineId, (name, after): (&str, Option<&str>), at: Timestamp) -> Change {
    let state = if after.is_none() { "open" } else { "resolved" };
    let incident = format!("watchdog:{pipeline}:daily:2026-03-20");
    let details = [("state".to_owned(), state.into()), ("incident".to_owned(), incident.into())];
    let alert = Alert {
        level: "error".to_owned(),
        alert_type: "schedule_missed".to_owned(),
        pipeline_id: pipeline.to_string(),
        message: "the slot of 03:00 was missed: nothing was heard of it until its deadline"
            .to_owned(),
        details: details.into(),
        timestamp: at,
    };
    let record = OutboxRecord {
        channel: String::new(),
        alert: alert.to_json().into(),
        tries: 0,
        not_before: at,
        claimed_until: None,
        last_error: None,
        dead: false,
        after: after.map(str::to_owned),
        held: None,
    };
    Change::Put(Key::Outbox(name.to_owned()), Expect::Absent, Record::Outbox(record.into()))
}
