//! Durations as people write them in files: `90s`, `2d12h`, `1h30m`.
//!
//! One grammar serves every field; a field only says which units it takes. Tokens are positive
//! integers with a unit, summed, without separators; their order does not matter and a unit may
//! come twice, because a sum has only one meaning. A day is 24 hours. Fractions, signs, bare
//! numbers and zero are refused with a pointer at the character, because a window that silently
//! means something else loses runs.

use std::ops::Range;

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

struct Unit {
    symbol: &'static str,
    milliseconds: i64,
}

/// From the smallest to the largest, so that each [`Units`] is a tail of it.
const UNITS: [Unit; 5] = [
    Unit { symbol: "ms", milliseconds: 1 },
    Unit { symbol: "s", milliseconds: 1_000 },
    Unit { symbol: "m", milliseconds: 60_000 },
    Unit { symbol: "h", milliseconds: 3_600_000 },
    Unit { symbol: "d", milliseconds: 86_400_000 },
];

/// 100 years: long enough for every real window, short enough that adding it to any slot stays
/// within what an instant can say.
const MILLISECONDS_MAX: i64 = 36_525 * 86_400_000;

impl Units {
    fn allowed(self) -> &'static [Unit] {
        let smaller = match self {
            Self::MinutesToDays => 2,
            Self::SecondsToDays => 1,
            Self::MillisecondsToDays => 0,
        };
        UNITS.get(smaller..).unwrap_or(&UNITS)
    }

    fn names(self) -> String {
        let symbols: Vec<_> =
            self.allowed().iter().map(|unit| format!("`{}`", unit.symbol)).collect();
        symbols.join(", ")
    }
}

/// Reads a duration, at least one unit and at most 100 years long.
pub fn parse(text: &str, units: Units) -> Result<SignedDuration, TextError> {
    if text.is_empty() {
        return Err(TextError::new(0..0, "the duration is empty", example(units)));
    }
    let mut total: i64 = 0;
    let mut at = 0;
    while at < text.len() {
        let token = Token::read(text, at, units)?;
        at = token.span.end;
        total = token
            .milliseconds(units)?
            .and_then(|part| total.checked_add(part))
            .filter(|sum| *sum <= MILLISECONDS_MAX)
            .ok_or_else(|| too_long(text, token.span))?;
    }
    Ok(SignedDuration::from_millis(total))
}

/// Writes a duration in the grammar of [`parse`], largest unit first: `2d12h`.
///
/// Anything finer than a millisecond is cut off. Zero and negative durations, which cannot be
/// written in a file but can be computed, come out as `0s` and with a leading `-`.
pub fn format(duration: SignedDuration) -> String {
    let milliseconds = duration.as_millis();
    let mut text = String::from(if milliseconds < 0 { "-" } else { "" });
    let mut rest = milliseconds.unsigned_abs();
    for unit in UNITS.iter().rev() {
        let size = u128::from(unit.milliseconds.unsigned_abs());
        if rest >= size {
            text.push_str(&(rest / size).to_string());
            text.push_str(unit.symbol);
            rest %= size;
        }
    }
    if text.is_empty() { "0s".to_owned() } else { text }
}

/// Writes a duration as Go does, for receivers that read the Go controller's alerts: `45m0s`, `2h0m0s`,
/// `1.5s`, `300ms`.
pub fn format_go(duration: SignedDuration) -> String {
    let milliseconds = duration.as_millis();
    let sign = if milliseconds < 0 { "-" } else { "" };
    let all = milliseconds.unsigned_abs();
    if all == 0 {
        return "0s".to_owned();
    }
    if all < 1_000 {
        return format!("{sign}{all}ms");
    }
    let (minutes, rest) = (all / 60_000, all % 60_000);
    let seconds = match rest % 1_000 {
        0 => (rest / 1_000).to_string(),
        millis => {
            let text = format!("{}.{millis:03}", rest / 1_000);
            text.trim_end_matches('0').to_owned()
        }
    };
    match (minutes / 60, minutes % 60) {
        (0, 0) => format!("{sign}{seconds}s"),
        (0, minutes) => format!("{sign}{minutes}m{seconds}s"),
        (hours, minutes) => format!("{sign}{hours}h{minutes}m{seconds}s"),
    }
}

