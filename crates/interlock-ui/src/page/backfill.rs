//! Backfills: the list, the wizard with its plan, and how far one is.

use std::{cmp::Ordering, fmt::Write as _};

use askama::Template;
use axum::{extract::Path, response::Response};
use interlock_answers::{
    Listing,
    model::{
        backfill::BackfillAnswer,
        pipeline::PipelineDetailAnswer,
        plan::{BackfillLineAnswer, BackfillPlanAnswer, BackfillPlanRequest},
    },
};
use jiff::{SignedDuration, Timestamp};

use super::slot::slot_href;
use crate::{
    api::Tagged,
    frame::{Frame, Tab},
    marks::{self, SlotLook},
    parts::{Glyph, Icon, Mark},
    query::{Query, part},
    times::{When, Zone, rough},
    trouble::Trouble,
    visit::{Visit, render},
};

/// Lines of a plan that a page has.
const LINES_MAX: usize = 400;

#[derive(Template)]
#[template(path = "backfills.html")]
struct BackfillsPage {
    frame: Frame,
    rows: Vec<BackfillRow>,
    next: Option<String>,
    may_act: bool,
}

/// A backfill in a list.
pub(crate) struct BackfillRow {
    pub(crate) href: String,
    pub(crate) pipeline: String,
    pub(crate) range: String,
    pub(crate) state: String,
    pub(crate) icon: Glyph,
    pub(crate) progress: String,
    pub(crate) by: String,
    pub(crate) started: When,
}

/// What the form of the wizard says.
#[derive(Clone)]
pub(crate) struct WizardFields {
    pub(crate) from: String,
    pub(crate) to: String,
    pub(crate) reprocess: String,
    pub(crate) order: String,
    pub(crate) concurrency: String,
    pub(crate) reason: String,
    pub(crate) schedule: String,
    pub(crate) assume_missing: bool,
}

#[derive(Template)]
#[template(path = "wizard.html")]
struct WizardPage {
    frame: Frame,
    pipeline: String,
    pipeline_href: String,
    zone_name: String,
    fields: WizardFields,
    schedules: Vec<String>,
    plan: Option<ShownPlan>,
    /// Says what differs from the plan that was looked at.
    changed: Option<String>,
    trouble: Option<Trouble>,
    made: String,
}

/// A plan as it is shown.
pub(crate) struct ShownPlan {
    head: String,
    rest: String,
    rows: Vec<PlanRow>,
    cut: usize,
    etag: String,
    hash: String,
    total: u64,
    concurrency: Option<String>,
}

struct PlanRow {
    href: Option<String>,
    when: String,
    icon: Icon,
    act: &'static str,
    class: &'static str,
    mark: Option<Mark>,
    why: String,
    is_off: bool,
}

#[derive(Template)]
#[template(path = "backfill.html")]
struct ProgressPage {
    frame: Frame,
    path: String,
    one: BackfillAnswer,
    pipeline_href: String,
    range: String,
    started: When,
    bars: Vec<(&'static str, String, String)>,
    summary: String,
    parts: Vec<(Glyph, String)>,
    open: Vec<(String, String)>,
    eta: Option<String>,
    is_under_way: bool,
    is_paused: bool,
    may_act: bool,
}

pub(super) async fn backfills(visit: Visit) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Backfill, "Backfills").await?;
    let asked = visit.query.clone().only(&["pipeline", "state", "after"]);
    let list: Listing<BackfillAnswer> =
        visit.api.get(&asked.clone().and("limit", "100").at("/api/v1/backfills")).await?;
    let mut rows: Vec<&BackfillAnswer> = list.items.iter().collect();
    rows.sort_by_key(|one| (one.ended_at.is_some(), std::cmp::Reverse(one.started_at)));
    let page = BackfillsPage {
        rows: rows.into_iter().map(|one| row(one, &visit)).collect(),
        next: list.next.map(|next| asked.without("after").and("after", next).at("/backfills")),
        may_act: frame.may_act(),
        frame,
    };
    render(&page)
}

