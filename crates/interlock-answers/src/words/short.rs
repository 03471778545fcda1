//! The reason of a slot's state for the cell of a table.

use interlock_core::{
    duration::for_people, readiness::unreported_sensor, slot::SkipReason, text::counted,
};
use jiff::{SignedDuration, Timestamp};

use super::{ShownTimes, SlotFacts};

/// A cell has so many characters at most.
pub const SHORT_MAX: usize = 45;

/// Why a slot is as it is, in at most [`SHORT_MAX`] characters; times without their zone.
pub fn short_reason(facts: &SlotFacts<'_>, times: &ShownTimes<'_>) -> String {
    let times = times.without_zone();
    let text = match facts.disposition {
        None => open(facts, &times),
        Some(disposition) => closed(facts, disposition, &times),
    };
    shorten(&text, SHORT_MAX)
}

fn open(facts: &SlotFacts<'_>, times: &ShownTimes<'_>) -> String {
    let time = |at: Timestamp| times.time(at, times.now());
    match facts.state {
        "waiting" => {
            let until = facts.waits_until.map(|at| format!("; gives up {}", time(at)));
            let until = until.unwrap_or_default();
            match awaited(facts) {
                Some(name) => {
                    let room = SHORT_MAX.saturating_sub(until.chars().count());
                    format!("{}{until}", shorten(&name, room))
                }
                None => format!("not ready yet{until}"),
            }
        }
        "queued" => match facts.opened_by {
            Some("catchup") => "queued for catch-up".to_owned(),
            Some("backfill") => "queued for a backfill".to_owned(),
            _ => "waits for its turn".to_owned(),
        },
        "running" => facts
            .ran_for(times.now())
            .map_or_else(|| "starting".to_owned(), |ran| took(ran, facts.usual)),
        "backoff" => {
            let next = facts.retry_at.map(|at| format!("; next at {}", time(at)));
            let failed = format!("attempt {} failed{}", facts.attempt, next.unwrap_or_default());
            match facts.message {
                Some(message) => {
                    let room = SHORT_MAX.saturating_sub(failed.chars().count() + 2);
                    if room < 12 { failed } else { format!("{failed}: {}", shorten(message, room)) }
                }
                None => failed,
            }
        }
        "monitoring" => "completed; its data is still watched".to_owned(),
        other => other.to_owned(),
    }
}

fn closed(facts: &SlotFacts<'_>, disposition: &str, times: &ShownTimes<'_>) -> String {
    let by = |at: Option<Timestamp>| {
        at.map(|at| format!(" by {}", times.time(at, facts.nominal))).unwrap_or_default()
    };
    match disposition {
        "completed" => completed(facts),
        "failed" => failed(facts),
        "cancelled" => "cancelled by an operator".to_owned(),
        "missed" => format!("did not run{}", by(facts.waits_until.or(facts.missed_at))),
        "unknown" => match facts.blind {
            Some((from, until)) => {
                format!("Interlock was blind {}", times.stretch(from, until, facts.nominal))
            }
            None => "Interlock could not see it".to_owned(),
        },
        "skipped" => match facts.reason {
            Some("not_ready" | "no_sensor") => {
                let until = by(facts.waits_until);
                let sensor = facts.blocking.iter().find_map(|text| unreported_sensor(text));
                let room = SHORT_MAX.saturating_sub(" not reported".len() + until.chars().count());
                match sensor {
                    Some(sensor) => format!("{} not reported{until}", shorten(sensor, room)),
                    None if facts.reason == Some("no_sensor") => {
                        format!("its sensor was not reported{until}")
                    }
                    None => format!("not ready{until}"),
                }
            }
            Some(reason) => skipped(reason).to_owned(),
            None => "skipped".to_owned(),
        },
        other => other.to_owned(),
    }
}

/// Why a slot was skipped, where the word alone says it.
pub(super) fn skipped(reason: &str) -> &str {
    // A word of a later version stands for itself.
    match SkipReason::parse(reason) {
        Ok(known) => known.in_words(),
        Err(_unknown) => reason,
    }
}

fn completed(facts: &SlotFacts<'_>) -> String {
    let ran = facts.ran_for(Timestamp::MAX).map(|ran| took(ran, facts.usual));
    let behind = facts.behind();
    let late = match facts.opened_by {
        _ if facts.is_late => Some(format!("ran {} late", for_people(behind))),
        Some("catchup") => Some(format!("caught up {} late", for_people(behind))),
        Some("backfill") => Some("backfilled".to_owned()),
        _ => None,
    };
    match (late, ran) {
        (Some(late), Some(ran)) if late.len() + ran.len() + 2 <= SHORT_MAX => {
            format!("{late}; {ran}")
        }
        (Some(late), _) => late,
        (None, Some(ran)) => ran,
        (None, None) => "completed".to_owned(),
    }
}

fn failed(facts: &SlotFacts<'_>) -> String {
    let tries = if facts.attempt > 1 {
        format!(", {}", counted(facts.attempt, "attempt"))
    } else {
        String::new()
    };
    let room = SHORT_MAX.saturating_sub(tries.len());
    format!("{}{tries}", shorten(facts.message.unwrap_or("the job failed"), room))
}

/// What a slot waits for.
pub(super) fn awaited(facts: &SlotFacts<'_>) -> Option<String> {
    let first = facts.blocking.first()?;
    Some(match unreported_sensor(first) {
        Some(sensor) => format!("{sensor} missing"),
        None => (*first).to_owned(),
    })
}

/// How long something took beside how long it usually takes: `4 min, as usual`, `36 min, usually 48`.
pub fn took(ran: SignedDuration, usual: Option<SignedDuration>) -> String {
    let ran = for_people(ran);
    let Some(usual) = usual.map(for_people) else { return ran };
    match (ran.strip_suffix(" min"), usual.strip_suffix(" min")) {
        _ if ran == usual => format!("{ran}, as usual"),
        (Some(_), Some(minutes)) => format!("{ran}, usually {minutes}"),
        _ => format!("{ran}, usually {usual}"),
    }
}

/// A text in one line of so many characters at most.
pub fn shorten(text: &str, most: usize) -> String {
    let line = interlock_store::story::one_line(text.trim());
    if line.chars().count() <= most {
        return line;
    }
    let kept: String = line.chars().take(most.saturating_sub(1)).collect();
    format!("{}…", kept.trim_end())
}
