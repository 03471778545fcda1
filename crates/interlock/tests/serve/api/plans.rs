//! Plans say what would happen before anything does, under a hash of what they decide.

use jiff::{SignedDuration, Timestamp};

use super::*;

const HOURLY: &str = "
name: hourly
schedule: '0 * * * *'
catchupWindow: 3h
overlapPolicy: all
trigger: {type: command, command: 'true'}
";
const BROKEN: &str = "
name: broken
owner: data@example.com
retry: {maxAttempts: 1}
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'exit 1'}
";

fn site() -> ApiSite {
    let site = ApiSite::new(&[("hourly", HOURLY), ("broken", BROKEN)]);
    site.until_declared(2);
    site
}

impl ApiSite {
    /// What a route answers to a body.
    fn post(&self, path: &str, body: &Value) -> ApiAnswer {
        self.ask(&["-X", "POST", "-d", &body.to_string()], path)
    }

    /// The `ETag` of what a route answers.
    fn etag(&self, arguments: &[&str], path: &str) -> String {
        let url = format!("{}{path}", self.base);
        curl(&[&["-o", "/dev/null", "-w", "%header{etag}", &url], arguments].concat()).stdout
    }
}

fn ahead(hours: i64) -> String {
    (Timestamp::now() + SignedDuration::from_hours(hours)).to_string()
}

fn count(plan: &Value, action: &str) -> u64 {
    plan["counts"][action].as_u64().unwrap_or_default()
}

#[test]
fn a_catchup_plan_is_what_a_restart_would_do_and_its_tag_is_what_it_decides() {
    let site = site();
    let at = ahead(10);
    let path = format!("/api/v1/catchup/plan?pipeline=hourly&at={at}");
    let plan = site.get(&path).ok();
    let printed = site.json_of(&["catchup", "hourly", "--dry-run", "--at", &at, "--json"]);
    assert_eq!(plan["lines"], printed, "the same answers");
    let (run, skip) = (count(&plan, "run"), count(&plan, "skip"));
    assert!(skip >= 6 && run >= 3 && run + skip >= 10, "the window is three hours: {plan}");
    assert_eq!((plan["next"].clone(), &plan["hasRanges"]), (Value::Null, &false.into()));
    let tag = site.etag(&[], &path);
    assert_eq!(tag, format!("\"{}\"", plan["plan"].as_str().unwrap()));
    assert_eq!(site.etag(&[], &path), tag, "the same decisions");
    let later = format!("/api/v1/catchup/plan?pipeline=hourly&at={}", ahead(12));
    assert_ne!(site.etag(&[], &later), tag, "other decisions");

    let all = site.get(&format!("/api/v1/catchup/plan?at={at}")).ok();
    assert_eq!((&all["lines"], &all["scanned"]), (&plan["lines"], &2.into()));
    let now = site.get("/api/v1/catchup/plan").ok();
    assert_eq!(now["lines"], Value::Array(vec![]), "nothing is owed now");
    for (query, told) in [("pipe=hourly", "pipeline"), ("at=2999-01-01T00:00:00Z", "400 days")] {
        let refused = site.get(&format!("/api/v1/catchup/plan?{query}"));
        assert!(refused.status == 400 && refused.body.to_string().contains(told), "{refused:?}");
    }
}

#[test]
fn a_resume_plan_goes_by_what_is_asked_for_instead_of_the_policy() {
    let site = site();
    assert_eq!(site.project.run(&["pause", "hourly", "--reason", "audit"]).code, 0);
    let path = format!("/api/v1/pipelines/hourly/resume/plan?at={}", ahead(6));
    let plan = |catchup: &str| site.post(&path, &serde_json::json!({ "catchup": catchup })).ok();
    let (none, all) = (plan("none"), plan("all"));
    assert_eq!(none["paused"]["reason"], "audit");
    assert!(none["missed"].as_u64().unwrap() >= 5, "{none}");
    assert!(count(&none, "run") <= 1 && count(&none, "skip") >= 5, "{none}");
    assert!(count(&all, "run") >= 5, "{all}");
    assert_ne!(none["plan"], all["plan"]);
    assert_eq!(site.post(&path, &serde_json::json!({})).ok(), plan("policy"));
    assert_eq!(
        site.etag(&["-X", "POST"], &path),
        format!("\"{}\"", plan("policy")["plan"].as_str().unwrap())
    );

    let listed = site.get(&format!("/api/v1/catchup/plan?at={}", ahead(6))).ok();
    assert_eq!(listed["paused"], serde_json::json!(["hourly"]), "decided by its resume");
    let other = site.post("/api/v1/pipelines/broken/resume/plan", &serde_json::json!({})).ok();
    assert_eq!((&other["paused"], &other["missed"]), (&Value::Null, &0.into()));
    for (body, told) in [
        (serde_json::json!({"catchup": "some"}), "policy"),
        (serde_json::json!({"catch": 1}), "catchup"),
    ] {
        let refused = site.post(&path, &body);
        assert!(refused.status == 400 && refused.body.to_string().contains(told), "{refused:?}");
    }
    let nobody = site.post("/api/v1/pipelines/nobody/resume/plan", &serde_json::json!({}));
    assert_eq!(nobody.status, 404);
}

