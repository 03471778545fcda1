//! What may be forgotten: one rule for all engines.
//!
//! A slot goes with its runs, and a span goes, once it is decided and older than is kept. What somebody still needs stays,
//! however old it is:
//! - what is open, and what was opened or recorded lately (a backfill of last year was work of today);
//! - what stands after its schedule's watermark: catch-up would take it for owed (S4). While a pipeline is paused its
//!   watermark stands still;
//! - the slots that an incident tells of which nobody has resolved, with a day around them: whoever looks into it looks there,
//!   and that they were filled is its end. The whole history of a pipeline with a backfill that is not over;
//! - what an archive has not read: while one is behind, nothing goes at all.
//!
//! What is not there and lies before the floor may have been there. So whoever finds nothing before it says that, and
//! takes nothing for "never recorded" (S3). Below the floor only rows count: a span that reaches over it may have covered a
//! row that is gone.
//!
//! A sweep goes through the pipelines of a shard, because their watermarks come with the agenda; each step is bounded
//! (S17) and asks for no lease: a row that has changed since it was read stays.
//!
//! A resolved incident goes once it is that old and nothing is left of what was to be told of it: a notification is named
//! after its incident, whose next life under the same name would find the old ones. A notification that could not be
//! delivered is kept as long, and while its incident is open.
//!
//! Answers to what came through the inbox go by their age alone, under whatever name they stand: what was posted to a
//! pipeline that nobody declares was answered too. No archive has them, and no floor tells of them: a key that is posted
//! again after its answer has gone is a new one.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::{id::PipelineId, sensor};
use jiff::{SignedDuration, Timestamp, Unit};

use crate::{
    contract::{
        AgendaRow, BackfillQuery, LedgerEntry, LedgerQuery, LedgerRow, Row, Shard, Store,
        StoreError,
    },
    kept::Stretch,
    key::Key,
    record::{IncidentRecord, Record, TellsOf},
    whole::{Changes, Forgetting, Portion, Rows, StoredRow},
};

/// The shortest time for which slots are kept: what is younger and not there was never there. Who reconciles sensors relies
/// on it for a week.
pub const KEPT_MIN: SignedDuration = SignedDuration::from_hours(8 * 24);

/// For how long the answer to a key of the inbox is kept. The design promises seven days; a day more is for clocks, and for
/// whoever counts those days from another instant.
pub const ANSWERS_KEPT: SignedDuration = KEPT_MIN;

/// How many pipelines are looked at in one step, and how many rows of each.
const PIPELINES: usize = 100;
const ROWS: usize = 500;
/// How many rows of all are taken out at once.
const AT_ONCE: usize = 1_000;
/// How many changes an archive may have before it, so that what it has not read is left out one by one.
const UNREAD_MAX: usize = 5_000;
/// How many events are looked at in one step.
const EVENTS: usize = 2_000;
/// How many rows of a listing are read at once.
const PAGE: usize = 1_000;

/// How a step ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// There is more to look at.
    More {
        /// How many slots and spans went, or how many events, or how many answers.
        gone: usize,
    },
    /// All that was old is gone.
    Done {
        /// The same.
        gone: usize,
    },
    /// An archive has to read first.
    Archive,
}

/// What of a pipeline may go.
fn going<'a>(
    row: &'a AgendaRow,
    rows: &'a [LedgerRow],
    (before, needed): (Timestamp, &'a [Stretch]),
) -> impl Iterator<Item = (PipelineId, Key, u64)> + 'a {
    rows.iter().filter_map(move |found| {
        let (key, last, is_over) = match &found.entry {
            LedgerEntry::Slot(slot) => {
                let is_over = !slot.is_open() && slot.opened_at < before;
                (Key::Slot(found.schedule.clone(), found.nominal), found.nominal, is_over)
            }
            LedgerEntry::Span(span) => {
                let is_over = span.recorded_at < before;
                (Key::Span(found.schedule.clone(), found.nominal), span.last, is_over)
            }
        };
        let watermark = row.watermarks.get(&found.schedule).map(|row| row.record.at);
        let is_recorded = watermark.is_none_or(|watermark| last <= watermark);
        let is_needed = needed.iter().any(|(from, until)| last >= *from && found.nominal <= *until);
        let goes = is_over && is_recorded && last < before && !is_needed;
        goes.then(|| (row.pipeline.clone(), key, found.revision))
    })
}

