//! What pipelines say about each other: unique names, upstreams that exist, no cycles.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::Path,
    sync::Arc,
};

use crate::{
    cycle,
    problem::{Code, Problem},
    source::SourceFile,
    suggest,
    yaml::Node,
};

/// One entry of `dependsOn`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Upstream {
    /// Which pipeline.
    pub pipeline: String,
    /// Which of its schedules, if one is named.
    pub schedule: Option<String>,
    /// Where it stands in the file.
    pub span: std::ops::Range<usize>,
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

/// What is known of all pipelines, by name.
pub trait Pipelines {
    /// Whether a file has this name.
    fn has(&self, name: &str) -> bool;

    /// The ids of a pipeline's schedules; `None` for one with errors, which is not judged here as well.
    fn schedules(&self, name: &str) -> Option<Vec<String>>;

    /// All names, for suggestions.
    fn names(&self) -> Vec<String>;
}

/// The pipelines that wait for others.
#[derive(Debug, Default)]
pub struct References {
    waiting: BTreeMap<String, (Arc<SourceFile>, Vec<Upstream>)>,
}

/// What is wrong between pipelines.
#[derive(Debug, Default)]
pub struct Refused {
    /// In words.
    pub problems: Vec<Problem>,
    /// Who waits in vain.
    pub names: BTreeSet<String>,
}

impl References {
    /// Notes a pipeline that waits for others, and its file as it may be shown.
    pub fn add(&mut self, name: &str, upstreams: Vec<Upstream>, file: Arc<SourceFile>) {
        self.waiting.insert(name.to_owned(), (file, upstreams));
    }

    /// Finds unknown upstreams and cycles.
    pub fn check(&self, all: &dyn Pipelines) -> Refused {
        let mut refused = Refused::default();
        for (name, (file, upstreams)) in &self.waiting {
            for upstream in upstreams {
                if let Some((message, help)) = complaint(upstream, all) {
                    let mut problem =
                        Problem::whole_file(Arc::clone(file), Code::UnknownPipeline, message, help);
                    problem.span = upstream.span.clone();
                    refused.problems.push(problem);
                    refused.names.insert(name.clone());
                }
            }
        }
        self.cycle(&mut refused);
        refused
    }

    fn cycle(&self, refused: &mut Refused) {
        let edges: BTreeMap<&str, Vec<&str>> = self
            .waiting
            .iter()
            .map(|(name, (_, upstreams))| {
                // A pipeline that waits for itself is reported where it is read.
                let targets = upstreams.iter().map(|u| u.pipeline.as_str());
                (name.as_str(), targets.filter(|target| *target != name).collect())
            })
            .collect();
        let Some(cycle) = cycle::find(&edges) else { return };
        let [first, second, ..] = cycle.as_slice() else { return };
        let Some((file, upstreams)) = self.waiting.get(*first) else { return };
        let message = format!("pipelines wait for each other: {}", cycle.join(" -> "));
        let help = "Remove one of these dependencies.";
        let mut problem =
            Problem::whole_file(Arc::clone(file), Code::DependencyCycle, message, help);
        let edge = upstreams.iter().find(|upstream| upstream.pipeline == *second);
        problem.span = edge.map_or(0..0, |edge| edge.span.clone());
        refused.names.extend(cycle.iter().map(|name| (*name).to_owned()));
        refused.problems.push(problem);
    }
}

fn complaint(upstream: &Upstream, all: &dyn Pipelines) -> Option<(String, String)> {
    let wanted = upstream.pipeline.as_str();
    if !all.has(wanted) {
        let names = all.names();
        let names: Vec<_> = names.iter().map(String::as_str).collect();
        let help = suggest::did_you_mean_or_list(wanted, "There are", &names);
        return Some((format!("there is no pipeline `{wanted}`"), help));
    }
    let schedule = upstream.schedule.as_deref()?;
    let ids = all.schedules(wanted)?;
    let ids: Vec<_> = ids.iter().map(String::as_str).collect();
    (!ids.contains(&schedule)).then(|| {
        let help = suggest::did_you_mean_or_list(schedule, "It has", &ids);
        (format!("the pipeline `{wanted}` has no schedule `{schedule}`"), help)
    })
}

/// The problem of a name that two files define.
pub fn defined_twice(what: &str, name: &str, first: &Path, file: Arc<SourceFile>) -> Problem {
    let message = format!("the {what} `{name}` is already defined in {}", first.display());
    Problem::whole_file(file, Code::DuplicateName, message, "Rename one of them, or remove it.")
}
