//! What lists say of the declared pipelines, without reading the files of all of them.
//!
//! A load reads and checks each file, which takes a second for ten thousand. What lists need of it is remembered beside the ledger
//! (`files.summary`), with how each file looked from outside. While all still look so, in surroundings that are still the same, the summary
//! holds; one file that is new, gone or edited is a load of all, because what is wrong with a file may be the fault of another. The summary is
//! never needed: where it cannot be kept, or is doubtful, everything is loaded.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Mutex,
};

use interlock_answers::{declared_answer, model::pipeline::DeclaredAnswer};
use interlock_config::{
    Around, Loaded, Severity, SystemZones, ZoneSource as _, load_around, load_dir,
};
use interlock_core::{
    id::{PipelineId, fnv1a},
    pipeline::Pipeline,
    zone::Zone,
};
use interlock_private_files as private_files;
use serde_json::{Value, from_value, json};

use crate::{
    clock, environment,
    exit::Failure,
    output::Output,
    place::Place,
    project::{self, mention_count},
    serve::index::Stamp,
};

/// Its name in the state folder.
const FILE: &str = "files.summary";
/// Another number is another format.
const FORMAT: u64 = 2;

/// The declared pipelines, and how many errors are in the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectSummary {
    /// What lists say of them, without their next slots.
    pub(crate) pipelines: BTreeMap<PipelineId, DeclaredAnswer>,
    /// Which file each is in.
    files: BTreeMap<PipelineId, PathBuf>,
    error_count: usize,
}

/// A summary, and what it was made with.
pub(crate) struct Project {
    pub(crate) summary: ProjectSummary,
    around: Around,
    zones: SystemZones,
    /// Everything, if it had to be loaded.
    loaded: Option<Loaded>,
}

/// How the files of a project look from outside, in their order, and what else their meaning depends on.
#[derive(Debug, PartialEq, Eq)]
struct ProjectStamp {
    fingerprint: u64,
    files: Vec<(String, u64)>,
}

impl Project {
    /// What lists say of the project in a directory.
    pub(crate) fn open(directory: &Path, place: &Place) -> Self {
        let zones = SystemZones::new();
        let mut around = load_around(directory, &zones, &environment::variable);
        let stamp = stamp(&mut around);
        let path = place.folder.join(FILE);
        let kept = stamp.as_ref().and_then(|stamp| kept(&path, stamp, &zones));
        if let Some(summary) = kept {
            return Self { summary, around, zones, loaded: None };
        }
        let asked = Mutex::new(BTreeSet::new());
        let variable = |name: &str| {
            let value = environment::variable(name);
            if let Ok(mut asked) = asked.lock() {
                asked.insert((name.to_owned(), value.is_some()));
            }
            value
        };
        let loaded = load_dir(directory, &zones, &variable);
        let summary = summary_of(&loaded);
        if let Some(stamp) = stamp {
            let asked = asked.into_inner().unwrap_or_default();
            let text = text(&summary, &stamp, &asked, &loaded);
            // Who may only read keeps none, and loads again.
            let _unwritable = private_files::replace(&path, &text);
        }
        Self { summary, around, zones, loaded: Some(loaded) }
    }

    /// Says on standard error that parts of the project could not be used.
    pub(crate) fn mention_errors(&self, output: &mut Output) -> Result<bool, Failure> {
        mention_count(self.summary.error_count, output)
    }

    /// Whether something in the files could not be used.
    pub(crate) fn has_errors(&self) -> bool {
        self.summary.error_count > 0
    }

    /// The declaration of a pipeline, out of its file.
    pub(crate) fn pipeline(&self, name: &PipelineId) -> Option<Pipeline> {
        if let Some(loaded) = &self.loaded {
            return project::find(loaded, name).cloned();
        }
        let file = self.summary.files.get(name)?;
        let read = self.around.read(file, &self.zones, &environment::variable);
        Some(read.pipeline?.pipeline)
    }
}

