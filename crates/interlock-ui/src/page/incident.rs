//! Incidents: the inbox, one of them, dead letters, silences.

use askama::Template;
use axum::{extract::Path, response::Response};
use interlock_answers::{
    Listing,
    model::{
        event::EventAnswer,
        incident::{DeadLetterAnswer, IncidentAnswer, IncidentDetailAnswer},
        plan::{AlertFilterAnswer, SilencePlanAnswer, SilencePlanRequest},
        silence::SilenceAnswer,
    },
};
use serde_json::Value;

use super::slot::{
    slot_href,
    told::{deliveries, sentence},
};
use crate::{
    frame::{Choice, Frame, Tab},
    marks,
    parts::Glyph,
    query::{Query, part},
    times::{Times, When, Zone, between, rough},
    trouble::Trouble,
    visit::{Visit, render},
};

/// Incidents on a page.
const PAGE: usize = 50;

/// An incident as the list has it.
struct IncidentLine {
    href: String,
    /// What a form sends to name it.
    value: String,
    glyph: Glyph,
    pipeline: String,
    what: String,
    opened: When,
    age: String,
    /// Who looks at it, and for how long.
    hand: Option<String>,
    state: String,
    many: String,
    is_current: bool,
}

/// What is shown of one.
struct IncidentView {
    path: String,
    pipeline: String,
    pipeline_href: Option<String>,
    key: String,
    glyph: Glyph,
    message: String,
    about: String,
    state: String,
    is_open: bool,
    hand: Option<String>,
    runbook: Option<String>,
    slot: Option<String>,
    deliveries: Vec<String>,
    dead: Vec<(String, String)>,
    history: Vec<HistoryLine>,
    details: Vec<(String, String)>,
}

struct HistoryLine {
    when: When,
    glyph: Glyph,
    head: String,
    detail: String,
}

#[derive(Template)]
#[template(path = "incidents.html")]
struct IncidentsPage {
    frame: Frame,
    tabs: Vec<Choice>,
    rows: Vec<IncidentLine>,
    next: Option<String>,
    shown: Option<IncidentView>,
    is_resolved: bool,
    may_act: bool,
    silence: SilenceFields,
}

#[derive(Template)]
#[template(path = "dead_letters.html")]
struct DeadLettersPage {
    frame: Frame,
    tabs: Vec<Choice>,
    rows: Vec<DeadLine>,
    next: Option<String>,
    may_act: bool,
}

struct DeadLine {
    pipeline: String,
    name: String,
    channel: String,
    tries: u32,
    error: String,
    what: String,
}

#[derive(Template)]
#[template(path = "silences.html")]
struct SilencesPage {
    frame: Frame,
    tabs: Vec<Choice>,
    rows: Vec<SilenceLine>,
    may_act: bool,
}

struct SilenceLine {
    id: String,
    state: String,
    hides: String,
    from: When,
    until: Option<When>,
    reason: String,
    by: String,
}

/// The fields of the silence form.
#[derive(Default, Clone)]
pub(crate) struct SilenceFields {
    pub(crate) pipelines: String,
    pub(crate) kind: String,
    pub(crate) length: String,
    pub(crate) reason: String,
}

#[derive(Template)]
#[template(path = "silence.html")]
struct SilencePage {
    frame: Frame,
    fields: SilenceFields,
    plan: Option<SilencePreview>,
    kinds: Vec<String>,
    lengths: Vec<(&'static str, &'static str)>,
}

struct SilencePreview {
    head: String,
    rows: Vec<(Glyph, String, String)>,
    more: bool,
    button: String,
}

/// For how long a silence may be.
const LENGTHS: [(&str, &str); 5] =
    [("1h", "1 h"), ("4h", "4 h"), ("12h", "12 h"), ("1d", "1 d"), ("7d", "7 d")];

fn tabs(current: &str) -> Vec<Choice> {
    let all = [
        ("open", "/incidents", "Open"),
        ("resolved", "/incidents?state=resolved", "Resolved"),
        ("dead", "/dead-letters", "Dead letters"),
        ("silences", "/silences", "Silences"),
    ];
    let choice = |(own, href, word): (&str, &str, &str)| Choice {
        href: href.to_owned(),
        word: word.to_owned(),
        title: String::new(),
        icon: None,
        is_current: own == current,
    };
    all.into_iter().map(choice).collect()
}

pub(super) async fn inbox(visit: Visit) -> Result<Response, Trouble> {
    list(visit, None).await
}

