//! Whatever is sent to it, the interface answers sense or nothing: no panic, no 500, no memory without end.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    sync::{Arc, OnceLock},
    time::Duration,
};

use interlock_answers::{DeclarationFuture, Declarations};
use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Maker, Post, Running, Surface,
    address::{Exposure, bind},
    start,
};
use interlock_core::{
    agenda::{Agenda, Work},
    id::PipelineId,
    zone::Zone,
};
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store, block_on,
    memory::MemoryStore,
    record::{AgendaRecord, InboxRecord, PipelineRecord},
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

const PATIENCE: Duration = Duration::from_mins(1);

/// Nothing is declared but what the store has.
#[derive(Debug)]
struct NoDeclarations;

impl Declarations for NoDeclarations {
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
    store: Arc<MemoryStore>,
    running: Running,
}

/// One interface for all cases: what one does to it, the others feel.
fn site() -> &'static Site {
    static SITE: OnceLock<Site> = OnceLock::new();
    SITE.get_or_init(|| {
        let now: Timestamp = "2026-02-25T09:00:00Z".parse().unwrap();
        let surface = Arc::new(Surface::new("1.2.3"));
        let listener = bind("127.0.0.1:0", Exposure::LoopbackOnly).unwrap();
        let door = Doorkeeper::new(vec![], Exposure::LoopbackOnly, Arc::new(move || now));
        let (time, body_max) = (Duration::from_secs(2), 4 * 1_024 * 1_024);
        let limits = Limits { time, body_max, per_second: 1_000_000, unread: time };
        let hearing = Hearing { instance: "here".to_owned(), clock: Arc::new(move || now) };
        let running = start(InterfaceDeps {
            post: Post::Taken(listener),
            surface: Arc::clone(&surface),
            door,
            limits,
            hearing,
            pages: None,
        })
        .unwrap();
        let store = Arc::new(MemoryStore::new(1, Arc::new(move || now)));
        declare(&store, now);
        surface.store.set(Arc::clone(&store) as Arc<dyn Store>).unwrap();
        surface.declarations.set(Arc::new(NoDeclarations)).unwrap();
        // As in `serve`, which has files before it listens: without them a ping with `create=1` gets a 503.
        surface.maker.set(Maker(Arc::new(|_name| Ok(())))).unwrap();
        Site { store, running }
    })
}

fn declare(store: &MemoryStore, now: Timestamp) {
    let ttl = SignedDuration::from_secs(60);
    let lease = block_on(store.acquire(Role::Engine, Shard(0), "test", ttl)).unwrap().unwrap();
    let watched = Agenda { work: Work::Watched, ..Agenda::default() };
    let record = PipelineRecord {
        version: "0000000000000001".to_owned(),
        first_seen: now,
        retired_at: None,
        pause: None,
        disabled_since: None,
        agenda: Some(Box::new(AgendaRecord::from_core(&watched))),
        about: None,
    };
    let change = Change::Put(Key::Pipeline, Expect::Absent, Record::Pipeline(record.into()));
    let pipeline = PipelineId::parse("backup").unwrap();
    let group = Group { pipeline, writer: lease.writer, changes: vec![change] };
    assert!(block_on(store.commit(vec![group])).unwrap()[0].is_ok());
}

fn address() -> SocketAddr {
    site().running.address
}

/// Sends bytes, says that there are no more, and reads what comes.
fn send(bytes: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    // It may hang up on nonsense before it has read all of it.
    let _hung_up = stream.write_all(bytes);
    let _hung_up = stream.shutdown(std::net::Shutdown::Write);
    let mut answer = Vec::new();
    let _hung_up = stream.read_to_end(&mut answer);
    answer
}

/// Asks as clients do: they do not hang up before they are answered.
fn ask(request: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.write_all(request).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    answer
}

fn status(answer: &[u8]) -> Option<u16> {
    let text = String::from_utf8_lossy(answer.get(..answer.len().min(20))?).into_owned();
    text.strip_prefix("HTTP/1.1 ").or(text.strip_prefix("HTTP/1.0 "))?.get(..3)?.parse().ok()
}

