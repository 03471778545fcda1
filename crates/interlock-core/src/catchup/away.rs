//! The slots of a schedule that was not declared: recorded as `skipped(retired)`, never run, never missed.

use jiff::Timestamp;

use super::{Fate, MISSED_MAX, Owed, Plan, Portion, Walk};
use crate::slot::SkipReason;

/// Plans what is recorded of a schedule from its watermark to an instant in which nobody owed its slots. What stands
/// there already stays; a plan that names nothing is empty.
pub fn plan_away(owed: &Owed<'_>, until: Timestamp) -> Plan {
    let (mut walk, mut counted) = (Walk::default(), 0);
    let mut next = owed.start.schedule.after(owed.watermark).filter(|slot| *slot <= until);
    while let Some(slot) = next {
        if counted == MISSED_MAX {
            break;
        }
        counted += 1;
        match owed.recorded.at(slot) {
            Some(_) => walk.pass(slot),
            None => walk.skip(slot, Fate::Skipped(SkipReason::Retired)),
        }
        next = owed.start.schedule.after(slot).filter(|slot| *slot <= until);
    }
    let is_cut_off = next.is_some();
    let watermark = if is_cut_off { walk.lead_until } else { walk.lead_until.map(|_| until) };
    let portion = watermark.map(|_| Portion { owed: 0, steps: walk.lead, watermark });
    Plan { portions: portion.into_iter().collect(), is_cut_off, ..Plan::default() }
}
