//! A mistake in a short text that a person wrote, with the place of the mistake; and numbers of things in sentences.
//!
//! Cron expressions, durations, times and dates are all read from one scalar of a file or from one
//! command-line argument. Each parser answers with a [`TextError`], so that whoever owns the scalar
//! can point at the exact characters.

use std::{fmt::Display, ops::Range};

/// So many of something, in words: `1 slot`, `2 slots`.
pub fn counted(count: impl Display + PartialEq + From<u8> + Copy, noun: &str) -> String {
    let s = if count == 1.into() { "" } else { "s" };
    format!("{count} {noun}{s}")
}

/// What is wrong in a text, where, and what to write instead.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct TextError {
    /// Byte range of the offending characters in the text that was parsed. May be empty, at the
    /// place where something is missing.
    pub span: Range<usize>,
    /// What is wrong: lower case, no full stop, names the offending value.
    pub message: String,
    /// What to write instead, as a sentence; empty when the message says it all.
    pub help: String,
}

impl TextError {
    /// An error at `span` with a message and a help sentence (which may be empty).
    pub fn new(span: Range<usize>, message: impl Into<String>, help: impl Into<String>) -> Self {
        Self { span, message: message.into(), help: help.into() }
    }

    /// The error for a word that is not one of a closed list.
    pub fn not_one_of(what: &str, text: &str, known: &[&str]) -> Self {
        Self::new(
            0..text.len(),
            format!("`{text}` is not a {what}"),
            format!("Use one of {}.", known.join(", ")),
        )
    }

    /// The same error for a text that stands `offset` bytes further into a larger one.
    #[must_use]
    pub fn shifted(mut self, offset: usize) -> Self {
        self.span = self.span.start + offset..self.span.end + offset;
        self
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_of_something_is_singular() {
        assert_eq!(counted(0_usize, "slot"), "0 slots");
        assert_eq!(counted(1_u64, "missed slot"), "1 missed slot");
        assert_eq!(counted(2_u32, "pipeline"), "2 pipelines");
    }
}
