//! What the log says about a catch-up as a whole: what there is to do, how far that is recorded, and that it is done. Here
//! for one shard; what a process says of all of its shards together is put together in `catchup_log`.
//!
//! What there is to do is summed up once, before any of it is recorded (`outlook`); what became of it is counted from
//! the groups that were accepted. Long plans are recorded in portions, a pass each: how far that is, is said now and
//! then, in words that nobody takes for a second downtime. It is over when no slot of it is open any more: that is
//! looked up, not counted, so that a slot which somebody else closed, and those that an earlier process left, are no
//! riddle. Each pipeline's plan, each skip and each run has its own event. Nothing is said when nothing was missed.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::{
    id::PipelineId,
    run::TriggerType,
    slot::{OpenState, SlotState},
    text::counted,
};
use interlock_store::{Change, Group, Key, Record, record::SlotRecord};
use jiff::{SignedDuration, Timestamp};

use crate::{
    outlook::{Outlook, Totals},
    scheduler::plus,
    state::PipelineState,
};

/// While what was missed is being recorded, how far that is is said so often.
pub(crate) const SAID_EVERY: SignedDuration = SignedDuration::from_secs(10);

/// A catch-up that is under way, over all pipelines.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Since when; nothing is under way when absent.
    began: Option<Timestamp>,
    /// Pipelines whose missed slots were summed up, until all of that is recorded.
    announced: BTreeSet<PipelineId>,
    /// Those of which a part is recorded.
    rests: BTreeMap<PipelineId, Rest>,
    /// Pipelines that may have slots of it open, and those of them to which something happened.
    pending: BTreeSet<PipelineId>,
    touched: BTreeSet<PipelineId>,
    /// Slots that an earlier process opened and did not bring to their end, and those of them that were told.
    left: u64,
    taken_up: u64,
    /// Pipelines whose slots were summed up or taken up.
    pipelines: u64,
    /// The first slot that was missed and what was counted until then, while there was too much to sum up.
    is_to_sum_up: Option<(Timestamp, Counts)>,
    /// How many slots were summed up, and when something was last said about them.
    total: u64,
    said_at: Option<Timestamp>,
    counts: Counts,
}

/// What became of slots.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    /// Missed slots that are recorded, and those of them that were opened to run.
    pub(crate) recorded: u64,
    pub(crate) opened: u64,
    /// Those of them that only would run (`dryRun`).
    pub(crate) rehearsed: u64,
    pub(crate) completed: u64,
    pub(crate) failed: u64,
    pub(crate) cancelled: u64,
    /// Those that were never opened, and those that were and did not run in the end.
    pub(crate) skipped: u64,
}

impl Counts {
    fn and(self, other: Self) -> Self {
        Self {
            recorded: self.recorded + other.recorded,
            opened: self.opened + other.opened,
            rehearsed: self.rehearsed + other.rehearsed,
            completed: self.completed + other.completed,
            failed: self.failed + other.failed,
            cancelled: self.cancelled + other.cancelled,
            skipped: self.skipped + other.skipped,
        }
    }
}

/// What there is to catch up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Summary {
    pub(crate) pipelines: u64,
    pub(crate) totals: Totals,
    pub(crate) since: Timestamp,
    pub(crate) until: Timestamp,
}

impl Summary {
    /// Both together.
    pub(crate) fn and(mut self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        self.totals.add(other.totals);
        let (since, until) = (self.since.min(other.since), self.until.max(other.until));
        Self { pipelines: self.pipelines + other.pipelines, since, until, ..self }
    }
}

/// What became of it, counted as in the summary: the slots that were missed, and of them those that ran, would run and did not.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Done {
    pub(crate) pipelines: u64,
    /// Those that were summed up, and those that an earlier process had left.
    pub(crate) missed: u64,
    pub(crate) counts: Counts,
    pub(crate) took: SignedDuration,
}

impl Done {
    /// Both together, which took as long as the longer.
    pub(crate) fn and(self, other: Option<Self>) -> Self {
        let Some(other) = other else { return self };
        Self {
            pipelines: self.pipelines + other.pipelines,
            missed: self.missed + other.missed,
            counts: self.counts.and(other.counts),
            took: self.took.max(other.took),
        }
    }
}

/// What is left of what a pipeline missed when a portion of it is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Rest {
    /// The rest of the plan that was told.
    OfPlan,
    /// What that plan did not look at.
    OfDowntime,
}

