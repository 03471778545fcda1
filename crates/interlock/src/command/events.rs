//! `interlock events`: what happened, oldest first, and on request what happens.

use std::{io::Write as _, path::Path, thread, time::Duration};

use interlock_store::EventRow;

use crate::{
    arguments::Events,
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    ledger_json,
    output::{Form, Output, instant},
};

/// How often new events are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// A report that could be placed nowhere.
const REJECTED: &str = "REPORT_REJECTED";

pub(super) fn run(directory: &Path, events: &Events, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = events.pipeline.as_ref();
    let pipeline = pipeline.map(|name| ledger.known_or_system(directory, name)).transpose()?;
    let form = Form::asked(events.json);
    let mut after = events.after;
    loop {
        let page = ledger.events(pipeline.as_ref(), after)?;
        for event in &page.items {
            after = event.number;
            if !events.rejected || event.record.kind == REJECTED {
                print(event, form, output)?;
            }
        }
        if page.more {
            continue;
        }
        if !events.follow {
            return Ok(SUCCESS);
        }
        output.out.flush()?;
        thread::sleep(LOOK_EVERY);
    }
}

fn print(event: &EventRow, form: Form, output: &mut Output) -> Result<(), Failure> {
    match form {
        Form::Json => writeln!(output.out, "{}", ledger_json::event(event))?,
        Form::Text => writeln!(output.out, "{}", sentence(event))?,
    }
    Ok(())
}

/// An event as a line of text.
pub(crate) fn sentence(event: &EventRow) -> String {
    let record = &event.record;
    let about = record
        .run_id
        .clone()
        .or_else(|| record.slot.as_ref().map(|slot| format!("{}/{slot}", event.pipeline)));
    let about = about.unwrap_or_else(|| event.pipeline.to_string());
    let separator = if record.message.is_empty() { "" } else { ": " };
    let said = said(event);
    format!("{} {} {about}{separator}{}{said}", instant(record.at), record.kind, record.message)
}

/// What a report said that is not kept anywhere else, and who made it.
fn said(event: &EventRow) -> String {
    let record = &event.record;
    if record.kind != REJECTED {
        return String::new();
    }
    let text = |name: &str| record.details.get(name).and_then(|value| value.as_str());
    let named = |name: &str| text(name).map(|value| format!("{name} {value}"));
    let said = text("said").map(|said| format!("it said {said}"));
    let at = text("reportedAt").map(|at| format!("at {at}"));
    let from = text("source").map(|source| format!("by {source}"));
    let parts: Vec<_> = [said, at, named("rid"), from].into_iter().flatten().collect();
    format!(" ({})", parts.join(", "))
}
