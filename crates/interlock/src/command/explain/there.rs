//! `interlock explain` at a server: the same, from the story of the slot.

use interlock_answers::{
    StoryQuery,
    model::{page::PageQuery, pipeline::PipelineDetailAnswer, story::StoryAnswer},
    prose::verdict_lines,
    table::slot_state,
};
use interlock_core::id::SlotKey;
use serde_json::{Value, to_value};

use super::{Decision, Explanation};
use crate::{
    arguments::Explain,
    command::{evaluate::evaluated_there, why},
    exit::{Failure, PROBLEMS, SUCCESS, USAGE},
    output::Output,
    remote::query::path,
    slot_name::Typed,
    source::Source,
    target::ServerAddress,
};

pub(super) fn run(
    address: &ServerAddress,
    explain: &Explain,
    output: &mut Output,
) -> Result<u8, Failure> {
    if explain.sensors.is_some() || explain.at.is_some() {
        return Err(Failure::usage(
            "`--sensors` and `--at` ask the files of this machine, and not a server",
            "Leave them out, or try the rule in a project here with `-C DIR`.",
        ));
    }
    let source = Source::at(address, output)?;
    let explanation = explained(&source, explain)?;
    if explain.json {
        output.json(&explanation.to_json(&explain.pipeline))?;
    } else {
        explanation.print(output)?;
    }
    Ok(SUCCESS)
}

fn explained(source: &Source, explain: &Explain) -> Result<Explanation, Failure> {
    let pipeline = source.known(&explain.pipeline)?;
    let slot = match &explain.slot {
        Some(text) => match source.slot_of(&pipeline, text) {
            Ok(slot) => slot,
            // No schedule has a slot then: why not is told.
            Err(failure) if failure.exit_code() == USAGE => {
                let typed = Typed::parse(&pipeline, text)?;
                return Ok(Explanation::Absent(why::absent(source, &pipeline, &typed)?));
            }
            Err(failure) => return Err(failure),
        },
        // The server knows which one waits, or was owed last.
        None => {
            source.slot_of(&pipeline, &evaluated_there(source, &pipeline, (None, None))?.slot)?
        }
    };
    let asked = StoryQuery { pipeline, schedule: Some(slot.schedule.clone()), at: slot.nominal };
    let story = source.stories(&asked)?.into_iter().next();
    let story = story.ok_or_else(|| Failure::refused(format!("{slot} has no story"), ""))?;
    let Some(recorded) = &story.slot else {
        let sentences = story.absence.into_iter().map(|it| it.sentence);
        return Ok(Explanation::Absent(sentences.collect()));
    };
    let state = slot_state(recorded);
    if matches!(state.as_str(), "waiting" | "queued") {
        let judged = evaluated_there(source, &slot.pipeline, (Some(&slot), None))?;
        let text = verdict_lines(&judged.verdict).join("\n");
        let verdict = to_value(judged.verdict).unwrap_or_default();
        return Ok(Explanation::Waiting { slot, state, verdict, text });
    }
    decided(source, slot, (state, &story))
}

fn decided(
    source: &Source,
    slot: SlotKey,
    (state, story): (String, &StoryAnswer),
) -> Result<Explanation, Failure> {
    let decisions: Vec<_> = story.events.iter().filter_map(Decision::of).collect();
    let mut remarks = Vec::new();
    if story.span.is_some() {
        remarks.push("It was never evaluated.".to_owned());
    } else if decisions.is_empty() {
        let is_free = story.slot.as_ref().map(|it| is_free(source, &slot, &it.version));
        let is_free = is_free.transpose()?.unwrap_or(false);
        let why = if is_free { "It has no conditions." } else { "No verdict is stored with it." };
        remarks.push(why.to_owned());
    }
    let unseen = story.events_looked_at_until;
    remarks.extend(unseen.map(|it| format!("Events after number {it} were not looked at.")));
    Ok(Explanation::Decided { slot, state, decisions, remarks })
}

/// Whether the declaration under which a slot was recorded is the one of today, and asks for nothing.
fn is_free(source: &Source, slot: &SlotKey, version: &str) -> Result<bool, Failure> {
    let Source::Server(server) = source else { return Ok(false) };
    let path = path(&["pipelines", slot.pipeline.as_str()]);
    let detail: PipelineDetailAnswer = match server.get(&path, &PageQuery::default()) {
        Ok(detail) => detail,
        Err(failure) if matches!(failure.exit_code(), PROBLEMS | USAGE) => return Ok(false),
        Err(failure) => return Err(failure),
    };
    let readiness = &detail.declaration["readiness"];
    let is_empty = |name: &str| readiness[name].as_array().is_some_and(Vec::is_empty);
    let is_current = detail.standing.declared.version.as_deref() == Some(version);
    let asks_nothing = is_empty("conditions") && is_empty("upstreams");
    Ok(is_current && asks_nothing && readiness != &Value::Null)
}
