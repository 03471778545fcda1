//! Which instances there are, and what they own.

use interlock_private_server::PrivateRedis;

use super::*;
use crate::project::signal;

const BY_HAND: &str = "
name: by-hand
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

/// The instances, once there are so many.
fn instances(site: &ApiSite, count: usize) -> Vec<Value> {
    site.project.until("all have said what they are like", || {
        let listed = site.get("/api/v1/instances").ok()["items"].take();
        let all = listed.as_array().unwrap().clone();
        (all.len() == count).then_some(all)
    })
}

#[test]
fn an_instance_alone_says_what_it_is_like_and_owns_the_only_shard() {
    let site = ApiSite::new(&[("by-hand", BY_HAND)]);
    let one = instances(&site, 1).remove(0);
    assert_eq!((&one["state"], &one["pid"]), (&"present".into(), &site.daemon.0.id().into()));
    assert_eq!(one["roles"], serde_json::json!(["engine", "api", "notifier", "watchdog"]), "{one}");
    assert_eq!(one["address"], site.base.as_str());
    let loops: Vec<&str> =
        one["loops"].as_array().unwrap().iter().map(|it| it["name"].as_str().unwrap()).collect();
    assert!(loops.contains(&"http") && loops.contains(&"watchdog"), "{one}");
    let shards = site.get("/api/v1/shards").ok()["items"].take();
    let owner = serde_json::json!({ "instance": one["name"], "until": null });
    assert_eq!(shards, serde_json::json!([{ "shard": 0, "engine": owner, "watchdog": owner }]));
}

#[test]
fn instances_that_share_a_store_are_listed_by_any_of_them_and_one_that_dies_as_gone() {
    let server = PrivateRedis::start();
    let config =
        format!("provider: redis\nredis: {{addr: '{}', shards: 4}}\n{SERVER}", server.address());
    let (one, other) = (ApiSite::with(&[], &config), ApiSite::with(&[], &config));
    let both = instances(&one, 2);
    assert!(both.iter().all(|it| it["state"] == "present" && it["clockSkewSeconds"].is_number()));
    let owned = |site: &ApiSite| {
        let shards = site.get("/api/v1/shards").ok()["items"].take();
        let owner = |shard: &Value| shard["engine"]["instance"].as_str().map(str::to_owned);
        let owners: Vec<_> = shards.as_array().unwrap().iter().filter_map(owner).collect();
        (owners.len() == 4).then_some(owners)
    };
    one.project.until("each owns two shards", || {
        let owners = owned(&one)?;
        let count = |it: &Value| owners.iter().filter(|owner| it["name"] == **owner).count();
        both.iter().all(|it| count(it) == 2).then_some(())
    });
    assert!(signal(other.daemon.0.id(), "-KILL"));
    let gone = one.project.until("the dead one is gone", || {
        let listed = one.get("/api/v1/instances").ok()["items"].take();
        let last = listed.as_array().unwrap().last().unwrap().clone();
        (last["state"] == "gone").then_some(last)
    });
    assert_eq!((&gone["pid"], &gone["upSeconds"]), (&other.daemon.0.id().into(), &Value::Null));
}
