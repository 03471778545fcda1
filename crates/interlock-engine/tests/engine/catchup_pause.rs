//! Pauses and disabled pipelines: their gaps are caught up like any other, and the dry run says how.

use interlock_core::{agenda::Agenda, slot::Disposition};
use interlock_engine::{Engine, Owing};
use interlock_store::{
    Key, LedgerEntry, LedgerQuery, Record, Role, Store as _, block_on, record::InboxRecord,
};
use jiff::{SignedDuration, Timestamp};
use proptest::prelude::*;

use crate::{
    catchup::{row, write},
    stage::{Job, Stage, at},
    traps::{engine, hours, live},
};

fn hourly(more: &str) -> String {
    format!(
        "name: hourly\nschedule: \"0 * * * *\"\ntrigger: {{type: command, command: 'true'}}\n{more}"
    )
}

const POLICIES: [&str; 4] = [
    "",
    "catchupWindow: 2h\noverlapPolicy: skip\n",
    "catchupWindow: 12h\noverlapPolicy: all\n",
    "catchupWindow: 12h\noverlapPolicy: latest\n",
];

/// What the gap of 11:00 to 13:00 becomes by each policy.
const GAPS: [&[&str]; 4] = [
    &["11 and on: 3 paused"],
    &["11 skipped(paused)", "12 completed", "13 skipped(paused)"],
    &["11 completed", "12 completed", "13 completed"],
    &["11 and on: 2 paused", "13 completed"],
];

fn pause(until: Option<Timestamp>) -> InboxRecord {
    InboxRecord::Pause { reason: "to see".to_owned(), until }
}

fn check_gap(stage: &Stage, expected: &[&str]) {
    let seen = hours(stage, "hourly");
    assert_eq!(seen.first().map(String::as_str), Some("10 completed"));
    assert_eq!(seen[1..seen.len() - 1], *expected);
    assert_eq!(seen.last().map(String::as_str), Some("14 completed"));
}

#[test]
fn what_lay_in_a_pause_is_caught_up_by_the_policy_and_the_rest_says_paused() {
    for (policy, expected) in POLICIES.into_iter().zip(GAPS) {
        let mut stage = Stage::new(at("09:30"), &[&hourly(policy)], |_| Job::Succeeds(5));
        stage.until(at("10:30"));
        assert!(stage.ask("hourly", &pause(None)).accepted);
        stage.until(at("13:30"));
        assert!(stage.ask("hourly", &InboxRecord::Resume { catchup: None }).accepted);
        stage.until(at("14:30"));
        check_gap(&stage, expected);
        assert!(!stage.ask("hourly", &InboxRecord::Resume { catchup: None }).accepted);
    }
}

#[test]
fn a_pause_whose_time_is_over_is_caught_up_the_same_way_even_if_nobody_was_there_to_see_it_end() {
    for (policy, expected) in POLICIES.into_iter().zip(GAPS) {
        for dies in [false, true] {
            let mut stage = Stage::new(at("09:30"), &[&hourly(policy)], |_| Job::Succeeds(5));
            stage.until(at("10:30"));
            assert!(stage.ask("hourly", &pause(Some(at("13:20")))).accepted);
            let paused =
                stage.events().into_iter().find(|row| row.record.kind == "PIPELINE_PAUSED");
            assert_eq!(paused.unwrap().record.details["until"], at("13:20").to_string());
            if dies {
                stage.until(at("12:30"));
                stage.crash();
                stage.world.pass(SignedDuration::from_mins(57));
            }
            stage.until(at("14:30"));
            check_gap(&stage, expected);
        }
    }
}

#[test]
fn a_pipeline_that_was_disabled_and_is_enabled_again_is_caught_up_by_the_policy() {
    for (policy, expected) in POLICIES.into_iter().zip(GAPS) {
        let on = hourly(policy);
        let off = format!("{on}watch: {{enabled: false}}\n");
        let stage = Stage::new(at("09:30"), &[&on], |_| Job::Succeeds(5));
        live(&stage, &mut engine(stage.parts("test"), &[&on]), at("10:30"));
        live(&stage, &mut engine(stage.parts("test"), &[&off]), at("13:30"));
        live(&stage, &mut engine(stage.parts("test"), &[&on]), at("14:30"));
        check_gap(&stage, expected);
    }
}

