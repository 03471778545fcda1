//! The OpenAPI document, and what it says of scopes, against the routes as they are.
//!
//! `UPDATE_OPENAPI=1 cargo nextest run -p interlock-api document` writes `docs/openapi.json` anew.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

use std::{
    collections::{BTreeMap, BTreeSet},
    env, fs,
    io::{Read as _, Write as _},
    net::TcpStream,
    path::PathBuf,
    sync::Arc,
    time::Duration,
};

use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Post, Running, Surface,
    address::{Exposure, bind},
    openapi, start,
    token::{Scope, Token},
};
use interlock_store::{Store, memory::MemoryStore};
use jiff::Timestamp;
use serde_json::Value;

const PATIENCE: Duration = Duration::from_mins(1);

/// What an operation needs: the least that is enough.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Needs {
    Nothing,
    Ping,
    /// A signature of another instance; no token is enough.
    Instance,
    Badge,
    View,
    Operate,
    Administer,
}
use Needs::{Administer, Badge, Instance, Nothing, Operate, Ping, View};

/// Every operation of the document. One that is not here, or is here and not there, fails.
const SCOPES: &[(&str, Needs)] = &[
    ("delete /api/v1/silences/{id}", Operate),
    ("delete /api/v1/tokens/{id}", Administer),
    ("get /api/v1/backfills", View),
    ("get /api/v1/catchup/plan", View),
    ("get /api/v1/coverage-gaps", View),
    ("get /api/v1/dead-letters", View),
    ("get /api/v1/doctor", View),
    ("get /api/v1/events", View),
    ("get /api/v1/fleet", View),
    ("get /api/v1/incidents", View),
    ("get /api/v1/incidents/groups", View),
    ("get /api/v1/incidents/{pipeline}/{key}", View),
    ("get /api/v1/instances", View),
    ("get /api/v1/openapi.json", Nothing),
    ("get /api/v1/instances/runs/{id}/log", Instance),
    ("get /api/v1/pauses", View),
    ("get /api/v1/pipelines", View),
    ("get /api/v1/pipelines/{pipeline}", View),
    ("get /api/v1/pipelines/{pipeline}/backfills/{id}", View),
    ("get /api/v1/pipelines/{pipeline}/marked-days", View),
    ("get /api/v1/pipelines/{pipeline}/next", View),
    ("get /api/v1/pipelines/{pipeline}/readiness", View),
    ("get /api/v1/pipelines/{pipeline}/sensors", View),
    ("get /api/v1/pipelines/{pipeline}/sensors/{key}", View),
    ("get /api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}", View),
    ("get /api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}/story", View),
    ("get /api/v1/requests/{pipeline}/{key}", View),
    ("get /api/v1/runs", View),
    ("get /api/v1/runs/{id}", View),
    ("get /api/v1/runs/{id}/log", View),
    ("get /api/v1/session", View),
    ("get /api/v1/shards", View),
    ("get /api/v1/silences", View),
    ("get /api/v1/slots", View),
    ("get /api/v1/stream", View),
    ("get /api/v1/tokens", Administer),
    ("get /api/v1/watermarks", View),
    ("get /badge/{file}", Badge),
    ("get /healthz", Nothing),
    ("get /metrics", View),
    ("get /ping/{pipeline}", Ping),
    ("get /ping/{pipeline}/{what}", Ping),
    ("get /readyz", Nothing),
    ("post /api/v1/barks", Operate),
    ("post /api/v1/incidents/{pipeline}/{key}/acknowledge", Operate),
    ("post /api/v1/incidents/{pipeline}/{key}/note", Operate),
    ("post /api/v1/incidents/{pipeline}/{key}/resolve", Operate),
    ("post /api/v1/notifications/{pipeline}/{name}/send", Operate),
    ("post /api/v1/pipelines/{pipeline}/backfills", Operate),
    ("post /api/v1/pipelines/{pipeline}/backfills/plan", View),
    ("post /api/v1/pipelines/{pipeline}/backfills/{id}/cancel", Operate),
    ("post /api/v1/pipelines/{pipeline}/backfills/{id}/pause", Operate),
    ("post /api/v1/pipelines/{pipeline}/backfills/{id}/resume", Operate),
    ("post /api/v1/pipelines/{pipeline}/catchup", Operate),
    ("post /api/v1/pipelines/{pipeline}/catchup/plan", View),
    ("post /api/v1/pipelines/{pipeline}/catchup/stop", Operate),
    ("post /api/v1/pipelines/{pipeline}/evaluate", Operate),
    ("post /api/v1/pipelines/{pipeline}/pause", Operate),
    ("post /api/v1/pipelines/{pipeline}/reports", Ping),
    ("post /api/v1/pipelines/{pipeline}/resume", Operate),
    ("post /api/v1/pipelines/{pipeline}/resume/plan", View),
    ("post /api/v1/pipelines/{pipeline}/run", Operate),
    ("post /api/v1/pipelines/{pipeline}/sensors/{key}", Operate),
    ("post /api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}/cancel", Operate),
    ("post /api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}/rerun", Operate),
    ("post /api/v1/runs/{id}/complete", Operate),
    ("post /api/v1/silences", Operate),
    ("post /api/v1/silences/plan", View),
    ("post /api/v1/tokens", Administer),
    ("post /ping/{pipeline}", Ping),
    ("post /ping/{pipeline}/{what}", Ping),
    ("put /ping/{pipeline}", Ping),
    ("put /ping/{pipeline}/{what}", Ping),
];

