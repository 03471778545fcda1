//! `interlock run`: a slot of its own for a run now, or an attempt at a scheduled one.

use std::path::Path;

use interlock_store::record::{InboxRecord, SlotName};

use crate::{
    arguments::Run,
    exit::Failure,
    inbox::Inbox,
    output::Output,
    project,
    slot_name::{self, Typed},
};

pub(super) fn run(directory: &Path, run: &Run, output: &mut Output) -> Result<u8, Failure> {
    let inbox = Inbox::open(directory, &run.pipeline)?;
    let typed = match (&run.slot, &run.schedule) {
        (None, _) => None,
        (Some(slot), None) => Some(slot.clone()),
        (Some(slot), Some(schedule)) => Some(format!("{schedule}/{slot}")),
    };
    let slot = typed.map(|text| find(directory, &inbox, &text)).transpose()?;
    let params = run.params.iter().cloned().collect();
    let record = InboxRecord::Run { slot, force: run.force, params };
    inbox.send(&record, run.sending, output)
}

/// The slot that a text means.
pub(super) fn find(directory: &Path, inbox: &Inbox, text: &str) -> Result<SlotName, Failure> {
    let loaded = project::load(directory)?;
    let typed = Typed::parse(&inbox.pipeline, text)?;
    let key = slot_name::resolve(&loaded, &inbox.ledger, &inbox.pipeline, &typed)?;
    Ok(SlotName { schedule: key.schedule.to_string(), nominal: key.nominal })
}
