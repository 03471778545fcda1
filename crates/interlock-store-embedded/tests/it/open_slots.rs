//! Open slots, by their slots where few pipelines have any and by the names where many have: one answer.

use interlock_core::id::PipelineId;
use interlock_store::{
    Change, Expect, Group, Record, Shard, Store as _, Writer, block_on, record::SlotRecord,
};
use interlock_store_embedded::EmbeddedStore;

use crate::cast::{daemon, slot, slot_key, writer};

fn named(number: u64) -> PipelineId {
    PipelineId::parse(&format!("p-{number:04}")).unwrap()
}

/// Writes a slot of each pipeline.
fn put(
    store: &EmbeddedStore,
    right: Writer,
    numbers: impl Iterator<Item = u64>,
    (expect, record): (Expect, SlotRecord),
) {
    let groups = numbers.map(|number| {
        let put = Change::Put(slot_key(0), expect, Record::Slot(record.clone().into()));
        Group { pipeline: named(number), writer: right, changes: vec![put] }
    });
    let results = block_on(store.commit(groups.collect())).unwrap();
    assert!(results.iter().all(Result::is_ok));
}

/// The pipelines with open slots, as pages of thirty tell them.
fn open(store: &EmbeddedStore) -> Vec<PipelineId> {
    let (mut found, mut last) = (Vec::new(), None);
    loop {
        let page = block_on(store.open_slots(Shard(0), last.as_ref(), 30)).unwrap();
        found.extend(page.items.iter().map(|row| row.pipeline.clone()));
        last =
            page.items.last().map(|row| (row.pipeline.clone(), row.nominal, row.schedule.clone()));
        if !page.more {
            return found;
        }
    }
}

#[test]
fn few_and_many_are_told_alike() {
    let folder = tempfile::tempdir().unwrap();
    let store = daemon(folder.path());
    let right = writer(&store);
    assert!(open(&store).is_empty());
    // Numbers are given in the order of arrival, names are asked for in theirs.
    put(&store, right, (0..1_100).rev(), (Expect::Absent, slot(0)));
    let all: Vec<_> = (0..1_100).map(named).collect();
    assert_eq!(open(&store), all, "many");
    let disposition = Some("completed".into());
    let closed = SlotRecord { state: "closed".into(), disposition, ..slot(0) };
    let others = (0..1_100).filter(|number| number % 3 != 0);
    put(&store, right, others, (Expect::Revision(1), closed));
    let third: Vec<_> = (0..1_100).filter(|number| number % 3 == 0).map(named).collect();
    assert_eq!(open(&store), third, "few");
}
