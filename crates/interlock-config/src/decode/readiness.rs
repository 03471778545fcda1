//! Readiness: rules on sensors, traits of an archetype, and upstream pipelines.

use std::collections::BTreeSet;

use interlock_core::{
    duration::{self, Units},
    pipeline::PostRun,
    readiness::{Check, Condition, Operand, Readiness, Rule, SensorRule, Upstream},
    text::TextError,
};
use jiff::SignedDuration;

use super::{Decoder, flag, json, number, text};
use crate::{
    problem::Code,
    yaml::{Node, Value},
};

const SENSOR_TIMEOUT: SignedDuration = SignedDuration::from_hours(2);

impl Decoder<'_> {
    /// Everything that must hold before a slot of a pipeline runs.
    pub(super) fn readiness(&mut self, root: &Node) -> Readiness {
        let (rule, mut conditions) = self.validation(root).unwrap_or((Rule::All, Vec::new()));
        let (traits_rule, traits) = self.traits(root);
        if !traits.is_empty()
            && !conditions.is_empty()
            && (rule, traits_rule) != (Rule::All, Rule::All)
        {
            let at = root.entry("validation").map_or(root.span, |entry| entry.key_span);
            self.problems.add(
                at,
                Code::Conflict,
                "`validation` and traits can be combined only when all of both must hold",
                "Use `trigger: ALL` and `all-required-pass`, or only one of the two.",
            );
        }
        let rule = if traits.is_empty() { rule } else { traits_rule };
        conditions.extend(traits);
        Readiness {
            rule,
            conditions,
            upstreams: self.upstreams(root),
            fail_open: flag(root, "failOpen").unwrap_or(false),
        }
    }

    fn validation(&mut self, root: &Node) -> Option<(Rule, Vec<Condition>)> {
        let node = root.get("validation")?;
        let any = node.get("trigger").and_then(Node::text);
        let any = any.is_some_and(|word| word.eq_ignore_ascii_case("any"));
        let rules = self.rules(node);
        if any && rules.is_empty() {
            let at = node.entry("trigger").map_or(node.span, |entry| entry.value.span);
            let message = "`ANY` of no rules never holds";
            self.problems.add(at, Code::Rule, message, "Add rules, or remove `validation`.");
        }
        let rule = if any { Rule::Any } else { Rule::All };
        Some((rule, rules.into_iter().map(Condition::Sensor).collect()))
    }

    fn traits(&mut self, root: &Node) -> (Rule, Vec<Condition>) {
        let around = self.around;
        let mut rule = Rule::All;
        let traits = match root.get("archetype") {
            None => self.plain_traits(root),
            Some(node) => {
                let name = self.known(node, "archetype", Code::UnknownArchetype, around.archetypes);
                let Some(archetype) = name.and_then(|name| around.archetypes.get(name)) else {
                    return (rule, Vec::new());
                };
                rule = archetype.rule;
                self.merge_traits(root, archetype)
            }
        };
        let silent = traits.iter().filter(|found| found.required && found.evaluator.is_none());
        for found in silent {
            let entry = root.entry("traits").or_else(|| root.entry("archetype"));
            self.problems.add(
                entry.map_or(root.span, |entry| entry.key_span),
                Code::NoEvaluator,
                format!("no evaluator answers the required trait `{}`", found.kind),
                format!("Write `traits: {{{}: {{evaluator: ...}}}}`.", found.kind),
            );
        }
        (rule, traits.into_iter().map(Condition::Trait).collect())
    }

    /// The `rules` of a section.
    fn rules(&mut self, node: &Node) -> Vec<SensorRule> {
        let items = node.get("rules").map(Node::items).unwrap_or_default();
        items.iter().filter_map(|item| self.rule(item)).collect()
    }

    /// One condition on one sensor.
    pub(super) fn rule(&mut self, node: &Node) -> Option<SensorRule> {
        let check = match node.get("check")?.text()? {
            "exists" => Check::Exists,
            "equals" => Check::Equals,
            "gt" => Check::Gt,
            "gte" => Check::Gte,
            "lt" => Check::Lt,
            "lte" => Check::Lte,
            "age_lt" => Check::AgeLt,
            _ => Check::AgeGt,
        };
        Some(SensorRule {
            key: text(node, "key")?,
            check,
            field: text(node, "field"),
            operand: self.operand(node, check)?,
        })
    }

    fn operand(&mut self, node: &Node, check: Check) -> Option<Operand> {
        let value = node.get("value");
        if check == Check::Exists {
            if let Some(entry) = node.entry("value") {
                let message = "`value` has no effect with `exists`";
                self.problems.add(entry.key_span, Code::NoEffect, message, "Remove it.");
            }
            return Some(Operand::None);
        }
        let Some(value) = value else {
            let at = node.get("check").map_or(node.span, |check| check.span);
            let message = "this check needs a `value` to compare with";
            self.problems.add(at, Code::Rule, message, "");
            return None;
        };
        match check {
            Check::AgeLt | Check::AgeGt => self.age(value),
            Check::Gt | Check::Gte | Check::Lt | Check::Lte => self.numeric(value),
            Check::Exists | Check::Equals => Some(Operand::Value(json(value))),
        }
    }

    fn age(&mut self, value: &Node) -> Option<Operand> {
        if value.text().is_none() {
            let message = format!("an age must be a duration, found {}", value.kind());
            self.problems.add(value.span, Code::Rule, message, "Write one such as `2h`.");
            return None;
        }
        let age = self
            .read(value, Code::Duration, |text| duration::parse(text, Units::MillisecondsToDays));
        age.map(Operand::Age)
    }

    fn numeric(&mut self, value: &Node) -> Option<Operand> {
        let is_number = match &value.value {
            Value::Int(_) | Value::Float(_) => true,
            Value::Text(text) => text.value.parse::<f64>().is_ok_and(f64::is_finite),
            Value::Null | Value::Bool(_) | Value::List(_) | Value::Map(_) => false,
        };
        if !is_number {
            let message = format!("this check compares numbers, found {}", value.kind());
            self.problems.add(value.span, Code::Rule, message, "Write a number, or use `equals`.");
            return None;
        }
        Some(Operand::Value(json(value)))
    }

    fn upstreams(&mut self, root: &Node) -> Vec<Upstream> {
        let items = root.get("dependsOn").map(Node::items).unwrap_or_default();
        let own = text(root, "name");
        let mut upstreams: Vec<Upstream> = Vec::new();
        let mut seen = BTreeSet::new();
        for item in items {
            let name = item.get("pipeline").unwrap_or(item);
            let Some(pipeline) = name.text() else { continue };
            if own.as_deref() == Some(pipeline) {
                let error = TextError::new(
                    0..pipeline.len(),
                    format!("`{pipeline}` depends on itself"),
                    "Remove it.",
                );
                self.problems.add_text(name.span, Code::DependencyCycle, error);
                continue;
            }
            let upstream = Upstream { pipeline: pipeline.into(), schedule: text(item, "schedule") };
            if seen.insert((pipeline, item.get("schedule").and_then(Node::text))) {
                upstreams.push(upstream);
            } else {
                let message = format!("`{pipeline}` is listed twice");
                self.problems.add(name.span, Code::Repeated, message, "Keep one of them.");
            }
        }
        upstreams
    }

    /// What is checked after completion.
    pub(super) fn post_run(&mut self, root: &Node) -> Option<PostRun> {
        let node = root.get("postRun")?;
        Some(PostRun {
            rules: self.rules(node),
            sensor_timeout: self.duration(node, "sensorTimeout").unwrap_or(SENSOR_TIMEOUT),
            drift_field: text(node, "driftField").unwrap_or_else(|| "sensor_count".to_owned()),
            drift_threshold: number(node, "driftThreshold").unwrap_or(0.0),
        })
    }
}
