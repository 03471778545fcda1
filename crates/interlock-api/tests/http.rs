//! The interface over real sockets: what probes, scrapers and strangers get to see.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]
#![expect(clippy::disallowed_methods, reason = "real sockets in real time are what is tested")]

use std::{
    io::{ErrorKind, Read as _, Write as _},
    net::{IpAddr, SocketAddr, TcpStream, UdpSocket},
    sync::{Arc, Mutex, MutexGuard},
    thread,
    time::{Duration, Instant},
};

use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Phase, Post, Reach, Running, Surface,
    address::{Exposure, bind},
    start,
    token::{Scope, Token},
};
use interlock_core::id::PipelineId;
use interlock_engine::vitals::{Pulse, Vitals};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, block_on,
    kept::TOKEN_PREFIX,
    memory::MemoryStore,
    record::{InboxRecord, SensorRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

/// Nothing that is waited for takes longer, however busy the machine.
const PATIENCE: Duration = Duration::from_mins(1);

struct Site {
    surface: Arc<Surface>,
    door: Doorkeeper,
    store: Arc<MemoryStore>,
    running: Running,
}

impl Site {
    fn new(tokens: &[&str]) -> Self {
        Self::at("127.0.0.1:0", Exposure::LoopbackOnly, tokens)
    }

    fn at(addr: &str, exposure: Exposure, tokens: &[&str]) -> Self {
        let surface = Arc::new(Surface::new("1.2.3"));
        let listener = bind(addr, exposure).unwrap();
        Self::posted(Post::Taken(listener), surface, (exposure, tokens))
    }

    fn posted(post: Post, surface: Arc<Surface>, (exposure, tokens): (Exposure, &[&str])) -> Self {
        let tokens = tokens.iter().map(|text| Token::known(text, Scope::Viewer, text)).collect();
        let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let door = Doorkeeper::new(tokens, exposure, clock);
        let (time, unread) = (Duration::from_secs(10), Duration::from_millis(300));
        let limits = Limits { time, body_max: 64, per_second: 10, unread };
        let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let hearing = Hearing { instance: "here".to_owned(), clock };
        let running = start(InterfaceDeps {
            post,
            surface: Arc::clone(&surface),
            door: door.clone(),
            limits,
            hearing,
            pages: None,
        })
        .unwrap();
        let store = Arc::new(MemoryStore::new(1, Arc::new(|| Timestamp::UNIX_EPOCH)));
        Self { surface, door, store, running }
    }

    fn with_store(self) -> Self {
        self.surface.store.set(Arc::clone(&self.store) as Arc<dyn Store>).unwrap();
        self
    }

    /// Has the store keep a token, or forget it.
    fn keep_token(&self, token: Option<&Token>) {
        let ttl = SignedDuration::from_secs(60);
        let lease = block_on(self.store.acquire(Role::Engine, Shard(0), "test", ttl)).unwrap();
        let key = Key::Sensor(format!("{TOKEN_PREFIX}one"));
        let change = match token {
            Some(token) => {
                let (at, received_at) = (Timestamp::UNIX_EPOCH, Timestamp::UNIX_EPOCH);
                let record =
                    SensorRecord { value: token.to_json(), at, received_at, unheeded: false };
                Change::Put(key, Expect::Any, Record::Sensor(record.into()))
            }
            None => Change::Delete(key, Expect::Any),
        };
        let (pipeline, writer) = (PipelineId::system(), lease.unwrap().writer);
        let group = Group { pipeline, writer, changes: vec![change] };
        for result in block_on(self.store.commit(vec![group])).unwrap() {
            result.unwrap();
        }
    }

    fn get(&self, path: &str) -> Answer {
        ask(self.running.address, &format!("GET {path} HTTP/1.1\r\n"), "")
    }
}

struct Answer {
    status: u16,
    head: String,
    body: String,
}

impl Answer {
    fn json(&self) -> Value {
        serde_json::from_str(&self.body).unwrap()
    }

    /// Its status and the word of its error.
    fn refusal(&self) -> (u16, String) {
        assert!(self.head.contains("content-type: application/problem+json"), "{}", self.head);
        let body = self.json();
        for part in ["title", "detail", "hint"] {
            assert!(body[part].as_str().is_some_and(|text| !text.is_empty()), "{body}");
        }
        let code = body["code"].as_str().unwrap();
        assert_eq!(body["type"], format!("urn:interlock:problem:{code}"), "{body}");
        assert_eq!(body["status"], self.status, "{body}");
        (self.status, code.to_owned())
    }
}

fn ask(address: SocketAddr, head: &str, body: &str) -> Answer {
    exchange(address, &format!("{head}Host: 127.0.0.1\r\nConnection: close\r\n\r\n{body}"))
}

fn exchange(address: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut text = String::new();
    stream.read_to_string(&mut text).unwrap();
    let (head, body) = text.split_once("\r\n\r\n").unwrap();
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    Answer { status, head: head.to_lowercase(), body: body.to_owned() }
}

#[track_caller]
fn wait_until(what: &str, holds: impl Fn() -> bool) {
    interlock_wait::wait_until(what, PATIENCE, holds);
}

/// A loop on a thread of its own that comes round while its gate is open, and stands still inside a round while
/// somebody holds it.
fn looping(pulse: Pulse) -> Arc<Mutex<()>> {
    let gate = Arc::new(Mutex::new(()));
    let through = Arc::downgrade(&gate);
    thread::spawn(move || {
        // Bounded: it ends when the test drops the gate.
        while let Some(gate) = through.upgrade() {
            drop(gate.lock().unwrap());
            pulse.beat();
            thread::sleep(Duration::from_millis(5));
        }
    });
    gate
}

#[test]
fn a_loop_that_stands_still_is_unhealthy_by_name_until_it_comes_round_again() {
    let site = Site::new(&[]).with_store();
    site.surface.enter(Phase::Serving);
    let bound = Duration::from_millis(400);
    let (pulse, other) = (Pulse::default(), Pulse::default());
    let gate = looping(pulse.clone());
    let _other_gate = looping(other.clone());
    site.surface.loops.register("engine", pulse, bound);
    site.surface.loops.register("reload", other, bound);
    wait_until("healthy", || site.get("/healthz").status == 200);

    let held: MutexGuard<'_, ()> = gate.lock().unwrap();
    wait_until("unhealthy", || site.get("/healthz").status == 503);
    let answer = site.get("/healthz");
    assert_eq!(answer.refusal(), (503, "loop_late".to_owned()));
    let message = answer.json()["detail"].as_str().unwrap().to_owned();
    assert!(message.contains("`engine`") && !message.contains("`reload`"), "{message}");
    assert_eq!(site.get("/readyz").refusal().1, "loop_late");
    assert!(site.get("/metrics").body.contains("\ninterlock_loops_late 1\n"));

    drop(held);
    wait_until("healthy again", || site.get("/healthz").status == 200);
}

#[test]
fn it_is_ready_only_between_start_and_stop_with_a_store_that_answers() {
    let site = Site::new(&[]);
    assert_eq!(site.get("/readyz").refusal(), (503, "starting".to_owned()));
    assert_eq!(site.get("/healthz").status, 200, "starting is no illness");
    site.surface.enter(Phase::Serving);
    assert_eq!(site.get("/readyz").refusal(), (503, "store_unreachable".to_owned()));
    let site = site.with_store();
    assert_eq!(site.get("/readyz").status, 200);
    site.surface.loops.register("engine", Pulse::default(), Duration::ZERO);
    site.surface.enter(Phase::Stopping("the engine ends its pass"));
    assert_eq!(site.get("/readyz").refusal(), (503, "stopping".to_owned()));
    assert_eq!(site.get("/healthz").status, 200, "a loop that is ending is not late");
}

#[test]
fn what_is_not_there_not_taken_or_too_large_is_said_in_one_shape() {
    let site = Site::new(&[]);
    assert_eq!(site.get("/nowhere").refusal(), (404, "not_found".to_owned()));
    let post = ask(site.running.address, "POST /healthz HTTP/1.1\r\n", "");
    assert_eq!(post.refusal(), (405, "method_not_allowed".to_owned()));
    assert!(post.head.contains("allow: get"), "{}", post.head);
    let large = "POST /healthz HTTP/1.1\r\nContent-Length: 65\r\n";
    let large = ask(site.running.address, large, &"x".repeat(65));
    assert_eq!(large.refusal(), (413, "too_large".to_owned()));
    let head = ask(site.running.address, "HEAD /healthz HTTP/1.1\r\n", "");
    assert_eq!((head.status, head.body.as_str()), (200, ""));
}

#[test]
fn with_tokens_only_who_shows_one_sees_more_than_health() {
    let site = Site::new(&["long-and-secret", "another"]);
    let with = |token: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n");
        ask(site.running.address, &head, "").status
    };
    assert_eq!(site.get("/metrics").refusal(), (401, "token_needed".to_owned()));
    let shown = ["long-and-secret", "another", "long-and-secre", "long-and-secret2", ""];
    assert_eq!(shown.map(with), [200, 200, 401, 401, 401]);
    assert_eq!(site.get("/healthz").status, 200);
}

