//! The store as a whole: what an archive follows, and moving house.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::id::PipelineId;
use serde_json::json;

use super::{
    Subject,
    drive::all,
    promises,
    sample::{
        applied, applied_key, backfill, closed, due, due_key, event, incident, minute, open,
        orders, outbox, outbox_key, pipeline, pipeline_row, run, run_key, sensor, sensor_key,
        slot_key, span, watermark,
    },
};
use interlock_store::{
    Accepted, Archived, Change, ChangedRow, Changes, EventRow, Expect, Freight, InboxEntry, Key,
    Mark, Recalled, Refusal, Row, Rows, StoreId, StoredRow,
    record::{InboxRecord, Record, VersionRecord},
};

promises!("whole":
    nothing_is_noted_before_an_archive_says_so,
    changes_come_in_the_order_of_commits,
    a_row_is_told_as_it_is_now,
    only_what_is_archived_is_noted,
    what_is_refused_is_not_noted,
    changes_and_events_share_no_number,
    pages_of_changes_lose_and_repeat_nothing,
    what_an_archive_has_is_forgotten,
    nothing_is_noted_once_nobody_archives,
    who_begins_to_follow_misses_nothing,
    racing_groups_are_all_noted,
    all_rows_come_in_portions,
    the_rows_of_one_kind_come_alone,
    freight_is_taken_over_as_it_is,
    the_same_freight_again_changes_nothing,
    a_store_goes_on_where_the_other_ended,
    a_store_is_the_same_one_and_its_numbers_only_grow,
    a_move_takes_along_which_store_it_is,
    what_a_store_has_forgotten_is_noticed,
);

const START_HERE: Archived = Archived { events: 0, changes: 0 };

async fn follow(t: &Subject) -> u64 {
    t.store.archived(Some(START_HERE)).await.expect("archived answers");
    changes(t, 0).await.since.expect("somebody follows")
}

async fn changes(t: &Subject, after: u64) -> Changes {
    t.store.changes(after, 1_000).await.expect("changes answers")
}

fn keys(rows: &[ChangedRow]) -> Vec<&Key> {
    rows.iter().map(|row| &row.key).collect()
}

fn create(key: Key, record: Record) -> Change {
    Change::Put(key, Expect::Absent, record)
}

async fn nothing_is_noted_before_an_archive_says_so(t: Subject) {
    t.write(&orders(), vec![create(slot_key(0), open()), Change::Append(event("a").into())]).await;
    let found = changes(&t, 0).await;
    assert_eq!((found.items, found.more, found.since), (vec![], false, None));
    assert!(found.last > 0, "an event was numbered");
    let since = follow(&t).await;
    assert!(since >= found.last, "what was before is not known");
    t.write(&orders(), vec![create(slot_key(1), open())]).await;
    let found = changes(&t, since).await;
    assert_eq!(keys(&found.items), [&slot_key(1)]);
}

async fn changes_come_in_the_order_of_commits(t: Subject) {
    let since = follow(&t).await;
    let stock = pipeline("stock");
    t.write(&orders(), vec![create(slot_key(0), open())]).await;
    t.write(&stock, vec![create(slot_key(1), open())]).await;
    let at_first = Change::Put(slot_key(0), Expect::Revision(1), closed("completed"));
    t.write(&orders(), vec![at_first]).await;
    let found = changes(&t, since).await.items;
    assert_eq!(keys(&found), [&slot_key(0), &slot_key(1), &slot_key(0)]);
    let names: Vec<&PipelineId> = found.iter().map(|row| &row.pipeline).collect();
    assert_eq!(names, [&orders(), &stock, &orders()]);
    assert!(found.is_sorted_by(|one, next| one.number < next.number), "{found:?}");
}

async fn a_row_is_told_as_it_is_now(t: Subject) {
    let since = follow(&t).await;
    t.write(&orders(), vec![create(slot_key(0), open()), create(slot_key(1), open())]).await;
    let last = Change::Put(slot_key(0), Expect::Revision(1), closed("missed"));
    t.write(&orders(), vec![last, Change::Delete(slot_key(1), Expect::Revision(1))]).await;
    let found = changes(&t, since).await.items;
    assert_eq!(found.len(), 4, "{found:?}");
    for ChangedRow { key, row, .. } in found {
        let now = Row { record: closed("missed"), revision: 2 };
        assert_eq!(row, (key == slot_key(0)).then_some(now));
    }
}

