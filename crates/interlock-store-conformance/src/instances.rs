//! What instances say of themselves: the last word of each, also of those that are gone.

use jiff::SignedDuration;

use super::{
    Subject, promises,
    sample::{PAST_SHORT, START},
};
use interlock_store::record::{InstanceRecord, LeaseRecord, LoopRecord};

promises!("instances":
    an_instance_is_listed_with_what_it_said_last,
    one_that_says_nothing_any_more_is_still_listed,
);

fn said(pid: u32, age: i64) -> InstanceRecord {
    InstanceRecord {
        version: "0.1.0".into(),
        roles: vec!["engine".into(), "api".into()],
        host: "ledger-1".into(),
        pid,
        started_at: START,
        address: Some("https://10.0.0.7:8420".into()),
        certificate: Some("5f1c".into()),
        public_key: Some("bXkga2V5".into()),
        jobs_host: Some("ledger-1-0badcafe".into()),
        loops: vec![LoopRecord {
            name: "engine".into(),
            age: SignedDuration::from_millis(age),
            bound: SignedDuration::from_secs(30),
            late: age > 30_000,
        }],
        clock_skew: Some(SignedDuration::from_millis(-7)),
        leases: vec![LeaseRecord { role: "engine".into(), shard: 3 }],
    }
}

async fn report(t: &Subject, instance: &str, record: &InstanceRecord) {
    t.store.report_instance(instance, record).await.expect("report_instance answers");
}

async fn an_instance_is_listed_with_what_it_said_last(t: Subject) {
    assert_eq!(t.store.instances().await.expect("instances answers"), []);
    report(&t, "b:2", &said(2, 10)).await;
    report(&t, "a:1", &said(1, 20)).await;
    report(&t, "b:2", &said(2, 40_000)).await;
    let now = t.now().await;
    let found = t.store.instances().await.expect("instances answers");
    let listed: Vec<_> = found.iter().map(|row| (row.instance.as_str(), &row.record)).collect();
    assert_eq!(listed, [("a:1", &said(1, 20)), ("b:2", &said(2, 40_000))]);
    assert!(found.iter().all(|row| row.said_at <= now), "by the store's clock: {found:?}");
}

async fn one_that_says_nothing_any_more_is_still_listed(t: Subject) {
    report(&t, "gone:1", &said(1, 0)).await;
    let before = t.now().await;
    t.pass(PAST_SHORT);
    report(&t, "here:2", &said(2, 0)).await;
    let found = t.store.instances().await.expect("instances answers");
    let said_at: Vec<_> = found.iter().map(|row| row.said_at <= before).collect();
    assert_eq!(said_at, [true, false], "{found:?}");
}
