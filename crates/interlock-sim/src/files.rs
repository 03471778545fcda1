//! The declarations of a simulated project: every version that there ever was, and which are in the files now.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_config::{Context, SystemZones, ZoneSource, parse_pipeline};
use interlock_core::{calendar::Calendar, id::PipelineId, pipeline::Pipeline, zone::Zone};
use interlock_engine::{
    Changes, Declaration, Engine,
    seam::{Specs, Task},
};
use interlock_store::record::VersionRecord;
use jiff::{Timestamp, civil::Date, tz::TimeZone};

use crate::{
    tap::Mutation,
    truth::{MOVING, Truth},
};

/// The files, and all that they ever said.
#[derive(Clone, Debug)]
pub struct Files(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    zones: Zones,
    mutation: Option<Mutation>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    now: BTreeMap<PipelineId, Declaration>,
    truths: BTreeMap<PipelineId, Arc<Truth>>,
    ever: BTreeMap<(u64, PipelineId), Version>,
    /// The days of the calendar.
    holidays: BTreeSet<Date>,
}

/// The zones of the system, and one whose data changes.
#[derive(Debug)]
struct Zones {
    system: SystemZones,
    moving: Mutex<Zone>,
}

/// What the data of the zone that changes says: first this, then that.
const EDITIONS: [&str; 2] = ["<+02>-2<+03>,M3.5.0/3,M10.5.0/4", "<+03>-3"];

impl Zones {
    fn new() -> Self {
        Self { system: SystemZones::new(), moving: Mutex::new(edition(0)) }
    }

    fn moving(&self) -> MutexGuard<'_, Zone> {
        self.moving.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn edition(number: usize) -> Zone {
    let time_zone = EDITIONS.get(number % 2).and_then(|text| TimeZone::posix(text).ok());
    Zone::new(MOVING, time_zone.unwrap_or(TimeZone::UTC))
}

impl ZoneSource for Zones {
    fn zone(&self, name: &str) -> Option<Zone> {
        if name == MOVING { Some(self.moving().clone()) } else { self.system.zone(name) }
    }

    fn names(&self) -> &[String] {
        self.system.names()
    }
}

/// What a version says, to the engine and really.
#[derive(Clone, Debug)]
struct Version {
    declared: Declaration,
    /// The days of the calendar in it.
    holidays: BTreeSet<Date>,
    truth: Option<Arc<Truth>>,
}

impl Default for Files {
    fn default() -> Self {
        Self::mistaken(None)
    }
}

impl Files {
    /// No files yet; what is written is perhaps not what is meant, to see that caught.
    pub fn mistaken(mutation: Option<Mutation>) -> Self {
        let shared = Shared { zones: Zones::new(), mutation, inner: Mutex::default() };
        Self(Arc::new(shared))
    }

    /// Other days are the calendar's; the files that name it are written again by whoever calls this.
    pub fn set_holidays(&self, days: BTreeSet<Date>) {
        self.lock().holidays = days;
    }

    /// The zone that changes has other data from now on.
    pub fn change_zone(&self, number: usize) {
        *self.0.zones.moving() = edition(number);
    }

    /// Writes a file.
    pub fn write(&self, text: &str, since: Timestamp) -> Result<Declaration, String> {
        let holidays = self.lock().holidays.clone();
        let declared = self.parse(text, &holidays, since)?;
        let name = declared.pipeline.name.clone();
        let version = Version { declared: declared.clone(), holidays, truth: None };
        let mut inner = self.lock();
        inner.ever.insert((declared.version, name.clone()), version);
        inner.now.insert(name, declared.clone());
        Ok(declared)
    }

    /// What a text says by the zone data of now.
    fn parse(
        &self,
        text: &str,
        holidays: &BTreeSet<Date>,
        since: Timestamp,
    ) -> Result<Declaration, String> {
        let no_environment = |_: &str| None;
        let (name, dates) = ("holidays".to_owned(), holidays.clone());
        let calendar = Calendar { name: name.clone(), dates, ..Calendar::default() };
        let mut context = Context::default();
        context.calendars.insert(name, Arc::new(calendar));
        let path = Path::new("pipeline.yaml");
        let (loaded, problems) =
            parse_pipeline(path, text, &context, &self.0.zones, &no_environment);
        let loaded = loaded.ok_or_else(|| format!("{problems:?}\n{text}"))?;
        let source = VersionRecord { since, source: text.to_owned(), context: BTreeMap::new() };
        Ok(Declaration { pipeline: Arc::new(loaded.pipeline), version: loaded.version, source })
    }

