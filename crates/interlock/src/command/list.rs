//! `interlock list`: the declared pipelines.

use std::{io::Write as _, path::Path};

use interlock_core::pipeline::Pipeline;
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

fn to_row(pipeline: &Pipeline) -> [String; 5] {
    let schedules = pipeline.starts.iter().map(|start| {
        format!("{}: {}", start.schedule.id(), declaration::recurrence(&start.schedule))
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
    let schedules = pipeline.starts.iter().map(|start| {
        json!({
            "id": start.schedule.id().as_str(),
            "when": declaration::recurrence(&start.schedule),
            "zone": start.schedule.timing().zone.name(),
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
