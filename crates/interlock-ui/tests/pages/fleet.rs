//! The fleet in its states.

use serde_json::{Value, json};

use crate::canned::Canned;

/// A row of an hourly pipeline in a state.
fn row(name: &str, state: &str, reason: &str) -> Value {
    let needs = matches!(state, "failed" | "missed" | "pausedLong");
    json!({
        "pipeline": name, "group": "finance", "pipelines": 1, "state": state, "reason": reason, "reasonInFull": reason,
        "needsAttention": needs, "states": {"pipelines": 1, "attention": 0}, "usualSeconds": 600,
        "next": {"schedule": "hourly", "utc": "2026-10-25T09:05:00Z"}, "trigger": "command", "isWatchOnly": name == "backup",
        "owner": "finance", "labels": {}, "paused": null, "counts": {}, "cells": [], "countedFrom": "2026-10-24T20:41:00Z",
        "listsAllSlots": true, "slots": [], "hasMoreSlots": false, "pauses": [], "excluded": [],
    })
}

fn slots(places: &[(&str, &str)]) -> Value {
    let slot = |(at, place): &(&str, &str)| {
        let is_run = ["onTime", "failed", "running"].contains(place);
        json!({
            "schedule": "hourly", "utc": at, "place": place, "word": place, "reason": null,
            "startedAt": is_run.then_some(at), "endedAt": (is_run && *place != "running").then(|| at.replace(":05:00", ":30:00")),
            "expectedEnd": null,
        })
    };
    places.iter().map(slot).collect()
}

fn with(mut row: Value, places: &[(&str, &str)]) -> Value {
    row["slots"] = slots(places);
    let mut counts = serde_json::Map::new();
    for (_, place) in places {
        let count = counts.get(*place).and_then(Value::as_u64).unwrap_or(0);
        counts.insert((*place).to_owned(), json!(count + 1));
    }
    row["counts"] = Value::Object(counts);
    row
}

fn fleet() -> Value {
    let mut group = row("", "onTime", "all on time; 2 skipped: overlap");
    group["pipeline"] = Value::Null;
    group["pipelines"] = json!(38);
    group["group"] = json!("partners");
    group["listsAllSlots"] = json!(false);
    group["counts"] = json!({"onTime": 900, "failed": 1, "planned": 30});
    group["cells"] = json!([
        {"bucket": 1, "onTime": 20}, {"bucket": 40, "onTime": 30, "failed": 1}, {"bucket": 41, "missed": 2, "unknown": 2},
        {"bucket": 55, "planned": 30}
    ]);
    let mut paused = row("price-feed", "pausedLong", "by jonas, 26 h; should have ended Sat 18:00");
    paused["paused"] = json!({"reason": "vendor", "since": "2026-10-24T06:40:00Z", "until": null});
    paused["pauses"] = json!([{"from": "2026-10-24T06:40:00Z", "until": null, "reason": "vendor"}]);
    json!({
        "now": "2026-10-25T08:41:00Z", "from": "2026-10-24T20:30:00Z", "until": "2026-10-25T11:45:00Z",
        "bucketSeconds": 900, "buckets": 61,
        "items": [
            with(row("settlement", "failed", "exit code 1, all 3 attempts used"), &[("2026-10-25T05:05:00Z", "failed")]),
            with(row("backup", "missed", "no report by 08:30; 2 channels told"), &[("2026-10-25T07:05:00Z", "missed")]),
            paused,
            with(row("fx-rates", "onTime", "4 min, as usual"), &[
                ("2026-10-24T22:05:00Z", "onTime"), ("2026-10-25T00:05:00Z", "late"), ("2026-10-25T03:05:00Z", "unknown"),
                ("2026-10-25T04:05:00Z", "caughtUp"), ("2026-10-25T05:05:00Z", "skipped"), ("2026-10-25T08:05:00Z", "running"),
                ("2026-10-25T09:05:00Z", "planned"), ("2026-10-25T10:05:00Z", "planned"),
            ]),
            with(row("card-fees", "waiting", "acquirer-file missing; gives up 10:30"), &[("2026-10-25T08:05:00Z", "waiting")]),
            row("tax-report", "notDue", "weekend, no slot until Mon 06:00"),
            group,
        ],
        "sections": [
            {"kind": "attention", "name": null, "rows": 3, "pipelines": 3, "above": 0, "isCollapsed": false, "hasMore": false},
            {"kind": "group", "name": "finance", "rows": 3, "pipelines": 5, "above": 2, "isCollapsed": false, "hasMore": false},
            {"kind": "group", "name": "partners", "rows": 1, "pipelines": 38, "above": 0, "isCollapsed": true, "hasMore": false}
        ],
        "next": "abc", "pipelines": {"pipelines": 214, "attention": 3}, "groups": 9,
        "totals": {"since": "2026-10-24T22:00:00Z", "zone": "Europe/Berlin", "due": 2154, "unaccounted": 0,
            "counts": {"onTime": 1977, "caughtUp": 104, "late": 1, "failed": 4, "missed": 3, "unknown": 5, "skipped": 44, "running": 9, "waiting": 7}},
        "blind": [{"from": "2026-10-25T03:10:00Z", "until": "2026-10-25T04:02:00Z"}],
        "clockChanges": [{"utc": "2026-10-25T01:00:00Z", "zone": "Europe/Berlin", "shiftSeconds": -3600}],
        "freshness": {"asOf": "2026-10-25T08:41:00Z", "isCounting": false, "counted": 214, "problem": null},
        "unreadable": [],
    })
}

#[tokio::test]
async fn the_fleet_shows_past_and_future_and_what_needs_a_person_first() {
    let canned = Canned::new().with("/api/v1/fleet", fleet());
    insta::assert_snapshot!(canned.main("/").await);
}

#[tokio::test]
async fn an_empty_project_says_how_to_begin() {
    let mut empty = fleet();
    for list in ["items", "sections", "blind", "clockChanges"] {
        empty[list] = json!([]);
    }
    empty["pipelines"] = json!({"pipelines": 0, "attention": 0});
    let canned = Canned::new().with("/api/v1/fleet", empty);
    assert!(canned.main("/").await.contains("First start, no pipelines yet"));
    let main = canned.main("/?owner=finance&state=missed").await;
    assert!(main.contains("Nothing matches") && main.contains("owner finance"), "{main}");
}

#[tokio::test]
async fn what_cannot_be_read_is_a_note_and_the_rest_stays() {
    let mut fleet = fleet();
    fleet["unreadable"] = json!([{"pipeline": "torn", "key": "slot", "message": "it is cut off"}]);
    fleet["freshness"]["problem"] = json!("the store does not answer");
    fleet["totals"]["unaccounted"] = json!(2);
    let main = Canned::new().with("/api/v1/fleet", fleet).main("/").await;
    assert!(
        main.contains("1 row of the ledger cannot be read and is not counted: torn."),
        "{main}"
    );
    assert!(main.contains("2 not recorded yet") && main.contains("settlement"), "{main}");
}
