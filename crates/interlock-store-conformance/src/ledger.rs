//! The ledger: slots and spans, by time, and the open ones by shard.

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};

use super::{
    Subject, promises,
    sample::{START, closed, daily, minute, open, orders, pipeline, schedule, slot_key, span},
    subject::take,
};
use interlock_store::{
    Change, Expect, Key, LedgerEntry, LedgerQuery, LedgerRow, ListOrder, Page, Shard,
};

promises!("ledger":
    an_interval_has_its_start_and_not_its_end,
    the_order_is_by_instant_then_pipeline_then_schedule,
    pages_part_rows_of_one_instant_without_loss,
    a_span_and_the_row_of_its_first_slot_are_both_found,
    a_span_is_found_wherever_it_touches_the_interval,
    pages_of_slots_and_spans_lose_neither,
    the_newest_come_first_where_that_is_asked,
    dispositions_and_open_slots_can_be_asked_for,
    one_pipeline_can_be_asked_for,
    slots_of_two_schedules_at_one_instant_are_apart,
    a_changed_slot_is_found_as_it_is_now,
    manual_slots_keep_their_milliseconds,
    an_unknown_pipeline_has_no_ledger,
    open_slots_are_listed_by_shard_in_order,
    open_slots_are_paged,
    a_closed_slot_is_no_longer_open_and_a_reopened_one_is,
);

fn everything() -> LedgerQuery {
    LedgerQuery { from: minute(-100_000), until: minute(100_000), ..LedgerQuery::everything(1_000) }
}

async fn ledger(t: &Subject, query: &LedgerQuery) -> Vec<LedgerRow> {
    let page = t.store.ledger(query).await.expect("ledger answers");
    assert!(!page.more, "the page holds all");
    page.items
}

/// Reads all of what is asked for page by page.
async fn pages_of(t: &Subject, mut query: LedgerQuery) -> Vec<LedgerRow> {
    let mut rows = Vec::new();
    loop {
        let page = t.store.ledger(&query).await.expect("ledger answers");
        let more = page.more;
        take(&mut rows, page, query.limit);
        if !more {
            return rows;
        }
        query.after = rows.last().map(LedgerRow::place);
    }
}

async fn paged(t: &Subject, limit: usize) -> Vec<LedgerRow> {
    pages_of(t, LedgerQuery { limit, ..everything() }).await
}

fn minutes(rows: &[LedgerRow]) -> Vec<i64> {
    rows.iter().map(|row| row.nominal.duration_since(START).as_secs() / 60).collect()
}

async fn an_interval_has_its_start_and_not_its_end(t: Subject) {
    let slots = (0..6).map(|at| (slot_key(at), closed("completed"))).collect();
    t.create(&orders(), slots).await;
    let query = LedgerQuery { from: minute(1), until: minute(4), ..everything() };
    assert_eq!(minutes(&ledger(&t, &query).await), [1, 2, 3]);
    let query = LedgerQuery { from: minute(2), until: minute(2), ..everything() };
    assert_eq!(ledger(&t, &query).await, []);
    let fine = SignedDuration::from_millis(1);
    let query = LedgerQuery { from: minute(1) + fine, until: minute(2) + fine, ..everything() };
    assert_eq!(minutes(&ledger(&t, &query).await), [2]);
}

/// Slots of three pipelines and two schedules at two instants, written in disorder.
async fn crowd(t: &Subject) -> Vec<(Timestamp, String, String)> {
    let mut expected = Vec::new();
    for name in ["stock", "a-b", "orders"] {
        for id in ["hourly", "daily"] {
            let key = |at| Key::Slot(schedule(id), minute(at));
            let rows = vec![(key(1), open()), (key(0), closed("failed"))];
            t.create(&pipeline(name), rows).await;
            expected.extend([0, 1].map(|at| (minute(at), name.to_owned(), id.to_owned())));
        }
    }
    expected.sort();
    expected
}

fn places(rows: &[LedgerRow]) -> Vec<(Timestamp, String, String)> {
    let place = |row: &LedgerRow| (row.nominal, row.pipeline.to_string(), row.schedule.to_string());
    rows.iter().map(place).collect()
}

