//! Groups: all or nothing, in order, at the revisions that were read.

use interlock_core::id::PipelineId;
use serde_json::json;

use super::{
    Subject,
    drive::all,
    promises,
    sample::{
        START, applied, applied_key, closed, daily, due, due_key, event, minute, open, orders,
        outbox, outbox_key, pipeline, pipeline_row, schedule, sensor, sensor_key, slot_key,
        watermark,
    },
};
use interlock_store::{
    Accepted, CHANGES_MAX, Change, Expect, Group, Key, Refusal, Shard, record::Record,
};

promises!("commit":
    a_group_is_all_or_nothing,
    a_group_without_changes_is_accepted,
    a_row_is_read_as_it_was_written,
    revisions_count_the_changes_of_a_row,
    absent_holds_only_for_a_missing_row,
    a_revision_holds_only_for_itself,
    any_holds_always,
    a_deleted_row_is_gone_and_starts_anew,
    deleting_a_missing_row_is_no_error_unless_a_revision_was_expected,
    a_full_group_is_accepted_and_a_larger_one_refused,
    a_row_may_occur_once_in_a_group,
    groups_of_a_pipeline_apply_in_order,
    a_row_that_comes_and_goes_in_one_call_must_have_been_absent,
    later_groups_of_a_pipeline_fall_behind_a_refused_one,
    groups_of_other_pipelines_are_independent,
    a_second_call_is_not_behind,
    one_of_many_racing_commits_wins,
    racing_creations_have_one_winner,
    a_call_may_hold_many_groups,
    mistakes_of_the_caller_stop_the_whole_call,
    rows_of_pipelines_with_similar_names_are_kept_apart,
);

async fn a_group_is_all_or_nothing(t: Subject) {
    let orders = orders();
    t.create(&orders, vec![(slot_key(0), open()), (due_key(0, "old"), due())]).await;
    let refused = t
        .try_write(
            &orders,
            vec![
                Change::Put(slot_key(0), Expect::Revision(1), closed("completed")),
                Change::Put(slot_key(1), Expect::Absent, open()),
                Change::Delete(due_key(0, "old"), Expect::Any),
                Change::Append(event("never").into()),
                Change::Put(slot_key(2), Expect::Revision(3), open()),
            ],
        )
        .await;
    assert_eq!(refused, Err(Refusal::Conflict { key: slot_key(2), found: 0 }));
    assert_eq!(t.row(&orders, &slot_key(0)).await.map(|row| row.record), Some(open()));
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 1);
    assert_eq!(t.revision(&orders, &slot_key(1)).await, 0);
    assert_eq!(t.revision(&orders, &due_key(0, "old")).await, 1);
    let events = t.store.events(None, 0, 10).await.expect("events answers");
    assert_eq!(events.items, [], "no event of a refused group is seen");
}

async fn a_group_without_changes_is_accepted(t: Subject) {
    assert_eq!(t.write(&orders(), vec![]).await, Accepted { last_event: 0 });
}

async fn a_row_is_read_as_it_was_written(t: Subject) {
    let orders = orders();
    let rows = [
        (Key::Pipeline, pipeline_row()),
        (Key::Watermark(daily()), watermark(minute(3))),
        (slot_key(0), closed("skipped")),
        (sensor_key("landed#2026-02-25"), sensor(json!({"rows": 12, "share": 0.1}))),
        (due_key(5, "daily/1"), due()),
        (outbox_key("a:console:1"), Record::Outbox(outbox(START).into())),
        (applied_key("k"), applied(json!(["ok", null]))),
    ];
    t.create(&orders, rows.to_vec()).await;
    let keys: Vec<Key> = rows.iter().rev().map(|(key, _)| key.clone()).collect();
    let found = t.store.read(&orders, &keys).await.expect("read answers");
    for ((key, record), found) in rows.iter().rev().zip(found) {
        assert_eq!(
            found.map(|row| (row.record, row.revision)),
            Some((record.clone(), 1)),
            "{key:?}"
        );
    }
}

