//! sla-scheduling and relative-sla-breaches: promises about time, armed and fired.

use interlock_core::{
    duration,
    sla::{self, Limit, Progress, SlaVerdict},
    slot::{Disposition, OpenState, Slot, SlotState},
};
use interlock_store::{DueKind, Obligation, RunRow, Subject};
use jiff::Timestamp;

use crate::{
    finding::{CheckName, Finding, Remedy},
    snapshot::{Place, Snapshot},
};

/// Fires what is due, and arms what nobody has armed: of open slots, and of owed ones that are not recorded.
pub(super) fn scheduling(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let mut found = Vec::new();
    for due in &snapshot.due {
        if let (DueKind::SlaWarning | DueKind::SlaBreach, Subject::Slot(schedule, nominal)) =
            (due.kind, &due.subject)
        {
            let place = (*nominal, schedule.clone());
            let limit = limit_of(snapshot, &place);
            found.push(Firing { snapshot, due, place, limit, now, kinds: ABSOLUTE }.fire());
        }
    }
    let is_paused = |place: &Place| snapshot.was_paused(place.0, now);
    for (place, limit) in promised(snapshot) {
        if limit.breach_at > now && !snapshot.armed.contains(&place) && !is_paused(&place) {
            let subject = Subject::Slot(place.1.clone(), place.0);
            let arm = Finding::silent(CheckName::SlaScheduling, &snapshot.pipeline);
            found.push(arm.with(Remedy::Arm(Obligation::of_limit(limit, subject, now))));
        }
    }
    found
}

/// The slots that promise an end, and are not finished.
fn promised(snapshot: &Snapshot) -> Vec<(Place, Limit)> {
    let open = snapshot.slots.iter().filter(|(_, known)| {
        let state = known.slot.state;
        state.is_open() && state != SlotState::Open(OpenState::Monitoring)
    });
    let open = open
        .filter_map(|(place, known)| Some((place.clone(), known.slot.sla.as_deref()?.completion?)));
    let owed = snapshot.owed.iter().filter_map(|owed| {
        let place = (owed.nominal, owed.start.schedule.id().clone());
        let is_absent = !snapshot.slots.contains_key(&place) && snapshot.is_ahead(&place);
        let limit = || snapshot.agenda.promise(&owed.start, owed.nominal, sla::Opening::Live);
        is_absent.then(limit)?.completion.map(|limit| (place, limit))
    });
    open.chain(owed).collect()
}

/// What a slot promises about its end: as it was stored with it, else as it would be.
fn limit_of(snapshot: &Snapshot, place: &Place) -> Option<Limit> {
    if let Some(known) = snapshot.slots.get(place) {
        return known.slot.sla.as_deref()?.completion;
    }
    let start = snapshot.agenda.owed().find(|start| *start.schedule.id() == place.1)?;
    snapshot.agenda.promise(start, place.0, sla::Opening::Live).completion
}

/// Budgets that began with the first sensor.
pub(super) fn relative_breaches(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    let mut found = Vec::new();
    for due in &snapshot.due {
        if let (DueKind::SlaWarning | DueKind::SlaBreach, Subject::Budget(schedule, nominal)) =
            (due.kind, &due.subject)
        {
            let place = (*nominal, schedule.clone());
            let slot = snapshot.slots.get(&place).map(|known| &known.slot);
            let limit =
                slot.and_then(|slot| slot.sla.as_deref()?.relative(due.budget_began(slot)?));
            found.push(Firing { snapshot, due, place, limit, now, kinds: RELATIVE }.fire());
        }
    }
    found
}

/// What is said of a kind of promise.
#[derive(Clone, Copy)]
struct Kinds {
    check: CheckName,
    warning: &'static str,
    breach: &'static str,
    met: Option<&'static str>,
}

const ABSOLUTE: Kinds = Kinds {
    check: CheckName::SlaScheduling,
    warning: "SLA_WARNING",
    breach: "SLA_BREACH",
    met: Some("SLA_MET"),
};
const RELATIVE: Kinds = Kinds {
    check: CheckName::RelativeSlaBreaches,
    warning: "RELATIVE_SLA_WARNING",
    breach: "RELATIVE_SLA_BREACH",
    met: None,
};

/// An entry whose time has come.
struct Firing<'a> {
    snapshot: &'a Snapshot,
    due: &'a Obligation,
    place: Place,
    limit: Option<Limit>,
    now: Timestamp,
    kinds: Kinds,
}

