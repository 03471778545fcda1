//! What a plan of owed slots would do, a line for each slot or stretch: what `--dry-run`, the preview of a resume and the
//! simulator's scenarios print.
//!
//! Not every slot that opens runs: under `skip` one that finds another running does not. What the controller would do at
//! once with the slots that open is asked of its own plan, so that a line says what becomes of its slot (S5), provided
//! that each is ready and nothing else happens.

use std::collections::BTreeMap;

use interlock_core::{
    agenda::Work,
    backfill::Order,
    catchup::{Fate, Gap, Plan, Step, plan_away},
    control::{Candidate, Flow, Lane, Move, Room, plan_slots},
    id::{PipelineId, ScheduleId},
    pipeline::{OverlapPolicy, Pipeline},
    readiness::Outcome,
    run::TriggerType,
    slot::{Disposition, OpenState, SkipReason, Slot, SlotState},
    succession::Away,
};
use interlock_store::{LedgerEntry, LedgerRow, Store};
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::EngineError,
    gap::{Ahead, Owing},
    recording::opened,
    scheduler::Opener,
    state::SlotPlace,
};

/// Why a slot runs that was not missed.
const LIVE: &str = "live";
/// Why a slot runs that is recorded already.
const QUEUED: &str = "queued";
/// What becomes for now of a slot that is recorded already and whose turn cannot come.
const WAIT: &str = "wait";
/// No limit over all pipelines: it makes a slot wait, and changes nothing about what becomes of it.
const ROOM: Room = Room { runs: u32::MAX, kept_free: 0, catchup: u32::MAX };

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
    /// `run`, `skip`, `close` or `wait`.
    pub action: &'static str,
    /// Why.
    pub reason: &'static str,
}

impl PlanLine {
    /// What stands over lines.
    pub const HEADINGS: [&str; 5] = ["PIPELINE", "SCHEDULE", "SLOT", "ACTION", "REASON"];

    /// Whether its slot is recorded already and waits for its turn.
    pub fn is_queued(&self) -> bool {
        self.reason == QUEUED || self.action == WAIT
    }

    /// Whether its slot was missed: its time has not only just come, and nobody has recorded it.
    pub fn is_missed(&self) -> bool {
        self.reason != LIVE && !self.is_queued()
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

/// What a preview knows so far.
#[derive(Default)]
struct Foreseen {
    lines: Vec<PlanLine>,
    /// The slots that are open or open now, those with a line that have a fate to show.
    open: BTreeMap<SlotPlace, (Slot, Option<usize>)>,
}

impl Owing<'_> {
    /// What becomes of everything that is owed or waits for its turn already, in order of time; `declared` is what the
    /// pipeline's file says, `open` its slots that are open. What a pause leaves out is decided when it ends.
    pub async fn preview(
        mut self,
        store: &dyn Store,
        declared: Option<&Pipeline>,
        open: &[LedgerRow],
    ) -> Result<Vec<PlanLine>, EngineError> {
        let mut foreseen = Foreseen::default();
        for row in open {
            let LedgerEntry::Slot(slot) = &row.entry else { continue };
            let (place, slot) = ((row.nominal, row.schedule.clone()), slot.to_core()?);
            let is_queued = slot.state == SlotState::Open(OpenState::Queued)
                && matches!(slot.opened_by, TriggerType::Scheduler | TriggerType::Catchup);
            let line = |action, reason| self.line(&place.1, place.0, action, reason);
            let (held, line) = match self.held_by() {
                _ if !is_queued => (None, None),
                None => (None, Some(line("run", QUEUED))),
                Some(_) if slot.closes_at <= self.now => {
                    (Some(line("skip", SkipReason::Paused.as_str())), None)
                }
                Some(why) => (Some(line(WAIT, why)), None),
            };
            foreseen.lines.extend(held);
            foreseen.open(place, slot, line);
        }
        while !self.is_paused() {
            let (gap, plan) = self.plan(store).await?;
            self.take(&gap, &plan, &mut foreseen);
            if !plan.is_cut_off {
                break;
            }
            // What was cut off is continued from where it ends, as the engine does.
            self.move_past(&gap, &plan);
        }
        if let Some(declared) = declared.filter(|_| !self.is_paused()) {
            foreseen.step(declared, self.now);
        }
        let mut lines = foreseen.lines;
        lines.sort_by(|one, other| (one.slot, &one.schedule).cmp(&(other.slot, &other.schedule)));
        Ok(lines)
    }

    fn is_paused(&self) -> bool {
        self.pause.is_some_and(|pause| pause.is_in_force(self.now))
    }

    /// Why nothing of its queue can begin, if so: the queue is kept.
    fn held_by(&self) -> Option<&'static str> {
        match self.agenda.work {
            Work::Dormant => Some("disabled"),
            Work::Started | Work::Watched if self.is_paused() => Some("paused"),
            Work::Started | Work::Watched => None,
        }
    }

