//! What schedules owe: nothing vanishes, nothing is invented (S3, S4), and catch-up keeps to its policy (S5).

use interlock_core::id::ScheduleId;
use jiff::{SignedDuration, Timestamp};

use super::{
    Finding, Scene,
    arrivals::deadline_of,
    backfills,
    book::{Book, Place, SeenSlot, SeenSpan},
    slots::{is_control, lies_in_pause},
};
use crate::{
    naive,
    truth::{Pattern, Policy, Truth},
};

/// A watermark moved, in a group whose rows are in the book already.
pub(crate) fn watermark_moves(
    book: &mut Book,
    schedule: &ScheduleId,
    new: Timestamp,
    scene: &Scene<'_>,
) -> Result<u64, Finding> {
    let told = |invariant, message: String| {
        Err(Finding::of(invariant, message).about(&(schedule.clone(), new)))
    };
    let Some(old) = book.watermarks.insert(schedule.clone(), new) else { return Ok(0) };
    if new < old {
        return told("S4", format!("the watermark went back from {old}"));
    }
    let judged = version_told(book, schedule, (old, new), scene);
    let Some(truth) = scene.truth(judged) else { return Ok(0) };
    let Some(pattern) = pattern_of(&truth, schedule) else { return Ok(0) };
    if !pattern.is_by_clock() {
        // Without a deadline nothing is owed by the clock: it has nothing to pass over.
        return Ok(0);
    }
    let owed = naive::slots(&truth, pattern, old, new);
    let is_planned = |slot: &SeenSlot| !matches!(slot.opened_by, "manual" | "webhook" | "backfill");
    // What the watchdog recorded ahead of the watermark keeps the version of then (S16), and is judged by it.
    let is_of_then = |version: u64, at: Timestamp| {
        version != judged && !owed_then(scene, (version, schedule), at, at).is_empty()
    };
    let invented = book.rows(schedule, old, new).find(|((_, at), slot)| {
        is_planned(slot) && owed.binary_search(at).is_err() && !is_of_then(slot.version, *at)
    });
    if let Some(((_, at), _)) = invented {
        return told("S1", format!("{at} is recorded, and the schedule does not owe it"));
    }
    for slot in &owed {
        let has_row = book.slots.contains_key(&(schedule.clone(), *slot));
        let spans = book.spans_over(schedule, *slot);
        if spans > 1 {
            return told("S3", format!("{slot} lies in {spans} spans"));
        }
        if !has_row && spans == 0 {
            return told("S3", format!("{slot} vanished: the watermark went from {old} to {new}"));
        }
    }
    let in_rows = owed.iter().filter(|slot| book.slots.contains_key(&(schedule.clone(), **slot)));
    let rows = in_rows.count() as u64;
    for (first, span) in book.spans_after(schedule, old) {
        let count = if span.version == judged {
            owed.iter().filter(|slot| (first..=span.last).contains(*slot)).count() as u64
        } else {
            owed_then(scene, (span.version, schedule), first, span.last).len() as u64
        };
        if span.last <= new && count != span.count {
            return told("S3", format!("a span of {} from {first} has {count} slots", span.count));
        }
    }
    Ok(owed.len() as u64 - rows)
}

/// The version that a stretch is judged by: the one in force; but a time in which the schedule was not declared is told
/// by the zone data of when it is told, in the version that this makes of the same file.
fn version_told(
    book: &Book,
    schedule: &ScheduleId,
    (old, new): (Timestamp, Timestamp),
    scene: &Scene<'_>,
) -> u64 {
    let Some(in_force) = scene.truth(book.version) else { return book.version };
    let retired = |reason: &str| reason == "retired";
    let rows = book.rows(schedule, old, new).filter(|(_, slot)| retired(slot.reason));
    let spans = book.spans_after(schedule, old);
    let spans = spans.filter(|(first, span)| *first <= new && retired(span.reason));
    let versions = rows.map(|(_, slot)| slot.version).chain(spans.map(|(_, span)| span.version));
    let is_same_file = |version: &u64| {
        let truth = scene.truth(*version);
        truth.is_some_and(|truth| truth.is_same_file(&in_force))
    };
    versions.filter(is_same_file).last().unwrap_or(book.version)
}

/// What a schedule owed from one instant to another, as an earlier version of its pipeline said it.
fn owed_then(
    scene: &Scene<'_>,
    (version, schedule): (u64, &ScheduleId),
    first: Timestamp,
    last: Timestamp,
) -> Vec<Timestamp> {
    let Some(truth) = scene.truth(version) else { return vec![] };
    let Some(pattern) = pattern_of(&truth, schedule) else { return vec![] };
    naive::slots(&truth, pattern, first - SignedDuration::from_millis(1), last)
}

/// The pattern of a schedule, by its id.
pub(crate) fn pattern_of<'a>(truth: &'a Truth, schedule: &ScheduleId) -> Option<&'a Pattern> {
    if schedule.as_str() == "stop" {
        return truth.stop.as_ref();
    }
    let start = truth.starts.iter().find(|start| start.id == schedule.as_str())?;
    Some(&start.pattern)
}