pub(super) async fn incident(
    visit: Visit,
    Path((pipeline, key)): Path<(String, String)>,
) -> Result<Response, Trouble> {
    let path = format!("/api/v1/incidents/{}/{}", part(&pipeline), part(&key));
    let found: IncidentDetailAnswer = visit.api.get(&path).await?;
    list(visit, Some(found)).await
}

async fn list(visit: Visit, shown: Option<IncidentDetailAnswer>) -> Result<Response, Trouble> {
    let title = shown.as_ref().map_or_else(
        || "Incidents".to_owned(),
        |found| format!("{}: {}", found.incident.pipeline, marks::said(&found.incident.kind)),
    );
    let frame = visit.frame(Tab::Incidents, title).await?;
    let is_resolved = visit.query.has("state", "resolved")
        || shown.as_ref().is_some_and(|found| found.incident.state == "resolved");
    let mut asked =
        visit.query.clone().only(&["pipeline", "kind", "level", "owner", "label", "after"]);
    if is_resolved {
        asked = asked.and("state", "resolved");
    }
    let query = asked.clone().and("limit", PAGE.to_string());
    let found: Listing<IncidentAnswer> = visit.api.get(&query.at("/api/v1/incidents")).await?;
    let zone = visit.times.zone();
    let current =
        shown.as_ref().map(|found| (found.incident.pipeline.clone(), found.incident.key.clone()));
    let rows =
        found.items.iter().map(|one| line(one, &visit.times, &zone, current.as_ref())).collect();
    let silence = shown.as_ref().map(|found| SilenceFields {
        pipelines: found.incident.pipeline.clone(),
        kind: String::new(),
        length: "4h".to_owned(),
        reason: String::new(),
    });
    let shown = match shown {
        Some(found) => Some(view(&visit, found, &zone).await),
        None => None,
    };
    let page = IncidentsPage {
        tabs: tabs(if is_resolved { "resolved" } else { "open" }),
        next: found.next.map(|next| asked.without("after").and("after", next).at("/incidents")),
        may_act: frame.may_act(),
        silence: silence.unwrap_or_default(),
        frame,
        rows,
        shown,
        is_resolved,
    };
    render(&page)
}

fn line(
    one: &IncidentAnswer,
    times: &Times,
    zone: &Zone,
    current: Option<&(String, String)>,
) -> IncidentLine {
    let hand = one
        .acknowledged
        .as_ref()
        .map(|hand| format!("{}, {}", hand.by, rough(between(hand.at, times.now))));
    let until = if one.state == "resolved" { one.updated_at } else { times.now };
    IncidentLine {
        href: format!("/incidents/{}/{}", part(&one.pipeline), part(&one.key)),
        value: format!("{}/{}", part(&one.pipeline), part(&one.key)),
        glyph: marks::incident(one),
        pipeline: if one.pipeline == "_system" {
            "Interlock".to_owned()
        } else {
            one.pipeline.clone()
        },
        what: zone.retold(&one.message, times.now),
        opened: When::said(one.opened_at, zone.short(one.opened_at, times.now)),
        age: rough(between(one.opened_at, until)),
        hand,
        state: one.state.clone(),
        many: if one.count == 1 {
            "1 finding".to_owned()
        } else {
            format!("{} findings", one.count)
        },
        is_current: current
            .is_some_and(|(pipeline, key)| *pipeline == one.pipeline && *key == one.key),
    }
}

