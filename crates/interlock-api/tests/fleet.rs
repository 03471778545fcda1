//! The fleet, badges and metrics of single pipelines over real sockets.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    fmt,
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use interlock_answers::{DeclarationFuture, Declarations};
use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Post, Running, Surface,
    address::{Exposure, bind},
    start,
    token::{Scope, Token},
};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    zone::Zone,
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, block_on,
    memory::MemoryStore,
    record::{AgendaRecord, MarksRecord, PipelineRecord, SlotRecord, WatermarkRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

const PATIENCE: Duration = Duration::from_mins(1);
const NOW: Timestamp = Timestamp::constant(1_772_031_600, 0);

struct Nothing;

impl fmt::Debug for Nothing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Nothing")
    }
}

impl Declarations for Nothing {
    fn current<'a>(&'a self, _pipeline: &'a PipelineId) -> DeclarationFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn version<'a>(&'a self, _pipeline: &'a PipelineId, _version: u64) -> DeclarationFuture<'a> {
        Box::pin(std::future::ready(Ok(None)))
    }

    fn zone(&self, _name: &str) -> Option<Zone> {
        None
    }
}

struct Site {
    running: Running,
    surface: Arc<Surface>,
    store: Arc<MemoryStore>,
}

impl Site {
    /// Without a store yet.
    fn new() -> Self {
        let surface = Arc::new(Surface::new("1.2.3"));
        let store = Arc::new(MemoryStore::new(1, Arc::new(|| NOW)));
        let clock: interlock_api::access::Clock = Arc::new(|| NOW);
        let tokens = [("badge", Scope::Badge), ("look", Scope::Viewer)];
        let tokens = tokens.map(|(text, scope)| Token::known(text, scope, text)).to_vec();
        let door = Doorkeeper::new(tokens, Exposure::Anywhere, Arc::clone(&clock));
        let time = Duration::from_secs(20);
        let limits = Limits { time, body_max: 10_000, per_second: 100_000, unread: time };
        let post = Post::Taken(bind("127.0.0.1:0", Exposure::Anywhere).unwrap());
        let hearing = Hearing { instance: "here".to_owned(), clock };
        let running = start(InterfaceDeps {
            post,
            surface: Arc::clone(&surface),
            door,
            limits,
            hearing,
            pages: None,
        })
        .unwrap();
        Self { running, surface, store }
    }

    fn open_store(&self) {
        self.surface.store.set(Arc::clone(&self.store) as Arc<dyn Store>).unwrap();
        self.surface.declarations.set(Arc::new(Nothing)).unwrap();
    }

    /// A pipeline whose last slot, an hour ago, ended in a way.
    fn write(&self, name: &str, disposition: &'static str) {
        let at = NOW - SignedDuration::from_hours(1);
        let id = ScheduleId::any("h").unwrap();
        let slot = SlotRecord {
            state: "closed".into(),
            disposition: Some(disposition.into()),
            reason: None,
            generation: 1,
            attempt: 0,
            opened_by: "scheduler".into(),
            date: at.to_zoned(jiff::tz::TimeZone::UTC).date(),
            opened_at: at,
            closes_at: at,
            retry_at: None,
            marks: MarksRecord::default(),
            version: "0000000000000001".to_owned(),
            wish: None,
            reruns: None,
            sla: None,
            evaluated: None,
        };
        let pipeline = PipelineRecord {
            version: "0000000000000001".to_owned(),
            first_seen: at - SignedDuration::from_hours(1),
            retired_at: None,
            pause: None,
            disabled_since: None,
            agenda: Some(Box::new(AgendaRecord::from_core(&Agenda::default()))),
            about: None,
        };
        let ttl = SignedDuration::from_secs(60);
        let lease = block_on(self.store.acquire(Role::Engine, Shard(0), "test", ttl)).unwrap();
        let put = |key, record| Change::Put(key, Expect::Absent, record);
        let changes = vec![
            put(Key::Pipeline, Record::Pipeline(pipeline.into())),
            put(Key::Watermark(id.clone()), Record::Watermark(WatermarkRecord { at })),
            put(Key::Slot(id, at), Record::Slot(slot.into())),
        ];
        let pipeline = PipelineId::parse(name).unwrap();
        let group = Group { pipeline, writer: lease.unwrap().writer, changes };
        block_on(self.store.commit(vec![group])).unwrap().pop().unwrap().unwrap();
    }

