//! What is old goes, what is needed stays, and the floor says so.

use std::{collections::BTreeSet, sync::Arc};

use interlock_core::id::{PipelineId, ScheduleId};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

use super::{
    Subject, promises,
    sample::{
        applied, applied_key, backfill, closed, daily, event, incident, minute, open, orders,
        outbox, outbox_key, pipeline, pipeline_row, run, run_key, slot_key, span, watermark,
    },
};
use interlock_store::{
    Archived, Change, Changes, Expect, Forgetting, Key, LedgerQuery, Rows, RunQuery, StoredRow,
    kept,
    record::{
        AppliedRecord, InboxRecord, IncidentRecord, OutboxRecord, Record, SlotRecord, SpanRecord,
    },
    retention::{AnswerSweep, IncidentSweep, Step, Sweep, forget_events},
};

promises!("retention":
    a_slot_takes_its_runs_along,
    only_the_revision_that_was_read_goes,
    the_floor_never_goes_back,
    only_what_can_be_old_can_be_forgotten,
    what_is_forgotten_is_not_noted,
    a_slot_can_be_recorded_again,
    what_is_decided_and_old_goes,
    what_is_open_stays,
    what_lies_after_the_watermark_stays,
    what_was_worked_on_lately_stays,
    what_somebody_is_busy_with_stays,
    of_a_pipeline_with_an_open_incident_what_that_is_about_stays,
    a_sweep_takes_bounded_portions,
    what_an_archive_has_not_read_stays,
    old_events_go_in_order,
    events_that_no_archive_has_read_stay,
    an_answer_goes_at_the_revision_that_was_read,
    a_key_whose_answer_is_gone_is_a_new_one,
    old_answers_go_under_every_name,
    an_answer_that_somebody_may_ask_for_again_stays,
    answers_go_in_bounded_portions,
    an_incident_that_is_over_and_old_goes,
    an_incident_that_was_never_told_stays,
    a_notification_that_could_not_be_delivered_goes_before_its_incident,
    an_incident_that_is_gone_can_come_again,
    incidents_go_in_bounded_portions,
    an_incident_that_no_archive_has_read_stays,
);

/// Before this, things are old here.
fn before() -> Timestamp {
    minute(100)
}

/// A slot that was decided in its own minute.
fn old(minutes: i64) -> (Key, Record) {
    let Record::Slot(slot) = closed("completed") else { unreachable!("a slot is a slot") };
    let opened_at = minute(minutes);
    (slot_key(minutes), Record::Slot(SlotRecord { opened_at, ..Arc::unwrap_or_clone(slot) }.into()))
}

fn old_span(first: i64, last: i64) -> (Key, Record) {
    let Record::Span(span) = span(minute(last), "skipped") else { unreachable!("a span is one") };
    let recorded_at = minute(last);
    (
        Key::Span(daily(), minute(first)),
        Record::Span(SpanRecord { recorded_at, ..Arc::unwrap_or_clone(span) }.into()),
    )
}

/// A pipeline whose schedule is recorded up to a minute.
async fn declared(t: &Subject, name: &str, recorded: i64) {
    let rows = vec![
        (Key::Pipeline, pipeline_row()),
        (Key::Watermark(daily()), watermark(minute(recorded))),
    ];
    t.create(&pipeline(name), rows).await;
}

async fn ledger(t: &Subject, name: &str) -> Vec<Key> {
    let query = LedgerQuery { pipeline: Some(pipeline(name)), ..LedgerQuery::everything(5_000) };
    let page = t.store.ledger(&query).await.expect("ledger answers");
    let key = |row: interlock_store::LedgerRow| {
        let place = row.place();
        let (schedule, at) = (place.schedule, place.nominal);
        if place.is_span { Key::Span(schedule, at) } else { Key::Slot(schedule, at) }
    };
    page.items.into_iter().map(key).collect()
}

async fn run_count(t: &Subject) -> usize {
    let query = RunQuery { limit: 1_000, ..RunQuery::default() };
    t.store.runs(&query).await.expect("runs answers").items.len()
}

async fn forget(t: &Subject, rows: Vec<(Key, u64)>) -> usize {
    let rows = rows.into_iter().map(|(key, revision)| (orders(), key, revision)).collect();
    let what = Forgetting { floor: Some(before()), rows, events: 0 };
    t.store.forget(what).await.expect("forget answers")
}