/// Case 70: at the revision that was read it succeeds.
async fn revisions_count_the_changes_of_a_row(t: Subject) {
    let orders = orders();
    t.create(&orders, vec![(slot_key(0), open()), (slot_key(1), open())]).await;
    for revision in 1..4 {
        let change = Change::Put(slot_key(0), Expect::Revision(revision), closed("failed"));
        t.write(&orders, vec![change]).await;
        assert_eq!(t.revision(&orders, &slot_key(0)).await, revision + 1);
    }
    assert_eq!(t.revision(&orders, &slot_key(1)).await, 1, "another row keeps its own");
}

async fn absent_holds_only_for_a_missing_row(t: Subject) {
    let orders = orders();
    let create = || vec![Change::Put(slot_key(0), Expect::Absent, open())];
    t.write(&orders, create()).await;
    let refused = t.try_write(&orders, create()).await;
    assert_eq!(refused, Err(Refusal::Conflict { key: slot_key(0), found: 1 }));
}

/// Case 70: another revision is refused, and so is a row that is not there.
async fn a_revision_holds_only_for_itself(t: Subject) {
    let orders = orders();
    let close =
        |revision| vec![Change::Put(slot_key(0), Expect::Revision(revision), closed("completed"))];
    for revision in [0, 1] {
        let refused = t.try_write(&orders, close(revision)).await;
        let conflict = Refusal::Conflict { key: slot_key(0), found: 0 };
        assert_eq!(refused, Err(conflict), "a missing row has no revision, not even {revision}");
    }
    t.create(&orders, vec![(slot_key(0), open())]).await;
    t.write(&orders, close(1)).await;
    for revision in [0, 1, 3] {
        let refused = t.try_write(&orders, close(revision)).await;
        assert_eq!(refused, Err(Refusal::Conflict { key: slot_key(0), found: 2 }));
    }
}

async fn any_holds_always(t: Subject) {
    let orders = orders();
    let key = sensor_key("landed");
    for revision in 1..3 {
        let change = Change::Put(key.clone(), Expect::Any, sensor(json!(revision)));
        t.write(&orders, vec![change]).await;
        assert_eq!(t.revision(&orders, &key).await, revision);
    }
    t.write(&orders, vec![Change::Delete(key.clone(), Expect::Any)]).await;
    assert_eq!(t.revision(&orders, &key).await, 0);
}

async fn a_deleted_row_is_gone_and_starts_anew(t: Subject) {
    let orders = orders();
    t.create(&orders, vec![(slot_key(0), open())]).await;
    let early = t.try_write(&orders, vec![Change::Delete(slot_key(0), Expect::Revision(2))]).await;
    assert_eq!(early, Err(Refusal::Conflict { key: slot_key(0), found: 1 }));
    t.write(&orders, vec![Change::Delete(slot_key(0), Expect::Revision(1))]).await;
    assert_eq!(t.row(&orders, &slot_key(0)).await, None);
    t.create(&orders, vec![(slot_key(0), open())]).await;
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 1);
}

async fn deleting_a_missing_row_is_no_error_unless_a_revision_was_expected(t: Subject) {
    let orders = orders();
    t.write(&orders, vec![Change::Delete(slot_key(0), Expect::Any)]).await;
    t.write(&orders, vec![Change::Delete(slot_key(0), Expect::Absent)]).await;
    let refused =
        t.try_write(&orders, vec![Change::Delete(slot_key(0), Expect::Revision(1))]).await;
    assert_eq!(refused, Err(Refusal::Conflict { key: slot_key(0), found: 0 }));
}

async fn a_full_group_is_accepted_and_a_larger_one_refused(t: Subject) {
    let orders = orders();
    let opens = |count: usize| -> Vec<Change> {
        (0..count).map(|at| Change::Put(slot_key(at as i64), Expect::Absent, open())).collect()
    };
    let refused = t.try_write(&orders, opens(CHANGES_MAX + 1)).await;
    assert_eq!(refused, Err(Refusal::TooLarge(CHANGES_MAX + 1)));
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 0);
    t.write(&orders, opens(CHANGES_MAX)).await;
    assert_eq!(t.revision(&orders, &slot_key(CHANGES_MAX as i64 - 1)).await, 1);
    let events = vec![Change::Append(event("many").into()); CHANGES_MAX + 1];
    assert_eq!(t.try_write(&orders, events).await, Err(Refusal::TooLarge(CHANGES_MAX + 1)));
}

