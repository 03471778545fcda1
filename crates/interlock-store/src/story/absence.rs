//! Why nothing is recorded at an instant.

use interlock_core::{
    pipeline::Pipeline,
    schedule::{Omission, Schedule},
};
use jiff::Timestamp;

use crate::record::PipelineRecord;

/// What is known of a schedule that has no slot recorded at an instant.
#[derive(Debug)]
pub struct Absence<'a> {
    /// Its pipeline, as it is declared.
    pub declared: &'a Pipeline,
    /// The schedule.
    pub schedule: &'a Schedule,
    /// The instant.
    pub at: Timestamp,
    /// Its pipeline's row.
    pub known: Option<&'a PipelineRecord>,
    /// How far it is recorded.
    pub watermark: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

impl Absence<'_> {
    /// Why, as the end of a sentence.
    pub fn reason(&self) -> String {
        let Self { declared, schedule, at, known, watermark, now } = *self;
        if !schedule.is_slot(at) {
            return not_a_slot(schedule, at);
        }
        let Some(known) = known else {
            return "`interlock serve` has not seen this pipeline yet".to_owned();
        };
        if at < known.first_seen {
            return format!(
                "the pipeline was first seen at {}, and owes nothing before",
                known.first_seen
            );
        }
        if at > now {
            return "it is not due yet".to_owned();
        }
        if let Some(retired) = known.retired_at {
            return format!("the pipeline was retired at {retired}");
        }
        if let Some(pause) = known.pause.as_ref().filter(|pause| pause.is_in_force(now)) {
            return format!("the pipeline is paused since {}: {}", pause.since, pause.reason);
        }
        if !declared.enabled && watermark.is_none_or(|watermark| at > watermark) {
            return "the pipeline is disabled: `watch.enabled` is false".to_owned();
        }
        match watermark {
            Some(watermark) if at <= watermark => {
                "its schedule was declared differently when that time was recorded".to_owned()
            }
            Some(watermark) => format!(
                "slots are recorded only up to {watermark}; `serve` was not running or is behind"
            ),
            None => "no slot of this schedule was recorded yet".to_owned(),
        }
    }
}

/// Why an instant is not a slot of a schedule.
fn not_a_slot(schedule: &Schedule, at: Timestamp) -> String {
    let timing = schedule.timing();
    if timing.from.is_some_and(|from| at < from) || timing.until.is_some_and(|until| at >= until) {
        return "it lies outside the schedule's `from` and `until`".to_owned();
    }
    let second = jiff::SignedDuration::from_secs(1);
    let until = at.saturating_add(second).unwrap_or(at);
    match schedule.omissions(at, until, 1).first() {
        Some(Omission::Date { date, reason }) => return format!("{date} is {reason}"),
        Some(gap @ Omission::Gap { .. }) => return gap.to_string(),
        None => {}
    }
    let date = at.to_zoned(timing.zone.time_zone().clone()).date();
    if let Some(reason) = timing.days.reason(date) {
        return format!("{date} is {reason}");
    }
    let near = [schedule.previous(at), schedule.next(at)];
    let near: Vec<_> = near.iter().flatten().map(ToString::to_string).collect();
    match near.as_slice() {
        [] => "the schedule owes no slots".to_owned(),
        near => format!("the schedule owes none then; the nearest are {}", near.join(" and ")),
    }
}
