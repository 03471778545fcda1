//! Incidents over HTTP are those that `interlock incidents` prints, with who was told of them.

use super::*;

const FAILS: &str = "
name: fails
owner: data
labels: {team: core}
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'exit 7'}
retry: {maxAttempts: 1}
";

#[test]
fn incidents_are_those_of_the_command_and_say_where_their_alerts_are() {
    let site = ApiSite::new(&[("fails", FAILS)]);
    assert_eq!(site.project.run(&["run", "fails"]).code, 1);
    let printed = site.json_of(&["incidents", "--json"]);
    let listed = site.get("/api/v1/incidents").ok();
    assert_eq!(listed["items"], printed, "the same answers");
    let count = |query: &str| {
        let listed = site.get(&format!("/api/v1/incidents?{query}")).ok();
        listed["items"].as_array().unwrap().len()
    };
    let kind = printed[0]["kind"].as_str().unwrap();
    for (query, expected) in [
        ("pipeline=fails", 1),
        ("pipeline=_system", 0),
        ("kind=SCHEDULE_MISSED", 0),
        (&format!("kind=NOPE&kind={kind}"), 1),
        ("level=error", 1),
        ("level=info", 0),
        ("owner=data", 1),
        ("owner=nobody", 0),
        ("owner=data&owner=nobody", 1),
        ("label=team=core", 1),
        ("label=team=core&label=tier=gold", 0),
        ("state=resolved", 0),
        ("from=2099-01-01T00:00:00Z", 0),
        ("until=2099-01-01T00:00:00Z", 1),
    ] {
        assert_eq!(count(query), expected, "{query}");
    }
    let key = printed[0]["key"].as_str().unwrap();
    let one = site.get(&format!("/api/v1/incidents/fails/{key}")).ok();
    assert_eq!(one["message"], printed[0]["message"]);
    assert!(one["deliveries"].is_array(), "{one}");
    assert_eq!(site.get("/api/v1/incidents/fails/nope").status, 404);

    assert_eq!(site.project.run(&["incidents", "resolve", key]).code, 0);
    assert_eq!((count(""), count("state=resolved")), (0, 1));
    let resolved = site.get(&format!("/api/v1/incidents/fails/{key}")).ok();
    assert_eq!(resolved["state"], "resolved");
    assert!(resolved["resolved"]["by"].is_string(), "{resolved}");
}

#[test]
fn open_incidents_are_counted_and_dead_letters_are_listed_page_by_page() {
    let site = ApiSite::new(&[("fails", FAILS)]);
    assert_eq!(site.project.run(&["run", "fails"]).code, 1);
    for (by, value) in
        [("kind", None), ("owner", Some("data")), ("pipeline", Some("fails")), ("upstream", None)]
    {
        let groups = site.get(&format!("/api/v1/incidents/groups?by={by}")).ok();
        let printed = site.json_of(&["incidents", "--group-by", by, "--json"]);
        assert_eq!(groups["items"], printed, "{by}: the same answers");
        assert_eq!(
            (&groups["items"][0]["by"], &groups["items"][0]["count"]),
            (&by.into(), &1.into())
        );
        if let Some(value) = value {
            assert_eq!(groups["items"][0]["value"], value);
        }
    }
    assert_eq!(site.get("/api/v1/incidents/groups").status, 400, "by what?");
    assert_eq!(site.get("/api/v1/incidents/groups?by=colour").status, 400);
    let dead = site.get("/api/v1/dead-letters").ok();
    assert_eq!(dead["items"], site.json_of(&["incidents", "dead", "--json"]));
    for query in ["state=great", "level=high", "label=team", "limit=0", "after=x", "nope=1"] {
        let refused = site.get(&format!("/api/v1/incidents?{query}"));
        assert_eq!(refused.status, 400, "{query}: {refused:?}");
    }
}
