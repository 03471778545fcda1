//! A directory of files to everything Interlock needs, with every problem found on the way.
//!
//! Reading files happens here and nowhere else. Loading never fails: what can be used is in
//! [`Loaded`], what cannot is in its problems. A pipeline with an error is left out; the others stay,
//! so that one bad file does not silence the rest.

mod again;
mod around;
mod files;
mod references;

use std::{
    collections::BTreeMap,
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use interlock_core::{calendar::Calendar, pipeline::Pipeline, zone::Zone};

use self::files::Reader;
pub use self::{
    again::decode_version,
    around::{Around, ReadFile, load_around},
    references::{Pipelines, References, Refused, Upstream, defined_twice},
};
use crate::{
    decode::{self, Decoder, Environment, Surroundings, archetype::Archetype},
    problem::{Code, Problem, Problems, Severity, Text},
    server::{ServerConfig, StoreConfig},
    shape::{self, FileKind, check},
    source::{Origin, SourceFile, Span},
    version,
    yaml::{self, Entry, Node, Value},
    zones::ZoneSource,
};

/// The file that says where everything is.
pub const CONFIG_FILE: &str = "interlock.yaml";

/// Everything that a directory of files says.
#[derive(Debug)]
pub struct Loaded {
    /// `interlock.yaml`, or its defaults where it could not be used.
    pub config: ServerConfig,
    /// Pipelines without errors, by name.
    pub pipelines: Vec<LoadedPipeline>,
    /// Calendars by name.
    pub calendars: BTreeMap<String, Arc<Calendar>>,
    /// Archetypes by name.
    pub archetypes: BTreeMap<String, Archetype>,
    /// Everything that is wrong, by file and place.
    pub problems: Vec<Problem>,
    defaults: Option<Defaults>,
    texts: Texts,
}

impl Loaded {
    /// What a further pipeline of this directory is read with.
    pub fn context(&self) -> Context {
        Context {
            calendars: self.calendars.clone(),
            archetypes: self.archetypes.clone(),
            zone: self.config.zone.clone(),
            defaults: self.defaults.clone(),
            texts: self.texts.clone(),
        }
    }

    /// Whether a problem makes a file unusable.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

/// A pipeline and where it comes from.
#[derive(Debug, Clone, PartialEq)]
pub struct LoadedPipeline {
    /// What it declares.
    pub pipeline: Pipeline,
    /// Its file.
    pub file: PathBuf,
    /// Hash of its spec, its calendars, its archetype and the data of its zones.
    pub version: u64,
    /// The text of its file.
    pub source: String,
    /// What its file refers to, by kind and name; with the text enough for [`decode_version`].
    pub context: BTreeMap<String, String>,
}

/// What the files around a single pipeline say, for reading one on its own.
#[derive(Debug, Clone)]
pub struct Context {
    /// Calendars by name.
    pub calendars: BTreeMap<String, Arc<Calendar>>,
    /// Archetypes by name.
    pub archetypes: BTreeMap<String, Archetype>,
    /// The zone of pipelines that name none.
    pub zone: Zone,
    defaults: Option<Defaults>,
    texts: Texts,
}

/// The texts of calendars and archetypes, as `calendar/NAME` and `archetype/NAME`.
type Texts = BTreeMap<String, Arc<str>>;

impl Default for Context {
    fn default() -> Self {
        Self {
            calendars: BTreeMap::new(),
            archetypes: BTreeMap::new(),
            zone: Zone::utc(),
            defaults: None,
            texts: Texts::new(),
        }
    }
}

/// What `defaults:` says, checked, and the file it stands in.
#[derive(Debug, Clone)]
struct Defaults {
    node: Node,
    file: Arc<SourceFile>,
}

/// Loads a directory. Nothing is written, and no clock is read.
pub fn load_dir(dir: &Path, zones: &dyn ZoneSource, environment: Environment<'_>) -> Loaded {
    let mut around = load_around(dir, zones, environment);
    let paths = around.paths();
    let Around { config, context, mut problems, .. } = around;
    let mut names = Names::default();
    let mut references = References::default();
    for path in paths {
        let mut read = around::read_file(&path, &context, zones, environment);
        problems.append(&mut read.problems);
        let Some((name, span)) = read.name.take() else { continue };
        if let Some((first, _)) = names.0.get(&name) {
            let mut problem = defined_twice("pipeline", &name, first, read.shown());
            problem.span = span;
            problems.push(problem);
            continue;
        }
        if !read.upstreams.is_empty() {
            let file = read.shown();
            references.add(&name, read.upstreams, file);
        }
        names.0.insert(name, (path, read.pipeline));
    }
    let refused = references.check(&names);
    problems.extend(refused.problems);
    let usable = names.0.into_iter().filter(|(name, _)| !refused.names.contains(name));
    let pipelines = usable.filter_map(|(_, (_, pipeline))| pipeline).collect();
    files::sort(&mut problems);
    let Context { calendars, archetypes, zone: _, defaults, texts } = context;
    Loaded { config, pipelines, calendars, archetypes, problems, defaults, texts }
}

/// Every name, its file, and what it declares if it can be used.
#[derive(Default)]
struct Names(BTreeMap<String, (PathBuf, Option<LoadedPipeline>)>);

impl Pipelines for Names {
    fn has(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    fn schedules(&self, name: &str) -> Option<Vec<String>> {
        let starts = &self.0.get(name)?.1.as_ref()?.pipeline.starts;
        Some(starts.iter().map(|start| start.schedule.id().as_str().to_owned()).collect())
    }

    fn names(&self) -> Vec<String> {
        self.0.keys().cloned().collect()
    }
}

/// Reads one pipeline from its text; `None` when it has an error.
pub fn parse_pipeline(
    path: &Path,
    text: &str,
    context: &Context,
    zones: &dyn ZoneSource,
    environment: Environment<'_>,
) -> (Option<LoadedPipeline>, Vec<Problem>) {
    let around = surroundings(zones, environment, context);
    let read = read_pipeline((path, text), Text::File, &around, context);
    (read.pipeline, read.problems)
}

/// Reads `interlock.yaml` from its text; `None` when it has an error.
pub fn parse_config(
    path: &Path,
    text: &str,
    zones: &dyn ZoneSource,
    environment: Environment<'_>,
) -> (Option<ServerConfig>, Vec<Problem>) {
    let context = Context::default();
    let around = surroundings(zones, environment, &context);
    let mut problems = Problems::default();
    let root = checked(text, FileKind::Config, &mut problems);
    let config = root.map(|root| decoder(&around, &mut problems).server_config(&root));
    let config = config.filter(|_| !problems.has_errors());
    let file = problems.source(path, text);
    (config, problems.finish(&file, None))
}

/// Reads of `interlock.yaml` where the ledger is, and nothing else: a problem elsewhere in the file leaves no doubt about
/// that. What leaves one is the answer instead, keys that nobody knows included: one may be a store's, misspelled.
pub fn parse_store(
    path: &Path,
    text: &str,
    zones: &dyn ZoneSource,
    environment: Environment<'_>,
) -> Result<StoreConfig, Vec<Problem>> {
    let context = Context::default();
    let around = surroundings(zones, environment, &context);
    let mut problems = Problems::default();
    let mut root = yaml::parse(text, Origin::File, &mut problems);
    if let Some(Node { value: Value::Map(entries), .. }) = &mut root {
        entries.retain(|entry| {
            let is_kept = shape::is_about_the_store(&entry.key);
            if !is_kept {
                problems.hide(entry.value.span);
            }
            is_kept
        });
    }
    let root = root.and_then(|root| check::check(root, FileKind::Config, text, &mut problems));
    let store = root.and_then(|root| decoder(&around, &mut problems).store_config(&root));
    let is_sound = !problems.has_errors();
    let file = problems.source(path, text);
    let problems = problems.finish(&file, None);
    match store {
        Some(store) if is_sound => Ok(store),
        // That is for whoever checks the file; about the store it says what an absent one says.
        None if problems.iter().all(|problem| problem.code == Code::Empty) => {
            Ok(decode::server::embedded(&Node::empty_map(Span::default())))
        }
        Some(_) | None => Err(problems),
    }
}

/// Reads a YAML or JSON file that has no shape of its own, such as a file of sensors.
pub fn parse_data(path: &Path, text: &str) -> (Option<serde_json::Value>, Vec<Problem>) {
    let mut problems = Problems::default();
    let root = yaml::parse(text, Origin::File, &mut problems);
    let data = root.filter(|_| !problems.has_errors()).map(|root| decode::json(&root));
    let file = problems.source(path, text);
    (data, problems.finish(&file, None))
}

struct ReadPipeline {
    pipeline: Option<LoadedPipeline>,
    problems: Vec<Problem>,
    /// The name even of a pipeline with errors, so that references to it are not errors too, and
    /// its place.
    name: Option<(String, Range<usize>)>,
    upstreams: Vec<references::Upstream>,
    /// What of the text must not be shown.
    hidden: Vec<Range<usize>>,
}

fn read_pipeline(
    (path, text): (&Path, &str),
    of: Text,
    around: &Surroundings<'_>,
    context: &Context,
) -> ReadPipeline {
    let defaults = context.defaults.as_ref();
    let mut problems = Problems::of(of);
    let root = checked(text, FileKind::Pipeline, &mut problems);
    let Some(mut root) = root else {
        let file = problems.source(path, text);
        let problems = problems.finish(&file, None);
        let (upstreams, hidden) = (Vec::new(), Vec::new());
        return ReadPipeline { pipeline: None, problems, name: None, upstreams, hidden };
    };
    if let Some(defaults) = defaults {
        fill_in(&mut root, &defaults.node);
    }
    let pipeline = decoder(around, &mut problems).pipeline(&root);
    let pipeline = pipeline.filter(|_| !problems.has_errors()).map(|pipeline| LoadedPipeline {
        version: version_of(&root, &pipeline, around),
        context: again::context_of(&root, context),
        pipeline,
        file: path.to_owned(),
        source: text.to_owned(),
    });
    let name = root.get("name").or_else(|| root.get("pipeline")?.get("id"));
    let name = name.and_then(|node| Some((node.text()?.to_owned(), node.span.range())));
    let upstreams = references::upstreams(&root);
    let hidden = problems.hidden(Origin::File);
    // Only a file with something to show keeps its text.
    let problems = if problems.is_empty() {
        Vec::new()
    } else {
        let file = problems.source(path, text);
        problems.finish(&file, defaults.map(|defaults| &defaults.file))
    };
    ReadPipeline { pipeline, problems, name, upstreams, hidden }
}

/// Adds what `defaults:` says and the pipeline does not, map by map.
fn fill_in(node: &mut Node, defaults: &Node) {
    let Value::Map(entries) = &mut node.value else { return };
    for default in defaults.entries() {
        match entries.iter_mut().find(|entry| entry.key == default.key) {
            Some(Entry { value, .. }) => fill_in(value, &default.value),
            None => entries.push(default.clone()),
        }
    }
}

fn checked(text: &str, kind: FileKind, problems: &mut Problems) -> Option<Node> {
    check::check(yaml::parse(text, Origin::File, problems)?, kind, text, problems)
}

fn decoder<'a>(around: &'a Surroundings<'a>, problems: &'a mut Problems) -> Decoder<'a> {
    Decoder { around, problems }
}

fn surroundings<'a>(
    zones: &'a dyn ZoneSource,
    environment: Environment<'a>,
    context: &'a Context,
) -> Surroundings<'a> {
    Surroundings {
        zones,
        environment,
        calendars: &context.calendars,
        archetypes: &context.archetypes,
        zone: context.zone.clone(),
    }
}