#[test]
fn a_backfill_plan_is_that_of_the_dry_run() {
    let site = site();
    let path = "/api/v1/pipelines/hourly/backfills/plan";
    let body = serde_json::json!({"from": "2026-01-01T00:00:00Z", "to": "2026-01-02T00:00:00Z"});
    let plan = site.post(path, &body).ok();
    let printed = site.json_of(&[
        "backfill",
        "start",
        "hourly",
        "--from",
        "2026-01-01T00:00Z",
        "--to",
        "2026-01-02T00:00Z",
        "--dry-run",
        "--json",
    ]);
    assert_eq!(plan, printed, "the same answers");
    assert_eq!((&plan["total"], &plan["verdicts"]["would_run"]), (&24.into(), &24.into()));
    let tag = site.etag(&["-d", &body.to_string()], path);
    assert_eq!(tag, format!("\"{}\"", plan["plan"].as_str().unwrap()));

    let years = serde_json::json!({"from": "2001-01-01T00:00:00Z", "to": "2026-01-01T00:00:00Z"});
    let refused = site.post(path, &years);
    assert!(refused.status == 400 && refused.body.to_string().contains("100000"), "{refused:?}");
    for (body, told) in [
        (serde_json::json!({"from": "2026-01-01T00:00:00Z"}), "to"),
        (
            serde_json::json!({"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}),
            "before",
        ),
    ] {
        let refused = site.post(path, &body);
        assert!(refused.status == 400 && refused.body.to_string().contains(told), "{refused:?}");
    }
}

#[test]
fn a_silence_shows_which_incidents_it_would_hide() {
    let site = site();
    assert_eq!(site.project.run(&["run", "broken"]).code, 1);
    let path = "/api/v1/silences/plan";
    let plan = |when: Value| {
        site.post(path, &serde_json::json!({"when": when, "for": "2h", "reason": "known"})).ok()
    };
    let hidden = plan(serde_json::json!({"pipelines": ["bro*"]}));
    assert_eq!(hidden["incidents"][0]["pipeline"], "broken", "{hidden}");
    assert_eq!(hidden["isInForce"], true);
    let printed = site.json_of(&[
        "silence",
        "add",
        "--pipeline",
        "bro*",
        "--for",
        "2h",
        "--reason",
        "known",
        "--preview",
        "--json",
    ]);
    assert_eq!(hidden["incidents"], printed["incidents"], "the same answers");
    assert_eq!(hidden["plan"], printed["plan"], "the same decisions");
    let by_owner = plan(serde_json::json!({"owners": ["data@example.com"]}));
    assert_eq!(by_owner["incidents"], hidden["incidents"]);
    let nothing = plan(serde_json::json!({"pipelines": ["hourly"]}));
    assert_eq!(nothing["incidents"], Value::Array(vec![]));
    assert_ne!(nothing["plan"], hidden["plan"]);
    for (body, told) in [
        (serde_json::json!({"for": "2h"}), "what is to be kept back"),
        (serde_json::json!({"when": {"pipelines": ["a"]}}), "needs an end"),
        (
            serde_json::json!({"when": {"pipelines": ["a"]}, "until": "2020-01-01T00:00:00Z"}),
            "over",
        ),
    ] {
        let refused = site.post(path, &body);
        assert!(refused.status == 400 && refused.body.to_string().contains(told), "{refused:?}");
    }
}
