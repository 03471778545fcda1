//! Reports of sensors, and the slots that each should have opened.
//!
//! A report is asked about until its slot is there or was given up; from then on, as long as neither it nor its pipeline changes, it is
//! settled. Where all are, nothing is read until an event tells of another. Without that every look would cost what all reports cost that are kept.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use interlock_core::{arrival::Concern, id::PipelineId, schedule::Recurrence, sensor::Sensor};
use interlock_store::{DueKind, Key, Record, Row, record::SensorRecord};
use jiff::Timestamp;

use crate::{
    check,
    gather::{GatherError, Gatherer, Reconciles},
    owed::Owed,
    snapshot::{Known, Place, Reported, Snapshot},
};

/// Reports whose slots need nothing more of them, each by a number that stands for it as it is.
#[derive(Debug, Default)]
pub(crate) struct Settled {
    numbers: BTreeSet<u64>,
    /// Whether these are all, and none has come since: then there is nothing to be read.
    is_all: bool,
}

impl Settled {
    /// Another report came.
    pub(crate) fn hear(&mut self) {
        self.is_all = false;
    }

    /// The number of a report: another about the same thing has another, also if the first was forgotten in between.
    fn number(key: &str, row: &Row<SensorRecord>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (key, row.revision, row.record.received_at).hash(&mut hasher);
        hasher.finish()
    }
}

/// The reports of a pipeline, as far as they were read.
#[derive(Debug, Default)]
pub(crate) struct Reports {
    /// Slots that are reported and have no row.
    pub(crate) absent: Vec<Timestamp>,
    /// Whether anybody looked.
    is_read: bool,
    settled: BTreeSet<u64>,
    /// Those that were not settled, by their keys.
    asked: Vec<(u64, String)>,
}

impl Gatherer<'_> {
    /// Sensors, and the rows of slots that they would open.
    pub(crate) async fn add_sensors(
        &self,
        snapshot: &mut Snapshot,
        reconciles: Reconciles,
    ) -> Result<Reports, GatherError> {
        let is_sensor =
            |owed: &Owed| matches!(owed.start.schedule.recurrence(), Recurrence::Sensor { .. });
        let is_wanted = snapshot.due.iter().any(|due| due.kind == DueKind::PostRun);
        let is_asked =
            reconciles == Reconciles::Yes || is_wanted || snapshot.owed.iter().any(is_sensor);
        let mut reports = Reports::default();
        if !is_asked {
            return Ok(reports);
        }
        let known = self.agendas().settled(&snapshot.pipeline).map(std::mem::take);
        let known = known.unwrap_or_default();
        if known.is_all && !is_wanted {
            self.keep(&snapshot.pipeline, known);
            return Ok(reports);
        }
        for (key, row) in self.store.sensors(&snapshot.pipeline).await? {
            let number = Settled::number(&key, &row);
            let SensorRecord { value, at, received_at, unheeded } = row.record;
            let sensor = Sensor { value, at };
            let mut opens = vec![];
            if known.numbers.contains(&number) {
                reports.settled.insert(number);
            } else {
                opens = self.opened_by(snapshot, &key, &sensor);
                reports.asked.push((number, key.clone()));
            }
            snapshot.sensors.insert(key, Reported { sensor, received_at, unheeded, opens });
        }
        reports.is_read = true;
        reports.absent = self.add_opened(snapshot).await?;
        Ok(reports)
    }

    /// Keeps in mind which reports need not be asked about again.
    pub(crate) fn settle(&self, snapshot: &Snapshot, reports: Reports) {
        let Reports { settled: mut numbers, asked, is_read, .. } = reports;
        if !is_read {
            return;
        }
        let all = numbers.len() + asked.len();
        let answered = asked.into_iter().filter(|(_, key)| is_answered(snapshot, key));
        numbers.extend(answered.map(|(number, _)| number));
        let is_all = numbers.len() == all;
        self.keep(&snapshot.pipeline, Settled { numbers, is_all });
    }

    fn keep(&self, pipeline: &PipelineId, settled: Settled) {
        if let Some(kept) = self.agendas().settled(pipeline) {
            *kept = settled;
        }
    }

    fn opened_by(&self, snapshot: &Snapshot, key: &str, sensor: &Sensor) -> Vec<Place> {
        let starts = snapshot.agenda.starts.iter();
        let concerns = starts.filter_map(|start| start.data_of(key, sensor, self.around.now));
        let places = concerns.filter_map(|concern| match concern {
            Concern::Slot { schedule, nominal, .. } => Some((nominal, schedule)),
            Concern::Excluded { .. } | Concern::Unplaced { .. } => None,
        });
        places.collect()
    }

    /// The rows of the slots that sensors would open. Answers with those that have none.
    async fn add_opened(&self, snapshot: &mut Snapshot) -> Result<Vec<Timestamp>, GatherError> {
        let places: BTreeSet<&Place> =
            snapshot.sensors.values().flat_map(|reported| &reported.opens).collect();
        let unread = places.into_iter().filter(|place| !snapshot.slots.contains_key(*place));
        let keys: Vec<Key> = unread.map(|(at, id)| Key::Slot(id.clone(), *at)).collect();
        if keys.is_empty() {
            return Ok(vec![]);
        }
        let mut absent = Vec::new();
        for (key, row) in keys.iter().zip(self.store.read(&snapshot.pipeline, &keys).await?) {
            let Key::Slot(schedule, nominal) = key else { continue };
            if let Some(Row { record: Record::Slot(slot), revision }) = row {
                let known = Known { slot: slot.to_core()?, revision };
                snapshot.slots.insert((*nominal, schedule.clone()), known);
            } else {
                absent.push(*nominal);
            }
        }
        Ok(absent)
    }
}

/// Whether the slots that a report opens are there, and do not wait for it, or were given up; or it opens none, and that stays so. One
/// that nobody heeded opens none.
fn is_answered(snapshot: &Snapshot, key: &str) -> bool {
    let Some(Reported { unheeded, opens, .. }) = snapshot.sensors.get(key) else { return true };
    if *unheeded {
        return true;
    }
    if opens.is_empty() {
        return !snapshot.agenda.starts.iter().any(|start| start.minds_age());
    }
    opens.iter().all(|place| match snapshot.slots.get(place) {
        Some(known) => !check::waits_for_sensor(&known.slot),
        None => snapshot.span_of(place).is_some(),
    })
}
