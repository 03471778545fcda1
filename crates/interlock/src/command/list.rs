//! `interlock list`: the declared pipelines.

use std::{io::Write as _, path::Path};

use interlock_core::{
    pipeline::{ControlAction, Pipeline},
    schedule::Schedule,
};
use serde_json::{Value, json};

use super::status::next_slot;
use crate::{
    declaration,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::{Form, Output},
    project,
};

pub(super) fn run(directory: &Path, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    let incomplete = project::mention_errors(&loaded, output)?;
    let pipelines = loaded.pipelines.iter().map(|loaded| &loaded.pipeline);
    if form == Form::Json {
        output.json(&Value::Array(pipelines.map(to_json).collect()))?;
    } else if loaded.pipelines.is_empty() {
        writeln!(output.out, "there are no pipelines")?;
    } else {
        let rows: Vec<_> = pipelines.map(to_row).collect();
        output.table(["PIPELINE", "OWNER", "SCHEDULES", "TRIGGER", "NEXT SLOT"], &rows)?;
    }
    Ok(if incomplete { PROBLEMS } else { SUCCESS })
}

fn trigger(pipeline: &Pipeline) -> Option<&str> {
    pipeline.trigger.as_ref().map(|trigger| declaration::trigger_word(&trigger.kind))
}

/// All schedules: those that start runs, then those that stop or restart what runs.
fn schedules(pipeline: &Pipeline) -> impl Iterator<Item = (&Schedule, Option<ControlAction>)> {
    let starts = pipeline.starts.iter().map(|start| (&start.schedule, None));
    let controls = pipeline.controls.iter();
    starts.chain(controls.map(|control| (&control.schedule, Some(control.action))))
}

fn to_row(pipeline: &Pipeline) -> [String; 5] {
    let schedules = schedules(pipeline).map(|(schedule, action)| {
        let when = declaration::recurrence(schedule);
        match action {
            Some(action) => format!("{}: {when} ({})", schedule.id(), action.as_str()),
            None => format!("{}: {when}", schedule.id()),
        }
    });
    [
        pipeline.name.to_string(),
        pipeline.owner.clone().unwrap_or_default(),
        schedules.collect::<Vec<_>>().join("; "),
        trigger(pipeline).unwrap_or("none").to_owned(),
        next_slot(pipeline).map_or_else(String::new, |(_, at)| at.to_string()),
    ]
}

fn to_json(pipeline: &Pipeline) -> Value {
    let schedules = schedules(pipeline).map(|(schedule, action)| {
        json!({
            "id": schedule.id().as_str(),
            "action": action.map_or("start", ControlAction::as_str),
            "when": declaration::recurrence(schedule),
            "zone": schedule.timing().zone.name(),
        })
    });
    json!({
        "pipeline": pipeline.name.as_str(),
        "owner": pipeline.owner,
        "enabled": pipeline.enabled,
        "schedules": schedules.collect::<Vec<_>>(),
        "trigger": trigger(pipeline),
        "next": next_slot(pipeline).map(|(schedule, at)| json!({
            "schedule": schedule.as_str(), "utc": at.to_string(),
        })),
    })
}