async fn floor(t: &Subject) -> Option<Timestamp> {
    kept::floor(t.store.as_ref()).await.expect("the floor is read")
}

/// Sweeps all shards; how many rows went, and in how many steps something did.
async fn sweep(t: &Subject) -> Result<(usize, usize), &'static str> {
    let (mut all, mut steps) = (0, 0);
    for shard in (0..t.store.shard_count()).map(interlock_store::Shard) {
        let store = t.store.as_ref();
        let mut sweep = Sweep::begin(store, shard, before()).await.expect("a sweep begins");
        loop {
            let step = sweep.step(store).await.expect("a sweep goes on");
            let (gone, is_done) = match step {
                Step::More { gone } => (gone, false),
                Step::Done { gone } => (gone, true),
                Step::Archive => return Err("an archive has to read first"),
            };
            all += gone;
            steps += usize::from(gone > 0);
            if is_done {
                break;
            }
        }
    }
    Ok((all, steps))
}

async fn a_slot_takes_its_runs_along(t: Subject) {
    t.create(
        &orders(),
        vec![
            old(0),
            old(1),
            old_span(2, 5),
            (Key::Run(run_key(0, 1)), run("FAILED", "scheduler", minute(0))),
            (Key::Run(run_key(0, 2)), run("COMPLETED", "retry", minute(0))),
            (Key::Run(run_key(1, 1)), run("COMPLETED", "scheduler", minute(1))),
        ],
    )
    .await;
    let gone = forget(&t, vec![(slot_key(0), 1), (Key::Span(daily(), minute(2)), 1)]).await;
    assert_eq!(gone, 2);
    assert_eq!(ledger(&t, "orders").await, [slot_key(1)]);
    assert_eq!(run_count(&t).await, 1, "the runs of the other slot stay");
    let keys = [Key::Run(run_key(0, 1)), Key::Run(run_key(1, 1))];
    let rows = t.store.read(&orders(), &keys).await.expect("read answers");
    assert!(matches!(rows.as_slice(), [None, Some(_)]), "{rows:?}");
}

async fn only_the_revision_that_was_read_goes(t: Subject) {
    t.create(&orders(), vec![old(0), old(1)]).await;
    t.write(&orders(), vec![Change::Put(slot_key(0), Expect::Revision(1), open())]).await;
    assert_eq!(forget(&t, vec![(slot_key(0), 1), (slot_key(1), 1), (slot_key(2), 1)]).await, 1);
    assert_eq!(ledger(&t, "orders").await, [slot_key(0)]);
}

async fn the_floor_never_goes_back(t: Subject) {
    assert_eq!(floor(&t).await, None);
    let raise = async |minutes| {
        let floor = Some(minute(minutes));
        let what = Forgetting { floor, ..Forgetting::default() };
        t.store.forget(what).await.expect("forget answers")
    };
    for (minutes, then) in [(10, 10), (20, 20), (15, 20), (1_000_000, 1_000_000)] {
        assert_eq!(raise(minutes).await, 0);
        assert_eq!(floor(&t).await, Some(minute(then)), "after {minutes}");
    }
}

async fn only_what_can_be_old_can_be_forgotten(t: Subject) {
    declared(&t, "orders", 9).await;
    let refused = [
        Forgetting {
            floor: Some(before()),
            rows: vec![(orders(), Key::Watermark(daily()), 1)],
            events: 0,
        },
        Forgetting { floor: None, rows: vec![(orders(), slot_key(0), 1)], events: 0 },
    ];
    for what in refused {
        let answer = t.store.forget(what.clone()).await;
        assert!(answer.is_err_and(|error| !error.is_retryable), "{what:?}");
    }
}

async fn what_is_forgotten_is_not_noted(t: Subject) {
    t.create(&orders(), vec![old(0)]).await;
    t.store.archived(Some(Archived::default())).await.expect("archived answers");
    forget(&t, vec![(slot_key(0), 1)]).await;
    let changes = t.store.changes(0, 10).await.expect("changes answers");
    assert_eq!(changes.items, []);
}

/// Nothing of it is left that would be in the way.
async fn a_slot_can_be_recorded_again(t: Subject) {
    let run = || (Key::Run(run_key(0, 1)), run("COMPLETED", "scheduler", minute(0)));
    t.create(&orders(), vec![old(0), run()]).await;
    forget(&t, vec![(slot_key(0), 1)]).await;
    t.create(&orders(), vec![old(0), run()]).await;
    assert_eq!((ledger(&t, "orders").await, run_count(&t).await), (vec![slot_key(0)], 1));
}

