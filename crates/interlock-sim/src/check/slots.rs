//! One slot at a time: what may become of a slot (S11, S16, S19) and of a run (S2).

use interlock_core::id::ScheduleId;
use interlock_store::{RunKey, record::RunRecord};
use jiff::{SignedDuration, Timestamp};

use super::{
    Finding, Scene,
    book::{Book, Place, SeenSlot, word},
};

/// A report comes at most so long before its slot.
const EARLY_MAX: SignedDuration = SignedDuration::from_hours(1);

/// A slot's row was written.
pub(crate) fn slot_changes(
    book: &Book,
    place: &Place,
    new: &SeenSlot,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(place));
    if [new.state, new.disposition, new.reason, new.opened_by].contains(&"?") {
        return told("S3", format!("a word that nobody knows: {new:?}"));
    }
    if new.is_open() && new.closes_at < new.opened_at {
        return told("S19", format!("it closes before it opens: {new:?}"));
    }
    let Some(old) = book.slots.get(place) else { return first_row(book, place, new, scene) };
    let is_next = new.generation == old.generation + 1;
    match (old.is_open(), new.is_open()) {
        (true, true) if is_next && old.state == "monitoring" => Ok(()),
        (true, _) if new.generation != old.generation => {
            told("S2", format!("an open slot changed its generation: {old:?} → {new:?}"))
        }
        (true, _) if new.version != old.version => {
            told("S16", format!("an open slot changed its version: {old:?} → {new:?}"))
        }
        (true, _) if new.attempt < old.attempt => {
            told("S2", format!("attempts went back: {old:?} → {new:?}"))
        }
        (true, _) if old.is_uncertain && !new.is_uncertain => {
            told("S18", "the mark `uncertain` went away".to_owned())
        }
        (_, _) if old.missed_at.is_some() && new.missed_at.is_none() => {
            told("S11", format!("the mark `missed_at` went away: {old:?} → {new:?}"))
        }
        (false, true) if !is_next => {
            told("S2", format!("opened again as the wrong generation: {old:?} → {new:?}"))
        }
        (false, false) if old.is_missing() => missing_is_decided(old, new)
            .or_else(|message| told("S11", format!("{message}: {old:?} → {new:?}"))),
        // The watchdog says that what was given up was missed.
        (false, false) if old.missed_at.is_none() && is_only_marked(old, new) => Ok(()),
        // A further run of what somebody else runs is a further attempt, and decides nothing.
        (false, false)
            if scene.is_watched(book)
                && (old.disposition, old.attempt + 1) == (new.disposition, new.attempt) =>
        {
            Ok(())
        }
        // One that failed was tried again by whoever runs it, and ended well (ADR 35).
        (false, false)
            if scene.is_watched(book)
                && (old.disposition, new.disposition) == ("failed", "completed")
                && (old.attempt..=old.attempt + 1).contains(&new.attempt) =>
        {
            Ok(())
        }
        (false, false) => {
            told("S11", format!("what was decided was decided again: {old:?} → {new:?}"))
        }
        (true, _) | (false, true) => Ok(()),
    }
}

/// What was missed is over only by a late report, or by catch-up.
fn missing_is_decided(old: &SeenSlot, new: &SeenSlot) -> Result<(), &'static str> {
    match new.disposition {
        "completed" | "failed" if !new.is_late => Err("a miss ended, and not as late"),
        "skipped" if new.missed_at.is_none() => Err("a miss was skipped, and is none any more"),
        "completed" | "failed" | "skipped" => Ok(()),
        disposition if disposition == old.disposition => Ok(()),
        _ => Err("a miss became something else"),
    }
}

/// Whether nothing changed but that it was missed.
fn is_only_marked(old: &SeenSlot, new: &SeenSlot) -> bool {
    let what = |slot: &SeenSlot| (slot.disposition, slot.reason, slot.generation, slot.attempt);
    what(old) == what(new) && matches!(old.reason, "no_catchup" | "expired" | "capped")
}

