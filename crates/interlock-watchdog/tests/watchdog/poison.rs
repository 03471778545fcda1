//! What the store cannot take of one pipeline: that pipeline is set aside and named, and all others are judged.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    id::ScheduleId,
    slot::{OpenState, SlotState},
};
use interlock_store::{DueKind, Obligation, Shard, Subject, block_on};
use interlock_watchdog::{CHECKS, Check, CheckName, Finding, Remedy, Snapshot, once::once};
use jiff::{SignedDuration, Timestamp};

use crate::{
    house::{EngineTelling, House, at, waiting},
    ourselves::Resident,
};

const FILES: [&str; 3] = [
    "name: aaa\nschedule: '0 * * * *'\ntrigger: {type: command, command: 'true'}\n",
    "name: poison\nschedule: '0 * * * *'\ntrigger: {type: command, command: 'true'}\n",
    "name: zzz\nschedule: '0 * * * *'\ntrigger: {type: command, command: 'true'}\n",
];

/// All checks, and one with a mistake: of one pipeline it writes a row that no store takes.
fn with_a_mistake() -> Vec<(CheckName, Check)> {
    let mut checks = CHECKS.to_vec();
    checks.push((CheckName::StuckRuns, too_fine));
    checks
}

fn too_fine(snapshot: &Snapshot, now: Timestamp) -> Vec<Finding> {
    if snapshot.pipeline.as_str() != "poison" {
        return vec![];
    }
    let place = (now + SignedDuration::from_nanos(1), ScheduleId::any("cron").unwrap());
    vec![Finding {
        check: CheckName::StuckRuns,
        event: Some("RUN_STUCK"),
        pipeline: snapshot.pipeline.clone(),
        slot: None,
        date: None,
        run_id: None,
        message: "it cannot be written".to_owned(),
        alert: None,
        details: BTreeMap::new(),
        due_at: None,
        remedies: vec![Remedy::Slot(place, 0, Box::new(waiting(now)))],
    }]
}

/// Comes round for some minutes; who rests for longer than a few seconds has slept.
fn watch_for(resident: &mut Resident, minutes: usize) {
    for _ in 0..minutes * 15 {
        resident.after(SignedDuration::from_secs(4));
    }
}

#[test]
fn what_the_store_cannot_take_of_one_pipeline_stops_no_other_and_is_told() {
    let house = House::new(&FILES, at("08:59"));
    let mut resident = Resident::with_checks(house, with_a_mistake());
    watch_for(&mut resident, 8);
    let incidents = resident.house.incidents();
    let missed =
        |name: &str| incidents.keys().any(|key| key.starts_with(&format!("watchdog:{name}:")));
    assert!(missed("aaa") && missed("zzz"), "the others were judged: {:?}", incidents.keys());
    assert_eq!(resident.count("WATCHDOG_DEGRADED"), 1, "said, and once");
    assert!(incidents.keys().any(|key| key.contains("degraded")), "{:?}", incidents.keys());
    assert_eq!(resident.count("WATCHDOG_RECOVERED"), 0, "nothing is better yet");
}

#[test]
fn a_single_pass_names_what_the_store_cannot_take_also_if_it_writes_nothing() {
    for is_telling in [true, false] {
        let house = House::new(&FILES, at("08:30"));
        let mut options = house.options(at("09:10"));
        options.checks = with_a_mistake();
        if is_telling {
            options = options.telling(Arc::new(EngineTelling));
        }
        let report = block_on(once(&options, Shard(0))).unwrap().unwrap();
        let found: Vec<_> = report.findings.iter().map(|it| it.pipeline.as_str()).collect();
        assert!(found.contains(&"aaa") && found.contains(&"zzz"), "{found:?}");
        let why = report.failed.get(&CheckName::MissedSchedules);
        assert!(why.is_some_and(|why| why.starts_with("poison: ")), "{:?}", report.failed);
    }
}

/// The slot of a switch whose job reported its beginning by a clock that is finer than ours, as older versions stored it.
#[test]
fn a_slot_that_ends_between_two_milliseconds_is_armed_and_judged_after_it() {
    let file = "name: switch\nschedules: [{id: beat, every: 20s, from: last, grace: 5s}]\n\
                trigger: {type: external}\n";
    let house = House::new(&[file, FILES[0]], at("08:59"));
    let mut slot = waiting(at("09:00"));
    slot.state = SlotState::Open(OpenState::Running);
    slot.attempt = 1;
    slot.closes_at = at("09:10") + SignedDuration::from_nanos(583_342);
    house.slot("switch", ("beat", at("09:00")), &slot);
    let subject = Subject::Slot(ScheduleId::any("beat").unwrap(), at("09:00"));
    house.due("switch", Obligation::new(at("09:01"), DueKind::Closes, subject));
    let mut resident = Resident::with_checks(house, CHECKS.to_vec());
    watch_for(&mut resident, 10);
    assert_eq!(resident.count("SCHEDULE_MISSED"), 1, "the other pipeline was judged");
    assert_eq!((resident.count("SFN_TIMEOUT"), resident.count("WATCHDOG_DEGRADED")), (0, 0));
    watch_for(&mut resident, 2);
    assert_eq!(resident.count("SFN_TIMEOUT"), 1, "and it ended when it was to");
}
