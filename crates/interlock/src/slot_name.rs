//! Which slot somebody means: an instant, or a schedule and an instant.

use interlock_config::Loaded;
use interlock_core::{
    id::{PipelineId, ScheduleId, SlotKey},
    pipeline::Pipeline,
    zone::Zone,
};
use interlock_store::LedgerEntry;
use jiff::Timestamp;

use crate::{clock, exit::Failure, ledger::Ledger, moment::Moment, project};

/// A slot as it was typed: `2026-02-25T09:00Z`, `daily/2026-02-25T09:00Z` or
/// `orders/daily/2026-02-25T09:00Z`.
pub(crate) struct Typed {
    pub(crate) schedule: Option<ScheduleId>,
    pub(crate) moment: Moment,
}

impl Typed {
    /// Reads the text of a slot of a pipeline.
    pub(crate) fn parse(pipeline: &PipelineId, text: &str) -> Result<Self, Failure> {
        let own = text.strip_prefix(pipeline.as_str()).and_then(|rest| rest.strip_prefix('/'));
        let text = own.unwrap_or(text);
        let (schedule, moment) = match text.rsplit_once('/') {
            Some((schedule, moment)) => (Some(schedule), moment),
            None => (None, text),
        };
        let schedule = schedule.map(ScheduleId::any).transpose();
        let schedule = schedule.map_err(|error| Failure::usage(error.message, error.help))?;
        let moment = Moment::parse(moment).map_err(|error| Failure::usage(error, ""))?;
        Ok(Self { schedule, moment })
    }

    /// Its instant by the wall clock of a schedule.
    pub(crate) fn at(&self, zone: &Zone) -> Timestamp {
        self.moment.at(clock::now(), zone)
    }
}

/// The one slot of a pipeline that is meant, declared or recorded.
pub(crate) fn resolve(
    loaded: &Loaded,
    ledger: &Ledger,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<SlotKey, Failure> {
    let declared = project::find(loaded, pipeline);
    let key =
        |schedule: ScheduleId, nominal| SlotKey { pipeline: pipeline.clone(), schedule, nominal };
    match meant(declared, ledger, pipeline, typed)?.as_slice() {
        [(schedule, nominal)] => Ok(key(schedule.clone(), *nominal)),
        [] => Err(none(declared, pipeline, typed)),
        several => Err(ambiguous(pipeline, several)),
    }
}

/// Every slot of a pipeline that may be meant, declared or recorded.
pub(crate) fn meant(
    declared: Option<&Pipeline>,
    ledger: &Ledger,
    pipeline: &PipelineId,
    typed: &Typed,
) -> Result<Vec<(ScheduleId, Timestamp)>, Failure> {
    if let Some(schedule) = &typed.schedule {
        return Ok(vec![(schedule.clone(), typed.at(&zone_of(declared, schedule)))]);
    }
    let mut found: Vec<(ScheduleId, Timestamp)> = Vec::new();
    for start in declared.iter().flat_map(|pipeline| &pipeline.starts) {
        let at = typed.at(&start.schedule.timing().zone);
        if start.schedule.is_slot(at) {
            found.push((start.schedule.id().clone(), at));
        }
    }
    for row in ledger.rows_at(pipeline, typed.at(&first_zone(declared)))? {
        let place = (row.schedule, row.nominal);
        // Nothing runs in the slot of a stop: it is meant only if it is named.
        let has_work = match &row.entry {
            LedgerEntry::Slot(slot) => slot.generation > 0 || !place.0.is_control(),
            LedgerEntry::Span(_) => false,
        };
        if has_work && !found.contains(&place) {
            found.push(place);
        }
    }
    Ok(found)
}

/// The zone of a schedule; UTC for one that is not declared.
pub(crate) fn zone_of(declared: Option<&Pipeline>, schedule: &ScheduleId) -> Zone {
    let known = declared.and_then(|pipeline| pipeline.schedule(schedule));
    known.map_or_else(|| first_zone(declared), |known| known.timing().zone.clone())
}

/// The zone of some schedules of a pipeline, if they have one in common; else that of the pipeline.
pub(crate) fn common_zone(declared: &Pipeline, schedules: &[String]) -> Zone {
    let own = declared.starts.iter().map(|start| &start.schedule);
    let named = own.filter(|it| schedules.iter().any(|id| id == it.id().as_str()));
    let mut zones = named.map(|it| &it.timing().zone);
    match zones.next() {
        Some(first) if zones.all(|other| other == first) => first.clone(),
        Some(_) | None => first_zone(Some(declared)),
    }
}

/// The zone in which people speak of a pipeline: its own, else its first schedule's.
pub(crate) fn first_zone(declared: Option<&Pipeline>) -> Zone {
    if let Some(own) = declared.and_then(|pipeline| pipeline.zone.clone()) {
        return own;
    }
    let first = declared.and_then(|pipeline| pipeline.starts.first());
    first.map_or_else(Zone::utc, |start| start.schedule.timing().zone.clone())
}

pub(crate) fn none(declared: Option<&Pipeline>, pipeline: &PipelineId, typed: &Typed) -> Failure {
    let first = declared.and_then(|pipeline| pipeline.starts.first());
    let next = first.and_then(|start| start.schedule.next(typed.at(&start.schedule.timing().zone)));
    let help = next.map_or(String::new(), |next| format!("The next slot from there on is {next}."));
    Failure::usage(format!("{pipeline} has no slot at that instant"), help)
}

pub(crate) fn ambiguous(pipeline: &PipelineId, several: &[(ScheduleId, Timestamp)]) -> Failure {
    let names: Vec<_> = several.iter().map(|(schedule, at)| format!("`{schedule}/{at}`")).collect();
    Failure::usage(
        format!("several schedules of {pipeline} have a slot at that instant"),
        format!("Name one of {}.", names.join(", ")),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slot_is_typed_with_or_without_its_schedule_and_pipeline() {
        let orders = PipelineId::parse("orders").unwrap();
        let nine = Moment::parse("2026-02-25T09:00Z").unwrap();
        for (text, schedule) in [
            ("2026-02-25T09:00Z", None),
            ("daily/2026-02-25T09:00Z", Some("daily")),
            ("orders/daily/2026-02-25T09:00Z", Some("daily")),
        ] {
            let typed = Typed::parse(&orders, text).unwrap();
            assert_eq!(typed.schedule.as_ref().map(ScheduleId::as_str), schedule, "{text}");
            assert_eq!(typed.moment, nine, "{text}");
        }
        assert!(Typed::parse(&orders, "daily/soon").is_err());
    }
}
