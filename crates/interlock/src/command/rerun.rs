//! `interlock rerun`: a closed slot again, as its next generation.

use std::path::Path;

use interlock_store::record::InboxRecord;

use super::run::find;
use crate::{arguments::Sending, exit::Failure, inbox::Inbox, output::Output};

pub(super) fn run(
    directory: &Path,
    (pipeline, slot): (&str, &str),
    reason: &str,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let inbox = Inbox::open(directory, pipeline)?;
    let slot = find(directory, &inbox, slot)?;
    inbox.send(&InboxRecord::Rerun { slot, reason: reason.to_owned() }, sending, output)
}
