//! What is true beside a pipeline's own book, and what must hold when one of its slots is recorded or started.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    readiness::TraitStatus,
};
use jiff::{SignedDuration, Timestamp, ToSpan as _, civil::Date, tz::TimeZone};

use super::{
    Finding, SETTLING,
    book::{Book, Place, SeenSlot},
    reports::Reports,
};
use crate::{
    clockwork::Pid,
    files::Files,
    jobs::Jobs,
    naive,
    truth::{Need, Start, Truth},
};

/// What a check may look at besides the book of its pipeline.
pub(crate) struct Scene<'a> {
    pub(crate) pipeline: &'a PipelineId,
    /// The true time.
    pub(crate) now: Timestamp,
    /// How far the writer's clock is ahead of it.
    pub(crate) ahead: SignedDuration,
    pub(crate) owner: Pid,
    pub(crate) files: &'a Files,
    pub(crate) jobs: &'a Jobs,
    pub(crate) by_hand: &'a BTreeSet<String>,
    pub(crate) reports: &'a Reports,
    pub(super) answers: &'a BTreeMap<(Pid, PipelineId), (TraitStatus, Timestamp)>,
    pub(super) books: &'a BTreeMap<PipelineId, Book>,
    pub(crate) calm_since: Option<Timestamp>,
    /// When the group was planned, as its events say.
    pub(crate) planned_at: Timestamp,
    /// Whether the owner's engine is at work, and not just starting.
    pub(crate) is_live: bool,
}

impl Scene<'_> {
    /// What a version of the pipeline says.
    pub(crate) fn truth(&self, version: u64) -> Option<Arc<Truth>> {
        self.files.truth_of(self.pipeline, version)
    }

    /// Whether somebody else runs the pipeline.
    pub(crate) fn is_watched(&self, book: &Book) -> bool {
        self.truth(book.version).is_some_and(|truth| truth.is_watched())
    }

    /// How much later than their instants slots may open.
    pub(crate) fn jitter(&self, book: &Book, schedule: &ScheduleId) -> SignedDuration {
        let truth = self.truth(book.version);
        let seconds = truth.and_then(|truth| {
            let of = |start: &&Start| start.id == schedule.as_str();
            truth.starts.iter().find(of).map(|start| start.jitter_seconds)
        });
        SignedDuration::from_secs(i64::from(seconds.unwrap_or(0)))
    }

    /// L1: in calm weather a due slot is recorded within a second.
    pub(crate) fn check_promptness(
        &self,
        book: &Book,
        (schedule, nominal): &Place,
        slot: &SeenSlot,
    ) -> Result<(), Finding> {
        let is_calm = self.calm_since.is_some_and(|since| *nominal > since + SETTLING);
        let by_time = matches!(slot.opened_by, "scheduler" | "catchup");
        let latest = *nominal + self.jitter(book, schedule) + SignedDuration::from_secs(1);
        if is_calm && by_time && self.now > latest {
            let message = format!("recorded at {}, though nothing went wrong", self.now);
            return Err(Finding::of("L1", message).about(&(schedule.clone(), *nominal)));
        }
        Ok(())
    }

    /// S8: nothing starts unless what must be true is known to be true.
    pub(crate) fn check_readiness(
        &self,
        book: &Book,
        place: &Place,
        slot: &SeenSlot,
    ) -> Result<(), Finding> {
        let Some(truth) = self.truth(slot.version).filter(|_| !slot.is_forced) else {
            return Ok(());
        };
        let is_opened_by_sensor = truth.arrival().is_some_and(|it| it.0.id == place.0.as_str());
        if is_opened_by_sensor && slot.opened_by == "scheduler" {
            let message = "it starts, and its sensor has not come".to_owned();
            return Err(Finding::of("S8", message).about(place));
        }
        let problem = match &truth.gate {
            Need::Nothing => None,
            Need::Trait(minutes) => {
                let answer = self.answers.get(&(self.owner, self.pipeline.clone()));
                let usable =
                    SignedDuration::from_mins(i64::from(*minutes)) + SignedDuration::from_secs(5);
                // How old it was when that was decided: a slow store may take the group later.
                let decided = self.now.min(self.planned_at - self.ahead);
                match answer {
                    Some((TraitStatus::Pass, at)) if decided <= *at + usable => None,
                    other => Some(format!("its evaluator's last word: {other:?}")),
                }
            }
            Need::Sensor => {
                let landed = book.sensors.get("landed");
                let is_ok = landed.and_then(|value| value.get("ok")) == Some(&true.into());
                (!is_ok).then(|| format!("its sensor says {landed:?}"))
            }
            Need::Upstream(name) => {
                let upstream = self.books.iter().find(|(pipeline, _)| pipeline.as_str() == name);
                let is_done = upstream.is_some_and(|(pipeline, upstream)| {
                    let theirs = self.files.truth_of(pipeline, upstream.version);
                    theirs.is_some_and(|theirs| {
                        // Which of them says where a date begins depends on how often they run.
                        [&theirs.time_zone, &truth.time_zone]
                            .into_iter()
                            .any(|zone| is_done_for(upstream, &theirs, zone, (place.1, slot.date)))
                    })
                });
                (!is_done).then(|| format!("{name} has not done what it owed by then"))
            }
        };
        match problem {
            None => Ok(()),
            Some(problem) => {
                Err(Finding::of("S8", format!("it starts, and {problem}")).about(place))
            }
        }
    }
}

/// Whether an upstream did what a slot waits for: the last that it owed on the slot's date by then, or else the first
/// of that date. What it did between that and the next counts for it.
fn is_done_for(
    upstream: &Book,
    theirs: &Truth,
    zone: &TimeZone,
    (nominal, date): (Timestamp, Date),
) -> bool {
    let midnight = |date: Date| date.to_zoned(zone.clone()).map(|day| day.timestamp());
    let (Ok(begin), Ok(end)) = (midnight(date), midnight(date.saturating_add(1.day()))) else {
        return false;
    };
    let moment = SignedDuration::from_nanos(1);
    let mut owed: Vec<_> = theirs
        .starts
        .iter()
        .flat_map(|start| naive::slots(theirs, &start.pattern, begin - moment, end - moment))
        .collect();
    owed.sort_unstable();
    let last = owed.iter().rev().find(|at| **at <= nominal);
    let Some(first) = last.or(owed.first()).copied() else {
        // It owes nothing on that date, and may still have done something.
        return upstream
            .done
            .iter()
            .any(|place| upstream.slots.get(place).is_some_and(|slot| slot.date == date));
    };
    let next = owed.iter().find(|at| **at > first).copied().unwrap_or(end);
    let is_known = upstream.slots.keys().any(|(_, at)| (first..next).contains(at));
    let has_passed = || {
        let mut behind = upstream.watermarks.values();
        behind.all(|at| *at >= first)
    };
    let did = |from: Timestamp, until: Timestamp| {
        upstream.done.iter().any(|(_, at)| (from..until).contains(at))
    };
    // Under a schedule that it no longer has it did other things on that date.
    did(first, next) || (!is_known && has_passed() && did(begin, end))
}
