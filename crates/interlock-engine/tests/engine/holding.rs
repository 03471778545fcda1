//! What is not told now: silences, later steps, repetitions, flapping and digests, killed at every await (S12, S14).

use interlock_core::{id::PipelineId, incident::Alert};
use interlock_ports::channel::ChannelPolicy;
use interlock_store::{
    Change, Expect, Group, Key, Record, Role, Shard, Store as _, block_on,
    record::{InboxRecord, OutboxRecord},
};
use jiff::SignedDuration;

use crate::incidents::{Receiver, Stage, break_files, takes};

/// A stage on which nobody is told between two minutes.
fn quiet(from: i64, until: i64) -> Stage {
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.quiet = Some((Stage::end(from), Stage::end(until)));
    stage
}

fn mins(minutes: i64) -> SignedDuration {
    SignedDuration::from_mins(minutes)
}

/// Nothing is left in the outbox, not even for later.
fn check_empty(stage: &Stage, context: &str) {
    stage.world.pass(SignedDuration::from_hours(1_000));
    let left = block_on(stage.store.claim(100, SignedDuration::from_secs(1))).unwrap();
    assert_eq!(left, [], "{context}");
}

#[test]
fn what_is_over_before_the_silence_is_never_told_and_the_record_has_it() {
    // Failures at 00:10 and 00:20, over at 00:30; again at 00:40, over at 00:50.
    let stage = quiet(0, 35);
    stage.live(u64::MAX, Stage::end(58));
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed", "resolved job_failed"]);
    let events = block_on(stage.store.events(None, 0, usize::MAX)).unwrap().items;
    let failures = events.iter().filter(|event| event.record.kind == "RETRY_EXHAUSTED").count();
    assert_eq!(failures, 3, "a silence never changes the record");
    check_empty(&stage, "no death");
}

#[test]
fn a_beginning_and_its_end_that_are_always_claimed_together_do_not_wait_for_each_other() {
    // What is held back is looked at again every minute, and so is the end that finds it in somebody's hands.
    let mut stage = quiet(0, 35);
    stage.look = mins(1);
    // Over at 00:30.
    stage.live(u64::MAX, Stage::end(39));
    assert_eq!(stage.receivers.heard("chat"), Vec::<String>::new());
    check_empty(&stage, "in step");
}

#[test]
fn what_outlasts_the_silence_is_told_when_it_ends() {
    let stage = quiet(0, 25);
    stage.live(u64::MAX, Stage::end(28));
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed"]);
    let alert: Alert = stage.receivers.got.lock().unwrap()[0].2.clone();
    assert_eq!(alert.details["heldBack"], "quiet");
    stage.live(u64::MAX, Stage::end(39));
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed", "resolved job_failed"]);
    check_empty(&stage, "no death");
}

#[test]
fn a_silence_that_comes_after_the_beginning_does_not_hold_the_end_back() {
    let stage = quiet(15, 100);
    stage.live(u64::MAX, Stage::end(58));
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed", "resolved job_failed"]);
    check_empty(&stage, "no death");
}

#[test]
fn a_death_at_every_await_tells_an_end_if_and_only_if_its_beginning_was_told() {
    // The first incident is over before the silence is, the second is not.
    for (from, until) in [(0, 35), (0, 25)] {
        for dies_at in 0.. {
            let stage = quiet(from, until);
            let end = Stage::end(58);
            stage.live(dies_at, end);
            let outlived = stage.world.time() >= end;
            stage.live(u64::MAX, end + mins(5));
            let expected = if until == 35 { 2 } else { 4 };
            let context = format!("silence until {until}, death at wait {dies_at}");
            let heard = stage.receivers.heard("chat");
            assert_eq!(heard, crate::incidents::TOLD[..expected], "{context}");
            check_empty(&stage, &context);
            if outlived {
                assert!(dies_at > 200, "an hour has more waits than {dies_at}");
                break;
            }
        }
    }
}

#[test]
fn a_later_step_hears_only_of_what_lasts_and_of_its_end() {
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.manner = ChannelPolicy { after: Some(mins(15)), ..ChannelPolicy::default() };
    stage.live(u64::MAX, Stage::end(58));
    // The failure of 00:10 lasts for 20 minutes, the one of 00:40 for 10.
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed", "resolved job_failed"]);
    check_empty(&stage, "no death");
}

#[test]
fn a_channel_that_waits_for_several_in_a_row_hears_of_them_and_of_their_end() {
    for (findings, heard) in [(2, 2), (3, 0)] {
        let mut stage = Stage::new(&[("chat", takes)]);
        stage.receivers.manner = ChannelPolicy { findings, ..ChannelPolicy::default() };
        stage.live(u64::MAX, Stage::end(58));
        // Two in a row at 00:10 and 00:20, a good one, and one more at 00:40.
        let told = crate::incidents::TOLD[..heard].to_vec();
        assert_eq!(stage.receivers.heard("chat"), told, "{findings} in a row");
        check_empty(&stage, "no death");
    }
}