    /// One slot's line.
    fn line(
        &self,
        schedule: &ScheduleId,
        slot: Timestamp,
        action: &'static str,
        reason: &'static str,
    ) -> PlanLine {
        let (pipeline, schedule) = (self.pipeline.clone(), schedule.to_string());
        PlanLine { pipeline, schedule, slot, last: slot, count: 1, action, reason }
    }

    fn take(&self, gap: &Gap<'_>, plan: &Plan, foreseen: &mut Foreseen) {
        for portion in &plan.portions {
            let Some(owed) = gap.owed.get(portion.owed) else { continue };
            let id = owed.start.schedule.id();
            let one = |slot: Timestamp, action, reason| self.line(id, slot, action, reason);
            let opener =
                Opener { agenda: self.agenda, start: owed.start, version: 0, now: self.now };
            let open = |at: Timestamp, by| opened(&opener, at, (by, plan.wish));
            for step in &portion.steps {
                match step {
                    Step::Live(slots) => {
                        for at in slots {
                            let slot = open(*at, TriggerType::Scheduler);
                            foreseen.open((*at, id.clone()), slot, Some(one(*at, "run", LIVE)));
                        }
                    }
                    Step::Open(slots) => {
                        for at in slots {
                            let slot = open(*at, TriggerType::Catchup);
                            let line = one(*at, "run", "catchup");
                            foreseen.open((*at, id.clone()), slot, Some(line));
                        }
                    }
                    Step::Skip(stretch) => {
                        let action = match stretch.fate {
                            Fate::Skipped(_) => "skip",
                            Fate::Missed | Fate::Unknown => "close",
                        };
                        let line = one(stretch.first, action, stretch.fate.as_str());
                        let line = PlanLine { last: stretch.last, count: stretch.count, ..line };
                        foreseen.lines.push(line);
                    }
                    Step::Close(slot, reason) => {
                        foreseen.lines.push(one(*slot, "skip", reason.as_str()));
                    }
                }
            }
        }
    }
}

/// What is recorded of a schedule for a time in which it was not declared.
pub async fn preview_away(
    store: &dyn Store,
    pipeline: &PipelineId,
    away: &Away<'_>,
) -> Result<Vec<PlanLine>, EngineError> {
    let (mut lines, mut from) = (Vec::new(), away.from);
    let ahead = Ahead::since(store, pipeline, (from, away.until)).await?;
    loop {
        let plan = plan_away(&ahead.owed((away.start, from), SignedDuration::ZERO), away.until);
        for step in plan.portions.iter().flat_map(|portion| &portion.steps) {
            let Step::Skip(stretch) = step else { continue };
            lines.push(PlanLine {
                pipeline: pipeline.clone(),
                schedule: away.start.schedule.id().to_string(),
                slot: stretch.first,
                last: stretch.last,
                count: stretch.count,
                action: "skip",
                reason: stretch.fate.as_str(),
            });
        }
        if !plan.is_cut_off {
            return Ok(lines);
        }
        let reached = plan.portions.iter().filter_map(|portion| portion.watermark).max();
        from = reached.unwrap_or(away.until);
    }
}

/// A slot that is open, or opens and then has a line, as the controller would look at it.
fn candidate<'a>(
    (nominal, schedule): &'a SlotPlace,
    (slot, line): &'a (Slot, Option<usize>),
    overlap: OverlapPolicy,
) -> Candidate<'a> {
    // What waits already was looked at, and was not ready.
    let is_ready = line.is_some() || slot.state != SlotState::Open(OpenState::Waiting);
    // A backfill is never before the schedule's own slots.
    let number = slot.wish.as_ref().and_then(|wish| wish.backfill);
    Candidate {
        nominal: *nominal,
        schedule,
        slot,
        readiness: if is_ready { Outcome::Ready } else { Outcome::CannotTell },
        is_done_already: false,
        overlap,
        lane: number.map(|number| Lane { number, places: 0, order: Order::Ascending }),
        is_unheard: false,
    }
}

impl Foreseen {
    fn open(&mut self, place: SlotPlace, slot: Slot, line: Option<PlanLine>) {
        let index = line.is_some().then_some(self.lines.len());
        self.open.insert(place, (slot, index));
        self.lines.extend(line);
    }

    /// Corrects the lines of slots that the controller closes as soon as it sees them.
    fn step(&mut self, declared: &Pipeline, now: Timestamp) {
        let overlap = declared.catchup.overlap;
        let candidates = self.open.iter().map(|(place, it)| candidate(place, it, overlap));
        let candidates: Vec<_> = candidates.collect();
        let lines: Vec<_> = self.open.values().map(|(_, line)| *line).collect();
        for (index, step) in plan_slots(declared, &candidates, Flow::Open, ROOM, now) {
            let line = lines.get(index).copied().flatten();
            if let Some(line) = line.and_then(|line| self.lines.get_mut(line))
                && let Move::Close(Disposition::Skipped(reason)) = step
            {
                (line.action, line.reason) = ("skip", reason.as_str());
            }
        }
    }
}
