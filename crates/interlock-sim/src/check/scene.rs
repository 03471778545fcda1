//! What is true beside a pipeline's own book, and what must hold when one of its slots is recorded or started.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::{
    id::{PipelineId, ScheduleId},
    readiness::TraitStatus,
};
use jiff::{SignedDuration, Timestamp};

use super::{
    Finding, SETTLING,
    book::{Book, Place, SeenSlot},
    reports::Reports,
};
use crate::{
    clockwork::Pid,
    files::Files,
    jobs::Jobs,
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
                let done = self.books.iter().find(|(pipeline, _)| pipeline.as_str() == name);
                let is_done = done.is_some_and(|(_, upstream)| {
                    upstream.slots.values().any(|it| {
                        it.date == slot.date
                            && (it.disposition == "completed" || it.state == "monitoring")
                    })
                });
                (!is_done).then(|| format!("nothing of {name} completed on {}", slot.date))
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
