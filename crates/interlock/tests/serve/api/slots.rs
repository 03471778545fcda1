//! Slots over HTTP are those that `interlock slots` prints.

use super::*;

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

#[test]
fn slots_are_those_of_the_command_page_by_page_and_one_by_one() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    for _ in 0..3 {
        assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    }
    let printed = site.json_of(&["slots", "--json"]);
    let listed = site.get("/api/v1/slots").ok();
    assert_eq!(listed["items"], printed, "the same answers");
    assert_eq!(listed["items"].as_array().unwrap().len(), 3, "{listed}");
    assert!(listed["next"].is_null(), "{listed}");

    let first = site.get("/api/v1/slots?limit=2&pipeline=by-hand").ok();
    let next = first["next"].as_str().unwrap();
    let second = site.get(&format!("/api/v1/slots?limit=2&pipeline=by-hand&after={next}")).ok();
    assert_eq!(second["items"][0], printed[2]);
    assert!(second["next"].is_null(), "{second}");

    let newest = site.get("/api/v1/slots?order=newest&limit=1").ok();
    assert_eq!(newest["items"][0], printed[2]);
    let next = newest["next"].as_str().unwrap();
    let then = site.get(&format!("/api/v1/slots?order=newest&limit=1&after={next}")).ok();
    assert_eq!(then["items"][0], printed[1]);

    let count = |query: &str| {
        let listed = site.get(&format!("/api/v1/slots?{query}")).ok();
        listed["items"].as_array().unwrap().len()
    };
    assert_eq!(count("disposition=completed"), 3);
    assert_eq!(count("disposition=failed&disposition=completed"), 3, "given twice means or");
    assert_eq!(count("disposition=open"), 0);
    assert_eq!(count("triggerType=manual"), 3);
    assert_eq!(count("triggerType=catchup"), 0);
    assert_eq!(count("triggerType=subdag"), 0, "reserved");
    assert_eq!(count("schedule=manual"), 3);
    assert_eq!(count("schedule=cron"), 0);
    assert_eq!(count("from=2099-01-01T00:00:00Z"), 0);
    assert_eq!(count("pipeline=by-hand&expand=true"), 3);

    let instant = printed[0]["utc"].as_str().unwrap();
    let path = format!("/api/v1/pipelines/by-hand/slots/manual/{instant}");
    let one = site.get(&path).ok();
    assert_eq!(one, printed[0]);
    assert_eq!(one["runs"].as_array().unwrap().len(), 1, "{one}");
}

#[test]
fn what_slots_cannot_be_asked_is_refused_with_what_they_can() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    site.until_declared(1);
    for (query, code, told) in [
        ("nope=1", "bad_parameter", "disposition"),
        ("disposition=great", "bad_parameter", "completed"),
        ("triggerType=nope", "bad_parameter", "catchup"),
        ("expand=true", "bad_parameter", "pipeline"),
        ("pipeline=by-hand&expand=true&order=newest", "bad_parameter", "order"),
        ("order=random", "bad_parameter", "newest"),
        ("limit=1001", "bad_parameter", "1000"),
        ("after=x", "bad_cursor", "next"),
    ] {
        let refused = site.get(&format!("/api/v1/slots?{query}"));
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
        let text = refused.body.to_string();
        assert!(text.contains(code) && text.contains(told), "{query}: {text}");
    }
    let path = |rest: &str| format!("/api/v1/pipelines/{rest}");
    for (rest, status, code) in [
        ("by-hand/slots/cron/2026-01-01T00:00:00Z", 404, "not_found"),
        ("nobody/slots/cron/2026-01-01T00:00:00Z", 404, "pipeline_unknown"),
        ("by-hand/slots/cron/new-year", 400, "bad_parameter"),
    ] {
        let refused = site.get(&path(rest));
        assert_eq!(refused.status, status, "{rest}: {refused:?}");
        assert!(refused.body.to_string().contains(code), "{rest}: {refused:?}");
    }
}
