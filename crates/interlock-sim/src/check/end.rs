//! After the faults: everything that can end has ended (L2, L4).

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use super::{
    Checker, Finding, SETTLING, absence, alerts::OnItsWay, arrivals, backfills, book::Book,
    owed::pattern_of,
};
use crate::{naive, truth::Truth};

/// How long after the end of its time an open slot may still be open: the owner waits a minute for a watchdog.
const MERCY: SignedDuration = SignedDuration::from_mins(3);
/// How long it may take to tell what flaps: ten minutes it has to last, and as long is granted for the way.
const TOLD_IN: SignedDuration = SignedDuration::from_mins(20);
/// How long after its instant a slot may be unrecorded when everything is over.
const LAG: SignedDuration = SignedDuration::from_mins(2);

impl Checker {
    /// Judges what is left when the world has been calm for long enough.
    pub fn conclude(&mut self) {
        if self.alerts.resolved() > 0 {
            self.luck.saw("incident resolved");
        }
        let now = self.clockwork.time();
        let names: Vec<PipelineId> = self.books.keys().cloned().collect();
        for name in names {
            let Some(book) = self.books.get(&name) else { continue };
            if let Err(finding) = self.pipeline_has_ended(&name, book, now) {
                return self.found(&name, finding);
            }
        }
        // Jobs hang and fail when everything is calm too (L3 is judged by those), so that there is always something new. How long
        // it is on its way counts from when it was made, whatever it became since.
        let is_late = |(_, way): &(&_, &OnItsWay)| way.since + TOLD_IN < now;
        let waiting = self.alerts.on_their_way().find(is_late);
        let waiting = waiting.map(|(place, way)| {
            let OnItsWay { channel, since, .. } = way;
            (place.0.clone(), format!("{} on `{channel}` is on its way since {since}", place.1))
        });
        if let Some((pipeline, message)) = waiting
            && let Ok(pipeline) = PipelineId::any(&pipeline)
        {
            self.found(&pipeline, Finding::of("L4", message));
        }
    }

    fn pipeline_has_ended(
        &self,
        name: &PipelineId,
        book: &Book,
        now: Timestamp,
    ) -> Result<(), Finding> {
        for (place, slot) in book.slots.iter().filter(|(_, slot)| slot.is_open()) {
            if slot.closes_at + MERCY < now {
                let message = format!("still {} after its time: {slot:?}", slot.state);
                return Err(Finding::of("L2", message).about(place));
            }
        }
        self.reports.are_heard(name, book, now)?;
        backfills::have_ended(book)?;
        if book.is_retired || book.is_disabled || book.is_paused(now) {
            return Ok(());
        }
        let Some(truth) = self.files.truth_of(name, book.version) else { return Ok(()) };
        for (schedule, watermark) in &book.watermarks {
            let pattern = pattern_of(&truth, schedule).filter(|it| it.is_by_clock());
            let Some(pattern) = pattern else { continue };
            let left = naive::slots(&truth, pattern, *watermark, now - LAG);
            if let Some(first) = left.first() {
                let message = format!("{} slots are not recorded", left.len());
                return Err(Finding::of("L2", message).about(&(schedule.clone(), *first)));
            }
        }
        arrivals::have_their_slots(book, &truth, now)?;
        for (key, began) in &book.under_way {
            absence::is_told(book, (key, *began), self.calm_since, now)?;
        }
        self.absence_is_told(&truth, book, now)
    }

    /// L3: of what somebody else runs every slot of the calm is decided, by its report or without one.
    fn absence_is_told(&self, truth: &Truth, book: &Book, now: Timestamp) -> Result<(), Finding> {
        let Some(since) = self.calm_since.filter(|_| truth.is_watched()) else { return Ok(()) };
        let over = now - absence::GRACE - absence::TOLD_WITHIN;
        for schedule in book.watermarks.keys() {
            let Some(pattern) = pattern_of(truth, schedule) else { continue };
            for slot in naive::slots(truth, pattern, since + SETTLING, over) {
                let place = (schedule.clone(), slot);
                let row = book.slots.get(&place);
                if row.is_none_or(|row| row.is_open() && row.state == "waiting") {
                    let message = format!("nobody reported, and nobody was told: {row:?}");
                    return Err(Finding::of("L3", message).about(&place));
                }
            }
        }
        Ok(())
    }
}