/// What is said of a catch-up as a whole.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Said {
    /// So many pipelines missed slots; how many slots is not known yet.
    Begins(Summary),
    /// What there is to do.
    Summary(Summary),
    /// So much of that is recorded.
    SoFar { recorded: u64, missed: u64 },
    /// An earlier process left so much.
    GoesOn { slots: u64, pipelines: u64 },
    /// It is over.
    Done(Done),
}

impl Progress {
    /// Takes note of an open slot that an earlier process left.
    pub(crate) fn found(&mut self, pipeline: &PipelineId, slot: &SlotRecord) {
        if is_caught_up(slot) && slot.state != OpenState::Monitoring.as_str() {
            self.left += 1;
            self.pending.insert(pipeline.clone());
        }
    }

    /// What there is to do, before any of it is recorded.
    pub(crate) fn announce(&mut self, outlook: Outlook<'_>) -> Said {
        let Outlook { missed, totals, now } = outlook;
        let pipelines = missed.len() as u64;
        let since = missed.values().min().copied().unwrap_or(now);
        self.announced.extend(missed.keys().cloned());
        self.began.get_or_insert(now);
        self.said_at = Some(now);
        self.pipelines += pipelines;
        let is_counted = totals.is_some();
        let totals = totals.unwrap_or_default();
        let summary = Summary { pipelines, totals, since, until: now };
        if is_counted {
            self.total += totals.missed;
            return Said::Summary(summary);
        }
        self.is_to_sum_up.get_or_insert((since, self.counts));
        Said::Begins(summary)
    }

    /// Whether what a pipeline missed was said and is not recorded yet.
    pub(crate) fn is_announced(&self, pipeline: &PipelineId) -> bool {
        self.announced.contains(pipeline)
    }

    /// A portion of what a pipeline missed is recorded.
    pub(crate) fn recorded(&mut self, pipeline: &PipelineId, rest: Option<Rest>) {
        match rest {
            Some(rest) => self.rests.insert(pipeline.clone(), rest),
            None => self.rests.remove(pipeline),
        };
    }

    /// Of what the next plan of a pipeline is the rest.
    pub(crate) fn rest(&self, pipeline: &PipelineId) -> Option<Rest> {
        self.rests.get(pipeline).copied()
    }

    /// How far it is recorded, now and then while that takes long.
    pub(crate) fn so_far(&mut self, now: Timestamp) -> Option<Said> {
        let is_time = self.said_at.is_some_and(|at| now >= plus(at, SAID_EVERY));
        if !is_time || self.announced.is_empty() || self.is_to_sum_up.is_some() {
            return None;
        }
        self.said_at = Some(now);
        Some(Said::SoFar { recorded: self.counts.recorded, missed: self.total })
    }

    /// Takes note of an accepted group.
    pub(crate) fn saw(&mut self, group: &Group) {
        self.touch(&group.pipeline);
        self.counts.rehearsed += planned_count(group, "wouldRun").unwrap_or(0);
        let has = |kind| events(group).any(|(found, _)| found == kind);
        for (kind, count) in events(group) {
            match kind {
                "CATCHUP_QUEUED" => {
                    self.counts.recorded += count;
                    self.counts.opened += count;
                    self.pending.insert(group.pipeline.clone());
                    self.touch(&group.pipeline);
                }
                // Those of a catch-up have a count.
                "SLOTS_MISSED"
                | "SLOTS_SKIPPED"
                | "SLOT_SKIPPED"
                | "SCHEDULE_MISSED"
                | "IRREGULAR_SCHEDULE_MISSED"
                | "SENSOR_DEADLINE_EXPIRED"
                | "SCHEDULE_UNKNOWN" => {
                    self.counts.recorded += count;
                    self.counts.skipped += count;
                }
                _ => {}
            }
        }
        for change in &group.changes {
            let Change::Put(Key::Slot(..), _, Record::Slot(slot)) = change else { continue };
            if !is_caught_up(slot) {
                continue;
            }
            match slot.disposition.as_deref() {
                // It was counted when its run had ended well.
                Some("completed") if has("MONITORING_COMPLETED") => {}
                Some("completed") => self.counts.completed += 1,
                Some("failed") => self.counts.failed += 1,
                Some("cancelled") => self.counts.cancelled += 1,
                Some(_) => self.counts.skipped += 1,
                None if slot.state == OpenState::Monitoring.as_str() && has("JOB_COMPLETED") => {
                    self.counts.completed += 1;
                }
                None => {}
            }
        }
    }

    /// Takes note that something happened to a pipeline.
    pub(crate) fn touch(&mut self, pipeline: &PipelineId) {
        if self.pending.contains(pipeline) {
            self.touched.insert(pipeline.clone());
        }
    }