async fn what_is_decided_and_old_goes(t: Subject) {
    for name in ["orders", "stock"] {
        declared(&t, name, 200).await;
        let rows = vec![old(0), old(99), old(100), old_span(1, 98), old_span(101, 102)];
        t.create(&pipeline(name), rows).await;
    }
    assert_eq!(sweep(&t).await.map(|(gone, _)| gone), Ok(6));
    for name in ["orders", "stock"] {
        let kept = [slot_key(100), Key::Span(daily(), minute(101))];
        assert_eq!(ledger(&t, name).await, kept, "{name}");
    }
    assert_eq!(floor(&t).await, Some(before()));
    assert_eq!(sweep(&t).await, Ok((0, 0)));
}

async fn what_is_open_stays(t: Subject) {
    declared(&t, "orders", 200).await;
    let its_run = (Key::Run(run_key(0, 1)), run("RUNNING", "scheduler", minute(0)));
    t.create(&orders(), vec![(slot_key(0), open()), its_run, old(1)]).await;
    assert_eq!(sweep(&t).await, Ok((1, 1)));
    assert_eq!((ledger(&t, "orders").await, run_count(&t).await), (vec![slot_key(0)], 1));
}

/// Catch-up would take it for owed. A span that reaches over the watermark is one row, and stays too.
async fn what_lies_after_the_watermark_stays(t: Subject) {
    declared(&t, "orders", 5).await;
    let manual = ScheduleId::any("manual").expect("it is reserved");
    let by_hand = (Key::Slot(manual, minute(7)), old(7).1);
    t.create(&orders(), vec![old(5), old(6), old_span(3, 8), by_hand]).await;
    assert_eq!(sweep(&t).await, Ok((2, 1)), "the one at the watermark, and the one by hand");
    assert_eq!(ledger(&t, "orders").await, [Key::Span(daily(), minute(3)), slot_key(6)]);
}

async fn what_was_worked_on_lately_stays(t: Subject) {
    declared(&t, "orders", 200).await;
    let Record::Slot(slot) = old(0).1 else { unreachable!("a slot is a slot") };
    let lately =
        Record::Slot(SlotRecord { opened_at: minute(150), ..Arc::unwrap_or_clone(slot) }.into());
    let Record::Span(span) = old_span(2, 3).1 else { unreachable!("a span is one") };
    let recorded =
        Record::Span(SpanRecord { recorded_at: minute(150), ..Arc::unwrap_or_clone(span) }.into());
    t.create(
        &orders(),
        vec![(slot_key(0), lately), (Key::Span(daily(), minute(2)), recorded), old(9)],
    )
    .await;
    assert_eq!(sweep(&t).await, Ok((1, 1)));
    assert_eq!(ledger(&t, "orders").await, [slot_key(0), Key::Span(daily(), minute(2))]);
}

async fn what_somebody_is_busy_with_stays(t: Subject) {
    let Record::Incident(open) = incident(minute(1)) else { unreachable!("an incident is one") };
    let mut resolved = open.as_ref().clone();
    resolved.state = "resolved".into();
    let key = || Key::Incident("a".into());
    let backfills = |state| Record::Backfill(backfill(state).into());
    let cases = [
        ("open", key(), Record::Incident(open), 1),
        ("resolved", key(), Record::Incident(resolved.into()), 0),
        ("running", Key::Backfill(1), backfills("running"), 1),
        ("done", Key::Backfill(1), backfills("done"), 0),
    ];
    for (name, key, record, _) in cases.clone() {
        declared(&t, name, 200).await;
        t.create(&pipeline(name), vec![old(0), (key, record)]).await;
    }
    assert_eq!(sweep(&t).await.map(|(gone, _)| gone), Ok(2));
    for (name, _, _, kept) in cases {
        assert_eq!(ledger(&t, name).await.len(), kept, "{name}");
    }
}

