//! Agendas from rows owe what declarations owe.

use std::path::Path;

use interlock_config::{Severity, SystemZones, ZoneSource as _, load_dir};
use interlock_core::{agenda::Agenda, schedule::Schedule};
use interlock_store::{
    Key, Record,
    record::{AgendaRecord, PipelineRecord, Shared, version_text},
};
use jiff::Timestamp;

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
        let row = Record::Pipeline(PipelineRecord {
            version: version_text(1),
            first_seen: Timestamp::UNIX_EPOCH,
            retired_at: None,
            disabled_since: None,
            pause: None,
            agenda: Some(Box::new(stored.clone())),
        });
        let read = Record::decode(&Key::Pipeline, &row.encode());
        assert_eq!(read.as_ref(), Ok(&row), "{}", pipeline.name);
        let found = stored.to_core(&mut shared, &|name| zones.zone(name)).unwrap();
        assert_eq!(AgendaRecord::from_core(&found), stored, "{}", pipeline.name);
        assert_eq!((found.work, &found.sla), (agenda.work, &agenda.sla), "{}", pipeline.name);
        let (mut owed, mut stored) = (agenda.owed(), found.owed());
        loop {
            let (Some(owed), Some(stored)) = (owed.next(), stored.next()) else { break };
            assert_eq!(slots(&owed.schedule), slots(&stored.schedule), "{}", pipeline.name);
            assert_eq!(owed.deadline, stored.deadline, "{}", pipeline.name);
        }
        assert!(owed.next().is_none() && stored.next().is_none());
    }
}
