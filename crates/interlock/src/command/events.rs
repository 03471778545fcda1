//! `interlock events`: what happened, oldest first, and on request what happens.

use std::{io::Write as _, thread, time::Duration};

use interlock_answers::{
    model::event::EventAnswer,
    prose::{REPORT_REJECTED, REQUEST_REJECTED, sentence},
};
use interlock_core::id::PipelineId;
use serde_json::to_value;

use crate::{
    arguments::Events,
    exit::Failure,
    output::{Form, Output},
    remote::EventStream,
    source::Source,
    target::Target,
};

/// How often new events are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(200);

pub(super) fn run(target: &Target, events: &Events, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let pipeline = events.pipeline.as_ref();
    let pipeline = pipeline.map(|name| source.known_or_system(name)).transpose()?;
    let form = Form::asked(events.json);
    let mut after = events.after;
    if events.follow {
        source.conclude(pipeline.as_ref(), output)?;
        if let Source::Server(server) = &source {
            let only = pipeline.as_ref().map(PipelineId::as_str);
            return listen(EventStream::new(server, only, after), events, output);
        }
    }
    loop {
        let page = source.events(pipeline.as_ref(), after)?;
        for event in page.items {
            after = event.number;
            if is_meant(&event, events) {
                print(&event, form, output)?;
            }
        }
        if page.more {
            continue;
        }
        if !events.follow {
            return source.conclude(pipeline.as_ref(), output);
        }
        output.out.flush()?;
        thread::sleep(LOOK_EVERY);
    }
}

/// Prints what a server tells, until it is interrupted.
fn listen(mut stream: EventStream<'_>, asked: &Events, output: &mut Output) -> Result<u8, Failure> {
    loop {
        let event = stream.next(output)?;
        if is_meant(&event, asked) {
            print(&event, Form::asked(asked.json), output)?;
        }
    }
}

fn is_meant(event: &EventAnswer, asked: &Events) -> bool {
    !asked.rejected || [REPORT_REJECTED, REQUEST_REJECTED].contains(&event.kind.as_str())
}

fn print(event: &EventAnswer, form: Form, output: &mut Output) -> Result<(), Failure> {
    match form {
        Form::Json => writeln!(output.out, "{}", to_value(event).unwrap_or_default())?,
        Form::Text => writeln!(output.out, "{}", sentence(event))?,
    }
    Ok(())
}
