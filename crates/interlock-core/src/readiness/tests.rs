//! Superseded cases, each with its reason:
//! - 39 "majority default threshold": 2 of 4 was enough in Go; a majority is more than half.
//! - 39 "unknown rule falls back to all-required", B5 "unknown operator fails the rule": a name
//!   that means nothing is an error when the file is read, so no rule here can be unknown.
//! - 38 "no evaluator" and "STALE": they block as before, but as "cannot tell", so that people see
//!   that something is broken, and so that a fail-open pipeline may run.
//! - B5: `age_gt` was documented and did not exist; times may be epoch numbers too.

use proptest::prelude::*;
use serde_json::json;

use super::{verdict::Tally, *};
use crate::sensor::Sensor;

const NOW: &str = "2026-03-03T08:00:00Z";

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn rule(check: Check, field: Option<&str>, operand: Operand) -> SensorRule {
    SensorRule { key: "orders".into(), check, field: field.map(Into::into), operand }
}

fn condition(kind: &str, weight: Weight, evaluator: Option<&str>) -> Condition {
    Condition::Trait(TraitSpec {
        kind: kind.into(),
        required: weight == Weight::Required,
        evaluator: evaluator.map(Into::into),
        config: BTreeMap::new(),
        ttl: None,
        timeout: None,
    })
}

fn required(kind: &str) -> Condition {
    condition(kind, Weight::Required, Some("check.sh"))
}

fn readiness(rule: Rule, conditions: Vec<Condition>) -> Readiness {
    Readiness { rule, conditions, upstreams: vec![], fail_open: false }
}

fn status(status: TraitStatus) -> TraitResult {
    TraitResult { status, value: None, reason: None, category: None }
}

/// Everything that an evaluation may look at.
#[derive(Default)]
struct World {
    sensors: Sensors,
    traits: BTreeMap<String, TraitResult>,
    upstreams: BTreeMap<Upstream, UpstreamState>,
    period: Option<SlotPeriod>,
}

impl World {
    fn sensor(mut self, key: &str, value: Value) -> Self {
        self.sensors.insert(key.into(), Sensor { value, at: at("2026-03-03T07:00:00Z") });
        self
    }

    fn result(mut self, kind: &str, result: TraitResult) -> Self {
        self.traits.insert(kind.into(), result);
        self
    }

    fn evaluate(&self, readiness: &Readiness) -> Verdict {
        let evidence = Evidence {
            sensors: &self.sensors,
            traits: &self.traits,
            upstreams: &self.upstreams,
            period: self.period,
            now: at(NOW),
        };
        evaluate(readiness, &evidence)
    }
}

/// One rule on a sensor `orders` with this value.
fn check(value: Value, rule: SensorRule, expected: &str) {
    let world = World::default().sensor("orders", value);
    let verdict = world.evaluate(&readiness(Rule::All, vec![Condition::Sensor(rule)]));
    assert_eq!(verdict.parts[0].to_string(), expected);
    assert_eq!(verdict.outcome, verdict.parts[0].outcome, "all of one is that one");
}

#[test]
fn b5_numbers_are_compared_and_the_reason_shows_both_sides() {
    let is = |check, value| rule(check, Some("n"), Operand::Value(value));
    for (seen, rule, expected) in [
        (json!(0.1), is(Check::Lte, json!(0.05)), "✗ orders.n lte 0.05, 0.1 lte 0.05 is false"),
        (json!(0.05), is(Check::Lte, json!(0.05)), "✓ orders.n lte 0.05, 0.05 lte 0.05 is true"),
        (json!(5), is(Check::Lt, json!(5)), "✗ orders.n lt 5, 5 lt 5 is false"),
        (json!(4), is(Check::Lt, json!(5)), "✓ orders.n lt 5, 4 lt 5 is true"),
        (json!(5), is(Check::Gt, json!(5.0)), "✗ orders.n gt 5.0, 5 gt 5.0 is false"),
        (json!(6), is(Check::Gt, json!(5)), "✓ orders.n gt 5, 6 gt 5 is true"),
        (json!(5), is(Check::Gte, json!("5")), "✓ orders.n gte \"5\", 5 gte \"5\" is true"),
        (json!("7"), is(Check::Gte, json!(5)), "✓ orders.n gte 5, \"7\" gte 5 is true"),
        (json!("10"), is(Check::Gt, json!("9")), "✓ orders.n gt \"9\", \"10\" gt \"9\" is true"),
        (json!("ten"), is(Check::Gt, json!(9)), "? orders.n gt 9, \"ten\" is not a number"),
        (json!(1), is(Check::Gt, json!("x")), "? orders.n gt \"x\", \"x\" is not a number"),
        (json!(null), is(Check::Gt, json!(9)), "? orders.n gt 9, null is not a number"),
        (json!("inf"), is(Check::Gt, json!(9)), "? orders.n gt 9, \"inf\" is not a number"),
    ] {
        check(json!({ "n": seen }), rule, expected);
    }
}