/// Writes a duration for people, with as much of it as they need: `40 s`, `19 min`, `1 h 49`, `20 h`, `6 d`. What is left over
/// is cut off; a negative one is written as its absolute value, because a sentence says what came first.
pub fn for_people(duration: SignedDuration) -> String {
    let seconds = duration.as_secs().unsigned_abs();
    let (minutes, hours) = (seconds / 60, seconds / 3_600);
    match (minutes, hours) {
        (0, _) => format!("{seconds} s"),
        (_, 0) => format!("{minutes} min"),
        (_, 1..10) if minutes % 60 != 0 => format!("{hours} h {:02}", minutes % 60),
        (_, 1..48) => format!("{hours} h"),
        (..) => format!("{} d", hours / 24),
    }
}

/// One number with the letters after it.
struct Token<'a> {
    digits: &'a str,
    unit: &'a str,
    span: Range<usize>,
}

impl<'a> Token<'a> {
    fn read(text: &'a str, start: usize, units: Units) -> Result<Self, TextError> {
        let rest = text.get(start..).unwrap_or_default();
        let digits = leading(rest, |c| c.is_ascii_digit());
        if digits.is_empty() {
            return Err(not_a_number(rest, start, units));
        }
        let after = rest.get(digits.len()..).unwrap_or_default();
        if after.starts_with(['.', ',']) {
            return Err(fraction(digits, after, start, units));
        }
        let unit = leading(after, char::is_alphabetic);
        let span = start..start + digits.len() + unit.len();
        if unit.is_empty() {
            return Err(TextError::new(
                span,
                format!("`{digits}` has no unit"),
                format!("Put one of {} after the number.", units.names()),
            ));
        }
        Ok(Self { digits, unit, span })
    }

    /// Its length; `None` when no integer can hold it.
    fn milliseconds(&self, units: Units) -> Result<Option<i64>, TextError> {
        let unit_at = self.span.start + self.digits.len();
        let unit = find_unit(self.unit, unit_at, units)?;
        if self.digits.bytes().all(|digit| digit == b'0') {
            return Err(TextError::new(
                self.span.clone(),
                format!("`{}{}` is zero", self.digits, self.unit),
                "Every part of a duration is at least 1; leave out parts that are zero.",
            ));
        }
        let count = self.digits.parse::<i64>().ok();
        Ok(count.and_then(|count| count.checked_mul(unit.milliseconds)))
    }
}

fn leading(text: &str, belongs: impl Fn(char) -> bool) -> &str {
    let end = text.find(|c| !belongs(c)).unwrap_or(text.len());
    text.get(..end).unwrap_or_default()
}

fn find_unit(name: &str, at: usize, units: Units) -> Result<&'static Unit, TextError> {
    if let Some(unit) = units.allowed().iter().find(|unit| unit.symbol == name) {
        return Ok(unit);
    }
    let known = UNITS.iter().any(|unit| unit.symbol == name);
    let message = if known {
        format!("the unit `{name}` is not allowed here")
    } else {
        format!("`{name}` is not a unit of time")
    };
    let allowed = |symbol: &str| units.allowed().iter().any(|unit| unit.symbol == symbol);
    let help = match intended_unit(name) {
        Some("w") => "Write weeks as days: `7d` is one week.".to_owned(),
        Some(meant) if allowed(meant) => format!("Write `{meant}`."),
        _ => format!("Use {}.", units.names()),
    };
    Err(TextError::new(at..at + name.len(), message, help))
}

/// The unit that a longer or capitalised spelling means; weeks answer `w`, which is none of ours.
fn intended_unit(name: &str) -> Option<&'static str> {
    match name.to_lowercase().as_str() {
        "w" | "week" | "weeks" => Some("w"),
        "d" | "day" | "days" => Some("d"),
        "h" | "hr" | "hrs" | "hour" | "hours" => Some("h"),
        // A capital `M` may as well mean months, so it gets no suggestion.
        "min" | "mins" | "minute" | "minutes" => Some("m"),
        "s" | "sec" | "secs" | "second" | "seconds" => Some("s"),
        _ => None,
    }
}

fn not_a_number(rest: &str, at: usize, units: Units) -> TextError {
    let Some(found) = rest.chars().next() else {
        return TextError::new(at..at, "a number is missing", example(units));
    };
    let span = at..at + found.len_utf8();
    match found {
        '-' => TextError::new(span, "a duration cannot be negative", "Leave out the `-`."),
        '+' => TextError::new(span, "a duration has no sign", "Leave out the `+`."),
        ' ' | '\t' => TextError::new(
            span,
            "a duration has no spaces",
            "Write the parts one after the other, as in `2d12h`.",
        ),
        _ => TextError::new(span, format!("expected a number, found `{found}`"), example(units)),
    }
}

