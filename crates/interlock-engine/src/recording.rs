//! A plan of owed slots, turned into groups.
//!
//! A group holds about twenty rows of one schedule, the watermark that moves over exactly those (S4), and an
//! event for each kind of fate. The portions of a plan are recorded in their order, which is what makes a death
//! between any two groups harmless.

use interlock_core::{
    agenda::Agenda,
    catchup::{Gap, Plan, Portion, Step, Stretch},
    id::{PipelineId, ScheduleId},
    pipeline::StartSchedule,
    run::TriggerType,
    slot::{Disposition, OpenState, SkipReason, Slot},
};
use interlock_store::{
    CHANGES_MAX, Key, Record, Writer,
    record::{SpanRecord, version_text},
};
use jiff::Timestamp;

use crate::{
    gap::Ahead,
    scheduler::{Opener, plus},
    step::QUEUE_MAX,
    write::{Event, Planned},
};

/// Slots in one group, beside the watermark and events.
const SLOTS_PER_GROUP: usize = 20;

/// What recording a plan needs beside it.
pub(crate) struct Recording<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) agenda: &'a Agenda,
    pub(crate) ahead: &'a Ahead,
    pub(crate) version: u64,
    pub(crate) now: Timestamp,
    pub(crate) writer: Writer,
}

/// The groups of one schedule, as far as they are put together.
struct Groups<'a> {
    recording: &'a Recording<'a>,
    start: &'a StartSchedule,
    /// The revision of its watermark.
    revision: u64,
    done: Vec<Planned>,
    open: Planned,
    /// The last slot that the open group records.
    until: Option<Timestamp>,
}

impl Recording<'_> {
    /// The groups of a plan, at most so many: the rest is planned again from where these end.
    pub(crate) fn groups(
        &self,
        (gap, plan): (&Gap<'_>, &Plan),
        revisions: &[u64],
        max: usize,
    ) -> Vec<Planned> {
        let mut revisions = revisions.to_vec();
        let mut all: Vec<Planned> = Vec::new();
        for portion in &plan.portions {
            let (Some(owed), Some(revision)) =
                (gap.owed.get(portion.owed), revisions.get_mut(portion.owed))
            else {
                continue;
            };
            let mut groups = Groups {
                recording: self,
                start: owed.start,
                revision: *revision,
                done: vec![],
                open: Planned::new(self.pipeline, self.writer),
                until: None,
            };
            groups.record(portion, max - all.len());
            *revision = groups.revision;
            all.append(&mut groups.done);
            if all.len() >= max {
                break;
            }
        }
        let counts = plan.counts();
        if let Some(first) = all.first_mut()
            && counts.missed() > 0
        {
            let skipped =
                counts.skipped.iter().map(|(why, count)| format!("{count} {}", why.as_str()));
            let skipped = skipped.collect::<Vec<_>>().join(", ");
            let policy = gap.catchup.overlap.as_str();
            let message = format!(
                "{} slots were missed: {} run ({policy}); skipped: {}",
                counts.missed(),
                counts.run,
                if skipped.is_empty() { "none" } else { &skipped },
            );
            let event = Event::of("CATCHUP_PLANNED", self.now, message);
            first.event(event.detail("missed", counts.missed()).detail("run", counts.run));
        }
        all
    }
}

