//! Events over HTTP are those that `interlock events` prints.

use super::*;

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

#[test]
fn events_are_those_of_the_command_by_pipeline_kind_slot_and_run() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    for _ in 0..2 {
        assert_eq!(site.project.run(&["run", "by-hand"]).code, 0);
    }
    let printed = site.project.run(&["events", "by-hand", "--json"]).stdout;
    let printed: Vec<Value> =
        printed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let listed = site.get("/api/v1/events?pipeline=by-hand").ok();
    assert_eq!(listed["items"], Value::Array(printed.clone()), "the same answers, oldest first");
    assert!(
        !listed.to_string().contains(site.project.path().to_str().unwrap()),
        "no path of the host: {listed}"
    );

    let mut paged = Vec::new();
    let mut after = String::new();
    loop {
        let path = format!("/api/v1/events?pipeline=by-hand&limit=2{after}");
        let page = site.get(&path).ok();
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["next"].as_str() else { break };
        after = format!("&after={next}");
    }
    assert_eq!(paged, printed, "page by page");

    let newest = site.get("/api/v1/events?pipeline=by-hand&order=newest&limit=1").ok();
    assert_eq!(newest["items"][0], printed[printed.len() - 1]);
    let next = newest["next"].as_str().unwrap();
    let path = format!("/api/v1/events?pipeline=by-hand&order=newest&limit=1&after={next}");
    assert_eq!(site.get(&path).ok()["items"][0], printed[printed.len() - 2]);

    let found = |query: &str| {
        let listed = site.get(&format!("/api/v1/events?pipeline=by-hand&{query}")).ok();
        listed["items"].as_array().unwrap().clone()
    };
    let completed = found("kind=JOB_COMPLETED");
    assert_eq!(completed.len(), 2, "{completed:?}");
    assert_eq!(found("kind=JOB_COMPLETED&kind=NOPE").len(), 2, "given twice means or");
    let first = &completed[0];
    let (slot, run) = (first["slot"].as_str().unwrap(), first["runId"].as_str().unwrap());
    assert!(found(&format!("slot={slot}")).iter().all(|event| event["slot"] == slot));
    assert!(found(&format!("runId={run}")).iter().all(|event| event["runId"] == run));
    let number = first["number"].as_u64().unwrap();
    let rest = found(&format!("after={number}"));
    let behind = printed.iter().filter(|event| event["number"].as_u64() > Some(number));
    assert_eq!(rest, behind.cloned().collect::<Vec<_>>(), "behind an event's number");
    assert_eq!(site.get("/api/v1/events?after=x").status, 400);
    assert_eq!(site.get("/api/v1/events?nope=1").status, 400);
}
