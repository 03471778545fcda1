//! `interlock why`: the whole story of a slot, or why there is none.

use std::io::Write as _;

use interlock_answers::{StoryQuery, model::story::StoryAnswer, prose::story_lines};
use interlock_core::id::PipelineId;
use serde_json::to_value;

use crate::{
    arguments::Why,
    exit::{Failure, SUCCESS},
    output::{Form, Output},
    slot_name::Typed,
    source::Source,
    target::Target,
};

pub(super) fn run(target: &Target, asked: &Why, output: &mut Output) -> Result<u8, Failure> {
    let source = Source::open(target, output)?;
    let pipeline = source.known(&asked.pipeline)?;
    let typed = Typed::parse(&pipeline, &asked.slot)?;
    let stories = stories(&source, &pipeline, &typed)?;
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
    source: &Source,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<Vec<StoryAnswer>, Failure> {
    let meant = meant(source, pipeline, typed)?;
    let found = source.stories(&meant.first)?;
    if meant.others.is_empty() || found.iter().any(|story| story.slot.is_some()) {
        return Ok(found);
    }
    let mut all = Vec::new();
    for asked in &meant.others {
        all.extend(source.stories(asked)?);
    }
    Ok(all)
}

/// Why nothing is recorded at an instant, a sentence for each schedule.
pub(super) fn absent(
    source: &Source,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<Vec<String>, Failure> {
    let MeantInstants { first, others } = meant(source, pipeline, typed)?;
    let asked = if others.is_empty() { vec![first] } else { others };
    let mut sentences = Vec::new();
    for asked in &asked {
        let absences = source.absences(asked)?;
        sentences.extend(absences.into_iter().filter_map(|it| Some(it.absence?.sentence)));
    }
    Ok(sentences)
}

fn meant(source: &Source, pipeline: &PipelineId, typed: &Typed) -> Result<MeantInstants, Failure> {
    let zones = source.schedule_zones(pipeline)?;
    let (schedule, at) = match &typed.schedule {
        Some(schedule) => (Some(schedule.clone()), typed.at(zones.of(schedule))),
        None => (None, typed.at(&zones.first)),
    };
    let first = StoryQuery { pipeline: pipeline.clone(), schedule, at };
    let others = zones.all.iter().filter(|it| it.starts).map(|it| {
        let (schedule, at) = (it.id.clone(), typed.at(&it.zone));
        StoryQuery { pipeline: pipeline.clone(), schedule: Some(schedule), at }
    });
    let mut others: Vec<_> = others.collect();
    if first.schedule.is_some() || others.iter().all(|it| it.at == first.at) {
        others.clear();
    }
    Ok(MeantInstants { first, others })
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
