//! Requests to change something: what comes of them is what comes of the commands, and their events say who asked.

use serde_json::json;

use super::*;

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

const HOURLY: &str = "
name: hourly
schedule: '0 * * * *'
trigger: {type: command, command: 'true'}
";

const FAILING: &str = "
name: failing
schedule: '0 0 1 1 *'
retry: {maxAttempts: 1}
trigger: {type: command, command: 'exit 3'}
";

impl ApiSite {
    /// Sends JSON, with more arguments for `curl`.
    fn send(&self, path: &str, body: &Value, arguments: &[&str]) -> ApiAnswer {
        let body = body.to_string();
        let json = ["-H", "Content-Type: application/json", "--data-raw", &body];
        self.ask(&[&json[..], arguments].concat(), path)
    }

    /// Asks for something without saying more.
    fn ask_for(&self, path: &str) -> ApiAnswer {
        self.ask(&["-X", "POST"], path)
    }

    /// All events, as the command prints them.
    pub(super) fn events(&self) -> Vec<Value> {
        let printed = self.project.run(&["events", "--json"]).stdout;
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    }

    /// The event of a kind, which is there soon.
    fn event(&self, kind: &str) -> Value {
        self.project.until(kind, || self.events().into_iter().find(|event| event["kind"] == kind))
    }

    /// Who is asking in these tests, as the door is open.
    fn who() -> String {
        format!("local uid {}", rustix::process::getuid().as_raw())
    }
}

/// Serves pipelines, and waits until the ledger has them: it listens a moment before.
fn served(pipelines: &[(&str, &str)]) -> ApiSite {
    let site = ApiSite::new(pipelines);
    for (name, _) in pipelines {
        let path = format!("/api/v1/pipelines/{name}");
        site.project.until("it is declared", || (site.get(&path).status == 200).then_some(()));
    }
    site
}

/// Where a slot is that a request has opened.
fn slot_path(done: &Value) -> String {
    let name = done["result"]["slot"].as_str().unwrap();
    let (pipeline, slot) = name.split_once('/').unwrap();
    format!("/api/v1/pipelines/{pipeline}/slots/{slot}")
}

impl ApiAnswer {
    /// The code of an error.
    #[track_caller]
    fn refused(self, status: u16) -> String {
        assert_eq!(self.status, status, "{}", self.body);
        self.body["code"].as_str().unwrap_or_default().to_owned()
    }
}

#[test]
fn a_run_that_a_program_asks_for_is_a_webhook_and_its_event_says_who_asked() {
    let site = served(&[("by-hand", BY_HAND)]);
    let done = site.ask_for("/api/v1/pipelines/by-hand/run").ok();
    assert_eq!((&done["applied"], &done["accepted"]), (&true.into(), &true.into()), "{done}");
    let opened = site.event("SLOT_OPENED");
    assert_eq!(opened["details"]["by"], ApiSite::who(), "{opened}");
    assert_eq!(opened["details"]["from"], "127.0.0.1", "{opened}");
    site.send("/api/v1/pipelines/by-hand/run", &json!({}), &["-H", "Interlock-Client: cli"]).ok();
    for trigger_type in ["webhook", "manual"] {
        site.project.until(trigger_type, || {
            let path = format!("/api/v1/runs?status=COMPLETED&triggerType={trigger_type}");
            let found = site.get(&path).ok();
            (found["items"].as_array().unwrap().len() == 1).then_some(())
        });
    }
    let of = |path: &str, body: Value, status| site.send(path, &body, &[]).refused(status);
    let run = "/api/v1/pipelines/by-hand/run";
    assert_eq!(of(run, json!({"slot": "x"}), 400), "bad_slot");
    assert_eq!(of(run, json!({"slots": "x"}), 400), "bad_body");
    assert_eq!(of("/api/v1/pipelines/nothing/run", json!({}), 404), "pipeline_unknown");
    assert_eq!(
        of("/api/v1/runs/nonsense/complete", json!({"status": "success"}), 400),
        "bad_run_id"
    );
}

