//! A headline and what else the story of a slot knows.

use interlock_core::text::counted;
use interlock_store::story::one_line;

use super::{ShownTimes, SlotFacts, headline};
use crate::model::{
    incident::{DeliveryAnswer, IncidentDetailAnswer},
    story::StoryAnswer,
};

/// What happened to a slot, or why there is none, in a few sentences: what became of it, whom the incident reached, and who looks.
pub fn full_reason(story: &StoryAnswer, times: &ShownTimes<'_>) -> String {
    let Some(facts) = SlotFacts::from_story(story) else {
        return story.absence.as_ref().map(|it| it.headline.clone()).unwrap_or_default();
    };
    let mut sentences = vec![headline(&facts, times)];
    if let Some(span) = story.span.as_ref().filter(|span| span.count > 1) {
        sentences.push(format!(
            "It is one of {} that were recorded together at {}.",
            counted(span.count, "slot"),
            times.time(span.recorded_at, facts.nominal)
        ));
    }
    sentences.extend(story.incidents.iter().map(|found| about_incident(found, &facts, times)));
    sentences.join(" ")
}

fn about_incident(
    found: &IncidentDetailAnswer,
    facts: &SlotFacts<'_>,
    times: &ShownTimes<'_>,
) -> String {
    let IncidentDetailAnswer { incident, deliveries } = found;
    let opened = times.exact(incident.opened_at, facts.nominal);
    let hand = [(&incident.resolved, "resolved"), (&incident.acknowledged, "acknowledged")];
    let hand = hand.into_iter().find_map(|(hand, did)| {
        let hand = hand.as_ref()?;
        let at = times.time(hand.at, incident.opened_at);
        let note = hand.note.as_ref().map(|note| format!(" (\"{}\")", one_line(note)));
        Some(format!("{} {did} it at {at}{}", one_line(&hand.by), note.unwrap_or_default()))
    });
    let state = hand.unwrap_or_else(|| match incident.state.as_str() {
        "resolved" => {
            format!("it was over at {}", times.time(incident.updated_at, incident.opened_at))
        }
        _ => reached(deliveries),
    });
    format!("An incident was opened at {opened}: {state}.")
}

/// Whom an open incident reached.
fn reached(deliveries: &[DeliveryAnswer]) -> String {
    let Some(first) = deliveries.first() else { return "its alert is delivered".to_owned() };
    let reason = first.reason.as_deref().map(one_line);
    match (first.state.as_str(), first.channel.as_deref(), reason) {
        ("held", _, Some(why)) => format!("its alert is held back: {why}"),
        ("dead", Some(channel), why) => {
            format!("its alert to {channel} was given up{}", because(why))
        }
        (_, Some(channel), why) => format!("{channel} does not have its alert yet{}", because(why)),
        (_, None, _) => "its alert is on its way".to_owned(),
    }
}

fn because(why: Option<String>) -> String {
    why.map(|why| format!(": {why}")).unwrap_or_default()
}