    /// Once nothing more is due: what there was to do, if that could not be said before, and that it is done. Asks of
    /// pipelines whether catch-up has still something to do for them.
    pub(crate) fn tell(
        &mut self,
        is_pending: impl Fn(&PipelineId) -> bool,
        now: Timestamp,
    ) -> Vec<Said> {
        let mut said = Vec::new();
        if self.left > 0 {
            let pipelines = self.pending.len() as u64;
            said.push(Said::GoesOn { slots: self.left, pipelines });
            self.taken_up += std::mem::take(&mut self.left);
            self.pipelines += pipelines;
            self.began.get_or_insert(now);
            self.touched.clone_from(&self.pending);
        }
        let Some(began) = self.began else {
            // What others record, of a schedule that is gone, say, is no catch-up.
            self.counts = Counts::default();
            return said;
        };
        let counts = self.counts;
        if let Some((since, before)) = self.is_to_sum_up.take() {
            let would_run = counts.rehearsed - before.rehearsed;
            let run = (counts.opened - before.opened).saturating_sub(would_run);
            let totals = Totals { missed: counts.recorded - before.recorded, run, would_run };
            let pipelines = self.announced.len() as u64;
            said.push(Said::Summary(Summary { pipelines, totals, since, until: now }));
        }
        // All of that is recorded; what is missed from now on is news.
        self.announced.clear();
        for pipeline in std::mem::take(&mut self.touched) {
            if !is_pending(&pipeline) {
                self.pending.remove(&pipeline);
            }
        }
        if self.pending.is_empty() {
            let (missed, took) = (counts.recorded + self.taken_up, now.duration_since(began));
            said.push(Said::Done(Done { pipelines: self.pipelines, missed, counts, took }));
            *self = Self::default();
        }
        said
    }
}

impl Said {
    /// Says it.
    pub(crate) fn log(&self) {
        match *self {
            Self::Begins(Summary { pipelines, since, until, .. }) => tracing::info!(
                event = "CATCHUP_BEGINS",
                pipelines,
                from = %format_args!("{since:.0}"),
                until = %format_args!("{until:.0}"),
                "catch-up begins: {} missed slots from {since:.0} to {until:.0}, too many to count before they are recorded",
                counted(pipelines, "pipeline"),
            ),
            Self::Summary(summary) => summary.log(),
            Self::SoFar { recorded, missed } => tracing::info!(
                event = "CATCHUP_PROGRESS",
                recorded,
                missed,
                "catch-up: {recorded} of the {} are recorded so far",
                counted(missed, "missed slot"),
            ),
            Self::GoesOn { slots, pipelines } => tracing::info!(
                event = "CATCHUP_GOES_ON",
                slots,
                pipelines,
                "catch-up goes on: {} of {} left",
                counted(slots, "slot"),
                counted(pipelines, "pipeline"),
            ),
            Self::Done(done) => done.log(),
        }
    }
}

/// Those that would run, in the middle of a sentence.
fn rehearsed(would_run: u64) -> String {
    match would_run {
        0 => String::new(),
        count => format!("{count} would run (dry run), "),
    }
}

impl Summary {
    fn log(&self) {
        let Self { pipelines, totals, since, until } = *self;
        let (Totals { missed, run, would_run }, skipped) = (totals, totals.skipped());
        tracing::info!(
            event = "CATCHUP_SUMMARY",
            pipelines,
            missed,
            toRun = run,
            wouldRun = (would_run > 0).then_some(would_run),
            skipped,
            from = %format_args!("{since:.0}"),
            until = %format_args!("{until:.0}"),
            "catch-up: {} missed {} from {since:.0} to {until:.0}: {run} to run, {}{skipped} skipped",
            counted(pipelines, "pipeline"),
            counted(missed, "slot"),
            rehearsed(would_run),
        );
    }
}

impl Done {
    fn log(&self) {
        let Self { pipelines, missed, counts, took } = *self;
        let Counts { completed, failed, cancelled, rehearsed: would_run, .. } = counts;
        // One that only would run is opened, and closed as skipped.
        let skipped = counts.skipped.saturating_sub(would_run);
        tracing::info!(
            event = "CATCHUP_DONE",
            pipelines,
            missed,
            completed,
            failed,
            cancelled,
            wouldRun = (would_run > 0).then_some(would_run),
            skipped,
            milliseconds = i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
            "catch-up is done: {} missed {}: {completed} completed, {failed} failed, {cancelled} cancelled, \
             {}{skipped} skipped, in {took:#}",
            counted(pipelines, "pipeline"),
            counted(missed, "slot"),
            rehearsed(would_run),
        );
    }
}

