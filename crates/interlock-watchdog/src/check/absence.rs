//! missed-schedules and missed-inclusion-schedules: what was owed and is not there.

use std::sync::Arc;

use interlock_core::{
    agenda::Work,
    duration,
    run::TriggerType,
    schedule::Recurrence,
    sla,
    slot::{Disposition, Evaluated, OpenState, Opening, Slot, SlotState},
};
use interlock_store::{DueKind, Obligation};
use jiff::Timestamp;

use crate::{
    finding::{CheckName, Finding, Remedy},
    owed::{Owed, plus},
    snapshot::{Known, Place, Snapshot, SpanSeen},
};

/// Slots of cron, `every`, `at` and daily schedules.
pub(super) fn missed_schedules(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let is_ours = |owed: &&Owed| match owed.start.schedule.recurrence() {
        Recurrence::Cron(_)
        | Recurrence::Every { .. }
        | Recurrence::At { .. }
        | Recurrence::Once(_)
        | Recurrence::Daily => true,
        Recurrence::Dates { .. } | Recurrence::Sensor { .. } | Recurrence::SinceLast { .. } => {
            false
        }
    };
    let teller = Teller { snapshot, now, check: CheckName::MissedSchedules };
    let by_clock = snapshot.owed.iter().filter(is_ours).filter_map(|owed| teller.judge(owed));
    let switches = snapshot.due.iter().filter_map(|due| {
        let finding = teller.judge(&switched(snapshot, due)?)?;
        Some(finding.with(Remedy::Drop(due.clone())))
    });
    by_clock.chain(switches).collect()
}

/// The slot of a dead-man's switch, which the clock does not give: its obligation does.
fn switched(snapshot: &Snapshot, due: &Obligation) -> Option<Owed> {
    let (nominal, schedule) = due.subject.slot().filter(|_| due.kind == DueKind::Closes)?;
    let known = snapshot.slots.get(&(nominal, schedule.clone()))?;
    let start = snapshot.switch(&schedule)?;
    let (date, limit) = (known.slot.date, known.slot.closes_at);
    Some(Owed { start: Arc::clone(start), nominal, date, limit, deadline: None })
}

/// Slots of listed dates.
pub(super) fn missed_inclusion_schedules(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let is_ours =
        |owed: &&Owed| matches!(owed.start.schedule.recurrence(), Recurrence::Dates { .. });
    let teller = Teller { snapshot, now, check: CheckName::MissedInclusionSchedules };
    snapshot.owed.iter().filter(is_ours).filter_map(|owed| teller.judge(owed)).collect()
}