/// An incident that nobody ever resolves does not keep all that comes after it.
async fn of_a_pipeline_with_an_open_incident_what_that_is_about_stays(t: Subject) {
    const DAY: i64 = 24 * 60;
    declared(&t, "orders", 200).await;
    let Record::Incident(open) = incident(minute(0)) else { unreachable!("an incident is one") };
    let mut open = Arc::unwrap_or_clone(open);
    let details = [("slot", -6 * DAY), ("lastSlot", -5 * DAY)];
    let details =
        details.map(|(name, at)| (name.to_owned(), format!("daily/{}", minute(at)).into()));
    open.details = details.into();
    let days = [-9, -7, -6, -5, -4, -2, 0].map(|day| old(day * DAY));
    let spans = [old_span(-8 * DAY, -7 * DAY - 1), old_span(-8 * DAY + 1, -7 * DAY)];
    let rows = days
        .into_iter()
        .chain(spans)
        .chain([(Key::Incident("a".into()), Record::Incident(open.into()))]);
    t.create(&orders(), rows.collect()).await;
    assert_eq!(sweep(&t).await.map(|(gone, _)| gone), Ok(4));
    let mut kept = vec![Key::Span(daily(), minute(-8 * DAY + 1))];
    kept.extend([-7, -6, -5, -4].map(|day| slot_key(day * DAY)));
    assert_eq!(ledger(&t, "orders").await, kept);
}

async fn a_sweep_takes_bounded_portions(t: Subject) {
    declared(&t, "orders", 200).await;
    let second = |number: i64| {
        let (_, record) = old(0);
        let at = minute(0) + SignedDuration::from_secs(number);
        (Key::Slot(daily(), at), record)
    };
    t.create(&orders(), (0..1_100).map(second).collect()).await;
    let (gone, steps) = sweep(&t).await.expect("nobody archives");
    assert_eq!(gone, 1_100);
    assert!(steps >= 3, "{steps} steps");
    assert_eq!(ledger(&t, "orders").await, []);
}

async fn what_an_archive_has_not_read_stays(t: Subject) {
    declared(&t, "orders", 200).await;
    t.create(&orders(), vec![old(0)]).await;
    let archived = async |changes| {
        let up_to = Some(Archived { events: 0, changes });
        t.store.archived(up_to).await.expect("archived answers");
    };
    t.write(&orders(), vec![Change::Append(event("a").into())]).await;
    archived(0).await;
    t.create(&orders(), vec![old(1)]).await;
    // It has not read what was there before it began.
    assert!(sweep(&t).await.is_err());
    assert_eq!(ledger(&t, "orders").await, [slot_key(0), slot_key(1)]);
    let since = t.store.changes(0, 10).await.expect("changes answers").since;
    archived(since.expect("somebody follows")).await;
    assert_eq!(sweep(&t).await, Ok((1, 1)));
    assert_eq!(ledger(&t, "orders").await, [slot_key(1)], "its change was not read");
    let last = t.store.changes(0, 10).await.expect("changes answers").last;
    archived(last).await;
    assert_eq!(sweep(&t).await, Ok((1, 1)));
    assert_eq!(ledger(&t, "orders").await, []);
}

async fn tell(t: &Subject, minutes: impl IntoIterator<Item = i64>) -> Vec<u64> {
    for minutes in minutes {
        let mut told = event("a");
        told.at = minute(minutes);
        t.write(&orders(), vec![Change::Append(told.into())]).await;
    }
    numbers(t).await
}

async fn numbers(t: &Subject) -> Vec<u64> {
    let page = t.store.events(None, 0, 1_000).await.expect("events answers");
    let own = t.store.events(Some(&orders()), 0, 1_000).await.expect("events answers");
    assert_eq!(page, own, "they are all of one pipeline");
    page.items.into_iter().map(|event| event.number).collect()
}

/// One that is younger keeps those after it, whatever they say of their time.
async fn old_events_go_in_order(t: Subject) {
    let told = tell(&t, [1, 2, 150, 3]).await;
    let step = forget_events(t.store.as_ref(), before()).await.expect("forget answers");
    assert_eq!(step, Step::Done { gone: 2 });
    assert_eq!(numbers(&t).await, told.get(2..).unwrap_or_default());
    let step = forget_events(t.store.as_ref(), before()).await.expect("forget answers");
    assert_eq!(step, Step::Done { gone: 0 });
}

async fn events_that_no_archive_has_read_stay(t: Subject) {
    let archived = async |up_to| t.store.archived(up_to).await.expect("archived answers");
    archived(Some(Archived::default())).await;
    let told = tell(&t, [1, 2, 3]).await;
    let step = async || forget_events(t.store.as_ref(), before()).await.expect("forget answers");
    assert_eq!(step().await, Step::Archive);
    let events = *told.get(1).expect("there are three");
    archived(Some(Archived { events, changes: 0 })).await;
    assert_eq!(step().await, Step::Done { gone: 2 });
    assert_eq!(numbers(&t).await, told.get(2..).unwrap_or_default());
    // Nobody archives any more.
    archived(None).await;
    assert_eq!(step().await, Step::Done { gone: 1 });
}