impl Groups<'_> {
    fn record(&mut self, portion: &Portion, max: usize) {
        for step in &portion.steps {
            match step {
                Step::Live(slots) => self.in_chunks(slots, max, Self::live),
                Step::Open(slots) => self.in_chunks(slots, max, Self::queue),
                Step::Skip(stretch) => self.skip(*stretch),
                Step::Close(slot, reason) => self.close(*slot, *reason),
            }
            if self.done.len() >= max {
                // The open group is not among them; whatever it holds comes with the next plan.
                return;
            }
        }
        // Slots that stood there already are behind the watermark now.
        self.until = portion.watermark.and(portion.watermark.max(self.until));
        self.flush();
    }

    fn in_chunks(
        &mut self,
        slots: &[Timestamp],
        max: usize,
        record: impl Fn(&mut Self, &[Timestamp]),
    ) {
        for chunk in slots.chunks(SLOTS_PER_GROUP / self.rows_per_slot()) {
            if self.done.len() < max {
                record(self, chunk);
            }
        }
    }

    /// Makes room for so many changes beside the watermark and the plan's own event.
    fn room_for(&mut self, changes: usize) {
        if self.open.group.changes.len() + changes + 2 > CHANGES_MAX {
            self.flush();
        }
    }

    fn flush(&mut self) {
        let fresh = Planned::new(self.recording.pipeline, self.recording.writer);
        let mut group = std::mem::replace(&mut self.open, fresh);
        if let Some(until) = self.until.take() {
            group.watermark(self.start.schedule.id(), self.revision, until);
            self.revision += 1;
        }
        if !group.group.changes.is_empty() {
            self.done.push(group);
        }
    }

    /// A slot that promises its end has an entry in the due index.
    fn rows_per_slot(&self) -> usize {
        let sla = self.recording.agenda.sla.as_deref();
        if sla.is_some_and(|sla| sla.completion.is_some()) { 2 } else { 1 }
    }

    fn live(&mut self, slots: &[Timestamp]) {
        self.room_for(slots.len() * self.rows_per_slot() + 1);
        let now = self.recording.now;
        self.open_all(slots, TriggerType::Scheduler);
        if let [only] = slots {
            let place = (*only, self.id());
            let event = Event::of("SLOT_OPENED", now, "the schedule owes it");
            self.open.event(event.about(&place));
        } else if let [first, .., last] = slots {
            let message = format!("{} slots from {first} to {last}", slots.len());
            self.open.event(Event::of("SLOTS_OPENED", now, message));
        }
    }

    fn queue(&mut self, slots: &[Timestamp]) {
        self.room_for(slots.len() + 1);
        self.open_all(slots, TriggerType::Catchup);
        let (Some(first), Some(last)) = (slots.first(), slots.last()) else { return };
        let message = match slots {
            [only] => format!("{}/{only} was missed and is caught up", self.id()),
            _ => format!(
                "{} slots of {} from {first} to {last} were missed and are caught up",
                slots.len(),
                self.id()
            ),
        };
        let event = Event::of("CATCHUP_QUEUED", self.recording.now, message);
        self.open.event(event.detail("count", slots.len() as u64));
    }

    fn open_all(&mut self, slots: &[Timestamp], opened_by: TriggerType) {
        for nominal in slots {
            let place = (*nominal, self.id());
            let mut slot = self.opener().open(*nominal, opened_by);
            let mut revision = 0;
            if opened_by == TriggerType::Catchup {
                slot = queued(slot, self.recording.now);
                slot.marks.missed_at = self.recording.ahead.missed_at(&place);
            }
            if let Some((before, known)) = self.recording.ahead.slots.get(&place) {
                slot.generation = before.generation + 1;
                slot.marks = before.marks;
                slot.reruns.clone_from(&before.reruns);
                revision = *known;
            }
            self.open.slot(&place, revision, &slot);
            self.open.will_complete(&place, &slot, self.recording.now);
            self.until = Some(*nominal);
        }
    }

    fn skip(&mut self, stretch: Stretch) {
        self.room_for(2);
        let Stretch { first, last, count, reason } = stretch;
        let (id, now) = (self.id(), self.recording.now);
        let disposition = Disposition::Skipped(reason);
        if count == 1 {
            let opening = self.opener().opening(first, TriggerType::Scheduler);
            self.open.slot(&(first, id.clone()), 0, &Slot::decided(disposition, opening));
        } else {
            let span = SpanRecord {
                last,
                count,
                disposition: disposition.as_str().to_owned(),
                reason: Some(reason.as_str().to_owned()),
                version: version_text(self.recording.version),
                recorded_at: now,
            };
            self.open.put(Key::Span(id.clone(), first), 0, Record::Span(span));
        }
        self.until = Some(last);
        let kind = if reason.counts_as_missed() { "SLOTS_MISSED" } else { "SLOTS_SKIPPED" };
        let what = match count {
            1 => format!("{id}/{first} was missed and does not run"),
            _ => format!("{count} slots of {id} from {first} to {last} were missed and do not run"),
        };
        let message = format!("{what} ({})", reason.as_str());
        let event = Event::of(kind, now, message).detail("count", count);
        self.open.event(event.detail("reason", reason.as_str()));
    }

    /// What the watchdog called missed keeps that mark and gets its reason.
    fn close(&mut self, nominal: Timestamp, reason: SkipReason) {
        let place = (nominal, self.id());
        let Some((slot, revision)) = self.recording.ahead.slots.get(&place) else { return };
        let Ok(slot) = slot.close(Disposition::Skipped(reason), self.recording.now) else { return };
        self.room_for(2);
        self.open.slot(&place, *revision, &slot);
        let message = format!("skipped({})", reason.as_str());
        self.open.event(Event::of("SLOT_SKIPPED", self.recording.now, message).about(&place));
    }

    fn id(&self) -> ScheduleId {
        self.start.schedule.id().clone()
    }

    fn opener(&self) -> Opener<'_> {
        let Recording { agenda, version, now, .. } = self.recording;
        Opener { agenda, start: self.start, version: *version, now: *now }
    }
}

/// A slot that waits for its turn.
fn queued(slot: Slot, now: Timestamp) -> Slot {
    slot.advance(OpenState::Queued, plus(now, QUEUE_MAX)).unwrap_or(slot)
}