/// Whether a report may go, where slots before an instant may be gone: its key names a period from before that, and it came before it.
/// A report without a period in its key says how things are now, and the next one takes its place. The pipeline's owner takes
/// them out, because it has them in memory and knows what is still open.
pub fn is_old_report(key: &str, received_at: Timestamp, before: Timestamp) -> bool {
    received_at < before && sensor::is_of_period_over_by(key, before)
}

/// A way through the pipelines of a shard.
#[derive(Debug)]
pub struct Sweep {
    shard: Shard,
    before: Timestamp,
    /// Pipelines that a backfill is at work on.
    busy: BTreeSet<PipelineId>,
    /// Of others, the times that an open incident tells of.
    needed: BTreeMap<PipelineId, Vec<Stretch>>,
    after: Option<PipelineId>,
}

impl Sweep {
    /// Of a shard, for what is before an instant.
    pub async fn begin(
        store: &dyn Store,
        shard: Shard,
        before: Timestamp,
    ) -> Result<Self, StoreError> {
        let before = before.round(Unit::Second).unwrap_or(before);
        let (mut busy, mut needed) = (BTreeSet::new(), BTreeMap::<PipelineId, Vec<Stretch>>::new());
        for (pipeline, _, incident) in open_incidents(store, shard).await? {
            needed.entry(pipeline).or_default().push(around(&incident));
        }
        let mut query = BackfillQuery {
            shard: Some(shard),
            unfinished: true,
            limit: PAGE,
            ..BackfillQuery::default()
        };
        loop {
            let page = store.backfills(&query).await?;
            query.after = page.items.last().map(|row| (row.pipeline.clone(), row.number));
            busy.extend(page.items.into_iter().map(|row| row.pipeline));
            if !page.more {
                break;
            }
        }
        Ok(Self { shard, before, busy, needed, after: None })
    }

    /// Takes out what is old of the next pipelines.
    pub async fn step(&mut self, store: &dyn Store) -> Result<Step, StoreError> {
        let page = store.agenda(self.shard, self.after.as_ref(), PIPELINES).await?;
        let mut rows = Vec::new();
        let (mut more, mut is_within) = (page.more, false);
        for row in page.items {
            is_within = !self.look_at(store, &row, &mut rows).await?;
            if !is_within {
                self.after = Some(row.pipeline);
            }
            if is_within || rows.len() >= AT_ONCE {
                more = true;
                break;
            }
        }
        let gone = if rows.is_empty() {
            0
        } else {
            // Read after the rows: one that changes later has another revision.
            let Some(unread) = unread(store).await? else { return Ok(Step::Archive) };
            rows.retain(|(pipeline, key, _)| !unread.contains(&(pipeline.clone(), key.clone())));
            let floor = Some(self.before);
            store.forget(Forgetting { floor, rows, events: 0 }).await?
        };
        // The same rows would be found again: the rest waits for the next sweep.
        let is_stuck = is_within && gone == 0;
        Ok(if more && !is_stuck { Step::More { gone } } else { Step::Done { gone } })
    }

    /// Adds what may go of a pipeline; says whether that is all of it.
    async fn look_at(
        &self,
        store: &dyn Store,
        row: &AgendaRow,
        rows: &mut Vec<(PipelineId, Key, u64)>,
    ) -> Result<bool, StoreError> {
        if self.busy.contains(&row.pipeline) {
            return Ok(true);
        }
        let mut query = LedgerQuery {
            pipeline: Some(row.pipeline.clone()),
            until: self.before,
            ..LedgerQuery::everything(ROWS)
        };
        let needed = self.needed.get(&row.pipeline).map_or(&[][..], Vec::as_slice);
        let mut added = 0;
        loop {
            let page = store.ledger(&query).await?;
            let known = rows.len();
            rows.extend(going(row, &page.items, (self.before, needed)));
            added += rows.len() - known;
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return Ok(true);
            }
            if added > 0 {
                return Ok(false);
            }
        }
    }
}

