//! Answers as lines of text, for people at a terminal. `interlock` prints them, and so do the simulator's scenarios.

use interlock_core::duration;
use interlock_store::story::{instant, one_line};
use jiff::SignedDuration;

use crate::{
    model::{
        event::EventAnswer,
        incident::{DeliveryAnswer, IncidentDetailAnswer},
        run::RunAnswer,
        slot::{SlaAnswer, SlotAnswer, SpanAnswer},
        story::StoryAnswer,
        verdict::VerdictAnswer,
    },
    table::{marks, slot_state},
};

/// A report that could be placed nowhere.
pub const REPORT_REJECTED: &str = "REPORT_REJECTED";
/// The event that says that nothing came of a request.
pub const REQUEST_REJECTED: &str = "REQUEST_REJECTED";

/// The story of a slot, line by line.
pub fn story_lines(story: &StoryAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    match (&story.slot, &story.span) {
        (Some(slot), Some(span)) => lines.push(about_span(slot, span)),
        (Some(slot), None) => {
            lines.push(format!("{} is {}. {}", slot.slot, slot_state(slot), story.headline));
            lines.extend(about_slot(slot).into_iter().map(|line| format!("  {line}")));
        }
        (None, _) => lines.extend(story.absence.as_ref().map(|it| it.sentence.clone())),
    }
    section(&mut lines, "Runs:", story.runs.iter().map(about_run));
    section(&mut lines, "Events:", story.events.iter().map(sentence));
    section(&mut lines, "Incidents:", story.incidents.iter().flat_map(about_incident));
    lines
}

/// What a rule says, and those that it was made from: an indented tree, one line for each.
pub fn verdict_lines(verdict: &VerdictAnswer) -> Vec<String> {
    let mark = match verdict.outcome.as_str() {
        "ready" => '✓',
        "not ready" => '✗',
        _ => '?',
    };
    let optional = if verdict.optional { " (optional)" } else { "" };
    let reason = match verdict.reason.as_str() {
        "" => String::new(),
        reason => format!(", {reason}"),
    };
    let mut lines = vec![format!("{mark} {}{optional}{reason}", verdict.asked)];
    let below = verdict.parts.iter().flat_map(verdict_lines);
    lines.extend(below.map(|line| format!("  {line}")));
    lines
}

fn section(lines: &mut Vec<String>, heading: &str, all: impl Iterator<Item = String>) {
    let mut all = all.peekable();
    if all.peek().is_some() {
        lines.push(heading.to_owned());
    }
    lines.extend(all.map(|line| format!("  {line}")));
}

fn about_slot(slot: &SlotAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    if let (Some(date), Some(at), Some(by)) = (slot.date, slot.opened_at, &slot.opened_by) {
        let generation = slot.generation;
        lines.push(format!(
            "It is the run of {date}; generation {generation} was opened at {at} by {by}."
        ));
    }
    lines.extend(slot.closes_at.map(|at| format!("It is closed at {at} at the latest.")));
    lines.extend(slot.retry_at.map(|at| format!("The next attempt starts at {at}.")));
    lines.extend(slot.sla.iter().flat_map(promises));
    let marks = marks(&slot.marks);
    if !marks.is_empty() {
        lines.push(format!("It is marked {}.", marks.join(", ")));
    }
    lines
}

/// What a slot promised about time when it was opened.
fn promises(sla: &SlaAnswer) -> Vec<String> {
    let mut lines = Vec::new();
    lines.extend(sla.evaluation_at.map(|at| format!("Its evaluation is due by {at}.")));
    lines.extend(sla.breach_at.map(|at| match sla.warning_at {
        Some(warning) => format!("Its completion is due by {at}; from {warning} on it is at risk."),
        None => format!("Its completion is due by {at}."),
    }));
    let budget = sla.max_duration_seconds.map(|it| duration::format(SignedDuration::from_secs(it)));
    lines.extend(budget.map(|budget| format!("It may take {budget} from its first sensor.")));
    lines
}

fn about_span(slot: &SlotAnswer, span: &SpanAnswer) -> String {
    let SpanAnswer { count, last, recorded_at, .. } = span;
    format!(
        "{} is {}: one of {count} slots up to {last} that were recorded together at {recorded_at}.",
        slot.slot,
        slot_state(slot)
    )
}

fn about_run(run: &RunAnswer) -> String {
    let mut parts = vec![format!("{} ({}) is {}", run.id, run.trigger_type, run.status)];
    parts.extend(run.started_at.map(|at| format!("started at {}", instant(at))));
    parts.extend(run.ended_at.map(|at| format!("ended at {}", instant(at))));
    let message = run.message.as_ref().map_or_else(String::new, |text| format!(": {text}"));
    format!("{}{message}", parts.join(", "))
}

fn about_incident(found: &IncidentDetailAnswer) -> Vec<String> {
    let IncidentDetailAnswer { incident, deliveries } = found;
    let since = instant(incident.opened_at);
    let hand = incident.resolved.as_ref().or(incident.acknowledged.as_ref());
    let by = hand.map_or_else(String::new, |hand| {
        let note = hand.note.as_ref().map_or_else(String::new, |note| format!(": {note}"));
        one_line(&format!(" by {} at {}{note}", hand.by, instant(hand.at)))
    });
    let head = format!("{} is {}{by}, opened at {since}", incident.key, incident.state);
    let mut lines = vec![head];
    lines.extend(deliveries.iter().map(|delivery| format!("  {}", about_delivery(delivery))));
    if deliveries.is_empty() {
        lines.push("  its alert was delivered".to_owned());
    }
    lines
}

fn about_delivery(delivery: &DeliveryAnswer) -> String {
    let channel = delivery.channel.as_deref().unwrap_or("no channel yet");
    let tells = delivery.tells.as_deref().unwrap_or("it");
    let next = delivery.next_try_at.map(|at| format!(", next at {}", instant(at)));
    let reason = delivery.reason.as_deref().map(|reason| format!(": {}", one_line(reason)));
    let times = if delivery.tries > 0 {
        format!(", tried {} times", delivery.tries)
    } else {
        String::new()
    };
    let (next, reason) = (next.unwrap_or_default(), reason.unwrap_or_default());
    format!("{channel}: alert \"{tells}\" {}{times}{next}{reason}", delivery.state)
}

/// An event as a line of text.
pub fn sentence(event: &EventAnswer) -> String {
    let about = event
        .run_id
        .clone()
        .or_else(|| event.slot.as_ref().map(|slot| format!("{}/{slot}", event.pipeline)));
    let about = about.unwrap_or_else(|| event.pipeline.clone());
    let separator = if event.message.is_empty() { "" } else { ": " };
    let said = said(event);
    format!("{} {} {about}{separator}{}{said}", instant(event.at), event.kind, event.message)
}

/// What a report said that is not kept anywhere else, and who made it.
fn said(event: &EventAnswer) -> String {
    let text = |name: &str| event.details.get(name).and_then(|value| value.as_str());
    if event.kind == REQUEST_REJECTED {
        let word = text("request");
        return word.map_or_else(String::new, |word| format!(" (the request was `{word}`)"));
    }
    if event.kind != REPORT_REJECTED {
        return String::new();
    }
    let named = |name: &str| text(name).map(|value| format!("{name} {value}"));
    let said = text("said").map(|said| format!("it said {said}"));
    let at = text("reportedAt").map(|at| format!("at {at}"));
    let from = text("source").map(|source| format!("by {source}"));
    let parts: Vec<_> = [said, at, named("rid"), from].into_iter().flatten().collect();
    format!(" ({})", parts.join(", "))
}
