//! Sensors: named JSON facts reported about data, each with its time.
//!
//! A sensor may be about one period, a local date or a local hour, and says so in its JSON (`date`,
//! `hour`) or in its key (`orders#2026-03-03`, `orders#20260303T07`). What it says is taken as it is
//! or refused with a reason: the Go controller read every unreadable date as today, so that a typo
//! ran the wrong day.

use std::{collections::BTreeMap, fmt};

use jiff::{Span, Timestamp, civil::Date, tz::TimeZone};
use serde_json::Value;

use crate::{schedule::Period, time_of_day::TimeOfDay, zone::Zone};

/// One reported fact.
#[derive(Debug, Clone, PartialEq)]
pub struct Sensor {
    /// What was reported.
    pub value: Value,
    /// When it was reported.
    pub at: Timestamp,
}

impl Sensor {
    /// What was reported, and when.
    pub fn new(value: Value, at: Timestamp) -> Self {
        Self { value, at }
    }
}

/// The sensors of one pipeline by key.
pub type Sensors = BTreeMap<String, Sensor>;

/// Why a sensor's time or period cannot be told.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SensorError {
    /// Not an instant.
    #[error("{value} is not a time: RFC 3339 with an offset, epoch seconds or milliseconds")]
    NotATime {
        /// What was found, as JSON.
        value: String,
    },
    /// `date` is none.
    #[error("`date` is {value}, which is not a date: YYYY-MM-DD or YYYYMMDD")]
    BadDate {
        /// What was found, as JSON.
        value: String,
    },
    /// `hour` is none.
    #[error("`hour` is {value}, which is not an hour: 0 to 23")]
    BadHour {
        /// What was found, as JSON.
        value: String,
    },
    /// The key ends in something that begins like a period.
    #[error("the key ends in `#{suffix}`, which is not a period: YYYY-MM-DD or YYYY-MM-DDTHH")]
    BadKey {
        /// What stands after the `#`.
        suffix: String,
    },
    /// An hourly schedule needs the hour too.
    #[error("the sensor names a date but no hour")]
    DateWithoutHour,
    /// An hour alone may belong to today or to yesterday.
    #[error("the sensor names an hour but no date")]
    HourWithoutDate,
}

/// Epoch numbers from here on are milliseconds; as seconds they would be 30,000 years away.
const FIRST_MILLISECONDS: f64 = 1e12;
/// Epoch numbers below this (1973) are counters, or dates such as 20260303, but not times.
const FIRST_SECONDS: f64 = 1e8;

/// Reads a time: RFC 3339, or epoch seconds or milliseconds as a number or a numeric string.
pub fn parse_time(value: &Value) -> Result<Timestamp, SensorError> {
    let read = match value {
        Value::String(text) => match text.parse::<f64>() {
            Ok(number) => epoch(number),
            Err(_) => text.parse().ok(),
        },
        Value::Number(number) => number.as_f64().and_then(epoch),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    };
    read.ok_or_else(|| SensorError::NotATime { value: value.to_string() })
}

fn epoch(number: f64) -> Option<Timestamp> {
    // Up to the year 9999 milliseconds are integers that a float holds exactly.
    if !number.is_finite() || number < FIRST_SECONDS {
        return None;
    }
    let milliseconds = if number < FIRST_MILLISECONDS { (number * 1000.0).round() } else { number };
    Timestamp::from_millisecond(milliseconds as i64).ok()
}

/// The period that a slot or a sensor is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SlotPeriod {
    date: Date,
    /// Invariant: below 24.
    hour: Option<u8>,
}

impl SlotPeriod {
    /// A whole local date.
    pub fn day(date: Date) -> Self {
        Self { date, hour: None }
    }

    /// One local hour; `None` for hours after 23.
    pub fn hour(date: Date, hour: u8) -> Option<Self> {
        (hour < 24).then_some(Self { date, hour: Some(hour) })
    }

