//! What the upstreams' slots of the same period say.
//!
//! Which slot that is follows from the upstream's schedules ([`Waiting::awaits`]), so that one that is not recorded
//! yet is waited for. What stands there is read: that slot's row, the span that covers it, and what was run in its
//! place since. Nothing else is, however many slots the upstream has.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    backfill::Standing,
    id::{PipelineId, ScheduleId},
    period::{Awaited, Waiting},
    pipeline::{Pipeline, StartSchedule},
    readiness::{Upstream, UpstreamState},
    slot::{Disposition, OpenState, SlotState},
    zone::Zone,
};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, LedgerRow, Record, Row, Store,
    record::{Shared, SlotRecord, SpanRecord, Unreadable},
};
use jiff::{SignedDuration, Timestamp, civil::Date};

use crate::{engine::EngineError, scheduler::plus, state::SlotPlace};

/// Where the zones of upstreams come from, by name.
pub type ZoneOf<'a> = &'a (dyn Fn(&str) -> Option<Zone> + Sync);

/// How far around a slot another of the same date may lie.
const REACH: SignedDuration = SignedDuration::from_hours(48);
/// Rows per page.
const PAGE: usize = 500;

/// What the upstreams of a slot say. One whose schedules cannot be read is left out: nobody can tell.
pub(crate) async fn upstreams(
    (store, known): (&dyn Store, &mut KnownStarts),
    zones: ZoneOf<'_>,
    spec: &Pipeline,
    (nominal, schedule): &SlotPlace,
    date: Date,
) -> Result<BTreeMap<Upstream, UpstreamState>, EngineError> {
    let start = spec.starts.iter().find(|start| start.schedule.id() == schedule);
    let waiting = Waiting { nominal: *nominal, date, start };
    let mut found = BTreeMap::new();
    for upstream in &spec.readiness.upstreams {
        let Ok(name) = PipelineId::parse(&upstream.pipeline) else { continue };
        let asked = AskedUpstream { store, name, schedule: upstream.schedule.as_deref() };
        if let Some(starts) = asked.starts(known, zones).await? {
            found.insert(upstream.clone(), asked.state(&starts, &waiting).await?);
        }
    }
    Ok(found)
}

/// The schedules of upstreams, each as it was at a revision of its row: to understand them anew for every slot that waits
/// costs more than to judge it. None of one that cannot be used.
#[derive(Debug, Default)]
pub(crate) struct KnownStarts(BTreeMap<PipelineId, (u64, Option<Starts>)>);

type Starts = Arc<[Arc<StartSchedule>]>;

/// An upstream, or one schedule of it.
struct AskedUpstream<'a> {
    store: &'a dyn Store,
    name: PipelineId,
    schedule: Option<&'a str>,
}

