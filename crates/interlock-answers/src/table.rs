//! Answers as rows of a table, for people at a terminal. `interlock` prints them, and so do the simulator's scenarios: a newcomer who
//! has read one can read the other.

use std::collections::BTreeMap;

use interlock_core::incident::Alert;
use interlock_store::story::{instant, one_line};
use jiff::Timestamp;

use crate::model::{
    incident::{DeadLetterAnswer, IncidentAnswer},
    pipeline::SlotStateAnswer,
    plan::PlanLineAnswer,
    run::RunAnswer,
    slot::{LedgerAnswer, MarksAnswer, SlotAnswer, SpanAnswer},
};

/// What stands over runs.
pub const RUNS: [&str; 6] = ["RUN", "STATUS", "TYPE", "STARTED", "ENDED", "MESSAGE"];

/// What stands over slots.
pub const SLOTS: [&str; 6] = ["PIPELINE", "SCHEDULE", "SLOT", "STATE", "RUNS", "NOTE"];

/// A slot or a span.
pub fn ledger_row(found: &LedgerAnswer) -> [String; 6] {
    match found {
        LedgerAnswer::Slot(slot) => slot_row(slot),
        LedgerAnswer::Span(span) => span_row(span),
    }
}

fn slot_row(slot: &SlotAnswer) -> [String; 6] {
    // One of a span was never opened.
    let runs = slot.opened_at.map_or_else(String::new, |_| slot.runs.len().to_string());
    [
        slot.pipeline.clone(),
        slot.schedule.clone(),
        slot.utc.to_string(),
        slot_state(slot),
        runs,
        note(slot),
    ]
}

fn span_row(span: &SpanAnswer) -> [String; 6] {
    [
        span.pipeline.clone(),
        span.schedule.clone(),
        span.first.to_string(),
        ended(&span.disposition, span.reason.as_deref()),
        String::new(),
        format!("{} slots, until {}", span.count, span.last),
    ]
}

/// Where a slot stands, in a word or two.
pub fn slot_state(slot: &SlotAnswer) -> String {
    match &slot.disposition {
        None => slot.state.clone(),
        Some(disposition) => ended(disposition, slot.reason.as_deref()),
    }
}

fn ended(disposition: &str, reason: Option<&str>) -> String {
    reason.map_or_else(|| disposition.to_owned(), |reason| format!("{disposition} ({reason})"))
}

/// What else is to be known of a slot.
fn note(slot: &SlotAnswer) -> String {
    let mut notes = Vec::new();
    if slot.generation > 1 {
        notes.push(format!("generation {}", slot.generation));
    }
    notes.extend(slot.closes_at.map(|at| format!("closes at {at}")));
    notes.extend(slot.retry_at.map(|at| format!("tried again at {at}")));
    notes.extend(marks(&slot.marks));
    notes.join(", ")
}

/// The marks of a slot.
pub(crate) fn marks(marks: &MarksAnswer) -> Vec<String> {
    let mut words = Vec::new();
    words.extend(marks.missed_at.map(|at| format!("missed at {at}")));
    let set =
        [(marks.late, "late"), (marks.uncertain, "uncertain"), (marks.recovered, "recovered")];
    words.extend(set.iter().filter(|(is_set, _)| *is_set).map(|(_, word)| (*word).to_owned()));
    words
}

/// A run.
pub fn run_row(run: &RunAnswer) -> [String; 6] {
    let shown = |at: Option<Timestamp>| at.map_or_else(String::new, instant);
    [
        run.id.clone(),
        run.status.clone(),
        run.trigger_type.clone(),
        shown(run.started_at),
        shown(run.ended_at),
        run.message.clone().unwrap_or_default(),
    ]
}

/// A slot's state in a word or two.
pub fn state(slot: &SlotStateAnswer) -> String {
    match &slot.disposition {
        None => slot.state.clone(),
        Some(disposition) => ended(disposition, slot.reason.as_deref()),
    }
}

/// What stands over the lines of a plan.
pub const PLAN_LINES: [&str; 5] = ["PIPELINE", "SCHEDULE", "SLOT", "ACTION", "REASON"];

/// The lines of a plan; slots in a row that are passed over for the same reason are one, as the plan made them.
pub fn plan_rows(lines: &[PlanLineAnswer]) -> Vec<[String; 5]> {
    let mut stretches: Vec<PlanLineAnswer> = Vec::new();
    let mut last: BTreeMap<(&str, &str), usize> = BTreeMap::new();
    for line in lines {
        let key = (line.pipeline.as_str(), line.schedule.as_str());
        let before = last.get(&key).and_then(|index| stretches.get_mut(*index));
        if let Some(before) = before.filter(|before| goes_on(before, line)) {
            before.last = line.last;
            before.count += line.count;
        } else {
            last.insert(key, stretches.len());
            stretches.push(line.clone());
        }
    }
    stretches.iter().map(plan_row).collect()
}

/// Whether a line goes on with what one says. What runs or waits has a line for each slot.
fn goes_on(before: &PlanLineAnswer, line: &PlanLineAnswer) -> bool {
    let is_passed_over = matches!(line.action.as_str(), "skip" | "close");
    is_passed_over && (&before.action, &before.reason) == (&line.action, &line.reason)
}

fn plan_row(line: &PlanLineAnswer) -> [String; 5] {
    let slot = match line.count {
        1 => line.slot.to_string(),
        count => format!("{} to {} ({count} slots)", line.slot, line.last),
    };
    let (action, reason) = (line.action.clone(), line.reason.clone());
    [line.pipeline.clone(), line.schedule.clone(), slot, action, reason]
}

/// What stands over incidents.
pub const INCIDENTS: [&str; 8] =
    ["STATE", "LEVEL", "KIND", "PIPELINE", "SINCE", "COUNT", "KEY", "MESSAGE"];

/// An incident.
pub fn incident_row(incident: &IncidentAnswer) -> [String; 8] {
    let hand = incident.resolved.as_ref().or(incident.acknowledged.as_ref());
    let mut message = one_line(&incident.message);
    if let Some(hand) = hand {
        let note = hand.note.as_ref().map(|note| format!(": {note}")).unwrap_or_default();
        message = one_line(&format!("{message} [{}{note}]", hand.by));
    }
    if let Some(held) = &incident.held {
        message = one_line(&format!("{message} [alert held back: {held}]"));
    }
    [
        incident.state.clone(),
        incident.level.clone(),
        incident.kind.clone(),
        incident.pipeline.clone(),
        instant(incident.opened_at),
        incident.count.to_string(),
        incident.key.clone(),
        message,
    ]
}

/// What stands over alerts that were given up.
pub const DEAD_LETTERS: [&str; 6] = ["CHANNEL", "PIPELINE", "TYPE", "TRIES", "ERROR", "MESSAGE"];

/// An alert that was given up.
pub fn dead_letter_row(letter: &DeadLetterAnswer) -> [String; 6] {
    let alert = Alert::from_json(&letter.alert);
    [
        letter.channel.clone(),
        letter.pipeline.clone(),
        alert.alert_type,
        letter.tries.to_string(),
        one_line(letter.error.as_deref().unwrap_or_default()),
        one_line(&alert.message),
    ]
}
