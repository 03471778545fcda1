//! Requests of a person about one pipeline: into the inbox here, or over HTTP to a server.

use std::{io::Write as _, path::Path};

use interlock_answers::model::request::RequestAnswer;
use interlock_core::{
    id::{PipelineId, SlotKey},
    zone::Zone,
};
use interlock_store::record::{AppliedRecord, InboxRecord};
use serde_json::json;

use super::{Source, lookup::known_there};
use crate::{
    arguments::Sending,
    exit::{ACCEPTED, Failure, SUCCESS},
    inbox::{Inbox, reason, sentence},
    output::Output,
    project,
    remote::{Change, RemoteServer, route},
    slot_name::{self, Typed},
    target::Target,
};

/// Where requests about one pipeline, or about none, go.
pub(crate) enum RequestSource {
    /// Into the inbox of a project on this machine.
    Inbox(Box<Inbox>),
    /// To a server.
    Server(Box<ServerInbox>),
}

/// A pipeline at a server.
pub(crate) struct ServerInbox {
    pub(crate) source: Source,
    pub(crate) pipeline: PipelineId,
}

impl RequestSource {
    /// For a pipeline that is declared or recorded.
    pub(crate) fn open(
        target: &Target,
        pipeline: &str,
        output: &mut Output,
    ) -> Result<Self, Failure> {
        Ok(match target {
            Target::Project(directory) => Self::Inbox(Box::new(Inbox::open(directory, pipeline)?)),
            Target::Server(address) => {
                let server = RemoteServer::new(address, output)?;
                let pipeline = known_there(&server, pipeline)?.id;
                let source = Source::Server(Box::new(server));
                Self::Server(Box::new(ServerInbox { source, pipeline }))
            }
        })
    }

    /// For what is about no pipeline.
    pub(crate) fn system(target: &Target, output: &mut Output) -> Result<Self, Failure> {
        Ok(match target {
            Target::Project(directory) => Self::Inbox(Box::new(Inbox::system(directory)?)),
            Target::Server(address) => {
                Self::at(RemoteServer::new(address, output)?, PipelineId::system())
            }
        })
    }

    /// For a pipeline at a server, which may be long gone, or `_system`.
    pub(crate) fn at(server: RemoteServer, pipeline: PipelineId) -> Self {
        let source = Source::Server(Box::new(server));
        Self::Server(Box::new(ServerInbox { source, pipeline }))
    }

    /// Whether `serve` runs, which does what is asked for.
    pub(crate) fn is_served(&self) -> bool {
        match self {
            Self::Inbox(inbox) => inbox.ledger.is_served(),
            Self::Server(_) => true,
        }
    }

    /// The zone in which people speak of the pipeline.
    pub(crate) fn first_zone(&self) -> Result<Zone, Failure> {
        match self {
            Self::Inbox(inbox) => {
                let loaded = project::load(&inbox.directory)?;
                Ok(slot_name::first_zone(project::find(&loaded, &inbox.pipeline)))
            }
            Self::Server(server) => server.source.first_zone(&server.pipeline),
        }
    }

    /// The slot of the pipeline that a text means.
    pub(crate) fn slot_of(&self, text: &str) -> Result<SlotKey, Failure> {
        match self {
            Self::Inbox(inbox) => slot_here(inbox, &inbox.directory, text),
            Self::Server(server) => server.source.slot_of(&server.pipeline, text),
        }
    }

    /// Sends a request, sees to its answer and prints it.
    pub(crate) fn send(
        &self,
        record: &InboxRecord,
        sending: Sending,
        output: &mut Output,
    ) -> Result<u8, Failure> {
        match self {
            Self::Inbox(inbox) => inbox.send(record, sending, output),
            Self::Server(server) => {
                let change = route::of(&server.pipeline, record).ok_or_else(|| {
                    Failure::usage(
                        "a server cannot be asked for that",
                        "Ask on the machine of the project, with `-C DIR`.",
                    )
                })?;
                change_there(server.source.server()?, &change, sending, output)
            }
        }
    }
}

/// The slot of a pipeline of this machine that a text means.
fn slot_here(inbox: &Inbox, directory: &Path, text: &str) -> Result<SlotKey, Failure> {
    let loaded = project::load(directory)?;
    let typed = Typed::parse(&inbox.pipeline, text)?;
    slot_name::resolve(&loaded, &inbox.ledger, &inbox.pipeline, &typed)
}

/// Asks a server for a change and prints what came of it, as on this machine.
pub(crate) fn change_there(
    server: &RemoteServer,
    change: &Change,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let answer = server.change(change, sending.wait)?;
    print(server, &answer, sending, output)
}

/// Prints what came of a request.
pub(crate) fn print(
    server: &RemoteServer,
    answer: &RequestAnswer,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let code = crate::inbox::exit_code(applied(answer).as_ref());
    if sending.json {
        output.json(&json!(answer))?;
        return Ok(code);
    }
    match applied(answer) {
        Some(applied) if applied.accepted => {
            writeln!(output.out, "done{}", sentence(&applied.result))?;
            Ok(SUCCESS)
        }
        Some(applied) => Err(Failure::refused(reason(&applied.result), "")),
        None => {
            let host = server.host();
            writeln!(
                output.out,
                "accepted, not yet applied: {host} has it, and the owner of the pipeline has not got to it"
            )?;
            Ok(ACCEPTED)
        }
    }
}

/// What the owner answered, if it has.
pub(crate) fn applied(answer: &RequestAnswer) -> Option<AppliedRecord> {
    let accepted = answer.accepted.filter(|_| answer.applied)?;
    Some(AppliedRecord {
        accepted,
        at: answer.at.unwrap_or(jiff::Timestamp::UNIX_EPOCH),
        result: answer.result.clone().unwrap_or_default(),
        request: None,
    })
}