impl AskedUpstream<'_> {
    fn is_meant(&self, schedule: &ScheduleId) -> bool {
        self.schedule.is_none_or(|only| only == schedule.as_str())
    }

    /// Its schedules, as they are in force; none of one that was never seen.
    async fn starts(
        &self,
        known: &mut KnownStarts,
        zones: ZoneOf<'_>,
    ) -> Result<Option<Starts>, EngineError> {
        let row = self.store.read(&self.name, &[Key::Pipeline]).await?.into_iter().flatten().next();
        let Some(Row { record: Record::Pipeline(record), revision }) = row else {
            return Ok(Some(Starts::default()));
        };
        if let Some((_, starts)) = known.0.get(&self.name).filter(|(seen, _)| *seen == revision) {
            return Ok(starts.clone());
        }
        let agenda = record.agenda.as_ref();
        let agenda = agenda.map(|it| it.to_core(&mut Shared::default(), &|name| zones(name)));
        let starts = match agenda.transpose() {
            Ok(agenda) => Some(agenda.map(|agenda| agenda.starts).unwrap_or_default().into()),
            Err(reason) => {
                tracing::error!(pipeline = %self.name, %reason, "cannot read the schedule of an upstream");
                None
            }
        };
        known.0.insert(self.name.clone(), (revision, starts.clone()));
        Ok(starts)
    }

    async fn state(
        &self,
        starts: &[Arc<StartSchedule>],
        waiting: &Waiting<'_>,
    ) -> Result<UpstreamState, EngineError> {
        let meant = starts.iter().map(AsRef::as_ref);
        let meant = meant.filter(|start: &&StartSchedule| self.is_meant(start.schedule.id()));
        let Some(awaited) = waiting.awaits(meant) else { return self.of_date(waiting).await };
        if let Some(state) = self.of_slot(&awaited).await? {
            return Ok(state);
        }
        // Behind the watermark nothing is recorded any more: its schedules were others then.
        if self.has_passed(&awaited).await? {
            self.of_date(waiting).await
        } else {
            Ok(UpstreamState::NoSlot)
        }
    }

    /// What became of a slot: what was run last in its place; nothing while it is not recorded.
    async fn of_slot(&self, awaited: &Awaited) -> Result<Option<UpstreamState>, EngineError> {
        let at = awaited.nominal;
        let instant = plus(at, SignedDuration::from_micros(1));
        let until = if self.schedule.is_some() { instant } else { awaited.until.max(instant) };
        let (mut newest, mut given_up) = (None, None);
        for row in self.rows(at, until).await? {
            match &row.entry {
                LedgerEntry::Slot(slot) if self.is_work(&row.schedule, slot) => {
                    let state = state_of(slot)?;
                    // Of several at one instant all must have completed.
                    let is_told = newest
                        .as_ref()
                        .is_some_and(|(nominal, known)| *nominal == row.nominal && !is_done(known));
                    if !is_told {
                        newest = Some((row.nominal, state));
                    }
                }
                LedgerEntry::Span(span)
                    if (row.nominal..=span.last).contains(&at)
                        && awaited.schedules.contains(&row.schedule) =>
                {
                    given_up = Some(state_of_span(span)?);
                }
                LedgerEntry::Slot(_) | LedgerEntry::Span(_) => {}
            }
        }
        Ok(newest.map(|(_, state)| state).or(given_up))
    }

    /// Whether the schedules of a slot are recorded beyond it.
    async fn has_passed(&self, awaited: &Awaited) -> Result<bool, EngineError> {
        let keys: Vec<_> = awaited.schedules.iter().cloned().map(Key::Watermark).collect();
        let rows = self.store.read(&self.name, &keys).await?;
        Ok(rows.iter().all(|row| match row.as_ref().map(|row| &row.record) {
            Some(Record::Watermark(watermark)) => watermark.at >= awaited.nominal,
            _ => false,
        }))
    }

    /// What is recorded of the date, where its schedules say nothing: the last up to the slot, else the first after it.
    async fn of_date(&self, waiting: &Waiting<'_>) -> Result<UpstreamState, EngineError> {
        let from = waiting.nominal.saturating_sub(REACH).unwrap_or(Timestamp::MIN);
        let rows = self.rows(from, plus(waiting.nominal, REACH)).await?;
        let of_date = rows.iter().filter_map(|row| match &row.entry {
            LedgerEntry::Slot(slot) => {
                let is_meant = slot.date == waiting.date && self.is_work(&row.schedule, slot);
                is_meant.then_some((row.nominal, slot))
            }
            LedgerEntry::Span(_) => None,
        });
        let last = of_date.clone().take_while(|(at, _)| *at <= waiting.nominal).last();
        let mut later = of_date.skip_while(|(at, _)| *at <= waiting.nominal);
        match last.or_else(|| later.next()) {
            None => Ok(UpstreamState::NoSlot),
            Some((_, slot)) => Ok(state_of(slot)?),
        }
    }

    async fn rows(&self, from: Timestamp, until: Timestamp) -> Result<Vec<LedgerRow>, EngineError> {
        let pipeline = Some(self.name.clone());
        let mut query = LedgerQuery { pipeline, from, until, ..LedgerQuery::everything(PAGE) };
        let mut rows = Vec::new();
        loop {
            let page = self.store.ledger(&query).await?;
            query.after = page.items.last().map(LedgerRow::place);
            rows.extend(page.items);
            if !page.more {
                return Ok(rows);
            }
        }
    }

    /// Whether a slot says anything about the pipeline's work: not one that only records that a stop fired, or that a
    /// stop or restart did not.
    fn is_work(&self, schedule: &ScheduleId, slot: &SlotRecord) -> bool {
        self.is_meant(schedule) && (slot.generation > 0 || !schedule.is_control())
    }
}

