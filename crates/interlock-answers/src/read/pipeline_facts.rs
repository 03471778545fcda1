//! What people know pipelines by, from their rows: so that a filter reads no declaration.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_core::id::PipelineId;
use interlock_store::{
    Key, Record, RowsQuery, StoreError, read_batches,
    record::{AboutRecord, PipelineRecord},
};

use crate::{AnswerError, ErrorCode, Reader};

/// The rows of some pipelines.
#[derive(Debug, Default)]
pub(super) struct PipelineFacts(BTreeMap<PipelineId, Arc<PipelineRecord>>);

impl PipelineFacts {
    fn about(&self, pipeline: &PipelineId) -> Option<&AboutRecord> {
        self.0.get(pipeline)?.about.as_deref()
    }

    /// Its owner.
    pub(super) fn owner(&self, pipeline: &PipelineId) -> Option<&str> {
        self.about(pipeline)?.owner.as_deref()
    }

    /// Whether it has a label with a value.
    pub(super) fn has_label(&self, pipeline: &PipelineId, name: &str, value: &str) -> bool {
        let labels = self.about(pipeline).map(|about| &about.labels);
        labels.and_then(|labels| labels.get(name)).is_some_and(|own| own == value)
    }

    /// The pipelines that it waits for.
    pub(super) fn upstreams(&self, pipeline: &PipelineId) -> &[String] {
        let agenda = self.0.get(pipeline).and_then(|row| row.agenda.as_deref());
        agenda.map_or(&[], |agenda| agenda.upstreams.as_slice())
    }
}

/// Which pipelines a question is about, by what people know them by.
#[derive(Debug)]
pub(super) struct PipelineFilter<'a> {
    owners: &'a [String],
    labels: Vec<(&'a str, &'a str)>,
}

impl<'a> PipelineFilter<'a> {
    /// Of one of these owners, with all of these labels.
    pub(super) fn of(owners: &'a [String], labels: &'a [String]) -> Result<Self, AnswerError> {
        let label = |text: &'a String| {
            text.split_once('=').ok_or_else(|| {
                let message = format!("`{text}` is not a label");
                let hint = "Write `label=name=value`.".to_owned();
                AnswerError::question(ErrorCode::BadParameter, message, hint)
            })
        };
        let labels = labels.iter().map(label).collect::<Result<_, _>>()?;
        Ok(Self { owners, labels })
    }

    /// Whether it leaves any out.
    pub(super) fn is_given(&self) -> bool {
        !self.owners.is_empty() || !self.labels.is_empty()
    }

    /// Whether a pipeline is one of them.
    pub(super) fn holds(&self, pipeline: &PipelineId, facts: &PipelineFacts) -> bool {
        let is_owner =
            || facts.owner(pipeline).is_some_and(|own| self.owners.iter().any(|it| it == own));
        (self.owners.is_empty() || is_owner())
            && self.labels.iter().all(|(name, value)| facts.has_label(pipeline, name, value))
    }
}

impl Reader<'_> {
    /// What is known of some pipelines; nothing of those without a row.
    pub(super) async fn pipeline_facts(
        &self,
        pipelines: BTreeSet<PipelineId>,
    ) -> Result<PipelineFacts, StoreError> {
        let asked = |pipeline| RowsQuery { pipeline, keys: vec![Key::Pipeline] };
        let asked: Vec<_> = pipelines.into_iter().map(asked).collect();
        let mut facts = PipelineFacts::default();
        for batch in read_batches(&asked) {
            let found = self.store.read_many(batch).await?;
            for (of, rows) in batch.iter().zip(found) {
                if let Some(Record::Pipeline(record)) =
                    rows.into_iter().flatten().next().map(|row| row.record)
                {
                    facts.0.insert(of.pipeline.clone(), record);
                }
            }
        }
        Ok(facts)
    }
}
