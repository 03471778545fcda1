//! A row of the fleet: name, state, reason, strip, and when its next slot is.

use interlock_answers::model::fleet::{
    FleetAnswer, FleetPlace, FleetRowAnswer, FleetSectionAnswer, FleetSectionKind, FleetSlotAnswer,
    FleetState,
};
use jiff::Timestamp;

use crate::{
    page::slot::slot_href,
    parts::{Drawing, Escaped, Mark},
    query::{Query, part},
    strip::{self, DrawnSlot, Lane, Scale, WIDE},
    times::{Zone, between, rough},
};

/// What all rows are drawn with.
pub(super) struct RowInput<'a> {
    pub(super) fleet: &'a FleetAnswer,
    pub(super) scale: Scale,
    pub(super) zone: &'a Zone,
    pub(super) kept: &'a Query,
    pub(super) group: Option<&'a str>,
    pub(super) now: Timestamp,
}

/// A row as it is shown.
pub(super) struct FleetRow {
    pub(super) name: String,
    pub(super) href: String,
    pub(super) is_watch_only: bool,
    /// The owner, where the section does not say it.
    pub(super) owner: Option<String>,
    pub(super) mark: Mark,
    pub(super) reason: String,
    pub(super) reason_in_full: String,
    pub(super) strip: Drawing,
    pub(super) next: String,
    /// The slot that says most about the state of the row.
    pub(super) why: Option<String>,
}

pub(super) fn row(
    item: &FleetRowAnswer,
    section: &FleetSectionAnswer,
    input: &RowInput<'_>,
) -> FleetRow {
    let (name, href) = match (&item.pipeline, &item.group) {
        (Some(name), _) => (name.clone(), format!("/pipelines/{}", part(name))),
        (None, group) => {
            let value = group.clone().unwrap_or_default();
            let filter = match input.group {
                Some("owner") | None => input.kept.clone().and("owner", &value),
                Some(label) => {
                    let label = label.strip_prefix("label:").unwrap_or(label);
                    input.kept.clone().and("label", format!("{label}={value}"))
                }
            };
            (format!("{} pipelines", item.pipelines), filter.at("/"))
        }
    };
    let next = item.next.as_ref().filter(|_| item.paused.is_none());
    FleetRow {
        name,
        href,
        is_watch_only: item.is_watch_only,
        owner: item.owner.clone().filter(|_| section.kind == FleetSectionKind::Attention),
        mark: mark(item.state),
        reason: item.reason.clone(),
        reason_in_full: item.reason_in_full.clone(),
        strip: strip(item, input),
        next: next.map_or_else(|| "–".to_owned(), |next| rough(between(input.now, next.utc))),
        why: why(item),
    }
}

/// The silhouette, word and colour of a row.
pub(super) fn mark(state: FleetState) -> Mark {
    match state {
        FleetState::Failed => Mark::new("m-failed", "Failed", "is-failed"),
        FleetState::Missed => Mark::new("m-missed", "Missed", "is-missed"),
        FleetState::Unknown => Mark::new("m-unknown", "Unknown", "is-unknown"),
        FleetState::NotReady => Mark::new("m-skipped", "Not ready", "is-late"),
        FleetState::AtRisk => Mark::new("m-risk", "At risk", "is-late"),
        FleetState::Late => Mark::new("m-late", "Late", "is-late"),
        FleetState::CatchingUp => Mark::new("m-catch", "Catching up", "is-catch"),
        FleetState::PausedLong => Mark::new("m-pause", "Paused", "is-late"),
        FleetState::Running => Mark::new("m-run", "Running", "is-run"),
        FleetState::Waiting => Mark::new("m-wait", "Waiting", "is-run"),
        FleetState::Paused => Mark::new("m-pause", "Paused", ""),
        FleetState::OnTime => Mark::new("m-ok", "On time", ""),
        FleetState::NotDue => Mark::new("m-none", "Not due", ""),
    }
}

/// The last slot of the kind that the row's state comes from.
fn why(item: &FleetRowAnswer) -> Option<String> {
    let pipeline = item.pipeline.as_deref()?;
    let wanted = match item.state {
        FleetState::Failed => FleetPlace::Failed,
        FleetState::Missed => FleetPlace::Missed,
        FleetState::Unknown => FleetPlace::Unknown,
        FleetState::NotReady => FleetPlace::Skipped,
        FleetState::Late => FleetPlace::Late,
        FleetState::AtRisk | FleetState::Running => FleetPlace::Running,
        FleetState::CatchingUp
        | FleetState::PausedLong
        | FleetState::Waiting
        | FleetState::Paused
        | FleetState::OnTime
        | FleetState::NotDue => FleetPlace::Waiting,
    };
    let found = item.slots.iter().rev().find(|slot| slot.place == wanted);
    let found =
        found.or_else(|| item.slots.iter().rev().find(|slot| slot.place != FleetPlace::Planned));
    found.map(|slot| slot_href(pipeline, &slot.schedule, slot.utc))
}

fn strip(item: &FleetRowAnswer, input: &RowInput<'_>) -> Drawing {
    let RowInput { scale, zone, now, fleet, .. } = *input;
    let mut lane = Lane::default();
    for pause in &item.pauses {
        lane.pause(
            scale,
            pause.from.max(scale.from),
            pause.until.unwrap_or(scale.until).min(scale.until),
        );
    }
    for days in &item.excluded {
        lane.excluded(
            scale,
            days.from.max(scale.from),
            days.until.unwrap_or(scale.until).min(scale.until),
        );
    }
    if !item.lists_all_slots {
        let wide = WIDE / f64::from(fleet.buckets.max(1));
        for cell in &item.cells {
            lane.stack(cell, (wide, scale.x(fleet.now)));
        }
    }
    let pipeline = item.pipeline.as_deref().unwrap_or_default();
    for slot in &item.slots {
        // In a stack it is seen already.
        if item.lists_all_slots || is_exception(slot) && item.slots.len() <= 60 {
            lane.slot(scale, &drawn(slot, pipeline, (zone, now)), now);
        }
    }
    let label = strip::summary(&item.counts);
    let mut text = format!(
        r##"<svg class="strip" role="group" aria-label="{}"><use href="#ax"/>"##,
        Escaped(&label),
    );
    text.push_str(&lane.finish(20));
    text.push_str("</svg>");
    Drawing(text)
}

fn is_exception(slot: &FleetSlotAnswer) -> bool {
    matches!(
        slot.place,
        FleetPlace::Failed
            | FleetPlace::Missed
            | FleetPlace::Unknown
            | FleetPlace::Late
            | FleetPlace::CaughtUp
    )
}

fn drawn(slot: &FleetSlotAnswer, pipeline: &str, (zone, now): (&Zone, Timestamp)) -> DrawnSlot {
    let is_queued_catchup = slot.place == FleetPlace::Waiting
        && slot.word == "queued"
        && between(slot.utc, now) > 3_600;
    let link = (is_exception(slot) || is_queued_catchup).then(|| {
        let why = slot
            .reason
            .as_deref()
            .map_or_else(String::new, |reason| format!(", {}", reason.replace('_', " ")));
        let title = format!("{}: {}{why}", zone.stamp(slot.utc, now), strip::word(slot.place));
        (slot_href(pipeline, &slot.schedule, slot.utc), title)
    });
    DrawnSlot {
        at: slot.utc,
        place: slot.place,
        is_catchup: is_queued_catchup,
        started: slot.started_at,
        ended: slot.ended_at,
        expected: slot.expected_end,
        link,
    }
}
