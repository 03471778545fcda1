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

use interlock_config::{
    Around, Loaded, Severity, SystemZones, ZoneSource as _, load_around, load_dir,
};
use interlock_core::{
    id::{PipelineId, ScheduleId, fnv1a},
    pipeline::Pipeline,
    zone::Zone,
};
use interlock_private_files as private_files;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    clock,
    command::status::next_slot,
    environment,
    exit::Failure,
    output::Output,
    place::Place,
    project::{self, mention_count},
    serve::index::Stamp,
};

/// Its name in the state folder.
const FILE: &str = "files.summary";
/// Another number is another format.
const FORMAT: u64 = 1;

/// A declared pipeline, as lists tell of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct PipelineSummary {
    pub(crate) version: u64,
    pub(crate) is_enabled: bool,
    pub(crate) owner: Option<String>,
    pub(crate) labels: BTreeMap<String, String>,
    pub(crate) upstreams: Vec<String>,
    file: PathBuf,
}

/// The declared pipelines, and how many errors are in the files.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct ProjectSummary {
    pub(crate) pipelines: BTreeMap<PipelineId, PipelineSummary>,
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

    /// The next slot of a declared pipeline, by its file: what its row says may be of another version.
    pub(crate) fn next_slot(&self, name: &PipelineId) -> Option<(ScheduleId, Timestamp)> {
        if let Some(loaded) = &self.loaded {
            return project::find(loaded, name).and_then(next_slot);
        }
        let file = &self.summary.pipelines.get(name)?.file;
        let read = self.around.read(file, &self.zones, &environment::variable);
        let pipeline: Pipeline = read.pipeline?.pipeline;
        next_slot(&pipeline)
    }

    /// The zones that schedules are read with.
    pub(crate) fn zones(&self) -> &SystemZones {
        &self.zones
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
    let pipelines = loaded.pipelines.iter().map(|loaded| {
        let pipeline = &loaded.pipeline;
        let upstreams = pipeline.readiness.upstreams.iter();
        let upstreams: BTreeSet<_> = upstreams.map(|it| it.pipeline.clone()).collect();
        let summary = PipelineSummary {
            version: loaded.version,
            is_enabled: pipeline.enabled,
            owner: pipeline.owner.clone(),
            labels: pipeline.labels.clone(),
            upstreams: upstreams.into_iter().collect(),
            file: loaded.file.clone(),
        };
        (pipeline.name.clone(), summary)
    });
    let error_count = loaded.problems.iter().filter(is_error).count();
    ProjectSummary { pipelines: pipelines.collect(), error_count }
}

fn text(
    summary: &ProjectSummary,
    stamp: &ProjectStamp,
    asked: &BTreeSet<(String, bool)>,
    loaded: &Loaded,
) -> String {
    let zones: BTreeMap<_, _> =
        zones_of(loaded).map(|zone| (zone.name(), zone.fingerprint())).collect();
    let pipelines = summary.pipelines.iter().map(|(name, it)| {
        json!([
            name.as_str(),
            it.version,
            it.is_enabled,
            it.owner,
            it.labels,
            it.upstreams,
            it.file.to_string_lossy(),
        ])
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
    let pipelines = value.get("pipelines")?.as_array()?.iter().map(pipeline);
    Some(ProjectSummary { pipelines: pipelines.collect::<Option<_>>()?, error_count })
}

fn pipeline(value: &Value) -> Option<(PipelineId, PipelineSummary)> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    let labels = value.get(4)?.as_object()?.iter();
    let labels = labels.map(|(name, label)| Some((name.clone(), text(label)?)));
    let summary = PipelineSummary {
        version: value.get(1)?.as_u64()?,
        is_enabled: value.get(2)?.as_bool()?,
        owner: text(value.get(3)?),
        labels: labels.collect::<Option<_>>()?,
        upstreams: value.get(5)?.as_array()?.iter().map(text).collect::<Option<_>>()?,
        file: value.get(6)?.as_str()?.into(),
    };
    Some((PipelineId::parse(value.get(0)?.as_str()?).ok()?, summary))
}
