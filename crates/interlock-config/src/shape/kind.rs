//! What can be asked about a single shape: which YAML kinds it takes, and what it is called.

use super::{Format, Shape};
use crate::yaml::Value;

impl Shape {
    /// Whether a value of this YAML kind can be meant.
    pub(super) fn accepts_kind(&self, value: &Value) -> bool {
        match self {
            Self::Text(_) | Self::Choice(_) => matches!(value, Value::Text(_)),
            Self::Scalar(_) => {
                matches!(value, Value::Text(_) | Value::Bool(_) | Value::Int(_) | Value::Float(_))
            }
            Self::Int { .. } => matches!(value, Value::Int(_)),
            Self::Number { .. } => matches!(value, Value::Int(_) | Value::Float(_)),
            Self::Bool => matches!(value, Value::Bool(_)),
            Self::List(_) => matches!(value, Value::List(_)),
            Self::Map(_) | Self::Dict(_) => matches!(value, Value::Map(_)),
            Self::Either(shapes) => shapes.iter().any(|shape| shape.accepts_kind(value)),
            Self::Json => true,
        }
    }

    /// Whether an empty value means an empty section.
    pub(super) fn is_container(&self) -> bool {
        match self {
            Self::List(_) | Self::Map(_) | Self::Dict(_) | Self::Json => true,
            Self::Either(shapes) => !shapes.iter().any(Self::takes_text),
            Self::Text(_)
            | Self::Scalar(_)
            | Self::Int { .. }
            | Self::Number { .. }
            | Self::Bool
            | Self::Choice(_) => false,
        }
    }

    /// The format of the text that it takes, if it takes one.
    pub(super) fn format(&self) -> Option<Format> {
        match self {
            Self::Text(format) | Self::Scalar(format) => Some(*format),
            Self::Either(shapes) => shapes.iter().find_map(Self::format),
            Self::Int { .. }
            | Self::Number { .. }
            | Self::Bool
            | Self::Choice(_)
            | Self::List(_)
            | Self::Map(_)
            | Self::Dict(_)
            | Self::Json => None,
        }
    }

    fn takes_text(&self) -> bool {
        match self {
            Self::Text(_) | Self::Choice(_) | Self::Scalar(_) => true,
            Self::Either(shapes) => shapes.iter().any(Self::takes_text),
            Self::Int { .. }
            | Self::Number { .. }
            | Self::Bool
            | Self::List(_)
            | Self::Map(_)
            | Self::Dict(_)
            | Self::Json => false,
        }
    }

    /// Whether it is a single text that must never be shown.
    pub(super) fn is_secret(&self) -> bool {
        matches!(self, Self::Text(Format::Secret))
    }

    /// Whether a text in it must never be shown.
    pub(super) fn is_hidden(&self) -> bool {
        match self {
            Self::Text(format) | Self::Scalar(format) => format.is_hidden(),
            Self::List(shape) | Self::Dict(shape) => shape.is_hidden(),
            Self::Either(shapes) => shapes.iter().any(Self::is_hidden),
            Self::Map(_)
            | Self::Int { .. }
            | Self::Number { .. }
            | Self::Bool
            | Self::Choice(_)
            | Self::Json => false,
        }
    }

    /// What it is, in a sentence.
    pub(super) fn words(&self) -> String {
        match self {
            Self::Text(_) | Self::Choice(_) | Self::Scalar(_) => "text".to_owned(),
            Self::Int { .. } => "a whole number".to_owned(),
            Self::Number { .. } => "a number".to_owned(),
            Self::Bool => "true or false".to_owned(),
            Self::List(_) => "a list".to_owned(),
            Self::Map(_) | Self::Dict(_) => "a map".to_owned(),
            Self::Either(shapes) => {
                let mut words: Vec<_> = shapes.iter().map(Self::words).collect();
                words.dedup();
                words.join(" or ")
            }
            Self::Json => "any value".to_owned(),
        }
    }
}
