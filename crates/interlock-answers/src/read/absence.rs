//! Why nothing is recorded at an instant.

use interlock_core::{
    pipeline::Pipeline,
    schedule::{Omission, Schedule},
};
use interlock_store::record::PipelineRecord;
use jiff::{SignedDuration, Timestamp};

use crate::{
    model::story::{AbsenceAnswer, AbsenceReason},
    words::absence_headline,
};

/// What is known of a schedule that has no slot recorded at an instant.
#[derive(Debug)]
pub struct AbsenceInput<'a> {
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
    /// Before which instant what was decided may have been taken out.
    pub floor: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// A word, and the end of a sentence.
type Why = (AbsenceReason, String);

/// Why nothing is recorded.
pub fn absence(input: &AbsenceInput<'_>) -> AbsenceAnswer {
    let AbsenceInput { declared, schedule, at, .. } = *input;
    let (reason, why) = why(input);
    let sentence =
        format!("{}/{} has no slot recorded at {at}: {why}.", declared.name, schedule.id());
    let headline = absence_headline(reason, &why);
    let (previous, next) = (schedule.previous(at), schedule.after(at));
    AbsenceAnswer { reason, sentence, headline, previous, next }
}

/// What is not there and old may have been there.
pub(super) fn taken_out(floor: Timestamp) -> String {
    format!(
        "it is older than what is kept: what was decided before {floor} may have been taken out \
         (`retention.slots`); an archive still has it"
    )
}

fn why(input: &AbsenceInput<'_>) -> Why {
    let AbsenceInput { declared, schedule, at, known, watermark, floor, now } = *input;
    if !schedule.is_slot(at) {
        return not_a_slot(schedule, at);
    }
    if let Some(floor) = floor.filter(|floor| at < *floor) {
        return (AbsenceReason::Archived, taken_out(floor));
    }
    let Some(known) = known else {
        let why = "`interlock serve` has not seen this pipeline yet";
        return (AbsenceReason::NotSeen, why.to_owned());
    };
    if at < known.first_seen {
        let why =
            format!("the pipeline was first seen at {}, and owes nothing before", known.first_seen);
        return (AbsenceReason::BeforeFirstSight, why);
    }
    if at > now {
        return (AbsenceReason::NotDue, "it is not due yet".to_owned());
    }
    if let Some(retired) = known.retired_at {
        return (AbsenceReason::Retired, format!("the pipeline was retired at {retired}"));
    }
    if let Some(pause) = known.pause.as_ref().filter(|pause| pause.is_in_force(now)) {
        let why = format!("the pipeline is paused since {}: {}", pause.since, pause.reason);
        return (AbsenceReason::Paused, why);
    }
    if !declared.enabled && watermark.is_none_or(|watermark| at > watermark) {
        let why = "the pipeline is disabled: `watch.enabled` is false";
        return (AbsenceReason::Disabled, why.to_owned());
    }
    match watermark {
        Some(watermark) if at <= watermark => {
            let why = "its schedule was declared differently when that time was recorded";
            (AbsenceReason::DeclaredDifferently, why.to_owned())
        }
        Some(watermark) => {
            let why = format!(
                "slots are recorded only up to {watermark}; `serve` was not running or is behind"
            );
            (AbsenceReason::NotRecordedYet, why)
        }
        None => {
            let why = "no slot of this schedule was recorded yet";
            (AbsenceReason::NothingRecorded, why.to_owned())
        }
    }
}

/// Why an instant is not a slot of a schedule.
fn not_a_slot(schedule: &Schedule, at: Timestamp) -> Why {
    let timing = schedule.timing();
    if timing.from.is_some_and(|from| at < from) || timing.until.is_some_and(|until| at >= until) {
        let why = "it lies outside the schedule's `from` and `until`";
        return (AbsenceReason::OutOfBounds, why.to_owned());
    }
    let second = SignedDuration::from_secs(1);
    let until = at.saturating_add(second).unwrap_or(at);
    match schedule.omissions(at, until, 1).first() {
        Some(Omission::Date { date, reason }) => {
            return (AbsenceReason::Excluded, format!("{date} is {reason}"));
        }
        Some(gap @ Omission::Gap { .. }) => return (AbsenceReason::DstGap, gap.to_string()),
        None => {}
    }
    let date = at.to_zoned(timing.zone.time_zone().clone()).date();
    if let Some(reason) = timing.days.reason(date) {
        return (AbsenceReason::Excluded, format!("{date} is {reason}"));
    }
    let near = [schedule.previous(at), schedule.next(at)];
    let near: Vec<_> = near.iter().flatten().map(ToString::to_string).collect();
    let why = match near.as_slice() {
        [] => "the schedule owes no slots".to_owned(),
        near => format!("the schedule owes none then; the nearest are {}", near.join(" and ")),
    };
    (AbsenceReason::NotASlot, why)
}