fn first_row(book: &Book, place: &Place, new: &SeenSlot, scene: &Scene<'_>) -> Result<(), Finding> {
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(place));
    let by_hand = matches!(new.opened_by, "manual" | "webhook" | "backfill");
    if new.is_open() && new.generation == 0 {
        return told("S2", "an open slot of generation 0".to_owned());
    }
    if !by_hand && new.version != book.version {
        return told("S16", "recorded under a version that is not in force".to_owned());
    }
    // Which period it is for was said by a report, which may come before it, or long after.
    let by_report = matches!(new.opened_by, "sensor" | "reconcile");
    if let Some(edited_at) = book.edited_at
        && !by_hand
        && !by_report
        && place.1 < edited_at - scene.jitter(book, &place.0)
        && book.spans_over(&place.0, place.1) == 0
    {
        let message =
            format!("from before the edit at {edited_at}, recorded under what came with it");
        return told("S16", message);
    }
    // A report may come before its slot.
    let early = if new.opened_by == "external" { EARLY_MAX } else { SignedDuration::from_secs(1) };
    let is_due = place.1 <= scene.now + scene.ahead + early;
    if !is_due && !by_report {
        return told("S15", format!("recorded before its time, at {}", scene.now));
    }
    scene.check_promptness(book, place, new)
}

/// A run's row was written.
pub(crate) fn run_changes(
    book: &mut Book,
    key: &RunKey,
    record: &RunRecord,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let place = (key.schedule.clone(), key.nominal);
    let status = word(&record.status);
    let old = book.runs.insert(key.clone(), status);
    let Some(old) = old else { return run_begins(book, key, scene) };
    let is_over = matches!(old, "COMPLETED" | "FAILED" | "CANCELLED");
    if is_over && status != old {
        let message = format!("attempt {} was {old} and is now {status}", key.attempt);
        return Err(Finding::of("S11", message).about(&place));
    }
    Ok(())
}

fn run_begins(book: &Book, key: &RunKey, scene: &Scene<'_>) -> Result<(), Finding> {
    let place = (key.schedule.clone(), key.nominal);
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(&place));
    let Some(slot) = book.slots.get(&place) else {
        return told("S2", "a run of a slot that is not recorded".to_owned());
    };
    if scene.is_watched(book) {
        let is_its_slots = (slot.generation, slot.attempt) == (key.generation, key.attempt);
        let message = format!("a run that is not its slot's: {key:?}, {slot:?}");
        return if is_its_slots { Ok(()) } else { told("S2", message) };
    }
    if (slot.generation, slot.attempt, slot.state) != (key.generation, key.attempt, "running") {
        return told("S2", format!("a run that is not its slot's: {key:?}, {slot:?}"));
    }
    if key.attempt > 1 {
        let before = RunKey { attempt: key.attempt - 1, ..key.clone() };
        return match book.runs.get(&before) {
            Some(&"FAILED") => Ok(()),
            other => told("S2", format!("attempt {} after {other:?}", key.attempt)),
        };
    }
    let taken = book.open_slots().filter(|slot| slot.occupies()).count();
    let most = scene.truth(book.version).map_or(u32::MAX, |truth| truth.active_max);
    if taken > most as usize {
        return told("S6", format!("{taken} runs at once, and {most} are allowed"));
    }
    super::backfills::run_begins(book, &place, slot)?;
    scene.check_readiness(book, &place, slot)
}

/// After the group: what is called completed was completed by its run.
pub(crate) fn slot_is_backed(book: &Book, place: &Place, scene: &Scene<'_>) -> Result<(), Finding> {
    let Some(slot) = book.slots.get(place) else { return Ok(()) };
    if slot.disposition != "completed" || slot.generation == 0 {
        return Ok(());
    }
    if scene.is_watched(book) {
        return super::reports::is_backed(book, place, slot, scene);
    }
    let key = RunKey {
        schedule: place.0.clone(),
        nominal: place.1,
        generation: slot.generation,
        attempt: slot.attempt,
    };
    let told = |message: String| Err(Finding::of("S11", message).about(place));
    if book.runs.get(&key) != Some(&"COMPLETED") {
        return told(format!("completed, but its run is {:?}", book.runs.get(&key)));
    }
    let run_id = key.id(scene.pipeline);
    if scene.by_hand.contains(&run_id) || scene.jobs.ended_well(&run_id) == Some(true) {
        return Ok(());
    }
    told(format!("completed, and its job says: {}", scene.jobs.story(&run_id)))
}

/// The instant of the latest slot that a schedule's clock could have shown.
pub(crate) fn is_control(schedule: &ScheduleId) -> bool {
    matches!(schedule.as_str(), "stop" | "restart")
}

/// Whether a slot lies in a pause.
pub(crate) fn lies_in_pause(book: &Book, at: Timestamp) -> bool {
    book.pause.as_ref().is_some_and(|pause| pause.all().any(|it| it.covers(at)))
}
