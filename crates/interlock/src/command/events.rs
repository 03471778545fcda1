//! `interlock events`: what happened, oldest first, and on request what happens.

use std::{io::Write as _, path::Path, thread, time::Duration};

use interlock_answers::{
    event_answer,
    model::event::EventAnswer,
    prose::{REPORT_REJECTED, REQUEST_REJECTED, sentence},
};
use serde_json::to_value;

use crate::{
    arguments::Events,
    exit::Failure,
    ledger::Ledger,
    output::{Form, Output},
};

/// How often new events are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(directory: &Path, events: &Events, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = events.pipeline.as_ref();
    let pipeline = pipeline.map(|name| ledger.known_or_system(directory, name)).transpose()?;
    let form = Form::asked(events.json);
    let mut after = events.after;
    if events.follow {
        ledger.conclude(pipeline.as_ref(), output)?;
    }
    loop {
        let page = ledger.events(pipeline.as_ref(), after)?;
        for event in page.items.into_iter().map(event_answer) {
            after = event.number;
            let is_rejected = [REPORT_REJECTED, REQUEST_REJECTED].contains(&event.kind.as_str());
            if !events.rejected || is_rejected {
                print(&event, form, output)?;
            }
        }
        if page.more {
            continue;
        }
        if !events.follow {
            return ledger.conclude(pipeline.as_ref(), output);
        }
        output.out.flush()?;
        thread::sleep(LOOK_EVERY);
    }
}

fn print(event: &EventAnswer, form: Form, output: &mut Output) -> Result<(), Failure> {
    match form {
        Form::Json => writeln!(output.out, "{}", to_value(event).unwrap_or_default())?,
        Form::Text => writeln!(output.out, "{}", sentence(event))?,
    }
    Ok(())
}
