//! The open incidents that an engine knows: all of its shard's when it begins, and again those of pipelines that others wrote to.

use std::collections::BTreeSet;

use interlock_core::id::PipelineId;
use interlock_store::{IncidentPlace, IncidentQuery};

use crate::{
    engine::{Engine, EngineError},
    load::PAGE,
    reload::ONE_BY_ONE_MAX,
};

/// Open incidents of one pipeline that are read first.
const FEW: usize = 32;

impl Engine {
    /// Loads the incidents that are open, of these pipelines or of all.
    pub(crate) async fn load_incidents(
        &mut self,
        only: Option<&BTreeSet<PipelineId>>,
    ) -> Result<(), EngineError> {
        let mut last: Option<(PipelineId, String)> = None;
        loop {
            let page = self.store.open_incidents(self.writer.shard, last.as_ref(), PAGE).await;
            let page = page.map_err(EngineError::of_one_pipeline)?;
            for (pipeline, key, row) in page.items {
                last = Some((pipeline.clone(), key.clone()));
                if only.is_none_or(|only| only.contains(&pipeline)) {
                    let state = self.pipelines.get_mut(&pipeline);
                    state.incidents.insert(key, (row.record.into(), row.revision));
                }
            }
            let is_past =
                only.zip(last.as_ref()).is_some_and(|(only, (at, _))| Some(at) > only.last());
            if !page.more || is_past {
                return Ok(());
            }
            self.show_progress().await?;
        }
    }

    /// Forgets what it thought of the incidents of pipelines and loads them again; of many, from the list of the shard's.
    pub(crate) async fn reload_incidents_of(
        &mut self,
        pipelines: &BTreeSet<PipelineId>,
    ) -> Result<(), EngineError> {
        if pipelines.len() <= ONE_BY_ONE_MAX {
            for pipeline in pipelines {
                self.reload_incidents(pipeline).await?;
            }
            return Ok(());
        }
        for pipeline in pipelines {
            self.forget_incidents(pipeline);
        }
        self.load_incidents(Some(pipelines)).await
    }

    /// The same of one.
    pub(crate) async fn reload_incidents(&mut self, name: &PipelineId) -> Result<(), EngineError> {
        self.forget_incidents(name);
        match self.list_incidents(name).await {
            Err(EngineError::Damaged(_)) => self.search_incidents(name).await,
            listed => listed,
        }
    }

    /// Takes over the open incidents of a pipeline from the list of the shard's.
    async fn list_incidents(&mut self, name: &PipelineId) -> Result<(), EngineError> {
        // Every key comes after the empty one. Most pipelines have few; those of others, which come next, are read for nothing.
        let (mut last, mut limit) = ((name.clone(), String::new()), FEW);
        loop {
            let page = self.store.open_incidents(self.writer.shard, Some(&last), limit).await;
            let page = page.map_err(EngineError::of_one_pipeline)?;
            for (pipeline, key, row) in page.items {
                if pipeline != *name {
                    return Ok(());
                }
                last.1.clone_from(&key);
                let state = self.pipelines.get_mut(name);
                state.incidents.insert(key, (row.record.into(), row.revision));
            }
            if !page.more {
                return Ok(());
            }
            limit = PAGE;
        }
    }

    /// The same without that list, of which a page cannot be read because of others.
    async fn search_incidents(&mut self, name: &PipelineId) -> Result<(), EngineError> {
        let (pipeline, is_open) = (Some(name.clone()), Some(true));
        let mut query = IncidentQuery { pipeline, is_open, after: None, limit: PAGE };
        loop {
            let page = self.store.incidents_by(&query).await;
            let page = page.map_err(EngineError::of_one_pipeline)?;
            query.after = page.items.last().map(IncidentPlace::of);
            let state = self.pipelines.get_mut(name);
            for (_, key, row) in page.items {
                state.incidents.insert(key, (row.record.into(), row.revision));
            }
            if !page.more {
                return Ok(());
            }
        }
    }

    fn forget_incidents(&mut self, pipeline: &PipelineId) {
        self.pipelines.get_mut(pipeline).incidents.clear();
        self.remembered.gaps.forget(pipeline);
    }
}
