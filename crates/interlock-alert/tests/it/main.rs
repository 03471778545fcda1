//! The real channels: a real receiver on a socket, a real file, a console that is a list.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod events;
mod holding;
mod kinds;
mod mail;
mod runbooks;
mod server;

use std::{
    collections::BTreeMap,
    fs,
    net::TcpListener,
    path::Path,
    sync::{Arc, Mutex},
};

use interlock_alert::{
    AlertMessage, Book, Channels, Delivery, Known, LocalChannels, signature::sign,
};
use interlock_config::server::{Alert as Declared, AlertFilter, AlertFormat, Channel};
use interlock_core::{
    id::PipelineId,
    incident::Alert,
    outbound::Outbound,
    pipeline::{Pipeline, Secret},
};
use interlock_trigger::web::Web;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::server::{Does, Server};

/// Channels that are declared once and for all.
struct Fixed(Arc<[Declared]>, Option<Arc<Pipeline>>);

impl Book for Fixed {
    fn channels(&self) -> Arc<[Declared]> {
        Arc::clone(&self.0)
    }

    fn pipeline<'a>(&'a self, _: &'a PipelineId) -> Known<'a> {
        Box::pin(std::future::ready(self.1.clone()))
    }
}

/// A channel as a file declares it that says nothing else.
fn declared_as(name: &str, channel: Channel, when: AlertFilter) -> Declared {
    Declared {
        name: name.to_owned(),
        channel,
        when,
        after: None,
        findings: 1,
        of: 0,
        recovered: 1,
        repeat: None,
        runbook: None,
        digest: None,
        format: AlertFormat::Alert,
    }
}

struct Bench {
    channels: LocalChannels,
    printed: Arc<Mutex<Vec<String>>>,
    folder: tempfile::TempDir,
}

impl Bench {
    fn new(declared: Vec<(&str, Channel, AlertFilter)>) -> Self {
        Self::sending(AlertFormat::Alert, declared)
    }

    /// The same for channels that are sent something in this format.
    fn sending(format: AlertFormat, declared: Vec<(&str, Channel, AlertFilter)>) -> Self {
        let declared = declared
            .into_iter()
            .map(|(name, channel, when)| Declared { format, ..declared_as(name, channel, when) });
        Self::of(Fixed(declared.collect(), None))
    }

    fn of(book: Fixed) -> Self {
        let (folder, printed) = (tempfile::tempdir().unwrap(), Arc::new(Mutex::new(Vec::new())));
        let lines = Arc::clone(&printed);
        let console = Arc::new(move |line: &str| {
            lines.lock().unwrap().push(line.to_owned());
            Ok(())
        });
        let channels = LocalChannels::new(
            Arc::new(book),
            Web::new(&Outbound::default()).unwrap(),
            console,
            folder.path().to_owned(),
        )
        .within(SignedDuration::from_millis(500));
        Self { channels, printed, folder }
    }

    async fn deliver(&self, channel: &str) -> Delivery {
        self.channels.deliver(channel, notice()).await
    }
}

fn golden() -> Value {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/golden/alert.json");
    serde_json::from_str(&fs::read_to_string(path).unwrap()).unwrap()
}

fn alert() -> Alert {
    let text = |text: &str| Value::from(text);
    Alert {
        level: "error".into(),
        alert_type: "schedule_missed".into(),
        pipeline_id: "earthquake-silver".into(),
        message: "Pipeline earthquake-silver schedule daily missed: no evaluation started by \
                  deadline 09:20 on 2026-02-25"
            .into(),
        details: BTreeMap::from([
            ("scheduleId".into(), text("daily")),
            ("date".into(), text("2026-02-25")),
            ("deadline".into(), text("09:20")),
            ("type".into(), text("schedule_missed")),
        ]),
        timestamp: "2026-02-25T09:25:00Z".parse().unwrap(),
    }
}

fn now() -> Timestamp {
    "2026-02-25T09:25:03.5Z".parse().unwrap()
}

