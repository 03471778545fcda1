//! `interlock sensor`: facts about data, reported and read.

use std::io::Write as _;

use interlock_answers::{
    LIMIT_MAX,
    model::{page::PageQuery, sensor::SensorAnswer},
};
use interlock_store::record::InboxRecord;
use serde_json::{Value, to_value};

use crate::{
    arguments::{SensorCommand, SensorPut},
    clock,
    exit::{Failure, SUCCESS},
    output::{Form, Output},
    source::{RequestSource, Source},
    target::Target,
};

pub(super) fn run(
    target: &Target,
    command: &SensorCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    match command {
        SensorCommand::Put(sensor) => put(target, sensor, output),
        SensorCommand::Get { pipeline, key } => get(target, pipeline, key, output),
        SensorCommand::List { pipeline, json } => {
            list(target, pipeline, Form::asked(*json), output)
        }
    }
}

fn put(target: &Target, sensor: &SensorPut, output: &mut Output) -> Result<u8, Failure> {
    let value: Value = serde_json::from_str(&sensor.value).map_err(|error| {
        Failure::usage(
            format!("the value of `{}` is not JSON: {error}", sensor.key),
            "Quote it for the shell: '{\"count\": 1200}', or '\"ready\"' for a text.",
        )
    })?;
    let requests = RequestSource::open(target, &sensor.pipeline, output)?;
    let now = clock::now();
    let at = match sensor.at {
        None => now,
        Some(moment) => moment.at(now, &requests.first_zone()?),
    };
    let record = InboxRecord::Sensor { key: sensor.key.clone(), value, at };
    requests.send(&record, sensor.sending, output)
}

fn sensors(
    target: &Target,
    pipeline: &str,
    output: &mut Output,
) -> Result<Vec<SensorAnswer>, Failure> {
    let source = Source::open(target, output)?;
    let pipeline = source.known(pipeline)?;
    let mut asked = PageQuery { after: None, limit: Some(LIMIT_MAX) };
    let mut all = Vec::new();
    loop {
        let page = source.sensors(&pipeline, &asked)?;
        all.extend(page.items);
        asked.after = page.next;
        if asked.after.is_none() {
            return Ok(all);
        }
    }
}

fn get(target: &Target, pipeline: &str, key: &str, output: &mut Output) -> Result<u8, Failure> {
    let all = sensors(target, pipeline, output)?;
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

fn list(target: &Target, pipeline: &str, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let all = sensors(target, pipeline, output)?;
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