    /// What a version says by the zone data of now, which may be another version; from then on it is known.
    fn by_zones_of_now(&self, name: &PipelineId, version: u64) -> Result<Declaration, String> {
        let known = self.lock().ever.get(&(version, name.clone())).cloned();
        let Version { declared, holidays, truth } =
            known.ok_or_else(|| format!("{name} has no such version"))?;
        let VersionRecord { source, since, .. } = &declared.source;
        let declared = self.parse(source, &holidays, *since)?;
        let truth = truth.map(|truth| Arc::new(self.in_zones_of_now((*truth).clone())));
        let version = Version { declared: declared.clone(), holidays, truth };
        self.lock().ever.entry((declared.version, name.clone())).or_insert(version);
        Ok(declared)
    }

    fn in_zones_of_now(&self, mut truth: Truth) -> Truth {
        if truth.zone == MOVING {
            truth.time_zone = self.0.zones.moving().time_zone().clone();
        }
        truth
    }

    /// Writes the file of a pipeline whose truth is known.
    pub fn write_truth(&self, mut truth: Truth, since: Timestamp) -> Result<Declaration, String> {
        if let Some(days) = &mut truth.holidays {
            days.clone_from(&self.lock().holidays);
        }
        let truth = self.in_zones_of_now(truth);
        let text = match self.0.mutation {
            Some(mutation) => mutation.misread(&truth).text(),
            None => truth.text(),
        };
        let declaration = self.write(&text, since)?;
        let truth = Arc::new(truth);
        let name = declaration.pipeline.name.clone();
        let mut inner = self.lock();
        if let Some(known) = inner.ever.get_mut(&(declaration.version, name.clone())) {
            known.truth = Some(Arc::clone(&truth));
        }
        inner.truths.insert(name, truth);
        Ok(declaration)
    }

    /// Removes a file; what it said is kept.
    pub fn remove(&self, name: &PipelineId) {
        self.lock().now.remove(name);
    }

    /// Whether its file is there.
    pub fn has(&self, name: &PipelineId) -> bool {
        self.lock().now.contains_key(name)
    }

    /// What a pipeline's file says, or said last.
    pub fn truth(&self, name: &PipelineId) -> Option<Arc<Truth>> {
        self.lock().truths.get(name).cloned()
    }

    /// What a version said.
    pub fn truth_of(&self, name: &PipelineId, version: u64) -> Option<Arc<Truth>> {
        let inner = self.lock();
        inner.ever.get(&(version, name.clone())).and_then(|known| known.truth.clone())
    }

    /// The pipelines that there ever were.
    pub fn names(&self) -> Vec<PipelineId> {
        self.lock().truths.keys().cloned().collect()
    }

    /// The declarations that are in the files.
    pub fn declarations(&self) -> Vec<Declaration> {
        self.lock().now.values().cloned().collect()
    }

    /// What is different from what an engine has.
    pub fn changes(&self, engine: &Engine) -> Changes {
        let known: BTreeMap<_, _> = engine.in_force().collect();
        let inner = self.lock();
        let is_new = |new: &&Declaration| {
            known.get(&new.pipeline.name).is_none_or(|version| *version != new.version)
        };
        let removed = known.keys().filter(|name| !inner.now.contains_key(**name));
        Changes {
            declared: inner.now.values().filter(is_new).cloned().collect(),
            removed: removed.map(|name| (*name).clone()).collect(),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.0.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Specs for Files {
    fn pipeline(&self, name: &PipelineId, version: u64) -> Task<Result<Arc<Pipeline>, String>> {
        let inner = self.lock();
        let found = inner.ever.get(&(version, name.clone()));
        let found = found.map(|known| Arc::clone(&known.declared.pipeline));
        Box::pin(std::future::ready(found.ok_or_else(|| format!("{name} has no such version"))))
    }

    fn today(&self, name: &PipelineId, version: u64) -> Task<Result<Declaration, String>> {
        Box::pin(std::future::ready(self.by_zones_of_now(name, version)))
    }

    fn zone(&self, name: &str) -> Option<Zone> {
        self.0.zones.zone(name)
    }
}