/// How everything looks now; none while a file was just changed, or cannot be looked at.
fn stamp(around: &mut Around) -> Option<ProjectStamp> {
    let paths = around.paths();
    let now = clock::now().as_nanosecond();
    let now = i64::try_from(now).unwrap_or(i64::MAX);
    // What is wrong with a folder or a calendar is in what is loaded, and another binary may read files in another way.
    let problems: String = around.problems.iter().map(|it| it.message.as_str()).collect();
    let binary = std::env::current_exe().and_then(fs::metadata).ok()?;
    let binary = Stamp::of(&binary, i64::MAX);
    let context = around.context.fingerprint();
    let fingerprint = fnv1a(format!("{context:016x} {binary:?} {problems}").as_bytes());
    let mut files = Vec::with_capacity(paths.len());
    for path in paths {
        let stamp = Stamp::of(&fs::metadata(&path).ok()?, now);
        if stamp == Stamp::NONE {
            return None;
        }
        files.push((path.to_str()?.to_owned(), fnv1a(format!("{stamp:?}").as_bytes())));
    }
    Some(ProjectStamp { fingerprint, files })
}

fn summary_of(loaded: &Loaded) -> ProjectSummary {
    let is_error = |problem: &&interlock_config::Problem| problem.severity == Severity::Error;
    let mut summary = ProjectSummary::default();
    for found in &loaded.pipelines {
        let (name, declared) =
            (&found.pipeline.name, declared_answer(&found.pipeline, found.version));
        summary.pipelines.insert(name.clone(), declared);
        summary.files.insert(name.clone(), found.file.clone());
    }
    summary.error_count = loaded.problems.iter().filter(is_error).count();
    summary
}

fn text(
    summary: &ProjectSummary,
    stamp: &ProjectStamp,
    asked: &BTreeSet<(String, bool)>,
    loaded: &Loaded,
) -> String {
    let zones: BTreeMap<_, _> =
        zones_of(loaded).map(|zone| (zone.name(), zone.fingerprint())).collect();
    let pipelines = summary.pipelines.iter().map(|(name, declared)| {
        let file = summary.files.get(name).map(|file| file.to_string_lossy());
        json!([file, declared])
    });
    let body = json!({
        "fingerprint": stamp.fingerprint,
        "zones": zones,
        "variables": asked.iter().cloned().collect::<BTreeMap<_, _>>(),
        "files": stamp.files,
        "errors": summary.error_count,
        "pipelines": pipelines.collect::<Vec<_>>(),
    })
    .to_string();
    // A file that was damaged is no summary.
    format!("{FORMAT} {:016x}\n{body}", fnv1a(body.as_bytes()))
}

/// The zones whose data a summary rests on: they are part of what a version is.
fn zones_of(loaded: &Loaded) -> impl Iterator<Item = &Zone> {
    loaded.pipelines.iter().flat_map(|loaded| {
        let pipeline = &loaded.pipeline;
        let starts = pipeline.starts.iter().map(|start| &start.schedule);
        let controls = pipeline.controls.iter().map(|control| &control.schedule);
        let zones = starts.chain(controls).map(|schedule| &schedule.timing().zone);
        zones.chain(&pipeline.sla.zone)
    })
}

/// What is remembered, if it is still so.
fn kept(path: &Path, stamp: &ProjectStamp, zones: &SystemZones) -> Option<ProjectSummary> {
    let text = fs::read_to_string(path).ok()?;
    let (first, body) = text.split_once('\n')?;
    if first != format!("{FORMAT} {:016x}", fnv1a(body.as_bytes())) {
        return None;
    }
    let value: Value = serde_json::from_str(body).ok()?;
    let files = value.get("files")?.as_array()?;
    let is_same = |(file, (path, look)): (&Value, &(String, u64))| {
        file.get(0).and_then(Value::as_str) == Some(path)
            && file.get(1).and_then(Value::as_u64) == Some(*look)
    };
    let holds =
        value.get("fingerprint")?.as_u64()? == stamp.fingerprint
            && files.len() == stamp.files.len()
            && files.iter().zip(&stamp.files).all(is_same)
            && value.get("zones")?.as_object()?.iter().all(|(name, known)| {
                zones.zone(name).map(|zone| zone.fingerprint()) == known.as_u64()
            })
            && value.get("variables")?.as_object()?.iter().all(|(name, is_set)| {
                is_set.as_bool() == Some(environment::variable(name).is_some())
            });
    if !holds {
        return None;
    }
    let error_count = usize::try_from(value.get("errors")?.as_u64()?).ok()?;
    let mut summary = ProjectSummary { error_count, ..ProjectSummary::default() };
    for pipeline in value.get("pipelines")?.as_array()? {
        let declared: DeclaredAnswer = from_value(pipeline.get(1)?.clone()).ok()?;
        let name = PipelineId::parse(&declared.pipeline).ok()?;
        summary.files.insert(name.clone(), pipeline.get(0)?.as_str()?.into());
        summary.pipelines.insert(name, declared);
    }
    Some(summary)
}