fn notice() -> AlertMessage {
    AlertMessage {
        alert: alert(),
        key: "earthquake-silver/watchdog:…~1~opened@hook".into(),
        at: now(),
    }
}

fn webhook(url: &str) -> Channel {
    Channel::Webhook {
        url: Secret::new(url),
        secret: Some(Secret::new("whisper")),
        headers: BTreeMap::from([
            ("Authorization".into(), Secret::new("Bearer hush")),
            ("X-Interlock-Signature".into(), Secret::new("forged")),
        ]),
    }
}

/// What comes of one request to a receiver, and what the receiver saw.
async fn post(does: Does) -> (Delivery, Server) {
    let server = Server::new(does).await;
    let bench = Bench::new(vec![("hook", webhook(&server.url), AlertFilter::default())]);
    (bench.deliver("hook").await, server)
}

fn reason(delivery: &Delivery) -> &str {
    match delivery {
        Delivery::Failed { reason, .. } | Delivery::Refused { reason } => {
            assert!(!reason.contains("hush"), "a secret in `{reason}`");
            reason
        }
        Delivery::Delivered => panic!("it was delivered"),
    }
}

#[test]
fn the_json_is_the_seeds() {
    assert_eq!(alert().to_json(), golden());
    assert_eq!(Alert::from_json(&golden()), alert());
}

#[tokio::test]
async fn a_webhook_gets_the_alert_signed_over_time_and_body() {
    let (delivery, server) = post(Does::Answer("204 No Content")).await;
    assert_eq!(delivery, Delivery::Delivered);
    let [asked] = server.asked().try_into().unwrap();
    assert_eq!(asked.line, "POST /hook?token=hush HTTP/1.1");
    assert_eq!(serde_json::from_str::<Value>(&asked.body).unwrap(), golden());
    assert_eq!(asked.header("content-type"), Some("application/json"));
    assert_eq!(asked.header("authorization"), Some("Bearer hush"));
    let timestamp = asked.header("x-interlock-timestamp").unwrap();
    assert_eq!(timestamp, "1772011503");
    let expected = sign("whisper", timestamp, &asked.body);
    assert_eq!(asked.header("x-interlock-signature"), Some(expected.as_str()));
    let key = "earthquake-silver/watchdog:\\u{2026}~1~opened@hook";
    assert_eq!(asked.header("idempotency-key"), Some(key));
}

#[tokio::test]
async fn what_may_pass_is_a_failure_and_what_will_not_is_a_refusal() {
    let minute = Some(SignedDuration::from_mins(1));
    for (head, retry_after) in [
        ("500 Oops", None),
        ("503 Busy\r\nretry-after: 60", minute),
        ("429 Slow\r\nretry-after: Wed, 25 Feb 2026 09:26:03 GMT", minute),
        ("408 Late", None),
    ] {
        let (delivery, server) = post(Does::Answer(head)).await;
        let Delivery::Failed { retry_after: found, .. } = &delivery else { panic!("{head}") };
        let rounded = found.map(|d| SignedDuration::from_mins((d.as_secs() + 1) / 60));
        assert_eq!(rounded, retry_after, "{head}");
        assert_eq!((reason(&delivery).contains(&head[..3]), server.asked().len()), (true, 1));
    }
    for head in ["400 Bad", "401 Who", "404 Where", "302 There\r\nlocation: http://127.0.0.1:1/"] {
        let (delivery, server) = post(Does::Answer(head)).await;
        assert!(matches!(delivery, Delivery::Refused { .. }), "{head}: {delivery:?}");
        assert_eq!((reason(&delivery).contains(&head[..3]), server.asked().len()), (true, 1));
    }
}

