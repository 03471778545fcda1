//! Agendas from rows owe what declarations owe.

use std::{path::Path, sync::Arc};

use interlock_config::{Severity, SystemZones, ZoneSource as _, load_dir};
use interlock_core::{
    agenda::Agenda,
    id::{PipelineId, ScheduleId},
    schedule::{Schedule, jitter_offset},
};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, Record, Store as _, block_on,
    record::{AgendaRecord, PipelineRecord, Shared, SlaRecord, SlotRecord, version_text},
};
use jiff::{SignedDuration, Timestamp};

use crate::Machine;

/// A project of every good example of the files' crate.
fn everything() -> interlock_config::Loaded {
    let examples = Path::new(env!("CARGO_MANIFEST_DIR")).join("../interlock-config/tests/good");
    let config = tempfile::tempdir().unwrap();
    let folders = ["pipeline", "calendar", "archetype"]
        .map(|kind| format!("{kind}Dirs: [{}]\n", examples.join(kind).display()));
    std::fs::write(config.path().join("interlock.yaml"), folders.concat()).unwrap();
    let loaded = load_dir(config.path(), &SystemZones::new(), &|_| Some("x".to_owned()));
    // Two of the examples have the same name; one is left out.
    let errors = loaded.problems.iter().filter(|it| it.severity == Severity::Error);
    assert_eq!(errors.count(), 1, "{:?}", loaded.problems);
    loaded
}

fn slots(schedule: &Schedule) -> Vec<Timestamp> {
    let from = "2026-01-01T00:00:00Z".parse().unwrap();
    schedule.slots(from, Timestamp::MAX, 500).found
}

#[test]
fn a_stored_agenda_owes_what_its_declaration_owes() {
    let (mut shared, zones) = (Shared::default(), SystemZones::new());
    let loaded = everything();
    assert!(loaded.pipelines.len() > 10);
    for pipeline in loaded.pipelines.iter().map(|loaded| &loaded.pipeline) {
        let agenda = Agenda::of(pipeline);
        let stored = AgendaRecord::from_core(&agenda);
        let row = Record::Pipeline(
            PipelineRecord {
                version: version_text(1),
                first_seen: Timestamp::UNIX_EPOCH,
                retired_at: None,
                disabled_since: None,
                pause: None,
                agenda: Some(Box::new(stored.clone())),
                about: None,
            }
            .into(),
        );
        let read = Record::decode(&Key::Pipeline, &row.encode());
        assert_eq!(read.as_ref(), Ok(&row), "{}", pipeline.name);
        let found = stored.to_core(&mut shared, &|name| zones.zone(name)).unwrap();
        assert_eq!(AgendaRecord::from_core(&found), stored, "{}", pipeline.name);
        assert_eq!((found.work, &found.sla), (agenda.work, &agenda.sla), "{}", pipeline.name);
        let (mut owed, mut stored) = (agenda.owed(), found.owed());
        while let (Some(owed), Some(stored)) = (owed.next(), stored.next()) {
            assert_eq!(slots(&owed.schedule), slots(&stored.schedule), "{}", pipeline.name);
            assert_eq!(owed.deadline, stored.deadline, "{}", pipeline.name);
        }
        assert!(owed.next().is_none() && stored.next().is_none());
    }
}

fn slots_of(machine: &Machine, name: &str) -> Vec<(Timestamp, SlotRecord)> {
    let query = LedgerQuery {
        pipeline: Some(PipelineId::parse(name).unwrap()),
        ..LedgerQuery::everything(100)
    };
    let rows = block_on(machine.store.ledger(&query)).unwrap().items;
    let slots = rows.into_iter().filter_map(|row| match row.entry {
        LedgerEntry::Slot(slot) => Some((row.nominal, Arc::unwrap_or_clone(slot))),
        LedgerEntry::Span(_) => None,
    });
    slots.collect()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

#[test]
fn a_pipeline_without_a_schedule_owes_today_at_first_sight() {
    let machine = Machine::new(&["name: whole\ntrigger: {type: command, command: 'true'}\n"]);
    machine.world.pass(SignedDuration::from_hours(15));
    machine.live(u64::MAX, at("2026-03-21T01:00:00Z"));
    let found: Vec<_> =
        slots_of(&machine, "whole").into_iter().map(|(nominal, _)| nominal).collect();
    assert_eq!(found, [at("2026-03-20T00:00:00Z"), at("2026-03-21T00:00:00Z")]);
}

#[test]
fn jitter_delays_the_opening_and_nothing_else() {
    let text = "name: spread\nschedule: {cron: \"0 * * * *\", jitter: 10m}\n\
                trigger: {type: command, command: 'true'}\n";
    let machine = Machine::new(&[text]);
    machine.live(u64::MAX, at("2026-03-20T03:30:00Z"));
    let offset = jitter_offset(
        &PipelineId::parse("spread").unwrap(),
        &ScheduleId::from_static("cron"),
        SignedDuration::from_mins(10),
    );
    assert!(offset > SignedDuration::from_mins(1), "longer than a slot is live: {offset}");
    let slots = slots_of(&machine, "spread");
    assert_eq!(slots.len(), 3);
    for (nominal, slot) in slots {
        assert_eq!(slot.opened_at, nominal + offset);
        assert_eq!(slot.disposition.as_deref(), Some("completed"));
    }
}

#[test]
fn what_a_slot_promises_is_stored_when_it_opens() {
    let text = "name: promising\nschedule: {cron: \"0 * * * *\", deadline: +5m}\ntimezone: Europe/Riga\n\
                sla: {completionDeadline: \"+20m\", expectedDuration: 15m, maxDuration: 2h}\n\
                trigger: {type: command, command: 'true'}\n";
    let machine = Machine::new(&[text]);
    machine.live(u64::MAX, at("2026-03-20T01:30:00Z"));
    let slots = slots_of(&machine, "promising");
    let promised = SlaRecord {
        evaluation_at: Some(at("2026-03-20T01:05:00Z")),
        warning_at: Some(at("2026-03-20T01:05:00Z")),
        breach_at: Some(at("2026-03-20T01:20:00Z")),
        duration_max: Some(SignedDuration::from_hours(2)),
        expected_duration: Some(SignedDuration::from_mins(15)),
    };
    assert_eq!(slots.first().and_then(|(_, slot)| slot.sla.as_deref()), Some(&promised));
}
