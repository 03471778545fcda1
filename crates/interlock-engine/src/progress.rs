//! What the log says about a catch-up as a whole: what there is to do, and that it is done.
//!
//! What there is to do is said before any of it is recorded, from the plans; what became of it is counted from the
//! groups that were accepted. It is over when no slot of it is open any more: that is looked up, not counted, so
//! that a slot which somebody else closed, and those that an earlier process left, are no riddle. Each pipeline's
//! plan, each skip and each run has its own event. Nothing is said when nothing was missed.

use std::collections::BTreeSet;

use interlock_core::{
    id::PipelineId,
    run::TriggerType,
    slot::{OpenState, SlotState},
};
use interlock_store::{Change, Group, Key, Record, record::SlotRecord};
use jiff::{SignedDuration, Timestamp};

use crate::{state::PipelineState, write::Planned};

/// A catch-up that is under way, over all pipelines.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// Since when; nothing is under way when absent.
    began: Option<Timestamp>,
    /// Pipelines of which it was said that they missed slots.
    announced: BTreeSet<PipelineId>,
    /// Pipelines that may have slots of it open, and those of them to which something happened.
    pending: BTreeSet<PipelineId>,
    touched: BTreeSet<PipelineId>,
    /// Slots that an earlier process opened and did not bring to their end.
    left: u64,
    /// The first slot that was missed and what was counted until then, while only how many pipelines there are
    /// could be said.
    is_to_sum_up: Option<(Timestamp, Counts)>,
    counts: Counts,
}

/// What became of slots.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Counts {
    opened: u64,
    completed: u64,
    failed: u64,
    cancelled: u64,
    /// Those that were never opened, and those that were and did not run in the end.
    skipped: u64,
}

/// What is missed, as far as it is known before it is recorded.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Missed<'a> {
    /// What is about to be recorded.
    pub(crate) planned: &'a [Planned],
    /// Pipelines that also missed slots and are planned later.
    pub(crate) later: &'a [(PipelineId, Timestamp)],
    /// The first slot that is owed.
    pub(crate) since: Timestamp,
    pub(crate) now: Timestamp,
}

