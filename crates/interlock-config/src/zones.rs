//! Time zones by name.
//!
//! Core is handed its zones; this is where they come from. IANA names are looked up in the system's
//! database, else in the bundled one, and each zone is prepared once however many files name it.

use std::{
    collections::BTreeMap,
    sync::{Mutex, OnceLock, PoisonError},
};

use interlock_core::{text::TextError, zone::Zone};
use jiff::tz::TimeZone;

use crate::suggest;

/// Where zones come from.
pub trait ZoneSource {
    /// The zone with a name, if there is one.
    fn zone(&self, name: &str) -> Option<Zone>;

    /// All names, for suggestions.
    fn names(&self) -> &[String];
}

/// The zones of `jiff`'s database, each prepared once.
#[derive(Debug, Default)]
pub struct SystemZones {
    /// Only names that exist: others could be without number.
    found: Mutex<BTreeMap<String, Zone>>,
    names: OnceLock<Vec<String>>,
}

impl SystemZones {
    /// An empty cache over the database.
    pub fn new() -> Self {
        Self::default()
    }
}

impl ZoneSource for SystemZones {
    fn zone(&self, name: &str) -> Option<Zone> {
        let mut found = self.found.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(zone) = found.get(name) {
            return Some(zone.clone());
        }
        let zone = look_up(name)?;
        found.insert(name.to_owned(), zone.clone());
        Some(zone)
    }

    fn names(&self) -> &[String] {
        self.names.get_or_init(|| jiff::tz::db().available().map(|name| name.to_string()).collect())
    }
}

fn look_up(name: &str) -> Option<Zone> {
    // Without its rules a POSIX string is a trap: `UTC+3` means three hours behind.
    if name.contains(',') {
        return TimeZone::posix(name).ok().map(|zone| Zone::new(name, zone));
    }
    let zone = jiff::tz::db().get(name).ok()?;
    // Names are found whatever their case; the canonical one is kept.
    let canonical = zone.iana_name().unwrap_or(name).to_owned();
    Some(Zone::new(&canonical, zone))
}

/// The zone that a text names, or what to write instead.
pub fn resolve(zones: &dyn ZoneSource, text: &str) -> Result<Zone, TextError> {
    zones.zone(text).ok_or_else(|| refusal(zones, text))
}

/// What to write instead of a text that names no zone.
pub(crate) fn refusal(zones: &dyn ZoneSource, text: &str) -> TextError {
    let message = if text.is_empty() {
        "the time zone is empty".to_owned()
    } else {
        format!("there is no time zone `{text}`")
    };
    TextError::new(0..text.len(), message, advice(zones, text))
}

fn advice(zones: &dyn ZoneSource, text: &str) -> String {
    if let Some((sign, hours)) = fixed_offset(text) {
        // In Etc names, too, the sign is the reverse of what people mean.
        let reversed = if sign == '+' { '-' } else { '+' };
        return format!(
            "Write `Etc/GMT{reversed}{hours}` for UTC{sign}{hours}, or a city such as `Europe/Riga`, \
             which also knows daylight saving."
        );
    }
    let names = zones.names();
    let found = suggest::did_you_mean(text, names.iter().map(String::as_str));
    let by_city = || {
        let city = text.rsplit('/').next().unwrap_or(text);
        let same = |name: &&String| {
            name.rsplit('/').next().is_some_and(|part| part.eq_ignore_ascii_case(city))
        };
        names.iter().find(same).map(|name| format!("Did you mean `{name}`?"))
    };
    if !found.is_empty() {
        return found;
    }
    by_city().unwrap_or_else(|| "Write an IANA name such as `Europe/Riga` or `UTC`.".to_owned())
}

/// `UTC+3`, `GMT-05:00`, `EST5`: a sign and whole hours.
fn fixed_offset(text: &str) -> Option<(char, u32)> {
    let rest = text.trim_start_matches(|c: char| c.is_ascii_alphabetic());
    let (sign, digits) = match rest.chars().next()? {
        '+' => ('+', rest.get(1..)?),
        '-' => ('-', rest.get(1..)?),
        _ => return None,
    };
    let hours = digits.split(':').next()?.parse().ok()?;
    (hours <= 14).then_some((sign, hours))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_found_whatever_their_case_and_prepared_once() {
        let zones = SystemZones::new();
        assert_eq!(zones.zone("europe/riga").unwrap().name(), "Europe/Riga");
        assert_eq!(zones.zone("UTC").unwrap().name(), "UTC");
        assert!(zones.zone("Europe/Rigaa").is_none());
        assert!(zones.zone("").is_none());
    }

    #[test]
    fn posix_strings_need_their_rules() {
        let zones = SystemZones::new();
        assert!(zones.zone("IST-1GMT-0,M10.5.0/1,M3.5.0/1").is_some());
        for bad in ["UTC+3", "EST5EDT4", "UTC-03:00"] {
            assert!(resolve(&zones, bad).is_err(), "{bad}");
        }
        let help = resolve(&zones, "UTC+3").unwrap_err().help;
        assert!(help.starts_with("Write `Etc/GMT-3` for UTC+3"), "{help}");
    }

    #[test]
    fn typing_mistakes_and_bare_cities_get_a_suggestion() {
        let zones = SystemZones::new();
        let help = |text| resolve(&zones, text).unwrap_err().help;
        assert_eq!(help("Europe/Rigga"), "Did you mean `Europe/Riga`?");
        assert_eq!(help("Tokyo"), "Did you mean `Asia/Tokyo`?");
        assert_eq!(help("nowhere at all"), "Write an IANA name such as `Europe/Riga` or `UTC`.");
    }
}