#[test]
fn large_integers_are_not_rounded() {
    let (left, right) = (9_007_199_254_740_993_i64, 9_007_199_254_740_992_i64);
    assert_eq!(compare::order(&json!(left), &json!(right)), Some(std::cmp::Ordering::Greater));
    assert!(!compare::equal(&json!(left), &json!(right.to_string())));
}

#[test]
fn b5_equals_looks_at_what_is_meant() {
    for (left, right, expected) in [
        (json!(true), json!("true"), true),
        (json!(false), json!("true"), false),
        (json!(1000), json!("1000"), true),
        (json!(1000), json!(1000.0), true),
        (json!("1000.0"), json!(1000), true),
        (json!("done"), json!("done"), true),
        (json!("done"), json!("Done"), false),
        (json!("01"), json!("1"), false),
        (json!(1), json!(true), false),
        (json!(null), json!(null), true),
        (json!(null), json!("null"), false),
        (json!([1, 2]), json!([1, 2]), true),
        (json!({"a": 1}), json!({"a": 2}), false),
    ] {
        assert_eq!(compare::equal(&left, &right), expected, "{left} {right}");
        assert_eq!(compare::equal(&right, &left), expected, "{right} {left}");
    }
    let complete = rule(Check::Equals, Some("status"), Operand::Value(json!("done")));
    let expected = "✗ orders.status equals \"done\", \"open\" equals \"done\" is false";
    check(json!({"status": "open"}), complete, expected);
    let whole = rule(Check::Equals, None, Operand::Value(json!(3)));
    check(json!("3"), whole, "✓ orders equals 3, \"3\" equals 3 is true");
}

#[test]
fn b5_what_is_missing_is_not_there_yet() {
    let exists = rule(Check::Exists, Some("ignored"), Operand::None);
    let expected = "✓ orders.ignored exists, reported at 2026-03-03T07:00:00Z";
    check(json!(null), exists.clone(), expected);
    let verdict = World::default().evaluate(&readiness(Rule::All, vec![Condition::Sensor(exists)]));
    let expected = "✗ orders.ignored exists, sensor `orders` has not been reported";
    assert_eq!(verdict.parts[0].to_string(), expected);
    assert_eq!(unreported_sensor(&verdict.parts[0].reason), Some("orders"));
    assert_eq!(unreported_sensor("sensor `orders` is late"), None);
    let count = rule(Check::Gt, Some("count"), Operand::Value(json!(1)));
    let expected = "✗ orders.count gt 1, field `count` not found in sensor `orders`";
    check(json!({"n": 1}), count.clone(), expected);
    let expected = "? orders.count gt 1, sensor `orders` is not an object and has no field `count`";
    check(json!(7), count, expected);
}