/// An answer that was given at a minute.
fn answer(name: &str, minutes: i64) -> (Key, Record) {
    let Record::Applied(given) = applied(json!({ "did": name })) else {
        unreachable!("an answer is one")
    };
    let at = minute(minutes);
    let record = Record::Applied(AppliedRecord { at, ..Arc::unwrap_or_clone(given) }.into());
    (applied_key(name), record)
}

/// The keys whose answers are there, by name of pipeline and key.
async fn answers(t: &Subject) -> BTreeSet<(PipelineId, String)> {
    let (mut found, mut from) = (BTreeSet::new(), String::new());
    loop {
        let portion = t.store.rows(Rows::Answers, &from, 1_000).await.expect("rows answers");
        let named = |row: StoredRow| Some((row.pipeline, row.key.name()?.to_owned()));
        found.extend(portion.items.into_iter().filter_map(named));
        let Some(next) = portion.next else { return found };
        from = next;
    }
}

/// Sweeps answers; how many went, and how many in each step that took something.
async fn sweep_answers(t: &Subject, spared: &[&str]) -> (usize, Vec<usize>) {
    let spared = spared.iter().map(|key| (*key).to_owned()).collect();
    let (mut sweep, mut steps) = (AnswerSweep::new(before(), spared), Vec::new());
    loop {
        let step = sweep.step(t.store.as_ref()).await.expect("a sweep goes on");
        let (gone, is_done) = match step {
            Step::More { gone } => (gone, false),
            Step::Done { gone } => (gone, true),
            Step::Archive => unreachable!("no archive has answers"),
        };
        steps.extend(Some(gone).filter(|gone| *gone > 0));
        assert!(steps.len() <= 1_000, "a sweep goes on for ever");
        if is_done {
            return (steps.iter().sum(), steps);
        }
    }
}

async fn an_answer_goes_at_the_revision_that_was_read(t: Subject) {
    let stock = pipeline("stock");
    t.create(&orders(), vec![answer("read", 0), answer("changed", 0), answer("other", 0)]).await;
    t.create(&stock, vec![answer("read", 0)]).await;
    let (key, record) = answer("changed", 1);
    t.write(&orders(), vec![Change::Put(key, Expect::Revision(1), record)]).await;
    let rows = ["read", "changed", "never"].map(|name| (orders(), applied_key(name), 1)).into();
    let what = Forgetting { rows, ..Forgetting::default() };
    assert_eq!(t.store.forget(what).await.expect("forget answers"), 1);
    let left = [(orders(), "changed"), (orders(), "other"), (stock, "read")];
    assert_eq!(answers(&t).await, left.map(|(name, key)| (name, key.to_owned())).into());
    assert_eq!(t.revision(&orders(), &applied_key("changed")).await, 2);
    assert_eq!(floor(&t).await, None, "a floor is about slots");
}

async fn a_key_whose_answer_is_gone_is_a_new_one(t: Subject) {
    let record = InboxRecord::Resume { catchup: None };
    let waiting = async || {
        t.store.post(&orders(), "a", &record).await.expect("post answers");
        t.store.inbox(t.shard(&orders()), 10).await.expect("inbox answers").items.len()
    };
    assert_eq!(waiting().await, 1);
    t.create(&orders(), vec![answer("a", 0)]).await;
    assert_eq!(waiting().await, 0, "it was answered");
    assert_eq!(sweep_answers(&t, &[]).await.0, 1);
    assert_eq!(waiting().await, 1);
    t.create(&orders(), vec![answer("a", 150)]).await;
    assert_eq!(waiting().await, 0, "it is answered again");
    assert_eq!(t.revision(&orders(), &applied_key("a")).await, 1);
}

