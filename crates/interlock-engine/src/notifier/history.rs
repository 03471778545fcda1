//! What the ledger says about the last slots of a schedule: for channels that want to hear only of what happens often,
//! and of an end only when it holds.

use interlock_core::{
    id::ScheduleId,
    incident::Alert,
    slot::{Disposition, Slot, SlotState},
};
use interlock_store::{LedgerEntry, LedgerQuery, LedgerRow, OutboxRow, StoreError};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::Notifier;
use crate::scheduler::plus;

/// How far back is looked first, and at most: four times as far each time that it was not enough.
const FIRST_LOOK: SignedDuration = SignedDuration::from_hours(6);
const LOOKS_MAX: u32 = 6;
/// Rows per page, and pages per look.
const PAGE: usize = 500;
const PAGES_MAX: usize = 20;

/// How slots went, the latest first: true is good. Undecided ones are not among them.
pub(super) type Went = Vec<bool>;

impl Notifier {
    /// How the last slots went of the schedule that an alert is about, at most so many; `None` if it is about none.
    pub(super) async fn history(
        &self,
        row: &OutboxRow,
        alert: &Alert,
        count: usize,
    ) -> Result<Option<Went>, StoreError> {
        let schedule = alert.details.get("scheduleId").and_then(Value::as_str);
        let Some(schedule) = schedule.and_then(|name| ScheduleId::any(name).ok()) else {
            return Ok(None);
        };
        let now = self.world.now();
        let mut back = FIRST_LOOK;
        for look in 1.. {
            let mut went = self.since(row, &schedule, plus(now, -back)).await?;
            if went.len() >= count || look >= LOOKS_MAX {
                went.truncate(count);
                return Ok(Some(went));
            }
            back *= 4;
        }
        Ok(None)
    }

    async fn since(
        &self,
        row: &OutboxRow,
        schedule: &ScheduleId,
        from: Timestamp,
    ) -> Result<Went, StoreError> {
        let mut query = LedgerQuery {
            pipeline: Some(row.pipeline.clone()),
            from,
            ..LedgerQuery::everything(PAGE)
        };
        let mut went = Went::new();
        for _ in 0..PAGES_MAX {
            let page = self.store.ledger(&query).await?;
            let theirs = page.items.iter().filter(|found| found.schedule == *schedule);
            went.extend(theirs.flat_map(how_it_went));
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                break;
            }
        }
        went.reverse();
        Ok(went)
    }
}

fn how_it_went(found: &LedgerRow) -> Vec<bool> {
    match &found.entry {
        LedgerEntry::Slot(record) => {
            record.to_core().ok().and_then(|slot| was_good(&slot)).into_iter().collect()
        }
        LedgerEntry::Span(span) => {
            let is_missed = span.disposition == Disposition::Missed.as_str()
                || span.reason.as_deref().is_some_and(|reason| {
                    interlock_core::slot::SkipReason::parse(reason)
                        .is_ok_and(interlock_core::slot::SkipReason::counts_as_missed)
                });
            if is_missed { vec![false; span.count.min(PAGE as u64) as usize] } else { vec![] }
        }
    }
}

/// Whether a slot went well; `None` if that is not decided, or nobody wanted it to run.
fn was_good(slot: &Slot) -> Option<bool> {
    if slot.marks.missed_at.is_some() {
        return Some(false);
    }
    match slot.state {
        SlotState::Closed(Disposition::Completed) => Some(true),
        SlotState::Closed(Disposition::Failed | Disposition::Missed | Disposition::Unknown) => {
            Some(false)
        }
        SlotState::Closed(Disposition::Skipped(reason)) if reason.counts_as_missed() => Some(false),
        SlotState::Closed(Disposition::Skipped(_) | Disposition::Cancelled)
        | SlotState::Open(_) => None,
    }
}