/// The tokens that are tried, and what each is enough for.
const TOKENS: [(&str, &[Needs]); 7] = [
    ("", &[Nothing]),
    ("wrong", &[Nothing]),
    ("ping", &[Nothing, Ping]),
    ("badge", &[Nothing, Badge]),
    ("viewer", &[Nothing, Badge, View]),
    ("operator", &[Nothing, Ping, Badge, View, Operate]),
    ("admin", &[Nothing, Ping, Badge, View, Operate, Administer]),
];

fn document() -> Value {
    serde_json::from_str(&openapi()).unwrap()
}

/// The operations of the document, as `method path`.
fn operations(document: &Value) -> BTreeMap<String, Value> {
    let paths = document["paths"].as_object().unwrap();
    let all = paths.iter().flat_map(|(path, item)| {
        let item = item.as_object().unwrap();
        item.iter().map(move |(method, operation)| (format!("{method} {path}"), operation.clone()))
    });
    all.collect()
}

#[test]
fn the_committed_document_is_that_of_the_routes() {
    let file = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../docs/openapi.json");
    if env::var_os("UPDATE_OPENAPI").is_some() {
        fs::write(&file, openapi()).unwrap();
    }
    let committed = fs::read_to_string(&file).unwrap_or_default();
    let cure = "UPDATE_OPENAPI=1 cargo nextest run -p interlock-api document";
    assert!(
        committed == openapi(),
        "docs/openapi.json is not what the routes say. If they are right: {cure}"
    );
}

#[test]
fn the_document_is_whole() {
    let document = document();
    assert_eq!(document["openapi"], "3.1.0");
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&document) {
        let id = operation["operationId"].as_str().unwrap_or_default();
        assert!(ids.insert(id.to_owned()), "{name}: another operation is called `{id}` too");
        assert!(operation["summary"].is_string(), "{name} does not say what it does");
        assert!(operation["x-interlock-scope"].is_string(), "{name}");
        let problem = &operation["responses"]["default"]["content"]["application/problem+json"];
        assert_eq!(problem["schema"]["$ref"], "#/components/schemas/Problem", "{name}");
    }
    let text = document.to_string();
    for found in text.split("\"#/components/schemas/").skip(1) {
        let name = found.split('"').next().unwrap();
        assert!(document["components"]["schemas"][name].is_object(), "there is no schema {name}");
    }
}

struct Site {
    running: Running,
    _surface: Arc<Surface>,
}

impl Site {
    fn new() -> Self {
        let surface = Arc::new(Surface::new("1.2.3"));
        let store = Arc::new(MemoryStore::new(1, Arc::new(|| Timestamp::UNIX_EPOCH)));
        surface.store.set(store as Arc<dyn Store>).unwrap();
        let tokens = [
            ("ping", Scope::Ping(vec!["*".to_owned()])),
            ("badge", Scope::Badge),
            ("viewer", Scope::Viewer),
            ("operator", Scope::Operator),
            ("admin", Scope::Admin),
        ];
        let tokens = tokens.map(|(text, scope)| Token::known(text, scope, text)).to_vec();
        let clock: interlock_api::access::Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
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
        Self { running, _surface: surface }
    }

    /// The status that an operation is answered with.
    fn ask(&self, name: &str, token: &str) -> u16 {
        let (method, path) = name.split_once(' ').unwrap();
        let path = path
            .replace("{pipeline}", "orders")
            .replace("{instant}", "2026-02-25T09:00:00Z")
            .replace("{id}", "1")
            .replace("{what}", "start")
            .replace(['{', '}'], "");
        let shown =
            if token.is_empty() { String::new() } else { format!("X-API-Key: {token}\r\n") };
        let request = format!(
            "{} {path} HTTP/1.1\r\nHost: localhost\r\n{shown}Prefer: wait=0\r\nConnection: close\r\n\r\n",
            method.to_uppercase()
        );
        let mut stream = TcpStream::connect(self.running.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.write_all(request.as_bytes()).unwrap();
        let mut answer = String::new();
        // A stream has no end: the beginning is enough.
        let mut beginning = [0; 100];
        let read = stream.read(&mut beginning).unwrap();
        answer.push_str(&String::from_utf8_lossy(&beginning[..read]));
        answer
            .split(' ')
            .nth(1)
            .and_then(|status| status.parse().ok())
            .unwrap_or_else(|| panic!("{answer}"))
    }
}

#[test]
fn every_operation_asks_for_the_scope_of_the_table() {
    let document = document();
    let operations = operations(&document);
    let known: BTreeSet<&str> = SCOPES.iter().map(|(name, _)| *name).collect();
    let described: BTreeSet<&str> = operations.keys().map(String::as_str).collect();
    assert_eq!(known, described, "each route has a line in the table of this test");
    let site = Site::new();
    for (name, needs) in SCOPES {
        let said = operations[*name]["x-interlock-scope"].as_str().unwrap();
        let expected = match needs {
            Nothing => "none",
            Ping => "ping (for this pipeline) or operator",
            Instance => "none: a signature of another instance",
            Badge => "badge, viewer, operator or admin",
            View => "viewer, operator or admin",
            Operate => "operator or admin",
            Administer => "admin",
        };
        assert_eq!(said, expected, "{name}");
        for (token, enough) in TOKENS {
            // What it is refused with otherwise is another question: there is nothing here to act on.
            let status = site.ask(name, token);
            let is_known = !matches!(token, "" | "wrong");
            let refused = if is_known && *needs != Instance { 403 } else { 401 };
            // Too many wrong ones in a row are told to wait.
            let is_refused = status == refused || (token == "wrong" && status == 429);
            assert_eq!(is_refused, !enough.contains(needs), "{name} with `{token}`: {status}");
        }
    }
}
