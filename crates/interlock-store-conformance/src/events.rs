//! Events: numbered in commit order, read after a cursor (case 75).

use interlock_core::id::PipelineId;

use super::{
    Subject,
    drive::all,
    promises,
    sample::{event, open, orders, pipeline, slot_key},
    subject::take,
};
use interlock_store::{Change, EventQuery, EventRow, Expect, ListOrder, Shard};

promises!("events":
    events_are_numbered_in_commit_order,
    a_group_tells_the_number_of_its_last_event,
    the_cursor_is_exclusive,
    events_of_one_pipeline_can_be_asked_for,
    pages_of_events_lose_and_repeat_nothing,
    the_newest_events_come_first_where_that_is_asked,
    racing_groups_share_no_number,
    who_looks_after_a_shard_hears_of_its_pipelines_and_of_the_system,
    an_event_is_read_as_it_was_written,
);

async fn events(t: &Subject, pipeline: Option<&PipelineId>, after: u64) -> Vec<EventRow> {
    let page = t.store.events(pipeline, after, 1_000).await.expect("events answers");
    assert!(!page.more, "the page holds all");
    page.items
}

fn messages(rows: &[EventRow]) -> Vec<&str> {
    rows.iter().map(|row| row.record.message.as_str()).collect()
}

async fn append(t: &Subject, name: &PipelineId, said: &[&str]) -> u64 {
    let changes = said.iter().map(|message| Change::Append(event(message).into())).collect();
    t.write(name, changes).await.last_event
}

/// Case 75: appended, and listed oldest first.
async fn events_are_numbered_in_commit_order(t: Subject) {
    let stock = pipeline("stock");
    append(&t, &orders(), &["a", "b"]).await;
    append(&t, &stock, &["c"]).await;
    let groups = vec![
        t.group(&stock, vec![Change::Append(event("d").into())]).await,
        t.group(&orders(), vec![Change::Append(event("e").into())]).await,
        t.group(&stock, vec![Change::Append(event("f").into())]).await,
    ];
    t.commit(groups).await;
    let found = events(&t, None, 0).await;
    let said = messages(&found);
    assert_eq!(said.get(..3), Some(&["a", "b", "c"][..]), "calls follow each other");
    let place = |message| said.iter().position(|said| *said == message);
    assert!(place("d") < place("f"), "groups of a pipeline follow each other: {said:?}");
    let numbers: Vec<u64> = found.iter().map(|row| row.number).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
    assert!(numbers.iter().all(|number| *number > 0), "0 is before the first");
}

async fn a_group_tells_the_number_of_its_last_event(t: Subject) {
    let last = append(&t, &orders(), &["a", "b"]).await;
    assert_eq!(events(&t, None, 0).await.last().map(|row| row.number), Some(last));
    let silent = vec![Change::Put(slot_key(0), Expect::Absent, open())];
    assert_eq!(t.write(&orders(), silent).await.last_event, 0);
}

/// Case 75: a cursor tells what comes after it; 0 is the start.
async fn the_cursor_is_exclusive(t: Subject) {
    append(&t, &orders(), &["a", "b", "c"]).await;
    let found = events(&t, None, 0).await;
    assert_eq!(messages(&found), ["a", "b", "c"]);
    for (at, row) in found.iter().enumerate() {
        let later = events(&t, None, row.number).await;
        assert_eq!(later.as_slice(), found.get(at + 1..).unwrap_or_default());
    }
    let last = found.last().map_or(0, |row| row.number);
    append(&t, &orders(), &["d"]).await;
    assert_eq!(messages(&events(&t, None, last).await), ["d"]);
    assert_eq!(events(&t, None, last + 1_000).await, []);
}

async fn events_of_one_pipeline_can_be_asked_for(t: Subject) {
    let stock = pipeline("stock");
    append(&t, &orders(), &["a"]).await;
    let last = append(&t, &stock, &["b"]).await;
    append(&t, &orders(), &["c"]).await;
    append(&t, &stock, &["d"]).await;
    assert_eq!(messages(&events(&t, Some(&orders()), 0).await), ["a", "c"]);
    assert_eq!(messages(&events(&t, Some(&stock), last).await), ["d"]);
    assert_eq!(events(&t, Some(&pipeline("nobody")), 0).await, []);
}

async fn pages_of_events_lose_and_repeat_nothing(t: Subject) {
    let said = ["a", "b", "c", "d", "e", "f", "g"];
    append(&t, &orders(), &said).await;
    for limit in [1, 2, 3, 7] {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = t.store.events(None, after, limit).await.expect("events answers");
            let more = page.more;
            take(&mut found, page, limit);
            after = found.last().map_or(0, |row: &EventRow| row.number);
            if !more {
                break;
            }
        }
        assert_eq!(messages(&found), said, "pages of {limit}");
    }
}

