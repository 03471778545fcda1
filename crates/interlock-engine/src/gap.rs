//! What the plan of a pipeline's owed slots needs to know: its schedules, and what stands after their
//! watermarks already. The scheduler and `--dry-run` read it by the same function, so that they plan alike (S5).

use std::collections::BTreeMap;

use interlock_core::{
    agenda::{Agenda, Work},
    backfill::{Order, Standing as RecordedSlot, State},
    catchup::{Gap, Owed, Pause, Plan, Recorded, Standing, Wish, plan},
    id::{PipelineId, ScheduleId},
    pipeline::StartSchedule,
    slot::{Disposition, Slot, SlotState},
};
use interlock_store::{
    BackfillQuery, LedgerEntry, LedgerQuery, LedgerRow, Store,
    coverage::{ALWAYS, deaf},
    kept::{Stretch, uncertain_until},
    record::{BackfillRecord, PauseRecord, Unreadable},
};
use jiff::{SignedDuration, Timestamp};

use crate::{engine::EngineError, scheduler::plus, state::SlotPlace};

/// Rows per page.
const PAGE: usize = 1_000;
/// Rows for each pipeline that is asked about, up to which one read of everything is worth it.
const ROWS_WORTH: usize = 4;

/// A pipeline, as far as what it owes is concerned.
#[derive(Debug, Clone)]
pub struct Owing<'a> {
    /// Which.
    pub pipeline: &'a PipelineId,
    /// What it declares.
    pub agenda: &'a Agenda,
    /// How far each schedule is recorded.
    pub watermarks: BTreeMap<&'a ScheduleId, Timestamp>,
    /// Its last pause, and those before it that are not recorded.
    pub pause: Option<&'a PauseRecord>,
    /// Now.
    pub now: Timestamp,
}

/// What stands after the watermarks, and what is spoken for there.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ahead {
    pub(crate) slots: BTreeMap<SlotPlace, (Slot, u64)>,
    pub(crate) spans: Vec<AheadSpan>,
    pub(crate) claims: Vec<Claim>,
    /// Up to when a recovered ledger does not know what ran.
    pub(crate) uncertain_until: Option<Timestamp>,
}

/// What a running backfill has still to come to: slots of a schedule from an instant up to another.
#[derive(Debug, Clone)]
pub(crate) struct Claim {
    schedule: ScheduleId,
    from: Timestamp,
    to: Timestamp,
}

impl Claim {
    /// The claims of a backfill. One that is paused has none: it may never go on.
    pub(crate) fn of(record: &BackfillRecord) -> Result<Vec<Self>, Unreadable> {
        if record.standing()? != State::Running {
            return Ok(vec![]);
        }
        let cursor = record.cursor()?;
        let order = record.order()?;
        let claim = |schedule: &String| {
            let schedule = ScheduleId::any(schedule).ok()?;
            let (mut from, mut to) = (record.from, record.to);
            if let Some((at, last)) = &cursor {
                // Among slots of one instant those come first whose schedule does.
                let just_after = plus(*at, SignedDuration::from_nanos(1));
                match order {
                    Order::Ascending if schedule > *last => from = *at,
                    Order::Ascending => from = just_after,
                    Order::Descending if schedule < *last => to = just_after.min(to),
                    Order::Descending => to = *at,
                }
            }
            Some(Self { schedule, from, to })
        };
        Ok(record.schedules.iter().filter_map(claim).collect())
    }

    /// Reads those of a pipeline.
    async fn read(store: &dyn Store, pipeline: &PipelineId) -> Result<Vec<Self>, EngineError> {
        let mut query = BackfillQuery {
            pipeline: Some(pipeline.clone()),
            unfinished: true,
            limit: PAGE,
            ..BackfillQuery::default()
        };
        let mut claims = Vec::new();
        loop {
            let page = store.backfills(&query).await?;
            for row in &page.items {
                claims.extend(Self::of(&row.record)?);
            }
            query.after = page.items.last().map(|row| (row.pipeline.clone(), row.number));
            if !page.more {
                return Ok(claims);
            }
        }
    }
}

#[derive(Debug, Clone)]
pub(crate) struct AheadSpan {
    pub(crate) schedule: ScheduleId,
    pub(crate) first: Timestamp,
    pub(crate) last: Timestamp,
    pub(crate) standing: Standing,
    pub(crate) recorded_at: Timestamp,
}

impl<'a> Owing<'a> {
    /// The plan, with what the store says; the schedules are named by their places in [`Gap::owed`]. The engine finds out
    /// by a conflict that a slot whose time has just come is recorded; whoever only looks has to read it.
    pub async fn plan(&self, store: &dyn Store) -> Result<(Gap<'a>, Plan), EngineError> {
        let gap = if self.first().is_some_and(|first| first <= self.now) {
            let mut ahead = Ahead::read(store, self).await?;
            ahead.claims = Claim::read(store, self.pipeline).await?;
            ahead.uncertain_until = uncertain_until(store).await?;
            Gap { deaf: self.deaf(store).await?, ..self.gap(&ahead) }
        } else {
            self.gap(&Ahead::default())
        };
        let plan = plan(&gap);
        Ok((gap, plan))
    }

