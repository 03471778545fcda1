//! `interlock rerun`: a closed slot again, as its next generation.

use interlock_store::record::InboxRecord;

use super::run::ask_about_slot;
use crate::{arguments::Sending, exit::Failure, output::Output, target::Target};

pub(super) fn run(
    target: &Target,
    slot: (&str, &str),
    reason: &str,
    sending: Sending,
    output: &mut Output,
) -> Result<u8, Failure> {
    let record = |slot| InboxRecord::Rerun { slot, reason: reason.to_owned() };
    ask_about_slot(target, slot, record, sending, output)
}
