//! The rows that decide about many notifications, read at once.

use std::collections::BTreeMap;

use interlock_core::{id::PipelineId, incident::Alert};
use interlock_store::{
    Key, OutboxRow, Record, Row, RowsQuery, Store, StoreError, read_apart, read_batches,
    record::IncidentRecord,
};

/// Rows by pipeline and key, as they were a moment ago; those that are not there are missing.
#[derive(Debug, Default)]
pub(super) struct RowsRead(BTreeMap<(PipelineId, Key), Row<Record>>);

impl RowsRead {
    /// Reads rows of many pipelines. Those of one that cannot be read are missing: its alert is told rather than held back, and no other
    /// waits for it (S21).
    pub(super) async fn read(
        store: &dyn Store,
        wanted: BTreeMap<PipelineId, Vec<Key>>,
    ) -> Result<Self, StoreError> {
        let query = |(pipeline, keys)| RowsQuery { pipeline, keys };
        let queries: Vec<RowsQuery> = wanted.into_iter().map(query).collect();
        let mut rows = BTreeMap::new();
        for batch in read_batches(&queries) {
            for (query, found) in batch.iter().zip(read_apart(store, batch).await?) {
                let found = found.unwrap_or_else(|error| {
                    tracing::error!(pipeline = %query.pipeline, %error, "what an alert is about cannot be read");
                    vec![]
                });
                for (key, row) in query.keys.iter().zip(found) {
                    rows.extend(row.map(|row| ((query.pipeline.clone(), key.clone()), row)));
                }
            }
        }
        Ok(Self(rows))
    }

    pub(super) fn get(&self, pipeline: &PipelineId, key: Key) -> Option<&Row<Record>> {
        self.0.get(&(pipeline.clone(), key))
    }

    /// The incident that an alert tells of.
    pub(super) fn incident(&self, row: &OutboxRow, alert: &Alert) -> Option<&IncidentRecord> {
        let key = Key::Incident(alert.incident()?.to_owned());
        let Record::Incident(incident) = &self.get(&row.pipeline, key)?.record else { return None };
        Some(incident)
    }
}
