//! A strip: slots along time. One path for each state, then the exceptions, each a link of its own.
//!
//! A lane is stretched to the width that there is, so `x` goes from 0 to [`WIDE`] whatever the range; strokes keep their pixels. Slots that
//! are too close to tell apart come as cells, each a stack in proportion to its slots, in which what went wrong is never too thin to see.

use std::{collections::BTreeMap, fmt::Write as _};

use interlock_answers::model::fleet::{FleetCellAnswer, FleetCountsAnswer, FleetPlace};
use jiff::Timestamp;

use crate::{parts::Escaped, times::seconds_between};

/// How many units a lane is wide.
pub(crate) const WIDE: f64 = 900.0;
/// The middle of a lane, the height of a mark around it, and the least of what went wrong.
const MIDDLE: f64 = 10.0;
const HALF: f64 = 5.0;
const LEAST: f64 = 2.0;
/// A run that is shorter is a tick.
const SHORT: f64 = 6.0;

/// Where instants are on a lane.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Scale {
    pub(crate) from: Timestamp,
    pub(crate) until: Timestamp,
}

impl Scale {
    /// Units from the left.
    pub(crate) fn x(self, at: Timestamp) -> f64 {
        let all = seconds_between(self.from, self.until).max(1.0);
        (seconds_between(self.from, at) * WIDE / all).clamp(0.0, WIDE)
    }

    /// Of a hundred.
    pub(crate) fn percent(self, at: Timestamp) -> f64 {
        self.x(at) * 100.0 / WIDE
    }

    /// Whether it is shown.
    pub(crate) fn has(self, at: Timestamp) -> bool {
        self.from <= at && at <= self.until
    }
}

/// A slot to be drawn.
#[derive(Debug, Clone)]
pub(crate) struct DrawnSlot {
    pub(crate) at: Timestamp,
    pub(crate) place: FleetPlace,
    pub(crate) is_catchup: bool,
    pub(crate) started: Option<Timestamp>,
    pub(crate) ended: Option<Timestamp>,
    pub(crate) expected: Option<Timestamp>,
    /// Where it leads and what is said of it, if it is an exception.
    pub(crate) link: Option<(String, String)>,
}

/// The paths of a lane, by class.
#[derive(Debug, Default)]
pub(crate) struct Lane {
    paths: BTreeMap<&'static str, String>,
    links: String,
}

impl Lane {
    fn path(&mut self, class: &'static str) -> &mut String {
        self.paths.entry(class).or_default()
    }

    fn tick(&mut self, class: &'static str, x: f64) {
        let _never = write!(self.path(class), "M{} 5V15", short(x));
    }

    fn bar(&mut self, class: &'static str, from: f64, until: f64) {
        let _never = write!(self.path(class), "M{} 10H{}", short(from), short(until));
    }

    fn cell(&mut self, class: &'static str, (x, wide): (f64, f64), (top, bottom): (f64, f64)) {
        let _never = write!(
            self.path(class),
            "M{} {}h{}V{}h-{}z",
            short(x),
            short(top),
            short(wide),
            short(bottom),
            short(wide),
        );
    }

    /// A time of pause: a double line.
    pub(crate) fn pause(&mut self, scale: Scale, from: Timestamp, until: Timestamp) {
        let (from, until) = (short(scale.x(from)), short(scale.x(until)));
        let _never = write!(self.path("0k-pausebg"), "M{from} 10H{until}");
        let _never = write!(self.path("1k-pause"), "M{from} 8.5H{until}M{from} 11.5H{until}");
    }

    /// Days that a calendar leaves out: a dotted line.
    pub(crate) fn excluded(&mut self, scale: Scale, from: Timestamp, until: Timestamp) {
        self.bar("1k-excl", scale.x(from), scale.x(until));
    }

    /// A slot of its own.
    pub(crate) fn slot(&mut self, scale: Scale, slot: &DrawnSlot, now: Timestamp) {
        let x = scale.x(slot.at);
        if let Some((href, title)) = &slot.link {
            self.link(scale.percent(slot.at), glyph(slot), (href, title));
            return;
        }
        let run = slot.started.map(|from| (scale.x(from), scale.x(slot.ended.unwrap_or(now))));
        match (slot.place, run) {
            (FleetPlace::OnTime, Some((from, until))) if until - from >= SHORT => {
                self.bar("k-ok k-bar", from, until);
            }
            (FleetPlace::OnTime | FleetPlace::CaughtUp | FleetPlace::Late, _) => {
                self.tick("k-ok", x);
            }
            (FleetPlace::Running, run) => self.running(scale, slot, run.unwrap_or((x, x)), now),
            (FleetPlace::Waiting, _) => {
                let until = scale.x(now).max(x + SHORT);
                let _never =
                    write!(self.path("k-wait"), "M{} 6.5H{}V13.5H{0}z", short(x), short(until));
            }
            (FleetPlace::Planned, _) => self.planned(scale, slot),
            (FleetPlace::Skipped, _) => {
                let _never = write!(self.path("k-skip"), "M{} 6.5V13.5", short(x));
            }
            (FleetPlace::Cancelled, _) => self.tick("k-skipc", x),
            (FleetPlace::Failed, _) => self.tick("k-failed", x),
            (FleetPlace::Missed, _) => self.tick("k-missed", x),
            (FleetPlace::Unknown, _) => self.tick("k-unk", x),
        }
    }

