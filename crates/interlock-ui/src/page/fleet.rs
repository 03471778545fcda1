//! The fleet: every pipeline or group as a row, past and future on one line, what needs a person first.

mod axis_defs;
mod row;

use askama::Template;
use axum::response::Response;
use interlock_answers::model::fleet::{
    FleetAnswer, FleetCountsAnswer, FleetPlace, FleetSectionAnswer, FleetSectionKind,
};
use jiff::{SignedDuration, Timestamp};

use self::row::FleetRow;
use crate::{
    frame::{Choice, Frame, Tab},
    parts::{Drawing, Glyph},
    query::Query,
    strip::{self, Scale},
    times::Zone,
    trouble::Trouble,
    visit::{Visit, render},
};

/// Rows of a page: they fit a laptop's screen.
const ROWS: usize = 40;
/// Rows that need a person, of those.
const ATTENTION: usize = 14;
/// Groups of at most so many are shown pipeline by pipeline.
const MEMBERS: usize = 12;
/// What the filters and the view are called in the address.
const KEPT: [&str; 10] =
    ["q", "owner", "label", "state", "group", "range", "expand", "collapse", "order", "at"];
/// The ranges, by their words, with the hours behind now.
const RANGES: [(&str, &str, i64); 5] = [
    ("3h", "3 h", 3),
    ("12h", "12 h", 12),
    ("3d", "3 d", 72),
    ("14d", "14 d", 336),
    ("90d", "90 d", 2_160),
];

#[derive(Template)]
#[template(path = "fleet.html")]
struct FleetPage {
    frame: Frame,
    is_first_run: bool,
    due: String,
    since: String,
    unaccounted: u64,
    totals: Vec<TotalLine>,
    ranges: Vec<Choice>,
    defs: Drawing,
    axis: Drawing,
    caption: String,
    group_title: &'static str,
    group_href: String,
    zone_letters: String,
    sections: Vec<Section>,
    pages: String,
    next: Option<String>,
    first: Option<String>,
    notes: Vec<String>,
    filters: Vec<Choice>,
    all: Option<String>,
    is_wall: bool,
}

struct TotalLine {
    href: String,
    glyph: Glyph,
    count: String,
    word: &'static str,
    is_current: bool,
}

/// Rows that belong together.
struct Section {
    class: &'static str,
    title: String,
    title_href: Option<String>,
    has_arrow: bool,
    small: String,
    rows: Vec<FleetRow>,
}

pub(super) async fn fleet(visit: Visit) -> Result<Response, Trouble> {
    let zone = visit.times.zone();
    let view = View::of(&visit, &zone)?;
    let fleet: FleetAnswer = visit.api.get(&view.asked(&visit, &zone).at("/api/v1/fleet")).await?;
    let frame = visit.frame(Tab::Fleet, "Fleet").await?;
    let scale = Scale { from: fleet.from, until: fleet.until };
    let kept = visit.query.clone().only(&KEPT);
    let group = view.group.as_deref();
    let page = FleetPage {
        is_first_run: fleet.pipelines.pipelines == 0 && kept.is_empty(),
        due: grouped_digits(fleet.totals.due),
        since: since(&fleet, &zone),
        unaccounted: fleet.totals.unaccounted,
        totals: totals(&fleet.totals.counts, &kept),
        ranges: ranges(&kept, view.range),
        defs: axis_defs::defs(&fleet, scale),
        axis: axis_defs::axis(&fleet, scale, &zone),
        caption: format!(
            "{} of {} pipelines, times in {}",
            fleet.items.len(),
            fleet.pipelines.pipelines,
            zone.name
        ),
        group_title: match group {
            Some("owner") => "Owner",
            Some(_) => "Label",
            None => "Pipelines",
        },
        group_href: match group {
            Some("owner") => kept.clone().with("group", "none").at("/"),
            _ => kept.clone().with("group", "owner").at("/"),
        },
        zone_letters: zone.letters(fleet.now),
        sections: sections(&fleet, &view, (&visit, &kept), &zone),
        pages: pages(&fleet),
        next: fleet.next.clone().map(|next| kept.clone().with("after", next).at("/")),
        first: visit.query.get("after").map(|_| kept.at("/")),
        notes: notes(&fleet),
        filters: filters(&kept),
        all: (!kept.clone().only(&["q", "owner", "label", "state"]).is_empty())
            .then(|| kept.clone().only(&["group", "range"]).at("/")),
        is_wall: visit.query.has("view", "wall"),
        frame,
    };
    render(&page)
}

