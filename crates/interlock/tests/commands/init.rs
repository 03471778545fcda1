//! `interlock init`.

use std::fs;

use super::{interlock, project};

#[test]
fn a_new_project_is_valid_and_has_slots() {
    let dir = project(&[]);
    let target = dir.path().join("fresh");
    let target = target.to_str().unwrap();
    assert_eq!(interlock(&["init", target]).code, 0);
    let ran = interlock(&["validate", target]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "1 usable pipeline, 0 errors, 0 warnings\n"));
    let slots = interlock(&["next", "-C", target, "--json"]).json();
    assert_eq!(slots.as_array().unwrap().len(), 5);
}

#[test]
fn nothing_is_overwritten_and_nothing_left_behind() {
    let dir = project(&[("pipelines/hello.yaml", "mine")]);
    let ran = interlock(&["init", dir.path().to_str().unwrap()]);
    assert_eq!(ran.code, 3);
    assert!(ran.stderr.contains("hello.yaml already exists"), "{}", ran.stderr);
    assert_eq!(fs::read_to_string(dir.path().join("pipelines/hello.yaml")).unwrap(), "mine");
    assert!(!dir.path().join("interlock.yaml").exists());
}
