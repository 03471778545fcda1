//! A project file by file: what stands around the pipelines, then each pipeline on its own.
//!
//! [`load_dir`](super::load_dir) is this for all files at once. `serve` reads only the files that changed,
//! several at a time, and keeps none of them.

use std::{
    ops::Range,
    path::{Path, PathBuf},
    sync::Arc,
};

use interlock_core::id::fnv1a;

use super::{
    Context, LoadedPipeline, Loader,
    files::{Found, Reader},
    read_pipeline,
    references::Upstream,
    surroundings,
};
use crate::{
    decode::{self, Environment},
    problem::{Problem, Severity, Text},
    server::ServerConfig,
    source::{SourceFile, overwrite},
    zones::ZoneSource,
};

/// A project without its pipelines.
#[derive(Debug)]
pub struct Around {
    /// `interlock.yaml`, or its defaults where it could not be used.
    pub config: ServerConfig,
    /// What pipelines are read with.
    pub context: Context,
    /// What is wrong with all that.
    pub problems: Vec<Problem>,
    reader: Reader,
}

/// One pipeline's file.
#[derive(Debug)]
pub struct ReadFile {
    /// What it declares, if nothing is wrong with it.
    pub pipeline: Option<LoadedPipeline>,
    /// What is wrong with it.
    pub problems: Vec<Problem>,
    /// The name even of a pipeline with errors, and its place.
    pub name: Option<(String, Range<usize>)>,
    /// What it waits for.
    pub upstreams: Vec<Upstream>,
    path: PathBuf,
    /// What is wrong with it is shown with its text; else its text is the pipeline's.
    text: Option<String>,
    hidden: Vec<Range<usize>>,
}

impl ReadFile {
    /// The file as it may be shown.
    pub fn shown(&self) -> Arc<SourceFile> {
        let source = self.pipeline.as_ref().map(|pipeline| pipeline.source.as_str());
        let text = self.text.as_deref().or(source).unwrap_or_default();
        Arc::new(SourceFile { path: self.path.clone(), text: overwrite(text, &self.hidden) })
    }
}

/// Reads everything but the pipelines.
pub fn load_around(dir: &Path, zones: &dyn ZoneSource, environment: Environment<'_>) -> Around {
    let mut loader =
        Loader { zones, environment, reader: Reader::new(dir), context: Context::default() };
    let config = loader.config();
    loader.context.zone = config.zone.clone();
    loader.calendars(&config);
    loader.archetypes(&config);
    let Loader { mut reader, context, .. } = loader;
    Around { config, context, problems: reader.finish(), reader }
}

impl Around {
    /// The files of pipelines, in the order in which the first of two with one name wins. Folders that
    /// cannot be listed are further problems.
    pub fn paths(&mut self) -> Vec<PathBuf> {
        let paths = self.reader.paths(&self.config.dirs.pipelines);
        self.problems.append(&mut self.reader.problems);
        paths
    }

    /// Reads one pipeline's file.
    pub fn read(
        &self,
        path: &Path,
        zones: &dyn ZoneSource,
        environment: Environment<'_>,
    ) -> ReadFile {
        read_file(path, &self.context, zones, environment)
    }

    /// Whether something around the pipelines cannot be used.
    pub fn has_errors(&self) -> bool {
        self.problems.iter().any(|problem| problem.severity == Severity::Error)
    }
}

impl Context {
    /// A hash of everything that a pipeline's meaning may take from here.
    pub fn fingerprint(&self) -> u64 {
        let mut text = self.zone.name().to_owned();
        if let Some(defaults) = &self.defaults {
            text.push_str(&decode::json(&defaults.node).to_string());
        }
        for (key, part) in &self.texts {
            text.extend(["\n", key, "\n", &part.len().to_string(), "\n", part]);
        }
        fnv1a(text.as_bytes())
    }
}

pub(super) fn read_file(
    path: &Path,
    context: &Context,
    zones: &dyn ZoneSource,
    environment: Environment<'_>,
) -> ReadFile {
    let mut reader = Reader::new(path);
    let Some(Found { path, text }) = reader.read(path) else {
        return ReadFile {
            pipeline: None,
            problems: reader.finish(),
            name: None,
            upstreams: vec![],
            path: path.to_owned(),
            text: None,
            hidden: vec![],
        };
    };
    let around = surroundings(zones, environment, context);
    let read = read_pipeline((&path, &text), Text::File, &around, context);
    ReadFile {
        text: read.pipeline.is_none().then_some(text),
        pipeline: read.pipeline,
        problems: read.problems,
        name: read.name,
        upstreams: read.upstreams,
        path,
        hidden: read.hidden,
    }
}
