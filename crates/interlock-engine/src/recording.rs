//! A plan of owed slots, turned into groups.
//!
//! A group holds about twenty rows of one schedule, the watermark that moves over exactly those (S4), and an
//! event for each kind of fate. The portions of a plan are recorded in their order, which is what makes a death
//! between any two groups harmless.

use interlock_core::{
    agenda::Agenda,
    catchup::{Fate, Gap, Plan, Portion, Step, Stretch, Wish},
    id::{PipelineId, ScheduleId},
    pipeline::StartSchedule,
    run::TriggerType,
    schedule::Recurrence,
    slot::{self, Disposition, OpenState, SkipReason, Slot},
    text::counted,
};
use interlock_store::{
    CHANGES_MAX, Key, Record, Writer,
    record::{SpanRecord, version_text},
};
use jiff::Timestamp;

use crate::{
    gap::Ahead,
    progress::Rest,
    scheduler::{Opener, Opening, plus},
    step::QUEUE_MAX,
    write::{Event, Planned},
};

/// The event of slots that were missed and run all the same.
pub(crate) const CATCHUP_QUEUED: &str = "CATCHUP_QUEUED";

/// What such an event says if the pipeline starts no jobs.
pub(crate) const DRY_RUN: &str = "dryRun";

/// Slots in one group, beside the watermark and events.
const SLOTS_PER_GROUP: usize = 20;

/// What recording a plan needs beside it.
pub(crate) struct Recording<'a> {
    pub(crate) pipeline: &'a PipelineId,
    pub(crate) agenda: &'a Agenda,
    pub(crate) ahead: &'a Ahead,
    /// Times in which no report could have reached anybody.
    pub(crate) deaf: &'a [(Timestamp, Timestamp)],
    /// Up to when a recovered ledger does not know what ran.
    pub(crate) uncertain_until: Option<Timestamp>,
    pub(crate) version: u64,
    pub(crate) now: Timestamp,
    pub(crate) writer: Writer,
    /// Of what this plan is the rest, if some of it was recorded before.
    pub(crate) rest_of: Option<Rest>,
}

/// The groups of one schedule, as far as they are put together.
struct Groups<'a> {
    recording: &'a Recording<'a>,
    start: &'a StartSchedule,
    /// What somebody asked for about its slots.
    wish: Option<Wish>,
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
    ) -> Opening {
        let mut revisions = revisions.to_vec();
        let mut all: Vec<Planned> = Vec::new();
        let mut rest = plan.is_cut_off.then_some(Rest::OfDowntime);
        for portion in &plan.portions {
            let (Some(owed), Some(revision)) =
                (gap.owed.get(portion.owed), revisions.get_mut(portion.owed))
            else {
                continue;
            };
            let mut groups = Groups {
                recording: self,
                start: owed.start,
                wish: plan.wish,
                revision: *revision,
                done: vec![],
                open: Planned::new(self.pipeline, self.writer),
                until: None,
            };
            let is_whole = groups.record(portion, max.saturating_sub(all.len()));
            *revision = groups.revision;
            all.append(&mut groups.done);
            if !is_whole {
                rest = Some(Rest::OfPlan);
                break;
            }
        }
        if let Some(first) = all.first_mut() {
            self.tell(first, (gap, plan));
        }
        Opening { groups: all, rest }
    }

    /// Says what becomes of what was missed, once for each plan.
    fn tell(&self, first: &mut Planned, (gap, plan): (&Gap<'_>, &Plan)) {
        let counts = plan.counts();
        let is_catchup = counts.skipped.keys().any(|reason| *reason != SkipReason::Retired)
            || counts.run > 0
            || !counts.unreported.is_empty();
        if !is_catchup || self.rest_of == Some(Rest::OfPlan) {
            return;
        }
        let missed = counts.missed();
        let skipped = counts.skipped.iter().map(|(why, count)| (why.as_str(), count));
        let unreported = counts.unreported.iter().map(|(word, count)| (*word, count));
        let skipped = skipped.chain(unreported).map(|(why, count)| format!("{count} {why}"));
        let skipped = skipped.collect::<Vec<_>>().join(", ");
        let policy = plan.wish.map_or(gap.catchup.overlap.as_str(), Wish::as_str);
        let noun = if self.rest_of.is_some() { "more slot" } else { "slot" };
        let run = self.outcome(counts.run);
        let message = format!(
            "{} {} missed: {} {run} ({policy}); skipped: {}{}",
            counted(missed, noun),
            if missed == 1 { "was" } else { "were" },
            counts.run,
            if skipped.is_empty() { "none" } else { &skipped },
            already_recorded(plan.already_recorded),
        );
        let run = if self.agenda.is_rehearsal { "wouldRun" } else { "run" };
        let event = Event::of("CATCHUP_PLANNED", self.now, message).detail("policy", policy);
        let event = event.detail("missed", missed).detail(run, counts.run);
        first.event(event.detail("alreadyRecorded", plan.already_recorded));
        // It comes before what it is the reason of.
        first.group.changes.rotate_right(1);
    }

    /// What so many slots do that are caught up.
    fn outcome(&self, count: u64) -> &'static str {
        match count {
            _ if self.agenda.is_rehearsal => "would run",
            1 => "runs",
            _ => "run",
        }
    }
}

