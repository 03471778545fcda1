//! The views that are ready for dashboards.

use std::sync::Arc;

use interlock_private_server::PrivatePostgres;
use interlock_store::{Change, Expect, Key, Record, Store, memory::MemoryStore};

use crate::cast::{Grown, archive, connect, hour, hourly, slot, texts};

#[tokio::test]
async fn views_count_what_the_ledger_says() {
    let store: Arc<dyn Store> = Arc::new(MemoryStore::new(1, Arc::new(|| hour(0))));
    let server = PrivatePostgres::start();
    let grown = Grown::new(Arc::clone(&store)).await;
    // The cast begins at nine in the morning: fifteen hours are left of the first day.
    grown.open(0..20).await;
    grown.close(0..20).await;
    let mut missed = slot("completed", 20);
    missed.disposition = Some("missed".into());
    missed.marks.missed_at = Some(hour(21));
    let key = Key::Slot(hourly(), hour(20));
    grown.commit(vec![Change::Put(key, Expect::Absent, Record::Slot(missed.into()))]).await;
    archive(&store, &server).await;
    let client = connect(&server).await;
    let daily = texts(
        &client,
        "SELECT concat_ws(' ', date, slots, completed, failed, missed, completed_late, with_sla, within_sla)
         FROM archive.daily_sla ORDER BY date",
    );
    // Every other run takes twenty minutes, and ten are allowed.
    assert_eq!(daily.await, ["2026-02-25 15 15 0 0 7 15 8", "2026-02-26 6 5 0 1 3 6 2"]);
    let missed = texts(
        &client,
        "SELECT concat_ws(' ', pipeline_id, schedule_id, missed) FROM archive.missed_by_pipeline",
    );
    assert_eq!(missed.await, ["orders hourly 13"], "one slot and two spans of six");
    let durations =
        texts(&client, "SELECT concat_ws(' ', runs, p50, longest::int) FROM archive.run_durations");
    assert_eq!(durations.await, ["20 630 1200"]);
}
