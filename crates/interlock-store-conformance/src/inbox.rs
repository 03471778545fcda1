//! The inbox: reports and requests from anyone, applied once by the owner.

use interlock_core::id::PipelineId;
use serde_json::json;

use super::{
    Subject,
    drive::all,
    promises,
    sample::{START, applied, applied_key, open, orders, pipeline, sensor, sensor_key, slot_key},
};
use interlock_store::{
    Change, Expect, InboxEntry, Shard,
    record::{InboxRecord, ReportRecord, SlotName},
};

promises!("inbox":
    a_post_needs_no_lease_and_no_pipeline,
    entries_come_in_the_order_they_were_posted,
    the_same_key_is_the_same_entry,
    racing_posts_of_one_key_are_one_entry,
    a_key_belongs_to_its_pipeline,
    entries_are_listed_by_shard,
    a_page_of_the_inbox_says_whether_there_is_more,
    an_entry_goes_with_its_answer_in_one_group,
    an_entry_stays_when_its_group_is_refused,
    the_entry_that_waits_under_a_key_is_read_by_it,
    an_applied_key_does_not_come_back,
    an_answer_is_read_by_its_key,
    every_kind_of_entry_comes_back_as_it_went_in,
    an_entry_that_cannot_be_read_is_in_nobodys_way,
    a_key_without_a_place_in_some_engine_has_one_in_none,
);

fn report(value: i64) -> InboxRecord {
    InboxRecord::Sensor { key: "landed".into(), value: json!(value), at: START }
}

async fn post(t: &Subject, name: &PipelineId, key: &str, record: &InboxRecord) {
    t.store.post(name, key, record).await.expect("post answers");
}

async fn inbox(t: &Subject, name: &PipelineId) -> Vec<InboxEntry> {
    let page = t.store.inbox(t.shard(name), 1_000).await.expect("inbox answers");
    assert!(!page.more, "the page holds all");
    page.items
}

async fn keys(t: &Subject, name: &PipelineId) -> Vec<String> {
    inbox(t, name).await.into_iter().map(|entry| entry.key).collect()
}

/// The changes by which an owner applies an entry.
fn apply(key: &str) -> Vec<Change> {
    vec![
        Change::Put(sensor_key("landed"), Expect::Any, sensor(json!(key))),
        Change::Put(applied_key(key), Expect::Absent, applied(json!({"did": key}))),
    ]
}

async fn a_post_needs_no_lease_and_no_pipeline(t: Subject) {
    let before = t.now().await;
    post(&t, &orders(), "k", &report(1)).await;
    let found = inbox(&t, &orders()).await;
    let [entry] = found.as_slice() else { panic!("one entry is there: {found:?}") };
    assert_eq!((&entry.pipeline, entry.key.as_str()), (&orders(), "k"));
    assert_eq!(entry.record, report(1));
    assert!(entry.received_at >= before && entry.received_at <= t.now().await);
}

async fn entries_come_in_the_order_they_were_posted(t: Subject) {
    let posted = ["z", "a", "m", "10", "9"];
    for key in posted {
        post(&t, &orders(), key, &report(1)).await;
    }
    assert_eq!(keys(&t, &orders()).await, posted);
    let numbers: Vec<u64> = inbox(&t, &orders()).await.iter().map(|entry| entry.number).collect();
    assert!(numbers.is_sorted_by(|one, next| one < next), "{numbers:?}");
}

async fn the_same_key_is_the_same_entry(t: Subject) {
    post(&t, &orders(), "k", &report(1)).await;
    let first = inbox(&t, &orders()).await;
    post(&t, &orders(), "k", &report(2)).await;
    assert_eq!(inbox(&t, &orders()).await, first, "the first report stands");
}

async fn racing_posts_of_one_key_are_one_entry(t: Subject) {
    let (name, record) = (orders(), report(1));
    all((0..16).map(|_| post(&t, &name, "k", &record)).collect()).await;
    assert_eq!(keys(&t, &name).await, ["k"]);
}