#[test]
fn a_channel_that_waits_for_some_of_the_last_hears_when_there_are_so_many() {
    // Bad at 00:10 and 00:20, good at 00:30, bad at 00:40, good at 00:50.
    for (findings, of, told) in [(2, 3, 4), (3, 5, 2), (3, 4, 2), (4, 5, 0)] {
        let mut stage = Stage::new(&[("chat", takes)]);
        stage.receivers.manner = ChannelPolicy { findings, of, ..ChannelPolicy::default() };
        stage.live(u64::MAX, Stage::end(58));
        let heard = stage.receivers.heard("chat");
        assert_eq!(heard, crate::incidents::TOLD[..told], "{findings} of {of}");
        check_empty(&stage, "no death");
    }
}

#[test]
fn a_channel_that_waits_for_an_end_to_hold_hears_it_once() {
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.manner = ChannelPolicy { recovered: 2, ..ChannelPolicy::default() };
    stage.live(u64::MAX, Stage::end(58));
    // The good slot of 00:30 was followed by a bad one.
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed", "open job_failed"]);
    stage.live(u64::MAX, Stage::end(64));
    let heard = stage.receivers.heard("chat");
    assert_eq!(heard, ["open job_failed", "open job_failed", "resolved job_failed"]);
    check_empty(&stage, "no death");
}

#[test]
fn a_later_step_does_not_hear_of_what_somebody_looks_at() {
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.manner = ChannelPolicy { after: Some(mins(15)), ..ChannelPolicy::default() };
    let record = InboxRecord::Incident {
        key: "failed:orders:often:2026-03-20".into(),
        hand: "acknowledge".into(),
        by: "ann".into(),
        note: None,
    };
    stage.live(u64::MAX, Stage::end(12));
    block_on(stage.store.post(&PipelineId::parse("orders").unwrap(), "1", &record)).unwrap();
    stage.live(u64::MAX, Stage::end(58));
    assert_eq!(stage.receivers.heard("chat"), Vec::<String>::new());
    check_empty(&stage, "no death");
}

#[test]
fn what_lasts_is_told_again_until_it_is_over() {
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.manner = ChannelPolicy { repeat: Some(mins(7)), ..ChannelPolicy::default() };
    stage.live(u64::MAX, Stage::end(38));
    let heard = stage.receivers.heard("chat");
    assert_eq!(
        heard,
        ["open job_failed", "open job_failed", "open job_failed", "resolved job_failed"],
        "told at 10, 17 and 24, over at 30"
    );
    check_empty(&stage, "no death");
}

#[test]
fn what_comes_and_goes_is_told_only_if_it_lasts() {
    let stage = Stage::new(&[("chat", takes)]);
    let say = |key: String, problem: Option<&str>| {
        let problem = problem.map(str::to_owned);
        let record = InboxRecord::File { file: "interlock.yaml".into(), problem };
        block_on(stage.store.post(&PipelineId::system(), &key, &record)).unwrap();
    };
    for round in 0..5 {
        say(format!("{round}-bad"), Some("line 3"));
        stage.live(u64::MAX, Stage::end(round * 2 + 1));
        say(format!("{round}-good"), None);
        stage.live(u64::MAX, Stage::end(round * 2 + 2));
    }
    let of_file =
        |heard: Vec<String>| heard.iter().filter(|l| l.ends_with("config_broken")).count();
    assert_eq!(of_file(stage.receivers.heard("chat")), 6, "three times, then it flaps");
    say("last".into(), Some("line 3"));
    stage.live(u64::MAX, Stage::end(15));
    assert_eq!(of_file(stage.receivers.heard("chat")), 6, "not yet");
    stage.live(u64::MAX, Stage::end(25));
    assert_eq!(of_file(stage.receivers.heard("chat")), 7, "it lasts");
}

#[test]
fn many_at_once_are_one_message_for_people_and_each_by_itself_for_programs() {
    for takes_digests in [true, false] {
        let mut stage = Stage::new(&[("chat", takes)]);
        stage.receivers.manner = ChannelPolicy { takes_digests, ..ChannelPolicy::default() };
        break_files(&stage, 400);
        stage.live(u64::MAX, Stage::end(4));
        let got = stage.receivers.got.lock().unwrap().clone();
        if !takes_digests {
            assert_eq!(got.len(), 400);
            continue;
        }
        let [(_, _, digest)] = got.as_slice() else { panic!("{} messages", got.len()) };
        assert_eq!((digest.alert_type.as_str(), &digest.details["count"]), ("digest", &400.into()));
        assert!(digest.message.starts_with("400 alerts came at once (400 config_broken): "));
        assert!(
            digest.message.ends_with("; and 390 more, which `interlock incidents --all` lists")
        );
        check_empty(&stage, "settled");
    }
}

/// Puts the beginning of an incident of each of so many pipelines into the outbox.
pub(crate) fn put_openings(stage: &Stage, count: usize) {
    put_openings_over(stage, count, SignedDuration::ZERO);
}

