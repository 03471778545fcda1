//! Silences: which alerts are kept back for a while, and why.
//!
//! A silence is added at run time and kept in the store as JSON, not in the files. What it matches is said like a
//! channel's `when`. It holds from its beginning to its end, or, if it recurs, for a length of time from each instant
//! of a cron expression in a zone.

use std::collections::BTreeMap;

use interlock_core::{
    calendar::DayFilter,
    cron::{Cron, Seconds},
    duration::{self, Units},
    id::ScheduleId,
    schedule::{Dst, Recurrence, Schedule, Timing},
    text::TextError,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    server::AlertFilter,
    zones::{self, ZoneSource},
};

/// Alerts that are kept back.
#[derive(Debug, Clone, PartialEq)]
pub struct Silence {
    /// Its name.
    pub id: String,
    /// Which alerts.
    pub when: AlertFilter,
    /// From when on.
    pub from: Timestamp,
    /// Until when; for ever when absent.
    pub until: Option<Timestamp>,
    /// Only within these times.
    pub windows: Option<Windows>,
    /// Why.
    pub reason: String,
    /// Who wants it.
    pub by: String,
}

/// Times that come again.
#[derive(Debug, Clone, PartialEq)]
pub struct Windows {
    schedule: Schedule,
    /// The expression of their beginnings, as written.
    pub cron: String,
    /// The length of each.
    pub length: SignedDuration,
}

impl Windows {
    /// Windows of a length that begin when a cron expression says, in a zone.
    pub fn new(
        cron: &str,
        zone: &str,
        length: SignedDuration,
        zones: &dyn ZoneSource,
    ) -> Result<Self, TextError> {
        let parsed = Cron::parse(cron, Seconds::Absent)?;
        let zone = match &parsed.zone {
            Some((name, span)) => {
                zones::resolve(zones, name).map_err(|error| error.shifted(span.start))?
            }
            None => zones::resolve(zones, zone)?,
        };
        let (from, until) = (None, None);
        let timing = Timing { zone, dst: Dst::default(), days: DayFilter::default(), from, until };
        let days = parsed.cron.day_fields();
        let recurrence = Recurrence::Cron(parsed.cron);
        let schedule = Schedule::new(ScheduleId::from_static("silence"), recurrence, timing)
            .map_err(|never| TextError::new(days, never.to_string(), ""))?;
        Ok(Self { schedule, cron: cron.to_owned(), length })
    }

    /// Windows of days of the week: `sat-sun 02:00-06:00`, `mon,wed 22:00-02:00` (into the next day).
    pub fn weekly(text: &str, zone: &str, zones: &dyn ZoneSource) -> Result<Self, TextError> {
        let wrong = || {
            let message = format!("`{text}` is not a weekly window");
            let help = "Write days and times, like `sat-sun 02:00-06:00` or `mon,wed 22:00-02:00`.";
            TextError::new(0..text.len(), message, help)
        };
        let (days, times) = text.trim().split_once(' ').ok_or_else(wrong)?;
        let (begin, end) = times.trim().split_once('-').ok_or_else(wrong)?;
        let minutes = |text: &str| {
            let (hour, minute) = text.trim().split_once(':')?;
            let (hour, minute) = (hour.parse::<i64>().ok()?, minute.parse::<i64>().ok()?);
            let is_time = (0..24).contains(&hour) && (0..60).contains(&minute);
            is_time.then_some((hour, minute))
        };
        let (hour, minute) = minutes(begin).ok_or_else(wrong)?;
        let (end_hour, end_minute) = minutes(end).ok_or_else(wrong)?;
        let length = (end_hour * 60 + end_minute - hour * 60 - minute).rem_euclid(24 * 60);
        let length = if length == 0 { 24 * 60 } else { length };
        let cron = format!("{minute} {hour} * * {days}");
        Self::new(&cron, zone, SignedDuration::from_mins(length), zones).map_err(|_days| wrong())
    }

    /// The zone of their times.
    pub fn zone(&self) -> &str {
        self.schedule.timing().zone.name()
    }

    /// When the window ends that an instant lies in.
    fn end_of(&self, now: Timestamp) -> Option<Timestamp> {
        let began =
            if self.schedule.is_slot(now) { Some(now) } else { self.schedule.previous(now) };
        let end = began?.saturating_add(self.length).ok()?;
        (end > now).then_some(end)
    }
}

impl Silence {
    /// Until when it keeps quiet, if it does now.
    pub fn in_force(&self, now: Timestamp) -> Option<Timestamp> {
        let end = self.until.unwrap_or(Timestamp::MAX);
        if now < self.from || now >= end {
            return None;
        }
        match &self.windows {
            Some(windows) => windows.end_of(now).map(|window| window.min(end)),
            None => Some(end),
        }
    }

    /// Whether it will never keep quiet again.
    pub fn is_over(&self, now: Timestamp) -> bool {
        self.until.is_some_and(|until| now >= until)
    }

    /// Its JSON, as it is stored and printed, without its name.
    pub fn to_json(&self) -> Value {
        let AlertFilter { levels, types, pipelines, owners, labels } = &self.when;
        let windows = self.windows.as_ref().map(|windows| {
            json!({
                "cron": windows.cron,
                "for": duration::format(windows.length),
                "timezone": windows.zone(),
            })
        });
        json!({
            "when": {
                "levels": levels, "types": types, "pipelines": pipelines, "owners": owners, "labels": labels,
            },
            "from": self.from.to_string(),
            "until": self.until.map(|until| until.to_string()),
            "windows": windows,
            "reason": self.reason,
            "by": self.by,
        })
    }

