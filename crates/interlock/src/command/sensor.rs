//! `interlock sensor`: facts about data, reported and read.

use std::{io::Write as _, path::Path};

use interlock_answers::{
    LIMIT_MAX,
    model::{page::PageQuery, sensor::SensorAnswer},
};
use interlock_store::{block_on, record::InboxRecord};
use serde_json::{Value, to_value};

use crate::{
    arguments::{SensorCommand, SensorPut},
    clock,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    output::{Form, Output},
    project, slot_name,
};

pub(super) fn run(
    directory: &Path,
    command: &SensorCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        SensorCommand::Put(sensor) => put(directory, sensor, output),
        SensorCommand::Get { pipeline, key } => get(directory, pipeline, key, output),
        SensorCommand::List { pipeline, json } => {
            list(directory, pipeline, Form::asked(*json), output)
        }
    }
}

fn put(directory: &Path, sensor: &SensorPut, output: &mut Output) -> Result<u8, Failure> {
    let value: Value = serde_json::from_str(&sensor.value).map_err(|error| {
        Failure::usage(
            format!("the value of `{}` is not JSON: {error}", sensor.key),
            "Quote it for the shell: '{\"count\": 1200}', or '\"ready\"' for a text.",
        )
    })?;
    let inbox = Inbox::open(directory, &sensor.pipeline)?;
    let now = clock::now();
    let at = match sensor.at {
        None => now,
        Some(moment) => {
            let loaded = project::load(directory)?;
            moment.at(now, &slot_name::first_zone(project::find(&loaded, &inbox.pipeline)))
        }
    };
    let record = InboxRecord::Sensor { key: sensor.key.clone(), value, at };
    inbox.send(&record, sensor.sending, output)
}

fn sensors(directory: &Path, pipeline: &str) -> Result<Vec<SensorAnswer>, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = ledger.known(directory, pipeline)?;
    let mut asked = PageQuery { after: None, limit: Some(LIMIT_MAX) };
    let mut all = Vec::new();
    loop {
        let page = block_on(ledger.reader().sensors(pipeline.as_str(), &asked))?;
        all.extend(page.items);
        asked.after = page.next;
        if asked.after.is_none() {
            return Ok(all);
        }
    }
}

fn get(directory: &Path, pipeline: &str, key: &str, output: &mut Output) -> Result<u8, Failure> {
    let all = sensors(directory, pipeline)?;
    let Some(sensor) = all.iter().find(|sensor| sensor.key == key) else {
        let names: Vec<_> = all.iter().map(|sensor| sensor.key.as_str()).collect();
        let help = match names.as_slice() {
            [] => format!("No sensor of {pipeline} was reported yet."),
            names => format!("There are {}.", names.join(", ")),
        };
        return Err(Failure::refused(format!("there is no sensor `{key}` of {pipeline}"), help));
    };
    output.json(&to_value(sensor).unwrap_or_default())?;
    Ok(SUCCESS)
}

fn list(directory: &Path, pipeline: &str, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let all = sensors(directory, pipeline)?;
    if form == Form::Json {
        output.json(&to_value(&all).unwrap_or_default())?;
    } else if all.is_empty() {
        writeln!(output.out, "no sensor of {pipeline} was reported yet")?;
    } else {
        let row = |sensor: &SensorAnswer| {
            [sensor.key.clone(), sensor.at.to_string(), sensor.value.to_string()]
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        output.table(["KEY", "AT", "VALUE"], &rows)?;
    }
    Ok(SUCCESS)
}
