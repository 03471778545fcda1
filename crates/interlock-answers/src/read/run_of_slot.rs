//! The runs of slots, each in the order in which they were made.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::id::SlotKey;
use interlock_store::{
    Key, LedgerEntry, LedgerRow, Record, Row, RowsQuery, RunKey, RunQuery, RunRow, StoreError,
    for_each, read_batches,
};

use super::slot::slot_key;
use crate::Reader;

/// More attempts at one slot than are ever made.
const ATTEMPTS_MAX: usize = 10_000;

impl Reader<'_> {
    /// The runs of a slot.
    pub(super) async fn runs_of(&self, slot: &SlotKey) -> Result<Vec<RunRow>, StoreError> {
        let query = RunQuery {
            pipeline: Some(slot.pipeline.clone()),
            slot: Some((slot.schedule.clone(), slot.nominal)),
            limit: ATTEMPTS_MAX,
            ..RunQuery::default()
        };
        let mut runs = self.store.runs(&query).await?.items;
        runs.sort_by_key(|run| (run.key.generation, run.key.attempt));
        Ok(runs)
    }

    /// The runs of those of some rows that are slots. A slot says how many attempts its generation has had, so that those of the
    /// first are read by their keys, many slots at once.
    pub(super) async fn runs_of_slots(
        &self,
        rows: &[LedgerRow],
    ) -> Result<BTreeMap<SlotKey, Vec<RunRow>>, StoreError> {
        let mut found = BTreeMap::new();
        let (mut asked, mut again) = (Vec::new(), Vec::new());
        for row in rows {
            let LedgerEntry::Slot(slot) = &row.entry else { continue };
            if slot.generation > 1 {
                again.push(slot_key(row));
                continue;
            }
            let run = |attempt| {
                let (schedule, nominal) = (row.schedule.clone(), row.nominal);
                Key::Run(RunKey { schedule, nominal, generation: 1, attempt })
            };
            let keys = (1..=slot.attempt).map(run).collect();
            asked.push(RowsQuery { pipeline: row.pipeline.clone(), keys });
        }
        for batch in read_batches(&asked) {
            for (of, rows) in batch.iter().zip(self.store.read_many(batch).await?) {
                let all = of.keys.iter().zip(rows);
                for run in all.filter_map(|(key, row)| run_row(of, key, row?)) {
                    let RunKey { schedule, nominal, .. } = run.key.clone();
                    let key = SlotKey { pipeline: of.pipeline.clone(), schedule, nominal };
                    found.entry(key).or_insert_with(Vec::new).push(run);
                }
            }
        }
        // How many attempts an earlier generation had, its slot no longer says.
        let runs = for_each(again, |key| async move {
            let runs = self.runs_of(&key).await?;
            Ok((key, runs))
        });
        found.extend(runs.await?);
        Ok(found)
    }
}

/// A run out of its row.
fn run_row(of: &RowsQuery, key: &Key, row: Row<Record>) -> Option<RunRow> {
    let (Key::Run(key), Record::Run(record)) = (key, row.record) else { return None };
    Some(RunRow {
        pipeline: of.pipeline.clone(),
        key: key.clone(),
        record: Arc::unwrap_or_clone(record),
        revision: row.revision,
    })
}
