//! What became of a slot, in a sentence.

use interlock_core::{duration::for_people, readiness::unreported_sensor, text::counted};
use interlock_store::story::one_line;
use jiff::{SignedDuration, Timestamp};

use super::{
    ShownTimes, SlotFacts,
    short::{skipped, took},
};
use crate::model::{slot::SpanAnswer, story::AbsenceReason};

/// What began later than this after its time did not begin in time.
const IN_TIME: SignedDuration = SignedDuration::from_mins(1);

/// What became of a slot: a sentence that begins with its state.
pub fn headline(facts: &SlotFacts<'_>, times: &ShownTimes<'_>) -> String {
    match facts.disposition {
        None => open(facts, times),
        Some(disposition) => closed(facts, disposition, times),
    }
}

/// What became of many slots in a row that were recorded together.
pub fn span_headline(span: &SpanAnswer, times: &ShownTimes<'_>) -> String {
    let slots = counted(span.count, "slot");
    let when = times.stretch(span.first, span.last, times.now());
    let ended = match (span.disposition.as_str(), span.reason.as_deref()) {
        ("missed", _) => "missed".to_owned(),
        ("unknown", _) => "unknown: Interlock could not see them".to_owned(),
        ("skipped", Some(reason)) => format!("skipped: {}", skipped_together(reason)),
        (other, _) => other.to_owned(),
    };
    format!("{slots}, {when}: {ended}.")
}

/// Why there is no slot at an instant.
pub fn absence_headline(reason: AbsenceReason, why: &str) -> String {
    let why = why.trim_end_matches('.');
    let begins = match reason {
        AbsenceReason::NotDue => "Planned",
        AbsenceReason::NotRecordedYet
        | AbsenceReason::NothingRecorded
        | AbsenceReason::NotSeen
        | AbsenceReason::DeclarationUnreadable => "Not recorded",
        AbsenceReason::Archived => "Not kept",
        AbsenceReason::BeforeFirstSight => "Before our time",
        AbsenceReason::Excluded
        | AbsenceReason::DstGap
        | AbsenceReason::OutOfBounds
        | AbsenceReason::NotASlot
        | AbsenceReason::NoSuchSchedule
        | AbsenceReason::Undeclared
        | AbsenceReason::Retired
        | AbsenceReason::Paused
        | AbsenceReason::Disabled
        | AbsenceReason::DeclaredDifferently => "No slot",
    };
    format!("{begins}: {why}.")
}

fn open(facts: &SlotFacts<'_>, times: &ShownTimes<'_>) -> String {
    let time = |at: Timestamp| times.time(at, times.now());
    match facts.state {
        "waiting" => {
            let until = facts.waits_until.map(|at| format!("; it gives up at {}", time(at)));
            let until = until.unwrap_or_default();
            let blocking = blocking(facts, "has not been reported");
            match blocking {
                Some(reason) => format!("Waiting: {reason}{until}."),
                None => format!("Waiting until it is ready{until}."),
            }
        }
        "queued" => match facts.opened_by {
            Some("catchup") => "Queued for catch-up.".to_owned(),
            Some("backfill") => "Queued for a backfill.".to_owned(),
            _ => "Queued: other runs come first.".to_owned(),
        },
        "running" => match facts.ran_for(times.now()) {
            Some(ran) => format!("Running for {}.", took(ran, facts.usual)),
            None => "Running: its job is being started.".to_owned(),
        },
        "backoff" => {
            let why = facts.message.map(|message| format!(": {}", ending(message)));
            let next =
                facts.retry_at.map(|at| format!(" The next attempt starts at {}.", time(at)));
            format!(
                "Attempt {} failed{}{}",
                facts.attempt,
                why.unwrap_or_else(|| ".".to_owned()),
                next.unwrap_or_default()
            )
        }
        "monitoring" => "Completed; its data is still watched.".to_owned(),
        other => format!("Its state is {other}."),
    }
}

fn closed(facts: &SlotFacts<'_>, disposition: &str, times: &ShownTimes<'_>) -> String {
    match disposition {
        "completed" => completed(facts, times),
        "failed" => failed(facts),
        "cancelled" => "Cancelled by an operator.".to_owned(),
        "missed" => match facts.waits_until.or(facts.missed_at) {
            Some(at) => format!("Missed: it did not run by {}.", times.time(at, facts.nominal)),
            None => "Missed: it did not run.".to_owned(),
        },
        "unknown" => match facts.blind {
            Some((from, until)) => format!(
                "Unknown: Interlock could not see from {}.",
                times.stretch(from, until, facts.nominal).replace('–', " to ")
            ),
            None => "Unknown: Interlock could not see whether it ran.".to_owned(),
        },
        "skipped" => format!("Skipped: {}.", skipped_because(facts, times)),
        other => format!("It ended as {other}."),
    }
}

