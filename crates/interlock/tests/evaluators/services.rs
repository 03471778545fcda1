//! Evaluators that are HTTP services.

use std::time::{Duration, Instant};

use interlock_core::outbound::{Network, Outbound};

use crate::{
    house::{House, line},
    server::Server,
};

/// A service that answers one after the other, the last one again and again.
async fn service(answers: &'static [(u16, &'static str)]) -> Server {
    Server::new(move |_, before| {
        let (status, body) = answers[before.min(answers.len() - 1)];
        (status, body.to_owned())
    })
    .await
}

#[tokio::test]
async fn case_41_every_status_and_how_often_it_is_asked() {
    const PASS: &str = r#"{"status":"PASS"}"#;
    const HTTP: &str = "EVALUATOR_HTTP_ERROR: the server answered";
    for (answers, expected, asked) in [
        (&[(200, PASS)][..], "PASS  ".to_owned(), 1),
        (&[(201, r#"{"status":"FAIL","reason":"late"}"#)], "FAIL  late".to_owned(), 1),
        (&[(503, ""), (200, PASS)], "PASS  ".to_owned(), 2),
        (&[(429, ""), (502, ""), (200, PASS)], "PASS  ".to_owned(), 3),
        (&[(0, ""), (200, PASS)], "PASS  ".to_owned(), 2),
        (&[(503, "busy")], format!("ERROR TRANSIENT {HTTP} 503 Service Unavailable: busy"), 3),
        (&[(429, "")], format!("ERROR TRANSIENT {HTTP} 429 Too Many Requests"), 3),
        (&[(500, "")], format!("ERROR TRANSIENT {HTTP} 500 Internal Server Error"), 1),
        (&[(400, "no")], format!("ERROR PERMANENT {HTTP} 400 Bad Request: no"), 1),
        (&[(404, "")], format!("ERROR PERMANENT {HTTP} 404 Not Found"), 1),
        (
            &[(302, "")],
            format!("ERROR PERMANENT {HTTP} 302 Found; redirects are not followed"),
            1,
        ),
        (
            &[(200, "OK")],
            "ERROR PERMANENT EVALUATOR_OUTPUT_INVALID: it is not JSON: expected value at line 1 column 1"
                .to_owned(),
            1,
        ),
    ] {
        let server = service(answers).await;
        let answer = House::new().ask(&server.url).await;
        assert_eq!(line(&answer), expected, "{answers:?}");
        assert_eq!(server.asked().len(), asked, "{answers:?}");
    }
}

#[tokio::test]
async fn case_41_the_question_is_the_body_of_a_post() {
    let server = service(&[(200, r#"{"status":"PASS"}"#)]).await;
    House::new().ask(&format!("{}/traits/freshness", server.url)).await;
    let asked = server.asked().pop().unwrap();
    assert_eq!(asked.line(), "POST /traits/freshness");
    assert_eq!(asked.header("content-type"), Some("application/json"));
    let expected = serde_json::json!({
        "pipelineId": "orders", "traitType": "freshness", "config": {"table": "orders"},
    });
    assert_eq!(asked.json(), expected);
}

#[tokio::test]
async fn case_41_silence_ends_with_the_time_limit() {
    let server = service(&[(1, "")]).await;
    let start = Instant::now();
    let answer = House::new().ask_within(&server.url, 500).await;
    assert_eq!(line(&answer), "ERROR TIMEOUT EVALUATOR_TIMEOUT: no answer within 500ms");
    assert!(start.elapsed() < Duration::from_millis(1_500), "{:?}", start.elapsed());
}

#[tokio::test]
async fn the_time_limit_holds_for_all_tries_together() {
    let server = service(&[(503, "")]).await;
    let answer = House::new().ask_within(&server.url, 100).await;
    assert_eq!(line(&answer), "ERROR TIMEOUT EVALUATOR_TIMEOUT: no answer within 100ms");
    assert_eq!(server.asked().len(), 1, "the next try would have come too late");
}

#[tokio::test]
async fn an_endless_answer_is_no_answer() {
    let server = Server::new(|_, _| (200, "x".repeat(10_000_000))).await;
    let expected = "ERROR PERMANENT EVALUATOR_OUTPUT_INVALID: it is longer than 65536 bytes";
    assert_eq!(line(&House::new().ask(&server.url).await), expected);
}

#[tokio::test]
async fn nobody_there_is_transient_and_a_refused_address_permanent() {
    let house = House::with(|options| {
        let deny = vec![Network::parse("127.0.0.1").unwrap()];
        options.outbound = Outbound { deny, ..Outbound::default() };
    });
    let server = service(&[(200, r#"{"status":"PASS"}"#)]).await;
    let said = line(&house.ask(&server.url.replace("127.0.0.1", "localhost")).await);
    assert!(said.starts_with("ERROR PERMANENT EVALUATOR_HTTP_ERROR: localhost may not"), "{said}");
    assert!(server.asked().is_empty());
    let said = line(&House::new().ask("http://169.254.169.254/latest").await);
    assert!(said.starts_with("ERROR PERMANENT EVALUATOR_HTTP_ERROR: 169.254.169.254"), "{said}");

    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    let said = line(&House::new().ask(&url).await);
    assert!(said.starts_with("ERROR TRANSIENT EVALUATOR_HTTP_ERROR: 127.0.0.1 cannot"), "{said}");
}