/// What is said of slots that ran before this plan, by hand or by a backfill.
fn already_recorded(count: u64) -> String {
    match count {
        0 => String::new(),
        count => format!("; not run again, because recorded already: {count}"),
    }
}

impl Groups<'_> {
    /// Puts together at most so many groups; answers whether that was all.
    fn record(&mut self, portion: &Portion, max: usize) -> bool {
        for step in &portion.steps {
            if self.done.len() >= max {
                return false;
            }
            match step {
                Step::Live(slots) => self.in_chunks(slots, max, Self::live),
                Step::Open(slots) => self.in_chunks(slots, max, Self::queue),
                Step::Skip(stretch) => self.skip(*stretch),
                Step::Close(slot, reason) => self.close(*slot, *reason),
            }
        }
        if self.done.len() >= max && !self.open.group.changes.is_empty() {
            // The open group is not among them; whatever it holds comes with the next plan.
            return false;
        }
        // Slots that stood there already are behind the watermark now.
        self.until = portion.watermark.and(portion.watermark.max(self.until));
        self.flush();
        true
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
            let event = Event::of("SLOT_OPENED", now, "due by its schedule");
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
        let (id, count) = (self.id(), slots.len() as u64);
        let (first, last) = (first.to_string(), last.to_string());
        let is_rehearsal = self.recording.agenda.is_rehearsal;
        let message = caught_up(id.as_str(), (&first, &last), (count, is_rehearsal));
        let event = Event::of(CATCHUP_QUEUED, self.recording.now, message).detail("count", count);
        let event = if is_rehearsal { event.detail(DRY_RUN, true) } else { event };
        let event = event.detail("schedule", id.as_str()).detail("first", first);
        self.open.event(event.detail("last", last));
    }

    fn open_all(&mut self, slots: &[Timestamp], opened_by: TriggerType) {
        for nominal in slots {
            let place = (*nominal, self.id());
            let mut slot = opened(&self.opener(), *nominal, (opened_by, self.wish));
            let mut revision = 0;
            if opened_by == TriggerType::Catchup {
                slot.marks.missed_at = self.recording.ahead.missed_at(&place);
            }
            if let Some((before, known)) = self.recording.ahead.slots.get(&place) {
                slot.generation = before.generation + 1;
                slot.marks = before.inherited_marks();
                slot.reruns.clone_from(&before.reruns);
                revision = *known;
            }
            self.open.slot(&place, revision, &slot);
            self.open.will_complete(&place, &slot, self.recording.now);
            self.until = Some(*nominal);
        }
    }

    fn skip(&mut self, stretch: Stretch) {
        let Stretch { first, last, count, fate } = stretch;
        // What follows from it for people is added to its group.
        let is_told = !matches!(fate, Fate::Skipped(reason) if reason != SkipReason::NoSensor);
        if is_told {
            self.flush();
        } else {
            self.room_for(2);
        }
        let (id, now) = (self.id(), self.recording.now);
        let disposition = fate.disposition();
        if count == 1 {
            let opening = self.opener().opening(first, TriggerType::Scheduler);
            self.open.slot(&(first, id.clone()), 0, &Slot::decided(disposition, opening));
        } else {
            let reason = match fate {
                Fate::Skipped(reason) => Some(reason.as_str().into()),
                Fate::Missed | Fate::Unknown => None,
            };
            let span = SpanRecord {
                last,
                count,
                disposition: disposition.as_str().into(),
                reason,
                version: version_text(self.recording.version),
                recorded_at: now,
            };
            self.open.put(Key::Span(id.clone(), first), 0, Record::Span(span.into()));
        }
        self.until = Some(last);
        let what = match count {
            1 => format!("{id}/{first}"),
            _ => format!("{count} slots of {id} from {first} to {last}"),
        };
        let place = (last, id);
        let event = match fate {
            Fate::Skipped(SkipReason::NoSensor) => self.without_sensor(&stretch, &what, &place),
            Fate::Skipped(reason) => {
                let kind = if reason.counts_as_missed() { "SLOTS_MISSED" } else { "SLOTS_SKIPPED" };
                let says = match (reason, count) {
                    (SkipReason::Retired, 1) => {
                        "belongs to a schedule that was removed: it is not run"
                    }
                    (SkipReason::Retired, _) => {
                        "belong to a schedule that was removed: they are not run"
                    }
                    (_, 1) => "was missed and is not run",
                    (_, _) => "were missed and are not run",
                };
                let message = format!("{what} {says} ({})", reason.as_str());
                Event::of(kind, now, message).detail("reason", reason.as_str())
            }
            Fate::Missed | Fate::Unknown => self.unreported(&stretch, &what, &place),
        };
        self.open.event(event.detail("count", count));
        if is_told {
            self.flush();
        }
    }

    /// Says that no sensor came for slots by their deadlines, under the last of them. The watchdog was not there to say it.
    fn without_sensor<'a>(
        &self,
        stretch: &Stretch,
        what: &str,
        place: &'a (Timestamp, ScheduleId),
    ) -> Event<'a> {
        let is_rehearsal = self.recording.agenda.is_rehearsal;
        let kind = if is_rehearsal { "SLOTS_MISSED" } else { "SENSOR_DEADLINE_EXPIRED" };
        let date = self.start.schedule.occurrence(place.0).date.to_string();
        let deadline = self.start.deadline.map(|deadline| deadline.to_string());
        Event::of(
            kind,
            self.recording.now,
            format!("{what}: its sensor was not reported by the deadline"),
        )
        .about(place)
        .detail("reason", SkipReason::NoSensor.as_str())
        .detail("scheduleId", place.1.as_str())
        .detail("date", date)
        .detail("triggerDeadline", deadline.unwrap_or_default())
        .detail("span", stretch.first.to_string())
    }

    /// Says that nobody reported on slots, under the last of them. The watchdog was not there to say it, or the slots
    /// would stand already; of what it does not judge nobody is told.
    fn unreported<'a>(
        &self,
        stretch: &Stretch,
        what: &str,
        place: &'a (Timestamp, ScheduleId),
    ) -> Event<'a> {
        let (agenda, schedule) = (self.recording.agenda, &self.start.schedule);
        let is_daily = matches!(schedule.recurrence(), Recurrence::Daily);
        let is_judged = !is_daily || self.opener().has_deadline();
        let is_listed = matches!(schedule.recurrence(), Recurrence::Dates { .. });
        let kind = match stretch.fate {
            _ if agenda.is_rehearsal || !is_judged => "SLOTS_MISSED",
            Fate::Unknown => "SCHEDULE_UNKNOWN",
            Fate::Missed | Fate::Skipped(_) if is_listed => "IRREGULAR_SCHEDULE_MISSED",
            Fate::Missed | Fate::Skipped(_) => "SCHEDULE_MISSED",
        };
        let is_uncertain =
            self.recording.uncertain_until.is_some_and(|until| stretch.first <= until);
        let deaf = self.deaf(stretch).filter(|_| !is_uncertain);
        let says = match (stretch.fate, deaf) {
            (Fate::Unknown, _) if is_uncertain => {
                let ran = if stretch.count == 1 { "it ran" } else { "they ran" };
                format!("unknown: the recovered ledger does not say whether {ran}")
            }
            (Fate::Unknown, Some((from, until))) => {
                format!("unknown: reports could not arrive from {from} to {until}")
            }
            (Fate::Unknown, None) => {
                "unknown: reports could not arrive, no instance was listening".to_owned()
            }
            (Fate::Missed | Fate::Skipped(_), _) => "missed: no report arrived".to_owned(),
        };
        let date = schedule.occurrence(place.0).date.to_string();
        let message = format!("{what} {} {says}", if stretch.count == 1 { "is" } else { "are" });
        let mut event = Event::of(kind, self.recording.now, message)
            .about(place)
            .detail("scheduleId", place.1.as_str())
            .detail("date", date)
            .detail("expectedTime", place.0.to_string())
            .detail("span", stretch.first.to_string());
        if let (Fate::Unknown, Some((from, until))) = (stretch.fate, deaf) {
            event = event.detail("deafFrom", from.to_string());
            event = event.detail("deafUntil", until.to_string());
        }
        event
    }

    /// From when to when reports on slots could not have reached anybody, if it is known since when.
    fn deaf(&self, stretch: &Stretch) -> Option<(Timestamp, Timestamp)> {
        let first = plus(stretch.first, -self.start.early_for(stretch.first));
        let last = plus(stretch.last, self.start.live_for(self.recording.agenda.work));
        let deaf =
            self.recording.deaf.iter().filter(|(from, until)| *from < last && *until > first);
        let (from, until) =
            deaf.copied().reduce(|one, other| (one.0.min(other.0), one.1.max(other.1)))?;
        (from > Timestamp::MIN).then_some((from, until.min(self.recording.now)))
    }

    /// What the watchdog called missed keeps that mark and gets its reason.
    fn close(&mut self, nominal: Timestamp, reason: SkipReason) {
        let place = (nominal, self.id());
        let Some((slot, revision)) = self.recording.ahead.slots.get(&place) else { return };
        let Ok(slot) = slot.close(Disposition::Skipped(reason), self.recording.now) else { return };
        self.room_for(2);
        self.open.slot(&place, *revision, &slot);
        let message = slot.state.in_words();
        let event = Event::of("SLOT_SKIPPED", self.recording.now, message).about(&place);
        let event = event.detail("reason", reason.as_str());
        // One of a catch-up, as the events for many say too.
        self.open.event(event.detail("count", 1_u64));
    }

    fn id(&self) -> ScheduleId {
        self.start.schedule.id().clone()
    }

    fn opener(&self) -> Opener<'_> {
        let Recording { agenda, version, now, .. } = self.recording;
        Opener { agenda, start: self.start, version: *version, now: *now }
    }
}

