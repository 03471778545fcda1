//! How a job is started: `trigger`, `job` and `steps` become one trigger.

mod steps;

use std::collections::BTreeMap;

use interlock_core::pipeline::{
    AirflowTrigger, CommandLine, Handlers, HttpCompletion, HttpTrigger, OnUncertain, Trigger,
    TriggerKind,
};
use jiff::SignedDuration;

use super::{Decoder, count, json, json_dict, text};
use crate::{
    problem::Code,
    shape::TYPE,
    source::Origin,
    yaml::{Node, Value},
};

/// Why nothing here prepares, starts or retries a job of type `external`.
const ELSEWHERE: &str = "something else starts the job";

const REQUEST_TIMEOUT: SignedDuration = SignedDuration::from_secs(30);

/// How the end of an HTTP job is learnt when the file does not say.
#[derive(Clone, Copy)]
enum Unsaid {
    Response,
    /// The Go controller always waited for a callback.
    Callback,
}

impl Decoder<'_> {
    /// The trigger of a pipeline; none when it has none or it is wrong.
    pub(super) fn trigger(&mut self, root: &Node) -> Option<Trigger> {
        self.only_one_job(root);
        if let Some(node) = root.get("trigger") {
            return self.native_trigger(root, node);
        }
        if let Some(node) = root.get("job") {
            return self.go_job(root, node);
        }
        let steps = self.steps(root.get("steps")?);
        Some(Trigger {
            kind: TriggerKind::Steps(steps),
            on_uncertain: OnUncertain::default(),
            timeout: self.duration(root, "timeout"),
            poll_interval: None,
        })
    }

    fn only_one_job(&mut self, root: &Node) {
        let typed = root.get("trigger").and_then(|node| node.get(TYPE)).and_then(Node::text);
        let named = ["trigger", "job", "steps"].into_iter().filter_map(|key| root.entry(key));
        // `trigger: {type: steps}` says where the steps are.
        let named: Vec<_> =
            named.filter(|entry| !(entry.key == "steps" && typed == Some("steps"))).collect();
        if let [first, second, ..] = named.as_slice() {
            let message = format!("`{}` and `{}` both say what to run", first.key, second.key);
            self.problems.add(second.key_span, Code::Conflict, message, "Keep one of them.");
        }
    }

    fn native_trigger(&mut self, root: &Node, node: &Node) -> Option<Trigger> {
        let kind = match node.get(TYPE)?.text()? {
            "command" => {
                let command = node.get("command")?;
                TriggerKind::Command(self.command(command.get("command").unwrap_or(command))?)
            }
            "steps" => {
                let steps = node.get("steps").or_else(|| root.get("steps"));
                let Some(steps) = steps else {
                    let message = "there are no `steps`";
                    self.problems.add(
                        node.span,
                        Code::MissingKey,
                        message,
                        "Write `steps: [...]`.",
                    );
                    return None;
                };
                TriggerKind::Steps(self.steps(steps))
            }
            "http" => match node.get("http") {
                Some(nested) => TriggerKind::Http(self.http(nested, Unsaid::Callback)?),
                None => TriggerKind::Http(self.http(node, Unsaid::Response)?),
            },
            "airflow" => TriggerKind::Airflow(self.airflow(node.get("airflow").unwrap_or(node))?),
            "external" => TriggerKind::External,
            name => TriggerKind::Other { name: name.to_owned(), options: options(node, name) },
        };
        self.warn_idle(node, &kind);
        let timeout = self.seconds(node, "timeout");
        Some(Trigger {
            kind,
            on_uncertain: on_uncertain(node),
            timeout: timeout.or_else(|| self.duration(root, "timeout")),
            poll_interval: self.seconds(node, "pollInterval"),
        })
    }

    /// Says which keys have no effect on a kind of job.
    fn warn_idle(&mut self, node: &Node, kind: &TriggerKind) {
        let unpolled = &[("pollInterval", "the end of this job is not polled")];
        let idle: &[(&str, &str)] = match kind {
            TriggerKind::Http(HttpTrigger { completion: HttpCompletion::Poll { .. }, .. })
            | TriggerKind::Airflow(_)
            | TriggerKind::Other { .. } => &[],
            TriggerKind::Http(_) | TriggerKind::Command(_) | TriggerKind::Steps(_) => unpolled,
            TriggerKind::External => &[
                ("pollInterval", ELSEWHERE),
                ("timeout", "something else starts the job; a schedule's `maxDuration` limits it"),
                ("onUncertain", ELSEWHERE),
            ],
        };
        for (key, why) in idle {
            if let Some(entry) = node.entry(key) {
                let message = format!("`{key}` has no effect: {why}");
                self.problems.add(entry.key_span, Code::NoEffect, message, "Remove it.");
            }
        }
    }

    /// Says which keys of a pipeline have no effect because of where its job runs. What `defaults` say for all pipelines may
    /// well concern the others.
    pub(super) fn warn_idle_keys(&mut self, root: &Node, kind: &TriggerKind) {
        const ON_HOST: &[&str] = &["env", "workdir", "shell", "handlers"];
        const STARTED: &[&str] = &[
            "catchupWindow",
            "overlapPolicy",
            "catchupMaxRuns",
            "maxActiveRuns",
            "retry",
            "skipIfSuccessful",
            "failOpen",
            "validation",
            "archetype",
            "traits",
            "params",
            "postRun",
        ];
        let idle: &[(&[&str], &str)] = match kind {
            TriggerKind::External => &[(ON_HOST, ELSEWHERE), (STARTED, ELSEWHERE)],
            TriggerKind::Http(_) | TriggerKind::Airflow(_) => {
                &[(ON_HOST, "the job does not run on this host")]
            }
            TriggerKind::Command(_) | TriggerKind::Steps(_) | TriggerKind::Other { .. } => &[],
        };
        for (keys, why) in idle {
            let entries = keys.iter().filter_map(|key| root.entry(key));
            for entry in entries.filter(|entry| entry.key_span.origin == Origin::File) {
                let message = format!("`{}` has no effect: {why}", entry.key);
                self.problems.add(entry.key_span, Code::NoEffect, message, "Remove it.");
            }
        }
    }

    fn go_job(&mut self, root: &Node, node: &Node) -> Option<Trigger> {
        let name = node.get(TYPE)?.text()?;
        let kind = match (name, node.get("config")) {
            ("command", Some(config)) => {
                TriggerKind::Command(self.command(config.get("command")?)?)
            }
            ("http", Some(config)) => TriggerKind::Http(self.http(config, Unsaid::Response)?),
            ("airflow", Some(config)) => TriggerKind::Airflow(self.airflow(config)?),
            ("external", _) => TriggerKind::External,
            (name, _) => {
                TriggerKind::Other { name: name.to_owned(), options: json_dict(node, "config") }
            }
        };
        let window = count(node, "jobPollWindowSeconds").filter(|seconds| *seconds > 0);
        let window = window.map(|seconds| SignedDuration::from_secs(i64::from(seconds)));
        Some(Trigger {
            kind,
            on_uncertain: on_uncertain(node),
            timeout: self.duration(root, "timeout").or(window),
            poll_interval: None,
        })
    }

    fn http(&mut self, node: &Node, unsaid: Unsaid) -> Option<HttpTrigger> {
        let url = self.url(node, "url");
        let poll_url = node.get("pollUrl").and_then(|_| self.url(node, "pollUrl"));
        let said = node.get("completion").and_then(Node::text);
        let completion = match (said, poll_url, unsaid) {
            (None | Some("poll"), Some(url), _) => HttpCompletion::Poll { url },
            (Some("callback"), _, _) | (None, None, Unsaid::Callback) => HttpCompletion::Callback,
            (Some("poll"), None, _) => {
                let at = node.get("completion").map_or(node.span, |said| said.span);
                let message = "`completion: poll` needs a `pollUrl`";
                self.problems.add(at, Code::MissingKey, message, "Write `pollUrl: https://...`.");
                return None;
            }
            (Some(_), _, _) | (None, None, Unsaid::Response) => HttpCompletion::Response,
        };
        Some(HttpTrigger {
            url: url?,
            method: text(node, "method").unwrap_or_else(|| "POST".to_owned()),
            headers: self.hidden_values(node, "headers"),
            body: node.get("body").map(body),
            completion,
            request_timeout: self.request_timeout(node, unsaid),
        })
    }

    /// In the nested Go form `timeout` is the request's; in the flat form it is the run's.
    fn request_timeout(&mut self, node: &Node, unsaid: Unsaid) -> SignedDuration {
        let own = self.seconds(node, "requestTimeout");
        let go = match (unsaid, node.get(TYPE)) {
            (Unsaid::Callback, _) | (Unsaid::Response, None) => self.seconds(node, "timeout"),
            (Unsaid::Response, Some(_)) => None,
        };
        own.or(go).unwrap_or(REQUEST_TIMEOUT)
    }

    fn airflow(&mut self, node: &Node) -> Option<AirflowTrigger> {
        let url = self.url(node, "url");
        let dag_id = text(node, "dagId");
        if node.get("dagId").is_none() {
            let message = "the key `dagId` is missing in airflow";
            self.problems.add(node.span, Code::MissingKey, message, "Write `dagId: ...`.");
        }
        let conf = match node.get("body") {
            Some(body) if node.get("conf").is_none() => self.conf(body),
            _ => json_dict(node, "conf"),
        };
        Some(AirflowTrigger {
            url: url?,
            dag_id: dag_id?,
            version: count(node, "version").unwrap_or(2) as u8,
            headers: self.hidden_values(node, "headers"),
            conf,
            request_timeout: self.request_timeout(node, Unsaid::Response),
        })
    }

    /// A `conf` that is written as JSON text.
    fn conf(&mut self, node: &Node) -> BTreeMap<String, serde_json::Value> {
        let parsed = match node.text() {
            Some(text) => serde_json::from_str(text).ok(),
            None => Some(json(node)),
        };
        if let Some(serde_json::Value::Object(map)) = parsed {
            return map.into_iter().collect();
        }
        let message = "the body of an Airflow trigger must be a JSON object";
        self.problems.add(node.span, Code::WrongType, message, "Write a map under `conf`.");
        BTreeMap::new()
    }

    fn url(&mut self, node: &Node, key: &str) -> Option<String> {
        // That the key is there was checked with the structure.
        let node = node.get(key)?;
        let url = node.text()?;
        self.warn_unset(node);
        let host = url.strip_prefix("https://").or_else(|| url.strip_prefix("http://"));
        let good = host.is_some_and(|host| !host.is_empty() && !host.starts_with('/'));
        if (good || url.starts_with("${")) && !url.contains(char::is_whitespace) {
            return Some(url.to_owned());
        }
        let message = format!("`{url}` is not an http or https URL");
        self.problems.add(node.span, Code::Url, message, "Write `https://host/path`.");
        None
    }

    /// A command: text is run by a shell, a list as it is.
    fn command(&mut self, node: &Node) -> Option<CommandLine> {
        if let Some(text) = node.text() {
            if text.trim().is_empty() {
                self.problems.add(node.span, Code::NoValue, "the command is empty", "");
                return None;
            }
            return Some(CommandLine::Shell(text.to_owned()));
        }
        let words: Vec<_> = node.items().iter().filter_map(|word| word.text()).collect();
        if words.first().is_none_or(|program| program.is_empty()) {
            self.problems.add(node.span, Code::NoValue, "the command is empty", "");
            return None;
        }
        Some(CommandLine::Argv(words.into_iter().map(str::to_owned).collect()))
    }

    /// Commands that follow a job.
    pub(super) fn handlers(&mut self, root: &Node) -> Handlers {
        let Some(node) = root.get("handlers") else { return Handlers::default() };
        let mut handler = |key| node.get(key).and_then(|node| self.command(node));
        Handlers { success: handler("success"), failure: handler("failure"), exit: handler("exit") }
    }
}

fn on_uncertain(node: &Node) -> OnUncertain {
    match node.get("onUncertain").and_then(Node::text) {
        Some("retry") => OnUncertain::Retry,
        Some(_) | None => OnUncertain::Fail,
    }
}

fn body(node: &Node) -> String {
    match &node.value {
        Value::Text(text) => text.value.clone(),
        Value::Null
        | Value::Bool(_)
        | Value::Int(_)
        | Value::Float(_)
        | Value::List(_)
        | Value::Map(_) => json(node).to_string(),
    }
}

/// The options of a kind that another build brings: flat, or nested under its name.
fn options(node: &Node, name: &str) -> BTreeMap<String, serde_json::Value> {
    let nested = node.get(name).or_else(|| node.get(&name.replace('-', "_")));
    let common = [TYPE, "timeout", "onUncertain", "pollInterval"];
    let entries = nested.unwrap_or(node).entries().iter();
    entries
        .filter(|entry| nested.is_some() || !common.contains(&entry.key.as_str()))
        .map(|entry| (entry.key.clone(), json(&entry.value)))
        .collect()
}
