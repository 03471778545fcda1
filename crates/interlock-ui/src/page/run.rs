//! Runs: what asked for each, what came of it, and how long it took against the usual.

use std::collections::BTreeMap;

use askama::Template;
use axum::{extract::Path, response::Response};
use interlock_answers::{
    Listing,
    model::{
        pipeline::{PipelineAnswer, PipelineDetailAnswer},
        run::RunAnswer,
    },
};

use super::slot::slot_href;
use crate::{
    dress::see_other,
    frame::{Choice, Frame, Tab},
    marks,
    page::slot::told::{result, took},
    parts::{Badge, Glyph, Mark},
    query::{Query, part},
    times::{When, Zone, between, rough},
    trouble::Trouble,
    visit::{Visit, render},
};

/// Runs on a page.
const PAGE: usize = 50;
/// Pipelines of a page whose usual durations are asked for.
const USUAL_MAX: usize = 12;
/// The words of the filter for the status, each with all that the API calls so.
const STATUSES: [(&str, &str, &[&str], Glyph); 4] = [
    ("running", "Running", &["PENDING", "TRIGGERING", "RUNNING"], Glyph("m-run")),
    ("failed", "Failed", &["FAILED"], Glyph("m-failed")),
    ("completed", "Completed", &["COMPLETED", "COMPLETED_MONITORING"], Glyph("m-ok")),
    ("cancelled", "Cancelled", &["CANCELLED"], Glyph("m-cancel")),
];
/// Those of the filter for the trigger.
const TRIGGERS: [&str; 9] = [
    "scheduler",
    "catchup",
    "retry",
    "backfill",
    "manual",
    "sensor",
    "webhook",
    "external",
    "reconcile",
];

#[derive(Template)]
#[template(path = "runs.html")]
struct RunsPage {
    frame: Frame,
    statuses: Vec<(Choice, Glyph)>,
    triggers: Vec<Choice>,
    /// What else is filtered, each with the way to do without.
    chips: Vec<Choice>,
    pipeline: String,
    from: String,
    until: String,
    kept: Vec<(String, String)>,
    clear: Option<String>,
    zone_letters: String,
    rows: Vec<RunLine>,
    unreadable: usize,
    older: Option<String>,
    newest: Option<String>,
    curl: String,
}

struct RunLine {
    mark: Mark,
    pipeline: String,
    pipeline_href: String,
    slot_href: String,
    slot: When,
    badge: Badge,
    attempt: u32,
    started: Option<When>,
    took: String,
    /// How long it took against the usual, of 100: the usual is in the middle.
    against: Option<(u64, &'static str, String)>,
    note: String,
}

pub(super) async fn runs(visit: Visit) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Runs, "Runs").await?;
    let zone = visit.times.zone();
    let asked = asked(&visit.query, &zone)?;
    let list: Listing<RunAnswer> = visit.api.get(&asked.at("/api/v1/runs")).await?;
    let facts = Facts::ask(&visit, &list.items).await;
    let rows = list.items.iter().map(|run| line(run, &visit, &facts)).collect();
    let filters = visit.query.clone().only(&["pipeline", "status", "trigger", "from", "until"]);
    let chip = |name: &str| {
        let value = filters.get(name)?;
        Some(Choice {
            href: filters.clone().without(name).at("/runs"),
            word: format!("{name} {value}"),
            title: format!("Without this filter: {name} {value}"),
            icon: None,
            is_current: true,
        })
    };
    let text = |name: &str| filters.get(name).unwrap_or_default().to_owned();
    let page = RunsPage {
        statuses: STATUSES
            .iter()
            .map(|(word, title, _, glyph)| (toggle(&filters, ("status", word), title), *glyph))
            .collect(),
        triggers: TRIGGERS
            .iter()
            .map(|word| {
                let badge = Badge::of(word);
                Choice { icon: Some(badge.icon), ..toggle(&filters, ("trigger", word), badge.word) }
            })
            .collect(),
        chips: ["pipeline", "from", "until"].into_iter().filter_map(chip).collect(),
        pipeline: text("pipeline"),
        from: text("from"),
        until: text("until"),
        kept: filters.clone().without("pipeline").without("from").without("until").pairs().to_vec(),
        clear: (!filters.is_empty()).then(|| "/runs".to_owned()),
        zone_letters: zone.letters(visit.times.now),
        rows,
        unreadable: list.unreadable.len(),
        older: list.next.map(|next| filters.clone().with("after", next).at("/runs")),
        newest: visit.query.get("after").map(|_| filters.at("/runs")),
        curl: format!("curl -fsS '{}{}'", visit.site, asked.without("after").at("/api/v1/runs")),
        frame,
    };
    render(&page)
}

