//! The system itself: instances, shards, loops, coverage, the doctor's findings. A part that cannot be asked says so; the others stay.

use std::fmt::Write as _;

use askama::Template;
use axum::response::Response;
use interlock_answers::{
    Listing,
    model::{
        coverage::CoverageGapAnswer,
        doctor::{DoctorAnswer, FindingLevel},
        instance::{InstanceAnswer, InstanceState, ShardAnswer},
        token::TokenAnswer,
    },
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    axis::nice_steps,
    frame::{Frame, Tab},
    parts::{Drawing, Escaped, Icon},
    query::Query,
    strip::Scale,
    times::{When, Zone, between, rough},
    trouble::Trouble,
    visit::{Visit, render},
};

/// How far back coverage is shown.
const DAYS: i64 = 14;

#[derive(Template)]
#[template(path = "system.html")]
struct SystemPage {
    frame: Frame,
    about: Vec<String>,
    instances: Result<Vec<InstanceRow>, Trouble>,
    shards: Result<Shards, Trouble>,
    loops: Vec<LoopRow>,
    coverage: Result<Coverage, Trouble>,
    doctor: Result<Doctor, Trouble>,
    clock: Vec<(String, String)>,
    tokens: Option<Vec<TokenRow>>,
    may_act: bool,
}

struct InstanceRow {
    name: String,
    icon: Icon,
    class: &'static str,
    state: String,
    roles: String,
    shards: String,
    up: String,
    version: String,
    is_gone: bool,
}

struct Shards {
    squares: Vec<(&'static str, String)>,
    legend: Vec<(&'static str, String)>,
}

struct LoopRow {
    instance: String,
    name: String,
    icon: Icon,
    class: &'static str,
    age: String,
    bound: String,
    share: u64,
    is_late: bool,
}

struct Coverage {
    drawing: Drawing,
    rows: Vec<(When, String, String)>,
}

struct Doctor {
    at: String,
    rows: Vec<FindingRow>,
}

struct FindingRow {
    icon: Icon,
    class: &'static str,
    code: &'static str,
    message: String,
    hint: String,
    word: &'static str,
}

struct TokenRow {
    name: String,
    scope: String,
    id: String,
    created: Option<When>,
    expires: String,
}

pub(super) async fn system(visit: Visit) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::System, "System").await?;
    let (zone, now) = (visit.times.zone(), visit.times.now);
    let instances: Result<Listing<InstanceAnswer>, Trouble> =
        visit.api.get("/api/v1/instances").await;
    let shards: Result<Listing<ShardAnswer>, Trouble> = visit.api.get("/api/v1/shards").await;
    let doctor: Result<DoctorAnswer, Trouble> = visit.api.get("/api/v1/doctor").await;
    let from = now.saturating_sub(SignedDuration::from_hours(DAYS * 24)).unwrap_or(now);
    let query = Query::default().and("from", from.to_string());
    let gaps: Result<Listing<CoverageGapAnswer>, Trouble> =
        visit.api.get(&query.at("/api/v1/coverage-gaps")).await;
    let is_admin = frame
        .viewer
        .as_ref()
        .is_some_and(interlock_answers::model::session::SessionAnswer::may_administer);
    let tokens: Option<Listing<TokenAnswer>> =
        if is_admin { visit.api.get("/api/v1/tokens").await.ok() } else { None };
    let known = instances.as_ref().map(|list| list.items.as_slice()).unwrap_or_default();
    let page = SystemPage {
        about: about(known),
        loops: known
            .iter()
            .filter(|one| one.state == InstanceState::Present)
            .flat_map(loops)
            .collect(),
        clock: known
            .iter()
            .filter_map(|one| {
                Some((one.name.clone(), format!("{:+.0} ms", one.clock_skew_seconds? * 1_000.0)))
            })
            .collect(),
        instances: instances
            .as_ref()
            .map(|list| list.items.iter().map(|one| instance(one, &zone, now)).collect())
            .map_err(Clone::clone),
        shards: shards.map(|list| squares(&list.items)),
        coverage: gaps.map(|list| coverage(&list.items, Scale { from, until: now }, &zone)),
        doctor: doctor.map(|found| findings(&found, &zone)),
        tokens: tokens
            .map(|list| list.items.into_iter().map(|one| token(one, &zone, now)).collect()),
        may_act: frame.may_act(),
        frame,
    };
    render(&page)
}

fn about(instances: &[InstanceAnswer]) -> Vec<String> {
    let mut versions: Vec<&str> = instances.iter().map(|one| one.version.as_str()).collect();
    versions.sort_unstable();
    versions.dedup();
    let present = instances.iter().filter(|one| one.state == InstanceState::Present).count();
    let mut about = Vec::new();
    if !versions.is_empty() {
        about.push(format!("Interlock {}", versions.join(" and ")));
    }
    about.push(format!("{present} instance{}", if present == 1 { "" } else { "s" }));
    about
}

fn instance(one: &InstanceAnswer, zone: &Zone, now: Timestamp) -> InstanceRow {
    let is_gone = one.state == InstanceState::Gone;
    let is_late = one.loops.iter().any(|it| it.late);
    let (icon, class, state) = match (is_gone, is_late) {
        (true, _) => ("i-dash", "mut", format!("gone since {}", zone.stamp(one.said_at, now))),
        (false, true) => ("i-x", "no", "a loop is late".to_owned()),
        (false, false) => ("i-check", "yes", "working".to_owned()),
    };
    let engine = one.leases.iter().filter(|lease| lease.role == "engine").count();
    InstanceRow {
        name: one.name.clone(),
        icon: Icon(icon),
        class,
        state,
        roles: one.roles.join(", "),
        shards: engine.to_string(),
        up: one.up_seconds.map_or_else(|| "–".to_owned(), rough),
        version: one.version.clone(),
        is_gone,
    }
}

