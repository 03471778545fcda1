//! Each page in its states.

use serde_json::{Value, json};

use crate::canned::Canned;

fn run(status: &str, trigger: &str) -> Value {
    json!({
        "id": "settlement~nightly~20261025T053000Z~1~3", "pipeline": "settlement", "schedule": "nightly",
        "slot": "settlement/nightly/2026-10-25T05:30:00Z", "utc": "2026-10-25T05:30:00Z", "generation": 1, "attempt": 3,
        "status": status, "triggerType": trigger, "createdAt": "2026-10-25T05:55:40Z", "startedAt": "2026-10-25T05:55:40Z",
        "endedAt": if status == "RUNNING" { Value::Null } else { json!("2026-10-25T05:58:03Z") },
        "message": if status == "FAILED" { json!("exit code 1") } else { Value::Null }, "category": null, "metadata": {},
    })
}

#[tokio::test]
async fn runs_say_what_asked_for_them() {
    let types = [
        "scheduler",
        "catchup",
        "retry",
        "backfill",
        "manual",
        "sensor",
        "webhook",
        "external",
        "reconcile",
    ];
    let items: Vec<Value> = types
        .iter()
        .map(|trigger| run("COMPLETED", trigger))
        .chain([run("RUNNING", "scheduler"), run("FAILED", "retry")])
        .collect();
    let list = json!({"items": items, "next": "abc", "scanned": 11, "unreadable": [{"pipeline": "a", "key": "run", "message": "broken"}]});
    let main =
        Canned::new().with("/api/v1/runs", list).main("/runs?status=failed&trigger=catchup").await;
    insta::assert_snapshot!(main);
}

#[tokio::test]
async fn no_runs_say_why_and_what_next() {
    let list = json!({"items": [], "next": null, "scanned": 0});
    let canned = Canned::new().with("/api/v1/runs", list);
    assert!(canned.main("/runs").await.contains("Nothing has run yet."));
    assert!(canned.main("/runs?pipeline=x").await.contains("No run matches these filters."));
}

#[tokio::test]
async fn a_refusal_is_a_page_with_what_to_do() {
    let canned = Canned::new().refusing(
        "/api/v1/runs",
        503,
        "store_unreachable",
        "the store: it does not answer",
    );
    let response = canned.answer("/runs").await;
    assert_eq!(response.status(), 503);
    insta::assert_snapshot!(canned.main("/runs").await);
}

#[tokio::test]
async fn a_wrong_token_is_told_so() {
    insta::assert_snapshot!(Canned::new().main("/login?wrong=token_needed&next=/runs").await);
}

fn absent(reason: &str, sentence: &str, at: &str) -> Value {
    json!({
        "pipeline": "settlement", "schedule": "nightly", "utc": at, "headline": sentence, "fullReason": sentence,
        "slot": null, "span": null,
        "absence": {"reason": reason, "sentence": sentence, "headline": sentence, "previous": "2026-10-24T05:30:00Z", "next": "2026-10-26T05:30:00Z"},
        "runs": [], "events": [], "eventsLookedAtUntil": null, "incidents": [],
    })
}

#[tokio::test]
async fn an_instant_without_a_slot_has_a_page_that_says_why() {
    for (reason, sentence) in [
        ("excluded", "No slot: 2026-12-25 is excluded by `de-holidays`."),
        ("dst_gap", "No slot: 02:30 does not exist on 2027-03-28."),
        ("before_first_sight", "No slot: the pipeline was first seen on 2026-03-02."),
        ("archived", "No slot: it is older than what is kept."),
        ("not_due", "Planned: it is not due yet."),
    ] {
        let at = "2026-10-25T05:30:00Z";
        let path = format!("/pipelines/settlement/slots/nightly/{at}");
        let canned =
            Canned::new().with(&format!("/api/v1{path}/story"), absent(reason, sentence, at));
        insta::assert_snapshot!(format!("slot_{reason}"), canned.main(&path).await);
    }
}