/// One run has its place in the story of its slot.
pub(super) async fn run(visit: Visit, Path(id): Path<String>) -> Result<Response, Trouble> {
    let run: RunAnswer = visit.api.get(&format!("/api/v1/runs/{}", part(&id))).await?;
    Ok(see_other(&slot_href(&run.pipeline, &run.schedule, run.utc)))
}

fn toggle(filters: &Query, (name, word): (&str, &str), title: &str) -> Choice {
    Choice {
        href: filters.clone().toggled(name, word).at("/runs"),
        word: title.to_owned(),
        title: String::new(),
        icon: None,
        is_current: filters.has(name, word),
    }
}

/// What the API is asked for.
fn asked(query: &Query, zone: &Zone) -> Result<Query, Trouble> {
    let mut asked = Query::default()
        .and("limit", PAGE.to_string())
        .and_if("pipeline", query.get("pipeline").map(str::trim));
    for (name, label) in [("from", "From"), ("until", "Until")] {
        let Some(text) = query.get(name) else { continue };
        let at = zone
            .read(text)
            .ok_or_else(|| Trouble::unusable(label, "A time looks like 2026-10-25 09:41."))?;
        asked = asked.and(name, at.to_string());
    }
    for word in query.all("status") {
        let known = STATUSES.iter().find(|(own, ..)| *own == word);
        let (_, _, all, _) = known.ok_or_else(|| Trouble::bad(&format!("the status {word}")))?;
        for status in *all {
            asked = asked.and("status", *status);
        }
    }
    for word in query.all("trigger") {
        asked = asked.and("triggerType", word);
    }
    Ok(asked.and_if("after", query.get("after")))
}

/// What is known of the pipelines of a page: the zones of their schedules, how long they usually take.
#[derive(Default)]
pub(super) struct Facts {
    zones: BTreeMap<(String, String), String>,
    usual: BTreeMap<(String, String), i64>,
}

impl Facts {
    /// Asks; what cannot be known is left out.
    async fn ask(visit: &Visit, runs: &[RunAnswer]) -> Self {
        let mut facts = Self::default();
        let names: std::collections::BTreeSet<&str> =
            runs.iter().map(|run| run.pipeline.as_str()).collect();
        if names.is_empty() {
            return facts;
        }
        let query = names
            .iter()
            .fold(Query::default().and("limit", "100"), |query, name| query.and("pipeline", *name));
        let list: Result<Listing<PipelineAnswer>, _> =
            visit.api.get(&query.at("/api/v1/pipelines")).await;
        for found in list.map(|list| list.items).unwrap_or_default() {
            for schedule in found.declared.schedules {
                facts.zones.insert((found.declared.pipeline.clone(), schedule.id), schedule.zone);
            }
        }
        for name in names.into_iter().take(USUAL_MAX) {
            let detail: Result<PipelineDetailAnswer, _> =
                visit.api.get(&format!("/api/v1/pipelines/{}", part(name))).await;
            for usual in detail.map(|detail| detail.usual).unwrap_or_default() {
                if let Some(seconds) = usual.seconds {
                    facts.usual.insert((name.to_owned(), usual.schedule), seconds);
                }
            }
        }
        facts
    }
}

fn line(run: &RunAnswer, visit: &Visit, facts: &Facts) -> RunLine {
    let key = (run.pipeline.clone(), run.schedule.clone());
    let zone = visit.times.zone_of(facts.zones.get(&key).map(String::as_str));
    let now = visit.times.now;
    RunLine {
        mark: marks::run(&run.status),
        pipeline: run.pipeline.clone(),
        pipeline_href: format!("/pipelines/{}", part(&run.pipeline)),
        slot_href: slot_href(&run.pipeline, &run.schedule, run.utc),
        slot: When::said(run.utc, zone.stamp(run.utc, now)),
        badge: Badge::of(&run.trigger_type),
        attempt: run.attempt,
        started: run.started_at.map(|at| When::said(at, zone.short_to_the_second(at, now))),
        took: if run.ended_at.is_none() {
            run.started_at
                .map_or_else(String::new, |at| format!("{} so far", rough(between(at, now))))
        } else {
            took(run)
        },
        against: against(run, facts.usual.get(&key).copied(), visit),
        note: result(run),
    }
}

fn against(
    run: &RunAnswer,
    usual: Option<i64>,
    visit: &Visit,
) -> Option<(u64, &'static str, String)> {
    let usual = usual?;
    let ended = run.ended_at.unwrap_or(visit.times.now);
    let took = between(run.started_at?, ended).max(0);
    let share = if usual == 0 { 50 } else { (took * 50 / usual).clamp(1, 100) };
    let class = match run.status.as_str() {
        "FAILED" => "f-failed",
        "COMPLETED" | "COMPLETED_MONITORING" if share >= 75 => "f-late",
        "COMPLETED" | "COMPLETED_MONITORING" => "f-ok",
        _ => "f-run",
    };
    Some((share.unsigned_abs(), class, format!("usually {}", rough(usual))))
}