/// What is said of a catch-up as a whole.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Said {
    /// So many pipelines missed slots; how many slots is not known yet.
    Begins { pipelines: u64, since: Timestamp, until: Timestamp },
    /// What there is to do.
    Summary { pipelines: u64, missed: u64, run: u64, since: Timestamp, until: Timestamp },
    /// An earlier process left so much.
    GoesOn { slots: u64, pipelines: u64 },
    /// It is over.
    Done { counts: Counts, took: SignedDuration },
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
    pub(crate) fn announce(&mut self, missed: Missed<'_>) -> Option<Said> {
        let Missed { planned, later, since, now } = missed;
        let (mut pipelines, mut slots, mut run) = (0_u64, 0, 0);
        for plan in planned {
            let count = |name| planned_count(&plan.group, name);
            let Some(found) = count("missed") else { continue };
            if self.announced.insert(plan.group.pipeline.clone()) {
                pipelines += 1;
                slots += found;
                run += count("run").unwrap_or(0);
            }
        }
        if pipelines == 0 {
            return None;
        }
        self.began.get_or_insert(now);
        if later.is_empty() {
            return Some(Said::Summary { pipelines, missed: slots, run, since, until: now });
        }
        self.announced.extend(later.iter().map(|(pipeline, _)| pipeline.clone()));
        self.is_to_sum_up.get_or_insert((since, self.counts));
        Some(Said::Begins { pipelines: pipelines + later.len() as u64, since, until: now })
    }

    /// Takes note of an accepted group.
    pub(crate) fn saw(&mut self, group: &Group) {
        self.touch(&group.pipeline);
        let has = |kind| events(group).any(|(found, _)| found == kind);
        for (kind, count) in events(group) {
            match kind {
                "CATCHUP_QUEUED" => {
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
                | "SCHEDULE_UNKNOWN" => self.counts.skipped += count,
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
            said.push(Said::GoesOn { slots: self.left, pipelines: self.pending.len() as u64 });
            self.left = 0;
            self.began.get_or_insert(now);
            self.touched.clone_from(&self.pending);
        }
        let Some(began) = self.began else { return said };
        let counts = self.counts;
        if let Some((since, before)) = self.is_to_sum_up.take() {
            let run = counts.opened - before.opened;
            let missed = run + counts.skipped - before.skipped;
            let pipelines = self.announced.len() as u64;
            said.push(Said::Summary { pipelines, missed, run, since, until: now });
        }
        // All of that is recorded; what is missed from now on is news.
        self.announced.clear();
        for pipeline in std::mem::take(&mut self.touched) {
            if !is_pending(&pipeline) {
                self.pending.remove(&pipeline);
            }
        }
        if self.pending.is_empty() {
            said.push(Said::Done { counts, took: now.duration_since(began) });
            *self = Self::default();
        }
        said
    }
}

impl Said {
    /// Says it.
    pub(crate) fn log(&self) {
        match *self {
            Self::Begins { pipelines, since, until } => tracing::info!(
                event = "CATCHUP_BEGINS",
                pipelines,
                from = %format_args!("{since:.0}"),
                until = %format_args!("{until:.0}"),
                "catch-up: {} missed slots from {since:.0} to {until:.0}",
                counted(pipelines, "pipeline"),
            ),
            Self::Summary { pipelines, missed, run, since, until } => {
                let skipped = missed.saturating_sub(run);
                tracing::info!(
                    event = "CATCHUP_SUMMARY",
                    pipelines,
                    missed,
                    toRun = run,
                    skipped,
                    from = %format_args!("{since:.0}"),
                    until = %format_args!("{until:.0}"),
                    "catch-up: {} missed {} from {since:.0} to {until:.0}: {run} to run, {skipped} skipped",
                    counted(pipelines, "pipeline"),
                    counted(missed, "slot"),
                );
            }
            Self::GoesOn { slots, pipelines } => tracing::info!(
                event = "CATCHUP_GOES_ON",
                slots,
                pipelines,
                "catch-up goes on: {} of {} left",
                counted(slots, "slot"),
                counted(pipelines, "pipeline"),
            ),
            Self::Done { counts: Counts { completed, failed, cancelled, skipped, .. }, took } => {
                tracing::info!(
                    event = "CATCHUP_DONE",
                    completed,
                    failed,
                    cancelled,
                    skipped,
                    milliseconds = i64::try_from(took.as_millis()).unwrap_or(i64::MAX),
                    "catch-up is done: {completed} completed, {failed} failed, {cancelled} cancelled, \
                     {skipped} skipped, in {took:#}"
                );
            }
        }
    }
}

/// So many of something, in words.
pub(crate) fn counted(count: u64, noun: &str) -> String {
    let s = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{s}")
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
    use crate::write::{Event, Planned};

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn orders() -> PipelineId {
        PipelineId::parse("orders").unwrap()
    }

    fn planned(pipeline: &PipelineId, missed: u64, run: u64) -> Planned {
        let writer = Writer { role: Role::Engine, shard: Shard(0), term: Term(1) };
        let mut plan = Planned::new(pipeline, writer);
        let event = Event::of("CATCHUP_PLANNED", at(0), "");
        plan.event(event.detail("missed", missed).detail("run", run));
        plan
    }

    fn event(kind: &str, count: Option<u64>) -> Change {
        let details = count.map(|count| ("count".to_owned(), count.into())).into_iter().collect();
        let (kind, message) = (kind.to_owned(), String::new());
        Change::Append(EventRecord { kind, at: at(0), slot: None, run_id: None, message, details })
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
        let record = Record::Slot(SlotRecord::from_core(&slot));
        vec![Change::Put(key, Expect::Any, record), event(kind, None)]
    }

    fn group(changes: Vec<Change>) -> Group {
        let Planned { mut group, .. } = planned(&orders(), 0, 0);
        group.changes = changes;
        group
    }

    #[test]
    fn nothing_is_said_when_nothing_was_missed() {
        let mut progress = Progress::default();
        progress.saw(&group(vec![event("SLOT_OPENED", None)]));
        let live = planned(&orders(), 0, 0);
        let live = [Planned { group: group(vec![]), ..live }];
        let missed = Missed { planned: &live, later: &[], since: at(0), now: at(5) };
        assert_eq!(progress.announce(missed), None);
        assert_eq!(progress.tell(|_| true, at(5)), []);
    }

    #[test]
    fn the_summary_comes_before_anything_is_recorded_and_the_end_tells_how_they_ended() {
        let mut progress = Progress::default();
        let plans = [planned(&orders(), 9, 4)];
        let missed = Missed { planned: &plans, later: &[], since: at(0), now: at(100) };
        let summary =
            Said::Summary { pipelines: 1, missed: 9, run: 4, since: at(0), until: at(100) };
        assert_eq!(progress.announce(missed), Some(summary));
        assert_eq!(progress.announce(missed), None, "the rest of the same plan");
        let recorded = vec![
            event("CATCHUP_QUEUED", Some(4)),
            event("SLOTS_SKIPPED", Some(4)),
            event("SLOT_SKIPPED", Some(1)),
        ];
        progress.saw(&group(recorded));
        assert_eq!(progress.tell(|_| true, at(100)), [], "it is under way");
        let closed = |disposition| SlotState::Closed(disposition);
        progress.saw(&group(slot(SlotState::Open(OpenState::Monitoring), "JOB_COMPLETED")));
        progress.saw(&group(slot(closed(Disposition::Completed), "MONITORING_COMPLETED")));
        progress.saw(&group(slot(closed(Disposition::Completed), "JOB_COMPLETED")));
        progress.saw(&group(slot(closed(Disposition::Failed), "RETRY_EXHAUSTED")));
        assert_eq!(progress.tell(|_| true, at(101)), []);
        progress.saw(&group(slot(closed(Disposition::Failed), "RETRY_EXHAUSTED")));
        let counts = Counts { opened: 4, completed: 2, failed: 2, cancelled: 0, skipped: 5 };
        let took = SignedDuration::from_secs(10);
        assert_eq!(progress.tell(|_| false, at(110)), [Said::Done { counts, took }]);
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
        assert_eq!(progress.tell(|_| false, at(10)), [Said::Done { counts, took }]);
    }

    #[test]
    fn many_pipelines_are_announced_at_once_and_summed_up_when_all_is_recorded() {
        let mut progress = Progress::default();
        let plans = [planned(&orders(), 20, 20)];
        let others = [(PipelineId::parse("sales").unwrap(), at(0))];
        let missed = Missed { planned: &plans, later: &others, since: at(0), now: at(9) };
        let begins = Said::Begins { pipelines: 2, since: at(0), until: at(9) };
        assert_eq!(progress.announce(missed), Some(begins));
        progress.saw(&group(vec![event("CATCHUP_QUEUED", Some(20))]));
        let plans = [planned(&others[0].0, 5, 0)];
        let rest = Missed { planned: &plans, later: &[], ..missed };
        assert_eq!(progress.announce(rest), None);
        progress.saw(&group(vec![event("SLOTS_MISSED", Some(5))]));
        let summary =
            Said::Summary { pipelines: 2, missed: 25, run: 20, since: at(0), until: at(10) };
        assert_eq!(progress.tell(|_| true, at(10)), [summary]);
    }
}
