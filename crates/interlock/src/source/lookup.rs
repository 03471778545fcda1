//! Which pipeline and which slot a text means, by the files or by what a server says is declared.

use interlock_answers::{
    Listing, StoryQuery,
    model::{
        next_slot::{NextSlotsAnswer, NextSlotsQuery},
        pipeline::{PipelineAnswer, PipelinesQuery},
        slot::{LedgerAnswer, SlotsQuery},
        story::StoryAnswer,
    },
};
use interlock_config::{SystemZones, zones};
use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    zone::Zone,
};
use interlock_store::block_on;
use jiff::{SignedDuration, Timestamp};

use super::Source;
use crate::{
    exit::Failure,
    project,
    remote::{RemoteServer, query::path},
    slot_name::{self, Typed},
};

/// A slot, by its schedule and its instant.
type SlotPlace = (ScheduleId, Timestamp);

impl Source {
    /// The id of a pipeline that is recorded or declared.
    pub(crate) fn known(&self, name: &str) -> Result<PipelineId, Failure> {
        match self {
            Self::Project(here) => here.ledger.known(&here.directory, name),
            Self::Server(server) => Ok(known_there(server, name)?.id),
        }
    }

    /// The same, or `_system`, which has incidents and events and no file.
    pub(crate) fn known_or_system(&self, name: &str) -> Result<PipelineId, Failure> {
        let system = PipelineId::system();
        if name == system.as_str() { Ok(system) } else { self.known(name) }
    }

    /// The zone in which people speak of a pipeline.
    pub(crate) fn first_zone(&self, pipeline: &PipelineId) -> Result<Zone, Failure> {
        match self {
            Self::Project(here) => {
                let loaded = project::load(&here.directory)?;
                Ok(slot_name::first_zone(project::find(&loaded, pipeline)))
            }
            Self::Server(server) => Ok(known_there(server, pipeline.as_str())?.first_zone()),
        }
    }

    /// The one slot of a pipeline that a text means.
    pub(crate) fn slot_of(&self, pipeline: &PipelineId, text: &str) -> Result<SlotKey, Failure> {
        let typed = Typed::parse(pipeline, text)?;
        match self {
            Self::Project(here) => {
                let loaded = project::load(&here.directory)?;
                slot_name::resolve(&loaded, &here.ledger, pipeline, &typed)
            }
            Self::Server(server) => slot_there(server, pipeline, &typed),
        }
    }

    /// The stories of the slots at an instant, one for each schedule; where there are none, why.
    pub(crate) fn stories(&self, asked: &StoryQuery) -> Result<Vec<StoryAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().stories(asked))?),
            Self::Server(server) => stories_there(server, asked),
        }
    }

    /// Why nothing is recorded at an instant, a story for each schedule.
    pub(crate) fn absences(&self, asked: &StoryQuery) -> Result<Vec<StoryAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().absences(asked))?),
            Self::Server(server) => stories_there(server, asked),
        }
    }

    /// The start schedules of a pipeline, with the zone of each, and the zone in which people speak of it.
    pub(crate) fn schedule_zones(&self, pipeline: &PipelineId) -> Result<ScheduleZones, Failure> {
        Ok(match self {
            Self::Project(here) => {
                let declarations = here.ledger.reader().declarations;
                let declared = block_on(declarations.current(pipeline)).ok().flatten();
                let declared = declared.as_deref();
                let own = declared.into_iter().flat_map(|it| {
                    let controls = it.controls.iter().map(|it| (&it.schedule, false));
                    it.starts.iter().map(|it| (&it.schedule, true)).chain(controls)
                });
                let all = own.map(|(schedule, starts)| ScheduleZone {
                    id: schedule.id().clone(),
                    zone: schedule.timing().zone.clone(),
                    starts,
                });
                ScheduleZones { first: slot_name::first_zone(declared), all: all.collect() }
            }
            Self::Server(server) => known_there(server, pipeline.as_str())?.zones(),
        })
    }
}

/// In which zones the times of a pipeline are meant.
pub(crate) struct ScheduleZones {
    /// Where no schedule is named.
    pub(crate) first: Zone,
    pub(crate) all: Vec<ScheduleZone>,
}

/// The zone of one schedule.
pub(crate) struct ScheduleZone {
    pub(crate) id: ScheduleId,
    pub(crate) zone: Zone,
    /// Whether it starts jobs, or ends them.
    pub(crate) starts: bool,
}

impl ScheduleZones {
    /// The zone of a schedule.
    pub(crate) fn of(&self, schedule: &ScheduleId) -> &Zone {
        let known = self.all.iter().find(|it| it.id == *schedule);
        known.map_or(&self.first, |it| &it.zone)
    }
}

/// A pipeline as a server tells of it.
pub(crate) struct KnownPipeline {
    pub(crate) id: PipelineId,
    pub(crate) standing: PipelineAnswer,
}

impl KnownPipeline {
    fn first_zone(&self) -> Zone {
        let schedules = &self.standing.declared.schedules;
        schedules.first().map_or_else(Zone::utc, |schedule| zone(&schedule.zone))
    }

    fn zones(&self) -> ScheduleZones {
        let schedules = self.standing.declared.schedules.iter();
        let all = schedules.filter_map(|it| {
            let id = ScheduleId::any(&it.id).ok()?;
            Some(ScheduleZone { id, zone: zone(&it.zone), starts: it.action == "start" })
        });
        ScheduleZones { first: self.first_zone(), all: all.collect() }
    }
}

/// A zone by its name; this machine may not know it.
fn zone(name: &str) -> Zone {
    zones::resolve(&SystemZones::new(), name).unwrap_or_else(|_unknown| Zone::utc())
}

