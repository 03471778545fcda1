//! Tests of the rooms, the last two over the real workspace.

use super::*;
use crate::{
    metadata,
    tidy::{printed, tree},
};

fn dependency(name: &str) -> Dependency {
    Dependency { name: name.to_owned(), development: false, features: vec!["default".to_owned()] }
}

fn package(name: &str, dependencies: Vec<Dependency>) -> Package {
    let manifest = format!("crates/{name}/Cargo.toml");
    Package { name: name.to_owned(), manifest, dependencies, benches: vec![] }
}

fn check(packages: &[Package]) -> Vec<String> {
    printed(&check_directions(packages, &[]))
}

#[test]
fn the_binary_sees_every_crate_and_config_sees_the_core() {
    let packages = [
        package(CORE, vec![dependency("thiserror")]),
        package("interlock-config", vec![dependency(CORE), dependency("anything-else")]),
        package("interlock", vec![dependency(CORE), dependency("interlock-config")]),
    ];
    assert_eq!(check(&packages), Vec::<String>::new());
}

#[test]
fn edge_against_the_direction_is_reported_at_its_line() {
    let packages =
        [package(CORE, vec![dependency("interlock-store")]), package("interlock-store", vec![])];
    let manifest = "[package]\nname = \"interlock-core\"\n[dependencies]\ninterlock-store = {}\n";
    let files = tree(&[("crates/interlock-core/Cargo.toml", manifest)]);
    let problems = printed(&check_directions(&packages, &files));
    assert_eq!(problems.len(), 1);
    let start =
        "crates/interlock-core/Cargo.toml:4: `interlock-core` may not see `interlock-store`";
    assert!(problems[0].starts_with(start), "{problems:?}");
}

#[test]
fn tests_may_not_turn_the_direction_either() {
    let mut backwards = dependency("interlock-engine");
    backwards.development = true;
    let packages =
        [package("interlock-store-redis", vec![backwards]), package("interlock-engine", vec![])];
    assert_eq!(check(&packages).len(), 1);
}

#[test]
fn every_crates_tests_see_the_waits_and_what_ships_does_not() {
    let mut for_tests = dependency(WAIT);
    for_tests.development = true;
    let waits = || package(WAIT, vec![]);
    for name in [CORE, "interlock-engine", "interlock", "xtask"] {
        let tested = package(name, vec![for_tests.clone()]);
        assert_eq!(check(&[tested, waits()]), Vec::<String>::new(), "{name}");
        let linked = package(name, vec![dependency(WAIT)]);
        assert_eq!(check(&[linked, waits()]).len(), 1, "{name}");
    }
    let servers = package("interlock-private-server", vec![dependency(WAIT)]);
    assert_eq!(check(&[servers, waits()]), Vec::<String>::new());
}

#[test]
fn crate_without_a_room_is_reported() {
    let problems = check(&[package("interlock-attic", vec![])]);
    assert!(problems[0].contains("say what `interlock-attic` may see"), "{problems:?}");
}

#[test]
fn core_takes_no_other_crate_except_for_its_tests() {
    let mut proptest = dependency("proptest");
    proptest.development = true;
    let problems = check(&[package(CORE, vec![proptest, dependency("tokio")])]);
    assert_eq!(problems.len(), 1);
    assert!(problems[0].contains("may not use `tokio`"), "{problems:?}");
}

#[test]
fn core_takes_no_zone_database_from_the_system() {
    let mut jiff = dependency("jiff");
    jiff.features = vec!["std".to_owned()];
    assert_eq!(check(&[package(CORE, vec![jiff.clone()])]), Vec::<String>::new());
    jiff.features.push("tz-system".to_owned());
    let problems = check(&[package(CORE, vec![jiff])]);
    assert!(problems[0].contains("may not turn on `tz-system` of `jiff`"), "{problems:?}");
}

#[test]
fn unknown_crate_in_the_closure_is_reported() {
    for name in ["tokio", "async-trait", "mio", "rusqlite", "rand", "getrandom", "reqwest", "hyper"]
    {
        let closure = BTreeSet::from(["jiff".to_owned(), name.to_owned()]);
        let problem = check_core_closure(&closure).unwrap().to_string();
        assert!(problem.contains(name) && !problem.contains("jiff"), "{problem}");
    }
}

fn check_source(text: &str) -> Vec<String> {
    printed(&check_core_sources(&tree(&[("crates/interlock-core/src/a.rs", text)])))
}

#[test]
fn acting_modules_are_reported_alone_and_in_groups() {
    for module in ACTING_MODULES {
        let texts = [
            format!("use std::{module};"),
            format!("let x = std::{module}::y();"),
            format!("use std::{{fmt, {module}::Thing}};"),
            format!("use std::{{\n    collections::{{BTreeMap, BTreeSet}},\n    {module},\n}};"),
        ];
        for text in texts {
            assert_eq!(check_source(&text).len(), 1, "{text}");
        }
    }
}

#[test]
fn clocks_are_reported_at_their_line() {
    for clock in CLOCKS {
        let problems = check_source(&format!("//! Doc.\n\nlet x = {clock}();\n"));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].starts_with("crates/interlock-core/src/a.rs:3: "), "{problems:?}");
    }
}

#[test]
fn comments_longer_words_and_harmless_modules_pass() {
    let text = "//! Instant by Instant, no std::fs.\nuse std::{fmt, ops::Range, iter};\n\
                struct InstantOfDay;\nuse std::time::Duration;\nmod io {}\n";
    assert_eq!(check_source(text), Vec::<String>::new());
}

#[test]
fn other_crates_may_act() {
    let files = tree(&[("crates/interlock-config/src/a.rs", "use std::fs;")]);
    assert_eq!(check_core_sources(&files), []);
}

#[test]
fn the_workspace_keeps_its_direction() {
    let packages = metadata::packages().unwrap();
    assert!(packages.iter().any(|package| package.name == CORE));
    assert_eq!(check(&packages), Vec::<String>::new());
}

#[test]
fn the_core_links_nothing_that_acts() {
    let closure = metadata::closure(CORE).unwrap();
    assert!(closure.contains("jiff"), "{closure:?}");
    assert_eq!(check_core_closure(&closure), None);
}