/// What is said of so many slots of a schedule that were missed and run all the same, or would.
pub(crate) fn caught_up(
    schedule: &str,
    (first, last): (&str, &str),
    (count, is_rehearsal): (u64, bool),
) -> String {
    let says = match (count, is_rehearsal) {
        (_, true) => "would be caught up (dry run)",
        (1, false) => "is caught up",
        (_, false) => "are caught up",
    };
    if count == 1 {
        return format!("{schedule}/{first} was missed and {says}");
    }
    format!("{count} slots of {schedule} from {first} to {last} were missed and {says}")
}

/// A slot as a plan opens it. One that is caught up waits for its turn, and keeps why, if somebody asked for it: the
/// overlap policy then has no say in it.
pub(crate) fn opened(
    opener: &Opener<'_>,
    nominal: Timestamp,
    (by, wish): (TriggerType, Option<Wish>),
) -> Slot {
    let slot = opener.open(nominal, by);
    if by != TriggerType::Catchup {
        return slot;
    }
    let queued = slot.advance(OpenState::Queued, plus(opener.now, QUEUE_MAX));
    let mut slot = queued.unwrap_or(slot);
    slot.wish = wish.map(|wish| {
        let reason = Some(format!("resume --catchup {}", wish.as_str()));
        Box::new(slot::Wish { reason, ..slot::Wish::default() })
    });
    slot
}
