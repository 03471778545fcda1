//! One scan: which files are new, edited, broken or gone.

use std::{
    collections::{BTreeMap, BTreeSet},
    fs,
    path::{Path, PathBuf},
    sync::Arc,
    thread,
};

use interlock_config::{
    Around, LoadedPipeline, Pipelines, Problem, ReadFile, References, Severity, SystemZones,
    Upstream, defined_twice, source::SourceFile,
};
use interlock_core::id::{PipelineId, fnv1a};
use interlock_engine::{Changes, Declaration};
use interlock_store::record::VersionRecord;
use tokio::time::Instant;

use super::{ABSENT_MAX, Agreement, PROBLEMS_MAX, Scan, Since};
use crate::{
    clock, environment,
    serve::index::{Entry, Index, Stamp},
};

/// Files that are read, told and forgotten together.
const PORTION: usize = 128;
/// More threads than this only wait for each other.
const THREADS_MAX: usize = 8;

/// What a scan works with.
pub(super) struct Scanner<'a> {
    pub(super) around: &'a Around,
    pub(super) paths: &'a [PathBuf],
    pub(super) zones: &'a SystemZones,
    pub(super) old: &'a Index,
    /// Whether a folder of pipelines is not there: what was in it is not gone for good.
    pub(super) is_folder_gone: bool,
}

impl Since {
    /// Whether what is new about a pipeline is to be told.
    fn is_about(&self, name: &PipelineId) -> bool {
        match self {
            Self::Start(.., is_mine) => is_mine(name),
            Self::LastScan(_) => true,
        }
    }
}

/// What a scan finds out.
#[derive(Default)]
struct Findings {
    index: Index,
    /// Which file has a name.
    names: BTreeMap<PipelineId, PathBuf>,
    problems: Vec<Problem>,
    /// Those that wait for others, held back until all names are known.
    waiting: BTreeMap<PipelineId, Declaration>,
    references: References,
    /// Whether a broken file hides its name, or a folder its files.
    has_unnamed: bool,
    told: usize,
}