/// How the fleet is looked at.
struct View {
    group: Option<String>,
    range: &'static str,
    hours: i64,
    at: Option<Timestamp>,
}

impl View {
    fn of(visit: &Visit, zone: &Zone) -> Result<Self, Trouble> {
        let word = visit.query.get("range").unwrap_or("12h");
        let known = RANGES.iter().find(|(own, ..)| *own == word);
        let (range, _, hours) = known
            .ok_or_else(|| Trouble::unusable("the range", "It is 3h, 12h, 3d, 14d or 90d."))?;
        let group = match visit.query.get("group") {
            Some("none") => None,
            Some(group) => Some(group.to_owned()),
            None => Some("owner".to_owned()),
        };
        let at = visit.query.get("at").map(|text| {
            zone.read(text)
                .ok_or_else(|| Trouble::unusable("The time", "A time looks like 2026-10-25 09:41."))
        });
        Ok(Self { group, range, hours: *hours, at: at.transpose()? })
    }

    /// What the API is asked for.
    fn asked(&self, visit: &Visit, zone: &Zone) -> Query {
        let now = self.at.unwrap_or(visit.times.now);
        let back = SignedDuration::from_hours(self.hours);
        let from = now.saturating_sub(back).unwrap_or(now);
        let until = now.saturating_add(back / 4).unwrap_or(now);
        let mut asked = Query::default()
            .and("from", from.to_string())
            .and("until", until.to_string())
            .and("tz", &zone.name)
            .and("limit", ROWS.to_string())
            .and_if("q", visit.query.get("q").map(str::trim))
            .and_if("after", visit.query.get("after"))
            .and_if("order", visit.query.get("order"));
        for name in ["owner", "label", "state", "expand", "collapse"] {
            for value in visit.query.all(name) {
                asked = asked.and(name, value);
            }
        }
        if let Some(group) = &self.group {
            asked = asked
                .and("group", group)
                .and("members", MEMBERS.to_string())
                .and("attention", ATTENTION.to_string());
        }
        asked
    }
}

fn since(fleet: &FleetAnswer, zone: &Zone) -> String {
    let (at, now) = (zone.at(fleet.totals.since), zone.at(fleet.now));
    if at.date() == now.date() {
        zone.minute(fleet.totals.since)
    } else {
        zone.short(fleet.totals.since, fleet.now)
    }
}

/// Digits in threes.
fn grouped_digits(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// What became of what was due: every place that has some, and the usual ones always, so that the numbers add up.
fn totals(counts: &FleetCountsAnswer, kept: &Query) -> Vec<TotalLine> {
    let all = [
        (FleetPlace::OnTime, counts.on_time, "m-ok", "onTime"),
        (FleetPlace::CaughtUp, counts.caught_up, "m-catch", "caughtUp"),
        (FleetPlace::Late, counts.late, "m-late", "late"),
        (FleetPlace::Failed, counts.failed, "m-failed", "failed"),
        (FleetPlace::Missed, counts.missed, "m-missed", "missed"),
        (FleetPlace::Unknown, counts.unknown, "m-unknown", "unknown"),
        (FleetPlace::Skipped, counts.skipped, "m-skipped", "skipped"),
        (FleetPlace::Cancelled, counts.cancelled, "m-cancel", "cancelled"),
        (FleetPlace::Running, counts.running, "m-run", "running"),
        (FleetPlace::Waiting, counts.waiting, "m-wait", "waiting"),
    ];
    let is_shown = |(place, count, ..): &(FleetPlace, u64, &str, &str)| {
        *place != FleetPlace::Cancelled || *count > 0
    };
    let line =
        |(place, count, glyph, state): (FleetPlace, u64, &'static str, &'static str)| TotalLine {
            href: kept.clone().toggled("state", state).at("/"),
            glyph: Glyph(glyph),
            count: grouped_digits(count),
            word: strip::word(place),
            is_current: kept.has("state", state),
        };
    all.into_iter().filter(is_shown).map(line).collect()
}

fn ranges(kept: &Query, current: &str) -> Vec<Choice> {
    let choice = |(own, word, _): (&str, &str, i64)| Choice {
        href: kept.clone().with("range", own).at("/"),
        word: word.to_owned(),
        title: String::new(),
        icon: None,
        is_current: own == current,
    };
    RANGES.into_iter().map(choice).collect()
}

/// The filters that hold, each with the way to do without.
fn filters(kept: &Query) -> Vec<Choice> {
    let named = |name: &'static str| {
        kept.all(name).map(move |value| Choice {
            href: kept.clone().toggled(name, value).at("/"),
            word: format!("{name} {}", if value.is_empty() { "none" } else { value }),
            title: "Without this filter".to_owned(),
            icon: None,
            is_current: true,
        })
    };
    ["q", "owner", "label", "state"].into_iter().flat_map(named).collect()
}

