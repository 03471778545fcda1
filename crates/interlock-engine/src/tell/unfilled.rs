//! Which misses a good slot does not end.
//!
//! The next good slot of a schedule ends what its schedule left open (ADR 14). A gap is different: its slots were given
//! up (`no_catchup`, `expired`, `capped`) or wait for their turn, and that others run says nothing of them. Such an
//! incident ends when the last of its slots has run, or by a person's hand (`docs/adr/0033-gaps-stay-open.md`).

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Mutex, PoisonError},
};

use interlock_core::{
    agenda::Work,
    id::PipelineId,
    incident::is_miss,
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::{
    Change, Group, Key, LedgerEntry, LedgerQuery, LedgerRow, Record,
    record::{SpanRecord, TellsOf},
};
use jiff::{SignedDuration, Timestamp};

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

/// What is known of the misses that stand open, by pipeline and incident: as long as something of a gap is given up, no slot
/// beside it ends it, and nothing need be read for that. A gap may stand open for weeks, and there may be many of them.
#[derive(Debug, Default)]
pub(crate) struct Gaps(Mutex<BTreeMap<PipelineId, BTreeMap<String, SeenGap>>>);

/// A gap, as it was at a revision of its incident.
#[derive(Debug, Clone)]
struct SeenGap {
    revision: u64,
    gap: TellsOf,
    /// A slot or a span of it that was given up.
    given_up: Option<Key>,
}

impl Gaps {
    fn get(&self, pipeline: &PipelineId, incident: &str, revision: u64) -> Option<SeenGap> {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seen = all.get(pipeline)?.get(incident)?;
        (seen.revision == revision).then(|| seen.clone())
    }

    fn keep(&self, pipeline: &PipelineId, incident: &str, seen: SeenGap) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.entry(pipeline.clone()).or_default().insert(incident.to_owned(), seen);
    }

    /// Looks again at what a group has changed, and leaves alone what is over by it.
    pub(crate) fn absorb(&self, group: &Group) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(gaps) = all.get_mut(&group.pipeline) else { return };
        for key in group.changes.iter().filter_map(Change::key) {
            if let Key::Incident(incident) = key {
                gaps.remove(incident);
            }
            for seen in gaps.values_mut().filter(|seen| seen.given_up.as_ref() == Some(key)) {
                seen.given_up = None;
            }
        }
        if gaps.is_empty() {
            all.remove(&group.pipeline);
        }
    }

    /// What was known of a pipeline may be otherwise.
    pub(crate) fn forget(&self, pipeline: &PipelineId) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).remove(pipeline);
    }
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
        for ((_, key), (record, revision)) in own.filter(|(_, (record, _))| record.is_open()) {
            if !is_miss(&record.kind) {
                continue;
            }
            let seen = self.remembered.gaps.get(&group.pipeline, key, *revision).or_else(|| {
                let (revision, gap) = (*revision, record.tells_of()?);
                Some(SeenGap { revision, gap, given_up: None })
            });
            let Some(mut seen) = seen else { continue };
            let ended = ended(group).filter(|(at, schedule)| seen.gap.holds(*at, schedule));
            let ended: BTreeSet<SlotPlace> = ended.collect();
            let is_known = ended.is_empty() && seen.given_up.is_some();
            if is_known || !self.is_filled(&mut seen, &ended, (group, state)).await? {
                unfilled.insert(key.clone());
            }
            if !is_known {
                self.remembered.gaps.keep(&group.pipeline, key, seen);
            }
        }
        Ok(unfilled)
    }

    async fn is_filled(
        &self,
        seen: &mut SeenGap,
        ended: &BTreeSet<SlotPlace>,
        (group, state): (&Group, &PipelineState),
    ) -> Result<bool, EngineError> {
        let gap = &seen.gap;
        // What is held and not yet in the store is in memory.
        let waits = state.open.iter().any(|(place, open)| {
            gap.holds(place.0, &place.1)
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
            if ended.is_empty()
                && let Some(row) = rows.iter().find(|row| is_absence(&row.entry))
            {
                seen.given_up = Some(key_of(row));
                return Ok(false);
            }
            if !page.more {
                return Ok(is_filled(&rows, ended));
            }
        }
        Ok(false)
    }
}

fn key_of(row: &LedgerRow) -> Key {
    let (schedule, at) = (row.schedule.clone(), row.nominal);
    match row.entry {
        LedgerEntry::Slot(_) => Key::Slot(schedule, at),
        LedgerEntry::Span(_) => Key::Span(schedule, at),
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

#[cfg(test)]
mod tests {
    use interlock_core::id::ScheduleId;
    use interlock_store::{Expect, Role, Shard, Term, Writer};

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn slot(second: i64) -> Key {
        Key::Slot(ScheduleId::from_static("cron"), at(second))
    }

    fn group(pipeline: &PipelineId, key: Key) -> Group {
        let writer = Writer { role: Role::Engine, shard: Shard(0), term: Term(1) };
        let changes = vec![Change::Delete(key, Expect::Any)];
        Group { pipeline: pipeline.clone(), writer, changes }
    }

    #[test]
    fn a_gap_is_looked_at_again_when_what_was_given_up_or_its_incident_changes() {
        let orders = PipelineId::parse("orders").unwrap();
        let gap =
            TellsOf { schedule: ScheduleId::from_static("cron"), first: at(10), last: at(20) };
        let gaps = Gaps::default();
        let seen = SeenGap { revision: 3, gap, given_up: Some(slot(10)) };
        let given_up = || gaps.get(&orders, "missed", 3).and_then(|seen| seen.given_up);
        gaps.keep(&orders, "missed", seen.clone());
        assert_eq!(given_up(), Some(slot(10)));
        assert!(gaps.get(&orders, "missed", 4).is_none(), "another slot has joined it");
        gaps.absorb(&group(&orders, slot(20)));
        gaps.absorb(&group(&PipelineId::parse("stock").unwrap(), slot(10)));
        assert_eq!(given_up(), Some(slot(10)), "another slot");
        gaps.absorb(&group(&orders, slot(10)));
        assert_eq!(given_up(), None);
        gaps.keep(&orders, "missed", seen.clone());
        gaps.absorb(&group(&orders, Key::Incident("missed".to_owned())));
        assert!(gaps.get(&orders, "missed", 3).is_none());
        gaps.keep(&orders, "missed", seen);
        gaps.forget(&orders);
        assert_eq!(given_up(), None);
    }
}