    /// The period of a length that contains an instant.
    pub fn containing(at: Timestamp, zone: &Zone, length: Period) -> Self {
        let wall = at.to_zoned(zone.time_zone().clone());
        let hour = match length {
            Period::Day => None,
            Period::Hour => Some(wall.hour().unsigned_abs()),
        };
        Self { date: wall.date(), hour }
    }

    /// The local date.
    pub fn date(self) -> Date {
        self.date
    }

    /// Whether it is an hour rather than a date.
    pub fn is_hour(self) -> bool {
        self.hour.is_some()
    }

    /// Its first instant, which is its slot's nominal one.
    pub fn start(self, zone: &Zone) -> Timestamp {
        let time = self.hour.and_then(TimeOfDay::from_hour).unwrap_or(TimeOfDay::MIDNIGHT);
        time.first_on(self.date, zone)
    }

    /// As in keys without dashes: `20260303T07`.
    fn compact(self) -> String {
        self.to_string().replace('-', "")
    }

    /// Reads what [`SlotPeriod`] displays, with dashes or without.
    fn parse(text: &str) -> Option<Self> {
        match text.split_once('T') {
            None => Some(Self::day(parse_date(text)?)),
            Some((date, hour)) if hour.len() == 2 => {
                Self::hour(parse_date(date)?, parse_hour(hour)?)
            }
            Some(_) => None,
        }
    }
}

impl fmt::Display for SlotPeriod {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.date)?;
        if let Some(hour) = self.hour { write!(f, "T{hour:02}") } else { Ok(()) }
    }
}

/// The period a sensor is about: what its JSON says, else its key, else its own time in the zone.
pub fn period_of(
    key: &str,
    sensor: &Sensor,
    zone: &Zone,
    length: Period,
) -> Result<SlotPeriod, SensorError> {
    let in_key = period_in_key(key)?;
    let date = date_in(&sensor.value)?;
    match length {
        Period::Day => Ok(date
            .or(in_key.map(SlotPeriod::date))
            .map_or_else(|| SlotPeriod::containing(sensor.at, zone, length), SlotPeriod::day)),
        Period::Hour => {
            let hour = hour_in(&sensor.value)?;
            let key_date = in_key.map(|period| period.date);
            match (date.or(key_date), hour) {
                (None, None) => Ok(SlotPeriod::containing(sensor.at, zone, length)),
                (None, Some(_)) => Err(SensorError::HourWithoutDate),
                (Some(date), hour) => {
                    // The key's hour belongs to the key's date only.
                    let same_date = in_key.filter(|period| period.date == date);
                    let hour = hour.or(same_date.and_then(|period| period.hour));
                    let period = hour.and_then(|hour| SlotPeriod::hour(date, hour));
                    period.ok_or(SensorError::DateWithoutHour)
                }
            }
        }
    }
}

/// A key without the period at its end: the key that rules name.
pub fn base_key(key: &str) -> &str {
    match key.rsplit_once('#') {
        Some((base, suffix)) if SlotPeriod::parse(suffix).is_some() => base,
        Some(_) | None => key,
    }
}

/// Whether a key names a period that was over by an instant, wherever on earth.
pub fn is_of_period_over_by(key: &str, instant: Timestamp) -> bool {
    let Ok(Some(period)) = period_in_key(key) else { return false };
    // Its date ends within two days of its midnight in UTC.
    let day_after = period.date.checked_add(Span::new().days(2));
    let end = day_after.and_then(|day| day.to_zoned(TimeZone::UTC));
    end.is_ok_and(|end| end.timestamp() <= instant)
}

/// The sensor that a rule about `key` means for a slot, with the key it was found under.
///
/// A sensor of exactly the slot's period wins over the plain key, and of two spellings the one
/// reported last; sensors of other periods never match.
pub fn find<'a>(
    sensors: &'a Sensors,
    key: &str,
    period: Option<SlotPeriod>,
) -> Option<(&'a str, &'a Sensor)> {
    let get = |key: &str| sensors.get_key_value(key).map(|(key, sensor)| (key.as_str(), sensor));
    let spellings =
        period.map(|period| [format!("{key}#{}", period.compact()), format!("{key}#{period}")]);
    let of_period = spellings.into_iter().flatten().filter_map(|key| get(&key));
    of_period.max_by_key(|(_, sensor)| sensor.at).or_else(|| get(key))
}

