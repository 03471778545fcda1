//! One group of a backfill, as it is put together.

use std::sync::Arc;

use interlock_core::{
    agenda::Agenda,
    backfill::{Fingerprint, Place, State, Verdict},
    id::PipelineId,
    pipeline::Pipeline,
    run::TriggerType,
    slot::{Slot, Wish},
    text::counted,
};
use interlock_store::record::{
    BackfillCounts, BackfillRecord, BackfillSlot, SlotName, version_number, version_text,
};
use jiff::Timestamp;

use super::event;
use crate::{
    prospect::Portion,
    rerun::OUT_OF_TURN_WINDOW,
    scheduler::{Opener, plus},
    write::{Event, Planned},
};

/// One change of a backfill, as it is put together.
pub(super) struct Step<'a> {
    pub(super) pipeline: &'a PipelineId,
    pub(super) number: u64,
    pub(super) before: BackfillRecord,
    pub(super) record: BackfillRecord,
    pub(super) now: Timestamp,
    pub(super) plan: Planned,
}

impl Step<'_> {
    /// Opens the slots of a portion that run, up to so many, and moves the cursor over what was judged.
    pub(super) fn take(
        &mut self,
        portion: &Portion,
        (spec, version): (&Arc<Pipeline>, u64),
        room: usize,
    ) -> Vec<Place> {
        let agenda = Agenda::of(spec);
        let mut opened = Vec::new();
        for (place, verdict) in &portion.slots {
            match verdict {
                Verdict::Owed => break,
                Verdict::Run if opened.len() == room => break,
                Verdict::Run => {
                    let start = spec.starts.iter().find(|start| *start.schedule.id() == place.1);
                    let Some(start) = start else { continue };
                    let opener = Opener { agenda: &agenda, start, version, now: self.now };
                    self.open(place, portion, &opener);
                    opened.push(place.clone());
                }
                Verdict::Exists(_) | Verdict::Open(_) => self.record.counts.passed += 1,
            }
            let name = SlotName { schedule: place.1.to_string(), nominal: place.0 };
            self.record.cursor = Some(name);
        }
        opened
    }

    fn open(&mut self, place: &Place, portion: &Portion, opener: &Opener<'_>) {
        let window = opener.agenda.evaluation.window.unwrap_or(OUT_OF_TURN_WINDOW);
        let closes_at = plus(self.now, window);
        let mut slot = opener.open(place.0, TriggerType::Backfill);
        let mut revision = 0;
        if let Some((known, known_revision)) = portion.rows.get(place) {
            slot.generation = known.generation + 1;
            slot.marks = known.inherited_marks();
            slot.reruns.clone_from(&known.reruns);
            revision = *known_revision;
        } else {
            slot.marks.missed_at = portion.missed_at(place);
        }
        let reason = Some(self.record.reason.clone()).filter(|reason| !reason.is_empty());
        let (backfill, before) = (Some(self.number), portion.ledger.before(place));
        slot.wish = Some(Box::new(Wish { reason, backfill, before, ..Wish::default() }));
        let slot = Slot { closes_at, ..slot };
        self.plan.slot(place, revision, &slot);
        let message = format!("backfill {}, generation {}", self.number, slot.generation);
        self.plan.event(Event::of("SLOT_OPENED", self.now, message).about(place));
        let (nominal, schedule) = (place.0, place.1.to_string());
        self.record.open.push(BackfillSlot { schedule, nominal, generation: slot.generation });
        self.record.counts.opened += 1;
        let opened = version_number(&self.record.opened)
            .map_or_else(|_| Fingerprint::default(), Fingerprint);
        self.record.opened = version_text(opened.with(place).0);
    }

    /// It is over.
    pub(super) fn end(&mut self, state: State, why: &str) {
        state.as_str().clone_into(&mut self.record.state);
        self.record.ended_at = Some(self.now);
        let (kind, message) = match state {
            State::Done => ("BACKFILL_DONE", self.sum()),
            State::Running | State::Paused | State::Cancelled => {
                ("BACKFILL_CANCELLED", format!("backfill {}: {why}", self.number))
            }
        };
        let event = event(kind, self.now, message, (self.number, &self.record));
        let is_as_planned = self.record.opened == self.record.plan;
        self.plan.event(event.detail("asPlanned", is_as_planned));
    }

    fn sum(&self) -> String {
        let BackfillCounts { opened, completed, failed, cancelled, skipped, .. } =
            self.record.counts;
        let surprise = if opened != self.record.total {
            let verb = if self.record.total == 1 { "was" } else { "were" };
            format!("; {} {verb} planned", self.record.total)
        } else if self.record.opened != self.record.plan {
            "; not the slots that were planned".to_owned()
        } else {
            String::new()
        };
        format!(
            "backfill {}: {}, {completed} completed, {failed} failed, {cancelled} cancelled, \
             {skipped} skipped{surprise}",
            self.number,
            counted(opened, "slot"),
        )
    }
}
