//! Declarations by version, read from the store through a small cache.
//!
//! Nothing else keeps whole declarations in memory: what the agenda needs is in the pipelines' rows, so a
//! declaration is asked for only when the controller acts on a slot. A recorded slot keeps its version
//! (S16), and so do the versions that the store keeps: the files may say something else by now.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
};

use interlock_config::{SystemZones, ZoneSource as _, decode_version};
use interlock_core::{id::PipelineId, pipeline::Pipeline, zone::Zone};
use interlock_engine::{
    Declaration,
    seam::{Specs, Task},
};
use interlock_store::{Key, Record, Store, record::version_text};

use crate::environment;

/// How many declarations are kept: some kilobytes each.
const KEPT_MAX: usize = 2_048;

/// The declarations that the store keeps.
#[derive(Clone)]
pub(crate) struct StoredSpecs {
    store: Arc<dyn Store>,
    zones: Arc<SystemZones>,
    cache: Arc<Mutex<Cache>>,
    /// How many are kept, for whoever must not wait.
    kept: Arc<AtomicU64>,
}

impl StoredSpecs {
    pub(crate) fn new(store: Arc<dyn Store>, zones: Arc<SystemZones>) -> Self {
        Self { store, zones, cache: Arc::default(), kept: Arc::default() }
    }

    /// How many declarations are kept, as a number that can be read at any time.
    pub(crate) fn kept(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.kept)
    }

    async fn read(&self, name: &PipelineId, version: u64) -> Result<Declaration, String> {
        let rows = self.store.read(name, &[Key::Version(version)]).await;
        let rows = rows.map_err(|error| format!("the store failed: {error}"))?;
        let Some(Some(row)) = rows.into_iter().next() else {
            return Err(format!("the ledger does not have its version {}", version_text(version)));
        };
        let Record::Version(kept) = row.record else {
            return Err("the ledger has something else in place of its version".to_owned());
        };
        let environment = environment::variable;
        let found = decode_version(&kept.source, &kept.context, &*self.zones, &environment)?;
        let (pipeline, version) = (Arc::new(found.pipeline), found.version);
        Ok(Declaration { pipeline, version, source: Arc::unwrap_or_clone(kept) })
    }
}

impl Specs for StoredSpecs {
    fn zone(&self, name: &str) -> Option<Zone> {
        self.zones.zone(name)
    }

    fn today(&self, name: &PipelineId, version: u64) -> Task<Result<Declaration, String>> {
        let (this, name) = (self.clone(), name.clone());
        Box::pin(async move { this.read(&name, version).await })
    }

    fn pipeline(&self, name: &PipelineId, version: u64) -> Task<Result<Arc<Pipeline>, String>> {
        let key = (name.clone(), version);
        let lock = || self.cache.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(found) = lock().get(&key) {
            return Box::pin(std::future::ready(Ok(found)));
        }
        let this = self.clone();
        Box::pin(async move {
            let found = this.read(&key.0, key.1).await?.pipeline;
            let mut cache = this.cache.lock().unwrap_or_else(PoisonError::into_inner);
            cache.put(key, Arc::clone(&found));
            this.kept.store(cache.found.len() as u64, Relaxed);
            Ok(found)
        })
    }
}

type Name = (PipelineId, u64);

/// Declarations in the order of their last use.
#[derive(Debug, Default)]
struct Cache {
    found: BTreeMap<Name, (u64, Arc<Pipeline>)>,
    /// Who was used when, oldest first.
    used: BTreeMap<u64, Name>,
    clock: u64,
}

impl Cache {
    fn get(&mut self, key: &Name) -> Option<Arc<Pipeline>> {
        let (used, pipeline) = self.found.get_mut(key)?;
        self.clock += 1;
        self.used.remove(used);
        *used = self.clock;
        self.used.insert(self.clock, key.clone());
        Some(Arc::clone(pipeline))
    }

    fn put(&mut self, key: Name, pipeline: Arc<Pipeline>) {
        self.clock += 1;
        self.used.insert(self.clock, key.clone());
        if let Some((before, _)) = self.found.insert(key, (self.clock, pipeline)) {
            self.used.remove(&before);
        }
        while self.found.len() > KEPT_MAX
            && let Some((_, oldest)) = self.used.pop_first()
        {
            self.found.remove(&oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use interlock_config::{Context, parse_pipeline};

    use super::*;

    fn pipeline(number: usize) -> (Name, Arc<Pipeline>) {
        let text =
            format!("name: p-{number}\nschedule: \"0 3 * * *\"\ntrigger: {{type: external}}");
        let (context, zones) = (Context::default(), SystemZones::new());
        let (loaded, _) = parse_pipeline("p.yaml".as_ref(), &text, &context, &zones, &|_| None);
        let pipeline = loaded.unwrap().pipeline;
        ((pipeline.name.clone(), 1), Arc::new(pipeline))
    }

    #[test]
    fn what_was_used_last_is_kept() {
        let (mut cache, sample) = (Cache::default(), pipeline(0).1);
        let name = |number: usize| (PipelineId::parse(&format!("p-{number}")).unwrap(), 1);
        for number in 0..KEPT_MAX {
            cache.put(name(number), Arc::clone(&sample));
        }
        assert!(cache.get(&name(0)).is_some());
        cache.put(name(KEPT_MAX), Arc::clone(&sample));
        cache.put(name(KEPT_MAX), sample);
        assert!(cache.get(&name(0)).is_some() && cache.get(&name(1)).is_none());
        assert_eq!((cache.found.len(), cache.used.len()), (KEPT_MAX, KEPT_MAX));
    }
}
