//! What is known of pipelines: the clock, the agenda, sensors, incidents and due entries.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::PipelineId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use super::{
    Subject, promises,
    sample::{
        START, daily, due, due_key, event, incident, minute, open, orders, pipeline, pipeline_row,
        schedule, sensor, sensor_key, slot_key, watermark,
    },
    subject::take,
};
use interlock_store::{
    AgendaRow, CHANGES_MAX, Change, DueKind, DueRow, Expect, IncidentPlace, IncidentQuery, Key,
    READ_MAX, RowsQuery, Shard,
    record::{IncidentRecord, Record},
    whole_milliseconds,
};

promises!("pipelines":
    the_clock_ticks_in_milliseconds_and_goes_on,
    the_agenda_lists_the_pipelines_of_a_shard_by_name,
    the_agenda_is_paged,
    the_agenda_tells_watermarks_with_their_revisions,
    a_pipeline_without_its_row_is_not_on_the_agenda,
    revisions_alone_are_told_of_the_same_pipelines,
    who_finds_that_nothing_moved_has_missed_nothing,
    sensors_are_listed_by_their_keys,
    sensor_values_come_back_as_they_went_in,
    incidents_come_newest_first,
    pages_of_incidents_go_on_where_the_last_ended,
    incidents_go_on_after_a_place_where_nothing_is_any_more,
    six_thousand_incidents_of_one_instant_are_told_in_pages,
    open_incidents_are_listed_by_pipeline_and_key,
    what_belongs_to_no_pipeline_is_kept_like_any_other,
    due_entries_come_earliest_first,
    due_entries_are_told_up_to_and_with_an_instant,
    a_deleted_due_entry_is_gone,
    due_entries_differ_by_each_part_of_their_key,
    an_unknown_pipeline_has_nothing,
    rows_of_many_pipelines_are_read_at_once_in_the_order_asked,
);

async fn the_clock_ticks_in_milliseconds_and_goes_on(t: Subject) {
    let before = t.now().await;
    assert_eq!(whole_milliseconds(before), before);
    t.pass(SignedDuration::from_millis(3));
    assert!(t.now().await >= before + SignedDuration::from_millis(3));
}

/// Reads page by page.
async fn agenda(t: &Subject, shard: Shard, limit: usize) -> Vec<AgendaRow> {
    let mut rows: Vec<AgendaRow> = Vec::new();
    loop {
        let after = rows.last().map(|row| row.pipeline.clone());
        let page = t.store.agenda(shard, after.as_ref(), limit).await.expect("agenda answers");
        let more = page.more;
        take(&mut rows, page, limit);
        if !more {
            return rows;
        }
    }
}

/// Registers pipelines in disorder, and returns their names in order.
async fn register(t: &Subject) -> Vec<PipelineId> {
    let mut names = ["p-9", "p.1", "stock", "a0", "p-10", "orders", "p_2", "p1"].map(pipeline);
    for name in &names {
        let mark = (Key::Watermark(daily()), watermark(START));
        t.create(name, vec![(Key::Pipeline, pipeline_row()), mark]).await;
    }
    names.sort();
    names.to_vec()
}

async fn the_agenda_lists_the_pipelines_of_a_shard_by_name(t: Subject) {
    let names = register(&t).await;
    for shard in (0..t.store.shard_count()).map(Shard) {
        let found: Vec<PipelineId> =
            agenda(&t, shard, 100).await.into_iter().map(|row| row.pipeline).collect();
        let here = names.iter().filter(|name| t.shard(name) == shard).cloned();
        assert_eq!(found, here.collect::<Vec<_>>());
    }
}

async fn the_agenda_is_paged(t: Subject) {
    let names = register(&t).await;
    for limit in [1, 2, 8] {
        let mut found = Vec::new();
        for shard in (0..t.store.shard_count()).map(Shard) {
            let rows = agenda(&t, shard, limit).await;
            assert!(rows.iter().all(|row| row.watermarks.len() == 1), "{rows:?}");
            found.extend(rows.into_iter().map(|row| row.pipeline));
        }
        found.sort();
        assert_eq!(found, names, "pages of {limit}");
    }
}

