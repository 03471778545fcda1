//! Schedules and files that come and go: nothing is lost by it, nothing replayed, and every instant has an answer.

use std::sync::Arc;

use interlock_config::ZoneSource;
use interlock_core::{id::PipelineId, pipeline::Pipeline, zone::Zone};
use interlock_engine::{
    Changes, Declaration, Engine, Parts,
    seam::{Specs, Task},
};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, Shard, Store as _, block_on,
    record::{InboxRecord, version_text},
};
use jiff::{
    SignedDuration, Timestamp,
    tz::{TimeZone, offset},
};
use tokio::sync::mpsc;

use crate::{
    Files,
    stage::{Job, Stage, at},
    traps::{Life, engine, live},
};

/// A list of entries without ids, which are named after their expressions.
fn listed(entries: &[&str]) -> String {
    let entries: Vec<_> = entries.iter().map(|entry| format!("\"{entry}\"")).collect();
    format!(
        "name: listed\nschedule: [{}]\ncatchupWindow: 1d\noverlapPolicy: all\n\
         trigger: {{type: command, command: 'true'}}\n",
        entries.join(", ")
    )
}

/// What became of the slots, in order of time: `HH:MM[-HH:MM ×n] state`.
fn story(stage: &Stage) -> Vec<String> {
    let mut rows = block_on(stage.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
    rows.sort_by_key(|row| row.nominal);
    let time = |at: Timestamp| at.strftime("%H:%M").to_string();
    let line = |row: &interlock_store::LedgerRow| match &row.entry {
        LedgerEntry::Slot(slot) => {
            format!("{} {}", time(row.nominal), slot.to_core().unwrap().state)
        }
        LedgerEntry::Span(span) => {
            let reason = span.reason.as_deref().unwrap_or_default();
            let (first, last, count) = (time(row.nominal), time(span.last), span.count);
            format!("{first}-{last} x{count} {}({reason})", span.disposition)
        }
    };
    rows.iter().map(line).collect()
}

fn declared(text: &str) -> Changes {
    let declared = Files::new(&[text]).0.values().cloned().collect();
    Changes { declared, removed: vec![] }
}

fn minutes(count: i64) -> SignedDuration {
    SignedDuration::from_mins(count)
}

#[test]
fn an_entry_of_a_list_that_is_edited_during_downtime_loses_nothing() {
    let before = listed(&["0 * * * *", "45 23 * * *"]);
    let stage = Stage::new(at("08:30"), &[&before], |_| Job::Succeeds(5));
    live(&stage, &mut engine(stage.parts("test"), &[&before]), at("09:10"));
    stage.world.kill();
    stage.world.pass(minutes(180));
    let after = listed(&["*/30 * * * *", "45 23 * * *"]);
    live(&stage, &mut engine(stage.parts("test"), &[&after]), at("12:20"));
    let expected = [
        "09:00 completed",
        // By what is declared now, from where the old entry stood.
        "09:30 completed",
        "10:00-12:00 x3 skipped(retired)",
        "10:00 completed",
        "10:30 completed",
        "11:00 completed",
        "11:30 completed",
        "12:00 completed",
    ];
    assert_eq!(story(&stage), expected);
    let told = stage.told(&["SLOTS_SKIPPED", "CATCHUP_PLANNED"]);
    assert!(told[0].contains("3 slots") && told[0].contains("was removed"), "{told:?}");
    assert_eq!(told[1], "CATCHUP_PLANNED 6 slots were missed: 6 run (all); skipped: none");
}

#[test]
fn an_entry_that_is_put_back_does_not_owe_the_time_in_which_it_was_away() {
    let (both, one) = (listed(&["0 * * * *", "30 * * * *"]), listed(&["30 * * * *"]));
    let stage = Stage::new(at("08:10"), &[&both], |_| Job::Succeeds(5));
    let (sender, declarations) = mpsc::channel(2);
    let parts = Parts { declarations, ..stage.parts("test") };
    let mut life = engine(parts, &[&both]);
    live(&stage, &mut life, at("09:10"));
    sender.try_send(declared(&one)).unwrap();
    live(&stage, &mut life, at("12:10"));
    sender.try_send(declared(&both)).unwrap();
    live(&stage, &mut life, at("13:10"));
    let expected = [
        "08:30 completed",
        "09:00 completed",
        "09:30 completed",
        "10:00-12:00 x3 skipped(retired)",
        "10:30 completed",
        "11:30 completed",
        "12:30 completed",
        "13:00 completed",
    ];
    assert_eq!(story(&stage), expected);
}

/// A pipeline that runs once an hour, when its data has landed.
fn hourly(deadline: &str) -> String {
    format!(
        "name: listed\nschedule: {{sensor: {{key: landed, check: exists, period: hour}}{deadline}}}\n\
         overlapPolicy: all\ntrigger: {{type: command, command: 'true'}}\n"
    )
}

#[test]
fn a_deadline_that_is_taken_out_and_put_back_leaves_no_slots_that_nobody_owed() {
    let (with, without) = (hourly(", deadline: +20m"), hourly(""));
    let stage = Stage::new(at("08:10"), &[&with], |_| Job::Succeeds(5));
    let (sender, declarations) = mpsc::channel(2);
    let parts = Parts { declarations, ..stage.parts("test") };
    let mut life = engine(parts, &[&with]);
    live(&stage, &mut life, at("09:30"));
    sender.try_send(declared(&without)).unwrap();
    live(&stage, &mut life, at("12:10"));
    sender.try_send(declared(&with)).unwrap();
    live(&stage, &mut life, at("13:30"));
    assert_eq!(story(&stage), ["09:00 skipped(no_sensor)", "13:00 skipped(no_sensor)"]);
}

#[test]
fn a_deadline_that_is_taken_out_while_nobody_is_up_leaves_the_periods_since_to_their_reports() {
    let (with, without) = (hourly(", deadline: +20m"), hourly(""));
    let stage = Stage::new(at("08:10"), &[&with], |_| Job::Succeeds(5));
    live(&stage, &mut engine(stage.parts("test"), &[&with]), at("09:10"));
    assert_eq!(story(&stage), ["09:00 open(waiting)"]);
    stage.world.kill();
    let landed = |time: &str| {
        let (key, at) = ("landed".to_owned(), at(time));
        let record = InboxRecord::Sensor { key, value: serde_json::json!({ "at": time }), at };
        let name = PipelineId::parse("listed").unwrap();
        block_on(stage.store.post(&name, time, &record)).unwrap();
    };
    landed("09:15");
    landed("10:40");
    stage.world.pass(minutes(180));
    live(&stage, &mut engine(stage.parts("test"), &[&without]), at("12:20"));
    // Of an hour that was never recorded, long after; 11:00 is nobody's, like every hour without a report from now on.
    assert_eq!(story(&stage), ["09:00 completed", "10:00 completed"]);
    assert_eq!(stage.told(&["SLOTS_SKIPPED"]), Vec::<String>::new());
}

#[test]
fn a_file_that_is_put_back_does_not_owe_the_time_in_which_it_was_gone() {
    let text = listed(&["0 * * * *"]);
    let stage = Stage::new(at("08:10"), &[&text], |_| Job::Succeeds(5));
    let (sender, declarations) = mpsc::channel(2);
    let parts = Parts { declarations, ..stage.parts("test") };
    let mut life = engine(parts, &[&text]);
    live(&stage, &mut life, at("09:10"));
    let removed = vec![PipelineId::parse("listed").unwrap()];
    sender.try_send(Changes { declared: vec![], removed }).unwrap();
    live(&stage, &mut life, at("12:10"));
    sender.try_send(declared(&text)).unwrap();
    live(&stage, &mut life, at("13:10"));
    let expected = ["09:00 completed", "10:00-12:00 x3 skipped(retired)", "13:00 completed"];
    assert_eq!(story(&stage), expected);
}

#[test]
fn what_was_missed_of_a_file_that_went_away_during_downtime_is_recorded() {
    let text = listed(&["0 * * * *"]);
    let stage = Stage::new(at("08:10"), &[&text], |_| Job::Succeeds(5));
    live(&stage, &mut engine(stage.parts("test"), &[&text]), at("09:10"));
    stage.world.kill();
    stage.world.pass(minutes(180));
    live(&stage, &mut engine(stage.parts("test"), &[]), at("12:20"));
    assert_eq!(story(&stage), ["09:00 completed", "10:00-12:00 x3 skipped(retired)"]);
    assert_eq!(stage.told(&["PIPELINE_RETIRED"]).len(), 1);
}

#[test]
fn an_entry_that_is_edited_during_a_pause_takes_over_what_the_pause_left() {
    let before = listed(&["0 * * * *"]);
    let stage = Stage::new(at("08:10"), &[&before], |_| Job::Succeeds(5));
    let (sender, declarations) = mpsc::channel(2);
    let parts = Parts { declarations, ..stage.parts("test") };
    let mut life = engine(parts, &[&before]);
    live(&stage, &mut life, at("09:10"));
    let disabled = |text: &str| format!("{text}watch: {{enabled: false}}\n");
    sender.try_send(declared(&disabled(&before))).unwrap();
    live(&stage, &mut life, at("10:10"));
    let after = listed(&["15 * * * *"]);
    sender.try_send(declared(&disabled(&after))).unwrap();
    live(&stage, &mut life, at("11:10"));
    sender.try_send(declared(&after)).unwrap();
    live(&stage, &mut life, at("11:20"));
    let expected = [
        "09:00 completed",
        "09:15 completed",
        "10:00 skipped(retired)",
        "10:15 completed",
        "11:15 completed",
    ];
    assert_eq!(story(&stage), expected);
}

/// Two slots between 08:30 and 13:30 by one edition of the data of its zone, three by the other.
const MOVED: &str = "name: moved\ntimezone: Test/Moving\nschedule: \"0 10,11,14 * * *\"\n\
                     trigger: {type: command, command: 'true'}\n";

/// A zone whose data was changed: its clocks are so many hours ahead.
#[derive(Clone, Copy)]
struct Moving(i8);

impl ZoneSource for Moving {
    fn zone(&self, name: &str) -> Option<Zone> {
        Some(Zone::new(name, TimeZone::fixed(offset(self.0))))
    }

    fn names(&self) -> &[String] {
        &[]
    }
}

impl Moving {
    fn declared(self) -> Files {
        Files::in_zones(&[MOVED], &self)
    }
}

impl Specs for Moving {
    fn pipeline(&self, name: &PipelineId, version: u64) -> Task<Result<Arc<Pipeline>, String>> {
        self.declared().pipeline(name, version)
    }

    /// There was never another text.
    fn today(&self, name: &PipelineId, _: u64) -> Task<Result<Declaration, String>> {
        let declared = self.declared().0.get(name).cloned();
        Box::pin(std::future::ready(declared.ok_or_else(|| "no such pipeline".to_owned())))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        ZoneSource::zone(self, name)
    }
}

/// An engine by this zone data, with the file or without.
fn moved(stage: &Stage, zones: Moving, files: Files) -> Life {
    let parts = Parts { specs: Arc::new(zones), ..stage.parts("test") };
    Box::pin(async move {
        let mut engine = Engine::open(parts, Shard(0)).await.unwrap().unwrap();
        let changes = files.changes(&engine);
        engine.declare(&changes).await.unwrap();
        engine.run(Box::pin(std::future::pending())).await.unwrap();
    })
}

/// The only span: what it says, and whether its version is what the zone data makes of the file and can be read again.
fn only_span(stage: &Stage, zones: Moving) -> (Vec<String>, bool) {
    let declared = zones.declared().0.values().next().cloned().unwrap();
    let rows = block_on(stage.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
    let span = rows.iter().find_map(|row| match &row.entry {
        LedgerEntry::Span(span) => Some(span),
        LedgerEntry::Slot(_) => None,
    });
    let name = &declared.pipeline.name;
    let kept = block_on(stage.store.read(name, &[Key::Version(declared.version)])).unwrap();
    let is_of_it = span.is_some_and(|span| span.version == version_text(declared.version));
    (story(stage), is_of_it && kept.iter().all(Option::is_some))
}

#[test]
fn s3_a_time_away_is_of_the_version_that_it_is_counted_by_though_zone_data_changed_in_it() {
    let stage = Stage::new(at("08:30"), &[], |_| Job::Succeeds(5));
    let nothing = || Files::new(&[]);
    live(&stage, &mut moved(&stage, Moving(0), Moving(0).declared()), at("09:05"));
    stage.world.kill();
    live(&stage, &mut moved(&stage, Moving(0), nothing()), at("09:10"));
    stage.world.kill();
    stage.world.pass(minutes(250));
    live(&stage, &mut moved(&stage, Moving(1), Moving(1).declared()), at("13:30"));
    let expected = vec!["09:00-13:00 x3 skipped(retired)".to_owned()];
    assert_eq!(only_span(&stage, Moving(1)), (expected, true));
}

#[test]
fn s3_what_goes_with_a_change_of_zone_data_is_of_the_version_that_it_is_counted_by() {
    let stage = Stage::new(at("08:30"), &[], |_| Job::Succeeds(5));
    live(&stage, &mut moved(&stage, Moving(0), Moving(0).declared()), at("09:05"));
    stage.world.kill();
    stage.world.pass(minutes(250));
    live(&stage, &mut moved(&stage, Moving(1), Files::new(&[])), at("13:30"));
    let expected = vec!["09:00-13:00 x3 skipped(retired)".to_owned()];
    // Nobody ever declared that version, and still it can be read again.
    assert_eq!(only_span(&stage, Moving(1)), (expected, true));
}

#[test]
fn s3_an_entry_that_was_not_in_the_version_before_is_counted_by_the_one_that_brings_it_back() {
    let [both, one] = [&["0 * * * *", "30 * * * *"][..], &["30 * * * *"]].map(listed);
    let stage = Stage::new(at("08:30"), &[&both], |_| Job::Succeeds(5));
    live(&stage, &mut engine(stage.parts("test"), &[&both]), at("08:40"));
    stage.world.kill();
    live(&stage, &mut engine(stage.parts("test"), &[&one]), at("11:10"));
    stage.world.kill();
    let again = listed(&["0 * * * *", "30 * * * *", "45 23 * * *"]);
    live(&stage, &mut engine(stage.parts("test"), &[&again]), at("11:20"));
    let rows = block_on(stage.store.ledger(&LedgerQuery::everything(1_000))).unwrap().items;
    let spans = rows.iter().filter_map(|row| match &row.entry {
        LedgerEntry::Span(span) => Some((span.count, span.version.clone())),
        LedgerEntry::Slot(_) => None,
    });
    let version = Files::new(&[&again]).0.values().next().unwrap().version;
    assert_eq!(spans.collect::<Vec<_>>(), [(3, version_text(version))]);
}