fn period_in_key(key: &str) -> Result<Option<SlotPeriod>, SensorError> {
    match key.rsplit_once('#') {
        Some((_, suffix)) if suffix.starts_with(|c: char| c.is_ascii_digit()) => {
            let period = SlotPeriod::parse(suffix);
            period.map(Some).ok_or_else(|| SensorError::BadKey { suffix: suffix.to_owned() })
        }
        // `orders#eu` is a name like any other.
        Some(_) | None => Ok(None),
    }
}

fn date_in(value: &Value) -> Result<Option<Date>, SensorError> {
    let Some(found) = value.get("date").filter(|date| !date.is_null()) else {
        return Ok(None);
    };
    let date = scalar_text(found).as_deref().and_then(parse_date);
    date.map(Some).ok_or_else(|| SensorError::BadDate { value: found.to_string() })
}

fn hour_in(value: &Value) -> Result<Option<u8>, SensorError> {
    let Some(found) = value.get("hour").filter(|hour| !hour.is_null()) else {
        return Ok(None);
    };
    let hour = scalar_text(found).as_deref().and_then(parse_hour);
    hour.map(Some).ok_or_else(|| SensorError::BadHour { value: found.to_string() })
}

fn scalar_text(value: &Value) -> Option<String> {
    match value {
        Value::String(text) => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
    }
}

fn parse_date(text: &str) -> Option<Date> {
    let bytes = text.as_bytes();
    let dashed = bytes.len() == 10 && bytes.get(4) == Some(&b'-') && bytes.get(7) == Some(&b'-');
    let digits = if dashed { text.replace('-', "") } else { text.to_owned() };
    if digits.len() != 8 || !digits.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: u32 = digits.parse().ok()?;
    let (year, month, day) = (number / 10_000, number / 100 % 100, number % 100);
    Date::new(year as i16, month as i8, day as i8).ok()
}

fn parse_hour(text: &str) -> Option<u8> {
    let digits = (1..=2).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_digit());
    text.parse().ok().filter(|hour| digits && *hour < 24)
}

#[cfg(test)]
mod tests {
    use jiff::tz::TimeZone;
    use serde_json::json;

    use super::*;

    /// Reported shortly after midnight in Riga, which is still the day before in UTC.
    const REPORTED: &str = "2026-03-03T22:30:00Z";

    fn sensor(value: Value) -> Sensor {
        Sensor { value, at: REPORTED.parse().unwrap() }
    }

    fn check_time(value: &Value, expected: Option<&str>) {
        let found = parse_time(value).ok().map(|at| at.to_string());
        assert_eq!(found.as_deref(), expected, "{value}");
    }

    fn check_period(key: &str, value: &Value, length: Period, expected: &str) {
        let riga = Zone::new("Europe/Riga", TimeZone::get("Europe/Riga").unwrap());
        let found = match period_of(key, &sensor(value.clone()), &riga, length) {
            Ok(period) => period.to_string(),
            Err(error) => error.to_string(),
        };
        assert_eq!(found, expected, "{key} {value}");
    }

    #[test]
    fn times_are_rfc_3339_or_epoch_seconds_or_milliseconds() {
        check_time(&json!("2026-03-03T07:00:00Z"), Some("2026-03-03T07:00:00Z"));
        check_time(&json!("2026-03-03T09:00:00.5+02:00"), Some("2026-03-03T07:00:00.5Z"));
        check_time(&json!(1_772_521_200), Some("2026-03-03T07:00:00Z"));
        check_time(&json!("1772521200"), Some("2026-03-03T07:00:00Z"));
        check_time(&json!(1_772_521_200_250_i64), Some("2026-03-03T07:00:00.25Z"));
        check_time(&json!("1772521200250"), Some("2026-03-03T07:00:00.25Z"));
        check_time(&json!(1_772_521_200.5), Some("2026-03-03T07:00:00.5Z"));
        check_time(&json!(999_999_999_999_i64), None);
        check_time(&json!(1_000_000_000_000_i64), Some("2001-09-09T01:46:40Z"));
    }