async fn a_row_may_occur_once_in_a_group(t: Subject) {
    let orders = orders();
    let refused = t
        .try_write(
            &orders,
            vec![
                Change::Put(slot_key(0), Expect::Absent, open()),
                Change::Delete(slot_key(0), Expect::Any),
            ],
        )
        .await;
    assert_eq!(refused, Err(Refusal::Twice { key: slot_key(0) }));
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 0);
}

async fn groups_of_a_pipeline_apply_in_order(t: Subject) {
    let orders = orders();
    let steps = [
        Change::Put(slot_key(0), Expect::Absent, open()),
        Change::Put(slot_key(0), Expect::Revision(1), closed("missed")),
        Change::Put(slot_key(0), Expect::Revision(2), closed("completed")),
    ];
    let mut groups = Vec::new();
    for step in steps {
        groups.push(t.group(&orders, vec![step]).await);
    }
    let results = t.commit(groups).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let row = t.row(&orders, &slot_key(0)).await.expect("the slot is there");
    assert_eq!((row.record, row.revision), (closed("completed"), 3));
}

async fn a_row_that_comes_and_goes_in_one_call_must_have_been_absent(t: Subject) {
    let orders = orders();
    t.create(&orders, vec![(slot_key(0), open())]).await;
    let come = Change::Put(slot_key(0), Expect::Absent, open());
    let go = Change::Delete(slot_key(0), Expect::Revision(1));
    let groups = vec![t.group(&orders, vec![come]).await, t.group(&orders, vec![go]).await];
    let answers = t.commit(groups).await;
    let conflict = Refusal::Conflict { key: slot_key(0), found: 1 };
    assert_eq!(answers, [Err(conflict), Err(Refusal::Behind)]);
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 1);
}

async fn later_groups_of_a_pipeline_fall_behind_a_refused_one(t: Subject) {
    let orders = orders();
    let groups = vec![
        t.group(&orders, vec![Change::Put(slot_key(0), Expect::Absent, open())]).await,
        t.group(&orders, vec![Change::Put(slot_key(0), Expect::Absent, open())]).await,
        t.group(&orders, vec![Change::Put(slot_key(1), Expect::Absent, open())]).await,
        t.group(&orders, vec![]).await,
    ];
    let results = t.commit(groups).await;
    let conflict = Refusal::Conflict { key: slot_key(0), found: 1 };
    let accepted = Accepted { last_event: 0 };
    let behind = Err(Refusal::Behind);
    assert_eq!(results, [Ok(accepted), Err(conflict), behind.clone(), behind]);
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 1, "the earlier group stays");
    assert_eq!(t.revision(&orders, &slot_key(1)).await, 0);
}

async fn groups_of_other_pipelines_are_independent(t: Subject) {
    let names = ["orders", "payments", "refunds", "ledger", "stock"].map(pipeline);
    let bad = |name: &PipelineId| name.as_str() == "payments";
    let mut groups = Vec::new();
    for name in names.iter().chain(&names) {
        let expect = if bad(name) { Expect::Revision(9) } else { Expect::Absent };
        let key = slot_key(groups.len() as i64);
        groups.push(t.group(name, vec![Change::Put(key, expect, open())]).await);
    }
    let results = t.commit(groups).await;
    for (name, result) in names.iter().chain(&names).zip(&results) {
        assert_eq!(result.is_err(), bad(name), "{name}: {result:?}");
    }
    assert_eq!(results.last(), Some(&Ok(Accepted { last_event: 0 })));
}

async fn a_second_call_is_not_behind(t: Subject) {
    let orders = orders();
    let wrong = vec![Change::Put(slot_key(0), Expect::Revision(1), open())];
    assert!(t.try_write(&orders, wrong).await.is_err());
    t.write(&orders, vec![Change::Put(slot_key(0), Expect::Absent, open())]).await;
}