/// How an owed slot stands when its time is over.
enum Standing<'a> {
    /// Nothing is to be said.
    Fine,
    /// Nothing is recorded.
    Absent,
    /// Nobody has looked at it.
    Unseen(&'a Known),
    /// Somebody looked, and it was not ready.
    NotReady(&'a Known),
    /// It was given up, and people do not know.
    GivenUp(&'a Known),
    /// The same for many in a row.
    GivenUpSpan(&'a SpanSeen),
}

/// Whether a report could have reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sight {
    Clear,
    Blind,
}

struct Teller<'a> {
    snapshot: &'a Snapshot,
    now: Timestamp,
    check: CheckName,
}

impl Teller<'_> {
    fn judge(&self, owed: &Owed) -> Option<Finding> {
        let place = (owed.nominal, owed.start.schedule.id().clone());
        match self.standing(owed, &place) {
            Standing::Fine => None,
            Standing::NotReady(known) => self.not_ready(owed, &place, known),
            Standing::Absent => Some(self.missed(owed, &place, None)),
            Standing::Unseen(known) | Standing::GivenUp(known) => {
                Some(self.missed(owed, &place, Some(known)))
            }
            Standing::GivenUpSpan(span) => Some(self.missed_span(owed, &place, span)),
        }
    }

    fn standing(&self, owed: &Owed, place: &Place) -> Standing<'_> {
        let snapshot = self.snapshot;
        let is_over = self.now > owed.limit;
        let is_excused = snapshot.is_retired
            || snapshot.agenda.is_rehearsal
            || owed.limit <= snapshot.first_seen
            || snapshot.was_paused(owed.nominal, owed.limit);
        if !is_over || is_excused || place.1.is_control() {
            return Standing::Fine;
        }

        let Some(known) = snapshot.slots.get(place) else {
            return match snapshot.span_of(place) {
                Some(span) if span.counts_as_missed && span.last == place.0 => {
                    Standing::GivenUpSpan(span)
                }
                None if snapshot.is_ahead(place) && !self.is_reported() => Standing::Absent,
                Some(_) | None => Standing::Fine,
            };
        };
        self.standing_of(known, owed)
    }

    fn standing_of<'a>(&self, known: &'a Known, owed: &Owed) -> Standing<'a> {
        let slot = &known.slot;
        let is_told = slot.marks.missed_at.is_some();
        match slot.state {
            SlotState::Open(OpenState::Waiting) if self.snapshot.agenda.work == Work::Watched => {
                if self.is_reported() {
                    Standing::Fine
                } else {
                    Standing::Unseen(known)
                }
            }
            // Without a deadline it is enough that it was recorded.
            SlotState::Open(OpenState::Waiting | OpenState::Queued)
                if owed.deadline.is_none() || slot.attempt > 0 || !is_live(slot) =>
            {
                Standing::Fine
            }
            SlotState::Open(OpenState::Waiting) if slot.evaluated.is_none() => {
                if is_told {
                    Standing::Fine
                } else {
                    Standing::Unseen(known)
                }
            }
            SlotState::Open(OpenState::Waiting | OpenState::Queued) => {
                let is_told = slot.evaluated.as_ref().is_some_and(|evaluated| evaluated.is_told);
                if is_told { Standing::Fine } else { Standing::NotReady(known) }
            }
            SlotState::Closed(Disposition::Skipped(reason)) if reason.counts_as_missed() => {
                if is_told {
                    Standing::Fine
                } else {
                    Standing::GivenUp(known)
                }
            }
            SlotState::Open(OpenState::Running | OpenState::Backoff | OpenState::Monitoring)
            | SlotState::Closed(_) => Standing::Fine,
        }
    }

    /// A report that nobody has applied yet may be what we miss.
    fn is_reported(&self) -> bool {
        self.snapshot.agenda.work == Work::Watched && self.snapshot.has_unapplied
    }

    fn missed(&self, owed: &Owed, place: &Place, known: Option<&Known>) -> Finding {
        let could_see = self.snapshot.agenda.work != Work::Watched || self.is_covered(owed);
        let sight = if could_see { Sight::Clear } else { Sight::Blind };
        let disposition = match sight {
            Sight::Clear => Disposition::Missed,
            Sight::Blind => Disposition::Unknown,
        };
        let slot = match known {
            None => {
                let agenda = &self.snapshot.agenda;
                let promise = agenda.promise(&owed.start, owed.nominal, sla::Opening::Live);
                Slot::decided(disposition, self.opening(owed)).promising(promise)
            }
            Some(known) if self.snapshot.agenda.work == Work::Watched && is_open(known) => known
                .slot
                .close(disposition, self.now)
                .unwrap_or_else(|_ignored| known.slot.clone()),
            // It keeps its chance: a deadline alarms, it does not close.
            Some(known) => {
                let mut slot = known.slot.clone();
                slot.marks.missed_at = Some(self.now);
                slot
            }
        };
        let revision = known.map_or(0, |known| known.revision);
        let finding = self.tell(owed, place, sight);
        finding.with(Remedy::Slot(place.clone(), revision, Box::new(slot)))
    }

    fn missed_span(&self, owed: &Owed, place: &Place, span: &SpanSeen) -> Finding {
        let SpanSeen { first, last, count, reason, .. } = span;
        let mut finding = self.tell(owed, place, Sight::Clear);
        let what = format!("{count} slots from {first} to {last} did not run ({reason})");
        finding.alert = Some(format!(
            "Pipeline {} schedule {} missed: {what}",
            self.snapshot.pipeline, place.1
        ));
        finding.detail("count", *count).detail("span", first.to_string())
    }

    /// The event and the sentence, without what is to be done.
    fn tell(&self, owed: &Owed, place: &Place, sight: Sight) -> Finding {
        let (pipeline, schedule, date) = (&self.snapshot.pipeline, &place.1, owed.date);
        let event = match (sight, self.check == CheckName::MissedInclusionSchedules) {
            (Sight::Blind, _) => "SCHEDULE_UNKNOWN",
            (Sight::Clear, true) => "IRREGULAR_SCHEDULE_MISSED",
            (Sight::Clear, false) => "SCHEDULE_MISSED",
        };
        let what = match (&owed.deadline, self.snapshot.agenda.work) {
            (Some(deadline), Work::Started | Work::Dormant) => {
                format!("no evaluation started by deadline {deadline} on {date}")
            }
            (Some(deadline), Work::Watched) => {
                format!("no report by deadline {deadline} on {date}")
            }
            (None, work) => {
                let grace = duration::format_go(owed.limit.duration_since(owed.nominal));
                let what = if work == Work::Watched { "report" } else { "run" };
                format!("no {what} within {grace} of {} on {date}", owed.nominal)
            }
        };
        let mut finding = Finding::of(self.check, event, pipeline)
            .about(place, date)
            .due(owed.limit)
            .says(format!("missed schedule for {pipeline} on {date}"));
        finding.alert = Some(match (sight, self.blindness(owed)) {
            (Sight::Blind, Some((from, until))) => {
                finding.message = format!(
                    "cannot tell whether {pipeline} ran on {date}: reports could not arrive from {from} to {until}"
                );
                finding = finding.detail("deafFrom", from.to_string());
                finding = finding.detail("deafUntil", until.to_string());
                format!(
                    "Pipeline {pipeline} schedule {schedule} may have been missed: {what}, but reports \
                     could not arrive from {from} to {until}"
                )
            }
            (Sight::Blind | Sight::Clear, _) => {
                format!("Pipeline {pipeline} schedule {schedule} missed: {what}")
            }
        });
        if let Some(deadline) = &owed.deadline {
            finding = finding.detail("deadline", deadline.as_str());
        }
        finding.detail("expectedTime", owed.nominal.to_string()).detail("actionHint", self.hint())
    }

    fn hint(&self) -> &'static str {
        match self.snapshot.agenda.work {
            Work::Watched => {
                "Check the job where it runs, and whether its reports reach Interlock."
            }
            Work::Started | Work::Dormant => {
                "Run `interlock why` for the slot, and `interlock doctor` to see whether `serve` is at work."
            }
        }
    }

    /// Somebody looked in time, and it was not ready: that is a broken promise, not an absence.
    fn not_ready(&self, owed: &Owed, place: &Place, known: &Known) -> Option<Finding> {
        let waits = known.slot.state == SlotState::Open(OpenState::Queued);
        let evaluated = known.slot.evaluated.as_deref();
        let blocking = match evaluated.map(|it| it.blocking.as_slice()) {
            Some(blocking) if !blocking.is_empty() => blocking.join("; "),
            _ if waits => "it waits for its turn behind another run".to_owned(),
            _ => "the limit of runs at once was reached".to_owned(),
        };
        let deadline = owed.deadline.as_deref()?;
        let (pipeline, date) = (&self.snapshot.pipeline, owed.date);
        let mut slot = known.slot.clone();
        let at = evaluated.map_or(self.now, |it| it.at);
        let reasons = evaluated.map(|it| it.blocking.clone()).unwrap_or_default();
        slot.evaluated = Some(Box::new(Evaluated { at, blocking: reasons, is_told: true }));
        let what = format!("not ready by deadline {deadline} on {date}: {blocking}");
        Some(
            Finding::of(self.check, "SLA_BREACH", pipeline)
                .about(place, date)
                .due(owed.limit)
                .says(format!("{pipeline} was {what}"))
                .alerts(format!("Pipeline {pipeline} schedule {} was {what}", place.1))
                .detail("deadline", deadline)
                .detail("breachAt", owed.limit.to_string())
                .detail("status", if waits { "queued" } else { "not ready" })
                .detail("sla", "evaluation")
                .with(Remedy::Slot(place.clone(), known.revision, Box::new(slot))),
        )
    }

    fn opening(&self, owed: &Owed) -> Opening {
        Opening {
            opened_by: TriggerType::Scheduler,
            date: owed.date,
            at: self.now,
            closes_at: owed.limit,
            version: self.snapshot.version,
        }
    }

    /// Whether a report could have reached us all the time (S10).
    fn is_covered(&self, owed: &Owed) -> bool {
        self.blindness(owed).is_none()
    }

    /// The first time in which a report on a slot could not have reached us.
    fn blindness(&self, owed: &Owed) -> Option<(Timestamp, Timestamp)> {
        let from = plus(owed.nominal, -owed.start.early_for(owed.nominal));
        let blind = |(began, ended): &&(Timestamp, Timestamp)| *began < owed.limit && *ended > from;
        self.snapshot.blind.iter().find(blind).copied()
    }
}

fn is_open(known: &Known) -> bool {
    known.slot.state.is_open()
}

/// Whether the slot was opened in its turn: what people, catch-up and backfill ask for has no deadline.
fn is_live(slot: &Slot) -> bool {
    match slot.opened_by {
        TriggerType::Scheduler
        | TriggerType::Sensor
        | TriggerType::External
        | TriggerType::Reconcile => true,
        TriggerType::Manual
        | TriggerType::Webhook
        | TriggerType::Retry
        | TriggerType::Catchup
        | TriggerType::Subdag
        | TriggerType::Backfill => false,
    }
}