#[test]
fn b5_ages_count_from_the_time_in_the_field() {
    let hour = || Operand::Age(SignedDuration::from_hours(1));
    let younger = || rule(Check::AgeLt, Some("t"), hour());
    let older = || rule(Check::AgeGt, Some("t"), hour());
    for (time, rule, expected) in [
        (
            json!("2026-03-03T07:15:00Z"),
            younger(),
            "✓ orders.t age_lt 1h, 2026-03-03T07:15:00Z is 45m old: age_lt 1h is true",
        ),
        (
            json!(1_772_521_200),
            younger(),
            "✗ orders.t age_lt 1h, 2026-03-03T07:00:00Z is 1h old: age_lt 1h is false",
        ),
        (
            json!("1772521200000"),
            older(),
            "✗ orders.t age_gt 1h, 2026-03-03T07:00:00Z is 1h old: age_gt 1h is false",
        ),
        (
            json!("2026-03-03T06:59:59.5Z"),
            older(),
            "✓ orders.t age_gt 1h, 2026-03-03T06:59:59.5Z is 1h old: age_gt 1h is true",
        ),
        (
            json!("2026-03-03T08:05:00Z"),
            younger(),
            "✓ orders.t age_lt 1h, 2026-03-03T08:05:00Z lies 5m in the future: age_lt 1h is true",
        ),
        (
            json!("2026-03-03T08:05:00Z"),
            older(),
            "✗ orders.t age_gt 1h, 2026-03-03T08:05:00Z lies 5m in the future: age_gt 1h is false",
        ),
        (
            json!("noon"),
            younger(),
            "? orders.t age_lt 1h, \"noon\" is not a time: RFC 3339 with an offset, epoch seconds \
             or milliseconds",
        ),
    ] {
        check(json!({ "t": time }), rule, expected);
    }
}

#[test]
fn an_age_without_a_field_counts_from_the_value_or_from_the_report() {
    let whole = || rule(Check::AgeLt, None, Operand::Age(SignedDuration::from_mins(90)));
    let reported = "✓ orders age_lt 1h30m, 2026-03-03T07:00:00Z is 1h old: age_lt 1h30m is true";
    check(json!({"count": 3}), whole(), reported);
    let expected = "✗ orders age_lt 1h30m, 2026-03-03T06:00:00Z is 2h old: age_lt 1h30m is false";
    check(json!("2026-03-03T06:00:00Z"), whole(), expected);
}

#[test]
fn a_rule_without_the_operand_it_needs_cannot_be_told() {
    for wanting in [Check::Equals, Check::Gt, Check::Gte, Check::Lt, Check::Lte, Check::AgeLt] {
        let verdict = World::default().sensor("orders", json!("2026-03-03T06:00:00Z")).evaluate(
            &readiness(Rule::All, vec![Condition::Sensor(rule(wanting, None, Operand::None))]),
        );
        assert_eq!(verdict.outcome, Outcome::CannotTell, "{wanting}");
    }
}

#[test]
fn b5_the_sensor_of_the_slots_period_is_asked() {
    let mut world = World::default()
        .sensor("orders", json!(1))
        .sensor("orders#2026-03-02", json!(2))
        .sensor("orders#20260303", json!(3));
    world.period = Some(SlotPeriod::day(jiff::civil::Date::constant(2026, 3, 3)));
    let three = rule(Check::Equals, None, Operand::Value(json!(3)));
    let verdict = world.evaluate(&readiness(Rule::All, vec![Condition::Sensor(three)]));
    assert_eq!(verdict.parts[0].to_string(), "✓ orders#20260303 equals 3, 3 equals 3 is true");
    assert_eq!(verdict.parts[0].name, "orders");
    assert_eq!(verdict.parts[0].seen, Some(json!(3)));
}

#[test]
fn a_long_value_is_cut_off_in_the_text_only() {
    let long = Value::String("ä".repeat(200));
    let is = rule(Check::Equals, None, Operand::Value(json!(1)));
    let verdict = World::default()
        .sensor("orders", long.clone())
        .evaluate(&readiness(Rule::All, vec![Condition::Sensor(is)]));
    assert_eq!(verdict.parts[0].reason, format!("\"{}… equals 1 is false", "ä".repeat(79)));
    assert_eq!(verdict.parts[0].seen, Some(long));
}

