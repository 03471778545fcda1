//! Spans, slot by slot: what a schedule owed is enumerated again by the declaration under which the span was recorded. A slot with a
//! row of its own wins over the span that covers it.

use std::{collections::BTreeSet, ops::Range, sync::Arc};

use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    pipeline::Pipeline,
    schedule::Schedule,
};
use interlock_store::{
    LedgerEntry, LedgerPlace, LedgerQuery, LedgerRow,
    record::{SpanRecord, version_number},
};
use jiff::{SignedDuration, Timestamp};

use super::slot::{MeantSlots, slot_key, slot_of_span};
use crate::{
    AnswerError, Cursor, Listing, Reader, SCAN_MAX,
    model::slot::{LedgerAnswer, SlotAnswer},
};

/// A span of more slots is not counted again: only the declaration under which it was recorded says which they are.
const COUNTED_MAX: u64 = 10_000;
/// Finer than slots are.
const MOMENT: SignedDuration = SignedDuration::from_nanos(1);

/// Where a page of expanded slots begins, and how long it may get.
#[derive(Debug, Clone)]
pub(super) struct PageStart {
    pub(super) after: Option<LedgerPlace>,
    pub(super) limit: usize,
}

/// A slot of a page, or a span that stays one.
struct ExpandedRow {
    place: LedgerPlace,
    entry: ExpandedEntry,
}

enum ExpandedEntry {
    /// As it stands in the ledger.
    Row(Box<LedgerRow>),
    /// One slot of a span.
    OfSpan(Box<SlotAnswer>),
}

/// The slots that were found, and up to where that is all of them.
struct ExpandedRows {
    found: Vec<ExpandedRow>,
    times: Range<Timestamp>,
    limit: usize,
    now: Timestamp,
}

impl Reader<'_> {
    /// The slots of one pipeline in order of time, those of spans by themselves.
    pub(super) async fn expanded(
        &self,
        pipeline: &PipelineId,
        meant: &MeantSlots,
        start: PageStart,
    ) -> Result<Listing<LedgerAnswer>, AnswerError> {
        let PageStart { after, limit } = start;
        let (from, until) = (meant.filter.from, meant.filter.until);
        let from = after.as_ref().map_or(from, |after| after.nominal.max(from));
        let query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            from,
            until,
            ..LedgerQuery::everything(SCAN_MAX)
        };
        let page = self.store.ledger(&query).await?;
        let scanned = page.items.len() as u64;
        // Of what stands at the last instant some may be missing.
        let end = page.items.last().filter(|_| page.more).map_or(until, |last| last.nominal);
        let mut rows = ExpandedRows { found: vec![], times: from..end, limit, now: self.now };
        let own: BTreeSet<SlotKey> = page
            .items
            .iter()
            .filter(|row| matches!(row.entry, LedgerEntry::Slot(_)))
            .map(slot_key)
            .collect();
        for row in page.items.into_iter().filter(|row| meant.concerns(row)) {
            if row.nominal >= rows.times.end {
                break;
            }
            let LedgerEntry::Span(span) = &row.entry else {
                rows.push_row(row);
                continue;
            };
            match self.declared_for(&row, span).await {
                Some(declared) => rows.push_span(&row, &declared, &own),
                None => rows.push_row(row),
            }
        }
        let ExpandedRows { found, times, .. } = rows;
        let is_asked_for = |row: &ExpandedRow| {
            row.place.nominal < times.end
                && after.as_ref().is_none_or(|after| row.place > *after)
                && row.is_asked_for(meant)
        };
        let mut found: Vec<_> = found.into_iter().filter(is_asked_for).collect();
        found.sort_by(|one, other| one.place.cmp(&other.place));
        let is_cut = found.len() > limit;
        found.truncate(limit);
        let last = found.last().filter(|_| is_cut).map(|row| row.place.clone());
        let horizon = (times.end < until).then(|| just_before(times.end, pipeline));
        let next = last.or(horizon).map(|place| Cursor::of_ledger(&place).encode());
        let items = self.expanded_answers(found).await?;
        Ok(Listing { items, next, scanned, unreadable: vec![] })
    }

    async fn expanded_answers(
        &self,
        found: Vec<ExpandedRow>,
    ) -> Result<Vec<LedgerAnswer>, AnswerError> {
        let rows = found.iter().filter_map(|row| match &row.entry {
            ExpandedEntry::Row(row) => Some(row.as_ref().clone()),
            ExpandedEntry::OfSpan(_) => None,
        });
        let mut answers = self.ledger_answers(rows.collect()).await?.into_iter();
        let answer = |row: ExpandedRow| match row.entry {
            ExpandedEntry::Row(_) => answers.next(),
            ExpandedEntry::OfSpan(slot) => Some(LedgerAnswer::Slot(*slot)),
        };
        Ok(found.into_iter().filter_map(answer).collect())
    }

    /// The declaration that says which slots a span has: the one under which it was recorded, else the present one if that
    /// counts as many.
    pub(super) async fn declared_for(
        &self,
        row: &LedgerRow,
        span: &SpanRecord,
    ) -> Option<Arc<Pipeline>> {
        let has_ends = |declared: &Arc<Pipeline>| {
            declared
                .schedule(&row.schedule)
                .is_some_and(|it| it.is_slot(row.nominal) && it.is_slot(span.last))
        };
        if let Ok(version) = version_number(&span.version)
            && let Ok(Some(recorded)) = self.declarations.version(&row.pipeline, version).await
            && has_ends(&recorded)
        {
            return Some(recorded);
        }
        let current = self.declarations.current(&row.pipeline).await.ok().flatten();
        current.filter(has_ends).filter(|declared| {
            span.count <= COUNTED_MAX
                && declared.schedule(&row.schedule).is_some_and(|it| count(it, row, span))
        })
    }
}