    #[test]
    fn what_is_no_time_is_an_error_and_never_now() {
        for value in [
            json!(null),
            json!(true),
            json!("yesterday"),
            json!("2026-03-03T07:00:00"),
            json!("nan"),
            json!("inf"),
            json!(""),
            json!(20_260_303),
            json!("20260303"),
            json!(-1_772_521_200),
            json!(42),
            json!(1_772_521_200_000_000_i64),
            json!([1_772_521_200]),
        ] {
            check_time(&value, None);
        }
        let error = parse_time(&json!("soon")).unwrap_err().to_string();
        assert!(error.starts_with("\"soon\" is not a time"), "{error}");
    }

    // Superseded from B6: a bad or absent date was today, a bad hour was dropped, and numbers were
    // ignored. Each of them ran a period that nobody had named.
    #[test]
    fn b6_a_day_comes_from_the_json_then_the_key_then_the_sensors_own_time() {
        let day = Period::Day;
        check_period("k", &json!({"date": "2026-03-01"}), day, "2026-03-01");
        check_period("k", &json!({"date": "20260301"}), day, "2026-03-01");
        check_period("k", &json!({"date": 20_260_301}), day, "2026-03-01");
        check_period("k#2026-03-02", &json!({"date": "2026-03-01"}), day, "2026-03-01");
        check_period("k#2026-03-02", &json!({"count": 1}), day, "2026-03-02");
        check_period("k#20260302T07", &json!(1), day, "2026-03-02");
        check_period("k#eu", &json!({"date": null}), day, "2026-03-04");
        check_period("k", &json!({"hour": "x"}), day, "2026-03-04");
        let bad = "`date` is \"2026-02-30\", which is not a date: YYYY-MM-DD or YYYYMMDD";
        check_period("k", &json!({"date": "2026-02-30"}), day, bad);
        let bad = "`date` is true, which is not a date: YYYY-MM-DD or YYYYMMDD";
        check_period("k", &json!({"date": true}), day, bad);
        let bad = "`date` is \"today\", which is not a date: YYYY-MM-DD or YYYYMMDD";
        check_period("k#2026-03-02", &json!({"date": "today"}), day, bad);
        let bad =
            "the key ends in `#2026-13-01`, which is not a period: YYYY-MM-DD or YYYY-MM-DDTHH";
        check_period("k#2026-13-01", &json!(1), day, bad);
    }

    #[test]
    fn b6_an_hour_needs_its_date() {
        let hour = Period::Hour;
        check_period("k", &json!({"date": "20260301", "hour": "07"}), hour, "2026-03-01T07");
        check_period("k", &json!({"date": "20260301", "hour": 7}), hour, "2026-03-01T07");
        check_period("k#20260302T05", &json!({"hour": 0}), hour, "2026-03-02T00");
        check_period("k#2026-03-02T05", &json!(1), hour, "2026-03-02T05");
        check_period("k#2026-03-02T05", &json!({"date": "2026-03-02"}), hour, "2026-03-02T05");
        check_period("k", &json!(1), hour, "2026-03-04T00");
        let dateless = "the sensor names an hour but no date";
        check_period("k", &json!({"hour": 23}), hour, dateless);
        let hourless = "the sensor names a date but no hour";
        check_period("k", &json!({"date": "2026-03-01"}), hour, hourless);
        check_period("k#2026-03-02T05", &json!({"date": "2026-03-01"}), hour, hourless);
        check_period("k#2026-03-02", &json!(1), hour, hourless);
        let bad = "`hour` is 24, which is not an hour: 0 to 23";
        check_period("k", &json!({"date": "2026-03-01", "hour": 24}), hour, bad);
        let bad = "`hour` is 7.5, which is not an hour: 0 to 23";
        check_period("k", &json!({"date": "2026-03-01", "hour": 7.5}), hour, bad);
    }

