//! The sweep: a slow rotation over every pipeline and every open slot, for what no timer announced.

use std::collections::BTreeMap;

use interlock_core::{
    id::PipelineId,
    slot::{OpenState, SlotState},
};
use interlock_store::{DueKind, LedgerEntry, LedgerRow, Obligation, Subject};
use jiff::{SignedDuration, Timestamp};

use crate::{
    gather::{Question, Reconciles},
    load::{self, OpenPlace},
    owed::plus,
    resident::{Watchdog, WatchdogError},
    watched::Watched,
};

/// Pipelines per page: so many that no pass is held up by them.
const SWEEP_PAGE: usize = 200;
/// The owner may be a moment late with the end of a run that is too old.
const OVERDUE_BY: SignedDuration = SignedDuration::from_secs(2);

/// Where the sweep stands.
#[derive(Debug, Default)]
pub(crate) struct Sweep {
    pub(crate) next_at: Option<Timestamp>,
    pub(crate) pipeline: Option<PipelineId>,
    pub(crate) open: Option<OpenPlace>,
}

impl Watchdog {
    /// A page of the rotation over all pipelines and all open slots.
    pub(crate) async fn sweep_a_page(
        &mut self,
        now: Timestamp,
        asked: &mut BTreeMap<PipelineId, Question>,
    ) -> Result<(), WatchdogError> {
        if self.sweep.next_at.is_some_and(|at| now < at) {
            return Ok(());
        }
        let pages = self.list.len() / SWEEP_PAGE + 1;
        self.sweep.next_at = Some(plus(now, self.pace.interval / pages as i32));
        let shard = self.writer.shard;
        let page = self.store.agenda(shard, self.sweep.pipeline.as_ref(), SWEEP_PAGE).await?;
        for row in &page.items {
            self.take(&row.pipeline, &row.record.record, row.record.revision);
            if self.list.get(&row.pipeline).is_some_and(Watched::has_sensors) {
                asked.entry(row.pipeline.clone()).or_default().reconciles = Reconciles::Yes;
            }
        }
        self.sweep.pipeline = page.items.last().filter(|_| page.more).map(|r| r.pipeline.clone());
        let (rows, next) =
            load::open_slots(self.store.as_ref(), shard, (self.sweep.open.as_ref(), SWEEP_PAGE))
                .await?;
        self.sweep.open = next;
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
    let LedgerEntry::Slot(record) = &row.entry else { return };
    let Ok(slot) = record.to_core() else { return };
    if slot.state == SlotState::Open(OpenState::Running) && plus(slot.closes_at, OVERDUE_BY) < now {
        let subject = Subject::Slot(row.schedule.clone(), row.nominal);
        let due = Obligation::new(slot.closes_at, DueKind::Closes, subject);
        let question = asked.entry(row.pipeline.clone()).or_default();
        if !question.due.iter().any(|known| known.key() == due.key()) {
            question.due.push(due);
        }
    } else if slot.sla.as_deref().and_then(|sla| sla.completion).is_some_and(|l| l.breach_at > now)
    {
        let question = asked.entry(row.pipeline.clone()).or_default();
        question.open.insert((row.nominal, row.schedule.clone()));
    }
}
