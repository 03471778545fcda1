//! Reports of sensors, and the slots that each should have opened.
//!
//! A report is asked about until its slot is there; from then on, as long as neither it nor its pipeline changes, it is settled. Without
//! that every look would cost what a week of reports costs.

use std::{
    collections::BTreeSet,
    hash::{DefaultHasher, Hash as _, Hasher as _},
};

use interlock_core::{arrival::Concern, schedule::Recurrence, sensor::Sensor};
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
pub(crate) struct Settled(BTreeSet<u64>);

impl Settled {
    /// The number of a report: another about the same thing has another, also if the first was forgotten in between.
    fn number(key: &str, row: &Row<SensorRecord>) -> u64 {
        let mut hasher = DefaultHasher::new();
        (key, row.revision, row.record.received_at).hash(&mut hasher);
        hasher.finish()
    }
}

impl Gatherer<'_> {
    /// Sensors, and the rows of slots that they would open. Answers with those that have none.
    pub(crate) async fn add_sensors(
        &self,
        snapshot: &mut Snapshot,
        reconciles: Reconciles,
    ) -> Result<Vec<Timestamp>, GatherError> {
        let is_sensor =
            |owed: &Owed| matches!(owed.start.schedule.recurrence(), Recurrence::Sensor { .. });
        let is_asked = reconciles == Reconciles::Yes
            || snapshot.due.iter().any(|due| due.kind == DueKind::PostRun)
            || snapshot.owed.iter().any(is_sensor);
        if !is_asked {
            return Ok(vec![]);
        }
        let settled = self.agendas().settled(&snapshot.pipeline).map(std::mem::take);
        let settled = settled.unwrap_or_default();
        let (mut still, mut asked) = (BTreeSet::new(), Vec::new());
        for (key, row) in self.store.sensors(&snapshot.pipeline).await? {
            let number = Settled::number(&key, &row);
            let SensorRecord { value, at, received_at } = row.record;
            let sensor = Sensor { value, at };
            let mut opens = vec![];
            if settled.0.contains(&number) {
                still.insert(number);
            } else {
                opens = self.opened_by(snapshot, &key, &sensor);
                asked.push((number, key.clone()));
            }
            snapshot.sensors.insert(key, Reported { sensor, received_at, opens });
        }
        let absent = self.add_opened(snapshot).await?;
        asked.retain(|(_, key)| is_answered(snapshot, key));
        still.extend(asked.into_iter().map(|(number, _)| number));
        if let Some(kept) = self.agendas().settled(&snapshot.pipeline) {
            kept.0 = still;
        }
        Ok(absent)
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

/// Whether the slots that a report opens are there, and do not wait for it.
fn is_answered(snapshot: &Snapshot, key: &str) -> bool {
    let opens = snapshot.sensors.get(key).map_or(&[][..], |reported| &reported.opens);
    let is_open = |place| {
        let known: Option<&Known> = snapshot.slots.get(place);
        known.is_some_and(|it| !check::waits_for_sensor(&it.slot))
    };
    !opens.is_empty() && opens.iter().all(is_open)
}
