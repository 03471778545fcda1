//! `interlock pause`: nothing of a pipeline is opened or started until it is resumed.

use std::path::Path;

use interlock_store::record::InboxRecord;

use crate::{
    arguments::Sending,
    clock,
    exit::Failure,
    inbox::Inbox,
    moment::Moment,
    output::{Output, instant},
    project, slot_name,
};

pub(super) fn run(
    directory: &Path,
    (pipeline, reason): (&str, &str),
    until: Option<Moment>,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    if reason.trim().is_empty() {
        return Err(Failure::usage(
            "a pause needs a reason",
            "Say why with `--reason`: it is shown to everyone who finds the pipeline paused.",
        ));
    }
    let inbox = Inbox::open(directory, pipeline)?;
    let now = clock::now();
    let loaded = project::load(directory)?;
    let zone = slot_name::first_zone(project::find(&loaded, &inbox.pipeline));
    let until = until.map(|until| until.at(now, &zone));
    if let Some(until) = until.filter(|until| *until <= now) {
        return Err(Failure::usage(format!("{} is already over", instant(until)), ""));
    }
    inbox.send(&InboxRecord::Pause { reason: reason.to_owned(), until }, sending, output)
}
