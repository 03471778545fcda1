//! A house in which every check finds something, once: deleting any one of them makes this fail. It stands in for a
//! mutation run over the table; what each check finds and does not find is tested beside it.

use std::collections::BTreeSet;

use interlock_core::{
    id::ScheduleId,
    sla::{Limit, ResolvedSla},
    slot::{Disposition, OpenState, SlotState},
};
use interlock_store::{DueKind, Obligation, Shard, Subject, block_on};
use interlock_watchdog::{CHECKS, CheckName, once::once};
use jiff::SignedDuration;
use serde_json::json;

use crate::house::{House, at, instant, waiting};

fn cron(name: &str) -> String {
    format!("name: {name}\nschedule: '0 9 * * *'\ntrigger: {{type: command, command: 'true'}}\n")
}

fn sensor(name: &str, more: &str) -> String {
    format!(
        "name: {name}\nschedules: [{{name: stream, sensor: {{key: ready, check: exists, period: day}}{more}}}]\n\
         trigger: {{type: command, command: 'true'}}\n"
    )
}

fn everything_is_missing() -> House {
    let listed = "name: listed\nschedules: [{name: dates, at: '09:00', dates: ['2026-02-24']}]\n\
        trigger: {type: command, command: 'true'}\n";
    let files = [
        cron("absent"),
        listed.to_owned(),
        cron("stuck"),
        cron("stale"),
        sensor("unopened", ""),
        cron("promise"),
        sensor("window", ", deadline: '10:00'"),
        cron("unreported"),
        cron("budget"),
        cron("paused"),
    ];
    let files: Vec<&str> = files.iter().map(String::as_str).collect();
    let eve = instant("2026-02-23T23:00:00Z");
    let house = House::new(&files, eve);
    assert_eq!(house.found(eve), Vec::<String>::new());
    let nine = at("09:00");
    let id = ScheduleId::any("cron").unwrap();
    let slot = Subject::Slot(id.clone(), nine);
    for name in ["stuck", "stale", "promise", "unreported", "budget"] {
        house.recorded(name, "cron", nine);
    }
    house.run("stuck", ("cron", nine), ("RUNNING", nine), SignedDuration::from_mins(30));
    let mut running = waiting(nine);
    running.state = SlotState::Open(OpenState::Running);
    let done = running.close(Disposition::Completed, at("09:10")).unwrap();
    running.closes_at = at("11:00");
    house.slot("stale", ("cron", nine), &running);
    house.sensor("unopened", "ready", json!({"date": "2026-02-24"}), at("09:30"));
    let limit = Limit { warning_at: None, breach_at: at("11:00") };
    let sla = ResolvedSla { completion: Some(limit), ..ResolvedSla::default() };
    house.slot("promise", ("cron", nine), &waiting(nine).promising(sla));
    house.due("promise", Obligation::new(at("11:00"), DueKind::SlaBreach, slot.clone()));
    house.slot("unreported", ("cron", nine), &done);
    let due = Obligation::new(at("11:10"), DueKind::PostRun, slot)
        .detail("completedAt", at("09:10").to_string())
        .detail("ruleKeys", json!(["rows"]));
    house.due("unreported", due);
    let sla =
        ResolvedSla { duration_max: Some(SignedDuration::from_hours(1)), ..ResolvedSla::default() };
    house.slot("budget", ("cron", nine), &waiting(nine).promising(sla));
    let due = Obligation::new(at("10:00"), DueKind::SlaBreach, Subject::Budget(id, nine));
    house.due("budget", due.detail("sensorArrivalAt", nine.to_string()));
    house.pause("paused", at("08:00"), None);
    let due = Obligation::new(at("11:00"), DueKind::Pause, Subject::Pipeline);
    house.due("paused", due.detail("since", at("08:00").to_string()));
    house
}

#[test]
fn every_check_finds_something_and_nobody_else_finds_it() {
    let house = everything_is_missing();
    let found_by = |checks: &[(CheckName, interlock_watchdog::Check)]| {
        let mut options = house.options(at("12:00"));
        options.checks = checks.to_vec();
        let report = block_on(once(&options, Shard(0))).unwrap().unwrap();
        let names: Vec<_> = report.findings.iter().map(|finding| finding.check).collect();
        let all: BTreeSet<_> = names.iter().copied().collect();
        assert_eq!(names.len(), all.len(), "one each: {names:?}");
        all
    };
    assert_eq!(found_by(&CHECKS), CheckName::ALL.into_iter().collect());
    for deleted in CheckName::ALL {
        let left: Vec<_> = CHECKS.into_iter().filter(|(name, _)| *name != deleted).collect();
        let expected = CheckName::ALL.into_iter().filter(|name| *name != deleted).collect();
        assert_eq!(found_by(&left), expected, "without {deleted}");
    }
}
