//! `interlock explain`: whether a slot may run, rule by rule, with the values seen.
//!
//! The sensors come from a file, so that a rule can be tried before any data is there; traits and
//! upstreams, which need a running project, cannot be told here.

use std::{collections::BTreeMap, fs, io::Write as _, path::Path};

use interlock_core::{
    id::SlotKey,
    pipeline::{Pipeline, StartSchedule},
    readiness::{Evidence, Outcome, Verdict, evaluate},
    sensor::{Sensor, Sensors},
    zone::Zone,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    arguments::Explain,
    clock,
    exit::{Failure, SUCCESS},
    output::Output,
    project,
};

pub(super) fn run(directory: &Path, explain: &Explain, output: &mut Output) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    project::mention_errors(&loaded, output)?;
    let pipeline = project::pipeline(&loaded, &explain.pipeline)?;
    let first_zone = pipeline
        .starts
        .first()
        .map_or_else(Zone::utc, |start| start.schedule.timing().zone.clone());
    let real_now = clock::now();
    let now = explain.at.map_or(real_now, |at| at.at(real_now, &first_zone));
    let sensors = match &explain.sensors {
        Some(file) => read_sensors(file, now)?,
        None => Sensors::new(),
    };
    let slot = find_slot(pipeline, explain, now)?;
    let evidence = Evidence {
        sensors: &sensors,
        traits: &BTreeMap::new(),
        upstreams: &BTreeMap::new(),
        period: slot.as_ref().map(|(start, key)| start.period_of(key.nominal)),
        now,
    };
    let verdict = evaluate(&pipeline.readiness, &evidence);
    let key = slot.map(|(_, key)| key);
    if explain.json {
        let slot = key.map(|key| key.to_string());
        let may_run = verdict.may_run(&pipeline.readiness);
        output.json(&json!({
            "pipeline": pipeline.name.as_str(), "slot": slot, "at": now.to_string(),
            "mayRun": may_run, "verdict": to_json(&verdict),
        }))?;
    } else {
        match key {
            Some(key) => writeln!(output.out, "{key} at {now}")?,
            None => writeln!(output.out, "{} at {now} (no slot yet)", pipeline.name)?,
        }
        writeln!(output.out, "{verdict}")?;
    }
    Ok(SUCCESS)
}

/// The slot that is asked about: the given one, else the last at that time.
fn find_slot<'a>(
    pipeline: &'a Pipeline,
    explain: &Explain,
    now: Timestamp,
) -> Result<Option<(&'a StartSchedule, SlotKey)>, Failure> {
    let key = |start: &'a StartSchedule, nominal| {
        let schedule = start.schedule.id().clone();
        (start, SlotKey { pipeline: pipeline.name.clone(), schedule, nominal })
    };
    let Some(moment) = explain.slot else {
        let just_after = now.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(now);
        let last = pipeline
            .starts
            .iter()
            .filter_map(|start| Some((start, start.schedule.previous(just_after)?)))
            .max_by_key(|(_, nominal)| *nominal);
        return Ok(last.map(|(start, nominal)| key(start, nominal)));
    };
    for start in &pipeline.starts {
        let at = moment.at(now, &start.schedule.timing().zone);
        if start.schedule.is_slot(at) {
            return Ok(Some(key(start, at)));
        }
    }
    let first = pipeline.starts.first().map(|start| &start.schedule);
    let near = first.and_then(|schedule| schedule.next(moment.at(now, &schedule.timing().zone)));
    let help = near.map_or(String::new(), |near| format!("The next slot from there on is {near}."));
    Err(Failure::usage(format!("{} owes no slot at that instant", pipeline.name), help))
}

/// Reads `{"key": value}`; a value of the form `{"value": …, "at": "…"}` carries its own time.
fn read_sensors(file: &Path, now: Timestamp) -> Result<Sensors, Failure> {
    let text = fs::read_to_string(file).map_err(|error| Failure::file("read", file, &error))?;
    let wrong = |message: String| {
        Failure::failed(
            format!("{}: {message}", file.display()),
            "Sensors are a JSON object: {\"orders-ready\": {\"count\": 1200}}.",
        )
    };
    let parsed: Value = serde_json::from_str(&text).map_err(|error| wrong(error.to_string()))?;
    let Value::Object(entries) = parsed else {
        return Err(wrong("this is not a JSON object".to_owned()));
    };
    let mut sensors = Sensors::new();
    for (key, value) in entries {
        let sensor =
            sensor(value, now).map_err(|message| wrong(format!("sensor `{key}`: {message}")))?;
        sensors.insert(key, sensor);
    }
    Ok(sensors)
}

fn sensor(value: Value, now: Timestamp) -> Result<Sensor, String> {
    if let Value::Object(fields) = &value
        && let (2, Some(inner), Some(at)) = (fields.len(), fields.get("value"), fields.get("at"))
    {
        let at = interlock_core::sensor::parse_time(at).map_err(|error| error.to_string())?;
        return Ok(Sensor { value: inner.clone(), at });
    }
    Ok(Sensor { value, at: now })
}

fn to_json(verdict: &Verdict) -> Value {
    let outcome = match verdict.outcome {
        Outcome::Ready => "ready",
        Outcome::NotReady => "not ready",
        Outcome::CannotTell => "cannot tell",
    };
    json!({
        "outcome": outcome, "name": verdict.name, "asked": verdict.asked, "seen": verdict.seen,
        "reason": verdict.reason, "parts": verdict.parts.iter().map(to_json).collect::<Vec<_>>(),
    })
}