#[tokio::test]
async fn a_receiver_that_hangs_hangs_up_or_is_not_there_is_a_failure() {
    for does in [Does::Hang, Does::HangUp] {
        let (delivery, server) = post(does).await;
        assert!(matches!(delivery, Delivery::Failed { .. }), "{delivery:?}");
        assert!(reason(&delivery).starts_with("127.0.0.1 "), "{delivery:?}");
        assert_eq!(server.asked().len(), 1);
    }
    // A port that was free a moment ago, and that nobody listens on.
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let url = format!("http://{free}/hook?token=hush");
    let bench = Bench::new(vec![("hook", webhook(&url), AlertFilter::default())]);
    let delivery = bench.deliver("hook").await;
    assert!(matches!(delivery, Delivery::Failed { .. }), "{delivery:?}");
    assert!(reason(&delivery).contains("refused"), "{delivery:?}");
}

#[tokio::test]
async fn a_file_gets_one_line_each_also_after_half_a_line() {
    let file = Channel::File { path: "deep/alerts.jsonl".into() };
    let bench = Bench::new(vec![("file", file, AlertFilter::default())]);
    let path = bench.folder.path().join("deep/alerts.jsonl");
    assert_eq!(bench.deliver("file").await, Delivery::Delivered);
    fs::write(&path, format!("{}{{\"half", fs::read_to_string(&path).unwrap())).unwrap();
    let tries = (0..20).map(|_| bench.channels.deliver("file", notice())).map(tokio::spawn);
    for task in tries.collect::<Vec<_>>() {
        assert_eq!(task.await.unwrap(), Delivery::Delivered);
    }
    let text = fs::read_to_string(&path).unwrap();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!((lines.len(), lines[1]), (22, "{\"half"));
    for line in lines.iter().filter(|line| **line != "{\"half") {
        assert_eq!(serde_json::from_str::<Value>(line).unwrap(), golden());
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_written_is_a_failure_that_names_it() {
    let bench =
        Bench::new(vec![("file", Channel::File { path: ".".into() }, AlertFilter::default())]);
    let delivery = bench.deliver("file").await;
    assert!(matches!(delivery, Delivery::Failed { .. }), "{delivery:?}");
    assert!(reason(&delivery).contains("cannot be written"), "{delivery:?}");
}

#[tokio::test]
async fn the_console_gets_a_line_and_is_there_without_being_declared() {
    let bench = Bench::new(vec![]);
    assert_eq!(bench.deliver("console").await, Delivery::Delivered);
    assert_eq!(
        bench.printed.lock().unwrap().as_slice(),
        ["2026-02-25T09:25:00Z ALERT error schedule_missed earthquake-silver: Pipeline \
          earthquake-silver schedule daily missed: no evaluation started by deadline 09:20 on \
          2026-02-25"]
    );
}

#[tokio::test]
async fn a_channel_that_was_taken_out_is_said_and_told_on_the_console() {
    let bench = Bench::new(vec![]);
    let gone = bench.deliver("gone").await;
    assert_eq!(reason(&gone), "interlock.yaml has no alert channel `gone` any more");
    assert_eq!(bench.channels.instead_of("gone", &alert()).await, ["console"]);
}

#[tokio::test]
async fn routes_follow_the_filters_and_dead_letters_go_to_others_that_work() {
    let only = |level: &str| AlertFilter { levels: vec![level.into()], ..AlertFilter::default() };
    let bench = Bench::new(vec![
        ("hook", webhook("http://127.0.0.1:1"), only("error")),
        ("quiet", Channel::Console, only("info")),
        ("log", Channel::File { path: "a".into() }, AlertFilter::default()),
    ]);
    assert_eq!(bench.channels.route(&alert()).await, ["hook", "log"]);
    assert_eq!(bench.channels.instead_of("hook", &alert()).await, ["log"]);
    assert_eq!(bench.channels.instead_of("log", &alert()).await, ["hook"]);
    let console = Bench::new(vec![("console", Channel::Console, AlertFilter::default())]);
    assert_eq!(console.channels.instead_of("console", &alert()).await, Vec::<String>::new());
}