/// Nobody need have declared it: the answer may say so.
async fn old_answers_go_under_every_name(t: Subject) {
    declared(&t, "orders", 200).await;
    let names = [orders(), PipelineId::system(), pipeline("nobody-declares-it")];
    for name in &names {
        let rows = vec![answer("old", 0), answer("last", 99), answer("edge", 100), old(0)];
        t.create(name, rows).await;
    }
    t.store.archived(Some(Archived::default())).await.expect("archived answers");
    assert_eq!(sweep_answers(&t, &[]).await.0, 6);
    let left = names.map(|name| (name, "edge".to_owned()));
    assert_eq!(answers(&t).await, left.into());
    assert_eq!(ledger(&t, "orders").await, [slot_key(0)], "slots are another sweep's");
    assert_eq!(floor(&t).await, None);
    assert_eq!(sweep_answers(&t, &[]).await, (0, vec![]));
}

async fn an_answer_that_somebody_may_ask_for_again_stays(t: Subject) {
    t.create(&orders(), vec![answer("spooled", 0), answer("other", 0)]).await;
    assert_eq!(sweep_answers(&t, &["spooled"]).await.0, 1);
    assert_eq!(answers(&t).await, [(orders(), "spooled".to_owned())].into());
}

async fn answers_go_in_bounded_portions(t: Subject) {
    for name in ["orders", "stock", "zebras"] {
        let rows = (0..1_100).map(|at| answer(&format!("{name} {at}"), 0)).collect();
        t.create(&pipeline(name), rows).await;
    }
    let (gone, steps) = sweep_answers(&t, &[]).await;
    assert_eq!(gone, 3_300);
    // A walk on a server gives out about as many as it is asked for: never all of two hashes.
    assert!(steps.iter().all(|gone| *gone < 2_200), "{steps:?}");
    assert!(steps.len() >= 2, "{steps:?}");
    assert_eq!(answers(&t).await, BTreeSet::new());
}

/// An incident that was over at a minute.
fn resolved(key: &str, minutes: i64) -> (Key, Record) {
    let Record::Incident(open) = incident(minute(minutes)) else {
        unreachable!("an incident is one")
    };
    let over = IncidentRecord { state: "resolved".into(), ..Arc::unwrap_or_clone(open) };
    (Key::Incident(key.to_owned()), Record::Incident(over.into()))
}

/// A notification that waits since a minute.
fn waiting(name: &str, minutes: i64) -> (Key, Record) {
    (outbox_key(name), Record::Outbox(outbox(minute(minutes)).into()))
}

/// A notification that was given up at a minute.
fn given_up(name: &str, minutes: i64) -> (Key, Record) {
    let letter = OutboxRecord { dead: true, ..outbox(minute(minutes)) };
    (outbox_key(name), Record::Outbox(letter.into()))
}

/// The names of some rows.
async fn names(t: &Subject, which: Rows) -> Vec<String> {
    let (mut found, mut from) = (Vec::new(), String::new());
    loop {
        let portion = t.store.rows(which, &from, 1_000).await.expect("rows answers");
        found.extend(portion.items.into_iter().filter_map(|row| row.key.name().map(str::to_owned)));
        let Some(next) = portion.next else { break };
        from = next;
    }
    found.sort();
    found
}

/// Sweeps incidents and what could not be told of them; how many went. In how many steps is the engine's business: a walk on a server
/// that has many other keys gives out less at once.
async fn sweep_incidents(t: &Subject) -> Result<usize, &'static str> {
    Ok(sweep_incidents_by_steps(t).await?.iter().sum())
}

/// The same; how many went in each step that took something.
async fn sweep_incidents_by_steps(t: &Subject) -> Result<Vec<usize>, &'static str> {
    let store = t.store.as_ref();
    let mut sweep = IncidentSweep::begin(store, before()).await.expect("a sweep begins");
    let mut steps = Vec::new();
    loop {
        let (gone, is_done) = match sweep.step(store).await.expect("a sweep goes on") {
            Step::More { gone } => (gone, false),
            Step::Done { gone } => (gone, true),
            Step::Archive => return Err("an archive has to read first"),
        };
        steps.extend(Some(gone).filter(|gone| *gone > 0));
        assert!(steps.len() <= 1_000, "a sweep goes on for ever");
        if is_done {
            return Ok(steps);
        }
    }
}

async fn an_incident_that_is_over_and_old_goes(t: Subject) {
    let still_open = (Key::Incident("open".into()), incident(minute(0)));
    t.create(&orders(), vec![resolved("old", 0), resolved("young", 100), still_open]).await;
    t.create(&pipeline("stock"), vec![resolved("old", 99)]).await;
    assert_eq!(sweep_incidents(&t).await, Ok(2));
    assert_eq!(names(&t, Rows::Incidents).await, ["open", "young"]);
    let listed = t.store.incidents(None, 10).await.expect("incidents answers");
    assert_eq!(listed.items.len(), 2, "{listed:?}");
    assert_eq!(floor(&t).await, None, "a floor is about slots");
    assert_eq!(sweep_incidents(&t).await, Ok(0));
}