#[test]
fn a_slot_is_run_again_and_what_the_owner_refuses_is_said_under_the_same_key_again() {
    let site = served(&[("by-hand", BY_HAND)]);
    let done = site.ask_for("/api/v1/pipelines/by-hand/run").ok();
    let slot = slot_path(&done);
    site.project.until("it ran", || {
        let runs = site.get("/api/v1/runs?status=COMPLETED").ok();
        (!runs["items"].as_array().unwrap().is_empty()).then_some(())
    });
    let again = json!({"reason": "late data"});
    let key = ["-H", "Idempotency-Key: again/1"];
    let rerun = site.send(&format!("{slot}/rerun"), &again, &key).ok();
    assert_eq!(site.send(&format!("{slot}/rerun"), &again, &key).ok(), rerun, "the same answer");
    let other = json!({"reason": "for fun"});
    assert_eq!(site.send(&format!("{slot}/rerun"), &other, &key).refused(422), "key_reused");
    assert_eq!(site.event("RERUN_ACCEPTED")["details"]["by"], ApiSite::who());
    let stored = rerun["key"].as_str().unwrap().replace('/', "%2F");
    assert_eq!(site.get(&format!("/api/v1/requests/by-hand/{stored}")).ok(), rerun);

    let refused = site.send(
        "/api/v1/pipelines/by-hand/slots/manual/2026-01-01T00:00:00Z/cancel",
        &json!({}),
        &key,
    );
    assert_eq!(refused.status, 409, "{refused:?}");
    assert!(refused.body["detail"].as_str().unwrap().contains("is not open"), "{refused:?}");
    let same = site.send(
        "/api/v1/pipelines/by-hand/slots/manual/2026-01-01T00:00:00Z/cancel",
        &json!({}),
        &key,
    );
    assert_eq!(same.body, refused.body);
    assert_eq!(site.get("/api/v1/requests/by-hand/nothing").refused(404), "not_found");
}

#[test]
fn who_does_not_wait_is_told_where_the_answer_will_be() {
    let site = served(&[("by-hand", BY_HAND)]);
    let url = format!("{}/api/v1/pipelines/by-hand/pause", site.base);
    // The owner may be quicker than that, and then there is an answer at once.
    let place = site.project.until("one that was not applied at once", || {
        let body = r#"{"reason": "moving"}"#;
        let asked = curl(&["-i", "-H", "Prefer: wait=0", "--data-raw", body, &url]);
        let head = asked.stdout.to_ascii_lowercase();
        let place = head.lines().find_map(|line| line.strip_prefix("location: "))?;
        assert!(head.starts_with("http/1.1 202"), "{asked:?}");
        Some(place.trim().to_owned())
    });
    site.project.until("it is applied", || {
        let answer = site.get(&place).ok();
        (answer["accepted"] == true).then_some(())
    });
}

#[test]
fn a_pipeline_is_paused_caught_up_and_resumed() {
    let site = served(&[("by-hand", BY_HAND)]);
    let of = |what: &str| format!("/api/v1/pipelines/by-hand/{what}");
    assert_eq!(site.send(&of("pause"), &json!({"reason": " "}), &[]).refused(400), "bad_body");
    let past = json!({"reason": "moving", "until": "2001-01-01T00:00:00Z"});
    assert_eq!(site.send(&of("pause"), &past, &[]).refused(400), "bad_time");
    site.send(&of("pause"), &json!({"reason": "moving"}), &[]).ok();
    assert_eq!(site.event("PIPELINE_PAUSED")["details"]["by"], ApiSite::who());
    site.send(&of("resume"), &json!({"catchup": "none"}), &[]).ok();
    assert_eq!(site.ask_for(&of("resume")).refused(409), "refused");
    site.ask_for(&of("catchup")).ok();
    assert_eq!(site.event("REQUEST_ACCEPTED")["details"]["request"], "catchup");
    let stopped = site.ask_for(&of("catchup/stop")).ok();
    assert_eq!(stopped["result"]["cancelled"], 0, "{stopped}");
    let sensor = json!({"value": {"rows": 3}});
    site.send(&of("sensors/landed"), &sensor, &[]).ok();
    assert_eq!(site.json_of(&["sensor", "get", "by-hand", "landed"])["value"]["rows"], 3);
}

