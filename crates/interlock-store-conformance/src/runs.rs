//! Runs: newest first, and by what they are about (case 69).

use super::{
    Subject, promises,
    sample::{START, daily, minute, orders, pipeline, run, run_key, schedule},
};
use interlock_store::{Change, Expect, Key, RunKey, RunQuery, RunRow};

promises!("runs":
    runs_come_newest_first,
    runs_created_at_once_come_in_one_order,
    runs_can_be_asked_for_by_what_they_are,
    a_run_is_read_by_its_key,
    a_run_is_created_once,
    a_page_of_runs_says_whether_there_is_more,
    pages_of_runs_go_on_where_the_last_ended,
);

async fn ids(t: &Subject, query: RunQuery) -> Vec<String> {
    let page = t.store.runs(&RunQuery { limit: 100, ..query }).await.expect("runs answers");
    assert!(!page.more, "the page holds all");
    page.items.iter().map(|row| row.key.id(&row.pipeline)).collect()
}

/// Case 69: the list.
async fn runs_come_newest_first(t: Subject) {
    for (name, at, created) in [("orders", 0, 5), ("orders", 1, 9), ("stock", 2, 7)] {
        let row = (Key::Run(run_key(at, 1)), run("RUNNING", "scheduler", minute(created)));
        t.create(&pipeline(name), vec![row]).await;
    }
    let id = |name: &str, at| run_key(at, 1).id(&pipeline(name));
    let expected = [id("orders", 1), id("stock", 2), id("orders", 0)];
    assert_eq!(ids(&t, RunQuery::default()).await, expected);
}

async fn runs_created_at_once_come_in_one_order(t: Subject) {
    let key = |id: &str, at, generation, attempt| RunKey {
        schedule: schedule(id),
        nominal: minute(at),
        generation,
        attempt,
    };
    let expected = [
        ("stock", key("daily", 0, 1, 1)),
        ("orders", key("hourly", 0, 1, 1)),
        ("orders", key("daily", 5, 1, 1)),
        ("orders", key("daily", 0, 2, 1)),
        ("orders", key("daily", 0, 1, 10)),
        ("orders", key("daily", 0, 1, 9)),
    ];
    for (name, key) in expected.iter().cycle().skip(2).step_by(5).take(6) {
        let row = (Key::Run(key.clone()), run("RUNNING", "scheduler", START));
        t.create(&pipeline(name), vec![row]).await;
    }
    let expected = expected.map(|(name, key)| key.id(&pipeline(name)));
    assert_eq!(ids(&t, RunQuery::default()).await, expected);
}

async fn runs_can_be_asked_for_by_what_they_are(t: Subject) {
    let rows = vec![
        (Key::Run(run_key(0, 1)), run("FAILED", "scheduler", minute(0))),
        (Key::Run(run_key(0, 2)), run("COMPLETED", "retry", minute(1))),
        (Key::Run(run_key(1, 1)), run("COMPLETED", "scheduler", minute(2))),
    ];
    t.create(&orders(), rows).await;
    let elsewhere = (Key::Run(run_key(0, 1)), run("COMPLETED", "scheduler", minute(3)));
    t.create(&pipeline("stock"), vec![elsewhere]).await;
    let of_orders = || RunQuery { pipeline: Some(orders()), ..RunQuery::default() };
    let id = |at, attempt| run_key(at, attempt).id(&orders());
    assert_eq!(ids(&t, of_orders()).await, [id(1, 1), id(0, 2), id(0, 1)]);
    let slot = RunQuery { slot: Some((daily(), minute(0))), ..of_orders() };
    assert_eq!(ids(&t, slot).await, [id(0, 2), id(0, 1)]);
    let completed = RunQuery { status: Some("COMPLETED".into()), ..of_orders() };
    assert_eq!(ids(&t, completed.clone()).await, [id(1, 1), id(0, 2)]);
    let both = RunQuery { trigger_type: Some("retry".into()), ..completed };
    assert_eq!(ids(&t, both).await, [id(0, 2)]);
    let anywhere = RunQuery { slot: Some((daily(), minute(0))), ..RunQuery::default() };
    assert_eq!(ids(&t, anywhere).await.len(), 3);
    let nobody = RunQuery { pipeline: Some(pipeline("nobody")), ..RunQuery::default() };
    assert_eq!(ids(&t, nobody).await, [""; 0]);
}

