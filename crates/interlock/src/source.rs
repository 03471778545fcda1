//! Who answers the questions of a command: this project's files and ledger, or a server elsewhere (ADR 65).
//!
//! Each question is asked with the query type and answered with the answer type that the API has, so that a command prints the same
//! in both places. On this machine the [`interlock_answers::Reader`] answers; over HTTP the route that is a line around the same method.

mod lookup;
mod requests;

use std::path::{Path, PathBuf};

use interlock_answers::{
    Listing, event_answer,
    model::{
        backfill::{BackfillAnswer, BackfillsQuery},
        event::{EventAnswer, EventsQuery},
        incident::DeadLetterAnswer,
        instance::ShardAnswer,
        page::{ListingOrder, PageQuery},
        pipeline::{PipelineAnswer, PipelinesQuery},
        run::{RunAnswer, RunsQuery},
        sensor::SensorAnswer,
        silence::{SilenceAnswer, SilencesQuery},
        slot::{LedgerAnswer, SlotAnswer, SlotPath, SlotsQuery},
        token::TokenAnswer,
        watermark::{WatermarkAnswer, WatermarksQuery},
    },
};
use interlock_core::id::{PipelineId, SlotKey};
use interlock_store::{RunKey, block_on};

pub(crate) use self::{
    lookup::known_there,
    requests::{RequestSource, applied, change_there, print as print_answer},
};
use crate::{
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::Output,
    owners,
    remote::{RemoteServer, query::path},
    target::{ServerAddress, Target},
};

/// Pipelines, slots and so on that one request asks a server for: as many as it gives.
const PAGE: usize = interlock_answers::LIMIT_MAX;

/// Who answers.
pub(crate) enum Source {
    /// The project in a directory, with its ledger.
    Project(Box<ProjectSource>),
    /// A server.
    Server(Box<RemoteServer>),
}

/// A project on this machine.
pub(crate) struct ProjectSource {
    pub(crate) directory: PathBuf,
    pub(crate) ledger: Ledger,
}

/// A page of events, oldest first.
pub(crate) struct EventPage {
    pub(crate) items: Vec<EventAnswer>,
    pub(crate) more: bool,
}

impl ProjectSource {
    /// The project of a directory, whose ledger is there.
    pub(crate) fn open(directory: &Path) -> Result<Self, Failure> {
        Ok(Self { directory: directory.to_owned(), ledger: Ledger::open(directory)? })
    }
}

impl Source {
    /// Opens the ledger, or gets ready to ask the server.
    pub(crate) fn open(target: &Target, output: &mut Output) -> Result<Self, Failure> {
        Ok(match target {
            Target::Project(directory) => Self::Project(Box::new(ProjectSource::open(directory)?)),
            Target::Server(address) => Self::at(address, output)?,
        })
    }

    /// Gets ready to ask a server.
    pub(crate) fn at(address: &ServerAddress, output: &mut Output) -> Result<Self, Failure> {
        Ok(Self::Server(Box::new(RemoteServer::new(address, output)?)))
    }

    /// The server, where one is asked.
    pub(crate) fn server(&self) -> Result<&RemoteServer, Failure> {
        match self {
            Self::Server(server) => Ok(server),
            Self::Project(_) => Err(Failure::failed("internal error: no server is asked", "")),
        }
    }

    /// Says on standard error that parts of the project's files could not be used; a server says so in its `doctor`.
    pub(crate) fn mention_errors(&self, output: &mut Output) -> Result<(), Failure> {
        if let Self::Project(here) = self {
            here.ledger.declarations().mention_errors(output)?;
        }
        Ok(())
    }

    /// Says what a list lacks because it could not be reached, and answers with the code to end with.
    pub(crate) fn conclude(
        &self,
        only: Option<&PipelineId>,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        match self {
            Self::Project(here) => here.ledger.conclude(only, output),
            // What it cannot reach it says in its health; a list of it has what it can.
            Self::Server(_) => Ok(SUCCESS),
        }
    }

    /// Where pipelines stand; of one, retired or not.
    pub(crate) fn standings(
        &self,
        only: Option<&PipelineId>,
    ) -> Result<Vec<PipelineAnswer>, Failure> {
        let server = match self {
            Self::Project(here) => return Ok(block_on(here.ledger.reader().standings(only))?),
            Self::Server(server) => server,
        };
        let pipeline = only.iter().map(ToString::to_string).collect();
        let mut asked = PipelinesQuery { pipeline, limit: Some(PAGE), ..PipelinesQuery::default() };
        let mut all = Vec::new();
        loop {
            let page: Listing<PipelineAnswer> = server.get(&path(&["pipelines"]), &asked)?;
            all.extend(page.items);
            asked.after = page.next;
            if asked.after.is_none() {
                return Ok(all);
            }
        }
    }

    /// Whether what a pipeline's records say cannot be read now.
    pub(crate) fn is_away(&self, pipeline: &str) -> bool {
        match self {
            Self::Project(here) => {
                PipelineId::parse(pipeline).is_ok_and(|name| here.ledger.away(&name).is_some())
            }
            Self::Server(_) => false,
        }
    }

    /// Whether `serve` runs, which opens slots and starts jobs.
    pub(crate) fn is_served(&self) -> bool {
        match self {
            Self::Project(here) => here.ledger.is_served(),
            Self::Server(_) => true,
        }
    }

    /// Who owns how many shards, where that is more than one process.
    pub(crate) fn owners(&self) -> Result<Option<String>, Failure> {
        match self {
            Self::Project(here) => {
                let roll = here.ledger.roll()?;
                Ok(owners::sentence(roll.as_ref(), here.ledger.store().shard_count()))
            }
            Self::Server(server) => {
                let shards: Listing<ShardAnswer> =
                    server.get(&path(&["shards"]), &PageQuery::default())?;
                Ok(owners::sentence_of(&shards.items))
            }
        }
    }