async fn the_agenda_tells_watermarks_with_their_revisions(t: Subject) {
    let (name, hourly) = (orders(), schedule("hourly"));
    let rows = vec![
        (Key::Pipeline, pipeline_row()),
        (Key::Watermark(daily()), watermark(minute(0))),
        (Key::Watermark(hourly.clone()), watermark(minute(5))),
        (slot_key(0), open()),
    ];
    t.create(&name, rows).await;
    let mark = Change::Put(Key::Watermark(daily()), Expect::Revision(1), watermark(minute(9)));
    t.write(&name, vec![mark]).await;
    let found = agenda(&t, t.shard(&name), 10).await;
    let [row] = found.as_slice() else { panic!("one pipeline is on the agenda: {found:?}") };
    assert_eq!(Record::Pipeline(row.record.record.clone().into()), pipeline_row());
    assert_eq!(row.record.revision, 1);
    let marks: Vec<_> =
        row.watermarks.iter().map(|(id, row)| (id, row.record.at, row.revision)).collect();
    assert_eq!(marks, [(&daily(), minute(9), 2), (&hourly, minute(5), 1)]);
}

/// Case 67: a pipeline is put, listed and deleted; what was deleted is not there.
async fn a_pipeline_without_its_row_is_not_on_the_agenda(t: Subject) {
    let name = orders();
    t.create(&name, vec![(Key::Watermark(daily()), watermark(START))]).await;
    assert_eq!(agenda(&t, t.shard(&name), 10).await, []);
    t.create(&name, vec![(Key::Pipeline, pipeline_row())]).await;
    assert_eq!(agenda(&t, t.shard(&name), 10).await.len(), 1);
    t.write(&name, vec![Change::Delete(Key::Pipeline, Expect::Revision(1))]).await;
    assert_eq!(agenda(&t, t.shard(&name), 10).await, []);
}

async fn revisions_alone_are_told_of_the_same_pipelines(t: Subject) {
    let names = register(&t).await;
    let changed = names.first().expect("some");
    t.write(changed, vec![Change::Put(Key::Pipeline, Expect::Revision(1), pipeline_row())]).await;
    for (limit, shard) in [1, 3, 8].into_iter().zip((0..t.store.shard_count()).map(Shard).cycle()) {
        let mut found: Vec<(PipelineId, u64)> = Vec::new();
        loop {
            let after = found.last().map(|(name, _)| name.clone());
            let page = t.store.revisions(shard, after.as_ref(), limit).await;
            let page = page.expect("revisions answers");
            let more = page.more;
            take(&mut found, page, limit);
            if !more {
                break;
            }
        }
        found.sort();
        let here = names.iter().filter(|name| t.shard(name) == shard);
        let here = here.map(|name| (name.clone(), if name == changed { 2 } else { 1 }));
        assert_eq!(found, here.collect::<Vec<_>>(), "pages of {limit}");
    }
}

async fn who_finds_that_nothing_moved_has_missed_nothing(t: Subject) {
    let before = t.store.moved();
    assert_eq!(t.store.moved(), before, "it does not move by itself");
    register(&t).await;
    assert!(before.is_none() || t.store.moved() != before, "groups were applied: {before:?}");
}

async fn sensors(t: &Subject, name: &PipelineId) -> BTreeMap<String, (Value, u64)> {
    let rows = t.store.sensors(name).await.expect("sensors answers");
    rows.into_iter().map(|(key, row)| (key, (row.record.value, row.revision))).collect()
}

async fn sensors_are_listed_by_their_keys(t: Subject) {
    let (name, other) = (orders(), pipeline("stock"));
    let keys = ["landed", "landed#2026-02-25", "é ☃/~:%_'\"", "LANDED", "", " landed"];
    for (number, key) in keys.iter().enumerate() {
        t.create(&name, vec![(sensor_key(key), sensor(json!(number)))]).await;
    }
    t.create(&other, vec![(sensor_key("landed"), sensor(json!("other")))]).await;
    let again = Change::Put(sensor_key("landed"), Expect::Any, sensor(json!("again")));
    t.write(&name, vec![again, Change::Delete(sensor_key("LANDED"), Expect::Any)]).await;
    let found = sensors(&t, &name).await;
    assert_eq!(found.len(), 5, "{found:?}");
    assert_eq!(found.get("landed"), Some(&(json!("again"), 2)));
    assert_eq!(found.get("é ☃/~:%_'\""), Some(&(json!(2), 1)));
    assert_eq!(sensors(&t, &other).await.len(), 1);
}

