//! One pipeline: its slots along time, what comes next, whether it may run now, what it declares, and what can be done.

mod figure;

use askama::Template;
use axum::{extract::Path, response::Response};
use interlock_answers::{
    Listing,
    model::{
        backfill::BackfillAnswer,
        event::EventAnswer,
        next_slot::{MarkedDaysAnswer, NextSlotsAnswer},
        pipeline::PipelineDetailAnswer,
        plan::{CatchupPlanAnswer, PlanLineAnswer, ResumePlanAnswer, ResumePlanRequest},
        verdict::{EvaluationAnswer, VerdictAnswer},
    },
};
use serde_json::Value;

use super::slot::slot_href;
use crate::{
    frame::{Choice, Frame, Tab},
    marks,
    parts::{Drawing, Glyph, Icon, Mark},
    query::{Query, part},
    times::{When, Zone, between, rough},
    trouble::Trouble,
    visit::{Visit, render},
};

/// Coming slots that are shown.
const NEXT: usize = 6;
/// Lines of a plan.
const LINES: usize = 40;

#[derive(Template)]
#[template(path = "pipeline.html")]
struct PipelinePage {
    frame: Frame,
    name: String,
    href: String,
    mark: Mark,
    description: Option<String>,
    about: Vec<String>,
    labels: Vec<String>,
    owner: Option<String>,
    banners: Vec<Banner>,
    ranges: Vec<Choice>,
    figure: Result<Drawing, Trouble>,
    plan: Option<ShownLines>,
    readiness: Option<Result<Vec<TreeLine>, Trouble>>,
    readiness_head: String,
    next: Vec<NextRow>,
    remarks: Vec<String>,
    marked: Vec<MarkedRow>,
    facts: Vec<(&'static str, String)>,
    declaration: String,
    watch: Option<WatchLines>,
    is_paused: bool,
    may_act: bool,
    can_run: bool,
}

struct Banner {
    class: &'static str,
    glyph: Glyph,
    head: String,
    text: String,
    link: Option<(String, &'static str)>,
}

/// The lines of a plan.
struct ShownLines {
    rows: Vec<LineRow>,
    counts: String,
    more: u64,
}

struct LineRow {
    href: Option<String>,
    when: String,
    icon: Icon,
    act: &'static str,
    class: &'static str,
    why: String,
}

/// A line of the tree of verdicts.
struct TreeLine {
    depth: usize,
    icon: Icon,
    class: &'static str,
    name: String,
    asked: String,
    reason: String,
}

struct NextRow {
    href: String,
    when: String,
    utc: String,
    relative: String,
    note: String,
    dst: bool,
}

struct MarkedRow {
    day: String,
    kind: String,
    is_dst: bool,
    note: String,
}

/// How a job that runs elsewhere reports.
struct WatchLines {
    curl: String,
    exec: String,
    cron: String,
    heard: Vec<(When, String)>,
}

#[derive(Template)]
#[template(path = "resume.html")]
struct ResumePage {
    frame: Frame,
    name: String,
    href: String,
    paused: Option<String>,
    catchup: String,
    lines: ShownLines,
    missed: u64,
    etag: String,
    hash: String,
    changed: bool,
}

pub(super) async fn pipeline(visit: Visit, Path(name): Path<String>) -> Result<Response, Trouble> {
    let at = visit.query.get("at").and_then(|text| visit.times.zone().read(text));
    let as_of = Query::default().and_if("at", at.map(|at| at.to_string()));
    let base = format!("/api/v1/pipelines/{}", part(&name));
    let detail: PipelineDetailAnswer = visit.api.get(&as_of.at(&base)).await?;
    let frame = visit.frame(Tab::Fleet, &name).await?;
    let own = detail.standing.declared.schedules.first().map(|it| it.zone.clone());
    let zone = visit.times.zone_of(own.as_deref());
    let now = at.unwrap_or(visit.times.now);
    let next = as_of.clone().and("count", NEXT.to_string()).at(&format!("{base}/next"));
    let next: Result<NextSlotsAnswer, Trouble> = visit.api.get(&next).await;
    let marked: Result<MarkedDaysAnswer, Trouble> =
        visit.api.get(&as_of.at(&format!("{base}/marked-days"))).await;
    let query = as_of.clone().and("pipeline", &name);
    let plan: Result<CatchupPlanAnswer, Trouble> =
        visit.api.get(&query.at("/api/v1/catchup/plan")).await;
    let plan = plan.ok().filter(|plan| !plan.lines.is_empty());
    let is_watched = detail.standing.declared.trigger.as_deref() == Some("external");
    let readiness = if is_watched { None } else { Some(readiness(&visit, &base, &as_of).await) };
    let usual_range = usual_range(next.as_ref().ok());
    let range = visit.query.get("range").unwrap_or(usual_range);
    let figure =
        figure::figure(&visit, &detail, figure::FigureInput { zone: &zone, now, range }).await;
    let (readiness_head, readiness) = match readiness {
        Some(Ok((head, lines))) => (head, Some(Ok(lines))),
        Some(Err(trouble)) => (String::new(), Some(Err(trouble))),
        None => (String::new(), None),
    };
    let (next, remarks) = next.map_or_else(
        |trouble| (vec![], vec![trouble.sentence()]),
        |next| (next_rows(&next, &zone, now), next.remarks),
    );
    let page = PipelinePage {
        href: format!("/pipelines/{}", part(&name)),
        mark: mark(&detail),
        about: about(&detail),
        labels: detail
            .standing
            .declared
            .labels
            .iter()
            .map(|(name, value)| format!("{name}={value}"))
            .collect(),
        owner: detail.standing.declared.owner.clone(),
        description: detail.standing.declared.description.clone(),
        banners: banners(&visit, &detail, plan.as_ref(), &zone).await,
        ranges: ranges(&visit, usual_range),
        figure,
        plan: plan.map(|plan| shown_lines(&plan.lines, &plan.counts, &zone, now)),
        readiness,
        readiness_head,
        next,
        remarks,
        marked: marked.map(|days| marked_rows(&days)).unwrap_or_default(),
        facts: facts(&detail, &zone),
        declaration: serde_json::to_string_pretty(&detail.declaration).unwrap_or_default(),
        watch: if is_watched { Some(watch(&visit, &detail, &zone).await) } else { None },
        is_paused: detail.standing.paused.is_some(),
        may_act: frame.may_act() && detail.standing.retired_at.is_none(),
        can_run: !is_watched && detail.standing.declared.trigger.is_some(),
        frame,
        name,
    };
    render(&page)
}

/// The range that shows a few dozen slots: three hours of those that come every few minutes.
fn usual_range(next: Option<&NextSlotsAnswer>) -> &'static str {
    let gap = next.and_then(|next| match next.items.as_slice() {
        [first, second, ..] => Some(between(first.utc, second.utc)),
        _ => None,
    });
    match gap {
        Some(0..=600) => "3h",
        Some(50_000..) => "30d",
        Some(_) | None => "24h",
    }
}

/// How it stands, in a word.
fn mark(detail: &PipelineDetailAnswer) -> Mark {
    let standing = &detail.standing;
    if standing.retired_at.is_some() {
        return Mark::new("m-none", "Retired", "");
    }
    if standing.paused.is_some() {
        return Mark::new("m-pause", "Paused", "");
    }
    if standing.disabled {
        return Mark::new("m-pause", "Disabled", "");
    }
    if detail.running.iter().any(|running| running.risk.is_some()) {
        return Mark::new("m-risk", "At risk", "is-late");
    }
    let slot = standing.open.first().or(standing.last.as_ref());
    slot.map_or_else(|| Mark::new("m-none", "Not due yet", ""), |slot| marks::slot(slot.into()))
}

fn about(detail: &PipelineDetailAnswer) -> Vec<String> {
    let all = &detail.standing.declared.schedules;
    all.iter()
        .map(|it| {
            if it.action == "start" {
                it.when.clone()
            } else {
                format!("{}: {}", it.action, it.when)
            }
        })
        .collect()
}

fn ranges(visit: &Visit, usual: &str) -> Vec<Choice> {
    let current = visit.query.get("range").unwrap_or(usual);
    let choice = |(own, word): (&str, &str)| Choice {
        href: visit.query.clone().without("done").with("range", own).at(&visit.path),
        word: word.to_owned(),
        title: String::new(),
        icon: None,
        is_current: own == current,
    };
    [("3h", "3 h"), ("24h", "24 h"), ("7d", "7 d"), ("30d", "30 d"), ("90d", "90 d")]
        .into_iter()
        .map(choice)
        .collect()
}

async fn banners(
    visit: &Visit,
    detail: &PipelineDetailAnswer,
    plan: Option<&CatchupPlanAnswer>,
    zone: &Zone,
) -> Vec<Banner> {
    let (standing, now) = (&detail.standing, visit.times.now);
    let href = format!("/pipelines/{}", part(&standing.declared.pipeline));
    let mut banners = Vec::new();
    if let Some(problem) = &standing.problem {
        banners.push(Banner {
            class: "is-failed",
            glyph: Glyph("i-warn"),
            head: "Its declaration cannot be loaded.".to_owned(),
            text: format!("{problem} What is recorded is shown all the same."),
            link: None,
        });
    }
    if let Some(pause) = &standing.paused {
        let until = pause.until.map_or_else(
            || "until it is resumed".to_owned(),
            |at| format!("until {}", zone.stamp(at, now)),
        );
        banners.push(Banner {
            class: "is-late",
            glyph: Glyph("i-pause"),
            head: format!("Paused since {}, {until}.", zone.stamp(pause.since, now)),
            text: format!("“{}”", pause.reason),
            link: Some((format!("{href}/resume"), "Resume, see the plan…")),
        });
    }
    let caught: u64 = standing.open.iter().filter(|slot| slot.state == "queued").count() as u64;
    if let Some(plan) = plan.filter(|_| standing.paused.is_none()) {
        let counts = said_counts(&plan.counts);
        banners.push(Banner {
            class: "is-catch",
            glyph: Glyph("m-catch"),
            head: "Slots from before are owed.".to_owned(),
            text: format!("{counts}."),
            link: Some(("#plan".to_owned(), "See the plan")),
        });
    } else if caught > 1 {
        banners.push(Banner {
            class: "is-catch",
            glyph: Glyph("m-catch"),
            head: format!("{caught} slots wait for their turn."),
            text: String::new(),
            link: None,
        });
    }
    let path = Query::default()
        .and("pipeline", &standing.declared.pipeline)
        .and("state", "running")
        .and("state", "paused");
    let backfills: Result<Listing<BackfillAnswer>, _> =
        visit.api.get(&path.at("/api/v1/backfills")).await;
    for one in backfills.map(|list| list.items).unwrap_or_default() {
        let ended = one.completed + one.failed + one.cancelled + one.skipped;
        banners.push(Banner {
            class: "",
            glyph: Glyph("i-stack"),
            head: format!("Backfill {}: {ended} of {} done, {}.", one.id, one.total, one.state),
            text: String::new(),
            link: Some((format!("{href}/backfills/{}", one.id), "See how far it is")),
        });
    }
    banners
}

fn said_counts(counts: &std::collections::BTreeMap<String, u64>) -> String {
    let said = counts.iter().map(|(action, count)| match action.as_str() {
        "run" => format!("{count} run as catch-up"),
        "skip" => format!("{count} are skipped"),
        "wait" => format!("{count} wait"),
        "close" => format!("{count} are closed"),
        other => format!("{count} {other}"),
    });
    said.collect::<Vec<_>>().join(", ")
}

fn shown_lines(
    lines: &[PlanLineAnswer],
    counts: &std::collections::BTreeMap<String, u64>,
    zone: &Zone,
    now: jiff::Timestamp,
) -> ShownLines {
    let row = |line: &PlanLineAnswer| {
        let (icon, act, class) = match line.action.as_str() {
            "run" => ("i-play", "Will run", "go"),
            "wait" => ("i-clock", "Waits", "mut"),
            "skip" => ("i-dash", "Skip", "mut"),
            _ => ("i-dash", "Close", "mut"),
        };
        let when = if line.count > 1 {
            format!(
                "{} to {}, {} slots",
                zone.short(line.slot, now),
                zone.stamp(line.last, now),
                line.count
            )
        } else {
            zone.stamp(line.slot, now)
        };
        let href = line.name.as_ref().map(|_| slot_href(&line.pipeline, &line.schedule, line.slot));
        LineRow { href, when, icon: Icon(icon), act, class, why: line.reason.clone() }
    };
    ShownLines {
        rows: lines.iter().take(LINES).map(row).collect(),
        counts: said_counts(counts),
        more: lines.iter().skip(LINES).map(|line| line.count).sum(),
    }
}

/// The verdict tree of the slot in question, with what it is about.
async fn readiness(
    visit: &Visit,
    base: &str,
    as_of: &Query,
) -> Result<(String, Vec<TreeLine>), Trouble> {
    let found: Result<EvaluationAnswer, Trouble> =
        visit.api.get(&as_of.at(&format!("{base}/readiness"))).await;
    found.map(|found| {
        let mut lines = Vec::new();
        // What has no conditions is always ready.
        if found.verdict.outcome != "ready" || !found.verdict.parts.is_empty() {
            tree(&found.verdict, 0, &mut lines);
        }
        (found.slot, lines)
    })
}

fn tree(verdict: &VerdictAnswer, depth: usize, lines: &mut Vec<TreeLine>) {
    let (icon, class) = match verdict.outcome.as_str() {
        "ready" => ("i-check", "yes"),
        "not ready" => ("i-x", "no"),
        _ => ("i-q", "mut"),
    };
    lines.push(TreeLine {
        depth,
        icon: Icon(icon),
        class,
        name: verdict.name.clone(),
        asked: verdict.asked.clone(),
        reason: verdict.reason.clone(),
    });
    for part in &verdict.parts {
        tree(part, depth + 1, lines);
    }
}

fn next_rows(next: &NextSlotsAnswer, zone: &Zone, now: jiff::Timestamp) -> Vec<NextRow> {
    let row = |slot: &interlock_answers::model::next_slot::NextSlotAnswer| NextRow {
        href: slot_href(&slot.pipeline, &slot.schedule, slot.utc),
        when: format!("{} {} {}", zone.day(slot.utc), zone.clock(slot.utc), zone.letters(slot.utc)),
        utc: format!("{}Z", Zone::utc().clock(slot.utc)),
        relative: rough(between(now, slot.utc)),
        note: slot.note.clone(),
        dst: slot.dst.is_some(),
    };
    next.items.iter().map(row).collect()
}

fn marked_rows(days: &MarkedDaysAnswer) -> Vec<MarkedRow> {
    let row = |day: &interlock_answers::model::next_slot::MarkedDayAnswer| MarkedRow {
        day: day.date.strftime("%a %-d %b %Y").to_string(),
        kind: day.shift_seconds.map_or_else(
            || "excluded".to_owned(),
            |shift| format!("DST {}{} h", if shift < 0 { '−' } else { '+' }, shift.abs() / 3600),
        ),
        is_dst: day.kind == "dst",
        note: day.note.clone(),
    };
    days.items.iter().take(12).map(row).collect()
}

fn facts(detail: &PipelineDetailAnswer, zone: &Zone) -> Vec<(&'static str, String)> {
    let (standing, spec) = (&detail.standing, &detail.declaration);
    let declared = &standing.declared;
    let text = |pointer: &str| match spec.pointer(pointer)? {
        Value::Null => None,
        Value::String(text) if text.is_empty() => None,
        Value::String(text) => Some(text.clone()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::Array(_) | Value::Object(_)) => {
            Some(other.to_string())
        }
    };
    let mut facts: Vec<(&'static str, String)> = Vec::new();
    facts.extend(
        declared.schedules.iter().map(|it| ("Schedule", format!("{}: {}", it.id, it.when))),
    );
    facts.extend(declared.trigger.clone().map(|trigger| ("Trigger", trigger)));
    facts.extend(text("/catchup/window").map(|window| ("Catch-up", window)));
    facts.extend(
        text("/overlap/policy")
            .or_else(|| text("/overlapPolicy"))
            .map(|policy| ("Overlap", policy)),
    );
    facts.extend(
        text("/maxActiveRuns")
            .or_else(|| text("/overlap/maxActiveRuns"))
            .map(|most| ("At a time", most)),
    );
    facts.extend(declared.tier.map(|tier| ("Tier", tier.to_string())));
    if !declared.upstreams.is_empty() {
        facts.push(("Waits for", declared.upstreams.join(", ")));
    }
    for usual in &detail.usual {
        if let Some(seconds) = usual.seconds {
            facts.push(("Usually takes", format!("{} ({})", rough(seconds), usual.schedule)));
        }
    }
    facts
        .extend(standing.watermarks.values().min().map(|at| ("Recorded to", zone.stamp(*at, *at))));
    facts.extend(standing.first_seen.map(|at| ("First seen", zone.stamp(at, at))));
    facts.extend(declared.version.clone().map(|version| ("Version", version)));
    facts
}

/// The cron expression of a schedule in words, where there is one.
fn cron_of(when: &str) -> Option<String> {
    const DAYS: [&str; 7] =
        ["sunday", "monday", "tuesday", "wednesday", "thursday", "friday", "saturday"];
    if when.split(' ').count() == 5
        && when.starts_with(|first: char| first.is_ascii_digit() || first == '*')
    {
        return Some(when.to_owned());
    }
    let (time, days) = when.strip_prefix("at ")?.split_once(" every ")?;
    let (hour, minute) = time.split_once(':')?;
    let (hour, minute): (u8, u8) = (hour.parse().ok()?, minute.parse().ok()?);
    let days = match days {
        "day" => "*".to_owned(),
        days => {
            let number =
                |day: &str| DAYS.iter().position(|own| *own == day).map(|at| at.to_string());
            days.split(", ").map(number).collect::<Option<Vec<_>>>()?.join(",")
        }
    };
    Some(format!("{minute} {hour} * * {days}"))
}

async fn watch(visit: &Visit, detail: &PipelineDetailAnswer, zone: &Zone) -> WatchLines {
    let name = &detail.standing.declared.pipeline;
    let site = &visit.site;
    let schedule = detail.standing.declared.schedules.first();
    let cron = schedule.map_or_else(String::new, |it| {
        let when = it.when.split_once(" (").map_or(it.when.as_str(), |(when, _)| when);
        let job = format!("interlock exec {name} -- ./job.sh");
        match cron_of(when) {
            Some(cron) => format!("CRON_TZ={}\n{cron}  {job}", it.zone),
            None => format!("# {when}\n{job}"),
        }
    });
    let query = Query::default().and("pipeline", name).and("order", "newest").and("limit", "50");
    let list: Result<Listing<EventAnswer>, _> = visit.api.get(&query.at("/api/v1/events")).await;
    let all = list.map(|list| list.items).unwrap_or_default();
    let is_report = |event: &&EventAnswer| {
        matches!(
            event.kind.as_str(),
            "JOB_STARTED"
                | "JOB_COMPLETED"
                | "JOB_FAILED"
                | "JOB_LOGGED"
                | "REPORT_EXTRA"
                | "REPORT_REJECTED"
        )
    };
    let heard = all.iter().filter(is_report).take(3).map(|event| {
        let text = if event.message.is_empty() {
            marks::said(&event.kind)
        } else {
            format!("{}: {}", marks::said(&event.kind), event.message)
        };
        (When::said(event.at, zone.stamp(event.at, visit.times.now)), text)
    });
    WatchLines {
        curl: format!("curl -fsS -m 10 --retry 3 {site}/ping/{name}"),
        exec: format!("interlock exec {name} -- ./job.sh"),
        cron,
        heard: heard.collect(),
    }
}

pub(super) async fn resume(visit: Visit, Path(name): Path<String>) -> Result<Response, Trouble> {
    let query = visit.query.clone();
    draw_resume(&visit, &name, &query, None).await
}

/// What a resume would do, before it does.
pub(crate) async fn draw_resume(
    visit: &Visit,
    name: &str,
    said: &Query,
    old: Option<Trouble>,
) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Fleet, format!("Resume {name}")).await?;
    let catchup = said.get("catchup").unwrap_or("policy").to_owned();
    let asked = ResumePlanRequest { catchup: Some(catchup.clone()) };
    let path = format!("/api/v1/pipelines/{}/resume/plan", part(name));
    let planned = visit.api.plan::<ResumePlanAnswer>(&path, &asked).await?;
    let (zone, now) = (visit.times.zone(), visit.times.now);
    let plan = planned.plan;
    let page = ResumePage {
        href: format!("/pipelines/{}", part(name)),
        paused: plan.paused.map(|pause| {
            format!("Paused since {}: “{}”", zone.stamp(pause.since, now), pause.reason)
        }),
        lines: shown_lines(&plan.lines, &plan.counts, &zone, now),
        missed: plan.missed,
        etag: planned.etag,
        hash: plan.plan,
        changed: old.is_some(),
        name: name.to_owned(),
        frame,
        catchup,
    };
    let mut response = render(&page)?;
    if let Some(old) = old {
        *response.status_mut() = old.status;
    }
    Ok(response)
}
