//! The life of a slot as a picture: it waits, its attempts run, it ends; with its limit and what was seen.

use std::fmt::Write as _;

use interlock_answers::model::story::StoryAnswer;
use jiff::Timestamp;

use crate::{
    axis::nice_steps,
    parts::{Drawing, Escaped},
    times::{Zone, between, seconds_between},
};

/// How many labels there is room for.
const LABELS: i64 = 9;

/// Nothing where nothing was opened.
pub(super) fn life(story: &StoryAnswer, zone: &Zone, now: Timestamp) -> Option<Drawing> {
    let slot = story.slot.as_ref()?;
    let opened = slot.opened_at?;
    let runs: Vec<_> = story.runs.iter().filter(|run| run.generation == slot.generation).collect();
    let began = runs.first().and_then(|run| run.started_at).unwrap_or(opened).min(opened);
    let limit = slot.sla.as_ref().and_then(|sla| sla.breach_at);
    let is_open = slot.disposition.is_none();
    let last = runs.iter().filter_map(|run| run.ended_at.or(run.started_at)).max();
    let ended = if is_open {
        now
    } else {
        last.or_else(|| story.events.last().map(|event| event.at)).unwrap_or(opened)
    };
    let until = [Some(ended), limit.filter(|limit| between(ended, *limit) < 6 * 3600), last]
        .into_iter()
        .flatten()
        .max()?;
    let total = seconds_between(began, until).max(10.0);
    let margin = total / 40.0 + 1.0;
    let x = |at: Timestamp| {
        let seconds = seconds_between(began, at) + margin;
        seconds * 100.0 / (total + 2.0 * margin)
    };
    let mut svg = String::new();
    let said = summary(story, zone);
    let _never =
        write!(svg, r#"<svg class="plot life" role="img" aria-label="{}">"#, Escaped(&said));
    for at in nice_steps(began, until, LABELS, zone) {
        let (at_x, label) = (x(at), zone.clock(at));
        let _never = write!(
            svg,
            r#"<text class="mid" x="{at_x:.2}%" y="52">{label}</text><line class="ax-h" x1="{at_x:.2}%" x2="{at_x:.2}%" y2="38"/>"#
        );
    }
    let _never = write!(
        svg,
        r#"<line class="ax-see" x1="{:.2}%" x2="{:.2}%" y1="20" y2="20"/>"#,
        x(began),
        x(ended)
    );
    bars(&mut svg, story, (opened, ended, now), &x);
    if let Some(limit) = limit.filter(|limit| *limit <= until) {
        let (at, label) = (x(limit), zone.clock(limit));
        let _never = write!(
            svg,
            r#"<line class="ax-limit" x1="{at:.2}%" x2="{at:.2}%" y1="6" y2="34"/><text class="end t-sla" x="{:.2}%" y="9">SLA {label}</text>"#,
            at - 0.6
        );
    }
    svg.push_str("</svg>");
    Some(Drawing(svg))
}

fn bars(
    svg: &mut String,
    story: &StoryAnswer,
    (opened, ended, now): (Timestamp, Timestamp, Timestamp),
    x: &impl Fn(Timestamp) -> f64,
) {
    let Some(slot) = &story.slot else { return };
    let runs: Vec<_> = story.runs.iter().filter(|run| run.generation == slot.generation).collect();
    let first = runs.first().and_then(|run| run.started_at);
    let waits_until = first.unwrap_or(ended);
    let wide = x(waits_until) - x(opened);
    if wide > 0.3 {
        let _never = write!(
            svg,
            r#"<rect class="l l-run l-dash" x="{:.2}%" y="15" width="{wide:.2}%" height="10"/>"#,
            x(opened)
        );
        if wide > 5.0 {
            let _never = write!(
                svg,
                r#"<text class="odd" x="{:.2}%" y="9">waiting</text>"#,
                x(opened) + 0.4
            );
        }
    }
    for run in &runs {
        let Some(from) = run.started_at else { continue };
        let until = run.ended_at.unwrap_or(now);
        let class = match run.status.as_str() {
            "FAILED" => "f-failed",
            "COMPLETED" | "COMPLETED_MONITORING" => "f-ok",
            "CANCELLED" => "f-line",
            _ => "f-run",
        };
        let wide = (x(until) - x(from)).max(0.25);
        let _never = write!(
            svg,
            r#"<rect class="{class}" x="{:.2}%" y="16" width="{wide:.2}%" height="8"/><text x="{:.2}%" y="9">{}</text>"#,
            x(from),
            x(from),
            run.attempt
        );
    }
    if slot.disposition.is_some() {
        let mark = crate::marks::slot(slot.into());
        let _never = write!(
            svg,
            r##"<use href="#{}" x="{:.2}%" y="20" transform="translate(9)"/>"##,
            mark.glyph.0,
            x(ended)
        );
    }
}

fn summary(story: &StoryAnswer, zone: &Zone) -> String {
    let Some(slot) = &story.slot else { return String::new() };
    let word = crate::marks::slot(slot.into()).word;
    let limit = slot.sla.as_ref().and_then(|sla| sla.breach_at);
    let limit =
        limit.map_or_else(String::new, |at| format!(", the limit is {}", zone.stamp(at, at)));
    format!("{word} after {} attempts{limit}", story.runs.len())
}