async fn the_order_is_by_instant_then_pipeline_then_schedule(t: Subject) {
    let expected = crowd(&t).await;
    assert_eq!(places(&ledger(&t, &everything()).await), expected);
}

async fn pages_part_rows_of_one_instant_without_loss(t: Subject) {
    let expected = crowd(&t).await;
    for limit in [1, 2, 5, 11, 12, 13] {
        assert_eq!(places(&paged(&t, limit).await), expected, "pages of {limit}");
    }
}

async fn a_span_and_the_row_of_its_first_slot_are_both_found(t: Subject) {
    let span_key = Key::Span(daily(), minute(0));
    let rows = vec![
        (span_key, span(minute(6), "missed")),
        (slot_key(0), closed("completed")),
        (slot_key(3), closed("failed")),
    ];
    t.create(&orders(), rows).await;
    let is_span = |row: &LedgerRow| matches!(row.entry, LedgerEntry::Span(_));
    for limit in [1, 2, 3] {
        let found = paged(&t, limit).await;
        assert_eq!(minutes(&found), [0, 0, 3], "pages of {limit}");
        let spans: Vec<bool> = found.iter().map(is_span).collect();
        assert_eq!(spans, [false, true, false], "the slot comes before the span");
    }
}

async fn a_span_is_found_wherever_it_touches_the_interval(t: Subject) {
    let key = Key::Span(daily(), minute(10));
    t.create(&orders(), vec![(key, span(minute(20), "skipped"))]).await;
    let touching = [(10, 11), (20, 21), (5, 11), (20, 30), (12, 13), (0, 40)];
    let apart = [(0, 10), (21, 30)];
    for (is_found, intervals) in [(true, &touching[..]), (false, &apart[..])] {
        for (from, until) in intervals {
            let query = LedgerQuery { from: minute(*from), until: minute(*until), ..everything() };
            let found = !ledger(&t, &query).await.is_empty();
            assert_eq!(found, is_found, "10 to 20 in {from} until {until}");
        }
    }
}

/// Spans that begin before the interval, with slots, between them and after them, of several pipelines at one instant.
async fn slots_and_spans(t: &Subject) {
    for name in ["aa", "bb", "cc"] {
        let slot = |at| (slot_key(at), closed(if at % 2 == 0 { "completed" } else { "missed" }));
        let long = |at, until, word| (Key::Span(daily(), minute(at)), span(minute(until), word));
        let mut rows: Vec<_> = (1..9).map(slot).collect();
        rows.extend([long(-30, 5, "missed"), long(-20, -10, "missed"), long(-8, 9, "skipped")]);
        rows.extend([long(3, 4, "skipped"), long(4, 6, "missed"), long(40, 50, "missed")]);
        t.create(&pipeline(name), rows).await;
    }
}

async fn pages_of_slots_and_spans_lose_neither(t: Subject) {
    slots_and_spans(&t).await;
    let all = LedgerQuery { from: minute(0), until: minute(30), ..everything() };
    for (disposition, count) in [(None, 3 * 12), (Some("missed"), 3 * 6), (Some("skipped"), 3 * 2)]
    {
        let query = LedgerQuery { disposition: disposition.map(str::to_owned), ..all.clone() };
        let expected = ledger(&t, &query).await;
        assert_eq!(expected.len(), count, "{disposition:?}");
        assert!(expected.is_sorted_by_key(LedgerRow::place));
        for limit in 1..=7 {
            let found = pages_of(&t, LedgerQuery { limit, ..query.clone() }).await;
            assert_eq!(found, expected, "pages of {limit}, {disposition:?}");
        }
    }
}