fn fraction(digits: &str, after: &str, start: usize, units: Units) -> TextError {
    let point = after.chars().next().map_or(0, char::len_utf8);
    let decimals = leading(after.get(point..).unwrap_or_default(), |c| c.is_ascii_digit());
    let number_length = digits.len() + point + decimals.len();
    let unit =
        leading(after.get(point + decimals.len()..).unwrap_or_default(), char::is_alphabetic);
    let help = whole_parts(digits, decimals, unit, units).map_or_else(
        || "Use whole numbers, with a smaller unit where needed.".to_owned(),
        |whole| format!("Write `{whole}`."),
    );
    let number = format!("{digits}{}", after.get(..point + decimals.len()).unwrap_or_default());
    TextError::new(start..start + number_length, format!("`{number}` is not a whole number"), help)
}

/// What `1.5d` means in whole parts: `1d12h`. `None` when the allowed units cannot say it.
fn whole_parts(digits: &str, decimals: &str, unit: &str, units: Units) -> Option<String> {
    let unit = units.allowed().iter().find(|known| known.symbol == unit)?;
    let scale = 10_i64.checked_pow(u32::try_from(decimals.len()).ok()?)?;
    let scaled = format!("{digits}{decimals}").parse::<i64>().ok()?;
    let total = scaled.checked_mul(unit.milliseconds)?;
    let finest = units.allowed().first()?.milliseconds;
    let exact = total % scale == 0 && total / scale % finest == 0 && total > 0;
    exact.then(|| format(SignedDuration::from_millis(total / scale)))
}

fn too_long(text: &str, span: Range<usize>) -> TextError {
    TextError::new(
        span,
        format!("`{text}` is longer than 100 years"),
        "Leave the field out if there should be no limit.",
    )
}

