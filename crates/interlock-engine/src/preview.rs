//! What a plan of owed slots would do, a line for each slot or stretch: what `--dry-run`, the preview of a resume and the
//! simulator's scenarios print.

use interlock_core::{
    agenda::Work,
    catchup::{Fate, Gap, Plan, Step, plan_away},
    id::PipelineId,
    pipeline::Catchup,
    succession::Away,
};
use interlock_store::Store;
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::EngineError,
    gap::{Ahead, Owing},
};

/// Why a slot runs that was not missed.
const LIVE: &str = "live";

/// One line of a plan: a slot, or many in a row with the same fate.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanLine {
    /// Whose.
    pub pipeline: PipelineId,
    /// Of which schedule.
    pub schedule: String,
    /// The first slot.
    pub slot: Timestamp,
    /// The last one.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// `run`, `skip` or `close`.
    pub action: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl PlanLine {
    /// What stands over lines.
    pub const HEADINGS: [&str; 5] = ["PIPELINE", "SCHEDULE", "SLOT", "ACTION", "REASON"];

    /// Whether its time has only just come.
    pub fn is_live(&self) -> bool {
        self.reason == LIVE
    }

    /// The line as a row of a table.
    pub fn to_row(&self) -> [String; 5] {
        let slot = match self.count {
            1 => self.slot.to_string(),
            count => format!("{} to {} ({count} slots)", self.slot, self.last),
        };
        let (action, reason) = (self.action.to_owned(), self.reason.to_owned());
        [self.pipeline.to_string(), self.schedule.clone(), slot, action, reason]
    }
}

impl Owing<'_> {
    /// What becomes of everything that is owed, in order of time.
    pub async fn preview(mut self, store: &dyn Store) -> Result<Vec<PlanLine>, EngineError> {
        let mut lines = Vec::new();
        loop {
            let (gap, plan) = self.plan(store).await?;
            take(self.pipeline, &gap, &plan, &mut lines);
            if !plan.is_cut_off {
                break;
            }
            // What was cut off is continued from where it ends, as the engine does.
            for portion in plan.portions {
                let Some(owed) = gap.owed.get(portion.owed) else { continue };
                let Some(at) = portion.watermark else { continue };
                let id = owed.start.schedule.id();
                if let Some(watermark) = self.watermarks.get_mut(id) {
                    *watermark = at;
                }
            }
        }
        lines.sort_by(|one, other| (one.slot, &one.schedule).cmp(&(other.slot, &other.schedule)));
        Ok(lines)
    }
}

/// What is recorded of a schedule for a time in which it was not declared.
pub async fn preview_away(
    store: &dyn Store,
    pipeline: &PipelineId,
    away: &Away<'_>,
) -> Result<Vec<PlanLine>, EngineError> {
    let mut lines = Vec::new();
    let (mut from, catchup) = (away.from, Catchup::default());
    let ahead = Ahead::since(store, pipeline, (from, away.until)).await?;
    loop {
        let owed = ahead.owed((away.start, from), SignedDuration::ZERO);
        let plan = plan_away(&owed, away.until);
        let (work, now) = (Work::Started, away.until);
        let gap = Gap { owed: vec![owed], work, catchup: &catchup, pause: None, deaf: vec![], now };
        take(pipeline, &gap, &plan, &mut lines);
        if !plan.is_cut_off {
            return Ok(lines);
        }
        from = plan.portions.iter().filter_map(|portion| portion.watermark).max().unwrap_or(now);
    }
}

fn take(pipeline: &PipelineId, gap: &Gap<'_>, plan: &Plan, lines: &mut Vec<PlanLine>) {
    for portion in &plan.portions {
        let Some(owed) = gap.owed.get(portion.owed) else { continue };
        let one = |slot: Timestamp, action, reason| PlanLine {
            pipeline: pipeline.clone(),
            schedule: owed.start.schedule.id().to_string(),
            slot,
            last: slot,
            count: 1,
            action,
            reason,
        };
        for step in &portion.steps {
            match step {
                Step::Live(slots) => lines.extend(slots.iter().map(|it| one(*it, "run", LIVE))),
                Step::Open(slots) => {
                    lines.extend(slots.iter().map(|it| one(*it, "run", "catchup")));
                }
                Step::Skip(stretch) => {
                    let action = match stretch.fate {
                        Fate::Skipped(_) => "skip",
                        Fate::Missed | Fate::Unknown => "close",
                    };
                    let line = one(stretch.first, action, stretch.fate.as_str());
                    lines.push(PlanLine { last: stretch.last, count: stretch.count, ..line });
                }
                Step::Close(slot, reason) => lines.push(one(*slot, "skip", reason.as_str())),
            }
        }
    }
}
