//! The story of a slot: verdict, lines, runs, who was told, facts.

use std::fmt::Write as _;

use interlock_answers::{
    model::{
        event::EventAnswer, incident::DeliveryAnswer, pipeline::PipelineDetailAnswer,
        run::RunAnswer, story::StoryAnswer,
    },
    words::{ShownTimes, full_reason},
};
use jiff::Timestamp;

use crate::{
    marks,
    parts::{Badge, Glyph, Mark},
    query::part,
    times::{When, Zone, between, exact, rough},
};

/// What happened at one moment.
pub(super) struct StoryLine {
    pub(super) when: When,
    pub(super) glyph: Glyph,
    pub(super) head: String,
    pub(super) detail: String,
}

/// A run of the slot.
pub(super) struct RunRow {
    pub(super) attempt: String,
    pub(super) badge: Badge,
    pub(super) mark: Mark,
    pub(super) started: Option<When>,
    pub(super) took: String,
    pub(super) result: String,
    pub(super) is_last: bool,
}

/// An incident of the slot, and where its alerts are.
pub(super) struct ToldRow {
    pub(super) href: String,
    pub(super) what: String,
    pub(super) state: String,
    pub(super) since: When,
    pub(super) deliveries: Vec<String>,
}

/// The verdict, split behind what it says first: `Skipped:` or `Failed.`
pub(super) fn verdict(story: &StoryAnswer, zone: &Zone, now: Timestamp) -> (String, String) {
    let text = full_reason(story, &ShownTimes::new(&zone.zone, now));
    let end = text.find([':', '.']).map_or(text.len(), |at| at + 1);
    let (head, rest) = text.split_at(end);
    (head.to_owned(), rest.trim_start().to_owned())
}

/// Text as a sentence.
pub(crate) fn sentence(text: &str) -> String {
    let mut letters = text.trim().chars();
    let Some(first) = letters.next() else { return String::new() };
    let mut said: String = first.to_uppercase().chain(letters).collect();
    if !said.ends_with(['.', '!', '?']) {
        said.push('.');
    }
    said
}

/// What happened, oldest first.
pub(super) fn lines(story: &StoryAnswer, zone: &Zone) -> Vec<StoryLine> {
    let line = |event: &EventAnswer| StoryLine {
        when: When::said(event.at, zone.second(event.at)),
        glyph: marks::event(&event.kind),
        head: marks::said(&event.kind),
        detail: sentence(&zone.retold(&event.message, event.at)),
    };
    story.events.iter().map(line).collect()
}

/// Its attempts, the last one marked.
pub(super) fn runs(story: &StoryAnswer, zone: &Zone) -> Vec<RunRow> {
    let last = story.runs.len().saturating_sub(1);
    let row = |(number, run): (usize, &RunAnswer)| RunRow {
        attempt: if run.generation > 1 {
            format!("{}.{}", run.generation, run.attempt)
        } else {
            run.attempt.to_string()
        },
        badge: Badge::of(&run.trigger_type),
        mark: marks::run(&run.status),
        started: run.started_at.map(|at| When::said(at, zone.second(at))),
        took: took(run),
        result: result(run),
        is_last: number == last,
    };
    story.runs.iter().enumerate().map(row).collect()
}

/// How long a run took, if it has ended.
pub(crate) fn took(run: &RunAnswer) -> String {
    let both = run.started_at.zip(run.ended_at);
    both.map_or_else(String::new, |(from, until)| exact(between(from, until)))
}

/// What came of a run, in words.
pub(crate) fn result(run: &RunAnswer) -> String {
    let message = run.message.clone().unwrap_or_default();
    match &run.category {
        Some(category) if message.is_empty() => category.clone(),
        Some(category) => format!("{message}, {category}"),
        None => message,
    }
}

