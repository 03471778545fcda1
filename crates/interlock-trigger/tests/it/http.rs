//! Jobs behind a url.

use interlock_core::{
    pipeline::{HttpCompletion, HttpTrigger, Secret, TriggerKind},
    retry::FailureCategory,
};
use interlock_trigger::{LookUp, Outcome, Triggers, What};
use jiff::SignedDuration;

use crate::{
    server::Server,
    world::{World, request, sentence},
};

fn http(url: &str, completion: HttpCompletion) -> HttpTrigger {
    HttpTrigger {
        url: url.to_owned(),
        method: "POST".to_owned(),
        headers: [("Authorization".to_owned(), Secret::new("Bearer ${TOKEN}"))].into(),
        body: Some("{\"date\": \"${date}\", \"who\": \"${params.who}\"}".to_owned()),
        completion,
        request_timeout: SignedDuration::from_secs(20),
    }
}

fn answered(status: u16) -> impl Fn(&crate::server::Asked, usize) -> (u16, String) {
    move |_, _| (status, String::new())
}

#[tokio::test]
async fn the_response_is_the_end() {
    let mut world = World::new();
    let server = Server::new(|_, _| (201, "{}".to_owned())).await;
    let trigger =
        http(&format!("{}/run/${{pipeline}}?slot=${{slot}}", server.url), HttpCompletion::Response);
    let mut asked = request("run-1", TriggerKind::Http(trigger));
    asked.params = [("who".to_owned(), "a\"b".to_owned())].into();
    let end = world.run(asked).await;
    assert_eq!(sentence(&end), "success");
    let requests = server.asked();
    assert_eq!(requests.len(), 1);
    assert_eq!(requests[0].line(), "POST /run/orders?slot=2026-02-25T09:00:00Z");
    assert_eq!(requests[0].header("idempotency-key"), Some("run-1"));
    assert_eq!(requests[0].header("authorization"), Some("Bearer s3cret"));
    assert_eq!(requests[0].header("content-type"), Some("application/json"));
    assert_eq!(requests[0].json(), serde_json::json!({"date": "2026-02-25", "who": "a\"b"}));
}

#[tokio::test]
async fn d1_20_refusals_are_classified() {
    let mut world = World::new();
    for (status, tries, category) in [
        (400, 1, "PERMANENT"),
        (404, 1, "PERMANENT"),
        (500, 1, "TRANSIENT"),
        (429, 3, "TRANSIENT"),
        (302, 1, "PERMANENT"),
    ] {
        let server = Server::new(answered(status)).await;
        let kind = TriggerKind::Http(http(&server.url, HttpCompletion::Response));
        let end = world.run(request(&format!("run-{status}"), kind)).await;
        assert!(
            sentence(&end).starts_with(&format!("{category}: the server answered {status}")),
            "{end:?}"
        );
        assert_eq!(server.asked().len(), tries, "{status}");
        let keys = server.asked();
        assert!(
            keys.iter()
                .all(|asked| asked.header("idempotency-key") == Some(&format!("run-{status}")))
        );
    }
}

#[tokio::test]
async fn a_refusal_that_passes_is_repeated_under_the_same_key() {
    let mut world = World::new();
    let server = Server::new(|_, before| (if before < 2 { 503 } else { 200 }, String::new())).await;
    let kind = TriggerKind::Http(http(&server.url, HttpCompletion::Response));
    assert_eq!(sentence(&world.run(request("run-1", kind)).await), "success");
    assert_eq!(server.asked().len(), 3);
}

#[tokio::test]
async fn s18_a_request_without_an_answer_is_unclear_and_not_repeated() {
    let world = World::new();
    for (status, category) in [(0, FailureCategory::Transient), (1, FailureCategory::Timeout)] {
        let server = Server::new(answered(status)).await;
        let mut trigger = http(&server.url, HttpCompletion::Callback);
        trigger.request_timeout = SignedDuration::from_millis(500);
        let asked = request("run-1", TriggerKind::Http(trigger));
        let failure = world.triggers.start(asked.clone()).await.unwrap_err();
        assert!(failure.may_have_started, "{failure:?}");
        assert_eq!(failure.category, category);
        assert!(!failure.message.contains("s3cret"));
        assert_eq!(server.asked().len(), 1);
        let found = world.triggers.look_up(&asked).await.unwrap();
        assert!(matches!(found, LookUp::CannotTell { .. }), "{found:?}");
    }
}

