//! Questions as parts of a URL: the types that the routes read them into, written the same way.

use std::fmt::Write as _;

use serde::Serialize;
use serde_json::Value;

/// What stands behind a path: `?limit=10&status=FAILED`, or nothing.
pub(crate) fn text(query: &impl Serialize) -> String {
    let mut text = String::new();
    let Ok(Value::Object(fields)) = serde_json::to_value(query) else { return text };
    for (name, value) in &fields {
        match value {
            Value::Array(several) => {
                for value in several {
                    add(&mut text, name, value);
                }
            }
            Value::Null
            | Value::Bool(_)
            | Value::Number(_)
            | Value::String(_)
            | Value::Object(_) => {
                add(&mut text, name, value);
            }
        }
    }
    text
}

/// What is not said is left out: `false` is what a flag says that is not there.
fn add(text: &mut String, name: &str, value: &Value) {
    let said = match value {
        Value::Null | Value::Bool(false) => return,
        Value::String(said) => said.clone(),
        Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_) => value.to_string(),
    };
    let mark = if text.is_empty() { '?' } else { '&' };
    // Writing to a text cannot fail.
    let _never = write!(text, "{mark}{name}={}", part(&said));
}

/// A path of these parts, each as one.
pub(crate) fn path(parts: &[&str]) -> String {
    parts.iter().fold("/api/v1".to_owned(), |path, one| format!("{path}/{}", part(one)))
}

/// A text as one part of a URL.
fn part(text: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    text.bytes().fold(String::new(), |mut part, byte| {
        if is_plain(byte) {
            part.push(char::from(byte));
        } else {
            let _never = write!(part, "%{byte:02X}");
        }
        part
    })
}

#[cfg(test)]
mod tests {
    use interlock_answers::model::{run::RunsQuery, slot::SlotsQuery};

    use super::*;

    #[test]
    fn a_question_is_written_as_its_route_reads_it() {
        let runs = RunsQuery {
            pipeline: Some("a b".to_owned()),
            status: vec!["FAILED".to_owned(), "TIMED OUT".to_owned()],
            limit: Some(10),
            ..RunsQuery::default()
        };
        assert_eq!(text(&runs), "?limit=10&pipeline=a%20b&status=FAILED&status=TIMED%20OUT");
        assert_eq!(text(&SlotsQuery::default()), "");
        let at = "2026-02-25T09:00:00Z".parse().ok();
        let slots = SlotsQuery { expand: true, from: at, ..SlotsQuery::default() };
        assert_eq!(text(&slots), "?expand=true&from=2026-02-25T09%3A00%3A00Z");
    }

    #[test]
    fn a_name_in_a_path_is_one_part_of_it() {
        assert_eq!(path(&["incidents", "_system", "a/b?c"]), "/api/v1/incidents/_system/a%2Fb%3Fc");
    }
}