/// How a slot stands. One that a backfill opened again and whose cancel came before its first attempt stands as it did
/// before, as it does for the next backfill (ADR 33).
fn state_of(slot: &SlotRecord) -> Result<UpstreamState, Unreadable> {
    let slot = slot.to_core()?;
    Ok(upstream_state(Standing::of(&slot).map_or(slot.state, |it| it.state)))
}

fn state_of_span(span: &SpanRecord) -> Result<UpstreamState, Unreadable> {
    let disposition = Disposition::parse(&span.disposition, span.reason.as_deref());
    let disposition = disposition.map_err(|error| Unreadable::Word(error.message))?;
    Ok(upstream_state(SlotState::Closed(disposition)))
}

fn upstream_state(state: SlotState) -> UpstreamState {
    match state {
        SlotState::Open(OpenState::Monitoring) => UpstreamState::Monitoring,
        SlotState::Open(_) => UpstreamState::Open,
        SlotState::Closed(Disposition::Completed) => UpstreamState::Completed,
        SlotState::Closed(_) => UpstreamState::Closed { disposition: state.to_string() },
    }
}

fn is_done(state: &UpstreamState) -> bool {
    matches!(state, UpstreamState::Completed | UpstreamState::Monitoring)
}

#[cfg(test)]
mod tests {
    use interlock_config::{Context, SystemZones, ZoneSource as _, parse_pipeline};
    use interlock_core::agenda::Agenda;
    use interlock_store::{
        Change, Expect, Group, Role, Shard, block_on,
        memory::MemoryStore,
        record::{AgendaRecord, PipelineRecord, version_text},
    };

    use super::*;

    const EPOCH: Timestamp = Timestamp::UNIX_EPOCH;

    /// The row of an upstream that runs at an hour.
    fn row(hour: u8) -> Record {
        let text = format!("name: raw\nschedule: '0 {hour} * * *'\ntrigger: {{type: external}}\n");
        let (context, zones) = (Context::default(), SystemZones::new());
        let (loaded, _) = parse_pipeline("raw.yaml".as_ref(), &text, &context, &zones, &|_| None);
        let agenda = Agenda::of(&loaded.unwrap().pipeline);
        let record = PipelineRecord {
            version: version_text(7),
            first_seen: EPOCH,
            retired_at: None,
            pause: None,
            disabled_since: None,
            agenda: Some(Box::new(AgendaRecord::from_core(&agenda))),
            about: None,
        };
        Record::Pipeline(record.into())
    }

    #[test]
    fn schedules_of_an_upstream_are_understood_again_when_its_row_changes() {
        let store = MemoryStore::new(1, Arc::new(|| EPOCH));
        let lease = store.acquire(Role::Engine, Shard(0), "test", SignedDuration::from_hours(1));
        let writer = block_on(lease).unwrap().unwrap().writer;
        let name = PipelineId::parse("raw").unwrap();
        let declare = |hour, expect| {
            let changes = vec![Change::Put(Key::Pipeline, expect, row(hour))];
            let group = Group { pipeline: name.clone(), writer, changes };
            let results = block_on(store.commit(vec![group])).unwrap();
            assert!(results[0].is_ok(), "{results:?}");
        };
        let (mut known, zones) = (KnownStarts::default(), SystemZones::new());
        let mut starts = || {
            let asked = AskedUpstream { store: &store, name: name.clone(), schedule: None };
            block_on(asked.starts(&mut known, &|name| zones.zone(name))).unwrap().unwrap()
        };
        let first = |starts: &Starts| starts[0].schedule.after(EPOCH).unwrap().to_string();
        assert_eq!(starts().len(), 0, "no file declares it");
        declare(9, Expect::Absent);
        let nine = starts();
        assert_eq!(first(&nine), "1970-01-01T09:00:00Z");
        assert!(Arc::ptr_eq(&nine, &starts()), "once is enough");
        declare(10, Expect::Revision(1));
        assert_eq!(first(&starts()), "1970-01-01T10:00:00Z");
    }
}