async fn the_newest_events_come_first_where_that_is_asked(t: Subject) {
    let names = ["orders", "stock", "returns"].map(pipeline);
    for (number, name) in names.iter().cycle().take(30).enumerate() {
        append(&t, name, &[&number.to_string()]).await;
    }
    for only in [None, Some(&names[1])] {
        let mut expected = events(&t, only, 0).await;
        expected.reverse();
        let numbers: Vec<u64> = expected.iter().map(|row| row.number).collect();
        for limit in [1, 4, 30, 100] {
            let all = EventQuery::new(only.cloned(), limit);
            let mut query = EventQuery { order: ListOrder::NewestFirst, ..all };
            let mut found = Vec::new();
            loop {
                let page = t.store.events_by(&query).await.expect("events_by answers");
                let more = page.more;
                take(&mut found, page, limit);
                query.before = found.last().map_or(0, |row: &EventRow| row.number);
                if !more {
                    break;
                }
            }
            assert_eq!(found, expected, "pages of {limit} of {only:?}");
        }
        // Between two numbers, neither of which is among them.
        let (after, before) = (numbers[7], numbers[2]);
        for order in [ListOrder::OldestFirst, ListOrder::NewestFirst] {
            let query = EventQuery { after, before, order, ..EventQuery::new(only.cloned(), 100) };
            let page = t.store.events_by(&query).await.expect("events_by answers");
            let mut found: Vec<u64> = page.items.iter().map(|row| row.number).collect();
            if order == ListOrder::OldestFirst {
                found.reverse();
            }
            assert_eq!((found.as_slice(), page.more), (&numbers[3..7], false), "{order:?}");
        }
    }
}

async fn racing_groups_share_no_number(t: Subject) {
    let names: Vec<PipelineId> = (0..8).map(|number| pipeline(&format!("p-{number}"))).collect();
    let mut groups = Vec::new();
    for name in names.iter().cycle().take(32) {
        groups.push(t.group(name, vec![Change::Append(event("x").into()); 3]).await);
    }
    let results = all(groups.into_iter().map(|group| t.commit_one(group)).collect()).await;
    assert!(results.iter().all(Result::is_ok), "{results:?}");
    let numbers: Vec<u64> = events(&t, None, 0).await.iter().map(|row| row.number).collect();
    assert_eq!(numbers.len(), 96);
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

async fn who_looks_after_a_shard_hears_of_its_pipelines_and_of_the_system(t: Subject) {
    let names: Vec<PipelineId> = (0..8).map(|number| pipeline(&format!("p-{number}"))).collect();
    let system = PipelineId::system();
    let mut last = 0;
    for name in names.iter().chain([&system]).chain(&names) {
        last = append(&t, name, &[name.as_str()]).await;
    }
    for shard in (0..t.store.shard_count()).map(Shard) {
        let (mut found, mut after) = (Vec::new(), 0);
        loop {
            let page = t.store.events_for(shard, after, 3).await.expect("events_for answers");
            let more = page.more;
            take(&mut found, page, 3);
            after = found.last().map_or(0, |row: &EventRow| row.number);
            if !more {
                break;
            }
        }
        assert!(found.is_sorted_by(|one, next| one.number < next.number), "{found:?}");
        for name in names.iter().filter(|name| t.shard(name) == shard) {
            assert_eq!(found.iter().filter(|row| row.pipeline == *name).count(), 2, "{name}");
        }
        assert!(found.iter().any(|row| row.pipeline == system), "{found:?}");
        let later = t.store.events_for(shard, last, 10).await.expect("events_for answers").items;
        assert_eq!(later, [], "the cursor is that of all events");
    }
}

async fn an_event_is_read_as_it_was_written(t: Subject) {
    let mut written = event("né ☃ \u{1F600} \"quoted\"\n\u{0}");
    written.slot = Some("daily/2026-02-25T09:00:00Z".into());
    written.run_id = Some("orders~daily~20260225T090000Z~1~1".into());
    written.details.insert("why".into(), serde_json::json!({"rows": [1, 2.5, null, true]}));
    t.write(&orders(), vec![Change::Append(written.clone().into())]).await;
    let found = events(&t, Some(&orders()), 0).await;
    assert_eq!(found.iter().map(|row| &row.pipeline).collect::<Vec<_>>(), [&orders()]);
    assert_eq!(found.into_iter().map(|row| row.record).collect::<Vec<_>>(), [written.into()]);
}
