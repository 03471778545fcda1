//! `interlock validate`.

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
