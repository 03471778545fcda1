//! Comparing JSON values that people and programs wrote in different ways.
//!
//! A file says `value: 1000`, a shell script reports `"1000"`, another one `1000.0`: all the same
//! number. Integers are compared as integers, so that large counts and ids are never rounded.

use std::cmp::Ordering;

use serde_json::Value;

/// Whether two values mean the same.
///
/// Where one of them is a number, numbers in strings count as numbers; a boolean equals its name.
/// Two strings are equal only as they are: `"01"` is not `"1"`.
pub(super) fn equal(left: &Value, right: &Value) -> bool {
    match (left, right) {
        (Value::Number(_), Value::Number(_) | Value::String(_))
        | (Value::String(_), Value::Number(_)) => order(left, right) == Some(Ordering::Equal),
        (Value::Bool(truth), Value::String(text)) | (Value::String(text), Value::Bool(truth)) => {
            text == if *truth { "true" } else { "false" }
        }
        _ => left == right,
    }
}

/// The order of two numbers; `None` when one of them is none.
pub(super) fn order(left: &Value, right: &Value) -> Option<Ordering> {
    match (number(left)?, number(right)?) {
        (Number::Integer(left), Number::Integer(right)) => Some(left.cmp(&right)),
        (left, right) => left.as_float().partial_cmp(&right.as_float()),
    }
}

/// The number that a value stands for, as a float.
pub fn number_in(value: &Value) -> Option<f64> {
    number(value).map(Number::as_float)
}

/// Whether a value can be compared as a number.
pub(super) fn is_number(value: &Value) -> bool {
    number(value).is_some()
}

#[derive(Clone, Copy)]
enum Number {
    Integer(i128),
    /// Invariant: finite.
    Float(f64),
}

impl Number {
    #[expect(
        clippy::cast_precision_loss,
        reason = "a float on the other side is no more exact than this"
    )]
    fn as_float(self) -> f64 {
        match self {
            Self::Integer(integer) => integer as f64,
            Self::Float(float) => float,
        }
    }
}

fn number(value: &Value) -> Option<Number> {
    match value {
        Value::Number(number) => read(&number.to_string()),
        Value::String(text) => read(text),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn read(text: &str) -> Option<Number> {
    let integer = text.parse().ok().map(Number::Integer);
    let float = || text.parse().ok().filter(|float: &f64| float.is_finite()).map(Number::Float);
    integer.or_else(float)
}