#[track_caller]
fn is_sense(sent: &[u8], answer: &[u8]) {
    let shown =
        || format!("{:?} → {:?}", String::from_utf8_lossy(sent), String::from_utf8_lossy(answer));
    let is_slow = answer.windows(8).any(|part| part == b"too_slow");
    match status(answer) {
        // 503 is for a store that is away, and this one is there.
        Some(code) => assert!(code != 500 && (code != 503 || is_slow), "{}", shown()),
        None => assert!(answer.is_empty(), "{}", shown()),
    }
    let ping = b"GET /ping/backup HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    assert_eq!(status(&ask(ping)), Some(200), "after {}", shown());
}

/// Something like a request.
fn request() -> impl Strategy<Value = Vec<u8>> {
    let method = prop_oneof!["GET", "HEAD", "POST", "PUT", "[A-Z]{1,8}", "\\PC{1,5}"];
    let name =
        prop_oneof!["backup", "[a-z]{1,20}", "[a-z%0-9.~]{0,40}", "\\PC{0,20}", "(..%2f){1,9}"];
    let what = prop_oneof!["", "/start", "/fail", "/log", "/[0-9]{1,4}", "/\\PC{0,10}", "(/){1,9}"];
    let area = prop_oneof![
        "/ping/",
        "/api/v1/pipelines/",
        "/api/v1/runs/",
        "/api/v1/pipelines/backup/sensors/",
        "/\\PC{0,9}"
    ];
    let query =
        prop_oneof!["", "\\?rid=[a-z0-9%]{0,300}", "\\?create=1&rid=\\PC{0,30}", "\\?\\PC{0,99}"];
    let header = prop_oneof![
        "Content-Length: [0-9]{1,20}",
        "Transfer-Encoding: (chunked|\\PC{0,9})",
        "Idempotency-Key: \\PC{0,300}",
        "Authorization: (Bearer|Basic) \\PC{0,40}",
        "Expect: 100-continue",
        "[A-Za-z-]{1,20}: \\PC{0,100}",
        "\\PC{0,60}"
    ];
    let body = prop_oneof![
        proptest::collection::vec(any::<u8>(), 0..200),
        "\\{\"(value|status|said|slot|at)\":[\"a-z0-9{}\\[\\]:, -]{0,60}\\}"
            .prop_map(String::into_bytes),
        "[0-9a-f]{1,4}\r\n\\PC{0,40}\r\n".prop_map(String::into_bytes),
    ];
    let headers = proptest::collection::vec(header, 0..6);
    (method, (area, name, what, query), headers, any::<bool>(), body).prop_map(
        |(method, (area, name, what, query), headers, sized, body)| {
            let mut head =
                format!("{method} {area}{name}{what}{query} HTTP/1.1\r\nHost: localhost\r\n");
            for header in headers {
                head.push_str(&header);
                head.push_str("\r\n");
            }
            if sized {
                head = format!("{head}Content-Length: {}\r\n", body.len());
            }
            head.push_str("Connection: close\r\n\r\n");
            [head.into_bytes(), body].concat()
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, max_shrink_iters: 50, ..ProptestConfig::default() })]

    #[test]
    fn something_like_a_request_is_answered_with_sense(bytes in request()) {
        is_sense(&bytes, &send(&bytes));
    }

    #[test]
    fn any_bytes_are_answered_with_sense(bytes in proptest::collection::vec(any::<u8>(), 0..400)) {
        is_sense(&bytes, &send(&bytes));
    }
}

#[test]
fn a_body_without_end_is_neither_kept_nor_read_for_ever() {
    let mut stream = TcpStream::connect(address()).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream.set_write_timeout(Some(PATIENCE)).unwrap();
    let head = "POST /ping/backup/log?rid=endless HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n";
    stream.write_all(head.as_bytes()).unwrap();
    let chunk = [b"10000\r\n".as_slice(), &vec![b'x'; 0x1_0000], b"\r\n"].concat();
    // 64 MiB, if anybody wanted them.
    let sent = (0..1_024).take_while(|_| stream.write_all(&chunk).is_ok()).count();
    assert!(sent < 512, "{sent} chunks were read");
    let kept = block_on(site().store.inbox(Shard(0), 1_000_000)).unwrap().items;
    let report = kept.iter().find_map(|entry| {
        let InboxRecord::Report(report) = &entry.record else { return None };
        (report.rid.as_deref() == Some("endless")).then_some(report)
    });
    let body = report.and_then(|report| report.body.as_deref()).unwrap();
    assert!(body.len() < 100_100, "{} bytes are kept", body.len());
}