    fn running(
        &mut self,
        scale: Scale,
        slot: &DrawnSlot,
        (from, until): (f64, f64),
        now: Timestamp,
    ) {
        self.bar("k-run k-bar", from, until.max(from + 2.0));
        if let Some(end) = slot.expected.filter(|end| *end > now) {
            self.bar("k-eta", scale.x(now), scale.x(end));
        }
    }

    fn planned(&mut self, scale: Scale, slot: &DrawnSlot) {
        let x = scale.x(slot.at);
        let wide = slot.expected.map_or(0.0, |end| scale.x(end) - x);
        if wide >= SHORT {
            self.bar("k-plan k-bar", x, x + wide);
            self.bar("k-planin k-bar", x + 1.5, x + wide - 1.5);
        } else {
            self.tick("k-plan", x);
            let _never = write!(self.path("k-planin"), "M{} 6V14", short(x));
        }
    }

    fn link(&mut self, percent: f64, glyph: &str, (href, title): (&str, &str)) {
        let _never = write!(
            self.links,
            r##"<a href="{}"><title>{}</title><use href="#{glyph}" x="{percent:.2}%" y="10"/></a>"##,
            Escaped(href),
            Escaped(title),
        );
    }

    /// A cell: the slots of a bucket, in proportion. Of the bucket that it is now in, what is planned stands behind the line of now.
    pub(crate) fn stack(&mut self, cell: &FleetCellAnswer, (wide, now): (f64, f64)) {
        let from = f64::from(cell.bucket) * wide;
        let until = from + wide;
        let all = &cell.counts;
        if (from..until).contains(&now) {
            let past = FleetCountsAnswer { planned: 0, ..*all };
            let planned =
                FleetCountsAnswer { planned: all.planned, ..FleetCountsAnswer::default() };
            self.part(&past, (from, now - from));
            self.part(&planned, (now, until - now));
        } else {
            self.part(all, (from, wide));
        }
    }

    /// A stack of its own, if it is wide enough to be seen.
    fn part(&mut self, counts: &FleetCountsAnswer, (from, wide): (f64, f64)) {
        let counts = places(counts);
        let total: u64 = counts.iter().map(|(_, count)| count).sum();
        if total == 0 {
            return;
        }
        let gap = (wide * 0.3).min(3.0);
        let x = from + gap / 2.0;
        let all = 2.0 * HALF;
        let is_wrong = |place: FleetPlace| {
            matches!(
                place,
                FleetPlace::Failed | FleetPlace::Missed | FleetPlace::Unknown | FleetPlace::Late
            )
        };
        let mut heights: Vec<(FleetPlace, f64)> = counts
            .into_iter()
            .map(|(place, count)| {
                let height = drawable(count) * all / drawable(total);
                (place, if is_wrong(place) { height.max(LEAST) } else { height })
            })
            .collect();
        let sum: f64 = heights.iter().map(|(_, height)| height).sum();
        // What was made visible is taken from the tallest.
        if let Some(tallest) = heights.iter_mut().max_by(|a, b| a.1.total_cmp(&b.1)) {
            tallest.1 -= sum - all;
        }
        let mut bottom = MIDDLE + HALF;
        for (place, height) in heights {
            let top = bottom - height;
            self.cell(cell_class(place), (x, wide - gap), (top, bottom));
            bottom = top;
        }
    }