fn row(one: &BackfillAnswer, visit: &Visit) -> BackfillRow {
    let (zone, now) = (visit.times.zone(), visit.times.now);
    let ended = one.completed + one.failed + one.cancelled + one.skipped;
    BackfillRow {
        href: format!("/pipelines/{}/backfills/{}", part(&one.pipeline), one.id),
        pipeline: one.pipeline.clone(),
        range: range(one, &zone, now),
        icon: Glyph(match one.state.as_str() {
            "running" => "m-run",
            "paused" => "m-pause",
            "cancelled" => "m-cancel",
            _ if one.failed > 0 => "m-failed",
            _ => "m-ok",
        }),
        state: one.state.clone(),
        progress: format!(
            "{ended} of {}{}",
            one.total,
            if one.failed > 0 { format!(", {} failed", one.failed) } else { String::new() }
        ),
        by: one.by.clone(),
        started: When::said(one.started_at, zone.stamp(one.started_at, now)),
    }
}

fn range(one: &BackfillAnswer, zone: &Zone, now: Timestamp) -> String {
    format!("{} to {}", zone.short(one.from, now), zone.stamp(one.to, now))
}

pub(super) async fn wizard(
    visit: Visit,
    Path(pipeline): Path<String>,
) -> Result<Response, Trouble> {
    let query = visit.query.clone();
    let is_asked = query.get("from").is_some() && query.get("to").is_some();
    draw(&visit, &pipeline, (query, is_asked), None).await
}

/// The wizard with what a form says; with the old plan where that is another by now.
pub(crate) async fn draw(
    visit: &Visit,
    pipeline: &str,
    (query, is_asked): (Query, bool),
    old: Option<(u64, Trouble)>,
) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Backfill, format!("Backfill {pipeline}")).await?;
    let detail: PipelineDetailAnswer =
        visit.api.get(&format!("/api/v1/pipelines/{}", part(pipeline))).await?;
    let zone = zone_of(visit, &detail, query.get("schedule"));
    let fields = fields(&query, &zone, visit.times.now);
    let (mut plan, mut trouble) = (None, None);
    if is_asked {
        let asked = request(&fields, &zone)?;
        let path = format!("/api/v1/pipelines/{}/backfills/plan", part(pipeline));
        match visit.api.plan::<BackfillPlanAnswer>(&path, &asked).await {
            Ok(tagged) => plan = Some(shown(&tagged, pipeline, &fields, (&zone, visit.times.now))),
            Err(refusal) if refusal.needs_login() => return Err(refusal),
            Err(refusal) => trouble = Some(refusal),
        }
    }
    let changed = old.as_ref().and_then(|(before, _)| {
        let now = plan.as_ref()?.total;
        Some(match now.cmp(before) {
            Ordering::Equal => format!("Other slots than before: {now} would run now."),
            Ordering::Less | Ordering::Greater => {
                format!("{before} slots would have run, {now} would run now.")
            }
        })
    });
    let starts = detail.standing.declared.schedules.iter().filter(|it| it.action == "start");
    let page = WizardPage {
        pipeline_href: format!("/pipelines/{}", part(pipeline)),
        zone_name: zone.name.clone(),
        made: format!("{} {}", zone.second(visit.times.now), zone.letters(visit.times.now)),
        schedules: starts.map(|it| it.id.clone()).collect(),
        pipeline: pipeline.to_owned(),
        frame,
        fields,
        plan,
        changed,
        trouble,
    };
    let mut response = render(&page)?;
    if let Some((_, refusal)) = old {
        *response.status_mut() = refusal.status;
    }
    Ok(response)
}

/// The zone of the fields: the schedule's, so that a day there is a day here.
pub(crate) fn zone_of(
    visit: &Visit,
    detail: &PipelineDetailAnswer,
    schedule: Option<&str>,
) -> Zone {
    use crate::times::ZoneChoice;
    let all = &detail.standing.declared.schedules;
    let own =
        all.iter().find(|it| schedule.is_none_or(|id| it.id == id)).map(|it| it.zone.as_str());
    let zone = match visit.times.choice {
        ZoneChoice::Schedule => own.and_then(Zone::named),
        ZoneChoice::Mine | ZoneChoice::Utc => None,
    };
    zone.unwrap_or_else(|| visit.times.zone())
}

