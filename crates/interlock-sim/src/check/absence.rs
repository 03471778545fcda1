//! What did not happen: "missed" is said in time and not before it (S10, L3), and a run that does not end is told (L3).

use interlock_store::{
    RunKey,
    record::{EventRecord, RunRecord},
};
use jiff::{SignedDuration, Timestamp};

use super::{
    Finding, SETTLING, Scene,
    book::{Book, Place, SeenSlot, word},
    slots::lies_in_pause,
};

/// Without a report, or a row, by then a slot is missed: the default, which the files do not change.
pub(crate) const GRACE: SignedDuration = SignedDuration::from_mins(5);
/// Half a second is waited for what is on its way into the store; the other second is L3's.
pub(crate) const TOLD_WITHIN: SignedDuration = SignedDuration::from_millis(1_500);
/// A run that takes longer is stuck: the default.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(30);

/// A slot is called missed, or unknown.
pub(crate) fn slot_is_called(
    book: &Book,
    place: &Place,
    new: &SeenSlot,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let was_missing = book.slots.get(place).is_some_and(SeenSlot::is_missing);
    if !new.is_missing() || was_missing {
        return Ok(());
    }
    let told = |invariant, message: String| Err(Finding::of(invariant, message).about(place));
    let limit = limit(book, place, scene);
    if scene.now + scene.ahead < limit {
        return told("S10", format!("called {} before {limit}", new.disposition));
    }
    if lies_in_pause(book, place.1) && book.is_paused(scene.now + scene.ahead) {
        return told("S14", format!("called {} in a pause", new.disposition));
    }
    let is_calm = scene.calm_since.is_some_and(|since| place.1 > since + SETTLING);
    if is_calm && scene.now > limit + scene.jitter(book, &place.0) + TOLD_WITHIN {
        return told("L3", format!("its time was over at {limit}, and it is {}", scene.now));
    }
    Ok(())
}

/// By when something must have been recorded of a slot; with jitter up to that much later.
fn limit(book: &Book, place: &Place, scene: &Scene<'_>) -> Timestamp {
    let truth = scene.truth(book.version);
    let live = truth.filter(|truth| !truth.is_watched()).map_or(SignedDuration::ZERO, |truth| {
        SignedDuration::from_mins(i64::from(truth.start_grace_minutes))
    });
    place.1 + GRACE.max(live)
}

/// An event was appended.
pub(crate) fn happened(book: &mut Book, event: &EventRecord, saw: &mut Vec<&'static str>) {
    let name = match event.kind.as_str() {
        "RUN_STUCK" => {
            let run = event.run_id.as_deref().and_then(|id| RunKey::parse(id).ok());
            book.stuck.extend(run.map(|(_, key)| key));
            "run stuck"
        }
        "SFN_TIMEOUT" => "run timed out",
        "SCHEDULE_MISSED" => "miss told",
        "SCHEDULE_UNKNOWN" => "blindness told",
        "CLOCK_JUMP" => "clock not believed",
        "PIPELINE_PAUSED" if event.details.contains_key("check") => "pause too long",
        "INVARIANT_BROKEN" => "scanner complained",
        _ => return,
    };
    saw.push(name);
}

/// A run's row was written: one that ends must have been told of if it took too long.
pub(crate) fn run_changes(
    book: &mut Book,
    key: &RunKey,
    record: &RunRecord,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    if matches!(word(&record.status), "PENDING" | "TRIGGERING" | "RUNNING") {
        book.under_way.insert(key.clone(), record.created_at);
        return Ok(());
    }
    let began = book.under_way.remove(key);
    began.map_or(Ok(()), |began| is_told(book, (key, began), scene.calm_since, scene.now))
}

/// L3: in calm weather a run that takes too long is told of in time.
pub(crate) fn is_told(
    book: &Book,
    (key, began): (&RunKey, Timestamp),
    calm_since: Option<Timestamp>,
    now: Timestamp,
) -> Result<(), Finding> {
    let is_calm = calm_since.is_some_and(|since| began > since + SETTLING);
    let is_late = now > began + STUCK_AFTER + TOLD_WITHIN;
    if !is_calm || !is_late || book.stuck.contains(key) || book.is_disabled {
        return Ok(());
    }
    let message = format!("attempt {} runs since {began}, and nobody was told", key.attempt);
    Err(Finding::of("L3", message).about(&(key.schedule.clone(), key.nominal)))
}