#[test]
fn an_incident_is_acknowledged_noted_and_resolved_and_the_alerts_are_tested() {
    let site = served(&[("failing", FAILING)]);
    site.ask_for("/api/v1/pipelines/failing/run").ok();
    let incident = site.project.until("it failed", || {
        let open = site.json_of(&["incidents", "--json"]);
        open.as_array().unwrap().iter().find(|one| one["pipeline"] == "failing").cloned()
    });
    let key = incident["key"].as_str().unwrap().replace('/', "%2F");
    let of = |what: &str| format!("/api/v1/incidents/failing/{key}/{what}");
    let done = site.send(&of("acknowledge"), &json!({"note": "looking"}), &[]).ok();
    assert_eq!(done["result"]["state"], "acknowledged");
    assert_eq!(site.ask_for(&of("note")).refused(400), "bad_body");
    site.send(&of("note"), &json!({"note": "the disk was full"}), &[]).ok();
    assert_eq!(site.event("INCIDENT_NOTED")["details"]["by"], ApiSite::who());
    assert_eq!(site.ask_for(&of("resolve")).ok()["result"]["state"], "resolved");
    assert_eq!(site.ask_for(&of("resolve")).refused(409), "refused");
    let seen = site.json_of(&["incidents", "list", "--all", "--json"]);
    let seen = seen.as_array().unwrap().iter().find(|one| one["key"] == incident["key"]).unwrap();
    assert_eq!(seen["acknowledged"]["note"], "looking", "{seen}");
    assert_eq!(seen["acknowledged"]["by"], ApiSite::who(), "{seen}");

    let bark = site.ask_for("/api/v1/barks").ok();
    let incident = bark["result"]["incident"].as_str().unwrap().replace('/', "%2F");
    let over = site.ask_for(&format!("/api/v1/incidents/_system/{incident}/resolve")).ok();
    assert_eq!(over["result"]["state"], "resolved");
    let nothing = site.ask_for("/api/v1/notifications/failing/nothing/send").refused(409);
    assert_eq!(nothing, "refused");
}