impl Scanner<'_> {
    /// Looks at everything. No index when what is remembered should stay as it is.
    pub(super) fn run(
        &self,
        (since, absent): (&Since, &mut BTreeMap<PipelineId, Instant>),
        tell: &mut dyn FnMut(Changes) -> bool,
    ) -> (Scan, Option<Index>) {
        let known = self.known(since);
        if self.around.has_errors() && !known.is_empty() {
            // Every file would mean something else; better the last good than half of the new.
            let problems = self.around.problems.clone();
            let (count, absent) = (known.len(), absent.len());
            return (
                Scan { problems, count, changes: 0, is_whole: false, spared: 0, absent },
                None,
            );
        }
        let mut findings = Findings {
            index: Index { fingerprint: fingerprint(self.around), ..Index::default() },
            has_unnamed: self.is_folder_gone,
            ..Findings::default()
        };
        findings.complain(self.around.problems.clone());
        let changed = self.sort_out((&known, since), &mut findings);
        for portion in changed.chunks(PORTION) {
            let mut changes = Changes::default();
            for ((path, stamp), read) in portion.iter().zip(self.read(portion)) {
                self.take((path, *stamp), read, (&known, since), (&mut findings, &mut changes));
            }
            findings.told += changes.declared.len();
            if !changes.declared.is_empty() && !tell(changes) {
                break;
            }
        }
        match since {
            Since::LastScan(now) => self.wait_for_absent((&known, *now), absent, &mut findings),
            Since::Start(..) => absent.clear(),
        }
        finish((&known, since, absent.len()), findings, tell)
    }

    /// Keeps pipelines whose files were there a moment ago; of those that stay away nothing is kept.
    fn wait_for_absent(
        &self,
        (known, now): (&BTreeMap<PipelineId, u64>, Instant),
        absent: &mut BTreeMap<PipelineId, Instant>,
        findings: &mut Findings,
    ) {
        let gone = known.keys().filter(|name| !findings.names.contains_key(*name));
        let gone: BTreeSet<_> = gone.cloned().collect();
        absent.retain(|name, _| gone.contains(name));
        if is_much(gone.len(), known.len()) {
            return;
        }
        for name in gone {
            let since = *absent.entry(name.clone()).or_insert(now);
            let old = self.old.entries.iter().find(|entry| entry.name == name);
            match old.filter(|_| now < since + ABSENT_MAX) {
                Some(old) => findings.keep(Path::new(&*old.path), old.clone()),
                None => drop(absent.remove(&name)),
            }
        }
    }

    fn known(&self, since: &Since) -> BTreeMap<PipelineId, u64> {
        match since {
            Since::Start(known, ..) => known.iter().cloned().collect(),
            Since::LastScan(_) => {
                let entries = self.old.entries.iter().filter(|entry| entry.version != 0);
                entries.map(|entry| (entry.name.clone(), entry.version)).collect()
            }
        }
    }

    /// Keeps what looks the same; answers with the rest.
    fn sort_out(
        &self,
        (known, since): (&BTreeMap<PipelineId, u64>, &Since),
        findings: &mut Findings,
    ) -> Vec<(PathBuf, Stamp)> {
        let is_trusted = self.old.holds(findings.index.fingerprint, self.zones);
        if is_trusted {
            findings.index.zones.clone_from(&self.old.zones);
        }
        let now = clock::now().as_nanosecond() as i64;
        let mut changed = Vec::new();
        for path in self.paths {
            let metadata = fs::metadata(path);
            let stamp = metadata.map_or(Stamp::NONE, |metadata| Stamp::of(&metadata, now));
            let old = text(path).and_then(|path| self.old.find(path));
            let same = old.filter(|old| {
                is_trusted
                    && stamp != Stamp::NONE
                    && old.stamp == stamp
                    && (known.get(&old.name) == Some(&old.version) || !since.is_about(&old.name))
                    && !findings.names.contains_key(&old.name)
            });
            match same {
                Some(old) => findings.keep(path, old.clone()),
                None => changed.push((path.clone(), stamp)),
            }
        }
        changed
    }

    /// Reads files, several at a time, in their order.
    fn read(&self, files: &[(PathBuf, Stamp)]) -> Vec<ReadFile> {
        let threads = thread::available_parallelism().map_or(1, usize::from).min(THREADS_MAX);
        let share = files.len().div_ceil(threads).max(1);
        let read = |(path, _): &(PathBuf, Stamp)| {
            self.around.read(path, self.zones, &environment::variable)
        };
        thread::scope(|scope| {
            let readers: Vec<_> = files
                .chunks(share)
                .map(|share| scope.spawn(move || share.iter().map(read).collect::<Vec<_>>()))
                .collect();
            readers.into_iter().flat_map(|reader| reader.join().unwrap_or_default()).collect()
        })
    }

    /// Takes over one file that was read.
    fn take(
        &self,
        (path, stamp): (&Path, Stamp),
        mut read: ReadFile,
        (known, since): (&BTreeMap<PipelineId, u64>, &Since),
        (findings, changes): (&mut Findings, &mut Changes),
    ) {
        findings.complain(std::mem::take(&mut read.problems));
        let remembered =
            text(path).and_then(|path| self.old.find(path)).map(|old| old.name.clone());
        let named = read.name.as_ref().and_then(|(name, _)| PipelineId::parse(name).ok());
        let Some(name) = named.or(remembered) else {
            findings.has_unnamed = true;
            return;
        };
        if let Some(first) = findings.names.get(&name) {
            let mut problem = defined_twice("pipeline", name.as_str(), first, read.shown());
            problem.span = read.name.take().map_or(0..0, |(_, span)| span);
            findings.complain(vec![problem]);
            return;
        }
        let version = known.get(&name).copied().unwrap_or(0);
        let mut entry = Entry {
            path: text(path).unwrap_or_default().into(),
            stamp: Stamp::NONE,
            version,
            schedules: Box::default(),
            upstreams: Box::default(),
            name,
        };
        if !read.upstreams.is_empty() {
            let file = read.shown();
            findings.references.add(entry.name.as_str(), read.upstreams.clone(), file);
        }
        if let Some(new) = read.pipeline {
            entry.stamp = stamp;
            entry.version = new.version;
            entry.schedules = schedules(&new).into();
            entry.upstreams = upstreams(&read.upstreams).into();
            findings.note_zones(&new);
            let declaration = declaration(new);
            if version == declaration.version || !since.is_about(&entry.name) {
                // It says what it said before, or is somebody else's to say.
            } else if read.upstreams.is_empty() {
                changes.declared.push(declaration);
            } else {
                findings.waiting.insert(entry.name.clone(), declaration);
            }
        }
        findings.note(path, entry);
    }
}

/// Judges what could not be judged before everything was seen: dependencies, and what is gone.
fn finish(
    (known, since, absent): (&BTreeMap<PipelineId, u64>, &Since, usize),
    mut findings: Findings,
    tell: &mut dyn FnMut(Changes) -> bool,
) -> (Scan, Option<Index>) {
    findings.index.entries.sort_by(|a, b| a.path.cmp(&b.path));
    findings.refuse(known);
    let declared: Vec<_> = std::mem::take(&mut findings.waiting).into_values().collect();
    let gone = known.keys().filter(|name| !findings.names.contains_key(*name));
    let mut removed: Vec<PipelineId> = gone.cloned().collect();
    let mut spared = 0;
    let is_doubtful = match since {
        Since::Start(_, Agreement::Given, _) => false,
        // Another instance may have files that this one lacks.
        Since::Start(_, Agreement::Needed, _) => true,
        Since::Start(_, Agreement::Open, _) | Since::LastScan(_) => {
            is_much(removed.len(), known.len())
        }
    };
    if findings.has_unnamed || is_doubtful {
        spared = removed.len();
        removed.clear();
    }
    let changes = findings.told + declared.len() + removed.len();
    if !(declared.is_empty() && removed.is_empty()) {
        tell(Changes { declared, removed });
    }
    let count = findings.index.entries.iter().filter(|entry| entry.version != 0).count();
    let scan = Scan { problems: findings.problems, count, changes, is_whole: true, spared, absent };
    (scan, Some(findings.index))
}