#[test]
fn whoever_resumes_may_ask_for_another_policy_and_a_crash_does_not_forget_it() {
    let gaps = [("none", GAPS[0]), ("all", GAPS[2]), ("latest", GAPS[3])];
    for (wish, expected) in gaps {
        let mut stage = Stage::new(at("09:30"), &[&hourly(POLICIES[1])], |_| Job::Succeeds(5));
        stage.until(at("10:30"));
        assert!(stage.ask("hourly", &pause(None)).accepted);
        stage.until(at("13:20"));
        let resume = InboxRecord::Resume { catchup: Some(wish.to_owned()) };
        assert!(stage.ask("hourly", &resume).accepted);
        stage.crash();
        stage.until(at("14:30"));
        check_gap(&stage, expected);
    }
    let mut stage = Stage::new(at("09:30"), &[&hourly("")], |_| Job::Succeeds(5));
    assert!(stage.ask("hourly", &pause(None)).accepted);
    let refused = stage.ask("hourly", &InboxRecord::Resume { catchup: Some("some".to_owned()) });
    assert!(!refused.accepted, "a word that nobody knows changes nothing");
}

fn minutely(more: &str) -> String {
    format!(
        "name: minutely\nschedule: \"* * * * *\"\ntrigger: {{type: command, command: 'true'}}\n{more}"
    )
}

/// What a command does while nobody serves.
fn alone(stage: &Stage, record: &InboxRecord) {
    let (name, declared) = stage.files.0.iter().next().unwrap();
    let key = format!("alone at {}", stage.world.time());
    block_on(stage.store.post(name, &key, record)).unwrap();
    let (parts, now) = (stage.parts("alone"), stage.world.time());
    let mut command = Box::pin(async move {
        let engine = Engine::open_one(parts, name, Some(declared)).await.unwrap();
        let mut engine = engine.unwrap();
        engine.pass().await.unwrap();
        engine.close().await.unwrap();
    });
    assert!(stage.world.run(command.as_mut(), now).is_some(), "it takes no time");
    let rows = block_on(stage.store.read(name, &[Key::Applied(key)])).unwrap();
    let applied = rows[0].clone().map(|row| row.record);
    assert!(matches!(applied, Some(Record::Applied(applied)) if applied.accepted), "{record:?}");
}

fn resume(wish: &str) -> InboxRecord {
    InboxRecord::Resume { catchup: (wish != "policy").then(|| wish.to_owned()) }
}

/// What became of each minute, and how its run began; spans slot by slot.
fn minutes(stage: &Stage, until: Timestamp) -> Vec<String> {
    let agenda = Agenda::of(&stage.files.0.values().next().unwrap().pipeline);
    let fates = fates(stage, &agenda, Timestamp::MIN).into_iter();
    let fates = fates.filter(|(slot, _)| *slot <= until);
    fates.map(|(slot, fate)| format!("{} {fate}", slot.strftime("%H:%M"))).collect()
}

const MINUTELY_POLICIES: [&str; 4] = [
    "",
    "catchupWindow: 1h\noverlapPolicy: skip\n",
    "catchupWindow: 1h\noverlapPolicy: all\n",
    "catchupWindow: 1h\noverlapPolicy: latest\n",
];

/// Downtime over 09:33 to 09:36, a pause over 09:37 to 09:40, which is in its last minute, and then somebody serves.
#[test]
fn what_is_asked_for_when_a_pause_ends_is_done_whatever_the_policy_and_about_nothing_else() {
    let before: [&[&str]; 4] = [
        &["09:33 no_catchup", "09:34 no_catchup", "09:35 no_catchup", "09:36 no_catchup"],
        &["09:33 completed", "09:34 overlap", "09:35 overlap", "09:36 overlap"],
        &["09:33 completed", "09:34 completed", "09:35 completed", "09:36 completed"],
        &["09:33 superseded", "09:34 superseded", "09:35 superseded", "09:36 completed"],
    ];
    let none = &["09:37 paused", "09:38 paused", "09:39 paused", "09:40 paused"][..];
    let latest = &["09:37 paused", "09:38 paused", "09:39 paused", "09:40 completed"][..];
    let all = &["09:37 completed", "09:38 completed", "09:39 completed", "09:40 completed"][..];
    let policies = [latest, none, all, latest];
    for ((policy, before), by_policy) in MINUTELY_POLICIES.into_iter().zip(before).zip(policies) {
        for (wish, paused) in
            [("none", none), ("latest", latest), ("all", all), ("policy", by_policy)]
        {
            let text = minutely(policy);
            let mut stage = Stage::new(at("09:31"), &[&text], |_| Job::Succeeds(5));
            stage.until(at("09:32") + SignedDuration::from_secs(30));
            stage.crash();
            stage.world.pass(SignedDuration::from_mins(1));
            alone(&stage, &pause(None));
            stage.world.pass(SignedDuration::from_mins(4) - SignedDuration::from_secs(10));
            alone(&stage, &resume(wish));
            stage.until(at("09:42"));
            let seen = minutes(&stage, at("09:40"));
            let mut expected = [&["09:32 completed"][..], before, paused].concat();
            if wish == "policy" && policy.contains("latest") {
                // Then the downtime and the pause are one gap, and its newest is the pause's.
                expected[4] = "09:36 superseded";
            }
            assert_eq!(seen, expected, "{policy} {wish}");
        }
    }
}