fn sections(
    fleet: &FleetAnswer,
    view: &View,
    (visit, kept): (&Visit, &Query),
    zone: &Zone,
) -> Vec<Section> {
    let mut items = fleet.items.iter();
    let scale = Scale { from: fleet.from, until: fleet.until };
    let looked_at = row::RowInput {
        fleet,
        scale,
        zone,
        kept,
        group: view.group.as_deref(),
        now: view.at.unwrap_or(visit.times.now),
    };
    let all = fleet.sections.iter().map(|section| {
        let rows = items
            .by_ref()
            .take(section.rows)
            .map(|item| row::row(item, section, &looked_at))
            .collect();
        section_of(section, rows, (fleet, kept, view.group.as_deref()))
    });
    all.collect()
}

fn section_of(
    section: &FleetSectionAnswer,
    rows: Vec<FleetRow>,
    (fleet, kept, group): (&FleetAnswer, &Query, Option<&str>),
) -> Section {
    match section.kind {
        FleetSectionKind::Attention => Section {
            class: "att",
            title: "Needs attention".to_owned(),
            title_href: Some(kept.clone().with("state", "attention").at("/")),
            has_arrow: false,
            small: format!(
                "{} of {} pipelines",
                section.pipelines,
                grouped_digits(fleet.pipelines.pipelines)
            ),
            rows,
        },
        FleetSectionKind::All => Section {
            class: "",
            title: "All".to_owned(),
            title_href: None,
            has_arrow: false,
            small: format!("{} pipelines", grouped_digits(section.pipelines)),
            rows,
        },
        FleetSectionKind::Group => {
            let value = section.name.clone().unwrap_or_default();
            let (name, other) =
                if section.is_collapsed { ("expand", "collapse") } else { ("collapse", "expand") };
            let switched = kept.clone().toggled(name, &value);
            let switched = if switched.has(other, &value) {
                switched.toggled(other, &value)
            } else {
                switched
            };
            let above = if section.above > 0 {
                format!(", {} above", section.above)
            } else {
                String::new()
            };
            Section {
                class: "",
                title: section.name.clone().unwrap_or_else(|| match group {
                    Some("owner") => "No owner".to_owned(),
                    _ => "No label".to_owned(),
                }),
                title_href: Some(switched.at("/")),
                has_arrow: !section.is_collapsed,
                small: format!(
                    "{} pipeline{}{above}",
                    section.pipelines,
                    if section.pipelines == 1 { "" } else { "s" }
                ),
                rows,
            }
        }
    }
}

fn pages(fleet: &FleetAnswer) -> String {
    let shown: u64 = fleet.items.iter().map(|row| row.pipelines).sum();
    let groups =
        fleet.sections.iter().filter(|section| section.kind == FleetSectionKind::Group).count();
    let pipelines = format!(
        "{} of {} pipelines",
        grouped_digits(shown),
        grouped_digits(fleet.pipelines.pipelines)
    );
    if fleet.groups > 0 {
        format!("{pipelines}, {groups} of {} groups", fleet.groups)
    } else {
        pipelines
    }
}

/// What is not as it should be with the answer itself.
fn notes(fleet: &FleetAnswer) -> Vec<String> {
    let mut notes = Vec::new();
    if fleet.freshness.is_counting {
        notes.push(format!(
            "Still counting: {} pipelines are counted, the others follow.",
            grouped_digits(fleet.freshness.counted)
        ));
    }
    if let Some(problem) = &fleet.freshness.problem {
        notes.push(format!("This may be old: {problem}"));
    }
    if !fleet.unreadable.is_empty() {
        let names: Vec<&str> =
            fleet.unreadable.iter().take(3).map(|row| row.pipeline.as_str()).collect();
        notes.push(format!(
            "{} row{} of the ledger cannot be read and {} not counted: {}. `interlock doctor` looks closer.",
            fleet.unreadable.len(),
            if fleet.unreadable.len() == 1 { "" } else { "s" },
            if fleet.unreadable.len() == 1 { "is" } else { "are" },
            names.join(", "),
        ));
    }
    notes
}

#[cfg(test)]
mod tests {
    #[test]
    fn digits_stand_in_threes() {
        for (number, expected) in [(0, "0"), (999, "999"), (2_154, "2,154"), (100_000, "100,000")] {
            assert_eq!(super::grouped_digits(number), expected);
        }
    }
}
