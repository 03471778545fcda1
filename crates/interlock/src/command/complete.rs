//! `interlock complete`: the end of a job that somebody else runs.

use std::{collections::BTreeMap, path::Path};

use interlock_store::{RunKey, record::InboxRecord};

use crate::{arguments::Complete, exit::Failure, inbox::Inbox, output::Output};

pub(super) fn run(
    directory: &Path,
    complete: &Complete,
    output: &mut Output,
) -> Result<u8, Failure> {
    let parsed = RunKey::parse(&complete.run);
    let (pipeline, _) = parsed.map_err(|error| Failure::usage(error.message, error.help))?;
    let inbox = Inbox::open(directory, pipeline.as_str())?;
    let record = InboxRecord::Complete {
        run_id: complete.run.clone(),
        success: complete.success && !complete.failed,
        message: complete.message.clone(),
        category: None,
        metadata: BTreeMap::new(),
    };
    inbox.send(&record, complete.sending, output)
}