/// While nobody serves, the second pause does not forget what was asked for about the first.
#[test]
fn a_second_pause_does_not_forget_the_first() {
    for (first, second) in [("all", "none"), ("none", "all"), ("all", "policy"), ("latest", "all")]
    {
        let text = minutely("catchupWindow: 1h\noverlapPolicy: latest\n");
        let mut stage = Stage::new(at("09:31"), &[&text], |_| Job::Succeeds(5));
        stage.until(at("09:32") + SignedDuration::from_secs(30));
        stage.crash();
        for wish in [first, second] {
            alone(&stage, &pause(None));
            stage.world.pass(SignedDuration::from_mins(2));
            // Another reason changes nothing about what was before it.
            alone(&stage, &pause(None));
            stage.world.pass(SignedDuration::from_mins(1));
            alone(&stage, &resume(wish));
            stage.world.pass(SignedDuration::from_mins(1));
        }
        stage.until(at("09:50"));
        let fate = |wish: &str| match wish {
            "all" => ["completed", "completed", "completed"],
            "none" => ["paused", "paused", "paused"],
            "latest" => ["paused", "paused", "completed"],
            // The newest is taken, and gives way to one that is newer still.
            _ => ["paused", "paused", "superseded"],
        };
        // The first is over 09:36 to 09:38, the second over 09:40 to 09:42. The policy takes the newest of 09:33 to
        // 09:35, which starts at once; then 09:39, which waits behind what was asked for, and gives way to 09:43.
        let seen = minutes(&stage, at("09:42"));
        let of = |from: usize| {
            seen[from..from + 3].iter().map(|it| it[6..].to_owned()).collect::<Vec<_>>()
        };
        assert_eq!(seen[0], "09:32 completed");
        assert_eq!(of(1), ["superseded", "superseded", "completed"], "{first} {second}");
        assert_eq!(of(4), fate(first), "{first} {second}");
        assert_eq!(seen[7], "09:39 superseded", "{first} {second}");
        assert_eq!(of(8), fate(second), "{first} {second}");
    }
}

/// The same while an engine lives: it records the gap before it begins another pause.
#[test]
fn an_owner_records_what_was_asked_for_before_the_next_pause() {
    let text = minutely("");
    let mut stage = Stage::new(at("09:31"), &[&text], |_| Job::Succeeds(5));
    stage.until(at("09:32") + SignedDuration::from_secs(30));
    for wish in ["all", "none"] {
        assert!(stage.ask("minutely", &pause(None)).accepted);
        let later = stage.world.time() + SignedDuration::from_mins(2);
        stage.until(later);
        assert!(stage.ask("minutely", &resume(wish)).accepted);
    }
    stage.until(at("09:40"));
    let expected =
        ["09:32 completed", "09:33 completed", "09:34 completed", "09:35 paused", "09:36 paused"];
    assert_eq!(minutes(&stage, at("09:36")), expected);
}

/// A pipeline that was disabled after a pause, while nobody served, does not forget the pause.
#[test]
fn a_pipeline_that_was_disabled_does_not_forget_the_pause_before() {
    let on = minutely("");
    let off = format!("{on}watch: {{enabled: false}}\n");
    let mut stage = Stage::new(at("09:31"), &[&on], |_| Job::Succeeds(5));
    stage.until(at("09:32") + SignedDuration::from_secs(30));
    stage.crash();
    alone(&stage, &pause(None));
    stage.world.pass(SignedDuration::from_mins(2));
    alone(&stage, &resume("all"));
    let disabled = stage.world.time() + SignedDuration::from_mins(2);
    live(&stage, &mut engine(stage.parts("test"), &[&off]), disabled);
    stage.world.kill();
    stage.world.pass(SignedDuration::from_mins(3));
    stage.until(at("09:50"));
    let seen = minutes(&stage, at("09:40"));
    let expected = [
        "09:32 completed",
        "09:33 no_catchup",
        "09:34 no_catchup",
        "09:35 no_catchup",
        "09:36 completed",
        "09:37 completed",
    ];
    assert_eq!(seen[..6], expected);
    assert!(seen[6..].iter().all(|it| it.ends_with("paused")), "{seen:?}");
}