/// What the form says, filled in where it says nothing.
pub(crate) fn fields(query: &Query, zone: &Zone, now: Timestamp) -> WizardFields {
    let text = |name: &str, or: &str| query.get(name).unwrap_or(or).trim().to_owned();
    let week = now.saturating_sub(SignedDuration::from_hours(7 * 24)).unwrap_or(now);
    WizardFields {
        from: text("from", &zone.field(week)),
        to: text("to", &zone.field(now)),
        reprocess: text("reprocess", "missing"),
        order: text("order", "asc"),
        concurrency: text("concurrency", "1"),
        reason: text("reason", ""),
        schedule: text("schedule", ""),
        assume_missing: query.get("assumeMissing").is_some(),
    }
}

/// What the API is asked for.
pub(crate) fn request(fields: &WizardFields, zone: &Zone) -> Result<BackfillPlanRequest, Trouble> {
    let time = |text: &str, what: &str| {
        zone.read(text)
            .ok_or_else(|| Trouble::unusable(what, "A time looks like 2026-10-25 09:41."))
    };
    let concurrency = fields.concurrency.parse();
    Ok(BackfillPlanRequest {
        from: time(&fields.from, "From")?,
        to: time(&fields.to, "Until")?,
        schedules: if fields.schedule.is_empty() { vec![] } else { vec![fields.schedule.clone()] },
        reprocess: fields.reprocess.clone(),
        order: fields.order.clone(),
        concurrency: concurrency
            .map_err(|_unusable| Trouble::unusable("At a time", "It is a number from 1 on."))?,
        reason: fields.reason.clone(),
        assume_missing: fields.assume_missing,
    })
}

fn shown(
    tagged: &Tagged<BackfillPlanAnswer>,
    pipeline: &str,
    fields: &WizardFields,
    (zone, now): (&Zone, Timestamp),
) -> ShownPlan {
    let plan = &tagged.plan;
    let count = |verdict: &str| plan.verdicts.get(verdict).copied().unwrap_or(0);
    let waits = count("not_ready");
    let skips = plan.count.saturating_sub(plan.total);
    let order = if plan.order == "desc" { "newest first" } else { "oldest first" };
    let at_a_time = if plan.concurrency == 1 {
        "one at a time".to_owned()
    } else {
        format!("{} at a time", plan.concurrency)
    };
    let mut rest = format!(", {order}, {at_a_time}. ");
    if waits > 0 {
        let _never = write!(rest, "{waits} of them will wait for data. ");
    }
    let _never = write!(rest, "{skips} are left as they are. Live slots go first.");
    let asked: u32 = fields.concurrency.parse().unwrap_or(1);
    ShownPlan {
        head: format!("{} of {} slots will run", plan.total, plan.count),
        rest,
        rows: folded(&plan.slots, pipeline, (zone, now)),
        cut: plan.slots.len().saturating_sub(LINES_MAX),
        etag: tagged.etag.clone(),
        hash: plan.plan.clone(),
        total: plan.total,
        concurrency: (plan.concurrency < asked).then(|| {
            format!("{} in effect: maxActiveRuns is {}", plan.concurrency, plan.concurrency)
        }),
    }
}

/// What runs is one row per slot; what is left as it is, is folded into ranges.
fn folded(
    lines: &[BackfillLineAnswer],
    pipeline: &str,
    (zone, now): (&Zone, Timestamp),
) -> Vec<PlanRow> {
    let mut rows: Vec<PlanRow> = Vec::new();
    let mut lines = lines.iter().take(LINES_MAX).peekable();
    while let Some(line) = lines.next() {
        let runs = matches!(line.verdict.as_str(), "would_run" | "not_ready");
        let (mut last, mut many) = (line, line.count.max(1));
        let goes_on = |next: &&BackfillLineAnswer| {
            !runs && next.verdict == line.verdict && next.reason == line.reason
        };
        while let Some(same) = lines.next_if(goes_on) {
            many += same.count.max(1);
            last = same;
        }
        rows.push(plan_row((line, last, many), pipeline, (zone, now)));
    }
    rows
}