#[test]
fn a_scope_that_is_not_enough_is_told_so_and_a_token_may_be_shown_in_three_ways() {
    let site = Site::new(&["look"]);
    let ping = Token::known("cron", Scope::Ping(vec!["*".to_owned()]), "ping");
    site.door.take(vec![ping, Token::known("ops", Scope::Operator, "act")]);
    let with = |header: &str| {
        ask(site.running.address, &format!("GET /metrics HTTP/1.1\r\n{header}\r\n"), "")
    };
    let refused = with("Authorization: Bearer ping");
    assert_eq!(refused.refusal(), (403, "scope_needed".to_owned()));
    assert!(refused.body.contains("viewer, operator or admin"), "{}", refused.body);
    // `curl http://:act@…` sends the third one.
    for shown in ["Authorization: Bearer act", "X-API-Key: act", "Authorization: Basic OmFjdA=="] {
        assert_eq!(with(shown).status, 200, "{shown}");
    }
    let nobody = with("X-Nothing: at all");
    assert!(nobody.head.contains("www-authenticate: bearer"), "{}", nobody.head);
    let guesses: Vec<u16> = (0..40).map(|_| with("X-API-Key: guess").status).collect();
    assert!(guesses.contains(&429) && guesses.first() == Some(&401), "{guesses:?}");
    assert_eq!(with("X-API-Key: act").status, 200, "who guesses keeps nobody else out");
}

