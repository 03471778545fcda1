//! The sweep: a slow rotation over every pipeline and every open slot, for what no timer announced.
//!
//! It is a safety net, and must not cost what it saves: its rate is bounded, whatever there is to rotate over, and of
//! pipelines whose rows did not change only the revisions are read.

use std::collections::BTreeMap;

use interlock_core::{id::PipelineId, slot::OpenState};
use interlock_store::{DueKind, LedgerEntry, LedgerRow, Obligation, StoreError, Subject};
use jiff::{SignedDuration, Timestamp};

use crate::{
    gather::{Question, Reconciles},
    judging::{OPEN_SLOTS, UsableChecks, for_good},
    load::{self, OpenPlace},
    owed::plus,
    resident::{Watchdog, WatchdogError},
};

/// Pipelines per page.
const SWEEP_PAGE: usize = 100;
/// Open slots per page: these are read.
const OPEN_PAGE: usize = 30;
/// Pages are this far apart at least; a rotation over more than that allows takes longer than the interval. Every
/// change of a pipeline's row has its event, so this is a net below a net.
const PAUSE_MIN: SignedDuration = SignedDuration::from_secs(5);
/// How often some open slots are read, and some of the pipelines whose slots a report may open; all of the latter once
/// per interval.
const TURN: SignedDuration = SignedDuration::from_secs(1);
/// The owner may be a moment late with the end of a run that is too old.
const OVERDUE_BY: SignedDuration = SignedDuration::from_secs(2);

/// Where the sweep stands.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    next_at: Option<Timestamp>,
    pipeline: Option<PipelineId>,
    open: Option<OpenPlace>,
    open_at: Option<Timestamp>,
    /// How many pipelines were asked about their sensors in this rotation.
    sensors: usize,
    sensors_at: Option<Timestamp>,
}

impl Sweep {
    /// What it waits for is as good as over.
    pub(crate) fn begin_again(&mut self) {
        (self.next_at, self.open_at, self.sensors_at) = (None, None, None);
    }
}

impl Watchdog {
    /// A page of the rotation over all pipelines and all open slots.
    pub(crate) async fn sweep_a_page(
        &mut self,
        now: Timestamp,
        asked: &mut BTreeMap<PipelineId, Question>,
        usable: &mut UsableChecks,
    ) -> Result<(), WatchdogError> {
        let open = self.sweep_open_slots(now, asked).await;
        usable.read(OPEN_SLOTS, for_good(open)?);
        self.sweep_sensors(now, asked);
        if self.sweep.next_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let pages = self.list.len() / SWEEP_PAGE + 1;
        let pause = self.pace.interval / i32::try_from(pages).unwrap_or(i32::MAX);
        self.sweep.next_at = Some(plus(now, pause.max(PAUSE_MIN)));
        let (shard, after) = (self.writer.shard, self.sweep.pipeline.as_ref());
        let page = self.store.revisions(shard, after, SWEEP_PAGE).await?;
        for (pipeline, revision) in &page.items {
            if self.list.revision(pipeline) != Some(*revision) {
                self.read_again(pipeline).await?;
            }
        }
        self.sweep.pipeline =
            page.items.last().filter(|_| page.more).map(|(pipeline, _)| pipeline.clone());
        Ok(())
    }

    /// Some of the pipelines whose slots a report may open. Who they are is known without a question to the store.
    fn sweep_sensors(&mut self, now: Timestamp, asked: &mut BTreeMap<PipelineId, Question>) {
        if self.sweep.sensors_at.is_some_and(|at| now < at) {
            return;
        }
        self.sweep.sensors_at = Some(plus(now, TURN));
        let turns = (self.pace.interval.as_secs() / TURN.as_secs()).max(1) as usize;
        let portion = self.list.len().div_ceil(turns);
        let first = if self.sweep.sensors < self.list.len() { self.sweep.sensors } else { 0 };
        for pipeline in self.list.with_sensors(first..first.saturating_add(portion)) {
            asked.entry(pipeline.clone()).or_default().reconciles = Reconciles::Yes;
        }
        self.sweep.sensors = first.saturating_add(portion);
    }

    /// A page of all open slots, and after the last a rest: to find that there are none takes a look at every
    /// pipeline.
    async fn sweep_open_slots(
        &mut self,
        now: Timestamp,
        asked: &mut BTreeMap<PipelineId, Question>,
    ) -> Result<(), StoreError> {
        if self.sweep.open_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let after = (self.sweep.open.as_ref(), OPEN_PAGE);
        let (rows, next) = load::open_slots(self.store.as_ref(), self.writer.shard, after).await?;
        let pause = if next.is_some() { TURN } else { self.pace.interval };
        self.sweep.open = next;
        self.sweep.open_at = Some(plus(now, pause));
        for row in &rows {
            ask_about_open(row, now, asked);
        }
        Ok(())
    }
}

/// Asks about an open slot that somebody should have closed, or whose SLA may not be armed.
pub(crate) fn ask_about_open(
    row: &LedgerRow,
    now: Timestamp,
    asked: &mut BTreeMap<PipelineId, Question>,
) {
    // The row itself is looked at, not what it means as a whole: few of all that are open are asked about.
    let LedgerEntry::Slot(slot) = &row.entry else { return };
    if *slot.state == *OpenState::Running.as_str() && plus(slot.closes_at, OVERDUE_BY) < now {
        let subject = Subject::Slot(row.schedule.clone(), row.nominal);
        let due = Obligation::new(slot.closes_at, DueKind::Closes, subject);
        let question = asked.entry(row.pipeline.clone()).or_default();
        if !question.due.iter().any(|known| known.key() == due.key()) {
            question.due.push(due);
        }
    } else if slot.sla.as_ref().and_then(|sla| sla.breach_at).is_some_and(|at| at > now) {
        let question = asked.entry(row.pipeline.clone()).or_default();
        question.open.insert((row.nominal, row.schedule.clone()));
    }
}
