//! Pipelines over HTTP are those that `interlock status`, `list` and `show` print.

use super::*;

const ORDERS: &str = "
name: orders
owner: data@example.com
description: Orders of the night
labels: {domain: sales}
schedules:
  - {id: nightly, cron: '0 3 1 1 *', timezone: Europe/Riga}
env: {SECRET: hidden-value}
trigger: {type: command, command: 'true'}
";
const STOCK: &str = "
name: stock
owner: store@example.com
watch: {enabled: false}
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";
const BILLS: &str = "
name: bills
labels: {domain: sales, tier: gold}
schedule: '0 0 1 2 *'
trigger: {type: external}
";

fn names(listed: &Value) -> Vec<&str> {
    let items = listed["items"].as_array().unwrap();
    items.iter().map(|item| item["pipeline"].as_str().unwrap()).collect()
}

fn three() -> ApiSite {
    let site = ApiSite::new(&[("orders", ORDERS), ("stock", STOCK), ("bills", BILLS)]);
    site.until_declared(3);
    site
}

#[test]
fn pipelines_are_those_of_status_and_list_page_by_page() {
    let site = three();
    assert_eq!(site.project.run(&["run", "orders"]).code, 0);
    assert_eq!(site.project.run(&["pause", "bills", "--reason", "audit"]).code, 0);
    let listed = site.get("/api/v1/pipelines").ok();
    assert_eq!(names(&listed), ["bills", "orders", "stock"]);
    assert_eq!(listed["items"], site.json_of(&["status", "--json"]), "the same answers");
    for declared in site.json_of(&["list", "--json"]).as_array().unwrap() {
        let items = listed["items"].as_array().unwrap();
        let item = items.iter().find(|it| it["pipeline"] == declared["pipeline"]).unwrap();
        for (field, value) in declared.as_object().unwrap() {
            assert_eq!(item[field], *value, "{field}");
        }
    }
    let [bills, orders, stock] = [0, 1, 2].map(|index| &listed["items"][index]);
    assert_eq!(bills["paused"]["reason"], "audit");
    assert_eq!(orders["schedules"][0]["when"], "0 3 1 1 * (Europe/Riga)");
    assert!(orders["next"]["utc"].as_str().unwrap().ends_with("-01-01T01:00:00Z"), "{orders}");
    assert_eq!((&stock["enabled"], &stock["next"]), (&false.into(), &Value::Null));

    let first = site.get("/api/v1/pipelines?limit=2").ok();
    assert_eq!(names(&first), ["bills", "orders"]);
    let next = first["next"].as_str().unwrap();
    let second = site.get(&format!("/api/v1/pipelines?limit=2&after={next}")).ok();
    assert_eq!((names(&second), &second["next"]), (vec!["stock"], &Value::Null));
}

#[test]
fn pipelines_are_found_by_name_owner_label_and_text() {
    let site = three();
    for (query, expected) in [
        ("owner=data@example.com", &["orders"][..]),
        ("owner=data@example.com&owner=store@example.com", &["orders", "stock"]),
        ("label=domain%3Dsales", &["bills", "orders"]),
        ("label=tier", &["bills"]),
        ("label=tier%3Dsilver", &[]),
        ("q=NIGHT", &["orders"]),
        ("q=store", &["stock"]),
        ("pipeline=stock&pipeline=bills", &["bills", "stock"]),
        ("pipeline=stock&owner=data@example.com", &[]),
        ("pipeline=nobody", &[]),
    ] {
        let listed = site.get(&format!("/api/v1/pipelines?{query}")).ok();
        assert_eq!(names(&listed), expected, "{query}");
    }
    assert_eq!(site.get("/api/v1/pipelines?tier=1").status, 400);
    let of_runs = site.get("/api/v1/pipelines?after=eyJvZiI6ImV2ZW50cyIsIm51bWJlciI6N30");
    assert_eq!(of_runs.status, 400, "{of_runs:?}");
}

const WAITS: &str = "
name: waits
schedule: '0 0 1 1 *'
sla: {expectedDuration: 30m}
trigger: {type: command, command: 'test ! -e hold || sleep 60'}
workdir: .
";

#[test]
fn a_pipeline_has_how_long_its_runs_usually_take_and_which_are_at_risk() {
    let site = ApiSite::new(&[("waits", WAITS)]);
    site.until_declared(1);
    let waits = || site.get("/api/v1/pipelines/waits").ok();
    let usual = |count: u64| {
        let found = waits()["usual"][0].clone();
        assert_eq!((&found["schedule"], &found["runs"]), (&"manual".into(), &count.into()));
        found["seconds"].clone()
    };
    for _ in 0..4 {
        assert_eq!(site.project.run(&["run", "waits"]).code, 0);
    }
    assert_eq!(usual(4), Value::Null, "nothing is concluded from four");
    assert_eq!(site.project.run(&["run", "waits"]).code, 0);
    assert!(usual(5).as_i64().unwrap() < 30, "{}", waits());

    fs::write(site.project.path().join("hold"), "").unwrap();
    assert_eq!(site.project.run(&["run", "waits", "--detach"]).code, 0);
    let running = site.project.until("it runs", || Some(waits()["running"].get(0)?.clone()));
    assert_eq!(running["risk"], Value::Null, "{running}");
    assert!(running["expectedEnd"].is_string(), "{running}");
    let started: jiff::Timestamp = running["startedAt"].as_str().unwrap().parse().unwrap();
    let later = started + jiff::SignedDuration::from_mins(10);
    let then = site.get(&format!("/api/v1/pipelines/waits?at={later}")).ok();
    assert_eq!(then["running"][0]["risk"], "longerThanUsual", "{then}");
    assert_eq!(then["running"][0]["expectedEnd"], later.to_string(), "not before now");
    let slot = running["slot"].as_str().unwrap();
    assert_eq!(site.project.run(&["cancel", "waits", slot]).code, 0);
}

#[test]
fn a_pipeline_has_its_declaration_with_defaults_and_without_secrets() {
    let site = ApiSite::new(&[("orders", ORDERS)]);
    site.until_declared(1);
    let orders = site.get("/api/v1/pipelines/orders").ok();
    assert_eq!(orders["declaration"], site.json_of(&["show", "orders", "--json"]));
    assert_eq!(orders["declaration"]["job"]["env"][0], "SECRET");
    assert!(!orders.to_string().contains("hidden-value"), "{orders}");
    let listed = site.get("/api/v1/pipelines").ok();
    for (field, value) in listed["items"][0].as_object().unwrap() {
        assert_eq!(orders[field], *value, "{field}");
    }
    let then = site.get("/api/v1/pipelines/orders?at=2030-06-01T00:00:00Z").ok();
    assert_eq!(then["next"]["utc"], "2031-01-01T01:00:00Z");
    let nobody = site.get("/api/v1/pipelines/nobody");
    assert_eq!(nobody.status, 404, "{nobody:?}");
    assert!(nobody.body.to_string().contains("pipeline_unknown"), "{nobody:?}");
}
