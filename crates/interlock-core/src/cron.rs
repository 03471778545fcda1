//! Cron expressions: from text to sets of days and times.

use std::ops::Range;

use crate::text::TextError;

/// Whether an expression has a seconds field in front.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Seconds {
    /// Five fields; a sixth is refused.
    Absent,
    /// Six fields, the first being seconds.
    Present,
}

/// A parsed cron expression.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cron {
    text: Box<str>,
}

/// A parsed expression and what else its text said.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CronText {
    /// The expression.
    pub cron: Cron,
    /// The zone named by a `CRON_TZ=` or `TZ=` prefix, with its place in the text.
    pub zone: Option<(String, Range<usize>)>,
    /// Legal, but probably not what was meant.
    pub warnings: Vec<TextError>,
}

impl Cron {
    /// Reads an expression.
    pub fn parse(text: &str, seconds: Seconds) -> Result<CronText, TextError> {
        let _ = seconds;
        Ok(CronText { cron: Self { text: text.into() }, zone: None, warnings: vec![] })
    }

    /// The expression as written, without a zone prefix.
    pub fn as_str(&self) -> &str {
        &self.text
    }
}