/// The hash of everything that a pipeline's slots follow from.
fn version_of(root: &Node, pipeline: &Pipeline, around: &Surroundings<'_>) -> u64 {
    let mut parts = vec![version::fingerprint(root)];
    let starts = pipeline.starts.iter().map(|start| &start.schedule);
    let schedules = starts.chain(pipeline.controls.iter().map(|control| &control.schedule));
    for schedule in schedules {
        let timing = schedule.timing();
        parts.push(timing.zone.fingerprint());
        let calendars = timing.days.exclude.iter().chain(&timing.days.include);
        parts.extend(calendars.map(|calendar| version::of_calendar(calendar)));
    }
    let archetype = root.get("archetype").and_then(Node::text);
    let archetype = archetype.and_then(|name| around.archetypes.get(name));
    parts.extend(archetype.map(|archetype| archetype.fingerprint));
    version::combine(&parts)
}

struct Loader<'a> {
    zones: &'a dyn ZoneSource,
    environment: Environment<'a>,
    reader: Reader,
    context: Context,
}

impl Loader<'_> {
    fn config(&mut self) -> ServerConfig {
        let around = surroundings(self.zones, self.environment, &self.context);
        let mut problems = Problems::default();
        let found = self.reader.config_file();
        let root = found
            .as_ref()
            .and_then(|found| checked(&found.text, FileKind::Config, &mut problems))
            .unwrap_or_else(|| Node::empty_map(crate::source::Span::default()));
        let config = decoder(&around, &mut problems).server_config(&root);
        let file = found.map(|found| problems.source(&found.path, &found.text));
        let defaults = root.get("defaults").cloned();
        if let (Some(mut node), Some(file)) = (defaults, &file) {
            move_to(&mut node, Origin::Defaults);
            self.context.defaults = Some(Defaults { node, file: Arc::clone(file) });
        }
        if let Some(file) = file {
            self.reader.named_dirs(&root, &file);
            self.reader.problems.extend(problems.finish(&file, None));
        }
        config
    }

    fn calendars(&mut self, config: &ServerConfig) {
        let mut first = BTreeMap::new();
        for found in self.reader.files(&config.dirs.calendars) {
            let around = surroundings(self.zones, self.environment, &self.context);
            let mut problems = Problems::default();
            let root = checked(&found.text, FileKind::Calendar, &mut problems);
            let calendar = root.as_ref().and_then(|r| decoder(&around, &mut problems).calendar(r));
            let file = problems.source(&found.path, &found.text);
            if let (Some(calendar), Some(root)) = (calendar, root) {
                self.reader.unique("calendar", &mut first, &calendar.name, (&found, &root));
                let name = calendar.name.clone();
                let text = self.context.texts.entry(again::calendar_key(&name));
                text.or_insert_with(|| found.text.as_str().into());
                self.context.calendars.entry(name).or_insert_with(|| Arc::new(calendar));
            }
            self.reader.problems.extend(problems.finish(&file, None));
        }
    }

    fn archetypes(&mut self, config: &ServerConfig) {
        let mut first = BTreeMap::new();
        for found in self.reader.files(&config.dirs.archetypes) {
            let around = surroundings(self.zones, self.environment, &self.context);
            let mut problems = Problems::default();
            let root = checked(&found.text, FileKind::Archetype, &mut problems);
            let read = root.as_ref().and_then(|r| decoder(&around, &mut problems).archetype(r));
            let file = problems.source(&found.path, &found.text);
            if let (Some(archetype), Some(root)) = (read, root) {
                self.reader.unique("archetype", &mut first, &archetype.name, (&found, &root));
                let text = self.context.texts.entry(again::archetype_key(&archetype.name));
                text.or_insert_with(|| found.text.as_str().into());
                self.context.archetypes.entry(archetype.name.clone()).or_insert(archetype);
            }
            self.reader.problems.extend(problems.finish(&file, None));
        }
    }
}

fn move_to(node: &mut Node, origin: Origin) {
    node.span = node.span.within(origin);
    match &mut node.value {
        Value::List(items) => items.iter_mut().for_each(|item| move_to(item, origin)),
        Value::Map(entries) => {
            for entry in entries {
                entry.key_span = entry.key_span.within(origin);
                move_to(&mut entry.value, origin);
            }
        }
        Value::Null | Value::Bool(_) | Value::Int(_) | Value::Float(_) | Value::Text(_) => {}
    }
}
