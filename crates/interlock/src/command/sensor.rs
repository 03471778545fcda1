//! `interlock sensor`: facts about data, reported and read.

use std::{io::Write as _, path::Path};

use interlock_store::record::{InboxRecord, SensorRecord};
use serde_json::Value;

use crate::{
    arguments::{SensorCommand, SensorPut},
    clock,
    exit::{Failure, SUCCESS},
    inbox::Inbox,
    ledger::Ledger,
    ledger_json,
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

fn sensors(directory: &Path, pipeline: &str) -> Result<Vec<(String, SensorRecord)>, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = ledger.known(directory, pipeline)?;
    ledger.sensors(&pipeline)
}

fn get(directory: &Path, pipeline: &str, key: &str, output: &mut Output) -> Result<u8, Failure> {
    let all = sensors(directory, pipeline)?;
    let Some((_, sensor)) = all.iter().find(|(name, _)| name == key) else {
        let names: Vec<_> = all.iter().map(|(name, _)| name.as_str()).collect();
        let help = match names.as_slice() {
            [] => format!("No sensor of {pipeline} was reported yet."),
            names => format!("There are {}.", names.join(", ")),
        };
        return Err(Failure::refused(format!("there is no sensor `{key}` of {pipeline}"), help));
    };
    output.json(&ledger_json::sensor(key, sensor))?;
    Ok(SUCCESS)
}

fn list(directory: &Path, pipeline: &str, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let all = sensors(directory, pipeline)?;
    if form == Form::Json {
        let sensors = all.iter().map(|(key, sensor)| ledger_json::sensor(key, sensor)).collect();
        output.json(&Value::Array(sensors))?;
    } else if all.is_empty() {
        writeln!(output.out, "no sensor of {pipeline} was reported yet")?;
    } else {
        let row = |(key, sensor): &(String, SensorRecord)| {
            [key.clone(), sensor.at.to_string(), sensor.value.to_string()]
        };
        let rows: Vec<_> = all.iter().map(row).collect();
        output.table(["KEY", "AT", "VALUE"], &rows)?;
    }
    Ok(SUCCESS)
}
