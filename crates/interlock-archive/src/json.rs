//! JSON and text as PostgreSQL takes them. It keeps no NUL, in neither; the sign for a broken letter stands instead.

use serde_json::Value;

const BROKEN: char = '\u{fffd}';

/// A text without NULs.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', &String::from(BROKEN))
}

/// JSON that was written by serde, without NULs.
pub(crate) fn clean_json(text: String) -> String {
    // An escaped NUL; or an escaped backslash before the same letters, which is none. Looking closer is rare.
    if !text.contains("\\u0000") {
        return text;
    }
    match serde_json::from_str(&text) {
        Ok(value) => cleaned(value).to_string(),
        Err(_broken) => Value::String(clean(&text)).to_string(),
    }
}

fn cleaned(value: Value) -> Value {
    match value {
        Value::String(text) => Value::String(clean(&text)),
        Value::Array(values) => values.into_iter().map(cleaned).collect(),
        Value::Object(fields) => {
            fields.into_iter().map(|(name, value)| (clean(&name), cleaned(value))).collect()
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => value,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn nul_is_taken_out_and_nothing_else() {
        for (value, kept) in [
            (json!({"a": "x\u{0}y"}), json!({"a": "x\u{fffd}y"})),
            (json!({"a\u{0}": ["\u{0}", 1]}), json!({"a\u{fffd}": ["\u{fffd}", 1]})),
            (json!({"a": "\\u0000"}), json!({"a": "\\u0000"})),
            (json!({"a": 1.5}), json!({"a": 1.5})),
        ] {
            assert_eq!(clean_json(value.to_string()), kept.to_string());
        }
    }
}
