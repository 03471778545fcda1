//! Sensors, watermarks, backfills, silences, tokens, pauses and outages over HTTP are those that the commands print.

use super::*;

const WATCHED: &str = "
name: watched
schedule: '* * * * *'
trigger: {type: command, command: 'true'}
";
const HISTORY: &str = "
name: history
schedules: [{id: hourly, cron: '0 * * * *'}]
trigger: {type: command, command: 'true'}
";

#[test]
fn sensors_watermarks_backfills_silences_and_pauses_are_those_of_the_commands() {
    let site = ApiSite::new(&[("history", HISTORY), ("watched", WATCHED)]);
    site.until_declared(2);
    let done = |arguments: &[&str]| {
        let ran = site.project.run(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {ran:?}");
    };
    let same = |path: &str, arguments: &[&str]| {
        let listed = site.get(path).ok();
        assert_eq!(listed["items"], site.json_of(arguments), "{path}");
        listed
    };
    for key in ["a", "b", "c"] {
        done(&["sensor", "put", "history", key, "{\"rows\": 3}"]);
    }
    let sensors =
        same("/api/v1/pipelines/history/sensors", &["sensor", "list", "history", "--json"]);
    assert_eq!(sensors["items"].as_array().unwrap().len(), 3, "{sensors}");
    let first = site.get("/api/v1/pipelines/history/sensors?limit=2").ok();
    let next = first["next"].as_str().unwrap();
    let second = site.get(&format!("/api/v1/pipelines/history/sensors?limit=2&after={next}")).ok();
    assert_eq!((&second["items"][0]["key"], &second["next"]), (&"c".into(), &Value::Null));
    assert_eq!(site.get("/api/v1/pipelines/history/sensors/b").ok(), sensors["items"][1]);
    assert_eq!(site.get("/api/v1/pipelines/history/sensors/d").status, 404);

    done(&["backfill", "start", "history", "--from", "2026-01-01", "--to", "2026-01-01T02:00:00Z"]);
    let ended = site.project.until("the backfill ends", || {
        let one = site.get("/api/v1/pipelines/history/backfills/1").ok();
        (one["state"] == "done" && one["completed"] == one["total"]).then_some(one)
    });
    let backfills = same("/api/v1/backfills", &["backfill", "list", "--json"]);
    assert_eq!(backfills["items"][0], ended);
    let none = site.get("/api/v1/backfills?state=running&state=paused").ok();
    assert_eq!(none["items"], serde_json::json!([]));
    assert_eq!(site.get("/api/v1/backfills?state=great").status, 400);
    assert_eq!(site.get("/api/v1/pipelines/history/backfills/2").status, 404);

    site.project.until("a watermark of each pipeline", || {
        let listed = site.get("/api/v1/watermarks").ok();
        (listed["items"].as_array()?.len() == 2).then_some(())
    });
    let own =
        same("/api/v1/watermarks?pipeline=history", &["watermark", "show", "history", "--json"]);
    assert_eq!(own["items"][0]["schedule"], "hourly");
    let page = site.get("/api/v1/watermarks?limit=1").ok();
    let next = page["next"].as_str().unwrap();
    let rest = site.get(&format!("/api/v1/watermarks?limit=1&after={next}")).ok();
    assert_eq!(
        (&page["items"][0]["pipeline"], &rest["items"][0]["pipeline"]),
        (&"history".into(), &"watched".into())
    );

    done(&["silence", "add", "night", "--pipeline", "*", "--for", "1h", "--reason", "work"]);
    same("/api/v1/silences", &["silence", "list", "--json"]);
    assert_eq!(site.get("/api/v1/silences?state=over").ok()["items"], serde_json::json!([]));

    assert_eq!(site.get("/api/v1/pauses").ok()["items"], serde_json::json!([]));
    done(&["pause", "history", "--reason", "the disk is replaced"]);
    let paused = site.get("/api/v1/pauses").ok();
    assert_eq!(paused["items"].as_array().unwrap().len(), 1, "{paused}");
    assert_eq!(paused["items"][0]["pipeline"], "history");
    assert_eq!(paused["items"][0]["reason"], "the disk is replaced");
    let gaps = site.get("/api/v1/coverage-gaps").ok();
    assert_eq!(gaps["items"], serde_json::json!([]), "it has listened since it started");
}

#[test]
fn tokens_are_listed_for_admins_and_what_interlock_keeps_for_itself_for_nobody() {
    let site = ApiSite::new(&[("history", HISTORY)]);
    let made = site.json_of(&["token", "create", "ops", "--scope", "admin", "--json"]);
    let admin = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    let seen = site.json_of(&["token", "create", "eyes", "--scope", "viewer", "--json"]);
    let viewer = format!("Authorization: Bearer {}", seen["token"].as_str().unwrap());
    let status = |token: &str, path: &str| site.ask(&["-H", token], path).status;
    site.project.until("both tokens are known", || {
        // While none is known the door is open: then everything is answered.
        let is_shut = site.get("/api/v1/runs").status == 401;
        let known = status(&admin, "/api/v1/runs") == 200 && status(&viewer, "/api/v1/runs") == 200;
        (is_shut && known).then_some(())
    });
    let listed = site.ask(&["-H", &admin], "/api/v1/tokens").ok();
    assert_eq!(listed["items"], site.json_of(&["token", "list", "--json"]));
    assert_eq!(listed["items"].as_array().unwrap().len(), 2, "{listed}");
    assert!(!listed.to_string().contains("hash"), "{listed}");
    assert_eq!(status(&viewer, "/api/v1/tokens"), 403);
    for path in ["/api/v1/pipelines/_system/sensors", "/api/v1/pipelines/_system/sensors/token%2Fx"]
    {
        assert_eq!(status(&admin, path), 404, "{path}");
    }
}