#[test]
fn a_silence_is_added_once_and_removed() {
    let site = served(&[("by-hand", BY_HAND)]);
    let silence = json!({
        "when": {"pipelines": ["by-*"]}, "until": "2099-01-01T00:00:00Z", "reason": "moving"
    });
    let key = ["-H", "Idempotency-Key: quiet"];
    let added = site.send("/api/v1/silences", &silence, &key).ok();
    assert_eq!(site.send("/api/v1/silences", &silence, &key).ok(), added);
    let listed = site.json_of(&["silence", "list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    assert_eq!((&listed[0]["by"], &listed[0]["state"]), (&ApiSite::who().into(), &"silent".into()));
    let id = added["result"]["silence"].as_str().unwrap();
    let remove = || site.ask(&["-X", "DELETE"], &format!("/api/v1/silences/{id}"));
    remove().ok();
    assert_eq!(remove().refused(409), "refused");
    let empty = json!({"when": {}, "until": "2099-01-01T00:00:00Z", "reason": "x"});
    assert_eq!(site.send("/api/v1/silences", &empty, &[]).refused(400), "bad_parameter");
}

#[test]
fn tokens_are_made_and_revoked_by_admins_and_each_is_shown_once() {
    let site = served(&[("by-hand", BY_HAND)]);
    let admin = json!({"name": "root", "scope": "admin"});
    let made = site.send("/api/v1/tokens", &admin, &[]).ok();
    let bearer = format!("Authorization: Bearer {}", made["token"].as_str().unwrap());
    let shown = ["-H", bearer.as_str()];
    site.project
        .until("the door is shut", || (site.get("/api/v1/runs").status == 401).then_some(()));

    let ci = json!({"name": "ci", "scope": "ping", "pipelines": ["by-*"], "expiresAt": "2099-01-01T00:00:00Z"});
    let key = [&shown[..], &["-H", "Idempotency-Key: ci"]].concat();
    let made = site.send("/api/v1/tokens", &ci, &key).ok();
    let again = site.send("/api/v1/tokens", &ci, &key);
    assert_eq!(again.refused(409), "refused", "its text is not there any more");
    let listed = site.json_of(&["token", "list", "--json"]);
    let items = listed.as_array().unwrap();
    assert_eq!(items.len(), 2, "{listed}");
    assert_eq!(
        (&items[0]["name"], &items[0]["by"]),
        (&"ci".into(), &"token root".into()),
        "{listed}"
    );
    assert!(!listed.to_string().contains(made["token"].as_str().unwrap()), "{listed}");

    let id = made["id"].as_str().unwrap();
    site.ask(&[&shown[..], &["-X", "DELETE"]].concat(), &format!("/api/v1/tokens/{id}")).ok();
    let listed = site.json_of(&["token", "list", "--json"]);
    assert_eq!(listed.as_array().unwrap().len(), 1, "{listed}");
    for (odd, code) in [
        (json!({"name": "x", "scope": "ping"}), "bad_body"),
        (json!({"name": "x", "scope": "everything"}), "bad_body"),
        (json!({"name": " ", "scope": "viewer"}), "bad_body"),
        (json!({"name": "x", "scope": "viewer", "expiresAt": "2001-01-01T00:00:00Z"}), "bad_time"),
    ] {
        assert_eq!(site.send("/api/v1/tokens", &odd, &shown).refused(400), code, "{odd}");
    }
}

#[test]
fn a_backfill_is_started_as_it_was_planned_and_not_when_the_plan_is_another_by_now() {
    let site = served(&[("hourly", HOURLY)]);
    let range = json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T03:00:00Z"});
    let path = "/api/v1/pipelines/hourly/backfills";
    let plan = site.send(&format!("{path}/plan"), &range, &[]).ok();
    assert_eq!(plan["total"], 3, "{plan}");
    let other = ["-H", "If-Match: \"another\""];
    let changed = site.send(path, &range, &other);
    assert_eq!(
        (changed.status, &changed.body["plan"]["plan"]),
        (412, &plan["plan"]),
        "{changed:?}"
    );
    let etag = format!("If-Match: {}", changed.body["etag"].as_str().unwrap());
    let meant = ["-H", &etag, "-H", "Idempotency-Key: b-1"];
    let started = site.send(path, &range, &meant).ok();
    assert_eq!(
        (&started["result"]["backfill"], &started["result"]["slots"]),
        (&1.into(), &3.into())
    );
    assert_eq!(site.event("BACKFILL_STARTED")["details"]["by"], ApiSite::who());
    site.event("BACKFILL_DONE");
    assert_eq!(
        site.send(path, &range, &meant).ok(),
        started,
        "the same answer, though nothing is left to run"
    );
    // The plan that was looked at, after its slots have run: what differs is said slot by slot.
    let late = site.send(path, &range, &["-H", &etag]);
    assert_eq!(late.status, 412, "{late:?}");
    let differs = late.body["differs"].as_array().unwrap();
    assert_eq!((differs.len(), &late.body["differsMore"]), (3, &false.into()), "{late:?}");
    assert!(differs[0]["about"].as_str().unwrap().ends_with("/2026-01-01T00:00:00Z"), "{late:?}");
    assert_eq!(
        (&differs[0]["before"], &differs[0]["now"]),
        (&"would_run".into(), &"exists (completed)".into())
    );
    assert_eq!(changed.body["differs"], Value::Null, "a plan that was never shown");
    assert_eq!(site.send(path, &range, &[]).refused(409), "refused");
    let catchup = "/api/v1/pipelines/hourly/catchup";
    let owed = site.send(&format!("{catchup}/plan"), &json!({}), &[]).ok();
    assert_eq!(
        site.ask(&["-X", "POST", "-H", "If-Match: \"another\""], catchup).refused(412),
        "plan_changed"
    );
    let tag = format!("If-Match: \"{}\"", owed["plan"].as_str().unwrap());
    site.ask(&["-X", "POST", "-H", &tag], catchup).ok();
    assert_eq!(site.ask_for(&format!("{path}/1/cancel")).refused(409), "refused");

    site.send("/api/v1/pipelines/hourly/pause", &json!({"reason": "moving"}), &[]).ok();
    let resume = "/api/v1/pipelines/hourly/resume";
    assert_eq!(site.send(resume, &json!({}), &other).refused(412), "plan_changed");
    site.send(resume, &json!({}), &["-H", "If-Match: *"]).ok();
}
