//! `interlock watermark`: how far schedules are recorded.

use std::io::Write as _;

use interlock_answers::{
    LIMIT_MAX,
    model::watermark::{WatermarkAnswer, WatermarksQuery},
};
use serde_json::to_value;

use crate::{
    arguments::WatermarkCommand, exit::Failure, output::Output, source::Source, target::Target,
};

pub(super) fn run(
    target: &Target,
    command: &WatermarkCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    let WatermarkCommand::Show { pipeline, json } = command;
    let source = Source::open(target, output)?;
    let only = pipeline.as_ref().map(|name| source.known(name)).transpose()?;
    let asked = WatermarksQuery {
        pipeline: only.as_ref().map(ToString::to_string),
        limit: Some(LIMIT_MAX),
        ..WatermarksQuery::default()
    };
    let mut marks = all(&source, asked)?;
    marks.sort_unstable();
    if *json {
        output.json(&to_value(&marks).unwrap_or_default())?;
    } else if marks.is_empty() {
        writeln!(output.out, "no slot was recorded yet")?;
    } else {
        let rows: Vec<_> = marks.into_iter().map(row).collect();
        output.table(["PIPELINE", "SCHEDULE", "RECORDED UP TO"], &rows)?;
    }
    source.conclude(only.as_ref(), output)
}

fn all(source: &Source, mut asked: WatermarksQuery) -> Result<Vec<WatermarkAnswer>, Failure> {
    let mut marks = Vec::new();
    loop {
        let page = source.watermarks(&asked)?;
        marks.extend(page.items);
        asked.after = page.next;
        if asked.after.is_none() {
            return Ok(marks);
        }
    }
}

fn row(mark: WatermarkAnswer) -> [String; 3] {
    [mark.pipeline, mark.schedule, mark.at.to_string()]
}
