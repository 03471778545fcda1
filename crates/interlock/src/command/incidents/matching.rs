//! Which incidents a filter means.

use std::{collections::BTreeSet, path::Path};

use interlock_answers::{StoredIncident, model::pipeline::DeclaredAnswer};
use interlock_core::id::PipelineId;
use interlock_store::Page;

use super::named;
use crate::{arguments::IncidentFilter, exit::Failure, ledger::Ledger, project_summary::Project};

/// A filter, and what it needs to know.
pub(super) struct Matching<'a> {
    pub(super) pipeline: Option<PipelineId>,
    filter: &'a IncidentFilter,
    /// The pipelines whose declarations match; none where the filter says nothing of them.
    declared: Option<BTreeSet<PipelineId>>,
}

impl<'a> Matching<'a> {
    pub(super) fn of(
        directory: &Path,
        ledger: &Ledger,
        filter: &'a IncidentFilter,
    ) -> Result<Self, Failure> {
        let pipeline = named(directory, ledger, filter.pipeline.as_deref())?;
        let mut declared = None;
        if filter.is_about_declarations() {
            let project = Project::open(directory, ledger.place());
            let all = project.summary.pipelines.iter();
            let matching = all.filter(|(_, summary)| is_meant(filter, summary));
            declared = Some(matching.map(|(name, _)| name.clone()).collect());
        }
        Ok(Self { pipeline, filter, declared })
    }

    /// Whether an incident is meant.
    pub(super) fn holds(&self, (name, _, row): &StoredIncident) -> bool {
        let kinds = &self.filter.kinds;
        let is_kind = |kind: &String| kind.eq_ignore_ascii_case(&row.record.kind);
        (kinds.is_empty() || kinds.iter().any(is_kind))
            && self.pipeline.as_ref().is_none_or(|only| name == only)
            && self.declared.as_ref().is_none_or(|declared| declared.contains(name))
    }

    /// The newest resolved ones that are meant.
    pub(super) fn resolved(
        &self,
        ledger: &Ledger,
        limit: usize,
    ) -> Result<Page<StoredIncident>, Failure> {
        ledger.resolved_incidents(self.pipeline.as_ref(), limit, |row| self.holds(row))
    }
}

fn is_meant(filter: &IncidentFilter, summary: &DeclaredAnswer) -> bool {
    let IncidentFilter { owners, labels, upstreams, .. } = filter;
    let is_owner = |owner: &String| summary.owner.as_ref() == Some(owner);
    (owners.is_empty() || owners.iter().any(is_owner))
        && labels.iter().all(|(name, value)| summary.labels.get(name) == Some(value))
        && (upstreams.is_empty() || upstreams.iter().any(|name| summary.upstreams.contains(name)))
}
