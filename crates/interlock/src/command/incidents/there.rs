//! `interlock incidents` at a server.

use std::collections::BTreeMap;

use interlock_answers::{
    LIMIT_MAX, Listing,
    model::{
        incident::{
            IncidentAnswer, IncidentGrouping, IncidentGroupsAnswer, IncidentGroupsQuery,
            IncidentsQuery,
        },
        pipeline::DeclaredAnswer,
    },
    table,
};
use interlock_core::{id::PipelineId, incident::Hand};
use serde_json::{Value, json};

use super::{
    LISTED_MAX, RESOLVED_LOOKED_AT,
    bulk::{self, Applied},
    check_note, dead, groups, hand_record, print,
};
use crate::{
    arguments::{HandleIncident, IncidentFilter, IncidentsCommand, ListIncidents},
    exit::{Failure, SUCCESS},
    inbox::fresh_key,
    ledger::PendingRequest,
    output::{Form, Output},
    progress::Progress,
    remote::{query::path, route},
    source::{Source, applied, change_there},
    target::{ServerAddress, Target},
};

pub(super) fn run(
    (address, target): (&ServerAddress, &Target),
    command: Option<&IncidentsCommand>,
    asked: &ListIncidents,
    output: &mut Output,
) -> Result<u8, Failure> {
    let source = Source::at(address, output)?;
    let there = There { source, target };
    match command {
        None => there.list(asked, output),
        Some(IncidentsCommand::List(asked)) => there.list(asked, output),
        Some(IncidentsCommand::Ack(asked)) => there.handle(Hand::Acknowledge, asked, output),
        Some(IncidentsCommand::Resolve(asked)) => there.handle(Hand::Resolve, asked, output),
        Some(IncidentsCommand::Note(asked)) => {
            check_note(asked)?;
            there.handle(Hand::Note, asked, output)
        }
        Some(IncidentsCommand::Dead { json }) => dead(target, Form::asked(*json), output),
        // It needs this machine, and was refused before.
        Some(IncidentsCommand::Test { .. }) => Ok(SUCCESS),
    }
}

/// Incidents of a server.
struct There<'a> {
    source: Source,
    target: &'a Target,
}

/// A filter, and what it needs to know of declarations.
struct Matching {
    query: IncidentsQuery,
    /// What is declared, where upstreams are asked about: no route filters by those.
    declared: Option<BTreeMap<String, DeclaredAnswer>>,
    upstreams: Vec<String>,
}

impl Matching {
    fn holds(&self, incident: &IncidentAnswer) -> bool {
        let Some(declared) = &self.declared else { return true };
        let of = declared.get(&incident.pipeline);
        of.is_some_and(|it| self.upstreams.iter().any(|name| it.upstreams.contains(name)))
    }
}

