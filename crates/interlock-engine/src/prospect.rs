//! What a backfill goes through, with what the ledger says about it. The owner and `--dry-run` read it by the same
//! function, so that they plan alike (S5).

use std::collections::BTreeMap;

use interlock_core::{
    backfill::{Bounded, Extent, Ledgered, Place, Standing, Verdict, plan},
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
    readiness::Outcome,
    run::TriggerType,
    schedule::Schedule,
    sensor::Sensors,
    slot::{Disposition, Slot},
};
use interlock_store::{
    LedgerEntry, LedgerQuery, LedgerRow, Store,
    record::{BackfillRecord, SpanRecord, Unreadable},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::EngineError,
    evidence::{self, Gathered},
    upstreams::{KnownStarts, ZoneOf, upstreams},
};

/// Rows per page.
const PAGE: usize = 1_000;

/// A backfill, as far as planning it is concerned.
#[derive(Debug, Clone)]
pub struct Prospect<'a> {
    pipeline: PipelineId,
    extent: Extent<'a>,
}

/// The next slots of a backfill and what becomes of them.
#[derive(Debug, Default)]
pub struct Portion {
    /// In the order of the backfill.
    pub slots: Vec<(Place, Verdict)>,
    /// Whether there are no more after them.
    pub is_end: bool,
    /// What the ledger says about the time that they lie in.
    pub(crate) ledger: Ledgered,
    /// The rows of those that are recorded, with their revisions.
    pub(crate) rows: BTreeMap<Place, (Slot, u64)>,
    /// Where slots were found missing: schedule, first, last, and when.
    missed: Vec<(ScheduleId, Timestamp, Timestamp, Timestamp)>,
}

impl Portion {
    /// When a slot was found missing by the span that covers it.
    pub(crate) fn missed_at(&self, (nominal, schedule): &Place) -> Option<Timestamp> {
        let covers = |(id, first, last, _): &&(ScheduleId, Timestamp, Timestamp, Timestamp)| {
            id == schedule && (*first..=*last).contains(nominal)
        };
        self.missed.iter().find(covers).map(|(.., at)| *at)
    }
}

impl<'a> Prospect<'a> {
    /// Of a pipeline, by how far its schedules are recorded; that is no bound while it is paused or disabled, and while
    /// nobody records what is due.
    pub fn new(
        spec: &'a Pipeline,
        record: &BackfillRecord,
        recorded_until: impl Fn(&ScheduleId) -> Option<Timestamp>,
    ) -> Result<Self, Unreadable> {
        let own = spec.starts.iter().map(|start| &start.schedule);
        let meant = own.filter(|it| record.schedules.iter().any(|id| id == it.id().as_str()));
        let bounded = |schedule: &'a Schedule| Bounded {
            schedule,
            recorded_until: recorded_until(schedule.id()),
        };
        let mut schedules: Vec<_> = meant.map(bounded).collect();
        schedules.sort_by(|one, other| one.schedule.id().cmp(other.schedule.id()));
        let extent = Extent {
            schedules,
            from: record.from,
            to: record.to,
            reprocess: record.reprocess()?,
            order: record.order()?,
            since: record.since,
        };
        Ok(Self { pipeline: spec.name.clone(), extent })
    }

    /// The next so many slots after a place, each with its verdict.
    pub async fn portion(
        &self,
        store: &dyn Store,
        after: Option<&Place>,
        max: usize,
    ) -> Result<Portion, EngineError> {
        let next = self.extent.next(after, max);
        let mut portion = Portion { is_end: next.is_end, ..Portion::default() };
        let instants = || next.places.iter().map(|(nominal, _)| *nominal);
        let (Some(first), Some(last)) = (instants().min(), instants().max()) else {
            return Ok(portion);
        };
        let until = last.saturating_add(SignedDuration::from_millis(1));
        let mut query = LedgerQuery {
            pipeline: Some(self.pipeline.clone()),
            from: first,
            until: until.unwrap_or(Timestamp::MAX),
            ..LedgerQuery::everything(PAGE)
        };
        loop {
            let page = store.ledger(&query).await?;
            for row in &page.items {
                portion.read(row)?;
            }
            query.after = page.items.last().map(LedgerRow::place);
            if !page.more {
                break;
            }
        }
        let verdicts = plan(&self.extent, &next.places, &portion.ledger);
        portion.slots = next.places.into_iter().zip(verdicts).collect();
        Ok(portion)
    }
}

/// Why slots would not be ready now, as far as stored sensors and upstreams say; nobody is asked anything.
pub struct Forecast<'a> {
    store: &'a dyn Store,
    zones: ZoneOf<'a>,
    spec: &'a Pipeline,
    sensors: Sensors,
}

impl std::fmt::Debug for Forecast<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Forecast").field("pipeline", &self.spec.name).finish_non_exhaustive()
    }
}

impl<'a> Forecast<'a> {
    /// For the slots of a pipeline.
    pub async fn new(
        (store, zones): (&'a dyn Store, ZoneOf<'a>),
        spec: &'a Pipeline,
    ) -> Result<Self, EngineError> {
        Ok(Self { store, zones, spec, sensors: evidence::sensors(store, &spec.name).await? })
    }

    /// What certainly forbids a slot, if anything does.
    pub async fn forbids(
        &self,
        place: &Place,
        now: Timestamp,
    ) -> Result<Option<String>, EngineError> {
        let start = self.spec.starts.iter().find(|start| *start.schedule.id() == place.1);
        let Some(start) = start else { return Ok(None) };
        let date = start.schedule.occurrence(place.0).date;
        let upstreams = upstreams(
            (self.store, &mut KnownStarts::default()),
            self.zones,
            self.spec,
            place,
            date,
        )
        .await?;
        let gathered =
            Gathered { sensors: &self.sensors, traits: &BTreeMap::new(), upstreams: &upstreams };
        let verdict = gathered.verdict(self.spec, (place, Some(TriggerType::Backfill)), now);
        if verdict.outcome != Outcome::NotReady {
            return Ok(None);
        }
        let reasons: Vec<_> = verdict.blocking().into_iter().map(|it| it.reason.clone()).collect();
        Ok(Some(reasons.join("; ")))
    }
}

impl Portion {
    fn read(&mut self, row: &LedgerRow) -> Result<(), Unreadable> {
        match &row.entry {
            LedgerEntry::Slot(record) => {
                let slot = record.to_core()?;
                let place = (row.nominal, row.schedule.clone());
                if let Some(standing) = Standing::of(&slot) {
                    self.ledger.rows.insert(place.clone(), standing);
                }
                self.rows.insert(place, (slot, row.revision));
            }
            LedgerEntry::Span(SpanRecord { last, disposition, reason, recorded_at, .. }) => {
                let disposition = Disposition::parse(disposition, reason.as_deref())
                    .map_err(|error| Unreadable::Word(error.message))?;
                if disposition.is_miss() {
                    self.missed.push((row.schedule.clone(), row.nominal, *last, *recorded_at));
                }
                self.ledger.spans.push((row.schedule.clone(), row.nominal, *last, disposition));
            }
        }
        Ok(())
    }
}