/// Whether a schedule owes as many slots as a span has.
fn count(schedule: &Schedule, row: &LedgerRow, span: &SpanRecord) -> bool {
    let limit = usize::try_from(span.count).unwrap_or(usize::MAX).saturating_add(1);
    let found = schedule.slots(row.nominal, just_after(span.last), limit).found;
    found.len() as u64 == span.count
}

fn just_after(at: Timestamp) -> Timestamp {
    at.saturating_add(MOMENT).unwrap_or(at)
}

/// A place behind everything that stands before an instant.
fn just_before(at: Timestamp, pipeline: &PipelineId) -> LedgerPlace {
    LedgerPlace {
        nominal: at.saturating_sub(MOMENT).unwrap_or(at),
        pipeline: pipeline.clone(),
        schedule: ScheduleId::from_static("all"),
        is_span: true,
    }
}

impl ExpandedRow {
    fn is_asked_for(&self, meant: &MeantSlots) -> bool {
        match &self.entry {
            ExpandedEntry::Row(row) => meant.holds(row),
            ExpandedEntry::OfSpan(slot) => meant.has_disposition(slot.disposition.as_deref()),
        }
    }
}

impl ExpandedRows {
    fn push_row(&mut self, row: LedgerRow) {
        let place = row.place();
        self.found.push(ExpandedRow { place, entry: ExpandedEntry::Row(row.into()) });
    }

    /// Adds the slots of a span that have no row of their own. What does not fit on the page is beyond its end.
    fn push_span(&mut self, row: &LedgerRow, declared: &Pipeline, own: &BTreeSet<SlotKey>) {
        let LedgerEntry::Span(span) = &row.entry else { return };
        let Some(schedule) = declared.schedule(&row.schedule) else { return };
        let from = row.nominal.max(self.times.start);
        let until = just_after(span.last).min(self.times.end);
        let mut slots = schedule.slots(from, until, self.limit.saturating_add(1)).found;
        if let Some(beyond) = slots.get(self.limit).copied() {
            self.times.end = beyond;
            slots.truncate(self.limit);
        }
        for nominal in slots {
            let key = SlotKey { nominal, ..slot_key(row) };
            if own.contains(&key) {
                continue;
            }
            let date = schedule.occurrence(nominal).date;
            let slot = slot_of_span(&key, Some(date), span, self.now);
            let SlotKey { pipeline, schedule, nominal } = key;
            let place = LedgerPlace { nominal, pipeline, schedule, is_span: false };
            self.found.push(ExpandedRow { place, entry: ExpandedEntry::OfSpan(slot.into()) });
        }
    }
}
