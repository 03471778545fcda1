//! What the parser takes and where it points when it does not.

use super::{Cron, Seconds};
use crate::text::TextError;

/// Draws the error under the expression, as `validate` does.
fn point(text: &str, seconds: Seconds) -> String {
    let error = Cron::parse(text, seconds).expect_err(text);
    let carets = "^".repeat(error.span.len().max(1));
    format!("{text}\n{}{carets} {}", " ".repeat(error.span.start), error.message)
}

#[track_caller]
fn check_error(text: &str, expected: &str) {
    let drawn = point(text, Seconds::Absent);
    let under = drawn.lines().nth(1).unwrap_or_default();
    assert_eq!(under.trim_end(), expected.trim_end(), "\n{drawn}\n{text}");
}

#[test]
fn errors_point_at_the_character() {
    check_error("60 * * * *", "^^ 60 is outside 0-59, the minute field");
    check_error("0 24 * * *", "  ^^ 24 is outside 0-23, the hour field");
    check_error("0 0 0 * *", "    ^ 0 is outside 1-31, the day of month field");
    check_error("0 0 * 13 *", "      ^^ 13 is outside 1-12, the month field");
    check_error("0 0 * * 8", "        ^ 8 is outside 0-7, the day of week field");
    check_error("0 0 * * fry", "        ^^^ `fry` means nothing in the day of week field");
    check_error("0 0 * foo *", "      ^^^ `foo` means nothing in the month field");
    check_error("MON 0 * * *", "^^^ `MON` means nothing in the minute field");
    check_error("0 0 1MON * *", "    ^^^^ `1MON` means nothing in the day of month field");
    check_error("1,2,,3 * * * *", "    ^ an item is missing in the minute field `1,2,,3`");
    check_error(",1 * * * *", "^ an item is missing in the minute field `,1`");
    check_error("*/0 * * * *", "  ^ a step of 0 does not fit the minute field");
    check_error("*/90 * * * *", "  ^^ a step of 90 does not fit the minute field");
    check_error("*/x * * * *", "  ^ `x` is not a step");
    check_error("30-10 * * * *", "^^^^^ the minute range `30-10` runs backwards");
    check_error("5- * * * *", "  ^ a value is missing in the minute field");
    check_error("-5 * * * *", "^ a value is missing in the minute field");
    check_error("? * * * *", "^ `?` means nothing in the minute field");
    check_error("1.5 * * * *", "^^^ `1.5` means nothing in the minute field");
    check_error(
        "99999999999999999999 * * * *",
        "^^^^^^^^^^^^^^^^^^^^ 99999999999999999999 is outside 0-59, the minute field",
    );
}

#[test]
fn errors_of_the_special_days_point_too() {
    check_error("0 0 W * *", "    ^ `W` does not say which day's nearest weekday is meant");
    check_error("0 0 32W * *", "    ^^ 32 is outside 1-31, the day of month field");
    check_error(
        "0 0 L-31 * *",
        "      ^^ `31` is not a number of days before the last of the month",
    );
    check_error("0 0 L-0 * *", "      ^ `0` is not a number of days before the last of the month");
    check_error("0 0 * * L", "        ^ `L` alone means nothing in the day of week field");
    check_error("0 0 * * 5#6", "          ^ `6` is not a position in the month");
    check_error("0 0 * * #2", "        ^ a value is missing in the day of week field");
    check_error("0 0 * * 8L", "        ^ 8 is outside 0-7, the day of week field");
}

