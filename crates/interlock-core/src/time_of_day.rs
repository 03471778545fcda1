//! A time on the wall clock: `09:30`, `9:05`, `23:59:30`.

use std::fmt;

use crate::text::TextError;

/// A time of day, without a date and without a zone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay {
    seconds: u32,
}

impl TimeOfDay {
    /// 00:00.
    pub const MIDNIGHT: Self = Self { seconds: 0 };

    /// Reads `H:MM`, `HH:MM` or `HH:MM:SS`.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let _ = text;
        Err(TextError::new(0..0, "not built yet", ""))
    }

    /// Seconds since midnight on the wall clock, 0 to 86,399.
    pub fn seconds(self) -> u32 {
        self.seconds
    }

    /// As a civil time.
    pub fn to_civil(self) -> jiff::civil::Time {
        let (h, m, s) = (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        jiff::civil::Time::constant(h as i8, m as i8, s as i8, 0)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (h, m, s) = (self.seconds / 3600, self.seconds / 60 % 60, self.seconds % 60);
        write!(f, "{h:02}:{m:02}")?;
        if s > 0 { write!(f, ":{s:02}") } else { Ok(()) }
    }
}
