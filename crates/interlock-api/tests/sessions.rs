//! Sessions of browsers over real sockets: begun with a token, ended with it, of no use to a job or to a page of another site.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::{
    io::{Read as _, Write as _},
    net::TcpStream,
    sync::Arc,
    time::Duration,
};

use interlock_api::{
    Doorkeeper, Hearing, InterfaceDeps, Limits, Post, Running, SessionKey, Surface,
    address::{Exposure, bind},
    start,
    token::{Scope, Token},
};
use jiff::Timestamp;
use serde_json::Value;

/// Nothing that is waited for takes longer, however busy the machine.
const PATIENCE: Duration = Duration::from_mins(1);

struct Site {
    door: Doorkeeper,
    running: Running,
}

/// What was answered: the status, the head in small letters, the body.
type Answer = (u16, String, String);

impl Site {
    fn new() -> Self {
        let scopes = [("marta", Scope::Operator), ("job", Scope::Ping(vec!["*".to_owned()]))];
        let tokens = scopes.map(|(name, scope)| Token::known(name, scope, &format!("il_{name}")));
        let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let door = Doorkeeper::new(vec![], Exposure::Anywhere, clock);
        door.take(tokens.to_vec());
        door.allow_sessions(SessionKey::draw().unwrap());
        let limits =
            Limits { time: PATIENCE, body_max: 10_000, per_second: 1_000, unread: PATIENCE };
        let clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let running = start(InterfaceDeps {
            post: Post::Taken(bind("127.0.0.1:0", Exposure::LoopbackOnly).unwrap()),
            surface: Arc::new(Surface::new("1.2.3")),
            door: door.clone(),
            limits,
            hearing: Hearing { instance: "here".to_owned(), clock },
            // Pages that are the API itself: what a page is allowed is what this says.
            pages: Some(Box::new(|api| api)),
        });
        Self { door, running: running.unwrap() }
    }

    fn ask(&self, request: &str, headers: &[&str], body: &str) -> Answer {
        let mut stream = TcpStream::connect(self.running.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let headers: String = headers.iter().flat_map(|header| [*header, "\r\n"]).collect();
        let length = body.len();
        write!(stream, "{request} HTTP/1.1\r\nHost: il.example\r\nConnection: close\r\nContent-Length: {length}\r\n{headers}\r\n{body}").unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let (head, body) = text.split_once("\r\n\r\n").unwrap();
        (head.split(' ').nth(1).unwrap().parse().unwrap(), head.to_lowercase(), body.to_owned())
    }

    fn login(&self, token: &str, headers: &[&str]) -> Answer {
        let form = "Content-Type: application/x-www-form-urlencoded";
        let body = format!("token={token}&next=%2Fincidents");
        self.ask("POST /session", &[&[form], headers].concat(), &body)
    }

    /// The cookie of a browser that logged in.
    fn cookie(&self) -> String {
        let form = "Content-Type: application/x-www-form-urlencoded";
        let mut stream = TcpStream::connect(self.running.address).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        let body = "token=il_marta";
        write!(stream, "POST /session HTTP/1.1\r\nHost: il.example\r\nConnection: close\r\nContent-Length: {}\r\n{form}\r\n\r\n{body}", body.len()).unwrap();
        let mut text = String::new();
        stream.read_to_string(&mut text).unwrap();
        let line = text.lines().find(|line| line.starts_with("set-cookie: ")).unwrap();
        let pair = line.trim_start_matches("set-cookie: ").split(';').next().unwrap();
        format!("Cookie: a=b; {pair}")
    }
}

#[test]
fn a_session_is_begun_with_a_token_and_ends_with_it() {
    let site = Site::new();
    let (status, head, _) = site.login("il_marta", &[]);
    assert_eq!(status, 303);
    assert!(head.contains("location: /incidents\r\n"), "{head}");
    assert!(head.contains("; path=/; httponly; samesite=lax; max-age=604800"), "{head}");
    assert!(!head.contains("il_marta"), "the token itself is not in the cookie: {head}");
    let cookie = site.cookie();
    let (status, _, body) = site.ask("GET /api/v1/session", &[&cookie], "");
    let told: Value = serde_json::from_str(&body).unwrap();
    assert_eq!((status, &told["name"], &told["scope"]), (200, &"marta".into(), &"operator".into()));
    site.door.take(vec![]);
    assert_eq!(site.ask("GET /api/v1/session", &[&cookie], "").0, 401, "revoked");
}

#[test]
fn who_shows_a_wrong_token_or_one_that_only_reports_gets_no_session() {
    let site = Site::new();
    for (token, code) in
        [("il_wrong", "token_needed"), ("il_job", "scope_needed"), ("", "token_needed")]
    {
        let (status, head, _) = site.login(token, &[]);
        assert_eq!(status, 303);
        assert!(head.contains(&format!("location: /login?wrong={code}&next=/incidents")), "{head}");
        assert!(!head.contains("set-cookie"), "{head}");
    }
}

#[test]
fn a_page_of_another_site_changes_nothing_and_begins_nothing() {
    let site = Site::new();
    assert_eq!(site.login("il_marta", &["Sec-Fetch-Site: cross-site"]).0, 403);
    let cookie = site.cookie();
    let pause = |headers: &[&str]| {
        site.ask(
            "POST /api/v1/pipelines/orders/pause",
            &[&[cookie.as_str()], headers].concat(),
            "{\"reason\": \"x\"}",
        )
        .0
    };
    for foreign in [
        "Sec-Fetch-Site: cross-site",
        "Sec-Fetch-Site: same-site",
        "Origin: https://evil.example",
        "Origin: null",
    ] {
        assert_eq!(pause(&[foreign]), 403, "{foreign}");
    }
    // Let in, and told that there is no store yet.
    for own in [&["Sec-Fetch-Site: same-origin"][..], &["Origin: https://il.example"], &[]] {
        assert_eq!(pause(own), 503, "{own:?}");
    }
}

#[test]
fn a_job_reports_with_a_token_and_never_with_a_cookie() {
    let site = Site::new();
    let cookie = site.cookie();
    assert_eq!(site.ask("GET /ping/orders", &[&cookie], "").0, 401);
    let token = "Authorization: Bearer il_job";
    assert_eq!(
        site.ask("GET /ping/orders", &[token], "").0,
        503,
        "let in, and there is no store yet"
    );
}