/// The squares of shards: each owner has a shape of its own.
fn squares(shards: &[ShardAnswer]) -> Shards {
    const SHAPES: [&str; 3] = ["sh-a", "sh-b", "sh-d"];
    const NOBODY: &str = "sh-c";
    let mut owners: Vec<&str> =
        shards.iter().filter_map(|shard| Some(shard.engine.as_ref()?.instance.as_str())).collect();
    owners.sort_unstable();
    owners.dedup();
    let shape = |owner: &str| {
        let place = owners.iter().position(|one| *one == owner).unwrap_or(0);
        SHAPES[place.min(SHAPES.len() - 1)]
    };
    let square = |shard: &ShardAnswer| match &shard.engine {
        Some(owner) => {
            (shape(&owner.instance), format!("shard {}: {}", shard.shard, owner.instance))
        }
        None => (NOBODY, format!("shard {}: no instance owns it", shard.shard)),
    };
    let count = |owner: &str| {
        shards
            .iter()
            .filter(|shard| shard.engine.as_ref().is_some_and(|own| own.instance == owner))
            .count()
    };
    let mut legend: Vec<_> =
        owners.iter().map(|owner| (shape(owner), format!("{owner}: {}", count(owner)))).collect();
    let free = shards.iter().filter(|shard| shard.engine.is_none()).count();
    if free > 0 {
        legend.push((NOBODY, format!("without an owner: {free}")));
    }
    Shards { squares: shards.iter().map(square).collect(), legend }
}

fn loops(one: &InstanceAnswer) -> Vec<LoopRow> {
    let seconds = |seconds: f64| {
        if seconds < 10.0 { format!("{seconds:.1} s") } else { rough(seconds as i64) }
    };
    let row = |it: &interlock_answers::model::instance::LoopAnswer| LoopRow {
        instance: one.name.clone(),
        name: it.name.clone(),
        icon: Icon(if it.late { "i-x" } else { "i-check" }),
        class: if it.late { "no" } else { "yes" },
        age: seconds(it.age_seconds),
        bound: seconds(it.bound_seconds),
        share: ((it.age_seconds / it.bound_seconds.max(0.001)).clamp(0.02, 1.0) * 100.0) as u64,
        is_late: it.late,
    };
    one.loops.iter().map(row).collect()
}

fn coverage(gaps: &[CoverageGapAnswer], scale: Scale, zone: &Zone) -> Coverage {
    let mut svg = format!(
        r#"<svg class="plot cov" role="img" aria-label="Coverage of {DAYS} days: {} gaps"><rect class="f-ok" y="8" width="100%" height="6"/>"#,
        gaps.len(),
    );
    for gap in gaps {
        let from = scale.percent(gap.from.max(scale.from));
        let until = scale.percent(gap.until.unwrap_or(scale.until));
        let _never = write!(
            svg,
            r#"<svg x="{from:.2}%" width="{:.2}%" height="22"><rect class="f-bg" width="100%" height="22"/><rect width="100%" height="22" fill="url(#hatch)"/><rect class="l l-unk" width="100%" height="22"/></svg>"#,
            (until - from).max(0.4),
        );
    }
    for (number, at) in nice_steps(scale.from, scale.until, 14, zone).into_iter().enumerate() {
        let odd = if number % 2 == 1 { " odd" } else { "" };
        let _never = write!(
            svg,
            r#"<text class="mid{odd}" x="{:.2}%" y="36">{}</text>"#,
            scale.percent(at),
            Escaped(&zone.at(at).strftime("%-d").to_string())
        );
    }
    svg.push_str("</svg>");
    let rows = gaps.iter().rev().take(12).map(|gap| {
        let until = gap.until.unwrap_or(scale.until);
        let said =
            gap.until.map_or_else(|| "it goes on".to_owned(), |at| zone.stamp(at, scale.until));
        (
            When::said(gap.from, zone.stamp(gap.from, scale.until)),
            said,
            rough(between(gap.from, until)),
        )
    });
    Coverage { drawing: Drawing(svg), rows: rows.collect() }
}

fn findings(found: &DoctorAnswer, zone: &Zone) -> Doctor {
    let row = |one: &interlock_answers::model::doctor::DoctorFinding| {
        let (icon, class, word) = match one.level {
            FindingLevel::Problem => ("i-x", "no", "problem"),
            FindingLevel::Warning => ("i-warn", "mark", "warning"),
            FindingLevel::Ok => ("i-check", "yes", "well"),
        };
        FindingRow {
            icon: Icon(icon),
            class,
            word,
            code: one.code.as_str(),
            message: one.message.clone(),
            hint: one.hint.clone().unwrap_or_default(),
        }
    };
    Doctor {
        at: format!("{} {}", zone.second(found.looked_at), zone.letters(found.looked_at)),
        rows: found.findings.iter().map(row).collect(),
    }
}

fn token(one: TokenAnswer, zone: &Zone, now: Timestamp) -> TokenRow {
    TokenRow {
        created: one.created_at.map(|at| When::said(at, zone.stamp(at, now))),
        expires: one.expires_at.map_or_else(|| "never".to_owned(), |at| zone.stamp(at, now)),
        name: one.name,
        scope: one.scope,
        id: one.id,
    }
}