impl There<'_> {
    fn matching(&self, filter: &IncidentFilter) -> Result<Matching, Failure> {
        let IncidentFilter { pipeline, kinds, owners, labels, upstreams } = filter;
        let pipeline = pipeline.as_deref().map(|name| self.source.known_or_system(name));
        let query = IncidentsQuery {
            pipeline: pipeline.transpose()?.map(|name| name.to_string()),
            kind: kinds.clone(),
            owner: owners.clone(),
            label: labels.iter().map(|(name, value)| format!("{name}={value}")).collect(),
            limit: Some(LIMIT_MAX),
            ..IncidentsQuery::default()
        };
        let declared = if upstreams.is_empty() { None } else { Some(self.declared()?) };
        Ok(Matching { query, declared, upstreams: upstreams.clone() })
    }

    fn declared(&self) -> Result<BTreeMap<String, DeclaredAnswer>, Failure> {
        let all = self.source.standings(None)?.into_iter().map(|it| it.declared);
        Ok(all.map(|it| (it.pipeline.clone(), it)).collect())
    }

    /// Those that match and are in these states, at most so many and one more.
    fn find(
        &self,
        matching: &Matching,
        states: &[&str],
        limit: usize,
    ) -> Result<Vec<IncidentAnswer>, Failure> {
        let state = states.iter().map(|state| (*state).to_owned()).collect();
        let mut asked = IncidentsQuery { state, ..matching.query.clone() };
        let mut found = Vec::new();
        loop {
            let page: Listing<IncidentAnswer> =
                self.source.server()?.get(&path(&["incidents"]), &asked)?;
            found.extend(page.items.into_iter().filter(|it| matching.holds(it)));
            asked.after = page.next;
            if asked.after.is_none() || found.len() > limit {
                return Ok(found);
            }
        }
    }

    fn open(&self, matching: &Matching) -> Result<Vec<IncidentAnswer>, Failure> {
        self.find(matching, &["open", "acknowledged"], usize::MAX)
    }

    fn list(&self, asked: &ListIncidents, output: &mut Output) -> Result<u8, Failure> {
        let matching = self.matching(&asked.filter)?;
        let may_be_grouped = !asked.all && !asked.filter.is_set() && !asked.json;
        if asked.group_by.is_some() && !asked.filter.is_set() {
            return self.groups(asked, output);
        }
        if may_be_grouped {
            let first = self.find(&matching, &["open", "acknowledged"], LISTED_MAX)?;
            if first.len() > LISTED_MAX {
                return self.groups(asked, output);
            }
        }
        let mut found = self.open(&matching)?;
        if asked.group_by.is_some() {
            return self.filtered_groups(&found, asked, output);
        }
        let mut more = false;
        if asked.all {
            let limit = asked.limit as usize;
            let mut resolved = self.find(&matching, &["resolved"], limit)?;
            more = resolved.len() > limit;
            resolved.truncate(limit);
            found.extend(resolved);
        }
        print(&found, more, asked, output)?;
        Ok(SUCCESS)
    }

    /// What the server counts.
    fn groups(&self, asked: &ListIncidents, output: &mut Output) -> Result<u8, Failure> {
        let (mut all, mut count) = (Vec::new(), 0);
        for by in groups::groupings(asked) {
            let path = path(&["incidents", "groups"]);
            let found: IncidentGroupsAnswer =
                self.source.server()?.get(&path, &IncidentGroupsQuery { by })?;
            count = found.scanned as usize;
            all.push((by, found.items));
        }
        groups::print(count, &all, asked, output)?;
        Ok(SUCCESS)
    }

    /// The same of some of them.
    fn filtered_groups(
        &self,
        found: &[IncidentAnswer],
        asked: &ListIncidents,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        let declared = self.declared()?;
        let mut all = Vec::new();
        for by in groups::groupings(asked) {
            let values = |incident: &IncidentAnswer| values(by, incident, &declared);
            all.push((by, groups::group_answers(by, found, values)));
        }
        groups::print(found.len(), &all, asked, output)?;
        Ok(SUCCESS)
    }

    /// Acknowledges, resolves or notes one incident, or all that match.
    fn handle(
        &self,
        hand: Hand,
        asked: &HandleIncident,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        asked.by.check(self.target)?;
        let Some(id) = &asked.id else { return self.handle_all(hand, asked, output) };
        let matching = self.matching(&IncidentFilter {
            pipeline: asked.filter.pipeline.clone(),
            ..IncidentFilter::default()
        })?;
        let mut all = self.open(&matching)?;
        all.extend(self.find(&matching, &["resolved"], RESOLVED_LOOKED_AT)?);
        let found = one(&all, id)?;
        let (pipeline, record) = entry(hand, asked, found)?;
        let change = route::of(&pipeline, &record)
            .ok_or_else(|| Failure::failed("internal error: it has no route", ""))?;
        change_there(self.source.server()?, &change, asked.sending, output)
    }

    fn handle_all(
        &self,
        hand: Hand,
        asked: &HandleIncident,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        bulk::check_filter(asked)?;
        let matching = self.matching(&asked.filter)?;
        let mut found = self.open(&matching)?;
        // An acknowledgement that is there stays.
        found.retain(|it| hand != Hand::Acknowledge || it.acknowledged.is_none());
        if asked.dry_run {
            return show(&found, asked, output);
        }
        if !found.is_empty() && !bulk::is_agreed(hand, asked, found.len(), output)? {
            use std::io::Write as _;
            writeln!(output.err, "nothing was done")?;
            return Ok(SUCCESS);
        }
        let mut done = Applied {
            who: "the owners of their pipelines have not got to them",
            ..Applied::default()
        };
        let mut progress = Progress::of("incidents", found.len() as u64);
        for (index, incident) in found.iter().enumerate() {
            self.handle_one((hand, asked), incident, &mut done)?;
            progress.step(index as u64 + 1, output)?;
        }
        progress.finish(output)?;
        bulk::report(&done, hand, asked, output)
    }

    fn handle_one(
        &self,
        (hand, asked): (Hand, &HandleIncident),
        incident: &IncidentAnswer,
        done: &mut Applied,
    ) -> Result<(), Failure> {
        let (pipeline, record) = entry(hand, asked, incident)?;
        let Some(change) = route::of(&pipeline, &record) else { return Ok(()) };
        let answer = self.source.server()?.change(&change, asked.sending.wait)?;
        let request = PendingRequest { pipeline, key: fresh_key(), record };
        match applied(&answer) {
            Some(answer) if answer.accepted => done.accepted += 1,
            Some(answer) => done.refused.push((request, answer)),
            None => done.pending.push(request),
        }
        Ok(())
    }
}