#[test]
fn case_38_a_trait_that_fails_blocks_by_name() {
    let archetype = readiness(Rule::All, vec![required("fresh"), required("complete")]);
    let mut world = World::default()
        .result("fresh", status(TraitStatus::Pass))
        .result("complete", status(TraitStatus::Pass));
    assert_eq!(world.evaluate(&archetype).outcome, Outcome::Ready);
    assert!(world.evaluate(&archetype).blocking().is_empty());
    let failed = TraitResult {
        status: TraitStatus::Fail,
        value: Some(json!({"windows": 3})),
        reason: Some("3 of 5 windows".into()),
        category: Some(FailureCategory::Transient),
    };
    world = world.result("complete", failed);
    let verdict = world.evaluate(&archetype);
    assert_eq!(verdict.outcome, Outcome::NotReady);
    let blocking: Vec<_> = verdict.blocking().iter().map(|part| part.name.as_str()).collect();
    assert_eq!(blocking, ["complete"]);
    let expected = "✗ trait `complete`, FAIL (TRANSIENT): 3 of 5 windows";
    assert_eq!(verdict.parts[1].to_string(), expected);
    assert_eq!(verdict.parts[1].seen, Some(json!({"windows": 3})));
}

#[test]
fn case_38_what_no_evaluator_answered_cannot_be_told_and_blocks() {
    let unanswered = condition("owned", Weight::Required, None);
    for (world, condition, reason) in [
        (World::default(), unanswered, "no evaluator is configured"),
        (World::default(), required("owned"), "it has not been evaluated"),
        (World::default().result("owned", status(TraitStatus::Stale)), required("owned"), "STALE"),
        (World::default().result("owned", status(TraitStatus::Error)), required("owned"), "ERROR"),
    ] {
        let mut readiness = readiness(Rule::All, vec![condition]);
        let verdict = world.evaluate(&readiness);
        assert_eq!(verdict.outcome, Outcome::CannotTell, "{reason}");
        assert_eq!(verdict.blocking()[0].reason, reason);
        assert!(!verdict.may_run(&readiness), "S8: {reason}");
        readiness.fail_open = true;
        assert!(verdict.may_run(&readiness), "fail-open: {reason}");
    }
}

#[test]
fn fail_open_does_not_forgive_a_no() {
    let mut readiness = readiness(Rule::All, vec![required("a"), required("b")]);
    readiness.fail_open = true;
    let verdict = World::default().result("a", status(TraitStatus::Fail)).evaluate(&readiness);
    assert_eq!(verdict.outcome, Outcome::NotReady);
    assert!(!verdict.may_run(&readiness));
}

#[test]
fn a_pushed_result_counts_even_without_an_evaluator() {
    let readiness = readiness(Rule::All, vec![condition("pushed", Weight::Required, None)]);
    let world = World::default().result("pushed", status(TraitStatus::Pass));
    assert_eq!(world.evaluate(&readiness).outcome, Outcome::Ready);
}

#[test]
fn optional_traits_are_shown_and_never_block() {
    for rule in [Rule::All, Rule::Majority { threshold: None }] {
        let conditions = vec![required("a"), condition("nice", Weight::Optional, Some("x"))];
        let world = World::default()
            .result("a", status(TraitStatus::Pass))
            .result("nice", status(TraitStatus::Fail));
        let verdict = world.evaluate(&readiness(rule, conditions));
        assert_eq!(verdict.outcome, Outcome::Ready, "{rule:?}");
        assert!(verdict.blocking().is_empty());
        assert_eq!(verdict.parts[1].to_string(), "✗ trait `nice` (optional), FAIL");
    }
    let alone = readiness(Rule::Any, vec![condition("nice", Weight::Optional, Some("x"))]);
    let world = World::default().result("nice", status(TraitStatus::Pass));
    assert_eq!(world.evaluate(&alone).outcome, Outcome::NotReady, "nor do they decide");
}

/// Answers as letters: `+` holds, `-` does not, `?` cannot be told.
fn check_rule(rule: Rule, answers: &str, expected: char) {
    let outcome = |letter| match letter {
        '+' => Outcome::Ready,
        '-' => Outcome::NotReady,
        '?' => Outcome::CannotTell,
        other => panic!("no answer: {other}"),
    };
    let found = Tally::of(answers.chars().map(outcome)).outcome(rule);
    assert_eq!(found, outcome(expected), "{rule:?} of {answers:?}");
}

#[test]
fn b5_all_and_any_know_three_answers() {
    for (answers, all, any) in [
        ("", '+', '-'),
        ("+", '+', '+'),
        ("-", '-', '-'),
        ("?", '?', '?'),
        ("+-", '-', '+'),
        ("+?", '?', '+'),
        ("-?", '-', '?'),
        ("+-?", '-', '+'),
        ("--", '-', '-'),
        ("++", '+', '+'),
    ] {
        check_rule(Rule::All, answers, all);
        check_rule(Rule::Any, answers, any);
    }
}