/// What waits for a channel, or for the end of a silence, is about an incident that must still be there.
async fn an_incident_that_was_never_told_stays(t: Subject) {
    let rows = vec![resolved("a", 0), resolved("b", 0), waiting("a~1~opened@chat", 0)];
    t.create(&orders(), rows).await;
    // Of the same name, but another pipeline's.
    t.create(&pipeline("stock"), vec![resolved("a", 0)]).await;
    assert_eq!(sweep_incidents(&t).await, Ok(2));
    let left = t.store.incidents(None, 10).await.expect("incidents answers").items;
    let left: Vec<_> = left.into_iter().map(|(pipeline, key, _)| (pipeline, key)).collect();
    assert_eq!(left, [(orders(), "a".to_owned())]);
    assert_eq!(names(&t, Rows::Notifications).await, ["a~1~opened@chat"]);
}

async fn a_notification_that_could_not_be_delivered_goes_before_its_incident(t: Subject) {
    let still_open = (Key::Incident("open".into()), incident(minute(0)));
    let rows = vec![
        resolved("over", 0),
        still_open,
        given_up("over~1~opened@chat", 0),
        given_up("open~1~opened@chat", 0),
        given_up("open~1~opened@mail", 150),
        given_up("of nobody", 0),
        waiting("bark", 0),
    ];
    t.create(&orders(), rows).await;
    assert_eq!(sweep_incidents(&t).await, Ok(2));
    let left = ["bark", "open~1~opened@chat", "open~1~opened@mail"];
    assert_eq!(names(&t, Rows::Notifications).await, left);
    assert_eq!(names(&t, Rows::Incidents).await, ["open", "over"]);
    let dead = t.store.dead_letters(10).await.expect("dead letters answers").items;
    assert_eq!(dead.len(), 2, "{dead:?}");
    assert_eq!(sweep_incidents(&t).await, Ok(1));
    assert_eq!(names(&t, Rows::Incidents).await, ["open"]);
}

/// Nothing of it is left that would be in the way.
async fn an_incident_that_is_gone_can_come_again(t: Subject) {
    t.create(&orders(), vec![resolved("a", 0), given_up("a~1~opened@chat", 0)]).await;
    assert_eq!(sweep_incidents(&t).await, Ok(1));
    assert_eq!(sweep_incidents(&t).await, Ok(1));
    let again = (Key::Incident("a".into()), incident(minute(150)));
    t.create(&orders(), vec![again, waiting("a~1~opened@chat", 150)]).await;
    let shard = t.shard(&orders());
    let open = t.store.open_incidents(shard, None, 10).await.expect("open incidents answers");
    assert_eq!(open.items.len(), 1, "{open:?}");
    assert_eq!(t.store.dead_letters(10).await.expect("dead letters answers").items, []);
    assert_eq!(names(&t, Rows::Notifications).await, ["a~1~opened@chat"]);
}

async fn incidents_go_in_bounded_portions(t: Subject) {
    let rows = (0..1_100).map(|number| resolved(&format!("old-{number}"), 0)).collect();
    t.create(&orders(), rows).await;
    let steps = sweep_incidents_by_steps(&t).await.expect("no archive is behind");
    assert_eq!(steps.iter().sum::<usize>(), 1_100);
    assert!(steps.len() >= 2, "{steps:?}");
    assert_eq!(names(&t, Rows::Incidents).await, [""; 0]);
}

async fn an_incident_that_no_archive_has_read_stays(t: Subject) {
    let archived = async |changes| {
        let up_to = Some(Archived { events: 0, changes });
        t.store.archived(up_to).await.expect("archived answers");
    };
    archived(0).await;
    t.create(&orders(), vec![resolved("a", 0)]).await;
    let Changes { since, .. } = t.store.changes(0, 10).await.expect("changes answers");
    archived(since.expect("somebody follows")).await;
    assert_eq!(sweep_incidents(&t).await, Ok(0));
    archived(t.store.changes(0, 10).await.expect("changes answers").last).await;
    assert_eq!(sweep_incidents(&t).await, Ok(1));
}
