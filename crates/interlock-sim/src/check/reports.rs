//! Jobs that somebody else runs: "missed" only if somebody listened all the time (S10); what was said decides its slot and
//! no other, and nothing that was taken is lost (S11).

use std::collections::BTreeMap;

use interlock_core::id::PipelineId;
use interlock_store::RunKey;
use jiff::{SignedDuration, Timestamp};

use super::{
    Finding, Scene,
    book::{Book, Place, SeenSlot, SeenSpan},
};

/// Without a report by then a slot is missed: the default, which the files do not change.
const GRACE: SignedDuration = SignedDuration::from_mins(5);
/// A break of this length cannot be told from the pace at which listeners speak up.
const DEAF_AFTER: SignedDuration = SignedDuration::from_secs(16);
/// How long a report may wait to be applied when nothing goes wrong.
const APPLIED_IN: SignedDuration = SignedDuration::from_mins(10);

/// What was said, and who listened.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// By pipeline and slot: the words, and when each was durable.
    said: BTreeMap<(PipelineId, Timestamp), Vec<(String, Timestamp)>>,
    /// When somebody listened, by the beginning: stretches that touch are one.
    listened: BTreeMap<Timestamp, Timestamp>,
}

impl Reports {
    pub(crate) fn said(
        &mut self,
        pipeline: &PipelineId,
        slot: Timestamp,
        (said, at): (&str, Timestamp),
    ) {
        self.said.entry((pipeline.clone(), slot)).or_default().push((said.to_owned(), at));
    }

    pub(crate) fn listened(&mut self, (since, until): (Timestamp, Timestamp)) {
        let end = self.listened.entry(since).or_insert(until);
        *end = until.max(*end);
    }

    pub(crate) fn forget_before(&mut self, before: Timestamp) {
        self.said.retain(|(_, slot), _| *slot >= before);
        self.listened.retain(|_, until| *until >= before);
    }

    /// The first break in listening between two instants. Before anybody ever listened, commands are the only way.
    fn deaf_between(&self, from: Timestamp, until: Timestamp) -> Option<(Timestamp, Timestamp)> {
        let first = *self.listened.first_key_value()?.0;
        let mut heard = first;
        for (since, end) in &self.listened {
            let is_break = since.duration_since(heard) > DEAF_AFTER;
            if is_break && heard < until && *since > from {
                return Some((heard, *since));
            }
            heard = heard.max(*end);
        }
        (until.duration_since(heard) > DEAF_AFTER).then_some((heard, until))
    }

    /// When the world has been calm for long enough, every report that was taken is in the ledger.
    pub(crate) fn are_heard(
        &self,
        pipeline: &PipelineId,
        book: &Book,
        now: Timestamp,
    ) -> Result<(), Finding> {
        let theirs = self.said.iter().filter(|((name, _), _)| name == pipeline);
        for ((_, slot), said) in theirs {
            let ends = said.iter().filter(|(said, at)| said != "start" && *at + APPLIED_IN < now);
            let Some((word, at)) = ends.clone().next() else { continue };
            let found = book.slots.iter().find(|((_, nominal), _)| nominal == slot);
            let is_decided = match found {
                Some((_, row)) => {
                    !row.is_open() && !matches!(row.disposition, "missed" | "unknown")
                }
                // Before its first sight nothing was owed.
                None => !book.spans.iter().any(|((_, first), span)| {
                    (*first..=span.last).contains(slot) && span.disposition != "skipped"
                }),
            };
            if !is_decided {
                let row = found.map(|(_, row)| row);
                let message =
                    format!("`{word}` was taken at {at}, and nothing came of it: {row:?}");
                let schedule = book.watermarks.keys().next().cloned();
                let finding = Finding::of("S11", message);
                return Err(match schedule {
                    Some(schedule) => finding.about(&(schedule, *slot)),
                    None => finding,
                });
            }
        }
        Ok(())
    }
}

/// S10: a slot is called missed only if somebody could have heard of it all the time.
pub(crate) fn slot_is_called(
    book: &Book,
    place: &Place,
    new: &SeenSlot,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let was_missed = book.slots.get(place).is_some_and(|old| old.disposition == "missed");
    if new.disposition != "missed" || was_missed || !scene.is_watched(book) {
        return Ok(());
    }
    could_see(place, place.1, scene)
}

/// The same of many.
pub(crate) fn span_is_called(
    book: &Book,
    place: &Place,
    span: &SeenSpan,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    if span.disposition != "missed" || !scene.is_watched(book) {
        return Ok(());
    }
    could_see(place, span.last, scene)
}

fn could_see(place: &Place, last: Timestamp, scene: &Scene<'_>) -> Result<(), Finding> {
    match scene.reports.deaf_between(place.1, last + GRACE) {
        None => Ok(()),
        Some((from, until)) => {
            let message =
                format!("it was called missed, and nobody listened from {from} to {until}");
            Err(Finding::of("S10", message).about(place))
        }
    }
}

/// S11: what is called completed has a run that completed, and somebody said so of this very slot.
pub(crate) fn is_backed(
    book: &Book,
    place: &Place,
    slot: &SeenSlot,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let told = |message: String| Err(Finding::of("S11", message).about(place));
    let runs = (1..=slot.attempt).map(|attempt| RunKey {
        schedule: place.0.clone(),
        nominal: place.1,
        generation: slot.generation,
        attempt,
    });
    let completed: Vec<_> = runs.filter(|key| book.runs.get(key) == Some(&"COMPLETED")).collect();
    if completed.is_empty() {
        return told(format!("completed, and none of its runs is: {slot:?}"));
    }
    if completed.iter().any(|key| scene.by_hand.contains(&key.id(scene.pipeline))) {
        return Ok(());
    }
    let said = scene.reports.said.get(&(scene.pipeline.clone(), place.1));
    if said.is_some_and(|said| said.iter().any(|(word, _)| word == "success")) {
        return Ok(());
    }
    told(format!("completed, and its job said: {said:?}"))
}