async fn sensor_values_come_back_as_they_went_in(t: Subject) {
    let values = [
        json!(null),
        json!({"nested": {"list": [1, -2.5, "x", {}], "empty": []}, "": ""}),
        json!(u64::MAX),
        json!(i64::MIN),
        json!(122.416_294_033_786_59),
        json!("\u{0}\u{1f600}\\\"\n"),
        json!("long ".repeat(20_000)),
    ];
    for (number, value) in values.into_iter().enumerate() {
        let (key, record) = (sensor_key(&number.to_string()), sensor(value));
        t.create(&orders(), vec![(key.clone(), record.clone())]).await;
        assert_eq!(t.row(&orders(), &key).await.map(|row| row.record), Some(record), "{number}");
    }
}

async fn incidents_come_newest_first(t: Subject) {
    for (name, key, at) in [("orders", "old", 1), ("stock", "new", 3), ("orders", "middle", 2)] {
        t.create(&pipeline(name), vec![(Key::Incident(key.into()), incident(minute(at)))]).await;
    }
    let page = t.store.incidents(None, 10).await.expect("incidents answers");
    let found: Vec<_> =
        page.items.iter().map(|(name, key, _)| (name.as_str(), key.as_str())).collect();
    assert_eq!(found, [("stock", "new"), ("orders", "middle"), ("orders", "old")]);
    assert!(!page.more);
    let page = t.store.incidents(Some(&orders()), 1).await.expect("incidents answers");
    let found: Vec<_> =
        page.items.iter().map(|(_, key, row)| (key.as_str(), row.revision)).collect();
    assert_eq!((found, page.more), (vec![("middle", 1)], true));
}

/// Ten pipelines with incidents of three instants each; those of every third are resolved.
async fn incidents_of_three_instants(t: &Subject) -> Vec<(IncidentPlace, bool)> {
    let mut all = Vec::new();
    for number in 0..10 {
        let name = pipeline(&format!("p{number}"));
        let rows = [1, 2, 2, 2, 3].into_iter().enumerate().map(|(place, at)| {
            let Record::Incident(record) = incident(minute(at)) else {
                panic!("an incident is one")
            };
            let is_open = (number + place) % 3 > 0;
            let state = if is_open { "acknowledged" } else { "resolved" };
            let record = IncidentRecord { state: state.into(), ..Arc::unwrap_or_clone(record) };
            let key = format!("{place}/{number} é");
            let (opened_at, pipeline) = (minute(at), name.clone());
            all.push((IncidentPlace { opened_at, pipeline, key: key.clone() }, is_open));
            (Key::Incident(key), Record::Incident(record.into()))
        });
        let rows: Vec<_> = rows.collect();
        t.create(&name, rows).await;
    }
    all.sort_by(|(one, _), (other, _)| other.cmp(one));
    all
}

async fn pages_of_incidents_go_on_where_the_last_ended(t: Subject) {
    let all = incidents_of_three_instants(&t).await;
    for (limit, is_open, only) in [
        (1, None, None),
        (7, None, None),
        (4, Some(true), None),
        (4, Some(false), None),
        (2, Some(true), Some(pipeline("p4"))),
        (100, None, Some(pipeline("p4"))),
    ] {
        let expected: Vec<_> = all
            .iter()
            .filter(|(place, is)| {
                is_open.is_none_or(|wanted| wanted == *is)
                    && only.as_ref().is_none_or(|name| place.pipeline == *name)
            })
            .map(|(place, _)| place.clone())
            .collect();
        let mut query = IncidentQuery { pipeline: only, is_open, after: None, limit };
        let mut found = Vec::new();
        loop {
            let page = t.store.incidents_by(&query).await.expect("incidents answers");
            assert!(page.items.len() == limit || !page.more, "a page is full while there is more");
            found.extend(page.items.iter().map(IncidentPlace::of));
            query.after = found.last().cloned();
            if !page.more {
                break;
            }
        }
        assert_eq!(found, expected, "pages of {limit}, open: {is_open:?}");
    }
}

/// A page goes on after an incident that was opened anew, or is gone: what it stood before comes next, and nothing twice.
async fn incidents_go_on_after_a_place_where_nothing_is_any_more(t: Subject) {
    let all = incidents_of_three_instants(&t).await;
    let (last, _) = &all[14];
    let key = Key::Incident(last.key.clone());
    t.write(&last.pipeline, vec![Change::Delete(key, Expect::Any)]).await;
    let after = Some(last.clone());
    let mut query = IncidentQuery { after, limit: 3, ..IncidentQuery::default() };
    for expected in all[15..].chunks(3) {
        let page = t.store.incidents_by(&query).await.expect("incidents answers");
        let found: Vec<_> = page.items.iter().map(IncidentPlace::of).collect();
        let expected: Vec<_> = expected.iter().map(|(place, _)| place.clone()).collect();
        assert_eq!(found, expected);
        query.after = found.last().cloned();
    }
}