/// The incidents of a shard that are not resolved.
async fn open_incidents(
    store: &dyn Store,
    shard: Shard,
) -> Result<Vec<(PipelineId, String, IncidentRecord)>, StoreError> {
    let mut open = Vec::new();
    let mut last = None;
    loop {
        let page = store.open_incidents(shard, last.as_ref(), PAGE).await?;
        last = page.items.last().map(|(pipeline, key, _)| (pipeline.clone(), key.clone()));
        open.extend(page.items.into_iter().map(|(pipeline, key, row)| (pipeline, key, row.record)));
        if !page.more {
            return Ok(open);
        }
    }
}

/// The time that whoever looks into an incident wants to know of.
fn around(incident: &IncidentRecord) -> Stretch {
    const DAY: SignedDuration = SignedDuration::from_hours(24);
    let (first, last) = match incident.tells_of() {
        Some(TellsOf { first, last, .. }) => (first, last),
        None => (incident.opened_at, incident.opened_at),
    };
    let from = first.checked_sub(DAY).unwrap_or(Timestamp::MIN);
    (from, last.checked_add(DAY).unwrap_or(Timestamp::MAX))
}

/// An incident or a notification: of which pipeline, and its name.
type Named = (PipelineId, String);

/// A way through the notifications of the whole store that could not be delivered, then through its incidents.
#[derive(Debug)]
pub struct IncidentSweep {
    before: Timestamp,
    /// What is open: what could not be told of it stays.
    open: BTreeSet<Named>,
    /// What there is to be told, or was: the incidents that it is about stay.
    told_of: BTreeSet<Named>,
    looks_at: Rows,
    from: String,
}

impl IncidentSweep {
    /// For what was over before an instant.
    pub async fn begin(store: &dyn Store, before: Timestamp) -> Result<Self, StoreError> {
        let mut open = BTreeSet::new();
        for shard in (0..store.shard_count()).map(Shard) {
            let named = open_incidents(store, shard).await?.into_iter();
            open.extend(named.map(|(pipeline, key, _)| (pipeline, key)));
        }
        let (told_of, looks_at, from) = (BTreeSet::new(), Rows::Notifications, String::new());
        Ok(Self { before, open, told_of, looks_at, from })
    }

    /// Takes out what is old of the next rows.
    pub async fn step(&mut self, store: &dyn Store) -> Result<Step, StoreError> {
        let Portion { items, next } = store.rows(self.looks_at, &self.from, AT_ONCE).await?;
        let mut rows: Vec<_> = items.into_iter().filter_map(|found| self.going(found)).collect();
        let gone = if rows.is_empty() {
            0
        } else {
            // Read after the rows: one that changes later has another revision.
            let Some(unread) = unread(store).await? else { return Ok(Step::Archive) };
            rows.retain(|(pipeline, key, _)| !unread.contains(&(pipeline.clone(), key.clone())));
            store.forget(Forgetting { rows, ..Forgetting::default() }).await?
        };
        let is_over = next.is_none() && self.looks_at == Rows::Incidents;
        if next.is_none() {
            self.looks_at = Rows::Incidents;
        }
        self.from = next.unwrap_or_default();
        Ok(if is_over { Step::Done { gone } } else { Step::More { gone } })
    }

    fn going(&mut self, found: StoredRow) -> Option<(PipelineId, Key, u64)> {
        let StoredRow { pipeline, key, row: Row { record, revision } } = found;
        let goes = match (&key, record) {
            (Key::Outbox(name), Record::Outbox(notification)) => {
                // Also of one that goes now: it may have been taken up again meanwhile. Its incident follows the next time.
                self.told_of.insert((pipeline.clone(), name.clone()));
                notification.dead
                    && notification.not_before < self.before
                    && !self.is_of_an_open_one(&pipeline, name)
            }
            (Key::Incident(name), Record::Incident(incident)) => {
                !incident.is_open()
                    && incident.updated_at < self.before
                    && !self.is_told_of(&pipeline, name)
            }
            _ => false,
        };
        goes.then_some((pipeline, key, revision))
    }

