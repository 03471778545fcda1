//! Backfills: found by pipeline, by shard, and while there is something left to do.

use super::{
    Subject, promises,
    sample::{START, backfill, orders, pipeline},
    subject::take,
};
use interlock_store::{
    BackfillQuery, BackfillRow, Change, Expect, Key, Refusal, Shard,
    record::{BackfillRecord, BackfillSlot, Record},
};

promises!("backfills":
    backfills_are_listed_by_pipeline_and_number,
    backfills_are_paged,
    unfinished_backfills_are_found_until_their_last_slot_has_ended,
    a_backfill_is_a_decision,
);

fn row(record: BackfillRecord) -> Record {
    Record::Backfill(Box::new(record).into())
}

/// Two pipelines with backfills of all kinds, in disorder.
async fn fill(t: &Subject) {
    let slot = BackfillSlot { schedule: "daily".into(), nominal: START, generation: 2 };
    let ending = BackfillRecord { open: vec![slot], ..backfill("cancelled") };
    for (name, number, record) in [
        ("stock", 1, backfill("paused")),
        ("orders", 10, backfill("running")),
        ("orders", 2, backfill("done")),
        ("orders", 3, ending),
        ("stock", 2, backfill("cancelled")),
    ] {
        t.create(&pipeline(name), vec![(Key::Backfill(number), row(record))]).await;
    }
}

/// Reads page by page.
async fn found(t: &Subject, query: BackfillQuery, limit: usize) -> Vec<(String, u64)> {
    let mut rows: Vec<BackfillRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| (row.pipeline.clone(), row.number));
        let query = BackfillQuery { after, limit, ..query.clone() };
        let page = t.store.backfills(&query).await.expect("backfills answers");
        let more = page.more;
        take(&mut rows, page, limit);
        if !more {
            return rows.into_iter().map(|row| (row.pipeline.to_string(), row.number)).collect();
        }
    }
}

fn named(all: &[(&str, u64)]) -> Vec<(String, u64)> {
    all.iter().map(|(name, number)| ((*name).to_owned(), *number)).collect()
}

async fn backfills_are_listed_by_pipeline_and_number(t: Subject) {
    fill(&t).await;
    let all = [("orders", 2), ("orders", 3), ("orders", 10), ("stock", 1), ("stock", 2)];
    assert_eq!(found(&t, BackfillQuery::default(), 10).await, named(&all));
    let of = BackfillQuery { pipeline: Some(orders()), ..BackfillQuery::default() };
    assert_eq!(found(&t, of, 10).await, named(&all[..3]));
    let nobody = BackfillQuery { pipeline: Some(pipeline("nobody")), ..BackfillQuery::default() };
    assert_eq!(found(&t, nobody, 10).await, []);
    let page = BackfillQuery { limit: 1, ..BackfillQuery::default() };
    let page = t.store.backfills(&page).await.expect("backfills answers");
    let [first] = page.items.as_slice() else { panic!("one was asked for: {page:?}") };
    assert_eq!((&first.record, first.revision), (&backfill("done"), 1));
}

async fn backfills_are_paged(t: Subject) {
    fill(&t).await;
    for limit in [1, 2, 5] {
        assert_eq!(found(&t, BackfillQuery::default(), limit).await.len(), 5, "pages of {limit}");
    }
}

async fn unfinished_backfills_are_found_until_their_last_slot_has_ended(t: Subject) {
    fill(&t).await;
    let mut all = Vec::new();
    for shard in (0..t.store.shard_count()).map(Shard) {
        let query =
            BackfillQuery { shard: Some(shard), unfinished: true, ..BackfillQuery::default() };
        all.extend(found(&t, query, 1).await);
    }
    all.sort();
    assert_eq!(all, named(&[("orders", 3), ("orders", 10), ("stock", 1)]));
    for number in [3, 10] {
        let ended = row(backfill("cancelled"));
        let change = Change::Put(Key::Backfill(number), Expect::Revision(1), ended);
        t.write(&orders(), vec![change]).await;
    }
    let query =
        BackfillQuery { pipeline: Some(orders()), unfinished: true, ..BackfillQuery::default() };
    assert_eq!(found(&t, query, 10).await, []);
}

async fn a_backfill_is_a_decision(t: Subject) {
    let key = Key::Backfill(1);
    let blind = Change::Put(key.clone(), Expect::Any, row(backfill("running")));
    let refused = t.try_write(&orders(), vec![blind]).await;
    assert_eq!(refused, Err(Refusal::Forbidden { key }));
}