/// All that miss at once are opened at once: a page is found however many have its instant.
async fn six_thousand_incidents_of_one_instant_are_told_in_pages(t: Subject) {
    let names: Vec<_> = (0..240).map(|number| pipeline(&format!("p{number:03}"))).collect();
    for name in &names {
        let row = |number: usize| (Key::Incident(format!("{number:02}")), incident(START));
        t.create(name, (0..CHANGES_MAX).map(row).collect()).await;
    }
    let count = names.len() * CHANGES_MAX;
    for limit in [count, 1_000] {
        let mut query = IncidentQuery { limit, ..IncidentQuery::default() };
        let mut found: Vec<IncidentPlace> = Vec::new();
        loop {
            let page = t.store.incidents_by(&query).await.expect("incidents answers");
            found.extend(page.items.iter().map(IncidentPlace::of));
            query.after = found.last().cloned();
            if !page.more || page.items.is_empty() {
                break;
            }
        }
        assert_eq!(found.len(), count, "pages of {limit}");
        assert!(found.is_sorted_by(|one, other| one > other), "in order, and none twice");
    }
}

async fn open_incidents_are_listed_by_pipeline_and_key(t: Subject) {
    let named = |state: &'static str| {
        let Record::Incident(record) = incident(START) else { panic!("an incident is one") };
        Record::Incident(
            IncidentRecord { state: state.into(), ..Arc::unwrap_or_clone(record) }.into(),
        )
    };
    for (name, key, state) in [
        ("stock", "b", "open"),
        ("orders", "b", "acknowledged"),
        ("orders", "a", "open"),
        ("orders", "c", "resolved"),
        ("stock", "a", "resolved"),
    ] {
        t.create(&pipeline(name), vec![(Key::Incident(key.into()), named(state))]).await;
    }
    let all = [("orders", "a"), ("orders", "b"), ("stock", "b")];
    for limit in [1, 2, 10] {
        let mut found = Vec::new();
        for shard in (0..t.store.shard_count()).map(Shard) {
            let mut after: Option<(PipelineId, String)> = None;
            loop {
                let page = t.store.open_incidents(shard, after.as_ref(), limit).await;
                let page = page.expect("open_incidents answers");
                assert!(page.items.len() <= limit);
                assert!(page.items.iter().all(|(name, ..)| t.shard(name) == shard));
                found.extend(page.items.into_iter().map(|(name, key, _)| (name, key)));
                after = found.last().cloned();
                if !page.more {
                    break;
                }
            }
        }
        found.sort();
        let found: Vec<_> = found.iter().map(|(name, key)| (name.as_str(), key.as_str())).collect();
        assert_eq!(found, all, "pages of {limit}");
    }
}

async fn what_belongs_to_no_pipeline_is_kept_like_any_other(t: Subject) {
    let system = PipelineId::system();
    t.create(&system, vec![(Key::Incident("config".into()), incident(START))]).await;
    t.write(&system, vec![Change::Append(event("broken").into())]).await;
    let key = Key::Incident("config".into());
    assert_eq!(t.row(&system, &key).await.map(|row| row.record), Some(incident(START)));
    let incidents = t.store.incidents(None, 10).await.expect("incidents answers");
    assert_eq!(incidents.items.first().map(|(name, ..)| name), Some(&system));
    let events = t.store.events(None, 0, 10).await.expect("events answers");
    assert_eq!(events.items.first().map(|event| &event.pipeline), Some(&system));
}

async fn due_entries(t: &Subject, until: Timestamp) -> Vec<DueRow> {
    let mut rows = Vec::new();
    for shard in (0..t.store.shard_count()).map(Shard) {
        let page = t.store.due(shard, until, 100).await.expect("due answers");
        assert!(page.items.is_sorted_by_key(|row| row.at), "{:?}", page.items);
        assert!(page.items.iter().all(|row| t.shard(&row.pipeline) == shard));
        rows.extend(page.items);
    }
    rows
}