/// The events of a group, each with the slots that it counts.
fn events(group: &Group) -> impl Iterator<Item = (&str, u64)> {
    group.changes.iter().filter_map(|change| match change {
        Change::Append(event) => {
            let count = event.details.get("count").and_then(serde_json::Value::as_u64);
            Some((event.kind.as_str(), count.unwrap_or(0)))
        }
        Change::Put(..) | Change::Delete(..) => None,
    })
}

/// A number of the plan that a group begins with, if it does.
fn planned_count(group: &Group, name: &str) -> Option<u64> {
    group.changes.iter().find_map(|change| match change {
        Change::Append(event) if event.kind == "CATCHUP_PLANNED" => {
            event.details.get(name).and_then(serde_json::Value::as_u64)
        }
        Change::Append(_) | Change::Put(..) | Change::Delete(..) => None,
    })
}

fn is_caught_up(slot: &SlotRecord) -> bool {
    slot.opened_by == TriggerType::Catchup.as_str() && slot.generation > 0
}

impl PipelineState {
    /// Whether catch-up has still something to do for it; what waits in the store alone may be of it.
    pub(crate) fn is_caught_up_on(&self) -> bool {
        let monitored = SlotState::Open(OpenState::Monitoring);
        let mut open = self.open.values().map(|open| &open.slot);
        self.has_more_queued
            || open.any(|slot| slot.opened_by == TriggerType::Catchup && slot.state != monitored)
    }
}

#[cfg(test)]
mod tests {
    use interlock_core::slot::{Disposition, Opening, Slot};
    use interlock_store::{Expect, Role, Shard, Term, Writer, record::EventRecord};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn orders() -> PipelineId {
        PipelineId::parse("orders").unwrap()
    }

    /// What these pipelines missed.
    fn missed(pipelines: &[&str]) -> BTreeMap<PipelineId, Timestamp> {
        pipelines.iter().map(|name| (PipelineId::parse(name).unwrap(), at(0))).collect()
    }

    fn totals(missed: u64, run: u64) -> Totals {
        Totals { missed, run, would_run: 0 }
    }

    fn event(kind: &str, count: Option<u64>) -> Change {
        let details = count.map(|count| ("count".to_owned(), count.into())).into_iter().collect();
        let (kind, message) = (kind.to_owned(), String::new());
        Change::Append(
            EventRecord {
                kind: kind.into(),
                at: at(0),
                slot: None,
                run_id: None,
                message,
                details,
            }
            .into(),
        )
    }

    /// What a group of these says about one slot that catch-up opened, in the state that it gets.
    fn slot(state: SlotState, kind: &str) -> Vec<Change> {
        let opening = Opening {
            opened_by: TriggerType::Catchup,
            date: jiff::civil::date(1970, 1, 1),
            at: at(0),
            closes_at: at(60),
            version: 1,
        };
        let slot = Slot { state, ..Slot::open(OpenState::Queued, opening) };
        let key = Key::Slot(interlock_core::id::ScheduleId::from_static("cron"), at(0));
        let record = Record::Slot(SlotRecord::from_core(&slot).into());
        vec![Change::Put(key, Expect::Any, record), event(kind, None)]
    }

    fn group(changes: Vec<Change>) -> Group {
        let writer = Writer { role: Role::Engine, shard: Shard(0), term: Term(1) };
        Group { pipeline: orders(), writer, changes }
    }

    #[test]
    fn nothing_is_said_when_nothing_was_missed() {
        let mut progress = Progress::default();
        progress.saw(&group(vec![event("SLOT_OPENED", None)]));
        assert_eq!(progress.tell(|_| true, at(5)), []);
        assert_eq!(progress.so_far(at(500)), None);
    }