/// One row of every kind.
fn every_kind() -> Vec<(Key, Record)> {
    let version =
        VersionRecord { since: minute(0), source: "name: orders".into(), context: BTreeMap::new() };
    let schedule = super::sample::daily();
    vec![
        (Key::Pipeline, pipeline_row()),
        (Key::Version(0xfedc_ba98_7654_3210), Record::Version(version.into())),
        (Key::Watermark(schedule.clone()), watermark(minute(9))),
        (slot_key(0), open()),
        (slot_key(-1_000_000_000), closed("skipped")),
        (Key::Span(schedule, minute(0)), span(minute(5), "skipped")),
        (Key::Run(run_key(0, 1)), run("RUNNING", "scheduler", minute(0))),
        (sensor_key("LANDED#2026 x/☃"), sensor(json!({"rows": 7.25}))),
        (Key::Incident("watchdog:orders:a b".into()), incident(minute(1))),
        (due_key(3, "daily/2026 x"), due()),
        (outbox_key("one/two three"), Record::Outbox(outbox(minute(2)).into())),
        (applied_key("k 1"), applied(json!({"ok": true}))),
        (Key::Backfill(3), Record::Backfill(Box::new(backfill("running")).into())),
    ]
}

async fn only_what_is_archived_is_noted(t: Subject) {
    let since = follow(&t).await;
    t.create(&orders(), every_kind()).await;
    let found = changes(&t, since).await.items;
    let followed: Vec<Key> =
        every_kind().into_iter().map(|(key, _)| key).filter(Key::is_followed).collect();
    assert_eq!(keys(&found), followed.iter().collect::<Vec<_>>());
    for (key, record) in every_kind() {
        let told = found.iter().find(|row| row.key == key).and_then(|row| row.row.clone());
        assert_eq!(told, key.is_followed().then_some(Row { record, revision: 1 }), "{key}");
    }
}

async fn what_is_refused_is_not_noted(t: Subject) {
    let since = follow(&t).await;
    t.write(&orders(), vec![create(slot_key(0), open())]).await;
    let refused = vec![create(slot_key(1), open()), create(slot_key(0), open())];
    let refusal = t.try_write(&orders(), refused).await;
    assert!(matches!(refusal, Err(Refusal::Conflict { .. })), "{refusal:?}");
    assert_eq!(keys(&changes(&t, since).await.items), [&slot_key(0)]);
}

async fn changes_and_events_share_no_number(t: Subject) {
    let since = follow(&t).await;
    for at in 0..5 {
        let changes = vec![
            create(slot_key(at), open()),
            Change::Append(event("a").into()),
            create(Key::Run(run_key(at, 1)), run("PENDING", "scheduler", minute(at))),
            Change::Append(event("b").into()),
        ];
        t.write(&orders(), changes).await;
    }
    let found = changes(&t, since).await;
    let events = t.store.events(None, since, 1_000).await.expect("events answers").items;
    assert_eq!((found.items.len(), events.len()), (10, 10));
    let numbers: BTreeSet<u64> = found
        .items
        .iter()
        .map(|row| row.number)
        .chain(events.iter().map(|event| event.number))
        .collect();
    assert_eq!(numbers.len(), 20, "{numbers:?}");
    assert_eq!(numbers.last(), Some(&found.last), "the last number is told");
}

async fn pages_of_changes_lose_and_repeat_nothing(t: Subject) {
    let since = follow(&t).await;
    let rows: Vec<_> = (0..7).map(|at| (slot_key(at), open())).collect();
    t.create(&orders(), rows.clone()).await;
    for limit in [1, 2, 3, 7] {
        let (mut found, mut after) = (Vec::new(), since);
        loop {
            let page = t.store.changes(after, limit).await.expect("changes answers");
            assert!(page.items.len() <= limit && (!page.more || page.items.len() == limit));
            after = page.items.last().map_or(after, |row| row.number);
            found.extend(page.items.into_iter().map(|row| row.key));
            assert!(found.len() <= rows.len(), "pages go on for ever");
            if !page.more {
                break;
            }
        }
        assert_eq!(found, rows.iter().map(|(key, _)| key.clone()).collect::<Vec<_>>(), "{limit}");
    }
}