/// What a person does with an incident, as an entry in the inbox of its pipeline.
fn entry(
    hand: Hand,
    asked: &HandleIncident,
    incident: &IncidentAnswer,
) -> Result<(PipelineId, interlock_store::record::InboxRecord), Failure> {
    let pipeline = PipelineId::any(&incident.pipeline);
    let pipeline = pipeline.map_err(|error| Failure::failed(error.message, error.help))?;
    Ok((pipeline, hand_record(hand, asked, incident.key.clone())))
}

/// The incident with a key, or the only open one whose key begins so.
fn one<'a>(all: &'a [IncidentAnswer], id: &str) -> Result<&'a IncidentAnswer, Failure> {
    let exact: Vec<_> = all.iter().filter(|it| it.key == id).collect();
    let found = if exact.is_empty() {
        all.iter().filter(|it| it.key.starts_with(id) && it.resolved.is_none()).collect()
    } else {
        exact
    };
    match found.as_slice() {
        [incident] => Ok(*incident),
        [] => Err(Failure::refused(
            format!("there is no incident `{id}`"),
            "`interlock incidents` lists them by KEY.",
        )),
        several => {
            let keys: Vec<_> =
                several.iter().map(|it| format!("{} of {}", it.key, it.pipeline)).collect();
            Err(Failure::refused(
                format!("several incidents begin with `{id}`: {}", keys.join(", ")),
                "Write more of the key, or name its pipeline with `--pipeline`.",
            ))
        }
    }
}

fn show(
    found: &[IncidentAnswer],
    asked: &HandleIncident,
    output: &mut Output,
) -> Result<u8, Failure> {
    if asked.sending.json {
        let keys = found.iter().map(|it| json!({"pipeline": it.pipeline, "key": it.key}));
        output.json(&Value::Array(keys.collect()))?;
    } else if found.is_empty() {
        use std::io::Write as _;
        writeln!(output.out, "no open incidents match")?;
    } else {
        let lines: Vec<_> = found.iter().map(table::incident_row).collect();
        output.table(table::INCIDENTS, &lines)?;
    }
    Ok(SUCCESS)
}

/// What an incident has of a sort: of upstreams several, else one or nothing.
fn values(
    by: IncidentGrouping,
    incident: &IncidentAnswer,
    declared: &BTreeMap<String, DeclaredAnswer>,
) -> Vec<Option<String>> {
    let of = declared.get(&incident.pipeline);
    match by {
        IncidentGrouping::Kind => vec![Some(incident.kind.clone())],
        IncidentGrouping::Pipeline => vec![Some(incident.pipeline.clone())],
        IncidentGrouping::Owner => vec![of.and_then(|declared| declared.owner.clone())],
        IncidentGrouping::Upstream => match of.map(|declared| &declared.upstreams) {
            Some(upstreams) if !upstreams.is_empty() => {
                upstreams.iter().cloned().map(Some).collect()
            }
            _ => vec![None],
        },
    }
}