async fn the_newest_come_first_where_that_is_asked(t: Subject) {
    slots_and_spans(&t).await;
    for name in ["bb", "dd"] {
        let rows = [-61, 10, 11, 75].map(|at| (slot_key(at), open()));
        t.create(&pipeline(name), rows.to_vec()).await;
    }
    let fine = SignedDuration::from_micros(1);
    for (from, until) in [
        (minute(-100_000), minute(100_000)),
        (minute(0), minute(30)),
        (minute(4), minute(11)),
        (minute(3) + fine, minute(10) + fine),
    ] {
        for word in [None, Some("open"), Some("missed"), Some("skipped"), Some("completed")] {
            for name in [None, Some("bb")] {
                let disposition = word.map(str::to_owned);
                let pipeline = name.map(pipeline);
                let query = LedgerQuery { pipeline, from, until, disposition, ..everything() };
                let mut expected = ledger(&t, &query).await;
                expected.reverse();
                let limits = if word.is_none() { &[1, 7] } else { &[3, 1_000] };
                for limit in *limits {
                    let order = ListOrder::NewestFirst;
                    let found = pages_of(&t, LedgerQuery { order, limit, ..query.clone() }).await;
                    assert_eq!(found, expected, "pages of {limit} of {query:?}");
                }
            }
        }
    }
}

async fn dispositions_and_open_slots_can_be_asked_for(t: Subject) {
    let rows = vec![
        (slot_key(0), closed("completed")),
        (slot_key(1), open()),
        (slot_key(2), closed("missed")),
        (Key::Span(daily(), minute(3)), span(minute(5), "missed")),
        (slot_key(6), closed("skipped")),
        (slot_key(7), open()),
    ];
    t.create(&orders(), rows).await;
    let expected: [(&str, &[i64]); 5] = [
        ("completed", &[0]),
        ("missed", &[2, 3]),
        ("skipped", &[6]),
        ("open", &[1, 7]),
        ("cancelled", &[]),
    ];
    for (word, at) in expected {
        let query = LedgerQuery { disposition: Some(word.into()), ..everything() };
        assert_eq!(minutes(&ledger(&t, &query).await), at, "{word}");
    }
}

async fn one_pipeline_can_be_asked_for(t: Subject) {
    for name in ["orders", "orders2", "order"] {
        t.create(&pipeline(name), vec![(slot_key(0), open())]).await;
    }
    let query = LedgerQuery { pipeline: Some(orders()), ..everything() };
    let found = ledger(&t, &query).await;
    let names: Vec<&PipelineId> = found.iter().map(|row| &row.pipeline).collect();
    assert_eq!(names, [&orders()]);
}

/// Case 72: each schedule has its own entry for a day, and a change of one leaves the other.
async fn slots_of_two_schedules_at_one_instant_are_apart(t: Subject) {
    let (h10, h14) = (Key::Slot(schedule("h10"), minute(0)), Key::Slot(schedule("h14"), minute(0)));
    t.create(&orders(), vec![(h10.clone(), open()), (h14.clone(), open())]).await;
    let close = Change::Put(h10.clone(), Expect::Revision(1), closed("completed"));
    t.write(&orders(), vec![close]).await;
    let row = t.row(&orders(), &h10).await.expect("it is there");
    assert_eq!((row.record, row.revision), (closed("completed"), 2));
    let row = t.row(&orders(), &h14).await.expect("it is there");
    assert_eq!((row.record, row.revision), (open(), 1));
    t.write(&orders(), vec![Change::Delete(h14, Expect::Revision(1))]).await;
    assert_eq!(t.revision(&orders(), &h10).await, 2);
    assert_eq!(places(&ledger(&t, &everything()).await).len(), 1);
}

async fn a_changed_slot_is_found_as_it_is_now(t: Subject) {
    t.create(&orders(), vec![(slot_key(0), open())]).await;
    let close = Change::Put(slot_key(0), Expect::Revision(1), closed("completed"));
    t.write(&orders(), vec![close]).await;
    let open_ones = LedgerQuery { disposition: Some("open".into()), ..everything() };
    assert_eq!(ledger(&t, &open_ones).await, []);
    let found = ledger(&t, &everything()).await;
    assert_eq!(found.iter().map(|row| row.revision).collect::<Vec<_>>(), [2]);
    t.write(&orders(), vec![Change::Delete(slot_key(0), Expect::Any)]).await;
    assert_eq!(ledger(&t, &everything()).await, []);
}