#[tokio::test]
async fn nobody_at_the_door_means_not_started() {
    let world = World::new();
    let trigger = http("http://127.0.0.1:1/x?token=${TOKEN}", HttpCompletion::Response);
    let failure =
        world.triggers.start(request("run-1", TriggerKind::Http(trigger))).await.unwrap_err();
    assert!(!failure.may_have_started);
    assert_eq!(failure.category, FailureCategory::Transient);
    assert!(failure.message.starts_with("127.0.0.1 cannot be reached"), "{failure}");
    assert!(!failure.message.contains("s3cret"), "{failure}");
}

#[tokio::test]
async fn a_callback_is_waited_for() {
    let mut world = World::new();
    let server = Server::new(answered(202)).await;
    world.start("run-1", TriggerKind::Http(http(&server.url, HttpCompletion::Callback))).await;
    let report = world.next().await;
    assert!(matches!(report.what, What::Started { .. }), "{report:?}");
    assert!(world.reports.try_recv().is_err());
}

#[tokio::test]
async fn a_url_is_polled_until_it_tells_the_end() {
    let mut world = World::new();
    let server = Server::new(|asked, before| match (asked.method.as_str(), before) {
        ("POST", _) => (202, String::new()),
        // Intermediate words and failing polls are no results (facts D1-21).
        (_, 1) => (200, "{\"status\": \"COMPLETING\"}".to_owned()),
        (_, 2) => (503, String::new()),
        (_, 3) => (200, "not json".to_owned()),
        _ => (200, "{\"status\": \"FAILED\", \"message\": \"no rows\"}".to_owned()),
    })
    .await;
    let poll = HttpCompletion::Poll { url: format!("{}/state/${{runId}}", server.url) };
    let asked = request("run-1", TriggerKind::Http(http(&server.url, poll)));
    let end = world.run(asked.clone()).await;
    assert_eq!(sentence(&end), "TRANSIENT: no rows");
    let last = server.asked().pop().unwrap();
    assert_eq!(last.line(), "GET /state/run-1");
    assert_eq!(last.header("authorization"), Some("Bearer s3cret"));
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::Finished(Outcome::Failure { .. })), "{found:?}");
}

#[tokio::test]
async fn a_restarted_daemon_polls_again_after_looking() {
    let mut world = World::new();
    let server = Server::new(|_, before| {
        let status = if before < 2 { "running" } else { "success" };
        (200, format!("{{\"status\": \"{status}\"}}"))
    })
    .await;
    let poll = HttpCompletion::Poll { url: server.url.clone() };
    let asked = request("run-1", TriggerKind::Http(http(&server.url, poll)));
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::Running { .. }), "{found:?}");
    assert_eq!(sentence(&world.end_of("run-1").await), "success");
}

#[tokio::test]
async fn polling_has_an_end() {
    let mut world = World::new();
    let server = Server::new(|_, _| (200, "{\"status\": \"running\"}".to_owned())).await;
    let poll = HttpCompletion::Poll { url: server.url.clone() };
    let mut asked = request("run-1", TriggerKind::Http(http(&server.url, poll)));
    asked.timeout = Some(SignedDuration::from_millis(300));
    let end = world.run(asked).await;
    assert_eq!(sentence(&end), "TIMEOUT: it did not end within its timeout of 300ms");
}

#[tokio::test]
async fn an_endless_answer_is_cut() {
    let mut world = World::new();
    let server = Server::new(|_, _| (500, "x".repeat(3_000_000))).await;
    let kind = TriggerKind::Http(http(&server.url, HttpCompletion::Response));
    let end = sentence(&world.run(request("run-1", kind)).await);
    assert!(end.len() < 700, "{}", end.len());
}

#[tokio::test]
async fn external_jobs_are_started_by_saying_so() {
    let mut world = World::new();
    let asked = request("run-1", TriggerKind::External);
    world.triggers.start(asked.clone()).await.unwrap();
    assert!(matches!(world.next().await.what, What::Started { .. }));
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::CannotTell { .. }), "{found:?}");
    assert!(!world.triggers.cancel(&asked).await.unwrap_err().is_retryable);
}

#[tokio::test]
async fn a_kind_of_another_build_is_refused_by_name() {
    let world = World::new();
    let kind = TriggerKind::Other { name: "glue".to_owned(), options: [].into() };
    let failure = world.triggers.start(request("run-1", kind)).await.unwrap_err();
    assert_eq!(failure.category, FailureCategory::Permanent);
    assert!(failure.message.contains("`glue`") && failure.message.contains("AWS"), "{failure}");
}