    /// Its content: a lane with its paths, then the links.
    pub(crate) fn finish(self, height: u32) -> String {
        let mut text = format!(
            r#"<svg class="lane" viewBox="0 0 900 {height}" preserveAspectRatio="none" width="100%" height="{height}">"#
        );
        for (class, path) in self.paths {
            // A number in front puts it behind the others.
            let class = class.trim_start_matches(|letter: char| letter.is_ascii_digit());
            let fill = if class == "c-unk" { r#" fill="url(#hatch)""# } else { "" };
            let _never = write!(text, r#"<path class="{class}"{fill} d="{path}"/>"#);
        }
        text.push_str("</svg>");
        text.push_str(&self.links);
        text
    }
}

/// A count for a drawing, in which more than four billion slots look the same.
fn drawable(count: u64) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

/// How a number is written: hundredths are finer than a pixel.
fn short(number: f64) -> String {
    let text = format!("{number:.1}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

fn glyph(slot: &DrawnSlot) -> &'static str {
    match slot.place {
        FleetPlace::Failed => "m-failed",
        FleetPlace::Missed => "m-missed",
        FleetPlace::Unknown => "m-unknown",
        FleetPlace::Late => "m-late",
        FleetPlace::CaughtUp => "m-catch",
        FleetPlace::Running if slot.is_catchup => "m-catchrun",
        FleetPlace::Running => "m-run",
        FleetPlace::Waiting if slot.is_catchup => "m-catchplan",
        FleetPlace::Waiting => "m-wait",
        FleetPlace::Skipped => "m-skipped",
        FleetPlace::Cancelled => "m-cancel",
        FleetPlace::OnTime => "m-ok",
        FleetPlace::Planned => "m-plan",
    }
}

fn cell_class(place: FleetPlace) -> &'static str {
    match place {
        FleetPlace::OnTime => "c-ok",
        FleetPlace::CaughtUp => "c-catch",
        FleetPlace::Late => "c-late",
        FleetPlace::Failed => "c-failed",
        FleetPlace::Missed => "c-missed",
        FleetPlace::Unknown => "c-unk",
        FleetPlace::Skipped | FleetPlace::Cancelled => "c-skip",
        FleetPlace::Running => "c-run",
        FleetPlace::Waiting => "c-wait",
        FleetPlace::Planned => "c-plan",
    }
}

/// The slots of each place that has some, the well ones first: they are the ground that the others stand on.
pub(crate) fn places(counts: &FleetCountsAnswer) -> Vec<(FleetPlace, u64)> {
    let all = [
        (FleetPlace::OnTime, counts.on_time),
        (FleetPlace::Planned, counts.planned),
        (FleetPlace::Skipped, counts.skipped),
        (FleetPlace::Cancelled, counts.cancelled),
        (FleetPlace::Waiting, counts.waiting),
        (FleetPlace::Running, counts.running),
        (FleetPlace::CaughtUp, counts.caught_up),
        (FleetPlace::Late, counts.late),
        (FleetPlace::Unknown, counts.unknown),
        (FleetPlace::Missed, counts.missed),
        (FleetPlace::Failed, counts.failed),
    ];
    all.into_iter().filter(|(_, count)| *count > 0).collect()
}

/// The word of a place, as summaries say it.
pub(crate) const fn word(place: FleetPlace) -> &'static str {
    match place {
        FleetPlace::OnTime => "on time",
        FleetPlace::CaughtUp => "caught up",
        FleetPlace::Late => "late",
        FleetPlace::Failed => "failed",
        FleetPlace::Missed => "missed",
        FleetPlace::Unknown => "unknown",
        FleetPlace::Skipped => "skipped",
        FleetPlace::Cancelled => "cancelled",
        FleetPlace::Running => "running",
        FleetPlace::Waiting => "waiting",
        FleetPlace::Planned => "planned",
    }
}

/// What a strip shows, for those who do not see it.
pub(crate) fn summary(counts: &FleetCountsAnswer) -> String {
    let said: Vec<String> = places(counts)
        .into_iter()
        .map(|(place, count)| format!("{count} {}", word(place)))
        .collect();
    if said.is_empty() { "no slots".to_owned() } else { said.join(", ") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_is_in_proportion_and_what_went_wrong_is_always_seen() {
        let counts = FleetCountsAnswer { on_time: 999, failed: 1, ..FleetCountsAnswer::default() };
        let mut lane = Lane::default();
        lane.stack(&FleetCellAnswer { bucket: 2, counts }, (10.0, 500.0));
        let drawn = lane.finish(20);
        assert!(drawn.contains(r#"<path class="c-failed" d="M21.5 5h7V7h-7z"/>"#), "{drawn}");
        assert!(drawn.contains(r#"<path class="c-ok" d="M21.5 7h7V15h-7z"/>"#), "{drawn}");
    }

    #[test]
    fn a_link_is_text_whatever_it_is_called() {
        let at: Timestamp = "2026-10-25T06:00:00Z".parse().unwrap();
        let scale = Scale {
            from: "2026-10-25T00:00:00Z".parse().unwrap(),
            until: "2026-10-25T12:00:00Z".parse().unwrap(),
        };
        let slot = DrawnSlot {
            at,
            place: FleetPlace::Missed,
            is_catchup: false,
            started: None,
            ended: None,
            expected: None,
            link: Some(("/a\"b".to_owned(), "<b>".to_owned())),
        };
        let mut lane = Lane::default();
        lane.slot(scale, &slot, at);
        let drawn = lane.finish(20);
        assert!(drawn.ends_with(r##"<a href="/a&quot;b"><title>&lt;b&gt;</title><use href="#m-missed" x="50.00%" y="10"/></a>"##), "{drawn}");
    }
}
