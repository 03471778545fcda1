//! Reasons for the row of a pipeline that no single slot gives.

use interlock_core::duration::for_people;
use jiff::{SignedDuration, Timestamp};

use super::{SHORT_MAX, ShownTimes, shorten};

/// Of a pause: who paused it and since when, and until when or that no end is set.
pub fn paused_reason(
    by: &str,
    since: Timestamp,
    until: Option<Timestamp>,
    times: &ShownTimes<'_>,
) -> String {
    let times = times.without_zone();
    let lasts = for_people(times.now().duration_since(since));
    let ends = match until {
        Some(until) => format!(", {lasts}; ends {}", times.time(until, times.now())),
        None => format!(", {lasts}; no end is set"),
    };
    let room = SHORT_MAX.saturating_sub(ends.chars().count() + "by ".len());
    format!("by {}{ends}", shorten(by, room))
}

/// Of a run that may not end in time: until when it may, and how much longer it should take.
pub fn at_risk_reason(
    by: Timestamp,
    left: Option<SignedDuration>,
    times: &ShownTimes<'_>,
) -> String {
    let times = times.without_zone();
    let due = times.time(by, times.now());
    let remaining = by.duration_since(times.now());
    if remaining.is_negative() {
        return shorten(&format!("due {due}, {} ago", for_people(remaining)), SHORT_MAX);
    }
    let needs = left.filter(SignedDuration::is_positive);
    let needs = needs.map(|left| format!(", needs about {}", for_people(left)));
    let text = format!("due {due}, {} left{}", for_people(remaining), needs.unwrap_or_default());
    shorten(&text, SHORT_MAX)
}

/// Of a pipeline that owes nothing now: when its next slot is.
pub fn not_due_reason(next: Option<Timestamp>, times: &ShownTimes<'_>) -> String {
    match next {
        Some(next) => {
            shorten(&format!("next {}", times.without_zone().time(next, times.now())), SHORT_MAX)
        }
        None => "no slot ahead".to_owned(),
    }
}