/// The tokens of the store are read again and again, so one that is made or revoked counts within a second or two.
#[test]
fn a_token_of_the_store_counts_soon_and_no_longer_than_it_is_there() {
    let site = Site::new(&[]).with_store();
    assert_eq!(site.get("/metrics").status, 200);
    site.keep_token(Some(&Token::known("ci", Scope::Viewer, "abc")));
    wait_until("it is asked for", || site.get("/metrics").status == 401);
    let with = "GET /metrics HTTP/1.1\r\nAuthorization: Bearer abc\r\n";
    assert_eq!(ask(site.running.address, with, "").status, 200);
    site.keep_token(None);
    wait_until("the door is open again", || site.get("/metrics").status == 200);
}

/// Each holds a connection and never finishes its question.
#[test]
fn a_thousand_clients_that_say_nothing_do_not_keep_others_waiting() {
    let site = Site::new(&[]);
    let address = site.running.address;
    let start = Instant::now();
    let mut slow = Vec::new();
    for number in 0..1_000 {
        let mut stream = TcpStream::connect(address).unwrap();
        stream.write_all(b"GET /healthz HT").unwrap();
        slow.push(stream);
        if number % 100 == 99 {
            assert_eq!(site.get("/healthz").status, 200);
        }
    }
    let took = start.elapsed();
    assert!(took < Duration::from_secs(10), "sooner than a slow one is given up: {took:?}");
    // Those that were there first made room.
    let mut first = slow.swap_remove(0);
    first.set_read_timeout(Some(PATIENCE)).unwrap();
    let end = first.read(&mut [0; 1]).map_err(|error| error.kind());
    let is_closed = matches!(end, Ok(0) | Err(ErrorKind::ConnectionReset));
    assert!(is_closed, "waited {PATIENCE:?} for its end: {end:?}");
}

/// An address of this machine that others reach it by, if it has one.
fn reachable() -> Option<IpAddr> {
    let socket = UdpSocket::bind("0.0.0.0:0").unwrap();
    // Nothing is sent: it only says from where it would be.
    socket.connect("192.0.2.1:9").ok()?;
    Some(socket.local_addr().unwrap().ip()).filter(|ip| !ip.is_loopback() && !ip.is_unspecified())
}