async fn due_entries_come_earliest_first(t: Subject) {
    for at in [5, 1, 9, 3] {
        t.create(&orders(), vec![(due_key(at, "x"), due())]).await;
    }
    let shard = t.shard(&orders());
    let page = t.store.due(shard, minute(8), 2).await.expect("due answers");
    let found: Vec<Timestamp> = page.items.iter().map(|row| row.at).collect();
    assert_eq!((found, page.more), (vec![minute(1), minute(3)], true));
    let page = t.store.due(shard, minute(8), 3).await.expect("due answers");
    assert_eq!((page.items.len(), page.more), (3, false), "the last is not due yet");
}

async fn due_entries_are_told_up_to_and_with_an_instant(t: Subject) {
    let name = orders();
    t.create(&name, vec![(due_key(5, "slot/1"), due())]).await;
    let just_before = minute(5) - SignedDuration::from_millis(1);
    assert_eq!(due_entries(&t, just_before).await, []);
    let Record::Due(record) = due() else { panic!("a due entry is one") };
    let expected = DueRow {
        pipeline: name,
        at: minute(5),
        kind: DueKind::Closes,
        name: "slot/1".into(),
        record,
    };
    assert_eq!(due_entries(&t, minute(5)).await, [expected]);
}

async fn a_deleted_due_entry_is_gone(t: Subject) {
    let name = orders();
    t.create(&name, vec![(due_key(0, "a"), due()), (due_key(0, "b"), due())]).await;
    let again = Change::Put(due_key(0, "b"), Expect::Any, due());
    t.write(&name, vec![Change::Delete(due_key(0, "a"), Expect::Any), again]).await;
    let found = due_entries(&t, minute(0)).await;
    assert_eq!(found.iter().map(|row| row.name.as_str()).collect::<Vec<_>>(), ["b"]);
}

async fn due_entries_differ_by_each_part_of_their_key(t: Subject) {
    for name in ["orders", "stock"] {
        for at in [minute(0), minute(0) + SignedDuration::from_millis(1)] {
            for kind in DueKind::ALL {
                let rows = ["a", "b"].map(|thing| (Key::Due(at, kind, thing.into()), due()));
                t.create(&pipeline(name), rows.to_vec()).await;
            }
        }
    }
    assert_eq!(due_entries(&t, minute(1)).await.len(), 2 * 2 * DueKind::ALL.len() * 2);
}

async fn an_unknown_pipeline_has_nothing(t: Subject) {
    let nobody = pipeline("nobody");
    t.create(&orders(), vec![(sensor_key("k"), sensor(json!(1)))]).await;
    let keys = [Key::Pipeline, sensor_key("k"), Key::Watermark(daily())];
    let rows = t.store.read(&nobody, &keys).await.expect("read answers");
    assert_eq!(rows, [None, None, None]);
    assert_eq!(t.store.read(&nobody, &[]).await.expect("read answers"), []);
    assert_eq!(sensors(&t, &nobody).await, BTreeMap::new());
    let incidents = t.store.incidents(Some(&nobody), 10).await.expect("incidents answers");
    assert_eq!((incidents.items.len(), incidents.more), (0, false));
}

async fn rows_of_many_pipelines_are_read_at_once_in_the_order_asked(t: Subject) {
    let count = READ_MAX / 2;
    let name = |number: usize| pipeline(&format!("p{number}"));
    for number in (0..count).filter(|number| number % 3 != 1) {
        t.create(&name(number), vec![(sensor_key("k"), sensor(json!(number)))]).await;
    }
    // Backwards, a key that is there and one that is not, one pipeline twice, and one that is asked for nothing.
    let both = || vec![Key::Pipeline, sensor_key("k")];
    let asked = (0..count).rev().map(|number| RowsQuery { pipeline: name(number), keys: both() });
    let mut asked: Vec<_> = asked.collect();
    asked.push(RowsQuery { pipeline: name(0), keys: vec![] });
    asked.push(RowsQuery { pipeline: name(0), keys: vec![sensor_key("k")] });
    let found = t.store.read_many(&asked).await.expect("read_many answers");
    assert_eq!(found.len(), asked.len());
    for (query, rows) in asked.iter().zip(found) {
        let alone = t.store.read(&query.pipeline, &query.keys).await.expect("read answers");
        assert_eq!(rows, alone, "{query:?}");
    }
    assert_eq!(t.store.read_many(&[]).await.expect("read_many answers"), Vec::<Vec<_>>::new());
}
