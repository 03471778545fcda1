//! The axis of time: where its lines and words are.

use jiff::{RoundMode, Span, Timestamp, ToSpan as _, Unit, ZonedRound};

use crate::times::{Zone, between};

/// Steps that people read easily, in seconds.
const STEPS: [i64; 19] = [
    1, 5, 10, 30, 60, 120, 300, 600, 900, 1_800, 3_600, 7_200, 10_800, 21_600, 43_200, 86_400,
    172_800, 604_800, 1_209_600,
];

/// The step by which a range has at most so many labels.
fn step(seconds: i64, most: i64) -> i64 {
    let fits = |step: &&i64| seconds / **step <= most;
    STEPS.iter().find(fits).copied().unwrap_or(30 * 86_400)
}

/// Round instants of a range by the clock of a zone, at most so many.
pub(crate) fn nice_steps(
    from: Timestamp,
    until: Timestamp,
    most: i64,
    zone: &Zone,
) -> Vec<Timestamp> {
    let step = step(between(from, until).max(1), most);
    let start = zone.at(from);
    // From midnight on, so that the labels are 00, 03, 06 … whatever the range begins with.
    let Ok(midnight) = start.start_of_day() else { return vec![] };
    let by: Span = if step >= 86_400 { (step / 86_400).days() } else { step.seconds() };
    let mut at = if step >= 86_400 {
        midnight
    } else {
        let passed = between(midnight.timestamp(), from) / step * step;
        match midnight.checked_add(passed.seconds()) {
            Ok(at) => at,
            Err(_) => return vec![],
        }
    };
    // A change of the clocks moves the grid: it goes by the wall clock again from there on.
    let mut found = Vec::new();
    while at.timestamp() <= until && found.len() < 200 {
        if at.timestamp() >= from {
            found.push(at.timestamp());
        }
        let Ok(next) = at.checked_add(by) else { break };
        at =
            if step < 86_400 && next.offset() != at.offset() { aligned(&next, step) } else { next };
    }
    found
}

fn aligned(at: &jiff::Zoned, step: i64) -> jiff::Zoned {
    if step % 3_600 != 0 {
        return at.clone();
    }
    let hours = step / 3_600;
    let round = ZonedRound::new().smallest(Unit::Hour).increment(1).mode(RoundMode::Trunc);
    let Ok(whole) = at.round(round) else { return at.clone() };
    let over = i64::from(whole.hour()) % hours;
    whole.checked_add(((hours - over) % hours).hours()).unwrap_or(whole)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn labels(zone: &str, from: &str, until: &str, most: i64) -> Vec<String> {
        let zone = Zone::named(zone).unwrap();
        let all = nice_steps(from.parse().unwrap(), until.parse().unwrap(), most, &zone);
        all.into_iter().map(|at| zone.minute(at)).collect()
    }

    #[test]
    fn labels_are_round_by_the_clock_of_the_zone() {
        let found = labels("Asia/Kolkata", "2026-11-19T04:10:00Z", "2026-11-19T16:00:00Z", 6);
        assert_eq!(found, ["10:00", "12:00", "14:00", "16:00", "18:00", "20:00"]);
        let found = labels("UTC", "2026-11-19T06:30:00Z", "2026-11-19T08:32:00Z", 9);
        assert_eq!(found.first().map(String::as_str), Some("06:30"));
        assert_eq!(found.len(), 9);
    }

    #[test]
    fn an_hour_that_comes_twice_is_there_twice_and_the_grid_stays_round() {
        let found = labels("Europe/Berlin", "2026-10-24T23:00:00Z", "2026-10-25T03:00:00Z", 12);
        assert_eq!(found.iter().filter(|label| *label == "02:00").count(), 2, "{found:?}");
        let found = labels("Europe/Berlin", "2026-10-24T16:00:00Z", "2026-10-25T16:00:00Z", 8);
        assert_eq!(found, ["18:00", "21:00", "00:00", "03:00", "06:00", "09:00", "12:00", "15:00"]);
    }
}
