//! Runs over HTTP are those that `interlock runs --json` prints.

use super::*;

const BY_HAND: &str = "
name: by-hand
owner: data
labels: {team: core, part: '1'}
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

#[test]
fn runs_are_those_of_the_command_page_by_page_and_by_trigger_type() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    for _ in 0..3 {
        assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    }
    let printed = site.json_of(&["runs", "--json"]);
    let listed = site.get("/api/v1/runs").ok();
    assert_eq!(listed["items"], printed, "the same answers");
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed}");
    assert!(listed["next"].is_null(), "{listed}");
    assert!(
        !listed.to_string().contains(site.project.path().to_str().unwrap()),
        "no path of the host: {listed}"
    );

    let first = site.get("/api/v1/runs?limit=2&pipeline=by-hand").ok();
    let next = first["next"].as_str().unwrap();
    let second = site.get(&format!("/api/v1/runs?limit=2&pipeline=by-hand&after={next}")).ok();
    assert_eq!(second["items"][0], printed[2]);
    assert!(second["next"].is_null(), "{second}");

    let count = |query: &str| {
        let listed = site.get(&format!("/api/v1/runs?{query}")).ok();
        listed["items"].as_array().unwrap().len()
    };
    assert_eq!(count("triggerType=manual"), 3);
    assert_eq!(count("triggerType=catchup"), 0);
    assert_eq!(count("triggerType=catchup&triggerType=manual"), 3, "given twice means or");
    assert_eq!(count("triggerType=subdag"), 0, "reserved");
    assert_eq!(count("status=FAILED"), 0);
    // By what people know pipelines by; a page ends where its items do.
    assert_eq!(count("owner=data&owner=nobody"), 3);
    assert_eq!(count("owner=nobody"), 0);
    assert_eq!(count("owner=data&label=team%3Dcore&label=part%3D1"), 3);
    assert_eq!(count("label=team%3Dcore&label=part%3D2"), 0);
    let first = site.get("/api/v1/runs?owner=data&limit=2").ok();
    let next = first["next"].as_str().unwrap();
    let rest = site.get(&format!("/api/v1/runs?owner=data&limit=2&after={next}")).ok();
    assert_eq!((&rest["items"][0], &rest["next"]), (&printed[2], &Value::Null));
    assert_eq!(count("from=2099-01-01T00:00:00Z"), 0);
    assert_eq!(count("until=2099-01-01T00:00:00Z"), 3);

    let id = printed[0]["id"].as_str().unwrap();
    assert_eq!(site.get(&format!("/api/v1/runs/{id}")).ok(), printed[0]);
}

#[test]
fn what_runs_cannot_be_asked_is_refused_with_what_they_can() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    for (query, code, told) in [
        ("nope=1", "bad_parameter", "triggerType"),
        ("triggerType=nope", "bad_parameter", "catchup"),
        ("limit=0", "bad_parameter", "1000"),
        ("limit=1001", "bad_parameter", "1000"),
        ("after=x", "bad_cursor", "next"),
        ("from=yesterday", "bad_parameter", "from"),
        ("label=core", "bad_parameter", "label=name=value"),
    ] {
        let refused = site.get(&format!("/api/v1/runs?{query}"));
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
        let text = refused.body.to_string();
        assert!(text.contains(code) && text.contains(told), "{query}: {text}");
    }
    assert_eq!(site.get("/api/v1/runs/nope").status, 404);
}