/// The same, to be told one after the other over a time; a dozen at once begin it, because a few are told one by one.
fn put_openings_over(stage: &Stage, count: usize, time: SignedDuration) {
    let day = SignedDuration::from_hours(24);
    let lease = block_on(stage.store.acquire(Role::Watchdog, Shard(0), "other", day));
    let writer = lease.unwrap().unwrap().writer;
    let now = stage.world.time();
    let groups = (0..count).map(|number| {
        let pipeline = PipelineId::parse(&format!("p{number}")).unwrap();
        let key = format!("watchdog:p{number}:daily:2026-03-20");
        let details = [("state".to_owned(), "open".into()), ("incident".to_owned(), key.into())];
        let alert = Alert {
            level: "error".into(),
            alert_type: "schedule_missed".into(),
            pipeline_id: pipeline.to_string(),
            message: "missed".into(),
            details: details.into(),
            timestamp: now,
        };
        let record = OutboxRecord {
            channel: String::new(),
            alert: alert.to_json().into(),
            tries: 0,
            not_before: now + time * number.saturating_sub(12) as i32 / count as i32,
            claimed_until: None,
            last_error: None,
            dead: false,
            after: None,
            held: None,
        };
        let key = Key::Outbox("1".into());
        let change = Change::Put(key, Expect::Absent, Record::Outbox(record.into()));
        Group { pipeline, writer, changes: vec![change] }
    });
    let accepted = block_on(stage.store.commit(groups.collect())).unwrap();
    assert!(accepted.iter().all(Result::is_ok));
}

#[test]
fn ten_thousand_at_once_are_one_message() {
    const COUNT: usize = 10_000;
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.manner = ChannelPolicy { takes_digests: true, ..ChannelPolicy::default() };
    put_openings(&stage, COUNT);
    stage.live(u64::MAX, Stage::end(1));
    let got = stage.receivers.got.lock().unwrap().clone();
    let counts: Vec<_> = got.iter().map(|(_, _, alert)| alert.details["count"].clone()).collect();
    assert_eq!(counts, [serde_json::json!(COUNT)]);
    check_empty(&stage, "settled");
}

#[test]
fn a_storm_that_lasts_longer_than_a_claim_is_one_digest() {
    const COUNT: usize = 600;
    let mut stage = Stage::new(&[("chat", takes)]);
    stage.receivers.manner = ChannelPolicy { takes_digests: true, ..ChannelPolicy::default() };
    put_openings_over(&stage, COUNT, SignedDuration::from_secs(25));
    stage.live(u64::MAX, Stage::end(1));
    let got = stage.receivers.got.lock().unwrap().clone();
    let counts: Vec<_> = got.iter().map(|(_, _, alert)| alert.details["count"].clone()).collect();
    assert_eq!(counts, [serde_json::json!(COUNT)]);
    check_empty(&stage, "settled");
}

#[test]
fn a_death_at_every_await_of_a_digest_loses_none_of_it() {
    for dies_at in 0.. {
        let mut stage = Stage::new(&[("chat", takes as Receiver)]);
        stage.receivers.manner = ChannelPolicy { takes_digests: true, ..ChannelPolicy::default() };
        break_files(&stage, 12);
        let end = Stage::end(4);
        stage.live(dies_at, end);
        let outlived = stage.world.time() >= end;
        stage.live(u64::MAX, end + mins(4));
        let mut told = std::collections::BTreeSet::new();
        for (_, _, alert) in stage.receivers.got.lock().unwrap().iter() {
            let first = alert.details.get("first").and_then(|first| first.as_array());
            let all = first.cloned().unwrap_or_else(|| vec![alert.to_json()]);
            told.extend(all.iter().map(|one| one["details"]["incident"].to_string()));
        }
        // A digest names ten; the others are in its count.
        assert!(told.len() >= 10, "death at wait {dies_at}: {told:?}");
        check_empty(&stage, &format!("death at wait {dies_at}"));
        if outlived {
            return;
        }
    }
}

#[test]
fn a_silence_is_added_and_removed_once_and_kept_under_system() {
    let stage = Stage::new(&[("chat", takes)]);
    let system = PipelineId::system();
    let say = |key: &str, id: &str, silence: Option<serde_json::Value>| {
        let record = InboxRecord::Silence { id: id.into(), silence, by: "ann".into() };
        block_on(stage.store.post(&system, key, &record)).unwrap();
    };
    let says = serde_json::json!({"reason": "moving"});
    say("1", "quiet", Some(says.clone()));
    say("2", "quiet", Some(says.clone()));
    say("3", "gone", None);
    stage.live(u64::MAX, Stage::end(1));
    let kept = block_on(stage.store.sensors(&system)).unwrap();
    assert_eq!(kept["silence/quiet"].record.value, says);
    let is_accepted = |key: &str| {
        let rows = block_on(stage.store.read(&system, &[Key::Applied(key.into())])).unwrap();
        matches!(&rows[0].as_ref().unwrap().record, Record::Applied(answer) if answer.accepted)
    };
    assert_eq!(["1", "2", "3"].map(is_accepted), [true, false, false]);
    say("4", "quiet", None);
    stage.live(u64::MAX, Stage::end(7));
    assert!(is_accepted("4") && block_on(stage.store.sensors(&system)).unwrap().is_empty());
}
