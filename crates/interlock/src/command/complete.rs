//! `interlock complete`: the end of a job that somebody else runs.

use std::collections::BTreeMap;

use interlock_store::{RunKey, record::InboxRecord};

use crate::{
    arguments::Complete, exit::Failure, output::Output, source::RequestSource, target::Target,
};

pub(super) fn run(
    target: &Target,
    complete: &Complete,
    output: &mut Output,
) -> Result<u8, Failure> {
    let parsed = RunKey::parse(&complete.run);
    let (pipeline, _) = parsed.map_err(|error| Failure::usage(error.message, error.help))?;
    let requests = RequestSource::open(target, pipeline.as_str(), output)?;
    let record = InboxRecord::Complete {
        run_id: complete.run.clone(),
        success: complete.success && !complete.failed,
        message: complete.message.clone(),
        category: None,
        metadata: BTreeMap::new(),
    };
    requests.send(&record, complete.sending, output)
}