#[test]
fn s15_a_report_by_a_clock_that_is_wrong_is_put_right_by_what_that_clock_says_now() {
    // It is nine here. A job ended five minutes before it was reported, by a clock that says something else.
    for (rid, at, sent_at, truth) in [
        ("behind", "06:55:00", Some("07:00:00"), "08:55:00"),
        ("ahead", "13:55:00", Some("14:00:00"), "08:55:00"),
        ("agrees", "08:55:00", Some("08:59:57"), "08:55:00"),
        ("spooled", "01:00:00", Some("09:00:00"), "01:00:00"),
        ("silent", "08:55:00", None, "08:55:00"),
        ("future", "09:30:00", None, "09:00:00"),
        ("fine", "08:55:00.579583342", None, "08:55:00.579"),
        ("finer", "06:55:00.000999999", Some("07:00:00.000000001"), "08:55:00"),
    ] {
        let instant = |time: &str| format!("2026-02-25T{time}Z");
        let sent = sent_at.map(|at| format!(",\"sentAt\":\"{}\"", instant(at))).unwrap_or_default();
        let body = format!(r#"{{"said":"success","rid":"{rid}","at":"{}"{sent}}}"#, instant(at));
        let answer = report(&body);
        assert_eq!(status(&answer), Some(200), "{}", String::from_utf8_lossy(&answer));
        let kept = reports_of(rid);
        assert_eq!(kept, [("success".to_owned(), instant(truth))], "{rid}");
    }
}

/// Sends a report and answers with what is said to it.
fn report(body: &str) -> Vec<u8> {
    let request = format!(
        "POST /api/v1/pipelines/backup/reports HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\
         Content-Length: {}\r\n\r\n{body}",
        body.len()
    );
    ask(request.as_bytes())
}

/// What a run said, and when that was.
fn reports_of(rid: &str) -> Vec<(String, String)> {
    let kept = block_on(site().store.inbox(Shard(0), 1_000_000)).unwrap().items;
    let said = kept.iter().filter_map(|entry| {
        let InboxRecord::Report(report) = &entry.record else { return None };
        let is_it = report.rid.as_deref() == Some(rid) && report.refused.is_none();
        is_it.then(|| (report.said.clone(), report.at.to_string()))
    });
    said.collect()
}

#[test]
fn an_end_may_say_when_it_began_and_is_then_two_reports() {
    let body = r#"{"said":"fail","rid":"whole","at":"2026-02-25T06:55:00Z","sentAt":"2026-02-25T07:00:00Z",
        "startedAt":"2026-02-25T06:54:00Z"}"#;
    assert_eq!(status(&report(body)), Some(200));
    let expected = [("start", "2026-02-25T08:54:00Z"), ("fail", "2026-02-25T08:55:00Z")];
    assert_eq!(reports_of("whole"), expected.map(|(said, at)| (said.to_owned(), at.to_owned())));
    for odd in [
        r#"{"said":"start","rid":"odd","startedAt":"2026-02-25T06:54:00Z"}"#,
        r#"{"said":"success","startedAt":"2026-02-25T06:54:00Z"}"#,
    ] {
        let answer = report(odd);
        assert_eq!(status(&answer), Some(400), "{odd}");
        let said = String::from_utf8_lossy(&answer);
        assert!(said.contains("`startedAt` belongs to no end"), "{said}");
    }
    assert_eq!(reports_of("odd"), [], "nothing of it is taken for a report");
}

#[test]
fn deep_and_long_json_is_refused_and_not_fallen_into() {
    let deep = "[".repeat(100_000);
    for (path, body) in [
        ("/api/v1/pipelines/backup/sensors/a", format!("{{\"value\":{deep}")),
        ("/api/v1/pipelines/backup/run", format!("{{\"params\":{deep}")),
        ("/api/v1/pipelines/backup/reports", deep.clone()),
    ] {
        let length = body.len();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {length}\r\n\r\n"
        );
        let sent = [head.as_bytes(), body.as_bytes()].concat();
        assert_eq!(status(&ask(&sent)), Some(400), "{path}");
    }
}
