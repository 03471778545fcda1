//! S10 after an outage: what nobody could have heard of is unknown, told once for all of it, and a report that comes
//! late is placed by its true time.

use interlock_core::id::PipelineId;
use interlock_store::{Store as _, block_on, record::InboxRecord};
use jiff::SignedDuration;

use crate::{
    heard::{HOURLY, stage},
    stage::{Stage, at},
    watched::watch,
};

/// Somebody listened between two instants, and says so.
fn listened(stage: &Stage, (since, until): (&str, &str)) {
    let instance = "box".to_owned();
    let record = InboxRecord::Heard { instance, since: at(since), until: at(until), after: None };
    block_on(stage.store.post(&PipelineId::system(), &format!("heard/{until}"), &record)).unwrap();
}

/// Everything is down from 09:10 to 14:30.
fn outage(stage: &mut Stage) {
    stage.goes_on("09:02");
    assert_eq!(stage.hears("success", None), "ended");
    stage.goes_on("09:10");
    listened(stage, ("08:00", "09:10"));
    stage.goes_on("09:11");
    stage.crash();
    stage.world.pass(at("14:30").duration_since(stage.world.time()));
}

#[test]
fn s10_after_an_outage_slots_are_unknown_and_one_incident_names_the_window() {
    let mut stage = stage(HOURLY);
    outage(&mut stage);
    let heard = watch(&stage);
    stage.goes_on("14:40");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed", "5 times unknown"]);
    let lines: Vec<_> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(lines, ["schedule_unknown open"], "once, and nobody says that it was missed");
    let told = stage.told(&["SCHEDULE_UNKNOWN", "SCHEDULE_MISSED", "SLOTS_MISSED"]);
    let says = "SCHEDULE_UNKNOWN 5 slots of h from 2026-02-24T10:00:00Z to 2026-02-24T14:00:00Z are unknown: \
                reports could not arrive from 2026-02-24T09:10:00Z to 2026-02-24T14:30:00Z";
    assert_eq!(told, [says]);
}

#[test]
fn s10_s11_a_report_from_before_that_comes_after_an_outage_is_placed_by_its_true_time() {
    let mut stage = stage(HOURLY);
    outage(&mut stage);
    let heard = watch(&stage);
    stage.goes_on("14:31");
    // It waited on somebody's disk.
    assert_eq!(stage.hears_of("success", None, at("11:03")), "ended");
    let slots = stage.slots();
    assert!(slots.contains(&"h/2026-02-24T11:00:00Z completed".to_owned()), "{slots:?}");
    assert!(
        slots.contains(&"5 times unknown".to_owned()),
        "the span stays, the row wins: {slots:?}"
    );
    let runs = stage.run_rows();
    let run = runs.iter().find(|run| run.key.nominal == at("11:00")).unwrap();
    assert_eq!(run.record.ended_at, Some(at("11:03")));
    stage.goes_on("14:40");
    let lines: Vec<_> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(lines, ["schedule_unknown open", "schedule_unknown resolved"]);
    // The same again changes nothing.
    assert_eq!(stage.hears_of("success", None, at("11:03")), "extra");
    assert_eq!(stage.slots(), slots);
}

#[test]
fn s10_what_could_have_been_reported_while_only_the_engine_was_down_is_missed() {
    let mut stage = stage(HOURLY);
    outage(&mut stage);
    listened(&stage, ("09:10", "14:30"));
    let heard = watch(&stage);
    stage.goes_on("14:40");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed", "5 times missed"]);
    let lines: Vec<_> = heard.lines().iter().map(|line| line[9..].to_owned()).collect();
    assert_eq!(lines, ["schedule_missed open"]);
}

#[test]
fn s10_where_nobody_ever_listened_what_the_watchdog_did_not_see_is_unknown() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:02");
    assert_eq!(stage.hears("success", None), "ended");
    stage.crash();
    stage.world.pass(SignedDuration::from_hours(3));
    stage.goes_on("12:20");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed", "3 times unknown"]);
    let told = stage.told(&["SCHEDULE_UNKNOWN"]);
    assert!(
        told[0].ends_with("are unknown: reports could not arrive, no instance was listening"),
        "{told:?}"
    );
}

#[test]
fn s15_nothing_ends_before_it_began_whatever_the_clocks_of_two_machines_say() {
    let mut stage = stage(HOURLY);
    stage.goes_on("09:01");
    assert_eq!(stage.hears("start", Some("r")), "began");
    stage.goes_on("09:10");
    // Told by another machine, whose clock is behind.
    assert_eq!(stage.hears_of("success", Some("r"), at("08:20")), "ended");
    assert_eq!(stage.slots(), ["h/2026-02-24T09:00:00Z completed"]);
    let run = stage.run_rows().remove(0).record;
    assert_eq!((run.started_at, run.ended_at), (Some(at("09:01")), Some(at("09:01"))));
}

#[test]
fn s10_the_owner_that_closes_for_a_watchdog_which_is_not_there_says_missed_only_if_somebody_heard()
{
    for (until, word) in [("09:01", "unknown"), ("10:00", "missed")] {
        let mut stage = stage(HOURLY);
        stage.goes_on("09:01");
        listened(&stage, ("08:00", "09:01"));
        // The slot is open, and nobody listens from then on, or only the engine goes.
        stage.goes_on("09:02");
        stage.crash();
        stage.world.pass(at("09:30").duration_since(stage.world.time()));
        listened(&stage, ("08:00", until));
        stage.goes_on("09:40");
        assert_eq!(stage.slots(), [format!("h/2026-02-24T09:00:00Z {word}")]);
        if word == "unknown" {
            let events = stage.events();
            let event = events.iter().find(|row| row.record.kind == "SCHEDULE_UNKNOWN").unwrap();
            let (from, until) = ("2026-02-24T09:01:00Z", "2026-02-24T09:30:00Z");
            let says = format!("unknown: reports could not arrive from {from} to {until}");
            assert_eq!(event.record.message, says, "`why` and the alert say it");
            let details = &event.record.details;
            assert_eq!(
                (&details["deafFrom"], &details["deafUntil"]),
                (&from.into(), &until.into())
            );
        }
    }
}
