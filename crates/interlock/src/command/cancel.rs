//! `interlock cancel`: the end of a slot's run, or of the slot if nothing runs yet.

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
    let record = |slot| InboxRecord::Cancel { slot, reason: reason.to_owned() };
    ask_about_slot(target, slot, record, sending, output)
}