/// A folder that is not there for a moment, or the wrong one, must not retire everything.
pub(crate) fn is_much(gone: usize, known: usize) -> bool {
    gone > 1 && gone * 2 > known
}

impl Findings {
    fn complain(&mut self, problems: Vec<Problem>) {
        for problem in problems {
            if problem.severity == Severity::Error || self.problems.len() < PROBLEMS_MAX {
                self.problems.push(problem);
            }
        }
    }

    /// A file that looks as it did.
    fn keep(&mut self, path: &Path, entry: Entry) {
        if !entry.upstreams.is_empty() {
            let file = Arc::new(SourceFile::unread(path));
            self.references.add(entry.name.as_str(), entry.upstreams(), file);
        }
        self.note(path, entry);
    }

    /// A path that is no plain text is not remembered: its file is read each time.
    fn note(&mut self, path: &Path, entry: Entry) {
        self.names.insert(entry.name.clone(), path.to_path_buf());
        if text(path).is_some() {
            self.index.entries.push(entry);
        }
    }

    fn note_zones(&mut self, new: &LoadedPipeline) {
        let pipeline = &new.pipeline;
        let starts = pipeline.starts.iter().map(|start| &start.schedule);
        let controls = pipeline.controls.iter().map(|control| &control.schedule);
        let zones = starts.chain(controls).map(|schedule| &schedule.timing().zone);
        for zone in zones.chain(&pipeline.sla.zone) {
            if !self.index.zones.contains_key(zone.name()) {
                self.index.zones.insert(zone.name().to_owned(), zone.fingerprint());
            }
        }
    }

    /// Takes out who waits in vain; what was in force of it stays.
    fn refuse(&mut self, known: &BTreeMap<PipelineId, u64>) {
        let refused = self.references.check(&*self);
        self.complain(refused.problems);
        for name in refused.names.iter().filter_map(|name| PipelineId::parse(name).ok()) {
            self.waiting.remove(&name);
            let path = self.names.get(&name).and_then(|path| text(path));
            let at = path.and_then(|path| {
                self.index.entries.binary_search_by(|entry| (*entry.path).cmp(path)).ok()
            });
            if let Some(entry) = at.and_then(|at| self.index.entries.get_mut(at)) {
                entry.stamp = Stamp::NONE;
                entry.version = known.get(&name).copied().unwrap_or(0);
            }
        }
    }

    fn entry(&self, name: &str) -> Option<&Entry> {
        let path = self.names.get(&PipelineId::parse(name).ok()?)?;
        self.index.find(text(path)?)
    }
}

impl Pipelines for Findings {
    fn has(&self, name: &str) -> bool {
        PipelineId::parse(name).is_ok_and(|name| self.names.contains_key(&name))
    }

    fn schedules(&self, name: &str) -> Option<Vec<String>> {
        let entry = self.entry(name).filter(|entry| entry.stamp != Stamp::NONE)?;
        Some(entry.schedules.split(' ').map(str::to_owned).collect())
    }

    fn names(&self) -> Vec<String> {
        self.names.keys().map(ToString::to_string).collect()
    }
}

/// What a version's hash does not say: another binary may read the same text otherwise.
pub(crate) fn fingerprint(around: &Around) -> u64 {
    let binary = std::env::current_exe().and_then(fs::metadata);
    let binary = binary.map_or(Stamp::NONE, |metadata| Stamp::of(&metadata, i64::MAX));
    fnv1a(format!("{:016x} {binary:?}", around.context.fingerprint()).as_bytes())
}

/// A pipeline that was read, as the engine is told of it.
pub(crate) fn declaration(new: LoadedPipeline) -> Declaration {
    let LoadedPipeline { pipeline, version, source, context, .. } = new;
    let source = VersionRecord { since: clock::now(), source, context };
    Declaration { pipeline: Arc::new(pipeline), version, source }
}

fn schedules(new: &LoadedPipeline) -> String {
    let ids = new.pipeline.starts.iter().map(|start| start.schedule.id().as_str());
    ids.collect::<Vec<_>>().join(" ")
}

fn upstreams(all: &[Upstream]) -> String {
    let words = all.iter().map(|upstream| match &upstream.schedule {
        Some(schedule) => format!("{}/{schedule}", upstream.pipeline),
        None => upstream.pipeline.clone(),
    });
    words.collect::<Vec<_>>().join(" ")
}

/// A path as the index can hold it.
fn text(path: &Path) -> Option<&str> {
    path.to_str().filter(|path| !path.contains('\n'))
}