    /// The status, the head and the body of an answer.
    fn get(&self, path: &str, token: &str) -> (u16, String, String) {
        let shown =
            if token.is_empty() { String::new() } else { format!("X-API-Key: {token}\r\n") };
        let request =
            format!("GET {path} HTTP/1.1\r\nHost: localhost\r\n{shown}Connection: close\r\n\r\n");
        let mut stream = TcpStream::connect(self.running.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn fleet(&self) -> Value {
        let (status, _, body) = self.get("/api/v1/fleet", "look");
        assert_eq!(status, 200, "{body}");
        serde_json::from_str(&body).unwrap()
    }
}

#[test]
fn the_fleet_is_there_once_it_is_counted_and_before_that_it_is_said() {
    let site = Site::new();
    assert_eq!(site.get("/api/v1/fleet", "look").0, 503, "there is no store yet");
    site.write("orders", "completed");
    site.write("billing", "failed");
    site.open_store();
    interlock_wait::wait_until("the fleet is counted", PATIENCE, || {
        site.fleet()["freshness"]["isCounting"] == false
    });
    let fleet = site.fleet();
    let states: Vec<_> =
        fleet["items"].as_array().unwrap().iter().map(|row| &row["state"]).collect();
    assert_eq!(states, ["failed", "onTime"], "the worst first");
    assert_eq!(fleet["totals"]["due"], 2);
    assert_eq!(fleet["totals"]["counts"], serde_json::json!({"onTime": 1, "failed": 1}));
    assert_eq!(site.get("/api/v1/fleet?group=nothing", "look").0, 400);
}

#[test]
fn a_badge_is_shown_to_its_key_alone_and_the_key_opens_nothing_else() {
    let site = Site::new();
    site.write("orders", "completed");
    site.open_store();
    interlock_wait::wait_until("badges are shown", PATIENCE, || {
        site.get("/badge/orders.json?key=badge", "").0 == 200
    });
    let (_, _, body) = site.get("/badge/orders.json?key=badge", "");
    let badge: Value = serde_json::from_str(&body).unwrap();
    assert_eq!(badge["schemaVersion"], 1);
    assert_eq!((&badge["label"], &badge["message"]), (&"orders".into(), &"on time".into()));
    let (status, head, body) = site.get("/badge/orders.svg?key=badge", "");
    assert_eq!(status, 200);
    assert!(head.contains("content-type: image/svg+xml"), "{head}");
    assert!(body.contains("orders: on time"), "{body}");
    for (path, token, status) in [
        ("/badge/orders.svg", "", 401),
        ("/badge/orders.svg?key=wrong", "", 401),
        // A token that opens more is not taken from an address.
        ("/badge/orders.svg?key=look", "", 401),
        ("/badge/orders.svg", "badge", 200),
        ("/badge/orders.svg", "look", 200),
        ("/badge/orders.png?key=badge", "", 404),
        ("/badge/nothing.svg?key=badge", "", 404),
        ("/api/v1/fleet?key=badge", "", 401),
        ("/api/v1/fleet", "badge", 403),
        ("/metrics", "badge", 403),
    ] {
        assert_eq!(site.get(path, token).0, status, "{path} {token}");
    }
}

#[test]
fn pipelines_are_measured_for_who_asks_for_them_by_name_and_for_nobody_else() {
    let site = Site::new();
    site.write("orders", "completed");
    site.write("billing", "missed");
    site.open_store();
    interlock_wait::wait_until("the fleet is counted", PATIENCE, || {
        site.fleet()["freshness"]["isCounting"] == false
    });
    let (_, _, plain) = site.get("/metrics", "look");
    assert!(!plain.contains("interlock_pipeline_"), "{plain}");
    let (status, _, body) = site.get("/metrics?pipelines=order*&pipelines=billing", "look");
    assert_eq!(status, 200, "{body}");
    for line in [
        "interlock_pipeline_overdue_seconds{pipeline=\"billing\"} 3600",
        "interlock_pipeline_overdue_seconds{pipeline=\"orders\"} 0",
        "interlock_pipeline_open_incidents{pipeline=\"orders\"} 0",
        "interlock_pipelines_left_out 0",
    ] {
        assert!(body.contains(line), "{line}\n{body}");
    }
    assert_eq!(site.get("/metrics?colour=red", "look").0, 400);
}