/// The pipeline of a name at a server.
pub(crate) fn known_there(server: &RemoteServer, name: &str) -> Result<KnownPipeline, Failure> {
    let unknown = || {
        Failure::usage(
            format!("there is no pipeline `{name}`"),
            format!("`interlock list` names those that {} has.", server.host()),
        )
    };
    let id = PipelineId::parse(name).map_err(|_malformed| unknown())?;
    let asked = PipelinesQuery { pipeline: vec![name.to_owned()], ..PipelinesQuery::default() };
    let page: Listing<PipelineAnswer> = server.get(&path(&["pipelines"]), &asked)?;
    let standing = page.items.into_iter().next().ok_or_else(unknown)?;
    Ok(KnownPipeline { id, standing })
}

/// The one slot that is meant, declared or recorded.
fn slot_there(
    server: &RemoteServer,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<SlotKey, Failure> {
    let zones = known_there(server, pipeline.as_str())?.zones();
    if let Some(schedule) = &typed.schedule {
        let nominal = typed.at(zones.of(schedule));
        return Ok(SlotKey { pipeline: pipeline.clone(), schedule: schedule.clone(), nominal });
    }
    let mut found = declared_there(server, pipeline, (typed, &zones))?;
    for place in recorded_there(server, pipeline, typed.at(&zones.first))? {
        if !found.contains(&place) {
            found.push(place);
        }
    }
    match found.as_slice() {
        [(schedule, nominal)] => Ok(SlotKey {
            pipeline: pipeline.clone(),
            schedule: schedule.clone(),
            nominal: *nominal,
        }),
        [] => Err(Failure::usage(
            format!("{pipeline} has no slot at that instant"),
            format!("`interlock next {pipeline}` lists those that come."),
        )),
        several => Err(slot_name::ambiguous(pipeline, several)),
    }
}

/// The slots that the schedules of a pipeline have then, each by its own clock on the wall.
fn declared_there(
    server: &RemoteServer,
    pipeline: &PipelineId,
    (typed, zones): (&Typed, &ScheduleZones),
) -> Result<Vec<SlotPlace>, Failure> {
    let mut instants: Vec<Timestamp> =
        zones.all.iter().filter(|it| it.starts).map(|it| typed.at(&it.zone)).collect();
    instants.sort_unstable();
    instants.dedup();
    let mut found = Vec::new();
    for at in instants {
        let asked =
            NextSlotsQuery { from: Some(at), to: Some(just_after(at)), ..Default::default() };
        let path = path(&["pipelines", pipeline.as_str(), "next"]);
        let listed: Option<NextSlotsAnswer> = server.find(&path, &asked)?;
        for slot in listed.into_iter().flat_map(|listed| listed.items) {
            let Ok(schedule) = ScheduleId::any(&slot.schedule) else { continue };
            if typed.at(zones.of(&schedule)) == slot.utc {
                found.push((schedule, slot.utc));
            }
        }
    }
    Ok(found)
}

/// The slots of a pipeline that are recorded at an instant and had work to do.
fn recorded_there(
    server: &RemoteServer,
    pipeline: &PipelineId,
    at: Timestamp,
) -> Result<Vec<SlotPlace>, Failure> {
    let asked = SlotsQuery {
        pipeline: Some(pipeline.to_string()),
        from: Some(at),
        until: Some(just_after(at)),
        ..SlotsQuery::default()
    };
    let page: Listing<LedgerAnswer> = server.get(&path(&["slots"]), &asked)?;
    let slot = |item| match item {
        LedgerAnswer::Slot(slot) => {
            let schedule = ScheduleId::any(&slot.schedule).ok()?;
            // Nothing runs in the slot of a stop: it is meant only if it is named.
            (slot.generation > 0 || !schedule.is_control()).then_some((schedule, slot.utc))
        }
        LedgerAnswer::Span(_) => None,
    };
    Ok(page.items.into_iter().filter_map(slot).collect())
}

fn just_after(at: Timestamp) -> Timestamp {
    at.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(at)
}

/// The stories of the slots at an instant; a route tells that of one schedule.
fn stories_there(server: &RemoteServer, asked: &StoryQuery) -> Result<Vec<StoryAnswer>, Failure> {
    let StoryQuery { pipeline, schedule, at } = asked;
    let story = |schedule: &ScheduleId| {
        let instant = at.to_string();
        let parts = ["pipelines", pipeline.as_str(), "slots", schedule.as_str(), &instant, "story"];
        server.get::<StoryAnswer>(&path(&parts), &serde_json::json!({}))
    };
    if let Some(schedule) = schedule {
        return Ok(vec![story(schedule)?]);
    }
    let mut recorded: Vec<ScheduleId> = Vec::new();
    let listed = SlotsQuery {
        pipeline: Some(pipeline.to_string()),
        from: Some(*at),
        until: Some(just_after(*at)),
        ..SlotsQuery::default()
    };
    let page: Listing<LedgerAnswer> = server.get(&path(&["slots"]), &listed)?;
    for item in &page.items {
        let schedule = match item {
            LedgerAnswer::Slot(slot) => &slot.schedule,
            LedgerAnswer::Span(span) => &span.schedule,
        };
        if let Ok(schedule) = ScheduleId::any(schedule)
            && !recorded.contains(&schedule)
        {
            recorded.push(schedule);
        }
    }
    let mut stories = recorded.iter().map(story).collect::<Result<Vec<_>, _>>()?;
    stories.retain(|story| story.slot.is_some());
    if stories.is_empty() {
        let zones = known_there(server, pipeline.as_str())?.zones();
        let starts = zones.all.iter().filter(|it| it.starts);
        stories = starts.map(|it| story(&it.id)).collect::<Result<_, _>>()?;
    }
    Ok(stories)
}
