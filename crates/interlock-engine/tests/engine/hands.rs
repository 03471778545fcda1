//! What people do with incidents: engine and notifier together on virtual time, killed at every await.

use interlock_core::id::PipelineId;
use interlock_engine::seam::{Task, World as _};
use interlock_ports::channel::Delivery;
use interlock_store::{
    Key, Record, Store, block_on,
    record::{AppliedRecord, AskerRecord, InboxRecord},
};
use jiff::SignedDuration;

use crate::{
    incidents::{Stage, takes},
    world::Virtual,
};

const KEY: &str = "failed:orders:often:2026-03-20";

/// A request of ann's, a minute of the first hour after the last failure was told.
fn ask(stage: &Stage, minute: i64, hand: &str) {
    let (world, store) = (stage.world.clone(), stage.store.clone());
    let (orders, key) = (PipelineId::parse("orders").unwrap(), format!("{hand}-{minute}"));
    let record = InboxRecord::Incident {
        key: KEY.into(),
        hand: hand.into(),
        by: "ann".into(),
        note: Some("mine".into()),
    };
    let at = Stage::end(minute);
    let task = async move {
        world.sleep_until(at).await;
        store.post(&orders, &key, &record).await.unwrap();
    };
    stage.world.spawn("ann", Box::pin(task));
}

/// The failures of 00:10 and 00:20 are acknowledged at 00:12, and over at 00:30 by a good slot; the one of 00:40 is
/// resolved by hand.
fn hands(stage: &Stage) {
    ask(stage, 12, "acknowledge");
    ask(stage, 42, "resolve");
}

const TOLD: [&str; 5] = [
    "open job_failed",
    "acknowledged job_failed",
    "resolved job_failed",
    "open job_failed",
    "resolved job_failed",
];

#[test]
fn hands_are_told_to_whoever_heard_of_the_beginning() {
    let stage = Stage::new(&[("chat", takes), ("mail", takes)]);
    hands(&stage);
    stage.live(u64::MAX, Stage::end(49));
    assert_eq!(stage.receivers.heard("chat"), TOLD);
    assert_eq!(stage.receivers.heard("mail"), TOLD);
    let incidents = stage.incidents();
    let [(_, _, row)] = incidents.as_slice() else { panic!("{incidents:?}") };
    let resolved = row.record.resolved.as_deref().unwrap();
    assert_eq!((resolved.by.as_str(), resolved.note.as_deref()), ("ann", Some("mine")));
    assert_eq!(row.record.acknowledged, None, "that was another opening");
    assert_eq!(row.record.openings.len(), 1);
    stage.check_told("no death");
}

#[test]
fn a_death_at_every_await_loses_no_hand_and_takes_none_twice() {
    for dies_at in 0.. {
        let stage = Stage::new(&[("chat", takes)]);
        hands(&stage);
        let end = Stage::end(49);
        stage.live(dies_at, end);
        let outlived = stage.world.time() >= end;
        if !outlived {
            // What ann's tasks did not get to before the death they do after it: the key keeps it one request.
            hands(&stage);
        }
        stage.live(u64::MAX, end + SignedDuration::from_mins(5));
        let told = stage.receivers.heard("chat");
        assert_eq!(told, TOLD, "death at wait {dies_at}");
        if outlived {
            assert!(dies_at > 200, "an hour has more waits than {dies_at}");
            return;
        }
    }
}

#[test]
fn a_hand_that_comes_too_late_is_refused_and_nobody_hears_of_it() {
    let stage = Stage::new(&[("chat", takes)]);
    ask(&stage, 33, "acknowledge");
    ask(&stage, 5, "resolve");
    stage.live(u64::MAX, Stage::end(39));
    assert_eq!(stage.receivers.heard("chat"), ["open job_failed", "resolved job_failed"]);
    let orders = PipelineId::parse("orders").unwrap();
    for (key, reason) in [
        ("acknowledge-33", "the incident is already resolved"),
        ("resolve-5", "there is no such incident"),
    ] {
        let row = block_on(stage.store.read(&orders, &[Key::Applied(key.into())])).unwrap();
        let Some(Record::Applied(answer)) = row[0].clone().map(|row| row.record) else {
            panic!("{key} has no answer")
        };
        assert!(!answer.accepted && answer.result.to_string().contains(reason), "{answer:?}");
    }
}

