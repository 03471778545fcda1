//! `interlock cancel`: the end of a slot's run, or of the slot if nothing runs yet.

use std::path::Path;

use interlock_store::record::InboxRecord;

use super::run::ask_about_slot;
use crate::{arguments::Sending, exit::Failure, output::Output};

pub(super) fn run(
    directory: &Path,
    slot: (&str, &str),
    reason: &str,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let record = |slot| InboxRecord::Cancel { slot, reason: reason.to_owned() };
    ask_about_slot(directory, slot, record, sending, output)
}
