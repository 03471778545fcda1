//! A project in which very many pipelines missed one instant, written into a store as it would lie there.

use std::{fs, path::Path};

use interlock_config::{SystemZones, load_dir};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    pipeline::Pipeline,
};
use interlock_store::{
    Freight, Key, Record, Row, RunKey, Store, StoredRow, block_on,
    record::{
        AboutRecord, AgendaRecord, IncidentRecord, MarksRecord, OutboxRecord, PipelineRecord,
        RunRecord, SlotRecord, WatermarkRecord,
    },
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// How many owners and upstreams there are.
pub(crate) const OWNERS: usize = 20;
/// Pipelines of one import.
const PORTION: usize = 500;

/// The hour that all of them missed: no later slot is due yet.
pub(crate) fn missed_hour(now: Timestamp) -> Timestamp {
    let second = now.as_second();
    Timestamp::from_second(second - second.rem_euclid(3_600)).expect("an hour")
}

/// Writes the files of so many pipelines that others run; each waits for one of a few.
pub(crate) fn write_files(directory: &Path, count: usize) {
    let folder = directory.join("pipelines");
    fs::create_dir_all(&folder).expect("a folder");
    for number in 0..count {
        let owner = number % OWNERS;
        let upstream = if number < OWNERS {
            String::new()
        } else {
            format!("dependsOn: [{{pipeline: p{owner:06}}}]\n")
        };
        let text = format!(
            "name: p{number:06}\nowner: team-{owner}\nlabels: {{part: \"{}\"}}\n\
             schedules: [{{id: h, every: 1h, grace: 5s}}]\ntrigger: {{type: external}}\n{upstream}",
            number % 2
        );
        fs::write(folder.join(format!("p{number:06}.yaml")), text).expect("a file");
    }
}

/// Writes what the ledger says of the pipelines in a directory: each ran the hour before, missed this one, and has an incident.
pub(crate) fn fill(directory: &Path, store: &dyn Store, at: Timestamp) {
    let loaded = load_dir(directory, &SystemZones::new(), &|_| None);
    assert!(loaded.problems.is_empty(), "{:?}", loaded.problems);
    for portion in loaded.pipelines.chunks(PORTION) {
        let rows = portion.iter().flat_map(|loaded| {
            let version = format!("{:016x}", loaded.version);
            rows_of((&loaded.pipeline, &version), at)
        });
        let freight = Freight { rows: rows.collect(), ..Freight::default() };
        block_on(store.import(freight)).expect("the store takes rows");
    }
}

fn rows_of((declared, version): (&Pipeline, &str), at: Timestamp) -> Vec<StoredRow> {
    let (name, agenda) = (&declared.name, AgendaRecord::from_core(&Agenda::of(declared)));
    let schedule = ScheduleId::any("h").expect("a name");
    let before = at - SignedDuration::from_hours(1);
    let pipeline = PipelineRecord {
        version: version.to_owned(),
        first_seen: before - SignedDuration::from_hours(1),
        retired_at: None,
        pause: None,
        disabled_since: None,
        agenda: Some(Box::new(agenda)),
        about: Some(Box::new(AboutRecord::of(declared))),
    };
    let run = RunKey { schedule: schedule.clone(), nominal: before, generation: 1, attempt: 1 };
    let rows = [
        (Key::Pipeline, Record::Pipeline(pipeline.into())),
        (Key::Watermark(schedule.clone()), Record::Watermark(WatermarkRecord { at })),
        (Key::Slot(schedule.clone(), before), slot((before, version), ("completed", 1))),
        (Key::Slot(schedule, at), slot((at, version), ("missed", 0))),
        (Key::Run(run), Record::Run(completed(before).into())),
        (Key::Incident(format!("missed:{name}:h")), incident(name, at)),
        (Key::Outbox(format!("missed:{name}:h~1~opened")), letter(at)),
    ];
    let stored =
        |(key, record)| StoredRow { pipeline: name.clone(), key, row: Row { record, revision: 1 } };
    rows.into_iter().map(stored).collect()
}

pub(crate) fn slot(
    (at, version): (Timestamp, &str),
    (word, attempt): (&'static str, u32),
) -> Record {
    let record = SlotRecord {
        state: "closed".into(),
        disposition: Some(word.into()),
        reason: None,
        generation: 1,
        attempt,
        opened_by: "scheduler".into(),
        date: at.to_zoned(jiff::tz::TimeZone::UTC).date(),
        opened_at: at,
        closes_at: at + SignedDuration::from_mins(1),
        retry_at: None,
        marks: MarksRecord::default(),
        version: version.into(),
        wish: None,
        reruns: None,
        sla: None,
        evaluated: None,
    };
    Record::Slot(record.into())
}

pub(crate) fn completed(at: Timestamp) -> RunRecord {
    RunRecord {
        status: "COMPLETED".into(),
        trigger_type: "external".into(),
        created_at: at,
        started_at: Some(at),
        ended_at: Some(at + SignedDuration::from_secs(1)),
        message: None,
        category: None,
        metadata: [].into(),
    }
}

fn incident(name: &PipelineId, at: Timestamp) -> Record {
    let record = IncidentRecord {
        state: "open".into(),
        kind: "SCHEDULE_MISSED".into(),
        level: "error".into(),
        message: format!("{name} did not run"),
        details: [("slot".to_owned(), json!(format!("h/{at}")))].into(),
        opened_at: at + SignedDuration::from_secs(5),
        updated_at: at + SignedDuration::from_secs(5),
        count: 1,
        told: Some(format!("missed:{name}:h~1~opened")),
        acknowledged: None,
        resolved: None,
        openings: Box::default(),
    };
    Record::Incident(record.into())
}

/// What is not told yet, because an upstream has an incident of its own.
fn letter(at: Timestamp) -> Record {
    let record = OutboxRecord {
        channel: String::new(),
        alert:
            json!({"alertType": "schedule_missed", "message": "it did not run", "level": "error"})
                .into(),
        tries: 0,
        // A `serve` that runs meanwhile tells nothing.
        not_before: at + SignedDuration::from_hours(24),
        claimed_until: None,
        last_error: None,
        dead: false,
        after: None,
        held: Some("its upstream has an incident".into()),
    };
    Record::Outbox(record.into())
}
