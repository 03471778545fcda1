//! The gates: places and breaker.

use std::fs;

use crate::house::{House, line, spec, until};

const PASS: &str = r#"echo '{"status":"PASS"}'"#;

#[tokio::test]
async fn evaluators_are_asked_at_the_same_time() {
    let house = House::new();
    // Each waits for the other: one after the other they would wait for ever.
    for (own, other) in [("left", "right"), ("right", "left")] {
        let meet =
            format!("touch $HERE/{own}.here; until [ -e $HERE/{other}.here ]; do sleep 0.01; done");
        house.script(own, &format!("{meet}; {PASS}"));
    }
    let (left, right) = tokio::join!(house.ask("left"), house.ask("right"));
    assert_eq!((line(&left), line(&right)), ("PASS  ".to_owned(), "PASS  ".to_owned()));
}

#[tokio::test]
async fn one_that_hangs_leaves_places_for_others() {
    let house = House::with_places(4);
    house.script("hangs", "echo x >> $HERE/begun; sleep 60");
    house.script("quick", PASS);
    let hanging: Vec<_> =
        (0..8).map(|_| tokio::spawn(house.question(&spec("hangs", None)))).collect();
    let begun = || fs::read_to_string(house.path("begun")).unwrap_or_default().lines().count();
    until("two that hang", || (begun() == 2).then_some(())).await;
    for _ in 0..3 {
        assert_eq!(line(&house.ask("quick").await), "PASS  ");
    }
    assert_eq!(begun(), 2, "half of four places");
    hanging.iter().for_each(tokio::task::JoinHandle::abort);
}

#[tokio::test]
async fn no_more_are_asked_at_once_than_there_are_places() {
    let house = House::with_places(1);
    for name in ["a", "b", "c"] {
        let alone = "mkdir $HERE/lock || exit 2; sleep 0.1; rmdir $HERE/lock";
        house.script(name, &format!("{alone}; {PASS}"));
    }
    let (a, b, c) = tokio::join!(house.ask("a"), house.ask("b"), house.ask("c"));
    for answer in [a, b, c] {
        assert_eq!(line(&answer), "PASS  ");
    }
}

#[tokio::test]
async fn case_42_one_that_keeps_failing_is_not_run_any_more() {
    let house = House::new();
    house.script("fails", "echo x >> $HERE/ran; exit 1");
    house.script("wrong", "echo x >> $HERE/ran_wrong; exit 2");
    for _ in 0..7 {
        house.ask("fails").await;
        house.ask("wrong").await;
    }
    let ran = |name: &str| fs::read_to_string(house.path(name)).unwrap().lines().count();
    assert_eq!((ran("ran"), ran("ran_wrong")), (5, 7), "permanent failures suspend nobody");
    let said = line(&house.ask("fails").await);
    assert!(said.starts_with("ERROR TRANSIENT EVALUATOR_SUSPENDED: `fails` failed too often and is left alone since 2"), "{said}");
    assert!(said.ends_with("(breaker open)"), "{said}");
    house.script("other", PASS);
    assert_eq!(line(&house.ask("other").await), "PASS  ", "each has a breaker of its own");
}