async fn what_an_archive_has_is_forgotten(t: Subject) {
    let since = follow(&t).await;
    t.create(&orders(), (0..4).map(|at| (slot_key(at), open())).collect()).await;
    let found = changes(&t, since).await.items;
    let second = found.get(1).expect("there are four").number;
    let archived = Archived { events: 0, changes: second };
    t.store.archived(Some(archived)).await.expect("archived answers");
    let left = changes(&t, 0).await;
    assert_eq!(left.items, found.get(2..).unwrap_or_default());
    assert_eq!(left.since, Some(second), "who has read less must read all rows");
    // Somebody else who has read less far does not bring anything back.
    t.store.archived(Some(START_HERE)).await.expect("archived answers");
    assert_eq!(changes(&t, 0).await.since, Some(second));
}

async fn nothing_is_noted_once_nobody_archives(t: Subject) {
    follow(&t).await;
    t.write(&orders(), vec![create(slot_key(0), open())]).await;
    t.store.archived(None).await.expect("archived answers");
    t.write(&orders(), vec![create(slot_key(1), open())]).await;
    let found = changes(&t, 0).await;
    assert_eq!((found.items, found.since), (vec![], None));
    let again = follow(&t).await;
    assert!(again >= found.last, "what was meanwhile is not known");
    t.write(&orders(), vec![create(slot_key(2), open())]).await;
    assert_eq!(keys(&changes(&t, again).await.items), [&slot_key(2)]);
}

/// What was there before is among all rows, what came later among the changes, and nothing between them.
async fn who_begins_to_follow_misses_nothing(t: Subject) {
    let mut groups = Vec::new();
    for at in 0..40 {
        let name = pipeline(&format!("p-{}", at % 8));
        groups.push(t.group(&name, vec![create(slot_key(at), open())]).await);
    }
    let begins = async {
        t.store.archived(Some(START_HERE)).await.expect("archived answers");
        let known: BTreeSet<Key> =
            portions(&t, Rows::All, 10).await.into_iter().map(|row| row.key).collect();
        known
    };
    let commits = async {
        let results = all(groups.into_iter().map(|group| t.commit_one(group)).collect()).await;
        assert!(results.iter().all(Result::is_ok), "{results:?}");
    };
    let (begins, commits) = (Box::pin(begins), Box::pin(commits));
    let mut known = both(begins, commits).await;
    known.extend(changes(&t, 0).await.items.into_iter().map(|row| row.key));
    assert_eq!(known, (0..40).map(slot_key).collect());
}

/// What the first of two gives, when both have ended.
async fn both<T>(
    mut one: std::pin::Pin<Box<impl Future<Output = T>>>,
    mut other: std::pin::Pin<Box<impl Future<Output = ()>>>,
) -> T {
    let (mut given, mut is_over) = (None, false);
    std::future::poll_fn(move |context| {
        // The other first: most of it is then on its way.
        is_over = is_over || other.as_mut().poll(context).is_ready();
        if given.is_none()
            && let std::task::Poll::Ready(value) = one.as_mut().poll(context)
        {
            given = Some(value);
        }
        match given.take_if(|_| is_over) {
            Some(value) => std::task::Poll::Ready(value),
            None => std::task::Poll::Pending,
        }
    })
    .await
}

