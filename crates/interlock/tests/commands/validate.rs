//! `interlock validate`.

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};

use super::{interlock, project};

#[test]
fn the_examples_are_clean() {
    let ran = interlock(&["validate", "examples/quickstart"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "5 usable pipelines, 0 errors, 0 warnings\n"));
    let ran = interlock(&["validate", "examples/watch-only"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "2 usable pipelines, 0 errors, 0 warnings\n"));
    let ran = interlock(&["validate", "-C", "examples/quickstart", "--json"]);
    assert_eq!((ran.code, ran.json()), (0, serde_json::json!([])));
}

/// What compose mounts loads, and the evaluator in it answers what a real Redis says.
#[test]
fn the_compose_project_works() {
    let ran = std::process::Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["validate", "deploy/compose"])
        .current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
        .env("INTERLOCK_API_KEY", "0123456789abcdef0123456789abcdef")
        .output_within(BOUND)
        .unwrap();
    let said = String::from_utf8_lossy(&ran.stdout);
    assert_eq!(said, "1 usable pipeline, 0 errors, 0 warnings\n");
    let redis = interlock_private_server::PrivateRedis::start();
    let port = redis.port().to_string();
    let ask = |port: &str| {
        let script = concat!(
            env!("CARGO_MANIFEST_DIR"),
            "/../../deploy/compose/evaluators/source-landed.sh"
        );
        let question = r#"{"pipelineId": "orders", "traitType": "source-landed", "config": {"key": "landed:orders"}}"#;
        let mut child = std::process::Command::new(script)
            .env("REDIS_PORT", port)
            .stdin(std::process::Stdio::piped())
            .stdout(std::process::Stdio::piped())
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::io::Write::write_all(&mut child.stdin.take().unwrap(), question.as_bytes()).unwrap();
        let said = child.output_within("the answer of the evaluator", BOUND);
        let answer: serde_json::Value = serde_json::from_slice(&said.stdout).unwrap();
        answer["status"].as_str().unwrap().to_owned()
    };
    assert_eq!(ask(&port), "FAIL");
    let put = ["-p", &port, "set", "landed:orders", r#"{"rows": 1200}"#];
    assert!(
        std::process::Command::new("redis-cli")
            .args(put)
            .output_within(BOUND)
            .unwrap()
            .status
            .success()
    );
    assert_eq!(ask(&port), "PASS");
    drop(redis);
    assert_eq!(ask(&port), "ERROR");
}

#[test]
fn every_problem_is_reported_at_once_with_its_place() {
    let dir = project(&[
        (
            "pipelines/report.yaml",
            "name: report\nschedule: \"0 25 * * *\"\ncatchupWindw: 6h\noverlapPolicy: lates\ntimezone: Europe/Berln\ntrigger: {type: external}\n",
        ),
        ("pipelines/etl.yaml", "name: ETL job\nschedule: \"0 0 31 4 *\"\ncatchupWindow: 1.5d\n"),
    ]);
    let ran = interlock(&["validate", dir.path().to_str().unwrap(), "--json"]);
    assert_eq!(ran.code, 1);
    let problems = ran.json();
    let places: Vec<_> = problems
        .as_array()
        .unwrap()
        .iter()
        .filter(|problem| problem["severity"] == "error")
        .map(|problem| {
            assert!(problem["code"].as_str().unwrap().starts_with("IL"));
            assert!(
                !problem["message"].as_str().unwrap().is_empty() && problem["help"].is_string()
            );
            let file = problem["file"].as_str().unwrap().rsplit('/').next().unwrap().to_owned();
            (file, problem["line"].as_u64().unwrap(), problem["column"].as_u64().unwrap())
        })
        .collect();
    let expected = [
        ("etl.yaml", 1, 7),
        ("etl.yaml", 2, 16),
        ("etl.yaml", 3, 16),
        ("report.yaml", 2, 14),
        ("report.yaml", 3, 1),
        ("report.yaml", 4, 16),
        ("report.yaml", 5, 11),
    ];
    let expected: Vec<_> =
        expected.map(|(file, line, column)| (file.to_owned(), line, column)).into();
    assert_eq!(places, expected, "{}", ran.stdout);
}

#[test]
fn the_offending_text_is_underlined_and_the_mending_named() {
    let dir = project(&[(
        "pipelines/report.yaml",
        "name: report\nschedule: \"0 25 * * *\"\ncatchupWindw: 6h\ntrigger: {type: external}\n",
    )]);
    let ran = interlock(&["validate", "-C", dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, 1);
    let shown = ran.stdout.replace(&format!("{}/", dir.path().display()), "");
    let readme = std::fs::read_to_string(super::repository().join("README.md")).unwrap();
    assert!(readme.contains(&shown), "the README shows something else than\n{shown}");
}

#[test]
fn warnings_alone_do_not_fail() {
    let dir = project(&[(
        "pipelines/odd.yaml",
        "name: odd\nschedule: \"0 0 13 * 5\"\ntrigger: {type: external}\n",
    )]);
    let ran = interlock(&["validate", dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, 0);
    assert!(ran.stdout.contains("either"), "{}", ran.stdout);
}