    /// Runs, newest first.
    pub(crate) fn runs(&self, asked: &RunsQuery) -> Result<Listing<RunAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().runs(asked))?),
            Self::Server(server) => server.get(&path(&["runs"]), asked),
        }
    }

    /// The run with an id.
    pub(crate) fn run(&self, id: &str) -> Result<RunAnswer, Failure> {
        let (pipeline, _) =
            RunKey::parse(id).map_err(|error| Failure::usage(error.message, error.help))?;
        let found = match self {
            Self::Project(here) => block_on(here.ledger.reader().run(id)).map_err(Failure::from),
            Self::Server(server) => server
                .find(&path(&["runs", id]), &PageQuery::default())
                .and_then(|found| found.ok_or_else(|| Failure::refused("", ""))),
        };
        // A run that is not there is answered alike by both.
        found.map_err(|failure| match failure.exit_code() {
            crate::exit::PROBLEMS => Failure::refused(
                format!("there is no run {id}"),
                format!("`interlock runs --pipeline {pipeline}` lists them."),
            ),
            _ => failure,
        })
    }

    /// Slots and spans, in order of time.
    pub(crate) fn slots(&self, asked: &SlotsQuery) -> Result<Listing<LedgerAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().slots(asked))?),
            Self::Server(server) => server.get(&path(&["slots"]), asked),
        }
    }

    /// A slot, if something is recorded of it.
    pub(crate) fn slot(&self, key: &SlotKey) -> Result<Option<SlotAnswer>, Failure> {
        let (pipeline, schedule) = (key.pipeline.to_string(), key.schedule.to_string());
        match self {
            Self::Project(here) => {
                let asked = SlotPath { pipeline, schedule, instant: key.nominal };
                match block_on(here.ledger.reader().slot(&asked)) {
                    Ok(slot) => Ok(Some(slot)),
                    Err(error) if matches!(error.code.status(), 404 | 410) => Ok(None),
                    Err(error) => Err(error.into()),
                }
            }
            Self::Server(server) => {
                let instant = key.nominal.to_string();
                let path = path(&["pipelines", &pipeline, "slots", &schedule, &instant]);
                server.find(&path, &PageQuery::default())
            }
        }
    }

    /// A page of events after a number, oldest first.
    pub(crate) fn events(
        &self,
        pipeline: Option<&PipelineId>,
        after: u64,
    ) -> Result<EventPage, Failure> {
        match self {
            Self::Project(here) => {
                let page = here.ledger.events(pipeline, after)?;
                let items = page.items.into_iter().map(event_answer).collect();
                Ok(EventPage { items, more: page.more })
            }
            Self::Server(server) => events_there(server, pipeline, after),
        }
    }

    /// How far schedules are recorded.
    pub(crate) fn watermarks(
        &self,
        asked: &WatermarksQuery,
    ) -> Result<Listing<WatermarkAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().watermarks(asked))?),
            Self::Server(server) => server.get(&path(&["watermarks"]), asked),
        }
    }

    /// The sensors of a pipeline.
    pub(crate) fn sensors(
        &self,
        pipeline: &PipelineId,
        asked: &PageQuery,
    ) -> Result<Listing<SensorAnswer>, Failure> {
        let name = pipeline.as_str();
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().sensors(name, asked))?),
            Self::Server(server) => server.get(&path(&["pipelines", name, "sensors"]), asked),
        }
    }

    /// Alerts that were given up.
    pub(crate) fn dead_letters(
        &self,
        asked: &PageQuery,
    ) -> Result<Listing<DeadLetterAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().dead_letters(asked))?),
            Self::Server(server) => server.get(&path(&["dead-letters"]), asked),
        }
    }

    /// Silences.
    pub(crate) fn silences(
        &self,
        asked: &SilencesQuery,
    ) -> Result<Listing<SilenceAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().silences(asked))?),
            Self::Server(server) => server.get(&path(&["silences"]), asked),
        }
    }

    /// Tokens, without what opens anything.
    pub(crate) fn tokens(&self, asked: &PageQuery) -> Result<Listing<TokenAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().tokens(asked))?),
            Self::Server(server) => server.get(&path(&["tokens"]), asked),
        }
    }

    /// Backfills.
    pub(crate) fn backfills(
        &self,
        asked: &BackfillsQuery,
    ) -> Result<Listing<BackfillAnswer>, Failure> {
        match self {
            Self::Project(here) => Ok(block_on(here.ledger.reader().backfills(asked))?),
            Self::Server(server) => server.get(&path(&["backfills"]), asked),
        }
    }
}

/// A page of events of a server after a number, oldest first.
pub(crate) fn events_there(
    server: &RemoteServer,
    pipeline: Option<&PipelineId>,
    after: u64,
) -> Result<EventPage, Failure> {
    let asked = EventsQuery {
        pipeline: pipeline.map(ToString::to_string),
        after: Some(after.to_string()),
        limit: Some(PAGE),
        ..EventsQuery::default()
    };
    let page: Listing<EventAnswer> = server.get(&path(&["events"]), &asked)?;
    Ok(EventPage { more: page.next.is_some(), items: page.items })
}

/// The number of the newest event of a pipeline at a server; 0 where there is none.
pub(crate) fn newest_event(server: &RemoteServer, pipeline: &PipelineId) -> Result<u64, Failure> {
    let asked = EventsQuery {
        pipeline: Some(pipeline.to_string()),
        order: Some(ListingOrder::Newest),
        limit: Some(1),
        ..EventsQuery::default()
    };
    let page: Listing<EventAnswer> = server.get(&path(&["events"]), &asked)?;
    Ok(page.items.first().map_or(0, |event| event.number))
}
