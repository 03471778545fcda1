//! `interlock list`: the declared pipelines.

use std::{io::Write as _, path::Path};

use interlock_answers::{
    declared_with_next,
    model::pipeline::{DeclaredAnswer, ScheduleAnswer},
};
use serde_json::to_value;

use crate::{
    clock,
    exit::{Failure, PROBLEMS, SUCCESS},
    output::{Form, Output},
    project,
};

pub(super) fn run(directory: &Path, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    let incomplete = project::mention_errors(&loaded, output)?;
    let now = clock::now();
    let declared =
        |it: &interlock_config::LoadedPipeline| declared_with_next(&it.pipeline, it.version, now);
    let pipelines: Vec<_> = loaded.pipelines.iter().map(declared).collect();
    if form == Form::Json {
        output.json(&to_value(&pipelines).unwrap_or_default())?;
    } else if pipelines.is_empty() {
        writeln!(output.out, "there are no pipelines")?;
    } else {
        let rows: Vec<_> = pipelines.iter().map(to_row).collect();
        output.table(["PIPELINE", "OWNER", "SCHEDULES", "TRIGGER", "NEXT SLOT"], &rows)?;
    }
    Ok(if incomplete { PROBLEMS } else { SUCCESS })
}

fn to_row(declared: &DeclaredAnswer) -> [String; 5] {
    let schedules = declared.schedules.iter().map(|schedule: &ScheduleAnswer| {
        let ScheduleAnswer { id, action, when, .. } = schedule;
        if action == "start" { format!("{id}: {when}") } else { format!("{id}: {when} ({action})") }
    });
    [
        declared.pipeline.clone(),
        declared.owner.clone().unwrap_or_default(),
        schedules.collect::<Vec<_>>().join("; "),
        declared.trigger.as_deref().unwrap_or("none").to_owned(),
        declared.next.as_ref().map_or_else(String::new, |next| next.utc.to_string()),
    ]
}
