//! Incidents, newest first.

use std::collections::BTreeSet;

use interlock_core::{
    id::PipelineId,
    incident::{IncidentState, Level},
};
use interlock_store::{
    IncidentPlace, IncidentQuery, Key, Page, Record, Row, RowsQuery, StoreError, read_batches,
    record::IncidentRecord,
};

use super::{
    incident::{IncidentRow, incident_answer},
    pipeline_facts::{PipelineFacts, PipelineFilter},
    run::{one_of, words},
};
use crate::{
    AnswerError, Cursor, Listing, Reader,
    listing::{Scan, limit},
    model::incident::{IncidentAnswer, IncidentDetailAnswer, IncidentPath, IncidentsQuery},
};

const STATES: [&str; 3] = [
    IncidentState::Open.as_str(),
    IncidentState::Acknowledged.as_str(),
    IncidentState::Resolved.as_str(),
];
const LEVELS: [&str; 3] = [Level::Error.as_str(), Level::Warning.as_str(), Level::Info.as_str()];

/// An incident as the store gives it out.
pub type StoredIncident = (PipelineId, String, Row<IncidentRecord>);

/// Which incidents a question means.
struct IncidentFilter<'a> {
    asked: &'a IncidentsQuery,
    states: Vec<&'static str>,
    levels: Vec<&'static str>,
    pipelines: PipelineFilter<'a>,
}

impl<'a> IncidentFilter<'a> {
    fn of(asked: &'a IncidentsQuery) -> Result<Self, AnswerError> {
        let mut states = words(&asked.state, |word| one_of("state of an incident", word, &STATES))?;
        if states.is_empty() {
            states = vec![IncidentState::Open.as_str(), IncidentState::Acknowledged.as_str()];
        }
        let levels = words(&asked.level, |word| one_of("level", word, &LEVELS))?;
        let pipelines = PipelineFilter::of(&asked.owner, &asked.label)?;
        Ok(Self { asked, states, levels, pipelines })
    }

    /// Whether the store can leave out the open ones, or the others.
    fn is_open(&self) -> Option<bool> {
        let resolved = self.states.contains(&IncidentState::Resolved.as_str());
        match (resolved, self.states.len()) {
            (false, _) => Some(true),
            (true, 1) => Some(false),
            (true, _) => None,
        }
    }

    fn holds(&self, (pipeline, _, row): &StoredIncident, facts: &PipelineFacts) -> bool {
        let IncidentRecord { state, level, kind, opened_at, .. } = &row.record;
        let IncidentsQuery { kind: kinds, from, until, .. } = self.asked;
        self.states.contains(&state.as_str())
            && (self.levels.is_empty() || self.levels.contains(&level.as_str()))
            && (kinds.is_empty() || kinds.iter().any(|it| it.eq_ignore_ascii_case(kind)))
            && from.is_none_or(|from| from <= *opened_at)
            && until.is_none_or(|until| *opened_at < until)
            && self.pipelines.holds(pipeline, facts)
    }
}

impl Reader<'_> {
    /// Incidents, newest first; those that are not resolved unless a state is asked for.
    pub async fn incidents(
        &self,
        asked: &IncidentsQuery,
    ) -> Result<Listing<IncidentAnswer>, AnswerError> {
        let filter = IncidentFilter::of(asked)?;
        let after = asked.after.as_deref().map(Cursor::decode).transpose()?;
        let mut query = IncidentQuery {
            pipeline: asked.pipeline.as_deref().map(any_pipeline).transpose()?,
            is_open: filter.is_open(),
            after: after.map(Cursor::incident).transpose()?,
            limit: 0,
        };
        let mut scan = Scan::new(limit(asked.limit)?);
        while let Some(rows) = scan.wants() {
            query.limit = rows;
            let page = self.store.incidents_by(&query).await?;
            query.after = page.items.last().map(IncidentPlace::of);
            let mut facts = PipelineFacts::default();
            if filter.pipelines.is_given() {
                let pipelines: BTreeSet<_> = page.items.iter().map(|row| row.0.clone()).collect();
                facts = self.pipeline_facts(pipelines).await?;
            }
            // Behind the first that is too old are only older ones.
            let is_past =
                |row: &StoredIncident| asked.from.is_some_and(|from| row.2.record.opened_at < from);
            let more = page.more && !page.items.last().is_some_and(is_past);
            let place = |row: &StoredIncident| Cursor::of_incident(&IncidentPlace::of(row));
            scan.take(Page { more, ..page }, place, |row| filter.holds(row, &facts));
        }
        let Listing { items, next, scanned, unreadable } = scan.listing(|row| row);
        let items = self.incident_answers(&items).await?;
        Ok(Listing { items, next, scanned, unreadable })
    }

    /// One incident, with its alerts.
    pub async fn incident(
        &self,
        asked: &IncidentPath,
    ) -> Result<IncidentDetailAnswer, AnswerError> {
        let pipeline = any_pipeline(&asked.pipeline)?;
        let found = self.incidents_under(&pipeline, &[asked.key.clone()].into()).await?;
        found.into_iter().next().ok_or_else(|| {
            let message = format!("{pipeline} has no incident `{}`", asked.key);
            AnswerError::not_found(message, "`interlock incidents --all` lists them.")
        })
    }

    /// What rows of incidents say, with why those that are open are not told yet.
    pub async fn incident_answers(
        &self,
        rows: &[StoredIncident],
    ) -> Result<Vec<IncidentAnswer>, AnswerError> {
        let held = self.held(rows).await?;
        let answer = |((pipeline, key, row), held): (&StoredIncident, Option<String>)| {
            incident_answer(&IncidentRow { pipeline, key, record: &row.record }, held)
        };
        Ok(rows.iter().zip(held).map(answer).collect())
    }

    async fn held(&self, rows: &[StoredIncident]) -> Result<Vec<Option<String>>, StoreError> {
        let told = |(pipeline, _, row): &StoredIncident| {
            let told = row.record.told.clone().filter(|_| row.record.is_open());
            let keys = told.map(Key::Outbox).into_iter().collect();
            RowsQuery { pipeline: pipeline.clone(), keys }
        };
        let asked: Vec<_> = rows.iter().map(told).collect();
        let reason = |row: Option<Row<Record>>| {
            let Record::Outbox(record) = row?.record else { return None };
            record.held.clone()
        };
        let mut held = Vec::with_capacity(rows.len());
        for batch in read_batches(&asked) {
            let found = self.store.read_many(batch).await?.into_iter();
            held.extend(found.map(|rows| rows.into_iter().find_map(reason)));
        }
        Ok(held)
    }
}

/// The id of a pipeline that a question names, or the one of what belongs to none.
pub(super) fn any_pipeline(name: &str) -> Result<PipelineId, AnswerError> {
    PipelineId::any(name).map_err(|_malformed| AnswerError::unknown_pipeline(name))
}