/// Case 70: many racing compare-and-swaps, one winner.
async fn one_of_many_racing_commits_wins(t: Subject) {
    let orders = orders();
    t.create(&orders, vec![(slot_key(0), open())]).await;
    let change = || vec![Change::Put(slot_key(0), Expect::Revision(1), closed("completed"))];
    race(&t, &orders, change).await;
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 2);
}

async fn racing_creations_have_one_winner(t: Subject) {
    let orders = orders();
    race(&t, &orders, || vec![Change::Put(slot_key(0), Expect::Absent, open())]).await;
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 1);
}

async fn race(t: &Subject, pipeline: &PipelineId, change: impl Fn() -> Vec<Change>) {
    let group: Group = t.group(pipeline, change()).await;
    let racers = (0..16).map(|_| t.commit_one(group.clone())).collect();
    let results = all(racers).await;
    assert_eq!(results.iter().filter(|result| result.is_ok()).count(), 1, "{results:?}");
    let is_conflict = |refusal: &Refusal| matches!(refusal, Refusal::Conflict { .. });
    assert!(results.iter().filter_map(|result| result.as_ref().err()).all(is_conflict));
}

async fn a_call_may_hold_many_groups(t: Subject) {
    let mut groups = Vec::new();
    for number in 0..2_000_i64 {
        let name = pipeline(&format!("batch-{:04}", number % 500));
        let changes = vec![
            Change::Put(slot_key(number), Expect::Absent, open()),
            Change::Append(event("opened").into()),
        ];
        groups.push(t.group(&name, changes).await);
    }
    let results = t.commit(groups).await;
    assert!(results.iter().all(Result::is_ok), "all are accepted");
    let last = t.revision(&pipeline("batch-0499"), &slot_key(1_999)).await;
    assert_eq!(last, 1);
    let events = t.store.events(None, 0, 5_000).await.expect("events answers");
    assert_eq!((events.items.len(), events.more), (2_000, false));
}

async fn mistakes_of_the_caller_stop_the_whole_call(t: Subject) {
    let orders = orders();
    let good = t.group(&orders, vec![Change::Put(slot_key(0), Expect::Absent, open())]).await;
    let too_fine = START + jiff::SignedDuration::from_micros(1);
    let mistakes = [
        vec![Change::Put(slot_key(1), Expect::Absent, sensor(json!(1)))],
        vec![Change::Put(Key::Slot(daily(), too_fine), Expect::Absent, open())],
    ];
    for changes in mistakes {
        let bad = t.group(&orders, changes).await;
        let error = t.store.commit(vec![good.clone(), bad]).await;
        let error = error.expect_err("a mistake is an error, not a refusal");
        assert!(!error.is_retryable, "trying again cannot cure {error}");
    }
    let mut elsewhere = good.clone();
    elsewhere.writer.shard = Shard(elsewhere.writer.shard.0 + 1);
    let error = t.store.commit(vec![good, elsewhere]).await;
    assert!(error.is_err(), "a group under another shard's writer is a mistake");
    assert_eq!(t.revision(&orders, &slot_key(0)).await, 0, "nothing of such a call is applied");
}

async fn rows_of_pipelines_with_similar_names_are_kept_apart(t: Subject) {
    let long = "x".repeat(255);
    let dotted = format!("a{}z", ".-_".repeat(80));
    let names = ["a.b", "a-b", "a_b", "a..b", "ab", "a--b", "0.0", "00", long.as_str(), &dotted];
    for (number, name) in names.iter().enumerate() {
        let key = Key::Slot(schedule(name), minute(number as i64));
        let id = pipeline(name);
        t.create(&id, vec![(key, open()), (sensor_key("k"), sensor(json!(name)))]).await;
    }
    for (number, name) in names.iter().enumerate() {
        let id = pipeline(name);
        let key = Key::Slot(schedule(name), minute(number as i64));
        assert_eq!(t.revision(&id, &key).await, 1, "{name}");
        let found = t.row(&id, &sensor_key("k")).await.map(|row| row.record);
        assert_eq!(found, Some(sensor(json!(name))), "{name}");
    }
}