    /// Reads what [`Silence::to_json`] writes; or what cannot be read.
    pub fn from_json(id: &str, json: &Value, zones: &dyn ZoneSource) -> Result<Self, String> {
        let text = |map: &Value, key: &str| map.get(key).and_then(Value::as_str).map(str::to_owned);
        let needed = |key: &str| text(json, key).ok_or_else(|| format!("it has no `{key}`"));
        let instant = |key: &str, text: String| {
            text.parse::<Timestamp>().map_err(|error| format!("`{key}`: {error}"))
        };
        let windows = match json.get("windows").filter(|windows| !windows.is_null()) {
            Some(windows) => {
                let part = |key| text(windows, key).ok_or_else(|| format!("it has no `{key}`"));
                let length = duration::parse(&part("for")?, Units::SecondsToDays);
                let length = length.map_err(|error| error.message)?;
                let (cron, zone) = (part("cron")?, part("timezone")?);
                Some(Windows::new(&cron, &zone, length, zones).map_err(|error| error.message)?)
            }
            None => None,
        };
        Ok(Self {
            id: id.to_owned(),
            when: filter(json.get("when").ok_or("it has no `when`")?)?,
            from: instant("from", needed("from")?)?,
            until: text(json, "until").map(|until| instant("until", until)).transpose()?,
            windows,
            reason: needed("reason")?,
            by: needed("by")?,
        })
    }
}

/// Reads what it matches. What cannot be read must not match everything.
fn filter(json: &Value) -> Result<AlertFilter, String> {
    let list = |key: &str| -> Result<Vec<String>, String> {
        serde_json::from_value(json.get(key).cloned().unwrap_or_else(|| json!([])))
            .map_err(|error| format!("`{key}`: {error}"))
    };
    let labels: BTreeMap<String, String> =
        serde_json::from_value(json.get("labels").cloned().unwrap_or_else(|| json!({})))
            .map_err(|error| format!("`labels`: {error}"))?;
    Ok(AlertFilter {
        levels: list("levels")?,
        types: list("types")?,
        pipelines: list("pipelines")?,
        owners: list("owners")?,
        labels,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::zones::SystemZones;

    fn at(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn silence(windows: Option<Windows>) -> Silence {
        Silence {
            id: "quiet".into(),
            when: AlertFilter { pipelines: vec!["ord*".into()], ..AlertFilter::default() },
            from: at("2026-03-01T00:00:00Z"),
            until: Some(at("2026-04-15T00:00:00Z")),
            windows,
            reason: "moving".into(),
            by: "ann".into(),
        }
    }

    #[test]
    fn it_holds_from_its_beginning_to_its_end() {
        let silence = silence(None);
        assert_eq!(silence.in_force(at("2026-02-28T23:59:59Z")), None);
        assert_eq!(silence.in_force(silence.from), silence.until);
        assert_eq!(silence.in_force(silence.until.unwrap()), None);
        assert!(silence.is_over(silence.until.unwrap()) && !silence.is_over(silence.from));
    }

    #[test]
    fn a_weekly_window_is_in_its_zone_also_over_midnight_and_daylight_saving() {
        let zones = SystemZones::new();
        let windows = Windows::weekly("sat-sun 22:00-02:30", "Europe/Riga", &zones).unwrap();
        let silence = silence(Some(windows));
        // Riga is at +02:00 before 29 March and at +03:00 after it.
        for (now, expected) in [
            ("2026-03-07T19:59:59Z", None),
            ("2026-03-07T20:00:00Z", Some("2026-03-08T00:30:00Z")),
            ("2026-03-08T00:29:59Z", Some("2026-03-08T00:30:00Z")),
            ("2026-03-08T00:30:00Z", None),
            ("2026-04-04T19:00:00Z", Some("2026-04-04T23:30:00Z")),
            ("2026-04-18T19:00:00Z", None),
        ] {
            assert_eq!(silence.in_force(at(now)), expected.map(at), "{now}");
        }
        for wrong in ["sat", "sat 22", "sat 22:00-25:00", "someday 22:00-23:00", "sat 22:00"] {
            let error = Windows::weekly(wrong, "UTC", &zones).unwrap_err();
            assert!(error.help.contains("sat-sun 02:00-06:00"), "{wrong}: {error:?}");
        }
        assert!(Windows::weekly("sat 00:00-00:00", "UTC", &zones).unwrap().length.as_hours() == 24);
    }

    #[test]
    fn it_comes_back_from_its_json_and_what_cannot_be_read_matches_nothing() {
        let zones = SystemZones::new();
        let windows = Windows::new("0 2 * * *", "UTC", SignedDuration::from_hours(2), &zones);
        for silence in [silence(None), silence(Some(windows.unwrap()))] {
            let json = silence.to_json();
            assert_eq!(Silence::from_json("quiet", &json, &zones), Ok(silence));
        }
        for broken in [
            json!({}),
            json!({"when": {"types": "all"}, "from": "2026-03-01T00:00:00Z", "reason": "", "by": ""}),
            json!({"when": {}, "from": "now", "reason": "", "by": ""}),
        ] {
            assert!(Silence::from_json("quiet", &broken, &zones).is_err(), "{broken}");
        }
    }
}