    /// What is planned.
    pub(crate) fn gap(&self, ahead: &Ahead) -> Gap<'a> {
        let mut owed: Vec<_> = self
            .agenda
            .owed()
            .filter_map(|start| {
                let watermark = *self.watermarks.get(start.schedule.id())?;
                Some(ahead.owed((start, watermark), start.delay(self.pipeline)))
            })
            .collect();
        owed.sort_by(|one, other| one.start.schedule.id().cmp(other.start.schedule.id()));
        let pauses = self.pause.into_iter().flat_map(PauseRecord::all).filter_map(|pause| {
            let until = pause.until.filter(|until| *until <= self.now)?;
            let wish = pause.catchup.as_deref().and_then(Wish::parse);
            Some(Pause { since: pause.since, until, wish })
        });
        let pauses = pauses.collect();
        let (work, catchup) = (self.agenda.work, &self.agenda.catchup);
        let is_owed = |schedule| owed.iter().any(|owed| owed.start.schedule.id() == schedule);
        let ran = ahead.slots.iter().filter(|((_, schedule), (slot, _))| {
            standing(slot) == Standing::Ran && is_owed(schedule)
        });
        // Slots are in order of time.
        let ran = ran.map(|((nominal, _), _)| *nominal).collect();
        let uncertain_until = ahead.uncertain_until;
        Gap { owed, work, catchup, pauses, deaf: vec![], ran, uncertain_until, now: self.now }
    }

    /// Goes on behind what a plan records, to plan what it cut off.
    pub(crate) fn move_past(&mut self, gap: &Gap<'_>, plan: &Plan) {
        for portion in &plan.portions {
            let Some(owed) = gap.owed.get(portion.owed) else { continue };
            let Some(at) = portion.watermark else { continue };
            if let Some(watermark) = self.watermarks.get_mut(owed.start.schedule.id()) {
                *watermark = at;
            }
        }
    }

    /// When no report on it could have reached anybody. Where nobody ever listened, who was to watch tells: what it
    /// has not called missed by now it did not see.
    pub(crate) async fn deaf(&self, store: &dyn Store) -> Result<Vec<Stretch>, EngineError> {
        match self.agenda.work {
            Work::Watched => Ok(deaf(store, &[ALWAYS], self.now).await?),
            Work::Started | Work::Dormant => Ok(vec![]),
        }
    }

    /// The first slot that is owed.
    pub(crate) fn first(&self) -> Option<Timestamp> {
        let owed = self.agenda.owed().filter_map(|start| {
            let watermark = self.watermarks.get(start.schedule.id())?;
            start.schedule.after(*watermark)
        });
        owed.min()
    }
}

impl Ahead {
    /// Reads what stands from the first slot on that is owed.
    pub(crate) async fn read(store: &dyn Store, owing: &Owing<'_>) -> Result<Self, EngineError> {
        let Some(from) = owing.first() else { return Ok(Self::default()) };
        Self::since(store, owing.pipeline, (from, owing.now)).await
    }

