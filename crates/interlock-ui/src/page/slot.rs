//! One slot: what became of it, and why; or why there is none.

mod life;
pub(super) mod told;

use askama::Template;
use axum::{extract::Path, response::Response};
use interlock_answers::{
    Listing,
    model::{
        next_slot::NextSlotsAnswer,
        pipeline::PipelineDetailAnswer,
        slot::LedgerAnswer,
        story::{AbsenceReason, StoryAnswer},
    },
};
use jiff::{SignedDuration, Timestamp};

use self::told::{RunRow, StoryLine, ToldRow};
use crate::{
    frame::{Frame, Tab},
    marks,
    parts::{Drawing, Mark},
    query::{Query, part},
    times::Zone,
    trouble::Trouble,
    visit::{Visit, render},
};

/// Slots before and after it that stand beside it.
const BEFORE: usize = 7;
const AFTER: usize = 3;
/// Lines of a log that are shown.
const LOG_LINES: usize = 12;

#[derive(Template)]
#[template(path = "slot.html")]
struct SlotPage {
    frame: Frame,
    pipeline: String,
    schedule: String,
    instant: Timestamp,
    /// Its day and time, in long form.
    title: String,
    /// The same by the schedule's own zone, where that is another.
    local: Option<String>,
    mark: Mark,
    neighbours: Vec<Neighbour>,
    /// The verdict: its first word, and the rest.
    verdict: (String, String),
    life: Option<Drawing>,
    lines: Vec<StoryLine>,
    zone_letters: String,
    runs: Vec<RunRow>,
    log: Option<ShownLog>,
    told: Vec<ToldRow>,
    facts: Vec<(&'static str, String)>,
    can: Actions,
    backfill: String,
    at_path: String,
}

/// A slot beside it.
struct Neighbour {
    href: String,
    mark: Mark,
    text: String,
    is_current: bool,
}

/// The last lines of a log.
struct ShownLog {
    run: String,
    heading: String,
    text: String,
    /// Where to go on while the job runs.
    follow: Option<u64>,
}

/// What may be done with the slot.
#[derive(Default)]
struct Actions {
    rerun: bool,
    run: bool,
    cancel: bool,
    incident: Option<String>,
}

/// The path of a slot.
pub(crate) fn slot_href(pipeline: &str, schedule: &str, at: Timestamp) -> String {
    format!("/pipelines/{}/slots/{}/{at}", part(pipeline), part(schedule))
}

pub(super) async fn slot(
    visit: Visit,
    Path((pipeline, schedule, instant)): Path<(String, String, String)>,
) -> Result<Response, Trouble> {
    let instant: Timestamp = instant.parse().map_err(|_unusable| {
        Trouble::unusable("the instant", "It looks like 2026-02-25T09:00:00Z.")
    })?;
    let path = format!("/api/v1/pipelines/{}/slots/{}/{instant}", part(&pipeline), part(&schedule));
    let story: StoryAnswer = visit.api.get(&format!("{path}/story")).await?;
    let detail: Option<PipelineDetailAnswer> =
        visit.api.get(&format!("/api/v1/pipelines/{}", part(&pipeline))).await.ok();
    let own = detail.as_ref().and_then(|detail| {
        let all = &detail.standing.declared.schedules;
        all.iter().find(|it| it.id == schedule).map(|it| it.zone.clone())
    });
    let zone = visit.times.zone_of(own.as_deref());
    let title = format!(
        "{} {} {}",
        zone.at(instant).strftime("%A %-d %B %Y,"),
        zone.clock(instant),
        zone.letters(instant)
    );
    let frame = visit
        .frame(Tab::Fleet, format!("{pipeline}, {}", zone.stamp(instant, visit.times.now)))
        .await?;
    let mark =
        story.slot.as_ref().map_or_else(|| absent_mark(&story), |slot| marks::slot(slot.into()));
    let neighbours = neighbours(&visit, (&pipeline, &schedule, instant), &zone, &mark).await;
    let local = own.as_deref().filter(|name| *name != zone.name).and_then(Zone::named);
    let local = local.filter(|own| own.at(instant).offset() != zone.at(instant).offset());
    let local = local.map(|own| match own.name.as_str() {
        "UTC" => own.stamp(instant, instant),
        name => format!("{} in {name}", own.stamp(instant, instant)),
    });
    let next = instant.saturating_add(SignedDuration::from_secs(1)).unwrap_or(instant);
    let backfill = Query::default()
        .and("from", zone.field(instant))
        .and("to", zone.field(next))
        .and("schedule", &schedule)
        .at(&format!("/pipelines/{}/backfill", part(&pipeline)));
    let page = SlotPage {
        verdict: told::verdict(&story, &zone, visit.times.now),
        life: life::life(&story, &zone, visit.times.now),
        lines: told::lines(&story, &zone),
        zone_letters: zone.letters(instant),
        runs: told::runs(&story, &zone),
        log: log(&visit, &story).await,
        told: told::told(&story, &zone, visit.times.now),
        facts: told::facts(&story, detail.as_ref(), &zone),
        can: actions(&frame, &story),
        at_path: slot_href(&pipeline, &schedule, instant),
        backfill,
        frame,
        pipeline,
        schedule,
        instant,
        title,
        local,
        mark,
        neighbours,
    };
    render(&page)
}

/// An instant without a slot has a mark too.
fn absent_mark(story: &StoryAnswer) -> Mark {
    let Some(absence) = &story.absence else { return Mark::new("m-none", "No slot", "") };
    match absence.reason {
        AbsenceReason::NotDue => Mark::new("m-plan", "Planned", ""),
        AbsenceReason::Paused => Mark::new("m-pause", "Paused", ""),
        AbsenceReason::Archived => Mark::new("m-none", "Archived", ""),
        AbsenceReason::BeforeFirstSight | AbsenceReason::NotSeen => {
            Mark::new("m-none", "Before our time", "")
        }
        AbsenceReason::NotRecordedYet | AbsenceReason::NothingRecorded => {
            Mark::new("m-none", "Not recorded yet", "")
        }
        AbsenceReason::Excluded
        | AbsenceReason::DstGap
        | AbsenceReason::OutOfBounds
        | AbsenceReason::NotASlot
        | AbsenceReason::NoSuchSchedule
        | AbsenceReason::Undeclared
        | AbsenceReason::DeclarationUnreadable
        | AbsenceReason::Retired
        | AbsenceReason::Disabled
        | AbsenceReason::DeclaredDifferently => Mark::new("m-none", "No slot", ""),
    }
}

fn actions(frame: &Frame, story: &StoryAnswer) -> Actions {
    let incident = story.incidents.first().map(|found| {
        let incident = &found.incident;
        format!("/incidents/{}/{}", part(&incident.pipeline), part(&incident.key))
    });
    if !frame.may_act() {
        return Actions { incident, ..Actions::default() };
    }
    let disposition = story.slot.as_ref().map(|slot| slot.disposition.as_deref());
    match disposition {
        Some(None) => Actions { cancel: true, incident, ..Actions::default() },
        Some(Some("missed" | "unknown" | "skipped")) => {
            Actions { run: true, rerun: false, incident, ..Actions::default() }
        }
        Some(Some(_)) => Actions { rerun: true, incident, ..Actions::default() },
        None => Actions { incident, ..Actions::default() },
    }
}

/// The slots around it, as tabs. What cannot be read is left out.
async fn neighbours(
    visit: &Visit,
    (pipeline, schedule, at): (&str, &str, Timestamp),
    zone: &Zone,
    own: &Mark,
) -> Vec<Neighbour> {
    let far = SignedDuration::from_hours(24 * 60);
    let base = Query::default().and("pipeline", pipeline).and("schedule", schedule);
    let next = at.saturating_add(SignedDuration::from_millis(1)).unwrap_or(at);
    let before = base
        .clone()
        .and("from", at.saturating_sub(far).unwrap_or(at).to_string())
        .and("until", at.to_string())
        .and("order", "newest")
        .and("limit", BEFORE.to_string());
    let after = base
        .and("from", next.to_string())
        .and("until", at.saturating_add(far).unwrap_or(at).to_string())
        .and("order", "oldest")
        .and("limit", AFTER.to_string());
    let before: Result<Listing<LedgerAnswer>, _> = visit.api.get(&before.at("/api/v1/slots")).await;
    let after: Result<Listing<LedgerAnswer>, _> = visit.api.get(&after.at("/api/v1/slots")).await;
    let tab = |item: &LedgerAnswer| {
        let (at, many) = match item {
            LedgerAnswer::Slot(slot) => (slot.utc, String::new()),
            LedgerAnswer::Span(span) => (
                span.first,
                if span.count > 1 {
                    format!(" and {} more", span.count - 1)
                } else {
                    String::new()
                },
            ),
        };
        Neighbour {
            href: slot_href(pipeline, schedule, at),
            mark: marks::slot(item.into()),
            text: format!("{}{many}", zone.short(at, visit.times.now)),
            is_current: false,
        }
    };
    let before = before.map(|list| list.items).unwrap_or_default();
    let is_other = |item: &&LedgerAnswer| match item {
        LedgerAnswer::Slot(slot) => slot.utc < at,
        LedgerAnswer::Span(span) => span.first < at,
    };
    let mut tabs: Vec<Neighbour> = before.iter().filter(is_other).map(tab).collect();
    tabs.reverse();
    tabs.push(Neighbour {
        href: slot_href(pipeline, schedule, at),
        mark: own.clone(),
        text: zone.short(at, visit.times.now),
        is_current: true,
    });
    let after = after.map(|list| list.items).unwrap_or_default();
    let missing = AFTER.saturating_sub(after.len());
    tabs.extend(after.iter().map(tab));
    if missing > 0 {
        tabs.extend(planned(visit, (pipeline, schedule, at), zone, missing).await);
    }
    tabs
}

async fn planned(
    visit: &Visit,
    (pipeline, schedule, at): (&str, &str, Timestamp),
    zone: &Zone,
    count: usize,
) -> Vec<Neighbour> {
    let from = at.max(visit.times.now).saturating_add(SignedDuration::from_millis(1)).unwrap_or(at);
    let query = Query::default().and("from", from.to_string()).and("count", "20");
    let next: Result<NextSlotsAnswer, _> =
        visit.api.get(&query.at(&format!("/api/v1/pipelines/{}/next", part(pipeline)))).await;
    let items = next.map(|next| next.items).unwrap_or_default();
    let own = items.into_iter().filter(|next| next.schedule == schedule).take(count);
    own.map(|next| Neighbour {
        href: slot_href(pipeline, schedule, next.utc),
        mark: Mark::new("m-plan", "Planned", ""),
        text: zone.short(next.utc, visit.times.now),
        is_current: false,
    })
    .collect()
}

/// The end of what the last job wrote.
async fn log(visit: &Visit, story: &StoryAnswer) -> Option<ShownLog> {
    let run = story.runs.last()?;
    if run.started_at.is_none() || run.trigger_type == "external" {
        return None;
    }
    let path = format!("/api/v1/runs/{}/log?lines={LOG_LINES}", part(&run.id));
    let (headers, text) = visit.api.text(&path).await.ok()?;
    let number = |name: &str| headers.get(name)?.to_str().ok()?.parse::<u64>().ok();
    let start = number("interlock-log-start").unwrap_or(0);
    let follow = run.ended_at.is_none().then(|| start + text.len() as u64);
    let heading = format!("Log of attempt {}, the last lines", run.attempt);
    Some(ShownLog { run: run.id.clone(), heading, text, follow })
}