#[test]
fn case_39_a_majority_is_more_than_half_or_the_threshold() {
    for (answers, half, two) in [
        ("", '+', '+'),
        ("+-", '-', '-'),
        ("++-", '+', '+'),
        ("++--", '-', '+'),
        ("+++-", '+', '+'),
        ("++-?", '?', '+'),
        ("+--?", '-', '?'),
        ("+---", '-', '-'),
        ("???", '?', '?'),
    ] {
        check_rule(Rule::Majority { threshold: None }, answers, half);
        check_rule(Rule::Majority { threshold: Some(2) }, answers, two);
    }
    check_rule(Rule::Majority { threshold: Some(3) }, "++", '-');
    check_rule(Rule::Majority { threshold: Some(0) }, "--", '+');
}

#[test]
fn case_43_an_upstream_must_have_completed() {
    let upstream = Upstream { pipeline: "raw".into(), schedule: Some("h10".into()) };
    let mut readiness = readiness(Rule::All, vec![]);
    readiness.upstreams.push(upstream.clone());
    for (state, expected) in [
        (Some(UpstreamState::Completed), "✓ upstream `raw/h10` completed, its slot is completed"),
        (
            Some(UpstreamState::Monitoring),
            "✓ upstream `raw/h10` completed, its slot is being monitored",
        ),
        (Some(UpstreamState::Open), "✗ upstream `raw/h10` completed, its slot is still open"),
        (
            Some(UpstreamState::Closed { disposition: "failed".into() }),
            "✗ upstream `raw/h10` completed, its slot closed as failed",
        ),
        (
            Some(UpstreamState::NoSlot),
            "✗ upstream `raw/h10` completed, it has no slot for this period",
        ),
        (None, "? upstream `raw/h10` completed, its slot was not looked up"),
    ] {
        let upstreams = state.map(|state| (upstream.clone(), state)).into_iter().collect();
        let verdict = World { upstreams, ..World::default() }.evaluate(&readiness);
        assert_eq!(verdict.parts[0].to_string(), expected);
        assert_eq!(verdict.outcome, verdict.parts[0].outcome);
    }
}

#[test]
fn an_upstream_must_hold_besides_the_rule() {
    let upstream = Upstream { pipeline: "raw".into(), schedule: None };
    let mut any = readiness(Rule::Any, vec![required("a"), required("b")]);
    any.upstreams.push(upstream.clone());
    let mut world = World::default().result("a", status(TraitStatus::Pass));
    world.upstreams.insert(upstream, UpstreamState::Open);
    let verdict = world.evaluate(&any);
    assert_eq!(verdict.outcome, Outcome::NotReady);
    let blocking: Vec<_> = verdict.blocking().iter().map(|part| part.name.as_str()).collect();
    assert_eq!(blocking, ["raw"], "`b` does not block: one of the two is enough");
}

#[test]
fn b5_nothing_to_ask_is_ready_under_all_and_blocks_under_any() {
    let world = World::default();
    assert_eq!(world.evaluate(&readiness(Rule::All, vec![])).outcome, Outcome::Ready);
    let none = world.evaluate(&readiness(Rule::Any, vec![]));
    assert_eq!(none.outcome, Outcome::NotReady);
    assert_eq!(none.to_string(), "✗ conditions: any of 0, there is none");
    assert_eq!(none.blocking(), [&none]);
}

