//! Durations: whatever is read can be written and read again with the same meaning.

use interlock_core::duration::{Units, format, parse};

use crate::check_error;

/// Reads the input as a duration in every set of units.
pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    for units in [Units::MinutesToDays, Units::SecondsToDays, Units::MillisecondsToDays] {
        match parse(text, units) {
            Ok(duration) => {
                assert!(duration.is_positive(), "{text:?} is {duration}");
                let written = format(duration);
                assert_eq!(parse(&written, units), Ok(duration), "{text:?} written as {written:?}");
            }
            Err(error) => check_error(text, &error),
        }
    }
}
