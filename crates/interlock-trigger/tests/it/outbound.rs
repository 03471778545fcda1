//! The guard on outbound calls: what is refused is not even dialled.

use interlock_core::{
    outbound::{Network, Outbound},
    pipeline::{HttpCompletion, HttpTrigger, TriggerKind},
    retry::FailureCategory,
};
use interlock_trigger::{
    Triggers as _,
    web::{BODY_BYTES_MAX, Call, Web, WebFailure, WebFailureKind},
};
use jiff::SignedDuration;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

use crate::{
    server::Server,
    world::{World, request},
};

fn loopback_denied() -> Outbound {
    let deny = ["127.0.0.0/8", "::1"].map(|text| Network::parse(text).unwrap());
    Outbound { deny: deny.to_vec(), ..Outbound::default() }
}

async fn get(outbound: &Outbound, url: &str) -> Result<u16, WebFailure> {
    let call = Call {
        method: "GET".to_owned(),
        url: url.to_owned(),
        headers: vec![],
        body: None,
        timeout: SignedDuration::from_secs(5),
    };
    Web::new(outbound).unwrap().send(&call).await.map(|answer| answer.status)
}

async fn listening() -> (Server, u16) {
    let server = Server::new(|_, _| (200, "{}".to_owned())).await;
    let port = server.url.rsplit_once(':').unwrap().1.parse().unwrap();
    (server, port)
}

#[tokio::test]
async fn a_refused_address_is_not_dialled_however_it_is_written() {
    let (server, port) = listening().await;
    for host in [
        "127.0.0.1",
        "2130706433",
        "0x7f.1",
        "127.1",
        "[::ffff:127.0.0.1]",
        "[::ffff:7f00:1]",
        "[::127.0.0.1]",
        "[64:ff9b::7f00:1]",
        "[64:ff9b:1::7f00:1]",
        "[2002:7f00:1::]",
        "[::ffff:0:127.0.0.1]",
        // Octal, hexadecimal, a dot at the end, other digits, percent signs.
        "0177.0.0.1",
        "0x7f000001",
        "127.0.0.1.",
        "\u{2460}\u{2461}\u{2466}.0.0.1",
        "%31%32%37.0.0.1",
        // The name says nothing; what it resolves to does.
        "localhost",
    ] {
        let url = format!("http://{host}:{port}/");
        let failure = get(&loopback_denied(), &url).await.unwrap_err();
        assert_eq!(failure.kind, WebFailureKind::Refused, "{host}: {failure:?}");
        assert_eq!(failure.category(), FailureCategory::Permanent);
        assert!(!failure.may_have_arrived());
        assert!(failure.message.contains("127.0.0.0/8"), "{}", failure.message);
        assert!(failure.message.contains("engine.outbound.deny"), "{}", failure.message);
    }
    assert!(server.asked().is_empty(), "somebody was dialled");
    // The same calls arrive where nothing is denied: it is the guard that holds them back.
    for host in ["127.0.0.1", "2130706433", "localhost"] {
        let url = format!("http://{host}:{port}/");
        assert_eq!(get(&Outbound::default(), &url).await, Ok(200), "{host}");
    }
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn clouds_metadata_is_refused_by_default_and_says_so() {
    for host in ["169.254.169.254", "[fe80::1]", "[fd00:ec2::254]", "[::ffff:a9fe:a9fe]", "0.0.0.0"]
    {
        let failure =
            get(&Outbound::default(), &format!("http://{host}/latest")).await.unwrap_err();
        assert_eq!(failure.kind, WebFailureKind::Refused, "{host}: {failure:?}");
    }
    let failure = get(&Outbound::default(), "http://169.254.169.254/").await.unwrap_err();
    assert_eq!(
        failure.message,
        "169.254.169.254 may not be called: it is link-local, where clouds keep their metadata; \
         `engine.outbound.allow` can open it"
    );
}

#[tokio::test]
async fn what_a_site_opens_is_dialled() {
    let (_server, port) = listening().await;
    let open = Outbound { allow: vec![Network::parse("127.0.0.1").unwrap()], ..loopback_denied() };
    assert_eq!(get(&open, &format!("http://localhost:{port}/")).await, Ok(200));
}

#[tokio::test]
async fn a_redirect_is_not_followed_anywhere() {
    let (behind, _) = listening().await;
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let answer = format!(
        "HTTP/1.1 307 Temporary Redirect\r\nlocation: {}\r\ncontent-length: 0\r\n\r\n",
        behind.url
    );
    tokio::spawn(async move {
        // Bounded: nothing awaits this task; it ends with the test's runtime.
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        // Bounded: nothing awaits this task; it ends with the test's runtime.
        assert!(stream.read(&mut request).await.unwrap() > 0);
        stream.write_all(answer.as_bytes()).await.unwrap();
    });
    assert_eq!(get(&Outbound::default(), &url).await, Ok(307));
    assert!(behind.asked().is_empty());
}

#[tokio::test]
async fn a_trigger_to_a_refused_address_fails_for_good_and_surely_did_not_start() {
    let world = World::new();
    let kind = TriggerKind::Http(HttpTrigger {
        url: "http://169.254.169.254/latest/meta-data/".to_owned(),
        method: "GET".to_owned(),
        headers: std::collections::BTreeMap::new(),
        body: None,
        request_timeout: SignedDuration::from_secs(5),
        completion: HttpCompletion::Response,
    });
    let failure = world.triggers.start(request("a", kind)).await.unwrap_err();
    assert_eq!(failure.category, FailureCategory::Permanent);
    assert!(!failure.may_have_started);
    assert!(failure.message.contains("may not be called"), "{}", failure.message);
}

#[tokio::test]
async fn what_is_no_web_address_or_holds_a_password_is_refused_before_anything_is_dialled() {
    let (server, port) = listening().await;
    for url in [
        format!("ftp://127.0.0.1:{port}/"),
        "file:///etc/passwd".to_owned(),
        format!("gopher://127.0.0.1:{port}/"),
        // Which of the two is the host?
        format!("http://169.254.169.254@127.0.0.1:{port}/"),
        format!("http://ann:secret@127.0.0.1:{port}/"),
        format!("http://:secret@127.0.0.1:{port}/"),
    ] {
        let failure = get(&Outbound::default(), &url).await.unwrap_err();
        assert_eq!(failure.kind, WebFailureKind::Refused, "{url}: {failure:?}");
        assert!(!failure.message.contains("secret"), "{}", failure.message);
        assert!(!failure.message.contains("can open it"), "{}", failure.message);
    }
    assert!(server.asked().is_empty(), "somebody was dialled");
}

/// An answer that never ends, and does not say how long it is.
#[tokio::test]
async fn an_endless_answer_is_cut_by_what_came_not_by_what_it_says() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    tokio::spawn(async move {
        // Bounded: nothing awaits this task; it ends with the test's runtime.
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut request = [0; 1024];
        // Bounded: nothing awaits this task; it ends with the test's runtime.
        assert!(stream.read(&mut request).await.unwrap() > 0);
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n";
        stream.write_all(head.as_bytes()).await.unwrap();
        let chunk = format!("2000\r\n{}\r\n", "x".repeat(0x2000));
        while stream.write_all(chunk.as_bytes()).await.is_ok() {}
    });
    let call = Call {
        method: "GET".to_owned(),
        url,
        headers: vec![],
        body: None,
        timeout: SignedDuration::from_secs(30),
    };
    let answer = Web::new(&Outbound::default()).unwrap().send(&call).await.unwrap();
    assert!(answer.is_cut && answer.body.len() == BODY_BYTES_MAX, "{}", answer.body.len());
}
