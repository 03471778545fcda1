//! Archetypes, and how a pipeline's traits are merged into one.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::readiness::{Rule, TraitSpec};

use super::{Decoder, count, json_dict, text};
use crate::{
    problem::Code,
    suggest,
    yaml::{Node, Value},
};

const REQUIRED: &str = "requiredTraits";
const OPTIONAL: &str = "optionalTraits";

/// A named set of traits with a readiness rule.
#[derive(Debug, Clone, PartialEq)]
pub struct Archetype {
    /// What pipelines call it.
    pub name: String,
    /// How the answers become one.
    pub rule: Rule,
    /// Required ones first, in the order of the file.
    pub traits: Vec<TraitSpec>,
    /// Hash of what its file says, part of a pipeline's version.
    pub fingerprint: u64,
}

impl Decoder<'_> {
    /// An archetype file.
    pub(crate) fn archetype(&mut self, root: &Node) -> Option<Archetype> {
        let mut traits = self.traits_of(root, REQUIRED);
        if let Some(entry) = root.entry(REQUIRED)
            && matches!(&entry.value.value, Value::List(items) if items.is_empty())
        {
            let message = "an archetype needs at least one required trait";
            self.problems.add(entry.key_span, Code::NoValue, message, "");
        }
        traits.extend(self.traits_of(root, OPTIONAL));
        self.report_repeated(root);
        let required = traits.iter().filter(|found| found.required).count();
        Some(Archetype {
            name: text(root, "name")?,
            rule: self.readiness_rule(root.get("readinessRule")?, required)?,
            traits,
            fingerprint: crate::version::fingerprint(root),
        })
    }

    fn traits_of(&mut self, root: &Node, key: &str) -> Vec<TraitSpec> {
        let items = root.get(key).map(Node::items).unwrap_or_default();
        let mut traits = Vec::new();
        for item in items {
            let Some(kind) = text(item, "type") else { continue };
            traits.push(TraitSpec {
                kind,
                required: key == REQUIRED,
                evaluator: None,
                config: json_dict(item, "defaultConfig"),
                ttl: self.seconds(item, "defaultTtl"),
                timeout: self.seconds(item, "defaultTimeout"),
            });
        }
        traits
    }

    fn report_repeated(&mut self, root: &Node) {
        let mut seen = BTreeSet::new();
        for key in [REQUIRED, OPTIONAL] {
            for item in root.get(key).map(Node::items).unwrap_or_default() {
                if let Some(node) = item.get("type")
                    && !seen.insert(node.text())
                {
                    let message =
                        format!("the trait `{}` is there twice", node.text().unwrap_or(""));
                    self.problems.add(node.span, Code::Repeated, message, "Keep one of them.");
                }
            }
        }
    }

    fn readiness_rule(&mut self, node: &Node, required: usize) -> Option<Rule> {
        let parameters = node.get("parameters");
        let threshold = parameters.and_then(|map| count(map, "threshold")).map(|n| n as usize);
        let threshold_node = parameters.and_then(|map| map.get("threshold"));
        if node.get("type")?.text()? == "majority-pass" {
            if let (Some(node), Some(found)) = (threshold_node, threshold)
                && found > required
            {
                let message =
                    format!("`threshold` is {found}, but only {required} traits are required");
                self.problems.add(node.span, Code::OutOfRange, message, "");
            }
            return Some(Rule::Majority { threshold });
        }
        if let Some(node) = threshold_node {
            self.problems.add(
                node.span,
                Code::NoEffect,
                "`threshold` has no effect with `all-required-pass`",
                "Remove it, or write `type: majority-pass`.",
            );
        }
        Some(Rule::All)
    }

    /// The traits of an archetype with a pipeline's overrides: every required one, and those
    /// optional ones that the pipeline names.
    pub(super) fn merge_traits(&mut self, root: &Node, archetype: &Archetype) -> Vec<TraitSpec> {
        let overrides = root.get("traits").map(Node::entries).unwrap_or_default();
        let known: Vec<_> = archetype.traits.iter().map(|found| found.kind.as_str()).collect();
        for entry in overrides.iter().filter(|entry| !known.contains(&entry.key.as_str())) {
            self.problems.add(
                entry.key_span,
                Code::UnknownTrait,
                format!("the archetype `{}` has no trait `{}`", archetype.name, entry.key),
                suggest::did_you_mean_or_list(&entry.key, "It has", &known),
            );
        }
        let mut merged = Vec::new();
        for found in &archetype.traits {
            let named = overrides.iter().find(|entry| entry.key == found.kind);
            match named {
                Some(entry) => merged.push(self.override_trait(found.clone(), &entry.value)),
                None if found.required => merged.push(found.clone()),
                None => {}
            }
        }
        merged
    }

    /// The traits of a pipeline without an archetype: all required.
    pub(super) fn plain_traits(&mut self, root: &Node) -> Vec<TraitSpec> {
        let entries = root.get("traits").map(Node::entries).unwrap_or_default();
        let mut traits = Vec::new();
        for entry in entries {
            let blank = TraitSpec {
                kind: entry.key.clone(),
                required: true,
                evaluator: None,
                config: BTreeMap::new(),
                ttl: None,
                timeout: None,
            };
            traits.push(self.override_trait(blank, &entry.value));
        }
        traits
    }

    fn override_trait(&mut self, mut spec: TraitSpec, node: &Node) -> TraitSpec {
        spec.evaluator = text(node, "evaluator");
        spec.config.extend(json_dict(node, "config"));
        spec.ttl = self.seconds(node, "ttl").or(spec.ttl);
        spec.timeout = self.seconds(node, "timeout").or(spec.timeout);
        spec
    }
}
