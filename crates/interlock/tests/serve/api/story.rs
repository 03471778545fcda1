//! The story of a slot, or why there is none, is what `interlock why` prints.

use super::*;

const FAILS: &str = "
name: fails
schedules: [{id: daily, cron: '0 3 * * *', timezone: Europe/Berlin}]
exclusions: {weekends: true}
trigger: {type: command, command: 'exit 7'}
retry: {maxAttempts: 1}
";

#[test]
fn a_story_is_that_of_why_with_its_runs_events_and_incidents() {
    let site = ApiSite::new(&[("fails", FAILS)]);
    assert_eq!(site.project.run(&["run", "fails"]).code, 1);
    let slots = site.json_of(&["slots", "--json"]);
    let instant = slots[0]["utc"].as_str().unwrap();
    let printed = site.json_of(&["why", "fails", &format!("manual/{instant}"), "--json"]);
    let story = site.get(&format!("/api/v1/pipelines/fails/slots/manual/{instant}/story")).ok();
    assert_eq!(story, printed[0], "the same answers");
    assert!(
        !story.to_string().contains(site.project.path().to_str().unwrap()),
        "no path of the host: {story}"
    );
    assert_eq!(story["slot"], slots[0]);
    assert_eq!(story["runs"][0]["status"], "FAILED");
    let events = story["events"].as_array().unwrap();
    assert_eq!(events[0]["kind"], "SLOT_OPENED", "oldest first: {events:?}");
    let incident = &story["incidents"][0];
    assert!(incident["key"].as_str().unwrap().starts_with("failed:fails:manual:"), "{story}");
    assert_eq!(incident["state"], "open");
    let text = site.project.run(&["why", "fails", &format!("manual/{instant}")]).stdout;
    let told = format!("Incidents:\n  {} is open", incident["key"].as_str().unwrap());
    assert!(text.contains(&told), "{text}");
}

#[test]
fn where_there_is_no_slot_the_story_says_why_in_a_word_and_a_sentence() {
    let site = ApiSite::new(&[("fails", FAILS)]);
    site.until_declared(1);
    for (instant, reason, sentence) in [
        ("2099-01-07T02:00:00Z", "not_due", "not due yet"),
        ("2026-01-07T02:00:00Z", "before_first_sight", "first seen"),
        ("2026-01-10T02:00:00Z", "excluded", "2026-01-10 is excluded by exclusions"),
        ("2026-01-07T02:30:00Z", "not_a_slot", "2026-01-07T02:00:00Z"),
    ] {
        let story = site.get(&format!("/api/v1/pipelines/fails/slots/daily/{instant}/story")).ok();
        let absence = &story["absence"];
        assert_eq!(absence["reason"], reason, "{instant}: {story}");
        assert!(absence["sentence"].as_str().unwrap().contains(sentence), "{instant}: {story}");
        assert!(story["slot"].is_null() && story["events"] == serde_json::json!([]), "{story}");
        let printed = site.json_of(&["why", "fails", instant, "--json"]);
        assert_eq!(printed[0], story, "the same answers");
    }
    let next = site.get("/api/v1/pipelines/fails/slots/daily/2026-01-09T12:00:00Z/story").ok();
    assert_eq!(next["absence"]["previous"], "2026-01-09T02:00:00Z");
    assert_eq!(next["absence"]["next"], "2026-01-12T02:00:00Z", "behind the weekend");
    let none = site.get("/api/v1/pipelines/fails/slots/yearly/2026-01-09T12:00:00Z/story").ok();
    assert_eq!(none["absence"]["reason"], "no_such_schedule");
    let unknown = site.get("/api/v1/pipelines/nobody/slots/daily/2026-01-09T12:00:00Z/story");
    assert_eq!(unknown.status, 404, "{unknown:?}");
}
