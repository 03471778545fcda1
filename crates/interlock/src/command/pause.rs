//! `interlock pause`: nothing of a pipeline is opened or started until it is resumed.

use interlock_store::record::InboxRecord;

use crate::{
    arguments::Sending,
    clock,
    exit::Failure,
    moment::Moment,
    output::{Output, instant},
    source::RequestSource,
    target::Target,
};

pub(super) fn run(
    target: &Target,
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
    let requests = RequestSource::open(target, pipeline, output)?;
    let now = clock::now();
    let until = match until {
        Some(until) => Some(until.at(now, &requests.first_zone()?)),
        None => None,
    };
    if let Some(until) = until.filter(|until| *until <= now) {
        return Err(Failure::usage(format!("{} is already over", instant(until)), ""));
    }
    requests.send(&InboxRecord::Pause { reason: reason.to_owned(), until }, sending, output)
}