fn completed(facts: &SlotFacts<'_>, times: &ShownTimes<'_>) -> String {
    let (behind, shown) = (facts.behind(), for_people(facts.behind()));
    let over = facts.ended_at.zip(facts.breach_at).map(|(at, by)| at.duration_since(by));
    let what = match facts.opened_by {
        _ if facts.is_late => format!("Ran {shown} late"),
        Some("catchup") => format!("Caught up {shown} late"),
        Some("backfill") => "Ran as part of a backfill".to_owned(),
        Some("manual" | "webhook") => "Ran when an operator asked for it".to_owned(),
        _ if behind < IN_TIME => "Ran on time".to_owned(),
        _ => format!("Ran at {}", times.time(facts.nominal.max(started(facts)), facts.nominal)),
    };
    let ran = facts.ran_for(times.now()).map(|ran| format!(", took {}", took(ran, facts.usual)));
    let over = over.filter(SignedDuration::is_positive);
    let over = over.map(|over| format!(" It ended {} past its limit.", for_people(over)));
    let doubt = facts.is_uncertain.then_some(" How one of its runs ended is not known.");
    format!(
        "{what}{}.{}{}",
        ran.unwrap_or_default(),
        over.unwrap_or_default(),
        doubt.unwrap_or_default()
    )
}

fn started(facts: &SlotFacts<'_>) -> Timestamp {
    facts.started_at.or(facts.ended_at).unwrap_or(facts.nominal)
}

fn failed(facts: &SlotFacts<'_>) -> String {
    let tries = match facts.attempt {
        0 | 1 => String::new(),
        tries => format!(" after {}", counted(tries, "attempt")),
    };
    match facts.message {
        Some(message) => format!("Failed{tries}: {}", ending(message)),
        None => format!("Failed{tries}."),
    }
}

fn skipped_because(facts: &SlotFacts<'_>, times: &ShownTimes<'_>) -> String {
    let until = facts.waits_until.map(|at| format!(" by {}", times.time(at, facts.nominal)));
    let until = until.unwrap_or_default();
    match facts.reason {
        Some(reason @ ("not_ready" | "no_sensor")) => {
            let sensor = facts.blocking.iter().find_map(|text| unreported_sensor(text));
            match (sensor, blocking(facts, "was not reported")) {
                (Some(sensor), _) => format!("{sensor} was not reported{until}"),
                (None, Some(why)) => format!("it was not ready{until}: {why}"),
                (None, None) if reason == "no_sensor" => {
                    format!("its sensor was not reported{until}")
                }
                (None, None) => format!("it was not ready{until}"),
            }
        }
        Some("expired") => "it was too old by the time that it could run".to_owned(),
        Some("no_catchup") => {
            "it was missed, and the pipeline does not catch up on missed slots".to_owned()
        }
        Some("capped") => "it was missed, and more were missed than catch-up may run".to_owned(),
        Some("dry_run") => "the pipeline is in dry run, which starts nothing".to_owned(),
        Some("retired") => "the pipeline or its schedule was removed".to_owned(),
        Some(reason) => skipped(reason).to_owned(),
        None => "no reason is recorded".to_owned(),
    }
}

fn skipped_together(reason: &str) -> &str {
    match reason {
        "no_catchup" => "missed, and the pipeline does not catch up on missed slots",
        "capped" => "missed, and more than catch-up may run",
        "expired" => "missed, and older than the catch-up window",
        "overlap" => "the run before them was still going",
        "superseded" => "a newer slot took their place",
        "not_ready" => "they were not ready in time",
        "no_sensor" => "their sensor was not reported in time",
        other => skipped(other),
    }
}

/// The first thing that stands in the way, and how many others do.
fn blocking(facts: &SlotFacts<'_>, not_reported: &str) -> Option<String> {
    let (first, others) = facts.blocking.split_first()?;
    let first = match unreported_sensor(first) {
        Some(sensor) => format!("{sensor} {not_reported}"),
        None => one_line(first),
    };
    Some(if others.is_empty() { first } else { format!("{first}, and {} more", others.len()) })
}

/// What a job wrote, as the end of a sentence.
fn ending(message: &str) -> String {
    let line = one_line(message.trim());
    if line.ends_with(['.', '!', '?', '…']) { line } else { format!("{line}.") }
}
