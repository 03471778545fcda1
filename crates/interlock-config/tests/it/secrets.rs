//! Secrets are in no `Debug` output and in no problem.

use interlock_config::FileKind;

use crate::support::{config, good, pipeline, problems};

fn told(kind: FileKind, text: &str) -> String {
    let found = problems(kind, text);
    assert!(!found.is_empty(), "{text}");
    found.iter().map(|p| format!("{p}\n{p:?}\n{}", p.to_json())).collect::<Vec<_>>().join("\n")
}

#[test]
fn debug_shows_stars() {
    let shown = format!("{:?}", config(&good("config", "everything")));
    for secret in ["from-env", "postgres://store", "hooks.example.com", "hc.example.com", "abc"] {
        assert!(!shown.contains(secret), "{secret} in {shown}");
    }
    assert!(shown.contains("***"));
    let shown = format!("{:?}", pipeline(&good("pipeline", "everything")));
    assert!(!shown.contains("API_TOKEN") && !shown.contains("\"full\""), "{shown}");
}

#[test]
fn problems_show_stars() {
    for text in [
        "redis: {password: hunter2, dbb: 1}\n",
        "redis: {pasword: hunter2}\n",
        "redis: {password: 'hunter2', password: 'hunter2'}\n",
        "redis:\n  password: [hunter2]\n",
        "password: hunter2\n",
        "archiver: {dsn: 'hunter2', enabled: 7}\n",
        "server: {apiKey: hunter2, adr: x}\n",
        "server: {tokens: [{name: a, token: hunter2, scope: root}]}\n",
        "alerts: [{type: webhook, url: hunter2}]\n",
        "alerts: [{type: webhok, url: 'https://hunter2'}]\n",
        "alerts: [{type: slack, url: 'https://a', headers: {a: hunter2}}]\n",
        "alerts: [{type: http, url: 'https://a', headers: {a: hunter2}, x: 1}]\n",
        "beacons: [{url: 'https://hunter2', interval: 7}]\n",
        "redis: {password: 'hunter2${NOT_SET}'}\n",
        "redis: {password: 'hunter2${slot}'}\n",
        "redis: {\"password\": \"hunter2\n",
        "redis:\n  password: hunter2: x\n",
        "redis:\n  password: >\n    hunter2\n  : x\n",
        "alerts:\n  - type: http\n    headers:\n      A: hunter2: x\n",
        "defaults: {env: {A: hunter2}, envv: 1}\n",
    ] {
        let told = told(FileKind::Config, text);
        assert!(!told.contains("hunter2"), "{text}\n{told}");
    }
    for text in [
        "name: a1\nenv: {A: hunter2, B: [x]}\n",
        "name: a1\ntrigger: {type: http, url: 'https://a', headers: {A: hunter2}, x: 1}\n",
        "name: a1\nsteps: [{name: s, command: c, env: {A: 'hunter2${'}}]\n",
        "name: a1\napiToken: hunter2\n",
    ] {
        let told = told(FileKind::Pipeline, text);
        assert!(!told.contains("hunter2"), "{text}\n{told}");
    }
}

#[test]
fn an_unset_variable_is_named_and_its_neighbours_are_not() {
    let told = told(FileKind::Config, "redis: {password: 'x${API_KEY}y${NOT_SET}z'}\n");
    assert!(told.contains("`NOT_SET` is not set"), "{told}");
    assert!(!told.contains("api-key-from-env"), "{told}");
}
