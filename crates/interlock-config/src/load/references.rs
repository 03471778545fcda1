//! What pipelines say about each other: unique names, upstreams that exist, no cycles.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{LoadedPipeline, defined_twice};
use crate::{
    cycle,
    problem::{Code, Problem},
    source::SourceFile,
    suggest,
    yaml::Node,
};

/// One entry of `dependsOn`.
#[derive(Debug)]
pub(super) struct Upstream {
    pipeline: String,
    schedule: Option<String>,
    span: std::ops::Range<usize>,
}

/// The entries of `dependsOn` that stand in the pipeline's own file.
pub(super) fn upstreams(root: &Node) -> Vec<Upstream> {
    let items = root.get("dependsOn").map(Node::items).unwrap_or_default();
    items
        .iter()
        .filter_map(|item| {
            let name = item.get("pipeline").unwrap_or(item);
            Some(Upstream {
                pipeline: name.text()?.to_owned(),
                schedule: item.get("schedule").and_then(Node::text).map(str::to_owned),
                span: name.span.range(),
            })
        })
        .collect()
}

/// The names of all pipelines and what they wait for.
#[derive(Debug, Default)]
pub(super) struct References {
    files: BTreeMap<String, PathBuf>,
    /// Kept with the file's text, but only for pipelines that wait for others.
    waiting: BTreeMap<String, (Arc<SourceFile>, Vec<Upstream>)>,
}

impl References {
    /// Notes a pipeline; a problem when the name is taken.
    pub(super) fn add(
        &mut self,
        name: &str,
        path: &Path,
        upstreams: Vec<Upstream>,
        file: &dyn Fn() -> Arc<SourceFile>,
    ) -> Option<Problem> {
        if let Some(first) = self.files.get(name) {
            return Some(defined_twice("pipeline", name, first, file()));
        }
        self.files.insert(name.to_owned(), path.to_owned());
        if !upstreams.is_empty() {
            self.waiting.insert(name.to_owned(), (file(), upstreams));
        }
        None
    }

    /// Reports unknown upstreams and cycles, and takes pipelines out that wait in vain.
    pub(super) fn check(&self, pipelines: &mut BTreeMap<String, LoadedPipeline>) -> Vec<Problem> {
        let mut problems = Vec::new();
        for (name, (file, upstreams)) in &self.waiting {
            for upstream in upstreams {
                if let Some((message, help)) = self.complaint(upstream, pipelines) {
                    let mut problem =
                        Problem::whole_file(Arc::clone(file), Code::UnknownPipeline, message, help);
                    problem.span = upstream.span.clone();
                    problems.push(problem);
                    pipelines.remove(name);
                }
            }
        }
        if let Some(problem) = self.cycle(pipelines) {
            problems.push(problem);
        }
        problems
    }

    fn complaint(
        &self,
        upstream: &Upstream,
        pipelines: &BTreeMap<String, LoadedPipeline>,
    ) -> Option<(String, String)> {
        let wanted = upstream.pipeline.as_str();
        if !self.files.contains_key(wanted) {
            let names: Vec<_> = self.files.keys().map(String::as_str).collect();
            let help = suggest::did_you_mean_or_list(wanted, "There are", &names);
            return Some((format!("there is no pipeline `{wanted}`"), help));
        }
        let schedule = upstream.schedule.as_deref()?;
        // A pipeline with errors of its own is not judged here as well.
        let starts = &pipelines.get(wanted)?.pipeline.starts;
        let ids: Vec<_> = starts.iter().map(|start| start.schedule.id().as_str()).collect();
        (!ids.contains(&schedule)).then(|| {
            let help = suggest::did_you_mean_or_list(schedule, "It has", &ids);
            (format!("the pipeline `{wanted}` has no schedule `{schedule}`"), help)
        })
    }

    fn cycle(&self, pipelines: &mut BTreeMap<String, LoadedPipeline>) -> Option<Problem> {
        let edges: BTreeMap<&str, Vec<&str>> = self
            .waiting
            .iter()
            .map(|(name, (_, upstreams))| {
                // A pipeline that waits for itself is reported where it is read.
                let targets = upstreams.iter().map(|u| u.pipeline.as_str());
                (name.as_str(), targets.filter(|target| *target != name).collect())
            })
            .collect();
        let cycle = cycle::find(&edges)?;
        let [first, second, ..] = cycle.as_slice() else { return None };
        let (file, upstreams) = self.waiting.get(*first)?;
        let message = format!("pipelines wait for each other: {}", cycle.join(" -> "));
        let help = "Remove one of these dependencies.";
        let mut problem =
            Problem::whole_file(Arc::clone(file), Code::DependencyCycle, message, help);
        let edge = upstreams.iter().find(|upstream| upstream.pipeline == *second);
        problem.span = edge.map_or(0..0, |edge| edge.span.clone());
        for name in &cycle {
            pipelines.remove(*name);
        }
        Some(problem)
    }
}
