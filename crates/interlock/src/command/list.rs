//! `interlock list`: the declared pipelines.

use std::io::Write as _;

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
    source::Source,
    target::Target,
};

/// The pipelines, and whether some are left out because of errors in their files.
struct DeclaredPipelines {
    items: Vec<DeclaredAnswer>,
    is_incomplete: bool,
}

pub(super) fn run(target: &Target, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let DeclaredPipelines { items: pipelines, is_incomplete: incomplete } =
        declared(target, output)?;
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

fn declared(target: &Target, output: &mut Output) -> Result<DeclaredPipelines, Failure> {
    let Target::Project(directory) = target else {
        let standings = Source::open(target, output)?.standings(None)?.into_iter();
        // What is only recorded any more is declared by no file.
        let items = standings.map(|it| it.declared).filter(|it| it.version.is_some()).collect();
        return Ok(DeclaredPipelines { items, is_incomplete: false });
    };
    let loaded = project::load(directory)?;
    let is_incomplete = project::mention_errors(&loaded, output)?;
    let now = clock::now();
    let declared =
        |it: &interlock_config::LoadedPipeline| declared_with_next(&it.pipeline, it.version, now);
    Ok(DeclaredPipelines { items: loaded.pipelines.iter().map(declared).collect(), is_incomplete })
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
