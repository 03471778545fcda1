//! Makes a ledger of salvaged rows one that can be owned: nothing in it may run twice, and nothing in it may be in the way.
//!
//! | what was lost | what is done |
//! |---|---|
//! | a name | rows of that number are left out: nothing can ask for them |
//! | a pipeline's row | its watermarks are left out: it is first seen when it is declared again |
//! | the version in force | its pipeline is declared again |
//! | a watermark | it stands before the first slot that is recorded |
//! | slots or spans before a watermark | it goes back to before them; recorded slots are passed over |
//! | a slot whose run is there | it ended like the run; a run that had not ended is `unknown` |
//! | the run of a slot that is open | the slot is `unknown` |
//! | anything about slots or runs | slots that were open and had not begun are `unknown`: they may have begun since |
//!
//! What is then owed up to the last time that the old file was written is recorded as `unknown`, by the scheduler.

use std::collections::BTreeMap;

use interlock_core::{
    id::{PipelineId, ScheduleId},
    run::{RunState, TriggerType},
    slot::{Disposition, OpenState, Opening, Slot, SlotState},
    text::counted,
};
use interlock_store::{
    Key, Record,
    kept::{FLOOR_KEY, RECOVERED_KEY, recovered_record},
    record::{InboxRecord, SlotRecord, WatermarkRecord, version_number, version_text},
};
use jiff::{Timestamp, tz::TimeZone};
use rusqlite::{Connection, OptionalExtension as _, params};

use super::Salvaged;
use crate::{failure::Failure, read::timestamp};

/// The tables whose rows belong to pipelines.
const OWNED: &[&str] = &[
    "pipelines",
    "versions",
    "watermarks",
    "slots",
    "spans",
    "runs",
    "sensors",
    "incidents",
    "backfills",
    "due",
    "outbox",
    "applied",
    "events",
    "inbox",
];

/// What mending needs to know.
#[derive(Debug)]
pub(crate) struct Mending<'a> {
    pub(crate) salvaged: &'a Salvaged,
    /// The name of the file that was set aside.
    pub(crate) aside: &'a str,
    /// When the old file was last written: nothing began after that.
    pub(crate) written_until: Timestamp,
    pub(crate) now: Timestamp,
}

/// Where a slot is in the tables.
type SlotPlace = (i64, i64, String);

/// Mends a ledger, and leaves a letter that says what was lost.
pub(crate) fn mend(db: &Connection, mending: &Mending<'_>) -> Result<String, Failure> {
    drop_nameless(db)?;
    count_on(db)?;
    let versions = declare_again(db)?;
    mending.set_watermarks(db)?;
    mending.end_slots_like_their_runs(db, &versions)?;
    mending.close_doubtful(db)?;
    mending.record(db)
}

fn drop_nameless(db: &Connection) -> Result<(), Failure> {
    for table in OWNED {
        let sql = format!("DELETE FROM {table} WHERE pipeline NOT IN (SELECT id FROM names)");
        db.execute(&sql, [])?;
    }
    let sql = "DELETE FROM watermarks WHERE pipeline NOT IN (SELECT pipeline FROM pipelines)";
    db.execute(sql, [])?;
    Ok(())
}

/// Numbers go on behind the last that can be seen. Who archives reads everything again: the list of changes is not kept.
fn count_on(db: &Connection) -> Result<(), Failure> {
    db.execute_batch(
        "DELETE FROM counters WHERE name IN ('followed', 'archived_events', 'archived_changes');
         INSERT INTO counters SELECT 'event', coalesce(max(number), 0) FROM events WHERE true
           ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
         INSERT INTO counters SELECT 'inbox', coalesce(max(number), 0) FROM inbox WHERE true
           ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value);
         INSERT INTO counters VALUES ('identity', random()) ON CONFLICT DO NOTHING;",
    )?;
    Ok(())
}

