//! The figure of a pipeline: its slots above, how long they ran below, on one axis of time.

use std::{collections::BTreeMap, fmt::Write as _};

use interlock_answers::{
    Listing,
    model::{
        coverage::CoverageGapAnswer,
        fleet::{FleetCellAnswer, FleetCountsAnswer, FleetPlace},
        next_slot::NextSlotsAnswer,
        pipeline::PipelineDetailAnswer,
        run::RunAnswer,
        slot::{LedgerAnswer, SlotAnswer},
    },
};
use jiff::{SignedDuration, Timestamp};

use super::slot_href;
use crate::{
    axis::nice_steps,
    marks::{self, SlotLook},
    parts::{Drawing, Escaped},
    query::{Query, part},
    strip::{DrawnSlot, Lane, Scale, WIDE},
    times::{Zone, between, rough, seconds_between},
    trouble::Trouble,
    visit::Visit,
};

/// Slots and runs that are drawn at most: a year of an hourly pipeline is shown by its newest.
const DRAWN_MAX: usize = 1_000;
/// Slots that are more than so many on a figure come as cells, of which there are so many.
const APART_MAX: usize = 140;
const CELLS: u32 = 120;
/// Where the durations stand, from their top to their ground.
const TOP: f64 = 34.0;
const GROUND: f64 = 118.0;

/// Where and when it is looked at.
pub(super) struct FigureInput<'a> {
    pub(super) zone: &'a Zone,
    pub(super) now: Timestamp,
    pub(super) range: &'a str,
}

pub(super) async fn figure(
    visit: &Visit,
    detail: &PipelineDetailAnswer,
    input: FigureInput<'_>,
) -> Result<Drawing, Trouble> {
    let FigureInput { zone, now, range } = input;
    let name = &detail.standing.declared.pipeline;
    let hours = match range {
        "3h" => 3,
        "7d" => 7 * 24,
        "30d" => 30 * 24,
        "90d" => 90 * 24,
        _ => 24,
    };
    let back = SignedDuration::from_hours(hours);
    let from = now.saturating_sub(back).unwrap_or(now);
    let until = now.saturating_add(back / 4).unwrap_or(now);
    let scale = Scale { from, until };
    let range = Query::default().and("pipeline", name).and("limit", DRAWN_MAX.to_string());
    let slots = range
        .clone()
        .and("from", from.to_string())
        .and("until", now.to_string())
        .and("order", "newest");
    let slots: Listing<LedgerAnswer> = visit.api.get(&slots.at("/api/v1/slots")).await?;
    let runs = range.and("from", from.to_string());
    let runs: Listing<RunAnswer> = visit.api.get(&runs.at("/api/v1/runs")).await?;
    let next = Query::default()
        .and("from", now.to_string())
        .and("to", until.to_string())
        .and("count", DRAWN_MAX.to_string());
    let next: Result<NextSlotsAnswer, _> =
        visit.api.get(&next.at(&format!("/api/v1/pipelines/{}/next", part(name)))).await;
    let gaps = Query::default().and("from", from.to_string()).and("until", until.to_string());
    let gaps: Result<Listing<CoverageGapAnswer>, _> =
        visit.api.get(&gaps.at("/api/v1/coverage-gaps")).await;
    let drawn = Drawn {
        name,
        slots: slots.items,
        runs: runs.items,
        next: next
            .map(|next| next.items.into_iter().map(|slot| slot.utc).collect())
            .unwrap_or_default(),
        gaps: gaps.map(|list| list.items).unwrap_or_default(),
        usual: detail.usual.iter().filter_map(|usual| usual.seconds).max(),
        paused: detail.standing.paused.as_ref().map(|pause| pause.since),
    };
    Ok(Drawing(drawn.svg(scale, zone, now)))
}

/// What is drawn.
struct Drawn<'a> {
    name: &'a str,
    slots: Vec<LedgerAnswer>,
    runs: Vec<RunAnswer>,
    next: Vec<Timestamp>,
    gaps: Vec<CoverageGapAnswer>,
    usual: Option<i64>,
    paused: Option<Timestamp>,
}

