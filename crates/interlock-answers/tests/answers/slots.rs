//! Slots, spans, and spans slot by slot.

use interlock_answers::{
    ErrorCode,
    model::{
        page::ListingOrder,
        slot::{LedgerAnswer, SlotPath, SlotsQuery},
    },
};
use interlock_store::block_on;

use super::house::*;

fn asked() -> SlotsQuery {
    SlotsQuery {
        pipeline: Some("orders".to_owned()),
        from: Some(at("2026-02-23T00:00:00Z")),
        until: Some(at("2026-02-26T00:00:00Z")),
        ..SlotsQuery::default()
    }
}

/// What stands on all pages of so many items, in short.
#[track_caller]
fn pages(house: &House, mut asked: SlotsQuery, limit: usize) -> Vec<String> {
    asked.limit = Some(limit);
    let mut all = Vec::new();
    for _ in 0..200 {
        let page = block_on(house.reader().slots(&asked)).unwrap();
        assert!(page.items.len() <= limit, "{}", page.items.len());
        all.extend(page.items.iter().map(|item| match item {
            LedgerAnswer::Slot(slot) => {
                format!("{} {}", slot.utc, slot.disposition.as_deref().unwrap_or("open"))
            }
            LedgerAnswer::Span(span) => format!("{} {} more", span.first, span.count),
        }));
        asked.after = page.next;
        if asked.after.is_none() {
            return all;
        }
    }
    panic!("the pages do not end: {all:?}");
}

/// A day of which the clock's hours are a span, but for one slot with a row, and two slots behind it.
fn house() -> House {
    let house = House::new("2026-02-25T12:00:00Z");
    house.write(vec![
        seen("2026-02-01T00:00:00Z"),
        span("2026-02-24T00:00:00Z", "2026-02-24T23:00:00Z", 24),
        slot("2026-02-24T07:00:00Z", "cancelled"),
        slot("2026-02-25T00:00:00Z", "completed"),
        slot("2026-02-25T01:00:00Z", "failed"),
    ]);
    house
}

#[test]
fn a_span_is_one_item_and_a_page_goes_on_behind_it() {
    let house = house();
    let expected = [
        "2026-02-24T00:00:00Z 24 more",
        "2026-02-24T07:00:00Z cancelled",
        "2026-02-25T00:00:00Z completed",
        "2026-02-25T01:00:00Z failed",
    ];
    for limit in [1, 2, 3, 100] {
        assert_eq!(pages(&house, asked(), limit), expected, "{limit} a page");
    }
    let ended = |words: &[&str]| {
        let disposition = words.iter().map(|word| (*word).to_owned()).collect();
        pages(&house, SlotsQuery { disposition, ..asked() }, 1)
    };
    assert_eq!(ended(&["failed", "cancelled"]), [expected[1], expected[3]]);
    assert_eq!(ended(&["skipped"]), [expected[0]]);
    assert_eq!(ended(&["open"]), [""; 0]);
    let opened = SlotsQuery { trigger_type: vec!["scheduler".to_owned()], ..asked() };
    assert_eq!(pages(&house, opened, 2), expected[1..], "no span was opened");
}

#[test]
fn an_expanded_span_is_the_same_slots_on_pages_of_any_size() {
    let house = house();
    let expand = SlotsQuery { expand: true, ..asked() };
    let all = pages(&house, expand.clone(), 1_000);
    assert_eq!(all.len(), 26, "{all:#?}");
    assert_eq!(all[6], "2026-02-24T06:00:00Z skipped");
    assert_eq!(all[7], "2026-02-24T07:00:00Z cancelled", "a row wins");
    assert_eq!(all[25], "2026-02-25T01:00:00Z failed");
    for limit in [1, 2, 5, 7, 25, 26] {
        assert_eq!(pages(&house, expand.clone(), limit), all, "{limit} a page");
    }
    let skipped = SlotsQuery { disposition: vec!["skipped".to_owned()], ..expand.clone() };
    let skipped = pages(&house, skipped, 3);
    assert_eq!(
        skipped.len(),
        23,
        "the row that wins does so where it is not asked for: {skipped:#?}"
    );
    let later = SlotsQuery { from: Some(at("2026-02-24T22:30:00Z")), ..expand };
    assert_eq!(pages(&house, later, 2).len(), 3, "a span that began before");
}

#[test]
fn a_span_is_expanded_by_the_version_under_which_it_was_recorded() {
    let mut house = house();
    house.declare(&ORDERS.replace("0 * * * *", "*/30 * * * *"));
    let expand = SlotsQuery { expand: true, ..asked() };
    let all = pages(&house, expand.clone(), 10);
    assert_eq!(all[0], "2026-02-24T00:00:00Z 24 more", "the present declaration counts others");
    assert_eq!(all.len(), 4, "{all:#?}");
    house.keep_version(ORDERS);
    assert_eq!(pages(&house, expand, 10).len(), 26);
}

#[test]
fn a_day_around_now_or_around_the_time_that_is_asked_for_is_listed() {
    let house = house();
    let none = SlotsQuery { from: None, until: None, ..asked() };
    // Now is noon of the 25th; the span reaches into the day before it.
    let all = pages(&house, none.clone(), 100);
    assert_eq!(all.len(), 3, "{all:#?}");
    let early = SlotsQuery { until: Some(at("2026-02-24T08:00:00Z")), ..none.clone() };
    assert_eq!(pages(&house, early, 100).len(), 2);
    let late = SlotsQuery { from: Some(at("2026-03-01T00:00:00Z")), ..none };
    assert_eq!(pages(&house, late, 100), [""; 0]);
    let newest = SlotsQuery { order: Some(ListingOrder::Newest), ..asked() };
    assert_eq!(pages(&house, newest, 2)[0], "2026-02-25T01:00:00Z failed");
}

#[test]
fn expanding_is_for_one_pipeline() {
    let all = SlotsQuery { pipeline: None, expand: true, ..asked() };
    let refused = block_on(house().reader().slots(&all)).unwrap_err();
    assert_eq!(refused.code, ErrorCode::BadParameter);
    assert!(refused.message.contains("`expand`"), "{refused}");
}

#[test]
fn one_slot_is_its_row_or_one_of_its_span_or_not_there() {
    let house = house();
    let slot = |instant| {
        let (pipeline, schedule) = ("orders".to_owned(), "hourly".to_owned());
        block_on(house.reader().slot(&SlotPath { pipeline, schedule, instant: at(instant) }))
    };
    let own = slot("2026-02-24T07:00:00Z").unwrap();
    assert_eq!((own.disposition.as_deref(), own.generation), (Some("cancelled"), 1));
    let of_span = slot("2026-02-24T08:00:00Z").unwrap();
    assert_eq!((of_span.reason.as_deref(), of_span.generation), (Some("no_catchup"), 0));
    assert_eq!(of_span.date, Some(jiff::civil::date(2026, 2, 24)));
    let between = slot("2026-02-24T08:30:00Z").unwrap_err();
    assert_eq!(between.code, ErrorCode::NotFound);
    assert!(
        between.hint.contains("interlock why orders hourly/2026-02-24T08:30:00Z"),
        "{between:?}"
    );
    let unknown = SlotPath {
        pipeline: "order".to_owned(),
        schedule: "hourly".to_owned(),
        instant: at("2026-02-24T07:00:00Z"),
    };
    let unknown = block_on(house.reader().slot(&unknown)).unwrap_err();
    assert_eq!(unknown.code, ErrorCode::PipelineUnknown);
}
