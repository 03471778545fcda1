//! Which misses a good slot does not end.
//!
//! The next good slot of a schedule ends what its schedule left open (ADR 14). A gap is different: its slots were given
//! up (`no_catchup`, `expired`, `capped`) or wait for their turn, and that others run says nothing of them. Such an
//! incident ends when the last of its slots has run, or by a person's hand (`docs/adr/0033-gaps-stay-open.md`).

use std::collections::BTreeSet;

use interlock_core::{
    agenda::Work,
    id::ScheduleId,
    incident::is_miss,
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::{
    Change, Group, Key, LedgerEntry, LedgerQuery, LedgerRow, Record,
    record::{IncidentRecord, SpanRecord},
};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use super::{Known, events};
use crate::{
    engine::{Engine, EngineError},
    state::{PipelineState, SlotPlace},
};

/// Rows per page, and pages: a longer gap is not looked through, and ends by a person's hand.
const PAGE: usize = 1_000;
const PAGES_MAX: usize = 10;
/// Rows of the first page, where one that was given up is enough.
const FIRST: usize = 10;

/// The slots that an incident tells of.
struct Gap {
    schedule: ScheduleId,
    first: Timestamp,
    last: Timestamp,
}

impl Engine {
    /// The keys of misses that a group's good slots do not end.
    pub(super) async fn unfilled(
        &self,
        group: &Group,
        known: &Known,
    ) -> Result<BTreeSet<String>, EngineError> {
        let mut unfilled = BTreeSet::new();
        let Some(state) = self.pipelines.0.get(&group.pipeline) else { return Ok(unfilled) };
        let is_good = events(group).any(|event| event.kind == "JOB_COMPLETED");
        if !is_good || state.agenda.work != Work::Started {
            return Ok(unfilled);
        }
        let own = known.range((group.pipeline.clone(), String::new())..);
        let own = own.take_while(|((pipeline, _), _)| *pipeline == group.pipeline);
        for ((_, key), (record, _)) in own.filter(|(_, (record, _))| record.is_open()) {
            let Some(gap) = Gap::of(record).filter(|_| is_miss(&record.kind)) else { continue };
            if !self.is_filled(&gap, group, state).await? {
                unfilled.insert(key.clone());
            }
        }
        Ok(unfilled)
    }

    async fn is_filled(
        &self,
        gap: &Gap,
        group: &Group,
        state: &PipelineState,
    ) -> Result<bool, EngineError> {
        let ended: BTreeSet<SlotPlace> = ended(group).filter(|place| gap.holds(place)).collect();
        // What is held and not yet in the store is in memory.
        let waits = state.open.iter().any(|(place, open)| {
            gap.holds(place)
                && !ended.contains(place)
                && open.slot.state != SlotState::Open(OpenState::Monitoring)
        });
        if waits || (state.has_more_queued && !ended.is_empty()) {
            return Ok(false);
        }
        let mut query = LedgerQuery {
            pipeline: Some(group.pipeline.clone()),
            from: gap.first,
            until: gap.last.saturating_add(SignedDuration::from_millis(1)).unwrap_or(gap.last),
            ..LedgerQuery::everything(PAGE)
        };
        if ended.is_empty() {
            // A slot that is not of the gap does not fill it: it is enough that one was given up, and the first mostly was.
            query.disposition = Some("skipped".to_owned());
            query.limit = FIRST;
        }
        let mut rows = Vec::new();
        for _ in 0..PAGES_MAX {
            let page = self.store.ledger(&query).await?;
            query.after = page.items.last().map(LedgerRow::place);
            query.limit = PAGE;
            rows.extend(page.items.into_iter().filter(|row| row.schedule == gap.schedule));
            if ended.is_empty() && rows.iter().any(|row| is_absence(&row.entry)) {
                return Ok(false);
            }
            if !page.more {
                return Ok(is_filled(&rows, &ended));
            }
        }
        Ok(false)
    }
}

impl Gap {
    /// What an incident tells of: from its first slot, or that of its span, to the last that joined it.
    fn of(record: &IncidentRecord) -> Option<Self> {
        let text = |name| record.details.get(name).and_then(Value::as_str);
        let (schedule, slot) = text("slot")?.split_once('/')?;
        let slot: Timestamp = slot.parse().ok()?;
        let joined = text("lastSlot").and_then(|it| it.split_once('/')?.1.parse().ok());
        let first = text("span").and_then(|it| it.parse().ok()).unwrap_or(slot);
        let schedule = ScheduleId::any(schedule).ok()?;
        Some(Self { schedule, first, last: joined.unwrap_or(slot).max(slot) })
    }

    fn holds(&self, (nominal, schedule): &SlotPlace) -> bool {
        *schedule == self.schedule && (self.first..=self.last).contains(nominal)
    }
}

/// Whether none of a gap's slots is still given up, the ones that just ended well aside.
fn is_filled(rows: &[LedgerRow], ended: &BTreeSet<SlotPlace>) -> bool {
    let has_own_row = |row: &&LedgerRow| matches!(row.entry, LedgerEntry::Slot(_));
    rows.iter().filter(|row| is_absence(&row.entry)).all(|row| match &row.entry {
        LedgerEntry::Slot(_) => ended.contains(&(row.nominal, row.schedule.clone())),
        LedgerEntry::Span(SpanRecord { last, count, .. }) => {
            let inside = |at: Timestamp| (row.nominal..=*last).contains(&at);
            let settled = rows.iter().filter(has_own_row).filter(|it| inside(it.nominal));
            settled.count() as u64 >= *count
        }
    })
}

/// Slots whose runs ended well by a group.
fn ended(group: &Group) -> impl Iterator<Item = SlotPlace> {
    group.changes.iter().filter_map(|change| match change {
        Change::Put(Key::Slot(schedule, nominal), _, Record::Slot(_)) => {
            Some((*nominal, schedule.clone()))
        }
        Change::Put(..) | Change::Delete(..) | Change::Append(_) => None,
    })
}

fn is_absence(entry: &LedgerEntry) -> bool {
    let (word, reason) = match entry {
        LedgerEntry::Slot(slot) => (slot.disposition.as_deref(), slot.reason.as_deref()),
        LedgerEntry::Span(span) => (Some(span.disposition.as_str()), span.reason.as_deref()),
    };
    let disposition = word.and_then(|word| Disposition::parse(word, reason).ok());
    disposition.is_some_and(Disposition::is_absence)
}
