//! DAG runs, against a stand-in that checks the shapes of the real APIs.

use interlock_core::{
    pipeline::{AirflowTrigger, Secret, TriggerKind},
    retry::FailureCategory,
};
use interlock_trigger::{LookUp, Outcome, Triggers, What};
use jiff::SignedDuration;
use serde_json::json;

use crate::{
    server::{Asked, Server},
    world::{World, request, sentence},
};

const RUN: &str = "orders~daily~20260225T090000Z~1~1";

fn airflow(url: &str, version: u8) -> TriggerKind {
    TriggerKind::Airflow(AirflowTrigger {
        url: format!("{url}/"),
        dag_id: "load_orders".to_owned(),
        version,
        headers: [("Authorization".to_owned(), Secret::new("Bearer ${TOKEN}"))].into(),
        conf: [("day".to_owned(), json!("${date}")), ("deep".to_owned(), json!([{"n": 1}]))].into(),
        request_timeout: SignedDuration::from_secs(20),
    })
}

fn state(state: &str) -> (u16, String) {
    (200, json!({"dag_run_id": RUN, "dag_id": "load_orders", "state": state}).to_string())
}

/// Says what is wrong with a request, as the real server would.
fn objection(asked: &Asked, api: &str) -> Option<(u16, String)> {
    if asked.header("authorization") != Some("Bearer s3cret") {
        return Some((401, "{\"title\": \"Unauthorized\"}".to_owned()));
    }
    let runs = format!("/api/{api}/dags/load_orders/dagRuns");
    let run = format!("{runs}/{RUN}");
    let known = match asked.method.as_str() {
        "POST" => asked.path == runs && asked.header("content-type") == Some("application/json"),
        "GET" | "PATCH" => asked.path == run,
        _ => false,
    };
    (!known).then(|| (405, asked.line()))
}

async fn server(
    api: &'static str,
    answer: impl Fn(&Asked, usize) -> (u16, String) + Send + Sync + 'static,
) -> Server {
    Server::new(move |asked, before| objection(asked, api).unwrap_or_else(|| answer(asked, before)))
        .await
}

#[tokio::test]
async fn a_dag_run_is_created_and_polled_to_its_end() {
    let mut world = World::new();
    for (version, api) in [(2, "v1"), (3, "v2")] {
        let server = server(api, |_, before| match before {
            0 => state("queued"),
            1 => state("running"),
            _ => state("success"),
        })
        .await;
        world.start(RUN, airflow(&server.url, version)).await;
        let story = world.story_of(RUN).await;
        let What::Started { metadata } = &story[0] else { panic!("{story:?}") };
        assert_eq!(metadata["dagRunId"], RUN);
        assert_eq!(sentence(&story[1]), "success");
        let body = server.asked()[0].json();
        assert_eq!(body["dag_run_id"], RUN);
        assert_eq!(body["conf"]["day"], "2026-02-25");
        assert_eq!(body["conf"]["deep"], json!([{"n": 1}]));
        assert_eq!(body["conf"]["interlock"]["slot"], "2026-02-25T09:00:00Z");
        let keys: Vec<_> = body.as_object().unwrap().keys().map(String::as_str).collect();
        // Version 3 requires the key and takes null; version 2 refuses null.
        let expected: &[&str] = if version == 3 {
            &["conf", "dag_run_id", "logical_date"]
        } else {
            &["conf", "dag_run_id"]
        };
        assert_eq!(keys, expected);
    }
}

#[tokio::test]
async fn s2_a_repeated_start_finds_the_run_it_started() {
    let mut world = World::new();
    let server = server("v1", |asked, _| match asked.method.as_str() {
        "POST" => (409, "{\"title\": \"Conflict\"}".to_owned()),
        _ => state("failed"),
    })
    .await;
    world.start(RUN, airflow(&server.url, 2)).await;
    assert_eq!(sentence(&world.end_of(RUN).await), "TRANSIENT: the DAG run failed");
}

#[tokio::test]
async fn another_conflict_is_a_refusal() {
    let world = World::new();
    let server = server("v1", |asked, _| match asked.method.as_str() {
        "POST" => (409, "the DAG is paused".to_owned()),
        _ => (404, String::new()),
    })
    .await;
    let failure = world.triggers.start(request(RUN, airflow(&server.url, 2))).await.unwrap_err();
    assert_eq!(failure.category, FailureCategory::Permanent);
    assert_eq!(failure.message, "the server answered 409 Conflict: the DAG is paused");
    assert!(!failure.may_have_started);
}

#[tokio::test]
async fn s18_a_dag_run_is_looked_up_by_its_id() {
    let mut world = World::new();
    let server = server("v2", |_, before| match before {
        0 => (404, "{\"detail\": \"not found\"}".to_owned()),
        1 => (500, String::new()),
        2 => state("running"),
        _ => state("success"),
    })
    .await;
    let asked = request(RUN, airflow(&server.url, 3));
    assert_eq!(world.triggers.look_up(&asked).await.unwrap(), LookUp::NeverStarted);
    assert!(world.triggers.look_up(&asked).await.is_err(), "a failed question is no answer");
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::Running { .. }), "{found:?}");
    assert_eq!(sentence(&world.end_of(RUN).await), "success");
    let found = world.triggers.look_up(&asked).await.unwrap();
    assert!(matches!(found, LookUp::Finished(Outcome::Success { .. })), "{found:?}");
}

#[tokio::test]
async fn a_dag_run_is_cancelled_by_failing_it() {
    let mut world = World::new();
    let server = server("v1", |_, _| state("running")).await;
    let mut asked = request(RUN, airflow(&server.url, 2));
    asked.poll_interval = Some(SignedDuration::from_hours(1));
    world.triggers.start(asked.clone()).await.unwrap();
    world.triggers.cancel(&asked).await.unwrap();
    let end = sentence(&world.end_of(RUN).await);
    assert_eq!(end, "cancelled: it was cancelled: the DAG run was set to failed");
    let last = server.asked().pop().unwrap();
    assert_eq!((last.method.as_str(), last.json()), ("PATCH", json!({"state": "failed"})));
}

#[tokio::test]
async fn wrong_credentials_are_permanent() {
    let world = World::new();
    let server = Server::new(|_, _| (401, String::new())).await;
    let failure = world.triggers.start(request(RUN, airflow(&server.url, 2))).await.unwrap_err();
    assert_eq!(failure.message, "the server answered 401 Unauthorized");
    assert_eq!(failure.category, FailureCategory::Permanent);
}