/// Case 69: the direct lookup.
async fn a_run_is_read_by_its_key(t: Subject) {
    let (key, record) = (Key::Run(run_key(0, 1)), run("RUNNING", "scheduler", START));
    t.create(&orders(), vec![(key.clone(), record.clone())]).await;
    assert_eq!(t.row(&orders(), &key).await.map(|row| row.record), Some(record));
    assert_eq!(t.row(&orders(), &Key::Run(run_key(0, 2))).await, None);
}

/// S2: refused by key in the store, not by memory.
async fn a_run_is_created_once(t: Subject) {
    let create =
        || Change::Put(Key::Run(run_key(0, 1)), Expect::Absent, run("PENDING", "manual", START));
    t.write(&orders(), vec![create()]).await;
    assert!(t.try_write(&orders(), vec![create()]).await.is_err());
}

async fn a_page_of_runs_says_whether_there_is_more(t: Subject) {
    let row = |at| (Key::Run(run_key(at, 1)), run("RUNNING", "scheduler", minute(at)));
    t.create(&orders(), (0..3).map(row).collect()).await;
    for (limit, more) in [(1, true), (2, true), (3, false), (4, false)] {
        let query = RunQuery { limit, ..RunQuery::default() };
        let page = t.store.runs(&query).await.expect("runs answers");
        assert_eq!((page.items.len(), page.more), (limit.min(3), more), "{limit} of 3");
    }
}

/// Runs of two pipelines over three hours, many of them made at one instant.
async fn many_runs(t: &Subject) {
    for name in ["orders", "stock"] {
        for at in 0..12 {
            let rows = (1..=2).map(|attempt| {
                let status = if attempt == 1 { "FAILED" } else { "COMPLETED" };
                let kind = if attempt == 1 { "scheduler" } else { "retry" };
                (Key::Run(run_key(at, attempt)), run(status, kind, minute(at / 4 * 60)))
            });
            t.create(&pipeline(name), rows.collect()).await;
        }
    }
}

async fn pages_of_runs_go_on_where_the_last_ended(t: Subject) {
    many_runs(&t).await;
    let of_orders = RunQuery { pipeline: Some(orders()), ..RunQuery::default() };
    let of_slot = RunQuery { slot: Some((daily(), minute(3))), ..RunQuery::default() };
    for (asked, count) in [
        (RunQuery::default(), 48),
        (RunQuery { status: Some("FAILED".into()), ..RunQuery::default() }, 24),
        (RunQuery { status: Some("COMPLETED".into()), ..RunQuery::default() }, 24),
        (RunQuery { trigger_type: Some("retry".into()), ..RunQuery::default() }, 24),
        (RunQuery { status: Some("FAILED".into()), ..of_orders.clone() }, 12),
        (of_orders, 24),
        (of_slot, 4),
    ] {
        let all = ids(&t, asked.clone()).await;
        assert_eq!(all.len(), count, "{asked:?}");
        let mut query = RunQuery { limit: 5, ..asked };
        let mut found = Vec::new();
        loop {
            let page = t.store.runs(&query).await.expect("runs answers");
            query.after = page.items.last().map(RunRow::place);
            found.extend(page.items.iter().map(|row| row.key.id(&row.pipeline)));
            assert!(found.len() <= all.len(), "no run comes twice: {query:?}");
            if !page.more {
                break;
            }
        }
        assert_eq!(found, all, "{query:?}");
    }
}
