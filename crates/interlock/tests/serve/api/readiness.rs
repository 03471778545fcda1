//! Whether a slot may run, over HTTP, is what `interlock evaluate` and `explain` say.

use std::os::unix::fs::PermissionsExt as _;

use super::*;

const GATED: &str = "
name: gated
schedule: '0 0 1 1 *'
validation: {trigger: ALL, rules: [{key: rows, check: gte, field: count, value: 10}]}
trigger: {type: command, command: 'true'}
";
const ASKED: &str = "
name: asked
schedule: '0 0 1 1 *'
archetype: gate
traits: {fresh: {evaluator: fresh.sh}}
trigger: {type: command, command: 'true'}
";
const GATE: &str =
    "name: gate\nrequiredTraits: [{type: fresh}]\nreadinessRule: {type: all-required-pass}\n";
const FRESH: &str = "#!/bin/sh\ncat >/dev/null; echo '{\"status\": \"PASS\"}'\n";

fn site() -> ApiSite {
    let site = ApiSite::new(&[("gated", GATED)]);
    let path = site.project.path();
    for folder in ["evaluators", "archetypes"] {
        fs::create_dir_all(path.join(folder)).unwrap();
    }
    let program = path.join("evaluators/fresh.sh");
    fs::write(&program, FRESH).unwrap();
    fs::set_permissions(&program, fs::Permissions::from_mode(0o755)).unwrap();
    fs::write(path.join("archetypes/gate.yaml"), GATE).unwrap();
    fs::write(path.join("pipelines/asked.yaml"), ASKED).unwrap();
    site.until_declared(2);
    site
}

#[test]
fn readiness_is_the_verdict_by_what_is_recorded() {
    let site = site();
    let path = "/api/v1/pipelines/gated/readiness";
    let slot = "slot=cron/2026-01-01T00:00:00Z";
    let before = site.get(&format!("{path}?{slot}")).ok();
    assert_eq!(before["slot"], "gated/cron/2026-01-01T00:00:00Z");
    assert_eq!(
        (&before["mayRun"], &before["verdict"]["outcome"]),
        (&false.into(), &"not ready".into())
    );
    let put = site.project.run(&["sensor", "put", "gated", "rows", "{\"count\": 12}"]);
    assert_eq!(put.code, 0, "{}", put.stderr);
    let after = site.get(&format!("{path}?{slot}")).ok();
    assert_eq!((&after["mayRun"], &after["verdict"]["outcome"]), (&true.into(), &"ready".into()));
    let printed = site.json_of(&["evaluate", "gated", "cron/2026-01-01T00:00Z", "--json"]);
    assert_eq!(after["verdict"], printed["verdict"], "the same answers");
    let last = site.get(path).ok();
    assert!(last["slot"].as_str().unwrap().starts_with("gated/cron/"), "{last}");
    for query in ["slot=soon", "slot=2026-01-02T00:00:00Z"] {
        let refused = site.get(&format!("{path}?{query}"));
        assert!(refused.status == 400 && refused.body["code"] == "bad_slot", "{refused:?}");
    }
    assert_eq!(site.get("/api/v1/pipelines/nobody/readiness").status, 404);
}

#[test]
fn evaluators_are_asked_by_evaluate_and_not_by_readiness() {
    let site = site();
    let read = site.get("/api/v1/pipelines/asked/readiness").ok();
    assert_eq!(read["verdict"]["outcome"], "cannot tell", "{read}");
    assert!(read.to_string().contains("was not asked"), "{read}");
    let asked = site.ask(&["-X", "POST"], "/api/v1/pipelines/asked/evaluate").ok();
    assert_eq!((&asked["mayRun"], &asked["verdict"]["outcome"]), (&true.into(), &"ready".into()));
}
