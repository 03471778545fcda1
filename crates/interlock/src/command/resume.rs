//! `interlock resume`: the end of a pause.

use std::path::Path;

use interlock_store::record::InboxRecord;

use crate::{arguments::Sending, exit::Failure, inbox::Inbox, output::Output};

pub(super) fn run(
    directory: &Path,
    pipeline: &str,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    Inbox::open(directory, pipeline)?.send(&InboxRecord::Resume {}, sending, output)
}
