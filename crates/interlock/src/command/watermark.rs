//! `interlock watermark`: how far schedules are recorded.

use std::{io::Write as _, path::Path};

use interlock_store::AgendaRow;
use serde_json::{Value, json};

use crate::{arguments::WatermarkCommand, exit::Failure, ledger::Ledger, output::Output};

pub(super) fn run(
    directory: &Path,
    command: &WatermarkCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    let WatermarkCommand::Show { pipeline, json } = command;
    let ledger = Ledger::open(directory)?;
    let only = pipeline.as_ref().map(|name| ledger.known(directory, name)).transpose()?;
    let rows = ledger.pipelines(only.as_ref())?;
    let marks: Vec<[String; 3]> = rows.iter().flat_map(marks).collect();
    if *json {
        let object = |[pipeline, schedule, at]: &[String; 3]| json!({ "pipeline": pipeline, "schedule": schedule, "at": at });
        output.json(&Value::Array(marks.iter().map(object).collect()))?;
    } else if marks.is_empty() {
        writeln!(output.out, "no slot was recorded yet")?;
    } else {
        output.table(["PIPELINE", "SCHEDULE", "RECORDED UP TO"], &marks)?;
    }
    ledger.conclude(only.as_ref(), output)
}

fn marks(row: &AgendaRow) -> impl Iterator<Item = [String; 3]> {
    row.watermarks.iter().map(|(schedule, mark)| {
        [row.pipeline.to_string(), schedule.to_string(), mark.record.at.to_string()]
    })
}