async fn a_key_belongs_to_its_pipeline(t: Subject) {
    let names = ["orders", "orders2", "stock"].map(pipeline);
    for name in &names {
        post(&t, name, "k", &report(1)).await;
    }
    t.write(&orders(), apply("k")).await;
    for (name, left) in names.iter().zip([0, 1, 1]) {
        let found = inbox(&t, name).await;
        let own = found.iter().filter(|entry| entry.pipeline == *name);
        assert_eq!(own.count(), left, "{name}");
    }
}

async fn entries_are_listed_by_shard(t: Subject) {
    let names: Vec<PipelineId> = (0..12).map(|number| pipeline(&format!("p-{number}"))).collect();
    for name in &names {
        post(&t, name, "k", &report(1)).await;
    }
    let mut found = 0;
    for shard in (0..t.store.shard_count()).map(Shard) {
        let page = t.store.inbox(shard, 100).await.expect("inbox answers");
        assert!(page.items.iter().all(|entry| t.shard(&entry.pipeline) == shard));
        found += page.items.len();
    }
    assert_eq!(found, names.len());
}

async fn a_page_of_the_inbox_says_whether_there_is_more(t: Subject) {
    for key in ["a", "b", "c"] {
        post(&t, &orders(), key, &report(1)).await;
    }
    for (limit, more) in [(1, true), (3, false), (4, false)] {
        let page = t.store.inbox(t.shard(&orders()), limit).await.expect("inbox answers");
        assert_eq!((page.items.len(), page.more), (limit.min(3), more), "{limit} of 3");
    }
}

async fn an_entry_goes_with_its_answer_in_one_group(t: Subject) {
    for key in ["a", "b"] {
        post(&t, &orders(), key, &report(1)).await;
    }
    t.write(&orders(), apply("a")).await;
    assert_eq!(keys(&t, &orders()).await, ["b"]);
    assert_eq!(t.revision(&orders(), &sensor_key("landed")).await, 1);
}

async fn an_entry_stays_when_its_group_is_refused(t: Subject) {
    post(&t, &orders(), "a", &report(1)).await;
    let mut changes = apply("a");
    changes.push(Change::Put(slot_key(0), Expect::Revision(4), open()));
    assert!(t.try_write(&orders(), changes).await.is_err());
    assert_eq!(keys(&t, &orders()).await, ["a"]);
    assert_eq!(t.revision(&orders(), &applied_key("a")).await, 0);
}

async fn the_entry_that_waits_under_a_key_is_read_by_it(t: Subject) {
    let posted = async |name: &PipelineId, key: &str| {
        t.store.posted(name, key).await.expect("posted answers")
    };
    assert_eq!(posted(&orders(), "a").await, None, "of a pipeline that nobody has heard of");
    post(&t, &orders(), "a", &report(1)).await;
    post(&t, &orders(), "a", &report(2)).await;
    post(&t, &orders(), "b", &report(3)).await;
    assert_eq!(posted(&orders(), "a").await, Some(report(1)), "the first has the key");
    assert_eq!(posted(&orders(), "b").await, Some(report(3)));
    assert_eq!(posted(&pipeline("stock"), "a").await, None, "of another pipeline");
    t.write(&orders(), apply("a")).await;
    assert_eq!(posted(&orders(), "a").await, None, "its answer stands for it");
    post(&t, &orders(), "a", &report(4)).await;
    assert_eq!(posted(&orders(), "a").await, None);
}

async fn an_applied_key_does_not_come_back(t: Subject) {
    post(&t, &orders(), "a", &report(1)).await;
    t.write(&orders(), apply("a")).await;
    post(&t, &orders(), "a", &report(2)).await;
    assert_eq!(keys(&t, &orders()).await, [""; 0]);
    assert!(t.try_write(&orders(), apply("a")).await.is_err(), "nor is it applied twice");
    t.write(&orders(), vec![Change::Delete(applied_key("a"), Expect::Any)]).await;
    post(&t, &orders(), "a", &report(3)).await;
    assert_eq!(keys(&t, &orders()).await, ["a"], "a forgotten key is a new one");
}

