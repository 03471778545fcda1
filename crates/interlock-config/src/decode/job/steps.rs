//! Steps: named commands with an order.

use std::collections::BTreeMap;

use interlock_core::pipeline::Step;

use crate::{
    decode::{Decoder, count, flag, text, texts},
    problem::Code,
    suggest,
    yaml::{Node, Value},
};

impl Decoder<'_> {
    /// The steps of a job, each depending on the one above unless it says otherwise.
    pub(super) fn steps(&mut self, node: &Node) -> Vec<Step> {
        if matches!(&node.value, Value::List(items) if items.is_empty()) {
            self.problems.add(node.span, Code::NoValue, "there are no steps", "");
        }
        let mut steps: Vec<Step> = Vec::new();
        for item in node.items() {
            let above = steps.last().map(|step| step.name.clone());
            let Some(step) = self.step(item, above) else { continue };
            if steps.iter().any(|other| other.name == step.name) {
                let at = item.get("name").map_or(item.span, |name| name.span);
                let message = format!("two steps have the name `{}`", step.name);
                self.problems.add(at, Code::Repeated, message, "Choose another name.");
                continue;
            }
            steps.push(step);
        }
        self.report_unknown(node);
        self.report_cycle(node, &steps);
        steps
    }

    fn step(&mut self, node: &Node, above: Option<String>) -> Option<Step> {
        let depends = match node.get("depends") {
            Some(_) => texts(node, "depends"),
            None => above.into_iter().collect(),
        };
        Some(Step {
            name: text(node, "name")?,
            command: self.command(node.get("command")?)?,
            depends,
            retries_max: count(node, "retries").unwrap_or(0),
            timeout: self.duration(node, "timeout"),
            continue_on_failure: flag(node, "continueOnFailure").unwrap_or(false),
            env: self.hidden_values(node, "env"),
            workdir: text(node, "workdir"),
        })
    }

    fn report_unknown(&mut self, node: &Node) {
        // A step that could not be read is not there, but its name may be used.
        let names: Vec<_> =
            node.items().iter().filter_map(|item| item.get("name")?.text()).collect();
        let depends = node.items().iter().filter_map(|item| item.get("depends"));
        for name in depends.flat_map(Node::items) {
            let Some(wanted) = name.text().filter(|wanted| !names.contains(wanted)) else {
                continue;
            };
            let help = suggest::did_you_mean_or_list(wanted, "There are", &names);
            self.problems.add(
                name.span,
                Code::UnknownStep,
                format!("there is no step `{wanted}`"),
                help,
            );
        }
    }

    fn report_cycle(&mut self, node: &Node, steps: &[Step]) {
        let edges: BTreeMap<&str, Vec<&str>> = steps
            .iter()
            .map(|step| (step.name.as_str(), step.depends.iter().map(String::as_str).collect()))
            .collect();
        if let Some(cycle) = crate::cycle::find(&edges) {
            let first = cycle.first().copied().unwrap_or("");
            let named = |item: &&Node| item.get("name").and_then(Node::text) == Some(first);
            let at = node.items().iter().find(named).and_then(|item| item.get("name"));
            self.problems.add(
                at.map_or(node.span, |name| name.span),
                Code::StepCycle,
                format!("steps wait for each other: {}", cycle.join(" -> ")),
                "Remove one of these dependencies.",
            );
        }
    }
}