/// What the dry run says of every slot that is owed: that it will have run, or why not.
fn foretold(stage: &Stage, agenda: &Agenda) -> Vec<(Timestamp, String)> {
    let (name, declared) = stage.files.0.iter().next().unwrap();
    let ids: Vec<_> = agenda.starts.iter().map(|start| start.schedule.id()).collect();
    let mut keys: Vec<_> = ids.iter().map(|id| Key::Watermark((*id).clone())).collect();
    keys.push(Key::Pipeline);
    let mut rows = block_on(stage.store.read(name, &keys)).unwrap();
    let pause = match rows.pop().flatten().map(|row| row.record) {
        Some(Record::Pipeline(record)) => record.pause.clone(),
        other => panic!("{other:?}"),
    };
    let watermarks = ids.iter().zip(rows).filter_map(|(id, row)| {
        let Record::Watermark(mark) = row?.record else { return None };
        Some((*id, mark.at))
    });
    let owing = Owing {
        pipeline: name,
        agenda,
        watermarks: watermarks.collect(),
        pause: pause.as_ref(),
        now: stage.world.time(),
    };
    let query =
        LedgerQuery { disposition: Some("open".to_owned()), ..LedgerQuery::everything(usize::MAX) };
    let open = block_on(stage.store.ledger(&query)).unwrap().items;
    let preview = owing.preview(stage.store.as_ref(), Some(&declared.pipeline), &open);
    let mut fates = Vec::new();
    for line in block_on(preview).unwrap() {
        let start = agenda.starts.iter().find(|it| it.schedule.id().as_str() == line.schedule);
        let end = line.last + SignedDuration::from_nanos(1);
        let slots = start.unwrap().schedule.slots(line.slot, end, usize::MAX).found;
        assert_eq!(slots.len() as u64, line.count);
        let fate = if line.action == "run" { "completed" } else { line.reason };
        fates.extend(slots.into_iter().map(|slot| (slot, fate.to_owned())));
    }
    fates.sort();
    fates
}

/// What became of every slot, from the ledger: its disposition, or the reason of a skip.
fn fates(stage: &Stage, agenda: &Agenda, since: Timestamp) -> Vec<(Timestamp, String)> {
    let query = LedgerQuery { from: since, ..LedgerQuery::everything(usize::MAX) };
    let mut fates = Vec::new();
    for row in block_on(stage.store.ledger(&query)).unwrap().items {
        match row.entry {
            LedgerEntry::Slot(slot) => {
                let fate =
                    slot.reason.clone().or(slot.disposition.clone()).unwrap_or(slot.state.clone());
                fates.push((row.nominal, fate.to_string()));
            }
            LedgerEntry::Span(span) => {
                let start = agenda.starts.iter().find(|it| *it.schedule.id() == row.schedule);
                let end = span.last + SignedDuration::from_nanos(1);
                let slots = start.unwrap().schedule.slots(row.nominal, end, usize::MAX).found;
                assert_eq!(slots.len() as u64, span.count, "S3");
                let reason = span.reason.unwrap();
                fates.extend(slots.into_iter().map(|slot| (slot, reason.to_string())));
            }
        }
    }
    fates.sort();
    fates
}