    #[test]
    fn a_period_begins_on_the_local_clock() {
        let riga = Zone::new("Europe/Riga", TimeZone::get("Europe/Riga").unwrap());
        let date = Date::constant(2026, 3, 3);
        let start = |period: SlotPeriod| period.start(&riga).to_string();
        assert_eq!(start(SlotPeriod::day(date)), "2026-03-02T22:00:00Z");
        assert_eq!(start(SlotPeriod::hour(date, 7).unwrap()), "2026-03-03T05:00:00Z");
        assert_eq!(SlotPeriod::hour(date, 24), None);
    }

    /// Each sensor's value is its own key; the expectation is the key that is found.
    fn check_find(keys: &[&str], period: Option<SlotPeriod>, expected: Option<&str>) {
        let sensors: Sensors =
            keys.iter().map(|key| ((*key).to_owned(), sensor(json!(key)))).collect();
        let found = find(&sensors, "orders", period);
        assert_eq!(found.map(|(key, _)| key), expected, "{keys:?}");
        assert_eq!(found.and_then(|(_, sensor)| sensor.value.as_str()), expected);
    }

    #[test]
    fn b5_the_slots_own_period_wins_and_other_periods_never_match() {
        let date = Date::constant(2026, 3, 3);
        let (day, hour) = (Some(SlotPeriod::day(date)), SlotPeriod::hour(date, 7));
        let dashed = ["orders", "orders#2026-03-03", "orders#2026-03-03T07"];
        check_find(&dashed, day, Some("orders#2026-03-03"));
        check_find(&dashed, hour, Some("orders#2026-03-03T07"));
        check_find(&dashed, None, Some("orders"));
        let compact = ["orders", "orders#20260303", "orders#20260303T07"];
        check_find(&compact, day, Some("orders#20260303"));
        check_find(&compact, hour, Some("orders#20260303T07"));
        check_find(&["orders", "orders#2026-03-02", "orders#2026-03-03T08"], day, Some("orders"));
        check_find(&["orders#2026-03-02", "orders#2026-03-03T06", "order"], hour, None);
        check_find(&["orders#2026-03-03"], hour, None);
    }

    #[test]
    fn of_two_spellings_the_later_report_counts() {
        let date = Date::constant(2026, 3, 3);
        let later = Sensor { value: json!(2), at: "2026-03-03T23:00:00Z".parse().unwrap() };
        for newest in ["orders#2026-03-03", "orders#20260303"] {
            let mut sensors: Sensors = ["orders#2026-03-03", "orders#20260303"]
                .map(|key| (key.to_owned(), sensor(json!(1))))
                .into();
            sensors.insert(newest.to_owned(), later.clone());
            let found = find(&sensors, "orders", Some(SlotPeriod::day(date)));
            assert_eq!(found, Some((newest, &later)));
        }
    }

    #[test]
    fn a_period_is_over_when_it_is_over_everywhere() {
        // The third of March ends in Hawaii at ten in the morning of the fourth, by UTC.
        let instant = |text: &str| text.parse::<Timestamp>().unwrap();
        for (key, at, is_over) in [
            ("orders#2026-03-03", "2026-03-04T23:59:59Z", false),
            ("orders#2026-03-03", "2026-03-05T00:00:00Z", true),
            ("orders#20260303T07", "2026-03-05T00:00:00Z", true),
            ("orders", "2036-03-05T00:00:00Z", false),
            ("orders#eu", "2036-03-05T00:00:00Z", false),
            ("orders#2026-03-03T7", "2036-03-05T00:00:00Z", false),
        ] {
            assert_eq!(is_of_period_over_by(key, instant(at)), is_over, "{key} at {at}");
        }
    }

    #[test]
    fn the_base_of_a_key_is_what_rules_name() {
        for (key, base) in [
            ("orders", "orders"),
            ("orders#2026-03-03", "orders"),
            ("orders#20260303T07", "orders"),
            ("orders#eu", "orders#eu"),
            ("orders#eu#2026-03-03", "orders#eu"),
            ("orders#2026-03-03T7", "orders#2026-03-03T7"),
        ] {
            assert_eq!(base_key(key), base);
        }
    }
}
