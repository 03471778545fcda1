//! `${slot}` and its sisters, and the environment variables a job gets.
//!
//! What a value may contain depends on where it is put: in a url it is percent-encoded, in a JSON
//! body escaped, and in the text of a shell command a parameter becomes a reference to its
//! environment variable. The last is safe in every place of a command but one: between single
//! quotes the shell replaces nothing, so there the reference stays as it is.

use std::collections::BTreeMap;

use interlock_core::pipeline::Secret;

use interlock_ports::trigger::{Environment, StartRequest};

/// Where a text is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Place {
    /// An argument of a program: any value is just a value.
    Argument,
    /// Code for a shell.
    Shell,
    /// A url.
    Url,
    /// The value of a header: no line breaks.
    Header,
    /// The value of an environment variable.
    Variable,
    /// A request's body that is plain text.
    Text,
    /// Between the quotes of a JSON body.
    Json,
}

impl Place {
    /// A request's body: JSON if it looks like it.
    pub(crate) fn body(text: &str) -> Self {
        if text.trim_start().starts_with(['{', '[']) { Self::Json } else { Self::Text }
    }
}

/// Fills the placeholders of a request's texts.
pub(crate) struct Filler<'a> {
    request: &'a StartRequest,
    environment: &'a Environment,
}

impl<'a> Filler<'a> {
    /// A filler with a request's values.
    pub(crate) fn new(request: &'a StartRequest, environment: &'a Environment) -> Self {
        Self { request, environment }
    }

    /// The text with its placeholders replaced; what is not known here stays as it is.
    pub(crate) fn fill(&self, text: &str, place: Place) -> String {
        let mut filled = String::with_capacity(text.len());
        let mut rest = text;
        while let Some((before, after)) = rest.split_once("${") {
            filled.push_str(before);
            let Some((name, behind)) = after.split_once('}') else {
                filled.push_str("${");
                rest = after;
                continue;
            };
            match self.value(name, place) {
                Some(value) => filled.push_str(&value),
                None => filled.extend(["${", name, "}"]),
            }
            rest = behind;
        }
        filled.push_str(rest);
        filled
    }

    /// A secret's text with its placeholders replaced.
    pub(crate) fn fill_secret(&self, secret: &Secret, place: Place) -> String {
        self.fill(secret.expose(), place)
    }

    fn value(&self, name: &str, place: Place) -> Option<String> {
        let request = self.request;
        if let Some(param) = name.strip_prefix("params.") {
            return Some(if place == Place::Shell {
                format!("${{{}}}", param_variable(param))
            } else {
                encode(self.param(param), place)
            });
        }
        match name {
            "slot" => Some(request.slot.to_string()),
            "date" => Some(request.date.to_string()),
            "hour" => Some(format!("{:02}", request.hour)),
            "runId" => Some(request.run_id.clone()),
            "attempt" => Some(request.attempt.to_string()),
            "pipeline" => Some(request.pipeline.clone()),
            "schedule" => Some(request.schedule.clone()),
            _ => self.variable(name, place),
        }
    }

    /// `${HOME}`: in commands it belongs to the shell or to nobody; elsewhere it is looked up now.
    fn variable(&self, name: &str, place: Place) -> Option<String> {
        let found = || is_variable(name).then(|| (self.environment)(name).unwrap_or_default());
        match place {
            Place::Argument | Place::Shell => None,
            // Whoever sets the daemon's environment may put a whole address into one variable.
            Place::Url => found(),
            Place::Header | Place::Variable | Place::Text | Place::Json => {
                found().map(|value| encode(&value, place))
            }
        }
    }

    fn param(&self, name: &str) -> &str {
        let request = self.request;
        let found = request.params.get(name).or_else(|| request.context.params.get(name));
        found.map_or("", String::as_str)
    }

    /// The value of one entry of `env`.
    fn env_value(&self, secret: &Secret) -> String {
        self.fill_secret(secret, Place::Variable)
    }

    fn params(&self) -> BTreeMap<String, String> {
        let mut params = self.request.context.params.clone();
        params.extend(self.request.params.clone());
        params
    }

    /// All environment variables of a job, and of nothing else of the daemon's.
    pub(crate) fn job_environment(&self) -> BTreeMap<String, String> {
        let mut variables: BTreeMap<String, String> = INHERITED
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), (self.environment)(name)?)))
            .collect();
        let params = self.params();
        variables.extend(params.iter().map(|(name, value)| (param_variable(name), value.clone())));
        let own = self.request.context.env.iter();
        variables.extend(own.map(|(name, value)| (name.clone(), self.env_value(value))));
        variables.extend(self.slot_environment());
        variables
    }

    /// The variables of one step, besides the job's.
    pub(crate) fn step_environment(
        &self,
        env: &BTreeMap<String, Secret>,
    ) -> BTreeMap<String, String> {
        env.iter().map(|(name, value)| (name.clone(), self.env_value(value))).collect()
    }

    fn slot_environment(&self) -> impl Iterator<Item = (String, String)> {
        let request = self.request;
        let end = request.interval_end.map(|end| ("INTERVAL_END", end.to_string()));
        [
            ("PIPELINE", request.pipeline.clone()),
            ("SCHEDULE", request.schedule.clone()),
            ("SLOT", request.slot.to_string()),
            ("DATE", request.date.to_string()),
            ("INTERVAL_START", request.slot.to_string()),
            ("RUN_ID", request.run_id.clone()),
            ("ATTEMPT", request.attempt.to_string()),
            ("TRIGGER_TYPE", request.trigger_type.as_str().to_owned()),
        ]
        .into_iter()
        .chain(end)
        .map(|(name, value)| (format!("INTERLOCK_{name}"), value))
    }
}

/// What every program expects; the rest of the daemon's environment stays with the daemon.
const INHERITED: [&str; 10] =
    ["PATH", "HOME", "USER", "LOGNAME", "SHELL", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR"];

/// The environment variable of a parameter.
fn param_variable(name: &str) -> String {
    let legal = |c: char| if c.is_ascii_alphanumeric() { c.to_ascii_uppercase() } else { '_' };
    format!("INTERLOCK_PARAM_{}", name.chars().map(legal).collect::<String>())
}

fn is_variable(name: &str) -> bool {
    name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
        && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

fn encode(value: &str, place: Place) -> String {
    match place {
        Place::Argument | Place::Shell | Place::Variable | Place::Text => value.to_owned(),
        Place::Header => value.replace(['\r', '\n', '\0'], " "),
        Place::Json => {
            let quoted = serde_json::Value::from(value).to_string();
            quoted.get(1..quoted.len() - 1).unwrap_or_default().to_owned()
        }
        Place::Url => percent_encode(value),
    }
}

/// Encodes everything that could end a path segment or a query value.
fn percent_encode(value: &str) -> String {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    value.bytes().fold(String::new(), |mut encoded, byte| {
        if plain(byte) {
            encoded.push(byte as char);
        } else {
            encoded.extend([format!("%{byte:02X}")]);
        }
        encoded
    })
}

#[cfg(test)]
mod tests;
