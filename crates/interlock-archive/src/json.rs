//! JSON and text as PostgreSQL takes them. It keeps no NUL, in neither; the sign for a broken letter stands instead.

use bytes::{BufMut as _, BytesMut};
use serde_json::Value;
use std::error::Error;
use tokio_postgres::types::{IsNull, ToSql, Type, to_sql_checked};

const BROKEN: char = '\u{fffd}';

/// A text without NULs.
pub(crate) fn clean(text: &str) -> String {
    text.replace('\0', &String::from(BROKEN))
}

/// JSON, already written.
#[derive(Debug)]
pub(crate) struct Json(pub(crate) String);

impl Json {
    /// The JSON of a value that serde can write.
    pub(crate) fn of(value: impl Into<Value>) -> Self {
        Self::from_text(value.into().to_string())
    }

    /// JSON that was written by serde.
    pub(crate) fn from_text(text: String) -> Self {
        // An escaped NUL; or an escaped backslash before the same letters, which is none. Looking closer is rare.
        if !text.contains("\\u0000") {
            return Self(text);
        }
        match serde_json::from_str(&text) {
            Ok(value) => Self(cleaned(value).to_string()),
            Err(_broken) => Self(Value::String(clean(&text)).to_string()),
        }
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

impl ToSql for Json {
    fn to_sql(&self, _: &Type, out: &mut BytesMut) -> Result<IsNull, Box<dyn Error + Sync + Send>> {
        // The only version that there is.
        out.put_u8(1);
        out.put_slice(self.0.as_bytes());
        Ok(IsNull::No)
    }

    fn accepts(ty: &Type) -> bool {
        *ty == Type::JSONB
    }

    to_sql_checked!();
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
            assert_eq!(Json::of(value).0, kept.to_string());
        }
    }
}
