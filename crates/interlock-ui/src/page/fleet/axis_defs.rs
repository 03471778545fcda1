//! The axis of the fleet: drawn once, used by every row.

use std::fmt::Write as _;

use interlock_answers::model::fleet::FleetAnswer;
use jiff::Timestamp;

use crate::{
    axis::nice_steps,
    parts::Drawing,
    strip::Scale,
    times::{Zone, between},
};

/// Labels that there is room for.
const LABELS: i64 = 16;

/// Grid, coverage, changes of the clocks and now, as a definition.
pub(super) fn defs(fleet: &FleetAnswer, scale: Scale) -> Drawing {
    let now = scale.percent(fleet.now);
    let mut svg = String::from(r#"<svg class="defs" aria-hidden="true"><defs><g id="ax">"#);
    let _never = write!(
        svg,
        r#"<rect class="ax-future" x="{now:.2}%" width="{:.2}%" height="100%"/>"#,
        100.0 - now
    );
    let zone = Zone::named(&fleet.totals.zone).unwrap_or_else(Zone::utc);
    for at in nice_steps(scale.from, scale.until, LABELS, &zone) {
        let x = scale.percent(at);
        let is_midnight = zone.at(at).time() == jiff::civil::Time::midnight();
        let class = if is_midnight { "ax-d" } else { "ax-h" };
        let _never = write!(svg, r#"<line class="{class}" x1="{x:.2}%" x2="{x:.2}%" y2="100%"/>"#);
    }
    let mut seen_from = 0.0;
    for gap in &fleet.blind {
        let from = scale.percent(gap.from.max(scale.from));
        let until = scale.percent(gap.until.unwrap_or(fleet.now).min(scale.until));
        let _never = write!(
            svg,
            r#"<line class="ax-see" x1="{seen_from:.2}%" x2="{from:.2}%" y1="50%" y2="50%"/><rect x="{from:.2}%" width="{:.2}%" height="100%" fill="url(#blind)"/>"#,
            (until - from).max(0.15),
        );
        seen_from = until;
    }
    let _never = write!(
        svg,
        r#"<line class="ax-see" x1="{seen_from:.2}%" x2="{now:.2}%" y1="50%" y2="50%"/>"#
    );
    for change in &fleet.clock_changes {
        let x = scale.percent(change.utc);
        let _never = write!(svg, r#"<line class="ax-dst" x1="{x:.2}%" x2="{x:.2}%" y2="100%"/>"#);
    }
    let _never = write!(
        svg,
        r#"<line class="ax-now" x1="{now:.2}%" x2="{now:.2}%" y2="100%"/></g></defs></svg>"#
    );
    Drawing(svg)
}

/// The words above the strips.
pub(super) fn axis(fleet: &FleetAnswer, scale: Scale, zone: &Zone) -> Drawing {
    let now = scale.percent(fleet.now);
    let mut svg = String::from(r#"<svg class="axis" aria-hidden="true">"#);
    let _never = write!(
        svg,
        r#"<text class="t-lab t-start odd" y="10">{}</text>"#,
        crate::parts::Escaped(&zone.name)
    );
    let all = nice_steps(scale.from, scale.until, LABELS, zone);
    let is_days = all.len() > 1 && between(all[0], all[1]) >= 86_400;
    // On a narrow screen every other label is left out; midnight stays.
    let is_midnight = |at: &&Timestamp| zone.at(**at).time() == jiff::civil::Time::midnight();
    let first = all.iter().position(|at| is_midnight(&at)).unwrap_or(0);
    for (number, at) in all.iter().enumerate() {
        let x = scale.percent(*at);
        // What would stand behind the time of now is left out.
        let wide = if zone.at(*at).minute() == 0 { 4.6 } else { 6.2 };
        if (x - now).abs() < wide || !(0.8..=99.2).contains(&x) {
            continue;
        }
        let odd = if number.abs_diff(first) % 2 == 1 { " odd" } else { "" };
        let (class, text) = if is_days {
            (format!("t-lab{odd}"), zone.at(*at).strftime("%-d %b").to_string())
        } else if is_midnight(&at) {
            ("t-day".to_owned(), zone.at(*at).strftime("%a %-d").to_string())
        } else if zone.at(*at).minute() == 0 {
            (format!("t-lab{odd}"), zone.at(*at).strftime("%H").to_string())
        } else {
            (format!("t-lab{odd}"), zone.minute(*at))
        };
        let _never = write!(svg, r#"<text class="{class}" x="{x:.2}%" y="24">{text}</text>"#);
    }
    let mut last = -20.0;
    for change in &fleet.clock_changes {
        let x = scale.percent(change.utc);
        let (sign, hours) = (
            if change.shift_seconds < 0 { '−' } else { '+' },
            f64::from(change.shift_seconds.abs()) / 3_600.0,
        );
        let _never =
            write!(svg, r#"<text class="t-dst" x="{x:.2}%" y="10">DST {sign}{hours} h</text>"#);
        last = x;
    }
    for gap in &fleet.blind {
        let from = gap.from.max(scale.from);
        let until = gap.until.unwrap_or(fleet.now).min(scale.until);
        let x = f64::midpoint(scale.percent(from), scale.percent(until));
        if x - last < 9.0 {
            continue;
        }
        last = x;
        let _never = write!(
            svg,
            r#"<text class="t-lab" x="{x:.2}%" y="10">blind<tspan class="odd"> {}–{}</tspan></text>"#,
            zone.minute(from),
            zone.minute(until),
        );
    }
    let _never = write!(
        svg,
        r#"<text class="t-lab" x="{:.2}%" y="10">planned</text><rect class="t-nowbg" x="{now:.2}%" y="13" width="42" height="15" rx="2" transform="translate(-21)"/><text class="t-now" x="{now:.2}%" y="24">{}</text></svg>"#,
        f64::midpoint(now, 100.0),
        zone.minute(fleet.now),
    );
    Drawing(svg)
}