async fn view(visit: &Visit, found: IncidentDetailAnswer, zone: &Zone) -> IncidentView {
    let IncidentDetailAnswer { incident, deliveries: on_the_way } = found;
    let now = visit.times.now;
    let events: Vec<EventAnswer> = history(visit, &incident).await;
    let text = |name: &str| incident.details.get(name).and_then(Value::as_str).map(str::to_owned);
    let until = if incident.state == "resolved" { incident.updated_at } else { now };
    let dead = on_the_way.iter().filter(|one| one.state == "dead");
    let dead =
        dead.map(|one| (one.name.clone(), one.channel.clone().unwrap_or_default())).collect();
    let hand = incident.resolved.as_ref().or(incident.acknowledged.as_ref());
    let hand = hand.map(|hand| {
        let note = hand.note.as_ref().map_or_else(String::new, |note| format!(": “{note}”"));
        format!(
            "{} by {} {}{note}",
            marks::said(&incident.state),
            hand.by,
            zone.stamp(hand.at, now)
        )
    });
    let is_system = incident.pipeline == "_system";
    IncidentView {
        path: format!("/incidents/{}/{}", part(&incident.pipeline), part(&incident.key)),
        pipeline_href: (!is_system).then(|| format!("/pipelines/{}", part(&incident.pipeline))),
        glyph: marks::incident(&incident),
        about: format!(
            "{}, level {}. {} for {}; {} finding{}.",
            marks::said(&incident.kind),
            incident.level,
            if incident.state == "resolved" { "It was open" } else { "Open" },
            rough(between(incident.opened_at, until)),
            incident.count,
            if incident.count == 1 { "" } else { "s" },
        ),
        message: sentence(&zone.retold(&incident.message, now)),
        is_open: incident.state != "resolved",
        runbook: text("runbook")
            .filter(|link| link.starts_with("https://") || link.starts_with("http://")),
        slot: slot_of(&incident),
        deliveries: deliveries(&on_the_way, incident.held.as_deref(), zone, now),
        history: events
            .iter()
            .map(|event| HistoryLine {
                when: When::said(event.at, zone.second(event.at)),
                glyph: marks::event(&event.kind),
                head: format!("{}, {}", marks::said(&event.kind), zone.day(event.at)),
                detail: sentence(&zone.retold(&event.message, event.at)),
            })
            .collect(),
        details: incident
            .details
            .iter()
            .filter_map(|(name, value)| {
                let text = match value {
                    Value::String(text) => text.clone(),
                    Value::Null => return None,
                    other @ (Value::Bool(_)
                    | Value::Number(_)
                    | Value::Array(_)
                    | Value::Object(_)) => other.to_string(),
                };
                Some((name.clone(), text))
            })
            .collect(),
        state: incident.state,
        pipeline: incident.pipeline,
        key: incident.key,
        hand,
        dead,
    }
}

/// The slot that an incident is about, if it names one.
fn slot_of(incident: &IncidentAnswer) -> Option<String> {
    let text = |name: &str| incident.details.get(name).and_then(Value::as_str);
    let named = text("slot").and_then(|slot| {
        let (schedule, at) = slot.rsplit_once('/')?;
        let schedule = schedule.rsplit('/').next()?;
        Some(slot_href(&incident.pipeline, schedule, at.parse().ok()?))
    });
    named.or_else(|| {
        let at = text("nominalTime").or_else(|| text("scheduledFor"))?.parse().ok()?;
        Some(slot_href(&incident.pipeline, text("scheduleId").or_else(|| text("schedule"))?, at))
    })
}

/// What happened to it, oldest first; the last of it where it is long.
async fn history(visit: &Visit, incident: &IncidentAnswer) -> Vec<EventAnswer> {
    let query = Query::default()
        .and("pipeline", &incident.pipeline)
        .and("order", "newest")
        .and("limit", "200");
    let list: Result<Listing<EventAnswer>, _> = visit.api.get(&query.at("/api/v1/events")).await;
    let all = list.map(|list| list.items).unwrap_or_default();
    let is_about = |event: &EventAnswer| {
        let names = |name: &str| {
            event.details.get(name).and_then(Value::as_str) == Some(incident.key.as_str())
        };
        names("incident")
            || names("key")
            || names("dedupKey")
            || event.kind == incident.kind && event.at == incident.opened_at
    };
    let mut own: Vec<_> = all.into_iter().filter(is_about).collect();
    own.reverse();
    own
}

pub(super) async fn dead_letters(visit: Visit) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Incidents, "Dead letters").await?;
    let asked = visit.query.clone().only(&["after"]);
    let list: Listing<DeadLetterAnswer> = visit.api.get(&asked.at("/api/v1/dead-letters")).await?;
    let row = |letter: DeadLetterAnswer| DeadLine {
        what: letter.alert.get("message").and_then(Value::as_str).unwrap_or_default().to_owned(),
        error: letter.error.unwrap_or_default(),
        pipeline: letter.pipeline,
        name: letter.name,
        channel: letter.channel,
        tries: letter.tries,
    };
    let page = DeadLettersPage {
        tabs: tabs("dead"),
        next: list.next.map(|next| Query::default().and("after", next).at("/dead-letters")),
        rows: list.items.into_iter().map(row).collect(),
        may_act: frame.may_act(),
        frame,
    };
    render(&page)
}