#[test]
fn a_verdict_prints_as_a_tree_in_the_order_of_the_file() {
    let conditions = vec![
        Condition::Sensor(rule(Check::Exists, None, Operand::None)),
        Condition::Sensor(rule(Check::Lte, Some("null_rate"), Operand::Value(json!(0.05)))),
        required("fresh"),
        condition("nice", Weight::Optional, None),
    ];
    let mut readiness = readiness(Rule::All, conditions);
    readiness.upstreams.push(Upstream { pipeline: "raw".into(), schedule: None });
    let mut world = World::default().sensor("orders", json!({"null_rate": 0.1}));
    world.upstreams.insert(readiness.upstreams[0].clone(), UpstreamState::Completed);
    let expected = "\
✗ readiness: all of 2, 1 holds, 1 does not
  ✗ conditions: all of 3, 1 holds, 1 does not, 1 cannot be told
    ✓ orders exists, reported at 2026-03-03T07:00:00Z
    ✗ orders.null_rate lte 0.05, 0.1 lte 0.05 is false
    ? trait `fresh`, it has not been evaluated
    ? trait `nice` (optional), no evaluator is configured
  ✓ upstream `raw` completed, its slot is completed";
    let verdict = world.evaluate(&readiness);
    assert_eq!(verdict.to_string(), expected);
    let blocking: Vec<_> = verdict.blocking().iter().map(|part| part.asked.as_str()).collect();
    assert_eq!(blocking, ["orders.null_rate lte 0.05", "trait `fresh`"]);
}

#[test]
fn checks_and_statuses_are_read_back_and_unknown_ones_refused() {
    for check in Check::ALL {
        assert_eq!(Check::parse(check.as_str()), Ok(check));
    }
    for status in TraitStatus::ALL {
        assert_eq!(TraitStatus::parse(status.as_str()), Ok(status));
    }
    let error = Check::parse("age_le").unwrap_err();
    assert_eq!((error.span, error.message.as_str()), (0..6, "`age_le` is not a check"));
    assert_eq!(error.help, "Use one of exists, equals, gt, gte, lt, lte, age_lt, age_gt.");
    assert!(TraitStatus::parse("pass").is_err());
}

fn any_rule() -> impl Strategy<Value = Rule> {
    prop_oneof![
        Just(Rule::All),
        Just(Rule::Any),
        Just(Rule::Majority { threshold: None }),
        (0_usize..8).prop_map(|threshold| Rule::Majority { threshold: Some(threshold) }),
    ]
}

fn any_outcome() -> impl Strategy<Value = Outcome> {
    prop_oneof![Just(Outcome::Ready), Just(Outcome::NotReady), Just(Outcome::CannotTell)]
}

proptest! {
    /// The unknown answers are filled in in every possible way: "cannot tell" means that it depends
    /// on them, and everything else that it does not.
    #[test]
    fn cannot_tell_means_that_the_unknown_ones_decide(
        rule in any_rule(),
        answers in prop::collection::vec(any_outcome(), 0..7),
    ) {
        let unknown = answers.iter().filter(|answer| **answer == Outcome::CannotTell).count();
        let mut possible = std::collections::BTreeSet::new();
        for filling in 0_u32..1 << unknown {
            let mut bit = 0;
            let filled = answers.iter().map(|answer| match answer {
                Outcome::CannotTell => {
                    bit += 1;
                    if filling >> (bit - 1) & 1 == 1 { Outcome::Ready } else { Outcome::NotReady }
                }
                Outcome::Ready | Outcome::NotReady => *answer,
            });
            possible.insert(Tally::of(filled).outcome(rule));
        }
        let found = Tally::of(answers.iter().copied()).outcome(rule);
        match found {
            Outcome::CannotTell => prop_assert_eq!(possible.len(), 2),
            Outcome::Ready | Outcome::NotReady => {
                prop_assert_eq!(possible.into_iter().collect::<Vec<_>>(), vec![found]);
            }
        }
    }

    #[test]
    fn a_better_answer_never_makes_the_whole_worse(
        rule in any_rule(),
        answers in prop::collection::vec(any_outcome(), 1..7),
        index in any::<prop::sample::Index>(),
    ) {
        let goodness = |outcome| match outcome {
            Outcome::NotReady => 0,
            Outcome::CannotTell => 1,
            Outcome::Ready => 2,
        };
        let mut better = answers.clone();
        let improved = index.get_mut(&mut better);
        *improved = match *improved {
            Outcome::NotReady => Outcome::CannotTell,
            Outcome::CannotTell | Outcome::Ready => Outcome::Ready,
        };
        let before = Tally::of(answers.into_iter()).outcome(rule);
        let after = Tally::of(better.into_iter()).outcome(rule);
        prop_assert!(goodness(after) >= goodness(before));
    }
}