impl Firing<'_> {
    fn fire(&self) -> Finding {
        let quiet = Finding::silent(self.kinds.check, &self.snapshot.pipeline)
            .with(Remedy::Drop(self.due.clone()));
        let known = self.snapshot.slots.get(&self.place);
        let slot = known.map(|known| &known.slot);
        let is_owed = slot.is_some() || self.snapshot.is_ahead(&self.place);
        let is_excused =
            self.snapshot.is_retired || self.snapshot.was_paused(self.place.0, self.due.at());
        let Some(limit) = self.limit.filter(|_| is_owed && !is_excused) else { return quiet };
        let run = self.snapshot.runs.get(&self.place);
        let breach = || {
            let mut next = self.due.moved_to(limit.breach_at);
            next.kind = DueKind::SlaBreach;
            next
        };
        match sla::judge(limit, progress(slot, run), self.now) {
            // A warning after the breach is none.
            SlaVerdict::Breached => self.tell(limit, self.kinds.breach, slot),
            SlaVerdict::AtRisk if self.due.kind == DueKind::SlaWarning => {
                self.tell(limit, self.kinds.warning, slot).with(Remedy::Arm(breach()))
            }
            SlaVerdict::AtRisk | SlaVerdict::NotDue => {
                let next = breach();
                if next.key() == self.due.key() {
                    // Breach is strictly after: looked at again a moment later.
                    Finding::silent(self.kinds.check, &self.snapshot.pipeline)
                } else {
                    quiet.with(Remedy::Arm(next))
                }
            }
            SlaVerdict::Met => match (self.kinds.met, slot) {
                (Some(met), Some(_)) => self.tell(limit, met, slot),
                (Some(_) | None, _) => quiet,
            },
            SlaVerdict::Moot => quiet,
        }
    }

    fn tell(&self, limit: Limit, event: &'static str, slot: Option<&Slot>) -> Finding {
        let (pipeline, schedule) = (&self.snapshot.pipeline, &self.place.1);
        let start = self.snapshot.agenda.owed().find(|start| start.schedule.id() == schedule);
        let derived = || start.map(|start| start.schedule.occurrence(self.place.0).date);
        let utc = || self.place.0.to_zoned(jiff::tz::TimeZone::UTC).date();
        let date = slot.map(|slot| slot.date).or_else(derived).unwrap_or_else(utc);
        let status = slot.map_or("not started", |slot| match slot.state {
            SlotState::Open(OpenState::Waiting | OpenState::Queued) => "not started",
            SlotState::Open(state) => state.as_str(),
            SlotState::Closed(disposition) => disposition.as_str(),
        });
        let by = limit.breach_at;
        let what = if event == self.kinds.warning {
            let left = duration::format_go(by.duration_since(self.now));
            format!("must complete within {left}, by {by}, and is {status}")
        } else if event == self.kinds.breach {
            format!("did not complete by {by}: {status}")
        } else {
            format!("completed before {by}")
        };
        // A breach may be found where only the warning was due.
        let due_at = if event == self.kinds.breach { by } else { self.due.at() };
        let sla = if self.kinds.met.is_some() { "completion" } else { "maxDuration" };
        let mut finding = Finding::of(self.kinds.check, event, pipeline)
            .about(&self.place, date)
            .due(due_at)
            .says(format!("{pipeline} {what}"))
            .alerts(format!("Pipeline {pipeline} schedule {schedule} {what}"))
            .with(Remedy::Drop(self.due.clone()));
        finding.details.extend(self.due.details.clone());
        finding
            .detail("status", status)
            .detail("source", "schedule")
            .detail("breachAt", by.to_string())
            .detail("sla", sla)
    }
}

/// How far a slot has come. What is monitored has completed.
fn progress(slot: Option<&Slot>, run: Option<&RunRow>) -> Progress {
    let Some(slot) = slot else { return Progress::Unfinished };
    let ended = run.and_then(|run| run.record.ended_at);
    match slot.state {
        SlotState::Closed(Disposition::Completed) | SlotState::Open(OpenState::Monitoring) => {
            // Without a run it was reported; when, nobody kept but the slot itself.
            Progress::Completed(ended.unwrap_or(slot.opened_at))
        }
        SlotState::Closed(
            Disposition::Failed
            | Disposition::Cancelled
            | Disposition::Skipped(_)
            | Disposition::Unknown,
        ) => Progress::Ended(ended.unwrap_or(slot.opened_at)),
        // What was missed has not been done.
        SlotState::Closed(Disposition::Missed)
        | SlotState::Open(
            OpenState::Waiting | OpenState::Queued | OpenState::Running | OpenState::Backoff,
        ) => Progress::Unfinished,
    }
}