/// Puts rows where the scheduler has not been: what the watchdog called missed, and what somebody ran.
fn put_rows(stage: &Stage, instants: &[(Timestamp, bool)]) -> Vec<Timestamp> {
    let mut settled = Vec::new();
    for (nominal, is_missed) in instants {
        let (role, disposition) = if *is_missed {
            (Role::Watchdog, Disposition::Missed)
        } else {
            settled.push(*nominal);
            (Role::Engine, Disposition::Completed)
        };
        write(stage, role, vec![row(*nominal, disposition)]);
    }
    settled
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// S5: what the dry run says of a slot is what becomes of it, after downtime and pauses while nobody served, with
    /// live slots, whatever was recorded before.
    #[test]
    fn the_dry_run_says_what_becomes_of_every_slot(
        window in prop::sample::select(vec!["", "catchupWindow: 10m\n", "catchupWindow: 1h\n", "catchupWindow: 3d\n"]),
        overlap in prop::sample::select(vec!["skip", "all", "latest"]),
        runs_max in prop::sample::select(vec![1, 4, 10_000]),
        places in 1..3,
        first in prop::sample::select(vec!["* * * * *", "0 * * * *", "*/2 * * * *"]),
        second in prop::sample::select(vec!["30 9 * * *", "*/13 * * * *", "0 */5 * * *"]),
        pauses in prop::collection::vec(
            (5_i64..2_000, 5_i64..2_000, prop::sample::select(vec!["none", "latest", "all", "policy"])), 0..3),
        last in prop::sample::select(vec![0_i64, 1, 20, 45, 90, 3_000]),
        rows in prop::collection::btree_map(0_usize..200, any::<bool>(), 0..5),
    ) {
        let begin = at("09:32") + SignedDuration::from_secs(30);
        let off = SignedDuration::from_mins(3);
        let paused: i64 = pauses.iter().map(|(before, length, _)| before + length).sum();
        let now = begin + off + SignedDuration::from_secs(paused + last);
        // Nothing comes after it, so that nothing changes between the plan and its end.
        let until = now + SignedDuration::from_secs(1);
        let text = format!(
            "name: hourly\nschedule:\n  - {{id: cron, cron: \"{first}\", until: \"{until}\"}}\n  \
             - {{id: two, cron: \"{second}\", until: \"{until}\"}}\n\
             {window}overlapPolicy: {overlap}\ncatchupMaxRuns: {runs_max}\nmaxActiveRuns: {places}\n\
             trigger: {{type: command, command: 'true'}}\n"
        );
        let mut stage = Stage::new(at("09:31"), &[&text], |_| Job::Succeeds(5));
        stage.until(begin);
        stage.crash();
        for (before, length, wish) in pauses {
            stage.world.pass(SignedDuration::from_secs(before));
            alone(&stage, &pause(None));
            stage.world.pass(SignedDuration::from_secs(length));
            alone(&stage, &resume(wish));
        }
        stage.world.pass(SignedDuration::from_secs(last));
        assert_eq!(stage.world.time(), now);
        let agenda = Agenda::of(&stage.files.0.values().next().unwrap().pipeline);
        let owed = agenda.starts[0].schedule.slots(begin, until, 1_000).found;
        let rows: Vec<_> =
            rows.into_iter().filter_map(|(nth, is_missed)| Some((*owed.get(nth)?, is_missed))).collect();
        let settled = put_rows(&stage, &rows);
        let mut dry = foretold(&stage, &agenda);
        dry.extend(settled.into_iter().map(|slot| (slot, "completed".to_owned())));
        dry.sort();
        stage.until(now + SignedDuration::from_hours(2));
        prop_assert_eq!(fates(&stage, &agenda, begin), dry, "{}", text);
    }
}

/// A restart of a few seconds over two instants: by `skip` the first runs, and the other is recorded with its reason, as
/// it would be had it been missed. The dry run says so.
#[test]
fn of_two_live_slots_at_once_skip_runs_the_first_and_says_so() {
    for (overlap, second) in [("skip", "overlap"), ("all", "completed"), ("latest", "completed")] {
        let text = format!(
            "name: often\nschedule: {{id: often, every: 5s, until: \"2026-02-24T09:31:33Z\"}}\n\
             overlapPolicy: {overlap}\ntrigger: {{type: command, command: 'true'}}\n"
        );
        let stage = Stage::new(at("09:31"), &[&text], |_| Job::Succeeds(1));
        let mut first = engine(stage.parts("test"), &[&text]);
        live(&stage, &mut first, at("09:31") + SignedDuration::from_secs(24));
        drop(first);
        stage.world.kill();
        stage.world.pass(SignedDuration::from_secs(8));
        let agenda = Agenda::of(&stage.files.0.values().next().unwrap().pipeline);
        let dry = foretold(&stage, &agenda);
        assert_eq!(dry.iter().map(|(_, fate)| fate).collect::<Vec<_>>(), ["completed", second]);
        live(&stage, &mut engine(stage.parts("test"), &[&text]), at("09:33"));
        let since = at("09:31") + SignedDuration::from_secs(25);
        assert_eq!(fates(&stage, &agenda, since), dry, "{overlap}");
    }
}
