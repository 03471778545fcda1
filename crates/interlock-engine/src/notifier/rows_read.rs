//! The rows that decide about many notifications, read at once.

use std::collections::BTreeMap;

use interlock_core::{id::PipelineId, incident::Alert};
use interlock_store::{
    Key, OutboxRow, Record, Row, Store, StoreError, record::IncidentRecord, together,
};

/// Rows by pipeline and key, as they were a moment ago; those that are not there are missing.
#[derive(Debug, Default)]
pub(super) struct RowsRead(BTreeMap<(PipelineId, Key), Row<Record>>);

impl RowsRead {
    /// Reads rows of many pipelines.
    pub(super) async fn read(
        store: &dyn Store,
        wanted: BTreeMap<PipelineId, Vec<Key>>,
    ) -> Result<Self, StoreError> {
        let asked = wanted.iter().map(|(pipeline, keys)| store.read(pipeline, keys)).collect();
        let found = together(asked).await?;
        let mut rows = BTreeMap::new();
        for ((pipeline, keys), found) in wanted.into_iter().zip(found) {
            for (key, row) in keys.into_iter().zip(found) {
                rows.extend(row.map(|row| ((pipeline.clone(), key), row)));
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