/// Refuses the first, and takes what comes after it.
fn refuses_once(_: &Virtual, number: usize) -> Task<Delivery> {
    let reason = "410 Gone".to_owned();
    let delivery = if number == 0 { Delivery::Refused { reason } } else { Delivery::Delivered };
    Box::pin(std::future::ready(delivery))
}

/// A request of a token, at a minute.
fn post(stage: &Stage, minute: i64, record: InboxRecord) {
    let asker = AskerRecord { by: "token ops".into(), from: "10.0.0.7".into(), fingerprint: None };
    let (world, store, at) = (stage.world.clone(), stage.store.clone(), Stage::end(minute));
    let (orders, record) = (PipelineId::parse("orders").unwrap(), record.asked_by(asker));
    let key = format!("post-{minute}");
    let task = async move {
        world.sleep_until(at).await;
        store.post(&orders, &key, &record).await.unwrap();
    };
    stage.world.spawn("ops", Box::pin(task));
}

fn answer(stage: &Stage, minute: i64) -> AppliedRecord {
    let orders = PipelineId::parse("orders").unwrap();
    let key = Key::Applied(format!("post-{minute}"));
    let row = block_on(stage.store.read(&orders, &[key])).unwrap().remove(0);
    let Some(Record::Applied(answer)) = row.map(|row| row.record) else { panic!("no answer") };
    (*answer).clone()
}

#[test]
fn a_dead_letter_is_sent_again_when_it_is_asked_for_and_the_event_says_by_whom() {
    let stage = Stage::new(&[("chat", takes), ("mail", refuses_once)]);
    let notification = format!("{KEY}~1~opened@mail");
    post(&stage, 12, InboxRecord::SendAgain { notification: notification.clone() });
    post(&stage, 22, InboxRecord::SendAgain { notification });
    let note = Some("the disk was full".to_owned());
    let (key, hand, by) = (KEY.to_owned(), "note".to_owned(), "token ops".to_owned());
    post(&stage, 23, InboxRecord::Incident { key, hand, by, note });
    post(&stage, 24, InboxRecord::Catchup {});
    stage.live(u64::MAX, Stage::end(29));
    assert_eq!(stage.receivers.heard("mail"), ["open job_failed"]);
    assert_eq!(block_on(stage.store.dead_letters(10)).unwrap().items, []);
    assert!(answer(&stage, 12).accepted, "{:?}", answer(&stage, 12));
    let again = answer(&stage, 22);
    assert!(
        !again.accepted && again.result.to_string().contains("there is no undelivered alert"),
        "{again:?}"
    );
    assert_eq!(answer(&stage, 23).result["state"], "open", "a note changes nothing");

    let events = block_on(stage.store.events(None, 0, usize::MAX)).unwrap().items;
    let of = |kind: &str| {
        let mut found = events.iter().filter(|event| event.record.kind == *kind);
        let event = found.next().unwrap_or_else(|| panic!("there is no {kind}"));
        assert_eq!(event.record.details["by"], "token ops", "{event:?}");
        assert_eq!(event.record.details["from"], "10.0.0.7", "{event:?}");
        event.record.clone()
    };
    assert_eq!(of("ALERT_SENT_AGAIN").details["channel"], "mail");
    assert_eq!(of("INCIDENT_NOTED").details["note"], "the disk was full");
    // One that was refused, and one that left no event of its own.
    assert_eq!(of("REQUEST_REJECTED").details["request"], "sendAgain");
    assert_eq!(of("REQUEST_ACCEPTED").details["request"], "catchup");
}