async fn an_answer_is_read_by_its_key(t: Subject) {
    let key = applied_key("a");
    assert_eq!(t.row(&orders(), &key).await, None, "not yet applied");
    t.write(&orders(), apply("a")).await;
    let found = t.row(&orders(), &key).await.map(|row| row.record);
    assert_eq!(found, Some(applied(json!({"did": "a"}))));
}

async fn every_kind_of_entry_comes_back_as_it_went_in(t: Subject) {
    let slot = || SlotName { schedule: "daily".into(), nominal: START };
    let records = [
        InboxRecord::Sensor { key: "é ☃".into(), value: json!({"rows": 0.1}), at: START },
        InboxRecord::Run {
            slot: Some(slot()),
            force: true,
            params: [("day".to_owned(), "1".to_owned())].into(),
            webhook: false,
        },
        InboxRecord::Run { slot: None, force: false, params: [].into(), webhook: false },
        InboxRecord::Rerun { slot: slot(), reason: "late".into() },
        InboxRecord::Cancel { slot: slot(), reason: String::new() },
        InboxRecord::Pause { reason: "moving".into(), until: Some(START) },
        InboxRecord::Resume { catchup: None },
        InboxRecord::Complete {
            run_id: "orders~daily~20260225T090000Z~1~1".into(),
            success: false,
            message: Some("exit 3".into()),
            category: None,
            metadata: [("host".to_owned(), json!("b1"))].into(),
        },
        InboxRecord::Report(Box::new(ReportRecord {
            said: "success".into(),
            rid: Some("é ☃".into()),
            at: START,
            exit_code: Some(0),
            duration_ms: None,
            body: Some("x\n".repeat(50_000)),
            source: None,
            pipeline: None,
            create: false,
            refused: None,
            fingerprint: Some("0123456789abcdef".into()),
        })),
    ];
    for (number, record) in records.iter().enumerate() {
        post(&t, &orders(), &format!("é/{number}"), record).await;
    }
    let found: Vec<InboxRecord> =
        inbox(&t, &orders()).await.into_iter().map(|entry| entry.record).collect();
    assert_eq!(found, records);
}

/// What a later version left, or nobody at all.
async fn an_entry_that_cannot_be_read_is_in_nobodys_way(t: Subject) {
    let later = r#"{"v":1,"request":"teleport","to":"the moon"}"#;
    let texts = [later, r#"{"v":60000,"request":"catchup"}"#, "no JSON at all, \"'\\ and é"];
    for (number, text) in texts.into_iter().enumerate() {
        post(&t, &orders(), &format!("odd-{number}"), &InboxRecord::read(text)).await;
    }
    post(&t, &orders(), "plain", &report(1)).await;
    let found = inbox(&t, &orders()).await;
    assert_eq!(found.len(), 4);
    for (entry, text) in found.iter().zip(texts) {
        assert!(matches!(entry.record, InboxRecord::Unreadable { .. }), "{entry:?}");
        assert_eq!(entry.record.encode(), text, "as it was found");
    }
    assert_eq!(found.last().map(|entry| &entry.record), Some(&report(1)));
    t.write(&orders(), apply("odd-0")).await;
    assert_eq!(keys(&t, &orders()).await, ["odd-1", "odd-2", "plain"]);
}

/// PostgreSQL keeps no NUL in a text: what one engine must refuse all do, and before anything of the call is applied.
async fn a_key_without_a_place_in_some_engine_has_one_in_none(t: Subject) {
    t.store.post(&orders(), "a\0b", &report(1)).await.expect_err("a key with a NUL");
    let mut groups = Vec::new();
    for key in ["ab", "a\0b"] {
        let changes = vec![Change::Put(sensor_key(key), Expect::Any, sensor(json!(1)))];
        groups.push(t.group(&orders(), changes).await);
    }
    let refused = t.store.commit(groups).await;
    let error = refused.expect_err("a sensor with a NUL");
    assert!(!error.is_retryable && error.message.contains("NUL"), "{error}");
    assert_eq!(t.store.sensors(&orders()).await.expect("sensors answers").len(), 0, "none of it");
}
