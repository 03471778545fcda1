//! Backfills: they open what was asked for and nothing that is open, a few at a time, after what is live (S7).

use interlock_store::{Change, Group, Key, Record, record::BackfillRecord};
use jiff::Timestamp;

use super::{
    Finding, Scene,
    book::{Book, Place, SeenSlot},
};
use crate::truth::Need;

/// A backfill as it stands.
#[derive(Debug)]
pub(crate) struct SeenBackfill {
    state: String,
    from: Timestamp,
    to: Timestamp,
    schedules: Vec<String>,
    reprocess: String,
    concurrency: u32,
}

impl SeenBackfill {
    pub(crate) fn of(record: &BackfillRecord) -> Self {
        Self {
            state: record.state.clone(),
            from: record.from,
            to: record.to,
            schedules: record.schedules.clone(),
            reprocess: record.reprocess.clone(),
            concurrency: record.concurrency,
        }
    }

    pub(crate) fn is_paused(&self) -> bool {
        self.state == "paused"
    }

    /// Whether a slot that ended like this runs again.
    fn takes(&self, disposition: &str) -> bool {
        match disposition {
            "missed" | "unknown" | "skipped" => true,
            "failed" | "cancelled" => self.reprocess != "missing",
            _ => self.reprocess == "all",
        }
    }
}

/// How a backfill stands, for the report.
pub(crate) fn becomes(record: &BackfillRecord) -> &'static str {
    match record.state.as_str() {
        "paused" => "backfill paused",
        "cancelled" => "backfill cancelled",
        "done" => "backfill done",
        _ => "backfill running",
    }
}

/// Whether a backfill that runs was asked for a slot: catch-up leaves it to that one.
pub(crate) fn claims(book: &Book, (schedule, at): &Place) -> bool {
    book.backfills.values().any(|backfill| {
        backfill.state == "running"
            && (backfill.from..backfill.to).contains(at)
            && backfill.schedules.iter().any(|id| id == schedule.as_str())
    })
}

/// Whether a run of a backfill begins in a group.
pub(crate) fn begins(group: &Group) -> bool {
    group.changes.iter().any(|change| {
        matches!(change, Change::Put(Key::Run(_), _, Record::Run(run))
            if run.trigger_type == "backfill" && run.status == "TRIGGERING")
    })
}

/// A slot's row was written: if a backfill opened it, it was its to open.
pub(crate) fn slot_is_opened(
    book: &Book,
    place: &Place,
    new: &SeenSlot,
    scene: &Scene<'_>,
) -> Result<(), Finding> {
    let Some(number) = new.backfill.filter(|_| new.is_open()) else { return Ok(()) };
    let told = |message: String| Err(Finding::of("S7", message).about(place));
    let old = book.slots.get(place);
    if old.is_some_and(|old| (old.generation, old.backfill) == (new.generation, Some(number))) {
        return Ok(());
    }
    let Some(backfill) = book.backfills.get(&number) else {
        return told(format!("opened by backfill {number}, which is not there"));
    };
    let is_asked = (backfill.from..backfill.to).contains(&place.1)
        && backfill.schedules.iter().any(|id| id == place.0.as_str());
    if backfill.state != "running" || !is_asked {
        return told(format!("opened by backfill {number}, and that is {backfill:?}"));
    }
    match old {
        Some(old) if old.is_open() => {
            told(format!("backfill {number} touches what is open: {old:?}"))
        }
        Some(old) if !backfill.takes(old.disposition) => told(format!(
            "backfill {number} of {} runs again what ended {}",
            backfill.reprocess, old.disposition
        )),
        Some(_) => Ok(()),
        None => {
            let now = scene.now + scene.ahead;
            let is_held = book.is_paused(now) || book.is_disabled;
            let recorded = book.watermarks.get(&place.0);
            if !is_held && recorded.is_some_and(|recorded| place.1 > *recorded) {
                return told(format!("backfill {number} opens what its schedule still owes"));
            }
            Ok(())
        }
    }
}

/// A run of a slot begins: no more of its backfill's at once than were asked for.
pub(crate) fn run_begins(book: &Book, place: &Place, slot: &SeenSlot) -> Result<(), Finding> {
    let Some(backfill) = slot.backfill.and_then(|number| book.backfills.get(&number)) else {
        return Ok(());
    };
    let is_theirs = |it: &&SeenSlot| it.occupies() && it.backfill == slot.backfill;
    let at_once = book.open_slots().filter(is_theirs).count();
    if at_once > backfill.concurrency as usize {
        let message =
            format!("{at_once} of a backfill at once, and {} may be", backfill.concurrency);
        return Err(Finding::of("S7", message).about(place));
    }
    Ok(())
}

/// All that was committed with the run of a backfill is taken over: nothing live waits for a place that it has.
pub(crate) fn live_come_first(book: &Book, now: Timestamp, gate: &Need) -> Result<(), Finding> {
    if *gate != Need::Nothing || book.is_paused(now) || book.is_disabled || book.is_retired {
        return Ok(());
    }
    let waits = |slot: &SeenSlot| slot.state == "queued" && slot.opened_by == "scheduler";
    match book.open.iter().find(|(_, slot)| waits(slot)) {
        None => Ok(()),
        Some((place, _)) => {
            let message = "it waits for its turn, and a slot of a backfill began".to_owned();
            Err(Finding::of("S7", message).about(place))
        }
    }
}

/// When the world has been calm for long enough: nothing is left of what was cancelled.
pub(crate) fn have_ended(book: &Book) -> Result<(), Finding> {
    for (place, slot) in &book.open {
        let backfill = slot.backfill.and_then(|number| book.backfills.get(&number));
        let is_cancelled = backfill.is_some_and(|backfill| backfill.state == "cancelled");
        if is_cancelled && slot.state != "running" && slot.state != "monitoring" {
            let message = format!("its backfill was cancelled, and it is still {}", slot.state);
            return Err(Finding::of("S7", message).about(place));
        }
    }
    Ok(())
}