async fn manual_slots_keep_their_milliseconds(t: Subject) {
    let manual = schedule("manual");
    let instants: Vec<Timestamp> =
        [0, 1, 10, 999].map(|millis| START + SignedDuration::from_millis(millis)).to_vec();
    let rows = instants.iter().rev().map(|at| (Key::Slot(manual.clone(), *at), open()));
    t.create(&orders(), rows.collect()).await;
    let found = ledger(&t, &everything()).await;
    assert_eq!(found.iter().map(|row| row.nominal).collect::<Vec<_>>(), instants);
    let key = Key::Slot(manual.clone(), START + SignedDuration::from_millis(11));
    assert_eq!(t.revision(&orders(), &key).await, 0, "a millisecond apart is another slot");
}

async fn an_unknown_pipeline_has_no_ledger(t: Subject) {
    let nobody = pipeline("nobody");
    let query = LedgerQuery { pipeline: Some(nobody.clone()), ..everything() };
    assert_eq!(ledger(&t, &query).await, []);
    assert_eq!(t.row(&nobody, &slot_key(0)).await, None);
    let open = t.store.open_slots(t.shard(&nobody), None, 10).await.expect("open_slots answers");
    assert_eq!((open.items, open.more), (vec![], false));
}

type OpenPlace = (PipelineId, Timestamp, interlock_core::id::ScheduleId);

fn open_place(row: &LedgerRow) -> OpenPlace {
    (row.pipeline.clone(), row.nominal, row.schedule.clone())
}

/// Reads page by page.
async fn all_open(t: &Subject, shard: Shard, limit: usize) -> Vec<OpenPlace> {
    let mut found: Vec<OpenPlace> = Vec::new();
    loop {
        let page = t.store.open_slots(shard, found.last(), limit).await;
        let page = page.expect("open_slots answers");
        let more = page.more;
        let items = page.items.iter().map(open_place).collect();
        take(&mut found, Page { items, more }, limit);
        if !more {
            return found;
        }
    }
}

/// Opens slots of many pipelines, in disorder, and returns them in order.
async fn open_many(t: &Subject) -> Vec<OpenPlace> {
    let mut expected = Vec::new();
    for number in 0..12 {
        let name = pipeline(&format!("p-{}", number * 5 % 12));
        for (id, at) in [("hourly", 1), ("daily", 1), ("daily", 0), ("hourly", 2), ("daily", 3)] {
            let place = (name.clone(), minute(at), schedule(id));
            t.create(&name, vec![(Key::Slot(place.2.clone(), place.1), open())]).await;
            expected.push(place);
        }
        t.create(&name, vec![(slot_key(9), closed("completed"))]).await;
    }
    expected.sort();
    expected
}

async fn open_slots_are_listed_by_shard_in_order(t: Subject) {
    let expected = open_many(&t).await;
    for shard in (0..t.store.shard_count()).map(Shard) {
        let here = expected.iter().filter(|place| t.shard(&place.0) == shard);
        let here: Vec<OpenPlace> = here.cloned().collect();
        assert_eq!(all_open(&t, shard, 1_000).await, here);
    }
}

async fn open_slots_are_paged(t: Subject) {
    let expected = open_many(&t).await;
    for limit in [1, 3, 7] {
        let mut found = Vec::new();
        for shard in (0..t.store.shard_count()).map(Shard) {
            found.extend(all_open(&t, shard, limit).await);
        }
        found.sort();
        assert_eq!(found, expected, "pages of {limit}");
    }
}

async fn a_closed_slot_is_no_longer_open_and_a_reopened_one_is(t: Subject) {
    let (name, shard) = (orders(), t.shard(&orders()));
    t.create(&name, vec![(slot_key(0), open()), (slot_key(1), open())]).await;
    let close = Change::Put(slot_key(0), Expect::Revision(1), closed("missed"));
    t.write(&name, vec![close]).await;
    assert_eq!(all_open(&t, shard, 10).await, [(name.clone(), minute(1), daily())]);
    let reopen = Change::Put(slot_key(0), Expect::Revision(2), open());
    t.write(&name, vec![reopen, Change::Delete(slot_key(1), Expect::Revision(1))]).await;
    assert_eq!(all_open(&t, shard, 10).await, [(name, minute(0), daily())]);
}