impl Drawn<'_> {
    fn svg(&self, scale: Scale, zone: &Zone, now: Timestamp) -> String {
        let mut svg = String::from(
            r#"<svg class="plot fig" role="group" aria-label="Slots, and how long they ran">"#,
        );
        grid(&mut svg, scale, zone, now);
        for gap in &self.gaps {
            let (from, until) = (scale.percent(gap.from), scale.percent(gap.until.unwrap_or(now)));
            let _never = write!(
                svg,
                r#"<rect x="{from:.2}%" width="{:.2}%" height="118" fill="url(#blind)"><title>Interlock could not see</title></rect>"#,
                (until - from).max(0.2),
            );
        }
        svg.push_str(&self.lane(scale, zone, now));
        self.durations(&mut svg, scale, now);
        let x = scale.percent(now);
        let _never = write!(
            svg,
            r#"<line class="ax-now" x1="{x:.2}%" x2="{x:.2}%" y2="120"/><rect class="t-nowbg" x="{x:.2}%" y="122" width="42" height="15" rx="2" transform="translate(-21)"/><text class="t-now mid" x="{x:.2}%" y="133">{}</text></svg>"#,
            zone.minute(now),
        );
        svg
    }

    fn lane(&self, scale: Scale, zone: &Zone, now: Timestamp) -> String {
        let mut lane = Lane::default();
        if let Some(since) = self.paused {
            lane.pause(scale, since.max(scale.from), now);
        }
        let is_dense = self.slots.len() + self.next.len() > APART_MAX;
        let mut cells: BTreeMap<u32, FleetCountsAnswer> = BTreeMap::new();
        for item in &self.slots {
            match item {
                LedgerAnswer::Slot(slot) => {
                    let drawn = Self::drawn(slot, zone, now);
                    if is_dense && scale.has(drawn.at) {
                        count(cells.entry(cell(scale, drawn.at)).or_default(), drawn.place);
                    } else {
                        lane.slot(scale, &drawn, now);
                    }
                }
                LedgerAnswer::Span(span) => {
                    let mark = marks::slot(span.into());
                    let title = format!(
                        "{} slots {} to {}: {}",
                        span.count,
                        zone.short(span.first, now),
                        zone.stamp(span.last, now),
                        mark.word
                    );
                    let link = (slot_href(self.name, &span.schedule, span.first), title);
                    let place = place(span.into());
                    let slot = DrawnSlot {
                        at: span.first.max(scale.from),
                        place,
                        is_catchup: false,
                        started: None,
                        ended: None,
                        expected: None,
                        link: Some(link),
                    };
                    lane.slot(scale, &slot, now);
                }
            }
        }
        let usual = self.usual.map(SignedDuration::from_secs);
        for at in self.next.iter().filter(|_| is_dense) {
            count(cells.entry(cell(scale, *at)).or_default(), FleetPlace::Planned);
        }
        for (bucket, counts) in cells {
            lane.stack(
                &FleetCellAnswer { bucket, counts },
                (WIDE / f64::from(CELLS), scale.x(now)),
            );
        }
        for at in self.next.iter().filter(|_| !is_dense) {
            let expected = usual.and_then(|usual| at.checked_add(usual).ok());
            lane.slot(
                scale,
                &DrawnSlot {
                    at: *at,
                    place: FleetPlace::Planned,
                    is_catchup: false,
                    started: None,
                    ended: None,
                    expected,
                    link: None,
                },
                now,
            );
        }
        // The marks stand a little lower than in a row.
        format!(r#"<svg y="4" height="20" class="strip">{}</svg>"#, lane.finish(20))
    }

    fn drawn(slot: &SlotAnswer, zone: &Zone, now: Timestamp) -> DrawnSlot {
        let is_catchup = slot.opened_by.as_deref() == Some("catchup");
        let place = match slot.disposition.as_deref() {
            Some(_) => place(slot.into()),
            None if slot.state == "running" => FleetPlace::Running,
            None if slot.state == "monitoring" => FleetPlace::OnTime,
            None => FleetPlace::Waiting,
        };
        let is_exception = !matches!(
            place,
            FleetPlace::OnTime | FleetPlace::Skipped | FleetPlace::Planned | FleetPlace::Cancelled
        ) || is_catchup;
        let run = slot.runs.last();
        let mark = marks::slot(slot.into());
        let link = is_exception.then(|| {
            (
                slot_href(&slot.pipeline, &slot.schedule, slot.utc),
                format!("{}: {}", zone.stamp(slot.utc, now), mark.word),
            )
        });
        DrawnSlot {
            at: slot.utc,
            place,
            is_catchup,
            started: run.and_then(|run| run.started_at),
            ended: run.and_then(|run| run.ended_at),
            expected: None,
            link,
        }
    }

    /// Bars from the ground; the usual duration is a line across.
    fn durations(&self, svg: &mut String, scale: Scale, now: Timestamp) {
        let took = |run: &RunAnswer| {
            let from = run.started_at?;
            Some((from, seconds_between(from, run.ended_at.unwrap_or(now))))
        };
        let usual = self.usual.map(|usual| SignedDuration::from_secs(usual).as_secs_f64());
        let longest = self.runs.iter().filter_map(took).map(|(_, took)| took).fold(0.0, f64::max);
        let most = longest.max(usual.unwrap_or(0.0)).max(1.0);
        let y = |seconds: f64| GROUND - (seconds / most).min(1.0) * (GROUND - TOP - 8.0);
        let _never = write!(
            svg,
            r#"<svg class="lane" viewBox="0 0 900 140" preserveAspectRatio="none" width="100%" height="140">"#
        );
        for (class, statuses) in [
            ("k-ok", &["COMPLETED", "COMPLETED_MONITORING"][..]),
            ("k-failed", &["FAILED"]),
            ("k-run", &["RUNNING", "TRIGGERING"]),
            ("k-skipc", &["CANCELLED"]),
        ] {
            let mut path = String::new();
            for run in self.runs.iter().filter(|run| statuses.contains(&run.status.as_str())) {
                let Some((from, took)) = took(run).filter(|(from, _)| scale.has(*from)) else {
                    continue;
                };
                let _never =
                    write!(path, "M{:.1} 118V{:.1}", scale.x(from), y(took).min(GROUND - 1.0));
            }
            if !path.is_empty() {
                let _never = write!(svg, r#"<path class="{class} k-col" d="{path}"/>"#);
            }
        }
        if let Some(usual) = usual {
            let _never = write!(svg, r#"<path class="k-exp" d="M0 {0:.1}H900"/>"#, y(usual));
        }
        svg.push_str(r#"<path class="k-base" d="M0 118H900"/></svg>"#);
        if let Some(usual) = usual {
            let text = format!("usual {}", rough(usual as i64));
            let _never =
                write!(svg, r#"<text x="4" y="{:.1}">{}</text>"#, y(usual) - 4.0, Escaped(&text));
        } else if longest > 0.0 {
            let text = format!("longest {}", rough(longest as i64));
            let _never =
                write!(svg, r#"<text x="4" y="{:.1}">{}</text>"#, TOP + 4.0, Escaped(&text));
        }
    }
}

/// The cell of an instant.
fn cell(scale: Scale, at: Timestamp) -> u32 {
    ((scale.x(at) * f64::from(CELLS) / WIDE) as u32).min(CELLS - 1)
}

fn count(counts: &mut FleetCountsAnswer, place: FleetPlace) {
    let own = match place {
        FleetPlace::OnTime => &mut counts.on_time,
        FleetPlace::CaughtUp => &mut counts.caught_up,
        FleetPlace::Late => &mut counts.late,
        FleetPlace::Failed => &mut counts.failed,
        FleetPlace::Missed => &mut counts.missed,
        FleetPlace::Unknown => &mut counts.unknown,
        FleetPlace::Skipped => &mut counts.skipped,
        FleetPlace::Cancelled => &mut counts.cancelled,
        FleetPlace::Running => &mut counts.running,
        FleetPlace::Waiting => &mut counts.waiting,
        FleetPlace::Planned => &mut counts.planned,
    };
    *own += 1;
}

fn grid(svg: &mut String, scale: Scale, zone: &Zone, now: Timestamp) {
    let x = scale.percent(now);
    let _never = write!(
        svg,
        r#"<rect class="ax-future" x="{x:.2}%" width="{:.2}%" height="118"/>"#,
        100.0 - x
    );
    let is_days = between(scale.from, scale.until) > 3 * 86_400;
    for (number, at) in nice_steps(scale.from, scale.until, 11, zone).into_iter().enumerate() {
        let x_at = scale.percent(at);
        let _never =
            write!(svg, r#"<line class="ax-h" x1="{x_at:.2}%" x2="{x_at:.2}%" y1="0" y2="118"/>"#);
        if (x_at - x).abs() < 4.0 || !(2.0..=98.0).contains(&x_at) {
            continue;
        }
        let text = if is_days { zone.day(at) } else { zone.minute(at) };
        let odd = if number % 2 == 1 { " odd" } else { "" };
        let _never = write!(svg, r#"<text class="mid{odd}" x="{x_at:.2}%" y="134">{text}</text>"#);
    }
    let _never = write!(svg, r#"<line class="ax-see" x2="{x:.2}%" y1="14" y2="14"/>"#);
}

/// Where a slot that is decided is counted.
fn place(look: SlotLook<'_>) -> FleetPlace {
    match (look.disposition, look.reason) {
        (Some("completed"), _) if look.is_late => FleetPlace::Late,
        (Some("completed"), _) if look.opened_by == Some("catchup") => FleetPlace::CaughtUp,
        (Some("completed"), _) => FleetPlace::OnTime,
        (Some("failed"), _) => FleetPlace::Failed,
        (Some("missed"), _) | (Some("skipped"), Some("no_catchup" | "expired" | "capped")) => {
            FleetPlace::Missed
        }
        (Some("unknown"), _) => FleetPlace::Unknown,
        (Some("cancelled"), _) => FleetPlace::Cancelled,
        _ => FleetPlace::Skipped,
    }
}
