//! `interlock why`: the whole story of a slot, or why there is none.

use std::{io::Write as _, path::Path};

use interlock_answers::{StoryQuery, model::story::StoryAnswer, prose::story_lines};
use interlock_core::id::PipelineId;
use interlock_store::block_on;
use serde_json::to_value;

use crate::{
    arguments::Why,
    exit::{Failure, SUCCESS},
    ledger::Ledger,
    output::{Form, Output},
    slot_name::{self, Typed},
};

pub(super) fn run(directory: &Path, asked: &Why, output: &mut Output) -> Result<u8, Failure> {
    let ledger = Ledger::open(directory)?;
    let pipeline = ledger.known(directory, &asked.pipeline)?;
    let typed = Typed::parse(&pipeline, &asked.slot)?;
    let stories = stories(&ledger, &pipeline, &typed)?;
    match Form::asked(asked.json) {
        Form::Json => output.json(&to_value(&stories).unwrap_or_default())?,
        Form::Text => stories.iter().try_for_each(|story| print(story, output))?,
    }
    Ok(SUCCESS)
}

/// What is asked: about one instant, unless schedules in different zones mean different ones.
struct MeantInstants {
    first: StoryQuery,
    /// One for each schedule; none if all mean the first.
    others: Vec<StoryQuery>,
}

/// The stories of the slots that are meant, one for each schedule; where there are none, why.
fn stories(
    ledger: &Ledger,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<Vec<StoryAnswer>, Failure> {
    let meant = meant(ledger, pipeline, typed);
    let found = block_on(ledger.reader().stories(&meant.first))?;
    if meant.others.is_empty() || found.iter().any(|story| story.slot.is_some()) {
        return Ok(found);
    }
    let mut all = Vec::new();
    for asked in &meant.others {
        all.extend(block_on(ledger.reader().stories(asked))?);
    }
    Ok(all)
}

/// Why nothing is recorded at an instant, a sentence for each schedule.
pub(super) fn absent(
    ledger: &Ledger,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<Vec<String>, Failure> {
    let MeantInstants { first, others } = meant(ledger, pipeline, typed);
    let asked = if others.is_empty() { vec![first] } else { others };
    let mut sentences = Vec::new();
    for asked in &asked {
        let absences = block_on(ledger.reader().absences(asked))?;
        sentences.extend(absences.into_iter().filter_map(|it| Some(it.absence?.sentence)));
    }
    Ok(sentences)
}

fn meant(ledger: &Ledger, pipeline: &PipelineId, typed: &Typed) -> MeantInstants {
    let declared = block_on(ledger.reader().declarations.current(pipeline)).ok().flatten();
    let declared = declared.as_deref();
    let zone = match &typed.schedule {
        Some(schedule) => slot_name::zone_of(declared, schedule),
        None => slot_name::first_zone(declared),
    };
    let (schedule, at) = (typed.schedule.clone(), typed.at(&zone));
    let first = StoryQuery { pipeline: pipeline.clone(), schedule, at };
    let starts = declared.iter().flat_map(|declared| &declared.starts);
    let others = starts.map(|start| {
        let (schedule, at) = (start.schedule.id().clone(), typed.at(&start.schedule.timing().zone));
        StoryQuery { pipeline: pipeline.clone(), schedule: Some(schedule), at }
    });
    let mut others: Vec<_> = others.collect();
    if first.schedule.is_some() || others.iter().all(|it| it.at == first.at) {
        others.clear();
    }
    MeantInstants { first, others }
}

fn print(story: &StoryAnswer, output: &mut Output) -> Result<(), Failure> {
    for line in story_lines(story) {
        writeln!(output.out, "{line}")?;
    }
    if let Some(after) = story.events_looked_at_until {
        let pipeline = &story.pipeline;
        writeln!(
            output.err,
            "later events were not looked at; `interlock events {pipeline} --after {after}` lists them"
        )?;
    }
    Ok(())
}