pub(super) async fn silences(visit: Visit) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Incidents, "Silences").await?;
    let list: Listing<SilenceAnswer> =
        visit.api.get("/api/v1/silences?state=silent&state=waiting").await?;
    let (zone, now) = (visit.times.zone(), visit.times.now);
    let row = |one: SilenceAnswer| SilenceLine {
        hides: hides(&one.when),
        from: When::said(one.from, zone.stamp(one.from, now)),
        until: one.until.map(|at| When::said(at, zone.stamp(at, now))),
        id: one.id,
        state: one.state,
        reason: one.reason,
        by: one.by,
    };
    let rows = list.items.into_iter().map(row).collect();
    let page = SilencesPage { tabs: tabs("silences"), rows, may_act: frame.may_act(), frame };
    render(&page)
}

/// Which alerts a filter is about, in words.
fn hides(when: &AlertFilterAnswer) -> String {
    let mut said = Vec::new();
    for (all, what) in [
        (&when.levels, ""),
        (&when.types, ""),
        (&when.pipelines, "of "),
        (&when.owners, "of owner "),
    ] {
        if !all.is_empty() {
            said.push(format!("{what}{}", all.join(" or ")));
        }
    }
    said.extend(when.labels.iter().map(|(name, value)| format!("with {name}={value}")));
    if said.is_empty() { "every alert".to_owned() } else { said.join(", ") }
}

/// What a silence form asks for.
pub(crate) fn silence_request(fields: &Query) -> SilencePlanRequest {
    let list = |name: &str| -> Vec<String> {
        let text = fields.get(name).unwrap_or_default();
        text.split([',', ' '])
            .map(str::trim)
            .filter(|one| !one.is_empty())
            .map(str::to_owned)
            .collect()
    };
    let when = AlertFilterAnswer {
        types: list("kind"),
        pipelines: list("pipelines"),
        ..AlertFilterAnswer::default()
    };
    SilencePlanRequest {
        id: None,
        when,
        from: None,
        until: None,
        length: fields.get("for").map(str::to_owned),
        weekly: None,
        cron: None,
        timezone: None,
        reason: fields.get("reason").unwrap_or_default().to_owned(),
    }
}

/// The preview: what a silence would hide, before it does.
pub(super) async fn silence(visit: Visit) -> Result<Response, Trouble> {
    let frame = visit.frame(Tab::Incidents, "Silence").await?;
    let text = |name: &str| visit.query.get(name).unwrap_or_default().to_owned();
    let fields = SilenceFields {
        pipelines: text("pipelines"),
        kind: text("kind"),
        length: visit.query.get("for").unwrap_or("4h").to_owned(),
        reason: text("reason"),
    };
    let plan = if visit.query.get("pipelines").is_some() || visit.query.get("kind").is_some() {
        let asked = SilencePlanRequest {
            length: Some(fields.length.clone()),
            ..silence_request(&visit.query)
        };
        let planned = visit.api.plan::<SilencePlanAnswer>("/api/v1/silences/plan", &asked).await?;
        Some(preview(&planned.plan, &visit))
    } else {
        None
    };
    let kinds = [
        "",
        "schedule_missed",
        "schedule_unknown",
        "job_failed",
        "retry_exhausted",
        "sla_breach",
        "run_stuck",
        "validation_exhausted",
    ];
    let page = SilencePage {
        frame,
        fields,
        plan,
        kinds: kinds.into_iter().map(str::to_owned).collect(),
        lengths: LENGTHS.to_vec(),
    };
    render(&page)
}

fn preview(plan: &SilencePlanAnswer, visit: &Visit) -> SilencePreview {
    let (zone, now) = (visit.times.zone(), visit.times.now);
    let open = plan.incidents.iter().filter(|one| one.state != "resolved").count();
    let past = plan.incidents.len() - open;
    let rows = plan.incidents.iter().take(20).map(|one| {
        let glyph = if one.state == "resolved" { Glyph("m-none") } else { Glyph("m-failed") };
        let state = format!("{} since {}", one.state, zone.stamp(one.opened_at, now));
        (glyph, format!("{}: {}", one.pipeline, one.key), state)
    });
    let until = plan
        .until
        .map_or_else(|| "for ever".to_owned(), |at| format!("until {}", zone.stamp(at, now)));
    SilencePreview {
        head: format!(
            "This would hide {open} open incident{}; {past} more of the last 7 days would have been hidden.",
            if open == 1 { "" } else { "s" },
        ),
        rows: rows.collect(),
        more: plan.more || plan.incidents.len() > 20,
        button: format!("Silence {until}"),
    }
}