/// A slot was recorded for the first time by its schedule.
pub(crate) fn slot_is_planned(
    book: &mut Book,
    place: &Place,
    slot: &SeenSlot,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    if is_control(&place.0) || place.0.as_str() == "manual" {
        return Ok(());
    }
    let Some(truth) = scene.truth(book.version) else { return Ok(()) };
    if slot.is_open() && slot.opened_by == "catchup" {
        return caught_up(book, place, slot, &truth);
    }
    if slot.generation == 0 && slot.disposition == "skipped" {
        // That is said by who judges reports.
        if slot.reason == "no_sensor" && truth.arrival().is_some() {
            return Ok(());
        }
        // What was called missed keeps the time of that.
        let was_missing = book.slots.contains_key(place);
        let at = if was_missing { scene.planned_at } else { slot.opened_at };
        if slot.reason == "superseded" && backfills::claims(book, place) {
            return Ok(());
        }
        let found = reason_is_right(book, (place.1, place.1), (slot.reason, at), &truth);
        return found.map_err(|message| Finding::of("S5", message).about(place));
    }
    Ok(())
}

/// A span was recorded.
pub(crate) fn span_is_planned(
    book: &Book,
    place: &Place,
    span: &SeenSpan,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    if let Some(edited_at) = book.edited_at.filter(|edited_at| place.1 < *edited_at) {
        let message = format!("a span from before the edit at {edited_at}");
        return Err(Finding::of("S16", message).about(place));
    }
    let Some(truth) = scene.truth(book.version).filter(|_| !is_control(&place.0)) else {
        return Ok(());
    };
    if truth.is_watched() && matches!(span.disposition, "missed" | "unknown") {
        return Ok(());
    }
    if span.reason == "paused" {
        // One pause may follow another, or the time in which it was disabled: then each slot lies in one of them.
        let owed = owed_then(scene, (span.version, &place.0), place.1, span.last);
        let awake = owed.iter().find(|at| !lies_in_pause(book, **at));
        return awake.map_or(Ok(()), |awake| {
            let message =
                format!("skipped(paused) up to {}, and nothing was at {awake}", span.last);
            Err(Finding::of("S5", message).about(place))
        });
    }
    // What a running backfill will come to is left to it, whatever the policy; the others follow from that.
    let owed = owed_then(scene, (span.version, &place.0), place.1, span.last);
    let is_claimed = |at: &Timestamp| backfills::claims(book, &(place.0.clone(), *at));
    if span.reason == "superseded" && owed.iter().any(is_claimed) {
        let others = owed.iter().filter(|at| !is_claimed(at));
        let wrong = others.filter_map(|at| {
            reason_is_right(book, (*at, *at), (span.reason, span.recorded_at), &truth).err()
        });
        let wrong = wrong.map(|message| Finding::of("S5", message).about(place)).next();
        return wrong.map_or(Ok(()), Err);
    }
    let found =
        reason_is_right(book, (place.1, span.last), (span.reason, span.recorded_at), &truth);
    found.map_err(|message| Finding::of("S5", message).about(place))
}

fn window(truth: &Truth) -> Option<SignedDuration> {
    truth.window_minutes.map(|minutes| SignedDuration::from_mins(i64::from(minutes)))
}

fn is_asked(book: &Book) -> bool {
    book.pause.as_ref().is_some_and(|pause| pause.all().any(|it| it.catchup.is_some()))
}

fn caught_up(
    book: &mut Book,
    place: &Place,
    slot: &SeenSlot,
    truth: &Truth,
) -> Result<(), Finding> {
    let told = |message: String| Err(Finding::of("S5", message).about(place));
    let together = match book.caught_up {
        Some((at, count)) if at == slot.opened_at => count + 1,
        _ => 1,
    };
    book.caught_up = Some((slot.opened_at, together));
    if is_asked(book) {
        return Ok(());
    }
    let Some(window) = window(truth) else {
        return told("caught up, and its pipeline catches nothing up".to_owned());
    };
    if place.1 < slot.opened_at - window {
        return told(format!("caught up at {}, beyond its window", slot.opened_at));
    }
    let most = if truth.policy == Policy::All { truth.catchup_max } else { 1 };
    if together > most {
        return told(format!("{together} were caught up in one plan, and {most} may be"));
    }
    Ok(())
}

/// Whether a skipped slot's reason is one that its policy gives.
fn reason_is_right(
    book: &Book,
    (first, last): (Timestamp, Timestamp),
    (reason, now): (&str, Timestamp),
    truth: &Truth,
) -> Result<(), String> {
    let from = window(truth).map(|window| now - window);
    let is_right = match reason {
        // Catch-up does not apply to what somebody else runs.
        "no_catchup" | "expired" | "overlap" | "superseded" | "capped" if truth.is_watched() => {
            false
        }
        "paused" => lies_in_pause(book, first) && lies_in_pause(book, last),
        // Catch-up does not apply to what reports open: only their deadline gives them up.
        "no_sensor" => deadline_of(truth, last).is_some_and(|limit| limit <= now),
        "no_catchup" | "expired" | "overlap" | "superseded" | "capped"
            if truth.arrival().is_some() =>
        {
            false
        }
        "retired" => true,
        _ if is_asked(book) => true,
        "no_catchup" => from.is_none(),
        "expired" => from.is_some_and(|from| last < from),
        "overlap" => truth.policy == Policy::Skip && from.is_some_and(|from| first >= from),
        "superseded" => truth.policy == Policy::Latest && from.is_some_and(|from| first >= from),
        "capped" => truth.policy == Policy::All && from.is_some_and(|from| first >= from),
        _ => false,
    };
    if is_right {
        return Ok(());
    }
    let (window, policy) = (truth.window_minutes, truth.policy);
    Err(format!(
        "skipped({reason}) from {first} to {last}, decided at {now} with a window of {window:?} minutes and {policy:?}"
    ))
}