    /// Reads what stands of a pipeline between two instants.
    pub(crate) async fn since(
        store: &dyn Store,
        pipeline: &PipelineId,
        (from, until): (Timestamp, Timestamp),
    ) -> Result<Self, EngineError> {
        let mut ahead = Self::default();
        let until = until.saturating_add(SignedDuration::from_millis(1));
        let mut query = LedgerQuery {
            pipeline: Some(pipeline.clone()),
            from,
            until: until.unwrap_or(Timestamp::MAX),
            ..LedgerQuery::everything(PAGE)
        };
        loop {
            let page = store.ledger(&query).await?;
            for row in &page.items {
                ahead.take(row)?;
            }
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return Ok(ahead);
            }
        }
    }

    fn take(&mut self, row: &LedgerRow) -> Result<(), EngineError> {
        match &row.entry {
            LedgerEntry::Slot(record) => {
                let place = (row.nominal, row.schedule.clone());
                self.slots.insert(place, (record.to_core()?, row.revision));
            }
            LedgerEntry::Span(span) => {
                let word = span.disposition.as_str();
                let is_provisional = [Disposition::Missed, Disposition::Unknown]
                    .map(Disposition::as_str)
                    .contains(&word);
                self.spans.push(AheadSpan {
                    schedule: row.schedule.clone(),
                    first: row.nominal,
                    last: span.last,
                    standing: if is_provisional {
                        Standing::Provisional
                    } else {
                        Standing::Settled
                    },
                    recorded_at: span.recorded_at,
                });
            }
        }
        Ok(())
    }

    /// A schedule that is recorded so far, with what stands after that.
    pub(crate) fn owed<'a>(
        &self,
        (start, watermark): (&'a StartSchedule, Timestamp),
        delay: SignedDuration,
    ) -> Owed<'a> {
        let id = start.schedule.id();
        let claims = self.claims.iter().filter(|claim| claim.schedule == *id);
        let claimed = claims.map(|claim| (claim.from, claim.to)).collect();
        Owed { start, watermark, delay, recorded: self.of(id, watermark), claimed }
    }

    /// What stands of one schedule.
    fn of(&self, schedule: &ScheduleId, watermark: Timestamp) -> Recorded {
        let slots = self.slots.iter();
        let rows = slots.filter(|((nominal, id), _)| id == schedule && *nominal > watermark);
        let rows = rows.map(|((nominal, _), (slot, _))| (*nominal, standing(slot)));
        let spans = self.spans.iter().filter(|it| it.schedule == *schedule && it.last > watermark);
        let spans = spans.map(|span| (span.first, span.last, span.standing));
        Recorded { rows: rows.collect(), spans: spans.collect() }
    }

    /// When a slot was found missing by the span that covers it.
    pub(crate) fn missed_at(&self, (nominal, schedule): &SlotPlace) -> Option<Timestamp> {
        let covers = |span: &&AheadSpan| {
            span.schedule == *schedule
                && span.standing == Standing::Provisional
                && (span.first..=span.last).contains(nominal)
        };
        self.spans.iter().find(covers).map(|span| span.recorded_at)
    }
}

/// What stands in the ledger of pipelines that are opened together.
#[derive(Debug, Default)]
pub(crate) struct Prefetched {
    /// Of those that missed slots, as it was when their catch-up began.
    pub(crate) missed: Option<LedgerPrefetch>,
    /// Of those whose due slots met rows of others, while they are planned.
    pub(crate) blocked: Option<LedgerPrefetch>,
}

/// What stood after everybody's watermarks when a catch-up began: one question instead of one for each pipeline.
///
/// What is written later is found out by a conflict, as with live slots; its pipeline is then read by itself.
#[derive(Debug)]
pub(crate) struct LedgerPrefetch {
    from: Timestamp,
    /// `None` if so much stands there that each pipeline is better asked about by itself.
    found: Option<BTreeMap<PipelineId, Ahead>>,
    /// When nobody could have reported.
    pub(crate) deaf: Vec<Stretch>,
}

impl LedgerPrefetch {
    /// Reads what stands from an instant on, for so many pipelines: of each the watchdog may have recorded a few slots.
    pub(crate) async fn since(
        store: &dyn Store,
        pipelines: usize,
        (from, now): (Timestamp, Timestamp),
    ) -> Result<Self, EngineError> {
        let until = now.saturating_add(SignedDuration::from_millis(1)).unwrap_or(Timestamp::MAX);
        let mut query = LedgerQuery { from, until, ..LedgerQuery::everything(PAGE) };
        let deaf = deaf(store, &[ALWAYS], now).await?;
        let mut found = BTreeMap::<PipelineId, Ahead>::new();
        for _ in 0..=pipelines * ROWS_WORTH / PAGE {
            let page = store.ledger(&query).await?;
            for row in &page.items {
                found.entry(row.pipeline.clone()).or_default().take(row)?;
            }
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                return Ok(Self { from, found: Some(found), deaf });
            }
        }
        Ok(Self { from, found: None, deaf })
    }

    /// What stands of a pipeline, if that is known.
    pub(crate) fn of(&self, owing: &Owing<'_>) -> Option<Ahead> {
        let found = self.found.as_ref().filter(|_| owing.first() >= Some(self.from))?;
        Some(found.get(owing.pipeline).cloned().unwrap_or_default())
    }
}

fn standing(slot: &Slot) -> Standing {
    // One that a cancelled backfill had not begun stands as it did before that.
    let Some(RecordedSlot { state, .. }) = RecordedSlot::of(slot) else {
        return Standing::Withdrawn;
    };
    let is_as_before = state != slot.state;
    match state {
        SlotState::Closed(Disposition::Missed | Disposition::Unknown) if is_as_before => {
            Standing::Withdrawn
        }
        SlotState::Closed(Disposition::Missed | Disposition::Unknown) => Standing::Provisional,
        SlotState::Closed(Disposition::Cancelled) if slot.attempt == 0 => Standing::Settled,
        SlotState::Closed(Disposition::Skipped(_)) => Standing::Settled,
        SlotState::Closed(
            Disposition::Completed | Disposition::Failed | Disposition::Cancelled,
        )
        | SlotState::Open(_) => Standing::Ran,
    }
}
