//! `interlock evaluate`: whether a slot may run now, asked for real.
//!
//! Sensors and upstream slots come from the ledger, evaluators are run, and nothing is written.

use std::{io::Write as _, path::Path};

use interlock_answers::{
    Reader, evaluation_answer,
    model::verdict::{EvaluationAnswer, ReadinessQuery},
    prose::verdict_lines,
};
use interlock_config::Loaded;
use interlock_core::{
    id::{PipelineId, SlotKey},
    pipeline::Pipeline,
    readiness::Verdict,
};
use interlock_store::block_on;
use jiff::Timestamp;
use serde_json::to_value;

use crate::{
    arguments::Evaluate,
    clock,
    exit::{CANNOT_TELL, Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::{Output, instant},
    place::Place,
    project,
    remote::query::{self, path},
    serve::evaluators,
    slot_name::{self, Typed},
    source::Source,
    target::Target,
};

pub(super) fn run(
    target: &Target,
    evaluate: &Evaluate,
    output: &mut Output,
) -> Result<u8, Failure> {
    let answer = match target {
        Target::Project(directory) => evaluated(directory, evaluate, output)?,
        Target::Server(address) => {
            let source = Source::at(address, output)?;
            let pipeline = source.known(&evaluate.pipeline)?;
            let slot = evaluate.slot.as_deref();
            let slot = slot.map(|text| source.slot_of(&pipeline, text)).transpose()?;
            let now = clock::now();
            let at = match evaluate.at {
                Some(at) => Some(at.at(now, &source.first_zone(&pipeline)?)),
                None => None,
            };
            evaluated_there(&source, &pipeline, (slot.as_ref(), at))?
        }
    };
    if evaluate.json {
        output.json(&to_value(&answer).unwrap_or_default())?;
    } else {
        let EvaluationAnswer { slot, at, verdict, .. } = &answer;
        let verdict = verdict_lines(verdict).join("\n");
        writeln!(output.out, "{slot} at {}\n{verdict}", instant(*at))?;
    }
    Ok(match answer.verdict.outcome.as_str() {
        "ready" => SUCCESS,
        "not ready" => PROBLEMS,
        _ => CANNOT_TELL,
    })
}

/// Asks a server, which asks its evaluators.
pub(super) fn evaluated_there(
    source: &Source,
    pipeline: &PipelineId,
    (slot, at): (Option<&SlotKey>, Option<Timestamp>),
) -> Result<EvaluationAnswer, Failure> {
    let server = source.server()?;
    let slot = slot.map(|slot| format!("{}/{}", slot.schedule, slot.nominal));
    let asked = query::text(&ReadinessQuery { slot, at });
    let path = path(&["pipelines", pipeline.as_str(), "evaluate"]);
    Ok(server.plan(&format!("{path}{asked}"), &serde_json::json!({}))?.0)
}

/// Asks on this machine.
fn evaluated(
    directory: &Path,
    evaluate: &Evaluate,
    output: &mut Output,
) -> Result<EvaluationAnswer, Failure> {
    let loaded = project::load(directory)?;
    project::mention_errors(&loaded, output)?;
    let spec = project::pipeline(&loaded, &evaluate.pipeline)?;
    let now = clock::now();
    let now = evaluate.at.map_or(now, |at| at.at(now, &slot_name::first_zone(Some(spec))));
    let is_recorded = Place::of(directory)?.exists()?;
    let ledger = Ledger::open_or_empty(directory)?;
    let reader = Reader { now, ..ledger.reader() };
    let slot = match &evaluate.slot {
        Some(text) => {
            let recorded = is_recorded.then_some(&ledger);
            find(&loaded, recorded, spec, &Typed::parse(&spec.name, text)?)?
        }
        None => block_on(reader.slot_in_question(spec))?,
    };
    let verdict = judge(directory, &loaded, (&reader, spec), &slot)?;
    Ok(evaluation_answer(spec, &slot, now, &verdict))
}

/// The slot that was typed.
pub(super) fn find(
    loaded: &Loaded,
    ledger: Option<&Ledger>,
    spec: &Pipeline,
    typed: &Typed,
) -> Result<SlotKey, Failure> {
    if let Some(ledger) = ledger {
        return slot_name::resolve(loaded, ledger, &spec.name, typed);
    }
    let asked = typed.schedule.as_ref();
    let starts = spec.starts.iter().map(|start| &start.schedule);
    let mut starts = starts.filter(|schedule| asked.is_none_or(|id| id == schedule.id()));
    let found = starts.find_map(|schedule| {
        let at = typed.at(&schedule.timing().zone);
        schedule.is_slot(at).then(|| (schedule.id().clone(), at))
    });
    let (schedule, nominal) =
        found.ok_or_else(|| slot_name::none(Some(spec), &spec.name, typed))?;
    Ok(SlotKey { pipeline: spec.name.clone(), schedule, nominal })
}

/// Gathers the evidence of a slot, evaluators included, and judges it.
pub(super) fn judge(
    directory: &Path,
    loaded: &Loaded,
    (reader, spec): (&Reader<'_>, &Pipeline),
    slot: &SlotKey,
) -> Result<Verdict, Failure> {
    let evaluators = evaluators::of(directory, &loaded.config);
    let evaluators = evaluators
        .map_err(|error| Failure::failed(format!("cannot ask evaluators: {error}"), ""))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("no runtime: {error}"), ""))?;
    Ok(runtime.block_on(reader.verdict(spec, slot, &evaluators))?)
}