#[test]
fn another_machine_that_asks_too_often_is_told_so_and_this_one_is_not() {
    let Some(ip) = reachable() else {
        println!("this machine has no address but its own: not tried");
        return;
    };
    let site = Site::at("0.0.0.0:0", Exposure::Anywhere, &["look"]);
    let port = site.running.address.port();
    let ask_at = |ip: IpAddr| {
        let head = "GET /metrics HTTP/1.1\r\nX-API-Key: look\r\n";
        ask(SocketAddr::new(ip, port), head, "")
    };
    let mut often: Vec<_> = (0..60).map(|_| ask_at(ip)).collect();
    assert_eq!(often.first().map(|answer| answer.status), Some(200));
    // Ten each second, twenty at once: sixty take longer than a second only on a machine that is very busy.
    often.retain(|answer| answer.status == 429);
    let refused = often.first().map(Answer::refusal);
    assert_eq!(refused, Some((429, "too_often".to_owned())));
    let here = SocketAddr::new([127, 0, 0, 1].into(), port);
    let health = |_| ask(here, "GET /healthz HTTP/1.1\r\n", "").status;
    let here: Vec<u16> = (0..60).map(health).collect();
    assert_eq!(here, [200; 60]);
}

#[test]
fn metrics_show_the_process_at_once_and_the_engine_when_there_is_one() {
    let site = Site::new(&[]);
    let before = site.get("/metrics");
    assert!(before.head.contains("content-type: text/plain; version=0.0.4"), "{}", before.head);
    assert!(before.body.contains("interlock_build_info{version=\"1.2.3\"} 1\n"), "{}", before.body);
    assert!(before.body.contains("\ninterlock_serving 0\n"));
    assert!(!before.body.contains("interlock_slots_open "));
    let vitals = Arc::new(Vitals::default());
    vitals.open_slots.add(7);
    vitals.notifications.add("dead", 2);
    vitals.notifications.add("held", 3);
    vitals.digests.add(1);
    vitals.digested.add(400);
    site.surface.vitals.set(vitals).unwrap();
    let after = site.get("/metrics").body;
    assert!(after.contains("\ninterlock_slots_open 7\n"), "{after}");
    assert!(after.contains("\ninterlock_notifications_total{outcome=\"dead\"} 2\n"), "{after}");
    assert!(after.contains("\ninterlock_notifications_total{outcome=\"held\"} 3\n"), "{after}");
    assert!(after.contains("\ninterlock_digests_total 1\n"), "{after}");
    assert!(after.contains("\ninterlock_digested_alerts_total 400\n"), "{after}");
}

#[test]
fn an_end_takes_no_new_connection_and_does_not_wait_for_who_says_nothing() {
    let site = Site::new(&[]);
    let address = site.running.address;
    assert_eq!(site.get("/healthz").json()["loops"][0]["name"], "http");
    let _silent = TcpStream::connect(address).unwrap();
    let start = Instant::now();
    site.running.stop();
    assert!(start.elapsed() < Duration::from_secs(20), "it waited for the silent one");
    assert!(TcpStream::connect(address).is_err(), "it still listens");
}

#[test]
fn one_token_is_limited_on_this_machine_too_and_the_others_are_not() {
    let site = Site::new(&["busy", "calm"]);
    let metrics = |token: &str| {
        let head = format!("GET /metrics HTTP/1.1\r\nAuthorization: Bearer {token}\r\n");
        ask(site.running.address, &head, "")
    };
    // Ten a second, twenty at once; however slow this machine is, two hundred do not take ten seconds.
    let began = Instant::now();
    let refused = (0..200).map(|_| metrics("busy")).find(|answer| answer.status == 429);
    let refused = refused.unwrap_or_else(|| panic!("never, in {:?}", began.elapsed()));
    assert_eq!(refused.refusal(), (429, "too_often".to_owned()));
    assert!(refused.body.contains("with this token"), "{}", refused.body);
    assert!(refused.head.to_ascii_lowercase().contains("retry-after: 1"), "{}", refused.head);
    assert_eq!(metrics("calm").status, 200);
    assert_eq!(site.get("/healthz").status, 200, "nobody's token");
}