#[test]
fn errors_of_the_whole_point_too() {
    check_error("", "^ 0 of 5 fields given");
    check_error("* * *", "     ^ 3 of 5 fields given");
    check_error("0 0 12 * * 1", "           ^ 6 fields given where there are 5");
    check_error("@dayly", "^^^^^^ `@dayly` is not a known shorthand");
    check_error("@daily 5", "      ^^ nothing can follow `@daily`");
    check_error("@every 5m", "^^^^^^ `@every` is not a known shorthand");
    check_error(
        "TZONE=Europe/Riga 0 0 * * *",
        "^^^^^ `TZONE=` is not a setting that an expression can begin with",
    );
    check_error("CRON_TZ= 0 0 * * *", "        ^ `CRON_TZ=` names no zone");
    check_error("0 0 * * ünday", "        ^^^^^^ `ünday` means nothing in the day of week field");
}

#[test]
fn a_sixth_field_suggests_the_declaration() {
    let error = Cron::parse("0 0 12 * * 1", Seconds::Absent).unwrap_err();
    assert!(error.help.contains("seconds: true"), "{}", error.help);
}

/// Two expressions mean the same when everything but their text is the same.
#[track_caller]
fn check_same(one: &str, other: &str) {
    let parse = |text| {
        let Cron { text: _, times, days, is_fixed, day_fields: _ } =
            Cron::parse(text, Seconds::Absent).unwrap().cron;
        (times, days, is_fixed)
    };
    assert_eq!(parse(one), parse(other), "`{one}` and `{other}`");
}

#[test]
fn spellings_of_the_same_thing() {
    check_same("@daily", "0 0 * * *");
    check_same("@midnight", "0 0 * * *");
    check_same("@HOURLY", "0 * * * *");
    check_same("@weekly", "0 0 * * sun");
    check_same("@monthly", "0 0 1 * *");
    check_same("@yearly", "0 0 1 jan *");
    check_same("@annually", "0 0 1 1 *");
    check_same("0 0 * * 7", "0 0 * * 0");
    check_same("0 0 * * fri-sun", "0 0 * * 5-7");
    check_same("0 0 * * 7-2", "0 0 * * sun-tue");
    check_same("0 0 ? * MON", "0 0 * * 1");
    check_same("5/15 * * * *", "5-59/15 * * * *");
    check_same("0 0 * * 1/2", "0 0 * * 1-6/2");
    check_same("  0\t0  * * * ", "0 0 * * *");
    check_same("0 0 l * *", "0 0 L * *");
    check_same("0 0 * * fril", "0 0 * * 5L");
}

#[test]
fn a_zone_in_front_is_kept_with_its_place() {
    let parsed = Cron::parse("CRON_TZ=Europe/Riga 0 3 * * *", Seconds::Absent).unwrap();
    assert_eq!(parsed.zone, Some(("Europe/Riga".to_owned(), 8..19)));
    assert_eq!(parsed.cron.as_str(), "0 3 * * *");
    let parsed = Cron::parse("TZ=UTC @daily", Seconds::Absent).unwrap();
    assert_eq!(parsed.zone, Some(("UTC".to_owned(), 3..6)));
}

#[test]
fn a_star_anywhere_in_minutes_or_hours_makes_a_wildcard() {
    for (text, fixed) in [
        ("0 3 * * *", true),
        ("0,30 1-5 * * *", true),
        ("0-59/5 3 * * *", true),
        ("*/5 3 * * *", false),
        ("0 */2 * * *", false),
        ("0 1,*/6 * * *", false),
    ] {
        assert_eq!(Cron::parse(text, Seconds::Absent).unwrap().cron.is_fixed(), fixed, "{text}");
    }
    assert!(!Cron::parse("*/10 0 3 * * *", Seconds::Present).unwrap().cron.is_fixed());
}

#[test]
fn restricted_days_warn_and_a_star_does_not() {
    let warnings = |text| Cron::parse(text, Seconds::Absent).unwrap().warnings;
    assert_eq!(warnings("0 0 1 * mon").len(), 1);
    assert_eq!(warnings("0 0 L * 5#1").len(), 1);
    assert_eq!(warnings("0 0 */2 * mon"), Vec::<TextError>::new());
    assert_eq!(warnings("0 0 1 * ?"), Vec::<TextError>::new());
}
