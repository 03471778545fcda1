//! Schedules and files that come and go: nothing is lost by it, nothing replayed, and every instant has an answer.

use interlock_core::id::PipelineId;
use interlock_engine::{Changes, Parts};
use interlock_store::{LedgerEntry, LedgerQuery, Store as _, conformance::block_on};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::mpsc;

use crate::{
    Files,
    stage::{Job, Stage, at},
    traps::{engine, live},
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
    assert!(told[0].contains("3 slots") && told[0].contains("taken out"), "{told:?}");
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