/// Who was told, incident by incident.
pub(super) fn told(story: &StoryAnswer, zone: &Zone, now: Timestamp) -> Vec<ToldRow> {
    let row = |found: &interlock_answers::model::incident::IncidentDetailAnswer| ToldRow {
        href: format!(
            "/incidents/{}/{}",
            part(&found.incident.pipeline),
            part(&found.incident.key)
        ),
        what: marks::said(&found.incident.kind),
        state: found.incident.state.clone(),
        since: When::said(found.incident.opened_at, zone.stamp(found.incident.opened_at, now)),
        deliveries: deliveries(&found.deliveries, found.incident.held.as_deref(), zone, now),
    };
    story.incidents.iter().map(row).collect()
}

/// Where alerts are that not every channel has.
pub(crate) fn deliveries(
    all: &[DeliveryAnswer],
    held: Option<&str>,
    zone: &Zone,
    now: Timestamp,
) -> Vec<String> {
    if let Some(held) = held {
        return vec![format!("held back: {held}")];
    }
    if all.is_empty() {
        return vec!["every channel that asks for it has it".to_owned()];
    }
    let line = |delivery: &DeliveryAnswer| {
        let channel = delivery.channel.as_deref().unwrap_or("no channel yet");
        let mut text = format!("{channel}: {}", delivery.state);
        if delivery.tries > 0 {
            let _never = write!(text, ", tried {} times", delivery.tries);
        }
        if let Some(at) = delivery.next_try_at {
            let _never = write!(text, ", next at {}", zone.stamp(at, now));
        }
        if let Some(reason) = &delivery.reason {
            let _never = write!(text, ": {reason}");
        }
        text
    };
    all.iter().map(line).collect()
}

/// What else is known.
pub(super) fn facts(
    story: &StoryAnswer,
    detail: Option<&PipelineDetailAnswer>,
    zone: &Zone,
) -> Vec<(&'static str, String)> {
    let mut facts = Vec::new();
    if let Some(slot) = &story.slot {
        facts.extend(slot.date.map(|date| ("Date", date.to_string())));
        if let (Some(at), Some(by)) = (slot.opened_at, &slot.opened_by) {
            facts.push(("Opened by", format!("{}, {}", Badge::of(by).word, zone.second(at))));
        }
        if slot.generation > 0 {
            facts.push(("Generation", slot.generation.to_string()));
        }
        if let Some(sla) = &slot.sla {
            let by = sla.breach_at.map(|at| format!("by {}", zone.stamp(at, at)));
            let risk = sla.warning_at.map(|at| format!("at risk from {}", zone.clock(at)));
            let most = sla.max_duration_seconds.map(|most| format!("at most {}", rough(most)));
            let all: Vec<_> = [by, risk, most].into_iter().flatten().collect();
            facts.push(("SLA", all.join(", ")));
        }
        facts.extend(slot.marks.missed_at.map(|at| ("Missed at", zone.stamp(at, at))));
        facts.extend(slot.closes_at.map(|at| ("Closes", zone.stamp(at, at))));
        facts.extend(slot.retry_at.map(|at| ("Tried again", zone.stamp(at, at))));
        facts.push(("Version", slot.version.clone()));
    }
    if let Some(span) = &story.span {
        facts.push((
            "Recorded with",
            format!(
                "{} slots, {} to {}",
                span.count,
                zone.stamp(span.first, span.first),
                zone.stamp(span.last, span.last)
            ),
        ));
    }
    if let Some(absence) = &story.absence {
        facts.extend(absence.previous.map(|at| ("Slot before", zone.stamp(at, at))));
        facts.extend(absence.next.map(|at| ("Slot after", zone.stamp(at, at))));
    }
    let host =
        story.runs.last().and_then(|run| run.metadata.get("host")?.as_str().map(str::to_owned));
    facts.extend(host.map(|host| ("Host", host)));
    if let Some(detail) = detail {
        let declared = &detail.standing.declared;
        facts.extend(declared.owner.clone().map(|owner| ("Owner", owner)));
        let usual =
            detail.usual.iter().find(|usual| Some(&usual.schedule) == story.schedule.as_ref());
        facts.extend(
            usual.and_then(|usual| usual.seconds).map(|usual| ("Usually takes", rough(usual))),
        );
    }
    facts
}