async fn racing_groups_are_all_noted(t: Subject) {
    let since = follow(&t).await;
    let mut groups = Vec::new();
    for at in 0..32 {
        let name = pipeline(&format!("p-{}", at % 8));
        let changes = vec![create(slot_key(at), open()), Change::Append(event("x").into())];
        groups.push(t.group(&name, changes).await);
    }
    let results: Vec<Result<Accepted, Refusal>> =
        all(groups.into_iter().map(|group| t.commit_one(group)).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let found = changes(&t, since).await.items;
    assert!(found.is_sorted_by(|one, next| one.number < next.number), "{found:?}");
    let noted: BTreeSet<&Key> = found.iter().map(|row| &row.key).collect();
    assert_eq!((found.len(), noted.len()), (32, 32));
}

async fn portions(t: &Subject, which: Rows, limit: usize) -> Vec<StoredRow> {
    let (mut rows, mut from) = (Vec::new(), String::new());
    loop {
        let portion = t.store.rows(which, &from, limit).await.expect("rows answers");
        rows.extend(portion.items);
        assert!(rows.len() <= 10_000, "portions go on for ever");
        match portion.next {
            Some(next) => from = next,
            None => return rows,
        }
    }
}

async fn all_rows_come_in_portions(t: Subject) {
    assert_eq!(portions(&t, Rows::All, 10).await, [], "an empty store has none");
    let names = [orders(), pipeline("aa"), pipeline("zz-9"), PipelineId::system()];
    let mut written = BTreeMap::new();
    for name in &names {
        let rows = every_kind();
        t.create(name, rows.clone()).await;
        for (key, record) in rows {
            written.insert((name.clone(), key), Row { record, revision: 1 });
        }
    }
    let more: Vec<_> = (1..40).map(|at| (slot_key(at), open())).collect();
    t.create(&orders(), more.clone()).await;
    for (key, record) in more {
        written.insert((orders(), key), Row { record, revision: 1 });
    }
    for limit in [1, 7, 1_000] {
        let found = portions(&t, Rows::All, limit).await;
        assert_eq!(by_key(found), written, "in portions of {limit}");
    }
}

/// Also under names that no pipeline has: an answer may say just that.
async fn the_rows_of_one_kind_come_alone(t: Subject) {
    assert_eq!(portions(&t, Rows::Answers, 10).await, [], "an empty store has none");
    let mut written = BTreeMap::new();
    for name in [orders(), PipelineId::system()] {
        t.create(&name, every_kind()).await;
        let answers = every_kind().into_iter().filter(|(key, _)| key.kind() == "applied");
        for (key, record) in answers {
            written.insert((name.clone(), key), Row { record, revision: 1 });
        }
    }
    for name in [pipeline("applied"), pipeline("nobody-declares-it")] {
        let answers: Vec<_> =
            (0..15).map(|at| (applied_key(&format!("k {at}")), applied(json!(at)))).collect();
        t.create(&name, answers.clone()).await;
        for (key, record) in answers {
            written.insert((name.clone(), key), Row { record, revision: 1 });
        }
    }
    assert_eq!(written.len(), 32);
    for limit in [1, 7, 1_000] {
        let found = portions(&t, Rows::Answers, limit).await;
        assert_eq!(by_key(found), written, "in portions of {limit}");
    }
}

fn by_key(rows: Vec<StoredRow>) -> BTreeMap<(PipelineId, Key), Row<Record>> {
    rows.into_iter().map(|row| ((row.pipeline, row.key), row.row)).collect()
}

fn freight() -> Freight {
    let rows = every_kind().into_iter().zip(1..).map(|((key, record), revision)| StoredRow {
        pipeline: orders(),
        key,
        row: Row { record, revision },
    });
    let numbered = |number| EventRow { number, pipeline: orders(), record: event("moved").into() };
    let asked = InboxRecord::Resume { catchup: None };
    let letter = |number: u64, key: &str| InboxEntry {
        number,
        pipeline: orders(),
        key: key.to_owned(),
        received_at: minute(-3),
        record: asked.clone(),
    };
    Freight {
        rows: rows.collect(),
        events: [5, 6, 900].map(numbered).into(),
        inbox: vec![letter(17, "first"), letter(19, "second")],
        last: 1_234,
        store: Some(StoreId(0xfeed)),
    }
}

async fn is_taken_over(t: &Subject) {
    let Freight { rows, events, inbox, last, store: _ } = freight();
    assert_eq!(by_key(portions(t, Rows::All, 5).await), by_key(rows));
    assert_eq!(t.store.events(None, 0, 100).await.expect("events answers").items, events);
    assert_eq!(t.store.events(Some(&orders()), 0, 100).await.expect("answers").items, events);
    let found = t.store.inbox(t.shard(&orders()), 100).await.expect("inbox answers").items;
    let told = |entries: &[InboxEntry]| -> Vec<(String, jiff::Timestamp, InboxRecord)> {
        let told = entries.iter();
        told.map(|entry| (entry.key.clone(), entry.received_at, entry.record.clone())).collect()
    };
    assert_eq!(told(&found), told(&inbox));
    assert_eq!(changes(t, 0).await.last, last);
}

async fn freight_is_taken_over_as_it_is(t: Subject) {
    t.store.import(freight()).await.expect("import answers");
    is_taken_over(&t).await;
}

async fn the_same_freight_again_changes_nothing(t: Subject) {
    t.store.import(freight()).await.expect("import answers");
    t.store.import(freight()).await.expect("import answers");
    is_taken_over(&t).await;
}

/// Listings find what was taken over, revisions fence, numbers go on.
async fn a_store_goes_on_where_the_other_ended(t: Subject) {
    t.store.import(freight()).await.expect("import answers");
    let shard = t.shard(&orders());
    let open = t.store.open_slots(shard, None, 10).await.expect("open_slots answers");
    assert_eq!(open.items.iter().map(|row| row.revision).collect::<Vec<_>>(), [4]);
    let agenda = t.store.agenda(shard, None, 10).await.expect("agenda answers");
    assert_eq!(agenda.items.len(), 1);
    let due = t.store.due(shard, minute(10), 10).await.expect("due answers");
    assert_eq!(due.items.len(), 1);
    let open = t.store.open_incidents(shard, None, 10).await.expect("open_incidents answers");
    assert_eq!(open.items.len(), 1);
    let stale = Change::Put(slot_key(0), Expect::Revision(1), closed("completed"));
    assert!(t.try_write(&orders(), vec![stale]).await.is_err(), "a revision is kept");
    let next = Change::Put(slot_key(0), Expect::Revision(4), closed("completed"));
    let accepted = t.write(&orders(), vec![next, Change::Append(event("on").into())]).await;
    assert!(accepted.last_event > 1_234, "{accepted:?}");
    let asked = InboxRecord::Resume { catchup: None };
    t.store.post(&orders(), "first", &asked).await.expect("post answers");
    t.store.post(&orders(), "k 1", &asked).await.expect("post answers");
    let letters = t.store.inbox(shard, 100).await.expect("inbox answers").items;
    assert_eq!(letters.len(), 2, "the same keys are the same entries");
}

async fn mark(t: &Subject) -> Mark {
    t.store.mark().await.expect("mark answers")
}

async fn a_store_is_the_same_one_and_its_numbers_only_grow(t: Subject) {
    let before = mark(&t).await;
    t.write(
        &orders(),
        vec![Change::Append(event("first").into()), Change::Append(event("second").into())],
    )
    .await;
    let after = mark(&t).await;
    assert_eq!(after.store, before.store);
    assert!(after.number > before.number, "{before:?} {after:?}");
    assert_eq!(after.number, changes(&t, 0).await.last);
    let recalled = t.store.recall(before).await.expect("recall answers");
    assert_eq!(recalled, Recalled::Kept);
    assert_eq!(t.store.recall(after).await.expect("recall answers"), Recalled::Kept);
    assert_eq!(mark(&t).await, after, "who only asks changes nothing");
}

async fn a_move_takes_along_which_store_it_is(t: Subject) {
    let before = mark(&t).await;
    t.store.import(Freight { store: None, ..freight() }).await.expect("import answers");
    assert_eq!(mark(&t).await.store, before.store, "unless it is not said");
    t.store.import(freight()).await.expect("import answers");
    let mark = mark(&t).await;
    assert_eq!((mark.store, mark.number), (StoreId(0xfeed), 1_234));
    assert_eq!(t.store.recall(before).await.expect("recall answers"), Recalled::Another);
}

/// Numbers that somebody remembers are not given a second time.
async fn what_a_store_has_forgotten_is_noticed(t: Subject) {
    let Mark { store, number } = mark(&t).await;
    let later = Mark { store, number: number + 1 };
    assert_eq!(t.store.recall(later).await.expect("recall answers"), Recalled::Forgotten);
    let another = Mark { store: StoreId(store.0 ^ 1), number: number + 1 };
    assert_eq!(t.store.recall(another).await.expect("recall answers"), Recalled::Another);
}