/// The versions in force by pipeline. A pipeline whose version is lost forgets that it has one, and gets it from its file.
fn declare_again(db: &Connection) -> Result<BTreeMap<i64, u64>, Failure> {
    let mut in_force = BTreeMap::new();
    for (pipeline, body) in bodies(db)? {
        let Ok(Record::Pipeline(record)) = Record::decode(&Key::Pipeline, &body) else { continue };
        let version = version_number(&record.version).unwrap_or_default();
        in_force.insert(pipeline, version);
        let find = "SELECT EXISTS (SELECT 1 FROM versions WHERE pipeline = ?1 AND version = ?2)";
        let is_there: bool = db
            .prepare_cached(find)?
            .query_row(params![pipeline, version as i64], |row| row.get(0))?;
        if !is_there {
            let mut record = std::sync::Arc::unwrap_or_clone(record);
            record.version = version_text(0);
            let body = Record::Pipeline(record.into()).encode();
            let sql = "UPDATE pipelines SET body = ?2 WHERE pipeline = ?1";
            db.prepare_cached(sql)?.execute(params![pipeline, body])?;
        }
    }
    Ok(in_force)
}

/// The rows of pipelines.
fn bodies(db: &Connection) -> Result<Vec<(i64, String)>, Failure> {
    let mut statement = db.prepare("SELECT pipeline, body FROM pipelines")?;
    let rows = statement.query_map([], |row| Ok((row.get(0)?, row.get(1)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

/// Of each schedule the first slot that is recorded.
fn first_recorded(db: &Connection) -> Result<BTreeMap<(i64, String), i64>, Failure> {
    let sql = "SELECT pipeline, schedule, min(nominal) FROM
         (SELECT pipeline, schedule, nominal FROM slots UNION ALL SELECT pipeline, schedule, nominal FROM spans)
         GROUP BY pipeline, schedule";
    let mut statement = db.prepare(sql)?;
    let rows = statement.query_map([], |row| Ok(((row.get(0)?, row.get(1)?), row.get(2)?)))?;
    Ok(rows.collect::<Result<_, _>>()?)
}

impl Mending<'_> {
    /// Every schedule that owes slots by the clock has a watermark, before everything of it that is not recorded.
    fn set_watermarks(&self, db: &Connection) -> Result<(), Failure> {
        let (first, floor) = (first_recorded(db)?, floor(db)?);
        for (pipeline, body) in bodies(db)? {
            let Ok(Record::Pipeline(record)) = Record::decode(&Key::Pipeline, &body) else {
                continue;
            };
            for id in owed_by_clock(&body) {
                let seen = record.first_seen.as_microsecond();
                let low = floor.map_or(seen, |floor| floor.max(seen));
                let recorded = first.get(&(pipeline, id.clone())).map(|at| at - 1);
                let known = watermark(db, (pipeline, &id))?;
                let at = match (known, self.salvaged.lost_from) {
                    // What is recorded may begin behind what is lost.
                    (None, lost) => {
                        let first = recorded.unwrap_or(low);
                        lost.map_or(first, |lost| lost.min(first)).max(low)
                    }
                    (Some(known), Some(lost)) if lost < known => lost.max(low).min(known),
                    (Some(_), _) => continue,
                };
                let body = Record::Watermark(WatermarkRecord { at: timestamp(at)? }).encode();
                let sql = "INSERT INTO watermarks VALUES (?1, ?2, 1, ?3)
                     ON CONFLICT (pipeline, schedule) DO UPDATE SET body = excluded.body, revision = revision + 1";
                db.prepare_cached(sql)?.execute(params![pipeline, id, body])?;
            }
        }
        Ok(())
    }

    /// Gives runs whose slots are lost slots that say how they ended.
    fn end_slots_like_their_runs(
        &self,
        db: &Connection,
        versions: &BTreeMap<i64, u64>,
    ) -> Result<(), Failure> {
        let sql = "SELECT r.nominal, r.pipeline, r.schedule, r.generation, r.attempt, r.status, r.trigger_type
             FROM runs r LEFT JOIN slots s ON s.nominal = r.nominal AND s.pipeline = r.pipeline
               AND s.schedule = r.schedule
             WHERE s.nominal IS NULL ORDER BY r.nominal, r.pipeline, r.schedule, r.generation, r.attempt";
        let mut last = BTreeMap::<SlotPlace, (u32, u32, String, String)>::new();
        let mut statement = db.prepare(sql)?;
        let mut rows = statement.query([])?;
        while let Some(row) = rows.next()? {
            let place = (row.get(0)?, row.get(1)?, row.get(2)?);
            last.insert(place, (row.get(3)?, row.get(4)?, row.get(5)?, row.get(6)?));
        }
        for ((nominal, pipeline, schedule), (generation, attempt, status, trigger)) in last {
            let at = timestamp(nominal)?;
            let opened_by = TriggerType::parse(&trigger).unwrap_or(TriggerType::Scheduler);
            let disposition = match RunState::parse(&status) {
                Ok(RunState::Completed | RunState::CompletedMonitoring) => Disposition::Completed,
                Ok(RunState::Failed) => Disposition::Failed,
                Ok(RunState::Cancelled) => Disposition::Cancelled,
                Ok(RunState::Pending | RunState::Triggering | RunState::Running) | Err(_) => {
                    Disposition::Unknown
                }
            };
            let opening = Opening {
                opened_by,
                // Its zone went with its row.
                date: at.to_zoned(TimeZone::UTC).date(),
                at: self.now,
                closes_at: self.now,
                version: versions.get(&pipeline).copied().unwrap_or_default(),
            };
            let mut slot = Slot::decided(disposition, opening);
            (slot.generation, slot.attempt) = (generation, attempt);
            slot.marks.recovered = true;
            slot.marks.uncertain = disposition == Disposition::Unknown;
            let body = Record::Slot(SlotRecord::from_core(&slot).into()).encode();
            let sql = "INSERT INTO slots VALUES (?1, ?2, ?3, 1, ?4, ?5) ON CONFLICT DO NOTHING";
            let row = params![nominal, pipeline, schedule, disposition.as_str(), body];
            db.prepare_cached(sql)?.execute(row)?;
        }
        Ok(())
    }

    /// Closes open slots that may have begun, or ended, without a row that says so.
    fn close_doubtful(&self, db: &Connection) -> Result<(), Failure> {
        let sql = "SELECT nominal, pipeline, schedule, body FROM slots WHERE disposition = 'open'";
        let mut statement = db.prepare(sql)?;
        let rows = statement.query_map([], |row| {
            Ok(((row.get(0)?, row.get(1)?, row.get(2)?), row.get::<_, String>(3)?))
        })?;
        let open: Vec<(SlotPlace, String)> = rows.collect::<Result<_, _>>()?;
        for ((nominal, pipeline, schedule), body) in open {
            let key = Key::Slot(ScheduleId::any(&schedule)?, timestamp(nominal)?);
            let Ok(Record::Slot(record)) = Record::decode(&key, &body) else { continue };
            let Ok(slot) = record.to_core() else { continue };
            let place = (nominal, pipeline, schedule);
            if !self.is_doubtful(db, &place, &slot)? {
                continue;
            }
            let Ok(mut slot) = slot.close(Disposition::Unknown, self.now) else { continue };
            slot.marks.uncertain = true;
            let body = Record::Slot(SlotRecord::from_core(&slot).into()).encode();
            let sql = "UPDATE slots SET disposition = 'unknown', body = ?4, revision = revision + 1
                 WHERE nominal = ?1 AND pipeline = ?2 AND schedule = ?3";
            db.prepare_cached(sql)?.execute(params![place.0, place.1, place.2, body])?;
        }
        Ok(())
    }

    fn is_doubtful(
        &self,
        db: &Connection,
        (nominal, pipeline, schedule): &SlotPlace,
        slot: &Slot,
    ) -> Result<bool, Failure> {
        if slot.attempt > 0 {
            let sql = "SELECT EXISTS (SELECT 1 FROM runs WHERE nominal = ?1 AND pipeline = ?2 AND schedule = ?3
                 AND generation = ?4 AND attempt = ?5)";
            let key = params![nominal, pipeline, schedule, slot.generation, slot.attempt];
            let has_run: bool = db.prepare_cached(sql)?.query_row(key, |row| row.get(0))?;
            if !has_run {
                return Ok(true);
            }
        }
        // One that runs is looked up by its id, whatever is lost (S18).
        let is_under_way =
            matches!(slot.state, SlotState::Open(OpenState::Running | OpenState::Monitoring));
        Ok(self.salvaged.is_doubtful() && !is_under_way)
    }

    /// Records up to when it is not known what ran, and leaves a letter about it. Answers with what it says.
    fn record(&self, db: &Connection) -> Result<String, Failure> {
        let system = PipelineId::system();
        db.execute(
            "INSERT INTO names (name) VALUES (?1) ON CONFLICT DO NOTHING",
            [system.as_str()],
        )?;
        let find = "SELECT id FROM names WHERE name = ?1";
        let id: i64 = db.query_row(find, [system.as_str()], |row| row.get(0))?;
        let fact = recovered_record(self.written_until, self.now).encode();
        let sql = "INSERT INTO sensors VALUES (?1, ?2, 1, ?3)
             ON CONFLICT (pipeline, key) DO UPDATE SET body = excluded.body, revision = revision + 1";
        db.execute(sql, params![id, RECOVERED_KEY, fact])?;
        let message = self.message();
        let letter = InboxRecord::Noticed {
            event: "STORE_RECOVERED".to_owned(),
            thing: self.aside.to_owned(),
            message: message.clone(),
            over: false,
        };
        let sql = "UPDATE counters SET value = value + 1 WHERE name = 'inbox' RETURNING value";
        let number: i64 = db.query_row(sql, [], |row| row.get(0))?;
        let key = format!("recovered/{}", self.aside);
        let sql = "INSERT INTO inbox VALUES (?1, ?2, ?3, ?4, ?5)";
        db.execute(sql, params![number, id, key, self.now.as_microsecond(), letter.encode()])?;
        Ok(message)
    }

    fn message(&self) -> String {
        let rows: u64 = self.salvaged.rows.values().sum();
        format!(
            "{} were taken over into a new ledger, lost: {}. Slots up to {} that are not recorded are `unknown` and do not \
             run by themselves: `interlock slots --disposition unknown` lists them, `interlock backfill start` runs them",
            counted(rows, "row"),
            self.salvaged.losses(),
            self.written_until.strftime("%Y-%m-%dT%H:%M:%SZ")
        )
    }
}

/// The schedules of a pipeline's row that have watermarks: those whose slots follow from the clock.
fn owed_by_clock(body: &str) -> Vec<String> {
    let Ok(body) = serde_json::from_str::<serde_json::Value>(body) else { return vec![] };
    let starts = body["agenda"]["starts"].as_array().cloned().unwrap_or_default();
    let own = starts.iter().map(|start| &start["schedule"]).filter(|schedule| {
        let recurrence = &schedule["recurrence"];
        recurrence.get("sinceLast").is_none() && recurrence.get("sensor").is_none()
    });
    own.filter_map(|schedule| schedule["id"].as_str().map(str::to_owned)).collect()
}

fn watermark(db: &Connection, (pipeline, id): (i64, &str)) -> Result<Option<i64>, Failure> {
    let sql = "SELECT body FROM watermarks WHERE pipeline = ?1 AND schedule = ?2";
    let body: Option<String> =
        db.prepare_cached(sql)?.query_row(params![pipeline, id], |row| row.get(0)).optional()?;
    let key = Key::Watermark(ScheduleId::any(id)?);
    Ok(body.and_then(|body| match Record::decode(&key, &body) {
        Ok(Record::Watermark(watermark)) => Some(watermark.at.as_microsecond()),
        Ok(_) | Err(_) => None,
    }))
}

/// Before which instant slots were taken out.
fn floor(db: &Connection) -> Result<Option<i64>, Failure> {
    let sql = "SELECT s.body FROM sensors s JOIN names n ON n.id = s.pipeline WHERE n.name = ?1 AND s.key = ?2";
    let system = PipelineId::system();
    let body: Option<String> =
        db.query_row(sql, params![system.as_str(), FLOOR_KEY], |row| row.get(0)).optional()?;
    let key = Key::Sensor(FLOOR_KEY.to_owned());
    Ok(body.and_then(|body| match Record::decode(&key, &body) {
        Ok(Record::Sensor(floor)) => Some(floor.at.as_microsecond()),
        Ok(_) | Err(_) => None,
    }))
}