fn plan_row(
    (line, last, many): (&BackfillLineAnswer, &BackfillLineAnswer, u64),
    pipeline: &str,
    (zone, now): (&Zone, Timestamp),
) -> PlanRow {
    let (icon, act, class) = match line.verdict.as_str() {
        "would_run" => ("i-play", "Will run", "go"),
        "not_ready" => ("i-clock", "Will wait", "mut"),
        _ => ("i-dash", "Skip", "mut"),
    };
    let when = match (line.slot, last.last.or(last.slot)) {
        (Some(from), Some(until)) if many > 1 => {
            format!("{} to {}", zone.short(from, now), zone.stamp(until, now))
        }
        (Some(at), _) => zone.stamp(at, now),
        (None, _) => line.date.clone().unwrap_or_default(),
    };
    let reason = line.reason.clone().unwrap_or_default();
    let slots = if many > 1 { format!("{many} slots, ") } else { String::new() };
    let (mark, why) = match line.verdict.as_str() {
        "would_run" => (so_far(&reason), String::new()),
        "not_ready" => (None, reason),
        "exists" => (so_far(&reason), format!("{slots}already decided")),
        "open" => (Some(Mark::new("m-run", "Open", "is-run")), format!("{slots}under way already")),
        "owed" => {
            (Some(Mark::new("m-wait", "Owed", "is-run")), format!("{slots}the catch-up runs it"))
        }
        "excluded" => (Some(Mark::new("m-none", "No slot", "")), reason),
        other => (None, format!("{slots}{other}")),
    };
    let is_one = many == 1 && line.name.is_some();
    PlanRow {
        href: line.slot.filter(|_| is_one).map(|at| slot_href(pipeline, &line.schedule, at)),
        when,
        icon: Icon(icon),
        act,
        class,
        mark,
        why,
        is_off: !matches!(line.verdict.as_str(), "would_run" | "not_ready"),
    }
}

/// How a slot stands that a backfill is about: `missed`, `skipped(overlap)` …
fn so_far(reason: &str) -> Option<Mark> {
    if reason.is_empty() {
        return None;
    }
    let (word, why) = match reason.split_once('(') {
        Some((word, why)) => (word.trim(), Some(why.trim_end_matches(')'))),
        None => (reason, None),
    };
    Some(marks::slot(SlotLook {
        state: "closed",
        disposition: Some(word),
        reason: why,
        ..SlotLook::default()
    }))
}

pub(super) async fn progress(
    visit: Visit,
    Path((pipeline, id)): Path<(String, u64)>,
) -> Result<Response, Trouble> {
    let one: BackfillAnswer =
        visit.api.get(&format!("/api/v1/pipelines/{}/backfills/{id}", part(&pipeline))).await?;
    let frame = visit.frame(Tab::Backfill, format!("Backfill {id} of {pipeline}")).await?;
    let (zone, now) = (visit.times.zone(), visit.times.now);
    let running = one.open.len() as u64;
    let ended = one.completed + one.failed + one.cancelled + one.skipped;
    let left = one.total.saturating_sub(ended + running);
    let parts = [
        ("f-ok", "m-ok", one.completed, "completed"),
        ("f-failed", "m-failed", one.failed, "failed"),
        ("f-line", "m-skipped", one.skipped, "skipped"),
        ("f-line", "m-cancel", one.cancelled, "cancelled"),
        ("f-run", "m-run", running, "under way"),
    ];
    let mut x = 0;
    let mut bars = Vec::new();
    for (class, _, count, _) in parts {
        if count > 0 {
            bars.push((class, x.to_string(), count.to_string()));
        }
        x += count;
    }
    let queued = [("", "m-plan", left, "to come")];
    let all = parts.iter().chain(&queued).filter(|(_, _, count, _)| *count > 0);
    let said: Vec<(Glyph, String)> =
        all.map(|(_, glyph, count, word)| (Glyph(glyph), format!("{count} {word}"))).collect();
    let open = one.open.iter().filter_map(|name| {
        let (schedule, at) = name.rsplit_once('/')?;
        let at: Timestamp = at.parse().ok()?;
        Some((slot_href(&pipeline, schedule, at), zone.stamp(at, now)))
    });
    let page = ProgressPage {
        path: format!("/pipelines/{}/backfills/{id}", part(&pipeline)),
        pipeline_href: format!("/pipelines/{}", part(&pipeline)),
        range: range(&one, &zone, now),
        started: When::said(one.started_at, zone.stamp(one.started_at, now)),
        summary: format!("{ended} of {} done", one.total),
        parts: said,
        open: open.collect(),
        eta: one.eta_seconds.filter(|_| one.ended_at.is_none()).map(rough),
        is_under_way: one.state == "running" || one.state == "paused",
        is_paused: one.state == "paused",
        may_act: frame.may_act(),
        bars,
        frame,
        one,
    };
    render(&page)
}