#[test]
fn a_client_that_reads_no_answers_is_given_up() {
    let site = Site::new(&[]);
    let mut stream = TcpStream::connect(site.running.address).unwrap();
    stream.set_write_timeout(Some(Duration::from_millis(100))).unwrap();
    let request = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n".repeat(100);
    // It asks on and on. First the buffers fill, and it has to wait; then it is told that nobody is there.
    let began = Instant::now();
    let mut has_waited = false;
    let ended = loop {
        match stream.write(&request) {
            Ok(_) => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => has_waited = true,
            Err(error) => break error,
        }
        assert!(began.elapsed() < PATIENCE, "nobody gave it up");
    };
    assert!(has_waited, "{ended} came before the buffers were full");
    assert_eq!(site.get("/healthz").status, 200, "others are served");
}

#[test]
fn s10_an_address_that_is_taken_is_wanted_until_it_is_free_and_nobody_hears_before() {
    let holder = bind("127.0.0.1:0", Exposure::LoopbackOnly).unwrap();
    let address = holder.local_addr().unwrap();
    let surface = Arc::new(Surface::new("1.2.3"));
    let (bound, is_bound) = std::sync::mpsc::channel();
    let then = Box::new(move || bound.send(()).unwrap());
    let post = Post::Wanted { address, because: "it is taken".to_owned(), then };
    let site = Site::posted(post, surface, (Exposure::LoopbackOnly, &[])).with_store();
    assert!(matches!(site.surface.reach(), Reach::Shut(_)), "{:?}", site.surface.reach());
    let heard = || block_on(site.store.inbox(Shard(0), 10)).unwrap().items;
    wait_until("it is said that nobody hears", || heard().len() == 1);
    let record = heard().remove(0).record;
    let InboxRecord::Heard { since, until, .. } = record else { panic!("{record:?}") };
    assert_eq!(since, until);
    assert!(Timestamp::UNIX_EPOCH.duration_since(until) > interlock_store::coverage::DEAF_AFTER);
    assert!(is_bound.try_recv().is_err());
    drop(holder);
    is_bound.recv_timeout(PATIENCE).unwrap();
    wait_until("it listens", || site.surface.reach() == Reach::At(address));
    assert_eq!(site.get("/healthz").status, 200);
    wait_until("it is said that somebody hears", || heard().len() == 2);
}

/// Its own thread is one of the loops: it stands still when that does, whatever asks it.
#[test]
fn the_thread_of_the_interface_comes_round_by_itself() {
    let site = Site::new(&[]);
    let (name, pulse, bound) = site.surface.loops.all().remove(0);
    assert_eq!((name, bound), ("http", interlock_api::BOUND));
    let before = pulse.count();
    wait_until("it comes round", || pulse.count() > before + 2);
}

/// What a browser sends for a page of somebody else, or for a name that points here since a moment ago.
#[test]
fn an_open_door_is_not_open_to_pages_of_others() {
    let site = Site::new(&[]).with_store();
    let ask = |host: &str, more: &str| {
        let head = format!(
            "POST /api/v1/pipelines/job/run HTTP/1.1\r\nHost: {host}\r\n{more}Content-Length: 2\r\nConnection: close\r\n\r\n{{}}"
        );
        exchange(site.running.address, &head)
    };
    let own = site.running.address.to_string();
    for (host, more) in [
        ("evil.example", String::new()),
        (&own, "Origin: http://evil.example\r\n".to_owned()),
        (&own, "Origin: null\r\n".to_owned()),
        (&own, "Sec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n".to_owned()),
    ] {
        assert_eq!(ask(host, &more).refusal(), (403, "foreign_origin".to_owned()), "{host} {more}");
    }
    let image = format!(
        "GET /ping/x?create=1 HTTP/1.1\r\nHost: {own}\r\nSec-Fetch-Site: cross-site\r\nConnection: close\r\n\r\n"
    );
    assert_eq!(
        exchange(site.running.address, &image).refusal(),
        (403, "foreign_origin".to_owned())
    );
    assert!(
        block_on(site.store.inbox(Shard(0), 10))
            .unwrap()
            .items
            .iter()
            .all(|entry| { matches!(entry.record, InboxRecord::Heard { .. }) })
    );
    // A program, and a page of our own.
    for more in [String::new(), format!("Origin: http://{own}\r\nSec-Fetch-Site: same-origin\r\n")]
    {
        let answer = ask(&own, &more);
        assert_eq!(answer.refusal().1, "pipeline_unknown", "{}", answer.body);
    }
    // Probes carry names of all kinds.
    let health = "GET /healthz HTTP/1.1\r\nHost: probe.example\r\nConnection: close\r\n\r\n";
    assert_eq!(exchange(site.running.address, health).status, 200);
}
