//! `interlock evaluate`: whether a slot may run now, asked for real.
//!
//! Sensors and upstream slots come from the ledger, evaluators are run, and nothing is written.

use std::{io::Write as _, path::Path, sync::Arc};

use interlock_config::{Loaded, SystemZones, ZoneSource as _};
use interlock_core::{
    id::{ScheduleId, SlotKey},
    pipeline::Pipeline,
    readiness::{Outcome, Verdict},
    run::TriggerType,
};
use interlock_engine::{AskedSlot, ZoneOf, verdict_now};
use interlock_store::{Store, memory::MemoryStore};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

use crate::{
    arguments::Evaluate,
    clock,
    exit::{CANNOT_TELL, Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::{Output, instant},
    place::Place,
    project,
    serve::evaluators,
    slot_name::{self, Typed},
};

pub(super) fn run(
    directory: &Path,
    evaluate: &Evaluate,
    output: &mut Output,
) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    project::mention_errors(&loaded, output)?;
    let spec = project::pipeline(&loaded, &evaluate.pipeline)?;
    let now = clock::now();
    let now = evaluate.at.map_or(now, |at| at.at(now, &slot_name::first_zone(Some(spec))));
    let is_recorded = Place::of(directory)?.exists()?;
    let ledger = is_recorded.then(|| Ledger::open(directory)).transpose()?;
    let slot = match &evaluate.slot {
        Some(text) => find(&loaded, ledger.as_ref(), spec, &Typed::parse(&spec.name, text)?)?,
        None => last(ledger.as_ref(), spec, now)?,
    };
    let verdict = judge(directory, (&loaded, spec), ledger.as_ref(), &slot, now)?;
    if evaluate.json {
        output.json(&json(spec, &slot, now, &verdict))?;
    } else {
        writeln!(output.out, "{slot} at {}\n{verdict}", instant(now))?;
    }
    Ok(match verdict.outcome {
        Outcome::Ready => SUCCESS,
        Outcome::NotReady => PROBLEMS,
        Outcome::CannotTell => CANNOT_TELL,
    })
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

/// The slot that is meant when none is named: the oldest that waits, else the last that was owed, else a
/// run by hand.
pub(super) fn last(
    ledger: Option<&Ledger>,
    spec: &Pipeline,
    now: Timestamp,
) -> Result<SlotKey, Failure> {
    let open = ledger.map(|ledger| ledger.open_slots_of(&spec.name)).transpose()?;
    let waits = open.into_iter().flatten().find(|(_, slot)| slot.state == "waiting");
    if let Some((key, _)) = waits {
        return Ok(key);
    }
    let just_after = now.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(now);
    let starts = spec.starts.iter().map(|start| &start.schedule);
    let owed = starts.filter_map(|schedule| Some((schedule.previous(just_after)?, schedule.id())));
    let (nominal, schedule) = owed.max_by_key(|(nominal, _)| *nominal).map_or_else(
        || (now, ScheduleId::from_static("manual")),
        |(nominal, schedule)| (nominal, schedule.clone()),
    );
    Ok(SlotKey { pipeline: spec.name.clone(), schedule, nominal })
}

/// Gathers the evidence of a slot and judges it.
pub(super) fn judge(
    directory: &Path,
    (loaded, spec): (&Loaded, &Pipeline),
    ledger: Option<&Ledger>,
    slot: &SlotKey,
    now: Timestamp,
) -> Result<Verdict, Failure> {
    let SlotKey { pipeline, schedule, nominal } = slot;
    let recorded = ledger.map(|ledger| ledger.slot(pipeline, schedule, *nominal)).transpose()?;
    let recorded = recorded.flatten();
    let zone = slot_name::zone_of(Some(spec), schedule);
    let local = || nominal.to_zoned(zone.time_zone().clone()).date();
    let opened_by = recorded.as_ref().filter(|slot| slot.is_open()).map(|slot| &slot.opened_by);
    let asked = AskedSlot {
        schedule: schedule.clone(),
        nominal: *nominal,
        date: recorded.as_ref().map_or_else(local, |slot| slot.date),
        opened_by: opened_by.and_then(|word| TriggerType::parse(word).ok()),
    };
    // Nothing was recorded yet: no sensor was reported, and no upstream has a slot.
    let nothing = MemoryStore::new(1, Arc::new(clock::now));
    let store: &dyn Store = ledger.map_or(&nothing, Ledger::store);
    let evaluators = evaluators::of(directory, &loaded.config);
    let evaluators = evaluators
        .map_err(|error| Failure::failed(format!("cannot ask evaluators: {error}"), ""))?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| Failure::failed(format!("no runtime: {error}"), ""))?;
    let zones = SystemZones::new();
    let source: (&dyn Store, ZoneOf<'_>) = (store, &|name| zones.zone(name));
    Ok(runtime.block_on(verdict_now(source, &evaluators, spec, &asked, now))?)
}

/// A slot with the verdict on it.
pub(super) fn json(spec: &Pipeline, slot: &SlotKey, now: Timestamp, verdict: &Verdict) -> Value {
    json!({
        "pipeline": spec.name.as_str(),
        "slot": slot.to_string(),
        "at": now.to_string(),
        "mayRun": verdict.may_run(&spec.readiness),
        "verdict": verdict_json(verdict),
    })
}

pub(super) fn verdict_json(verdict: &Verdict) -> Value {
    let outcome = match verdict.outcome {
        Outcome::Ready => "ready",
        Outcome::NotReady => "not ready",
        Outcome::CannotTell => "cannot tell",
    };
    json!({
        "outcome": outcome, "name": verdict.name, "asked": verdict.asked, "seen": verdict.seen,
        "reason": verdict.reason,
        "parts": verdict.parts.iter().map(verdict_json).collect::<Vec<_>>(),
    })
}
