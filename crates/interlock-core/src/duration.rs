//! Durations as people write them in files: `90s`, `2d12h`, `1h30m`.
//!
//! One grammar serves every field; a field only says which units it takes. Tokens are positive
//! integers with a unit, summed, without separators. A day is 24 hours. Fractions, signs, bare
//! numbers and zero are refused with a pointer at the character, because a window that silently
//! means something else loses runs.

use jiff::SignedDuration;

use crate::text::TextError;

/// Which units a duration may use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Units {
    /// `m h d`, as seed 004 defines `catchupWindow`.
    MinutesToDays,
    /// `s m h d`, for everything else that people wait for.
    SecondsToDays,
    /// `ms s m h d`, for time limits of single calls.
    MillisecondsToDays,
}

/// Reads a duration, at least one unit long.
pub fn parse(text: &str, units: Units) -> Result<SignedDuration, TextError> {
    let _ = (text, units);
    Err(TextError::new(0..0, "not built yet", ""))
}