fn example(units: Units) -> String {
    let example = match units {
        Units::MinutesToDays => "`30m`, `6h` or `2d12h`",
        Units::SecondsToDays => "`30s`, `5m` or `1h30m`",
        Units::MillisecondsToDays => "`500ms`, `30s` or `5m`",
    };
    format!("Write for example {example}.")
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn check(text: &str, seconds: i64) {
        let parsed = parse(text, Units::SecondsToDays);
        assert_eq!(parsed, Ok(SignedDuration::from_secs(seconds)), "{text}");
    }

    /// `marked` is the text with `[` and `]` around the characters that the error points at.
    fn check_error(marked: &str, units: Units, message: &str, help: &str) {
        let start = marked.find('[').unwrap();
        let end = marked.find(']').unwrap() - 1;
        let text = marked.replace(['[', ']'], "");
        let error = parse(&text, units).unwrap_err();
        assert_eq!(error.span, start..end, "{marked}: {error}");
        assert_eq!(error.message, message, "{marked}");
        assert!(error.help.contains(help), "{marked}: {}", error.help);
    }

    #[test]
    fn people_read_durations_with_the_detail_that_they_need() {
        for (seconds, text) in [
            (0, "0 s"),
            (40, "40 s"),
            (59, "59 s"),
            (60, "1 min"),
            (19 * 60 + 59, "19 min"),
            (3_600, "1 h"),
            (3_600 + 49 * 60, "1 h 49"),
            (3_600 + 4 * 60, "1 h 04"),
            (10 * 3_600 + 49 * 60, "10 h"),
            (20 * 3_600, "20 h"),
            (47 * 3_600, "47 h"),
            (48 * 3_600, "2 d"),
            (6 * 86_400 + 3_600, "6 d"),
            (-90, "1 min"),
        ] {
            assert_eq!(for_people(SignedDuration::from_secs(seconds)), text, "{seconds}");
        }
    }

    #[test]
    fn parts_are_summed_in_any_order() {
        check("2d12h", 60 * 3600);
        check("12h2d", 60 * 3600);
        check("1d30m", 86_400 + 1_800);
        check("1h1h", 7_200);
        check("168h", 7 * 86_400);
        check("1h", 3_600);
        check("1h30m", 5_400);
        check("5m", 300);
        check("30s", 30);
        check("007m", 420);
        check("36525d", 36_525 * 86_400);
    }

    #[test]
    fn milliseconds_are_for_the_fields_that_take_them() {
        let parsed = parse("1s500ms", Units::MillisecondsToDays);
        assert_eq!(parsed, Ok(SignedDuration::from_millis(1_500)));
        check_error("1s500[ms]", Units::SecondsToDays, "the unit `ms` is not allowed here", "`s`");
    }

    #[test]
    fn seed_004_takes_minutes_hours_and_days_only() {
        let units = Units::MinutesToDays;
        assert_eq!(parse("6h", units), Ok(SignedDuration::from_hours(6)));
        check_error("2h30[s]", units, "the unit `s` is not allowed here", "Use `m`, `h`, `d`.");
        check_error("30[seconds]", units, "`seconds` is not a unit of time", "Use `m`, `h`, `d`.");
        check_error("[]", units, "the duration is empty", "`2d12h`");
    }

    #[test]
    fn every_mistake_is_pointed_at() {
        let units = Units::SecondsToDays;
        check_error("[30]", units, "`30` has no unit", "`s`, `m`, `h`, `d`");
        check_error("1h[30]", units, "`30` has no unit", "Put one of");
        check_error("[0m]", units, "`0m` is zero", "at least 1");
        check_error("1h[0m]0s", units, "`0m` is zero", "leave out");
        check_error("[-]5m", units, "a duration cannot be negative", "Leave out the `-`.");
        check_error("[+]45m", units, "a duration has no sign", "Leave out the `+`.");
        check_error("1h[-]5m", units, "a duration cannot be negative", "");
        check_error("1h[ ]5m", units, "a duration has no spaces", "`2d12h`");
        check_error("[x]", units, "expected a number, found `x`", "`30s`");
        check_error("1h[€]", units, "expected a number, found `€`", "`30s`");
        check_error("1[hµ]", units, "`hµ` is not a unit of time", "Use `s`, `m`, `h`, `d`.");
        check_error("2[D]", units, "`D` is not a unit of time", "Write `d`.");
        check_error("3[hours]", units, "`hours` is not a unit of time", "Write `h`.");
        check_error("1[w]", units, "`w` is not a unit of time", "`7d`");
        check_error("1[M]", units, "`M` is not a unit of time", "Use `s`, `m`, `h`, `d`.");
    }

    #[test]
    fn a_fraction_is_refused_with_what_it_would_be_in_whole_parts() {
        let units = Units::SecondsToDays;
        check_error("[1.5]d", units, "`1.5` is not a whole number", "Write `1d12h`.");
        check_error("1d[0,25]h", units, "`0,25` is not a whole number", "Write `15m`.");
        check_error("[0.5]s", units, "`0.5` is not a whole number", "Use whole numbers");
        check_error("[1.]h", units, "`1.` is not a whole number", "Write `1h`.");
        check_error("[1.5]x", units, "`1.5` is not a whole number", "Use whole numbers");
    }

    #[test]
    fn more_than_a_hundred_years_is_an_error_and_never_wraps() {
        let units = Units::SecondsToDays;
        check_error("[36526d]", units, "`36526d` is longer than 100 years", "no limit");
        check_error("36525d[1s]", units, "`36525d1s` is longer than 100 years", "");
        let digits = "9".repeat(30);
        let message = format!("`{digits}d` is longer than 100 years");
        check_error(&format!("[{digits}d]"), units, &message, "");
    }

    #[test]
    fn formatting_goes_from_large_to_small() {
        for (milliseconds, text) in [
            (0, "0s"),
            (1, "1ms"),
            (60 * 3_600_000, "2d12h"),
            (86_400_000 + 1_800_000, "1d30m"),
            (2_700_000, "45m"),
            (-61_001, "-1m1s1ms"),
        ] {
            assert_eq!(format(SignedDuration::from_millis(milliseconds)), text);
        }
        assert_eq!(format(SignedDuration::from_nanos(-1)), "0s");
    }

    proptest! {
        #[test]
        fn what_is_formatted_parses_to_the_same(milliseconds in 1..=MILLISECONDS_MAX) {
            let duration = SignedDuration::from_millis(milliseconds);
            prop_assert_eq!(parse(&format(duration), Units::MillisecondsToDays), Ok(duration));
        }

        #[test]
        fn no_text_makes_it_panic_or_point_outside(text in "[0-9.,+ smhdxµ€-]{0,12}") {
            if let Err(error) = parse(&text, Units::SecondsToDays) {
                prop_assert!(text.get(error.span).is_some());
            }
        }
    }
}