    #[test]
    fn the_summary_comes_before_anything_is_recorded_and_the_end_tells_how_they_ended() {
        let mut progress = Progress::default();
        let (missed, totals) = (missed(&["orders"]), totals(9, 4));
        let outlook = Outlook { missed: &missed, totals: Some(totals), now: at(100) };
        let summary = Said::Summary(Summary { pipelines: 1, totals, since: at(0), until: at(100) });
        assert_eq!(progress.announce(outlook), summary);
        assert!(progress.is_announced(&orders()));
        let recorded = vec![
            event("CATCHUP_QUEUED", Some(4)),
            event("SLOTS_SKIPPED", Some(4)),
            event("SLOT_SKIPPED", Some(1)),
        ];
        progress.saw(&group(recorded));
        assert_eq!(progress.tell(|_| true, at(100)), [], "it is under way");
        assert!(!progress.is_announced(&orders()), "what is missed from now on is news");
        let closed = |disposition| SlotState::Closed(disposition);
        progress.saw(&group(slot(SlotState::Open(OpenState::Monitoring), "JOB_COMPLETED")));
        progress.saw(&group(slot(closed(Disposition::Completed), "MONITORING_COMPLETED")));
        progress.saw(&group(slot(closed(Disposition::Completed), "JOB_COMPLETED")));
        progress.saw(&group(slot(closed(Disposition::Failed), "RETRY_EXHAUSTED")));
        assert_eq!(progress.tell(|_| true, at(101)), []);
        progress.saw(&group(slot(closed(Disposition::Failed), "RETRY_EXHAUSTED")));
        let counts = Counts {
            recorded: 9,
            opened: 4,
            completed: 2,
            failed: 2,
            skipped: 5,
            ..Counts::default()
        };
        let took = SignedDuration::from_secs(10);
        let done = Done { pipelines: 1, missed: 9, counts, took };
        assert_eq!(progress.tell(|_| false, at(110)), [Said::Done(done)]);
        assert_eq!(progress.tell(|_| false, at(111)), [], "once");
    }

    #[test]
    fn what_an_earlier_process_left_is_told_and_so_is_its_end() {
        let mut progress = Progress::default();
        for change in slot(SlotState::Open(OpenState::Queued), "").into_iter().cycle().take(28) {
            if let Change::Put(_, _, Record::Slot(slot)) = change {
                progress.found(&orders(), &slot);
            }
        }
        assert_eq!(progress.tell(|_| true, at(5)), [Said::GoesOn { slots: 14, pipelines: 1 }]);
        assert_eq!(progress.tell(|_| true, at(6)), []);
        progress.saw(&group(slot(SlotState::Closed(Disposition::Completed), "JOB_COMPLETED")));
        let counts = Counts { completed: 1, ..Counts::default() };
        let took = SignedDuration::from_secs(5);
        // The other thirteen were closed by somebody else.
        let done = Done { pipelines: 1, missed: 14, counts, took };
        assert_eq!(progress.tell(|_| false, at(10)), [Said::Done(done)]);
    }

    #[test]
    fn how_far_it_is_recorded_is_said_now_and_then_until_all_of_it_is() {
        let mut progress = Progress::default();
        let missed = missed(&["orders", "sales"]);
        let outlook = Outlook { missed: &missed, totals: Some(totals(70, 70)), now: at(0) };
        progress.announce(outlook);
        progress.saw(&group(vec![event("CATCHUP_QUEUED", Some(20))]));
        progress.recorded(&orders(), Some(Rest::OfPlan));
        assert_eq!(progress.rest(&orders()), Some(Rest::OfPlan));
        assert_eq!(progress.so_far(at(9)), None);
        assert_eq!(progress.so_far(at(10)), Some(Said::SoFar { recorded: 20, missed: 70 }));
        progress.saw(&group(vec![event("SLOTS_SKIPPED", Some(30))]));
        progress.recorded(&orders(), None);
        assert_eq!(progress.rest(&orders()), None);
        assert_eq!(progress.so_far(at(19)), None);
        assert_eq!(progress.so_far(at(20)), Some(Said::SoFar { recorded: 50, missed: 70 }));
        progress.tell(|_| true, at(21));
        assert_eq!(progress.so_far(at(90)), None, "it is recorded");
    }

    #[test]
    fn what_is_too_much_to_count_is_announced_at_once_and_summed_up_when_all_is_recorded() {
        let mut progress = Progress::default();
        let missed = missed(&["orders", "sales"]);
        let outlook = Outlook { missed: &missed, totals: None, now: at(9) };
        let begins =
            Summary { pipelines: 2, totals: Totals::default(), since: at(0), until: at(9) };
        assert_eq!(progress.announce(outlook), Said::Begins(begins));
        progress.saw(&group(vec![event("CATCHUP_QUEUED", Some(20))]));
        assert_eq!(progress.so_far(at(90)), None, "of how many?");
        progress.saw(&group(vec![event("SLOTS_MISSED", Some(5))]));
        let totals = totals(25, 20);
        let summary = Summary { pipelines: 2, totals, since: at(0), until: at(10) };
        assert_eq!(progress.tell(|_| true, at(10)), [Said::Summary(summary)]);
    }
}