    fn is_of_an_open_one(&self, pipeline: &PipelineId, notification: &str) -> bool {
        let open = self.open.range((pipeline.clone(), String::new())..);
        let mut open = open.take_while(|(of, _)| of == pipeline);
        open.any(|(_, incident)| is_named_after(notification, incident))
    }

    fn is_told_of(&self, pipeline: &PipelineId, incident: &str) -> bool {
        let first = self.told_of.range((pipeline.clone(), format!("{incident}~"))..).next();
        first.is_some_and(|(of, notification)| {
            of == pipeline && is_named_after(notification, incident)
        })
    }
}

/// Whether a notification is about an incident: its name begins with the incident's and a tilde. Another incident whose name
/// begins so is taken for it too; it then stays a while longer.
fn is_named_after(notification: &str, incident: &str) -> bool {
    notification.strip_prefix(incident).is_some_and(|rest| rest.starts_with('~'))
}

/// A way through the answers of the whole store.
#[derive(Debug)]
pub struct AnswerSweep {
    before: Timestamp,
    /// Keys that somebody may post again, however old their answers are.
    spared: BTreeSet<String>,
    from: String,
}

impl AnswerSweep {
    /// For what was answered before an instant, without some keys.
    pub fn new(before: Timestamp, spared: BTreeSet<String>) -> Self {
        Self { before, spared, from: String::new() }
    }

    /// Takes out what is old of the next answers.
    pub async fn step(&mut self, store: &dyn Store) -> Result<Step, StoreError> {
        let Portion { items, next } = store.rows(Rows::Answers, &self.from, AT_ONCE).await?;
        let rows: Vec<_> = items.into_iter().filter_map(|found| self.going(found)).collect();
        let gone = if rows.is_empty() {
            0
        } else {
            store.forget(Forgetting { rows, ..Forgetting::default() }).await?
        };
        Ok(match next {
            Some(next) => {
                self.from = next;
                Step::More { gone }
            }
            None => Step::Done { gone },
        })
    }

    fn going(&self, found: StoredRow) -> Option<(PipelineId, Key, u64)> {
        let StoredRow { pipeline, key, row: Row { record, revision } } = found;
        let (Key::Applied(name), Record::Applied(answer)) = (&key, record) else { return None };
        let goes = answer.at < self.before && !self.spared.contains(name);
        goes.then_some((pipeline, key, revision))
    }
}

/// What an archive has not read yet; nothing if that is too much to say, or if it is not through with what was there before.
async fn unread(store: &dyn Store) -> Result<Option<BTreeSet<(PipelineId, Key)>>, StoreError> {
    let Changes { items, more, since, archived, .. } = store.changes(0, UNREAD_MAX).await?;
    let Some(since) = since else { return Ok(Some(BTreeSet::new())) };
    let is_through = archived.is_some_and(|archived| archived.changes >= since);
    if more || !is_through {
        return Ok(None);
    }
    Ok(Some(items.into_iter().map(|changed| (changed.pipeline, changed.key)).collect()))
}

/// Takes out the oldest events, as far as they are before an instant and an archive has them.
pub async fn forget_events(store: &dyn Store, before: Timestamp) -> Result<Step, StoreError> {
    let page = store.events(None, 0, EVENTS).await?;
    let old = page.items.iter().take_while(|event| event.record.at < before);
    let old: Vec<u64> = old.map(|event| event.number).collect();
    if old.is_empty() {
        return Ok(Step::Done { gone: 0 });
    }
    let changes = store.changes(u64::MAX, 1).await?;
    let archived = changes.since.map(|_| changes.archived.unwrap_or_default().events);
    let gone = old.iter().filter(|number| archived.is_none_or(|last| **number <= last));
    let gone: Vec<u64> = gone.copied().collect();
    let Some(events) = gone.last().copied() else { return Ok(Step::Archive) };
    store.forget(Forgetting { events, ..Forgetting::default() }).await?;
    let is_all = old.len() < page.items.len() || !page.more;
    let gone = gone.len();
    Ok(if is_all { Step::Done { gone } } else { Step::More { gone } })
}
