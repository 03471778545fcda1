//! What to do with a pipeline's open slots: the controller's plan.
//!
//! All slots of one pipeline are planned together, because they share its places (S6). The plan is a list
//! of moves; a slot without a move stays as it is until something changes or its time comes.
//!
//! Among startable slots the order is (instant, schedule id). A waiting slot holds nobody back: it has no
//! place in the queue until it is ready. What a person or a backfill asked for queues and is never skipped,
//! and never makes a live slot skip: a live slot that is blocked only by such runs queues ahead of them. What somebody
//! asked to be caught up after a pause has its turn by its instant, and is not skipped either.
//! Slots of a backfill come last, in a [`Lane`] of their own, and start in a pause of the pipeline too.

use std::{cmp::Reverse, collections::BTreeMap};

use jiff::{SignedDuration, Timestamp};

use crate::{
    backfill::Order,
    id::ScheduleId,
    pipeline::{OverlapPolicy, Pipeline, TriggerKind},
    readiness::Outcome,
    run::TriggerType,
    schedule::Recurrence,
    slot::{Disposition, OpenState, SkipReason, Slot, SlotState},
};

/// The watchdog closes a run that is too old, a slot that nobody reported on and one whose sensor did not come; the
/// owner does, this much later, if nobody has (S19).
pub const OWNER_WAITS: SignedDuration = SignedDuration::from_mins(1);

/// Whether slots may start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Flow {
    /// They may.
    Open,
    /// The pipeline is paused: nothing starts, runs end.
    Paused,
    /// The pipeline is gone: what has not begun is closed.
    Retired,
}

/// An open slot and what is known about it now.
#[derive(Debug, Clone, Copy)]
pub struct Candidate<'a> {
    /// Its instant.
    pub nominal: Timestamp,
    /// Its schedule.
    pub schedule: &'a ScheduleId,
    /// What the ledger says.
    pub slot: &'a Slot,
    /// Whether it may run, by readiness; `CannotTell` while the evidence is being gathered.
    pub readiness: Outcome,
    /// Whether its work was done since the slot before it (`skipIfSuccessful`).
    pub is_done_already: bool,
    /// What the declaration that it was recorded under says of overlaps (S16).
    pub overlap: OverlapPolicy,
    /// The lane that it keeps to.
    pub lane: Option<Lane>,
    /// Whether somebody else runs it, and could not have reported (S10).
    pub is_unheard: bool,
}

/// What the slots of one backfill have in common.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Lane {
    /// Which backfill of the pipeline.
    pub number: u64,
    /// How many of its slots may hold a place at once; none while it is paused.
    pub places: u32,
    /// Which of them goes first.
    pub order: Order,
}

/// How many runs may begin: what the limits over all pipelines leave.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Room {
    /// Of all slots.
    pub runs: u32,
    /// How many of these are not for the past, which catch-up and backfills work off.
    pub kept_free: u32,
    /// Of those for the past, slots that catch-up opened.
    pub catchup: u32,
}

impl Room {
    fn admits(self, slot: &Slot) -> bool {
        let room = match slot.opened_by {
            TriggerType::Catchup => self.runs.saturating_sub(self.kept_free).min(self.catchup),
            TriggerType::Backfill => self.runs.saturating_sub(self.kept_free),
            TriggerType::Scheduler
            | TriggerType::Sensor
            | TriggerType::Reconcile
            | TriggerType::External
            | TriggerType::Webhook
            | TriggerType::Subdag
            | TriggerType::Manual
            | TriggerType::Retry => self.runs,
        };
        room > 0
    }

    fn take(&mut self, slot: &Slot) {
        self.runs = self.runs.saturating_sub(1);
        if slot.opened_by == TriggerType::Catchup {
            self.catchup = self.catchup.saturating_sub(1);
        }
    }
}

/// What is to happen to one slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Move {
    /// A run begins: this attempt.
    Start(u32),
    /// It is not its turn.
    Queue,
    /// Its turn came and it is not ready (S8).
    WaitAgain,
    /// Its data changed under monitoring: it is completed, and runs again.
    Drift,
    /// It is decided.
    Close(Disposition),
}

/// Plans the open slots of one pipeline; `slots` are in the order (instant, schedule id). Answers with one
/// move per slot at most, by its place in `slots`. No more runs begin than there is `room` for. A slot that
/// finds none queues, or waits on under `skip`, and keeps its place: later ones do not overtake it.
pub fn plan_slots(
    pipeline: &Pipeline,
    slots: &[Candidate<'_>],
    flow: Flow,
    room: Room,
    now: Timestamp,
) -> Vec<(usize, Move)> {
    let runner = match pipeline.trigger.as_ref().map(|trigger| &trigger.kind) {
        None | Some(TriggerKind::External) => Runner::SomebodyElse,
        Some(_) => Runner::Interlock,
    };
    let mut plan = Plan { pipeline, slots, room, moves: vec![None; slots.len()] };
    plan.close_what_is_over(flow, runner, now);
    if flow == Flow::Open && runner == Runner::Interlock {
        plan.notice_drift();
    }
    if flow != Flow::Retired && runner == Runner::Interlock {
        plan.start_what_may(flow, now);
    }
    plan.moves.into_iter().enumerate().filter_map(|(index, step)| Some((index, step?))).collect()
}

/// Who runs the pipeline's jobs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Runner {
    /// Interlock starts them.
    Interlock,
    /// Interlock only watches.
    SomebodyElse,
}

struct Plan<'a> {
    pipeline: &'a Pipeline,
    slots: &'a [Candidate<'a>],
    /// How many runs may still begin, over all pipelines.
    room: Room,
    moves: Vec<Option<Move>>,
}

impl Plan<'_> {
    fn close_what_is_over(&mut self, flow: Flow, runner: Runner, now: Timestamp) {
        for (candidate, step) in self.slots.iter().zip(&mut self.moves) {
            let SlotState::Open(state) = candidate.slot.state else { continue };
            let flow = candidate.flow(flow);
            let is_sensor = waits_for_sensor(self.pipeline, candidate);
            let patience = match state {
                OpenState::Running => OWNER_WAITS,
                OpenState::Waiting if is_sensor || runner == Runner::SomebodyElse => OWNER_WAITS,
                OpenState::Waiting
                | OpenState::Queued
                | OpenState::Backoff
                | OpenState::Monitoring => SignedDuration::ZERO,
            };
            let by = now.saturating_sub(patience).unwrap_or(Timestamp::MIN);
            // Whoever opened it may have died before it looked, and the next one look long after: what is ready starts.
            let is_ready = state == OpenState::Waiting
                && flow == Flow::Open
                && runner == Runner::Interlock
                && candidate.readiness == Outcome::Ready;
            let too_late = too_late(self.pipeline, candidate, now);
            if is_ready && too_late.is_none() {
                continue;
            }
            let close = forced_close(candidate.slot, state, (flow, runner), by);
            let close = match close {
                Some(Disposition::Skipped(SkipReason::NotReady)) if is_ready => {
                    too_late.map(Disposition::Skipped)
                }
                Some(Disposition::Skipped(SkipReason::NotReady)) if is_sensor => {
                    Some(Disposition::Skipped(SkipReason::NoSensor))
                }
                Some(Disposition::Missed) if candidate.is_unheard => Some(Disposition::Unknown),
                other => other,
            };
            *step = close.map(Move::Close);
        }
    }

    /// Not ready is drift; cannot tell is not. Where nothing may start, nothing is opened again either: the
    /// slot would be closed as paused or retired, and its success be lost.
    fn notice_drift(&mut self) {
        for (candidate, step) in self.slots.iter().zip(&mut self.moves) {
            let is_watched = candidate.slot.state == SlotState::Open(OpenState::Monitoring);
            if step.is_none() && is_watched && candidate.readiness == Outcome::NotReady {
                *step = Some(Move::Drift);
            }
        }
    }

    fn start_what_may(&mut self, flow: Flow, now: Timestamp) {
        let mut places = Places::taken(self.pipeline, self.slots, &self.moves);
        self.retry_what_failed(flow, now);
        let startable = |index: &usize| {
            let flow = self.slots.get(*index).map(|candidate| candidate.flow(flow));
            flow == Some(Flow::Open) && self.is_startable(*index)
        };
        // A queued slot of an earlier instant goes first.
        let mut order: Vec<_> = (0..self.slots.len()).filter(startable).collect();
        order.sort_by_key(|index| self.slots.get(*index).map(Candidate::turn));
        let slots = self.slots;
        for index in order {
            let Some(candidate) = slots.get(index) else { continue };
            let step = self.step_for(candidate, &mut places, now);
            if let Some(place) = self.moves.get_mut(index) {
                *place = step;
            }
        }
        self.keep_only_the_newest_queued();
    }

    /// A slot in backoff holds its place already.
    fn retry_what_failed(&mut self, flow: Flow, now: Timestamp) {
        for (candidate, step) in self.slots.iter().zip(&mut self.moves) {
            let is_time = candidate.slot.retry_at.is_none_or(|at| at <= now);
            if step.is_none()
                && candidate.flow(flow) == Flow::Open
                && candidate.slot.state == SlotState::Open(OpenState::Backoff)
                && is_time
                && self.room.runs > 0
            {
                self.room.runs -= 1;
                *step = Some(Move::Start(candidate.slot.attempt + 1));
            }
        }
    }

    fn is_startable(&self, index: usize) -> bool {
        let untouched = self.moves.get(index).is_some_and(Option::is_none);
        let state = self.slots.get(index).map(|candidate| candidate.slot.state);
        let waits = SlotState::Open(OpenState::Waiting);
        untouched && (state == Some(waits) || state == Some(SlotState::Open(OpenState::Queued)))
    }

    fn step_for(
        &mut self,
        candidate: &Candidate<'_>,
        places: &mut Places,
        now: Timestamp,
    ) -> Option<Move> {
        let is_queued = candidate.slot.state == SlotState::Open(OpenState::Queued);
        let is_ready = candidate.readiness == Outcome::Ready
            || (candidate.readiness == Outcome::CannotTell && self.pipeline.readiness.fail_open);
        if is_ready && candidate.is_done_already && obeys_policy(candidate.slot) {
            return Some(Move::Close(Disposition::Skipped(SkipReason::Superseded)));
        }
        if candidate.lane.is_some_and(|lane| lane.places == 0) {
            // It is held, so nobody looks whether it is ready; as a queued slot it can wait for long.
            return (!is_queued).then_some(Move::Queue);
        }
        match (places.is_free_for(candidate), is_ready, is_queued) {
            (true, true, _) if self.pipeline.dry_run => {
                Some(Move::Close(Disposition::Skipped(SkipReason::DryRun)))
            }
            (true, true, _) if !self.room.admits(candidate.slot) => {
                let step = without_room(candidate, now);
                if !matches!(step, Some(Move::Close(_))) && !gives_way(candidate) {
                    // It is its turn, and nobody after it takes its place.
                    places.hold(candidate);
                    places.held += 1;
                }
                step
            }
            (true, true, _) => {
                self.room.take(candidate.slot);
                places.take(candidate);
                Some(Move::Start(candidate.slot.attempt + 1))
            }
            (true, false, true) => Some(Move::WaitAgain),
            // The one before it waits for room, and so does it.
            (false, true, false) if places.held > 0 && waits_for_room(candidate) => {
                without_room(candidate, now)
            }
            (false, true, false) => Some(self.blocked(candidate, places)),
            (true | false, false, false) | (false, _, true) => None,
        }
    }

    /// A slot is ready and no place is free.
    fn blocked(&self, candidate: &Candidate<'_>, places: &Places) -> Move {
        let skips = obeys_policy(candidate.slot) && candidate.overlap == OverlapPolicy::Skip;
        let is_full_of_live = places.live >= self.pipeline.active_runs_max && !self.is_held_up();
        if skips && is_full_of_live {
            Move::Close(Disposition::Skipped(SkipReason::Overlap))
        } else {
            Move::Queue
        }
    }

    /// Whether live slots are late because of others: a backfill has open slots, or there are live ones in the queue,
    /// which under `skip` only come there behind runs that are not live, or for want of room.
    fn is_held_up(&self) -> bool {
        let queued = SlotState::Open(OpenState::Queued);
        self.slots.iter().any(|candidate| {
            let is_late = candidate.slot.state == queued
                && is_live(candidate.slot)
                && candidate.slot.opened_by != TriggerType::Catchup;
            candidate.lane.is_some() || is_late
        })
    }

    /// Of those recorded under `latest` one slot stays queued, the newest live one, and none that is older than one that
    /// begins.
    fn keep_only_the_newest_queued(&mut self) {
        let begins = |index: &usize| {
            let candidate = self.slots.get(*index).filter(|candidate| gives_way(candidate));
            let step = self.moves.get(*index).copied().flatten();
            let is_new = candidate.is_some_and(|candidate| candidate.slot.attempt == 0);
            is_new && matches!(step, Some(Move::Start(_)))
        };
        let in_line = |index: &usize| self.stays_queued(*index) || begins(index);
        let in_line: Vec<_> = (0..self.slots.len()).filter(in_line).collect();
        let Some((_newest, older)) = in_line.split_last() else { return };
        for index in older {
            let is_queued = self.stays_queued(*index);
            if let Some(step) = self.moves.get_mut(*index).filter(|_| is_queued) {
                *step = Some(Move::Close(Disposition::Skipped(SkipReason::Superseded)));
            }
        }
    }

    /// Whether a slot that was recorded under `latest` is in the queue after this.
    fn stays_queued(&self, index: usize) -> bool {
        let Some(candidate) = self.slots.get(index) else { return false };
        let step = self.moves.get(index).copied().flatten();
        let is_queued = candidate.slot.state == SlotState::Open(OpenState::Queued);
        gives_way(candidate) && (step == Some(Move::Queue) || (step.is_none() && is_queued))
    }
}

/// Whether a slot was opened by a sensor schedule's deadline, and its sensor has not come.
fn waits_for_sensor(pipeline: &Pipeline, candidate: &Candidate<'_>) -> bool {
    let start = pipeline.starts.iter().find(|start| start.schedule.id() == candidate.schedule);
    candidate.slot.opened_by == TriggerType::Scheduler
        && start
            .is_some_and(|start| matches!(start.schedule.recurrence(), Recurrence::Sensor { .. }))
}

/// Why a slot that the schedule owed is not even started if it is ready: its time was over for longer than a missed
/// one would be caught up.
fn too_late(pipeline: &Pipeline, candidate: &Candidate<'_>, now: Timestamp) -> Option<SkipReason> {
    let start = pipeline.starts.iter().find(|start| start.schedule.id() == candidate.schedule)?;
    let is_owed = matches!(candidate.slot.opened_by, TriggerType::Scheduler | TriggerType::Catchup);
    let window = pipeline.catchup.window;
    let late = now.duration_since(candidate.slot.closes_at);
    (is_owed && late > start.start_grace.max(window.unwrap_or_default()))
        .then_some(if window.is_some() { SkipReason::Expired } else { SkipReason::NoCatchup })
}

/// The places that runs of the pipeline take.
struct Places {
    free: u32,
    /// How many of them are taken by runs that the schedule owed.
    live: u32,
    /// How many are held for slots that found no room.
    held: u32,
    /// How many are taken by which lane.
    lanes: BTreeMap<u64, u32>,
}

impl Places {
    fn taken(pipeline: &Pipeline, slots: &[Candidate<'_>], moves: &[Option<Move>]) -> Self {
        let (free, lanes) = (pipeline.active_runs_max, BTreeMap::new());
        let mut places = Self { free, live: 0, held: 0, lanes };
        for (candidate, step) in slots.iter().zip(moves) {
            let occupies =
                matches!(candidate.slot.state, SlotState::Open(state) if state.occupies_place());
            if occupies && step.is_none() {
                places.take(candidate);
            }
        }
        places
    }

    fn is_free_for(&self, candidate: &Candidate<'_>) -> bool {
        let has_lane_room = candidate.lane.is_none_or(|lane| {
            self.lanes.get(&lane.number).is_none_or(|taken| *taken < lane.places)
        });
        self.free > 0 && has_lane_room
    }

    fn take(&mut self, candidate: &Candidate<'_>) {
        self.live += u32::from(is_live(candidate.slot));
        self.hold(candidate);
    }

    /// Nobody else has the place, and nobody runs in it.
    fn hold(&mut self, candidate: &Candidate<'_>) {
        self.free = self.free.saturating_sub(1);
        if let Some(lane) = candidate.lane {
            *self.lanes.entry(lane.number).or_default() += 1;
        }
    }
}

impl<'a> Candidate<'a> {
    /// Whether it may start: a pause of the pipeline is not one of its backfills.
    fn flow(&self, flow: Flow) -> Flow {
        if flow == Flow::Paused && self.lane.is_some() { Flow::Open } else { flow }
    }

    /// Its turn among those that may start: live ones go before what people asked for, that before backfills.
    fn turn(&self) -> (u8, Option<Reverse<(Timestamp, &'a ScheduleId)>>) {
        let place = (self.nominal, self.schedule);
        match self.lane {
            Some(lane) => (2, (lane.order == Order::Descending).then_some(Reverse(place))),
            None => (u8::from(!is_live(self.slot)), None),
        }
    }
}

/// Whether a slot that finds no room goes on waiting, as long as it may: under `skip` live ones do not pile up.
fn waits_for_room(candidate: &Candidate<'_>) -> bool {
    candidate.overlap == OverlapPolicy::Skip
        && candidate.slot.opened_by != TriggerType::Catchup
        && obeys_policy(candidate.slot)
}

/// Whether a newer slot of the pipeline does a slot's work.
fn gives_way(candidate: &Candidate<'_>) -> bool {
    candidate.overlap == OverlapPolicy::Latest && obeys_policy(candidate.slot)
}

/// What becomes of a slot that is ready, and has no room.
fn without_room(candidate: &Candidate<'_>, now: Timestamp) -> Option<Move> {
    let is_over = now >= candidate.slot.closes_at;
    match (waits_for_room(candidate), candidate.slot.state) {
        (true, _) if is_over => Some(Move::Close(Disposition::Skipped(SkipReason::Overlap))),
        (false, SlotState::Open(OpenState::Waiting)) => Some(Move::Queue),
        (true | false, _) => None,
    }
}

/// Whether the overlap policy may skip a slot: not if somebody asked, when a pause ended, that it be caught up.
fn obeys_policy(slot: &Slot) -> bool {
    is_live(slot) && !slot.is_asked_for()
}

/// Whether the schedule owed it: reruns, and what people and backfills ask for, come after these.
fn is_live(slot: &Slot) -> bool {
    match slot.opened_by {
        TriggerType::Sensor | TriggerType::Reconcile => slot.generation <= 1,
        TriggerType::Scheduler
        | TriggerType::Catchup
        | TriggerType::External
        | TriggerType::Subdag => true,
        TriggerType::Manual | TriggerType::Webhook | TriggerType::Retry | TriggerType::Backfill => {
            false
        }
    }
}

/// How a slot ends whose time is over, or whose pipeline is gone before it began.
fn forced_close(
    slot: &Slot,
    state: OpenState,
    (flow, runner): (Flow, Runner),
    now: Timestamp,
) -> Option<Disposition> {
    let not_begun = matches!(state, OpenState::Waiting | OpenState::Queued);
    if flow == Flow::Retired {
        if not_begun {
            return Some(Disposition::Skipped(SkipReason::Retired));
        }
        if state == OpenState::Backoff {
            return Some(Disposition::Failed);
        }
    }
    if now < slot.closes_at {
        return None;
    }
    let skipped = |reason| Some(Disposition::Skipped(reason));
    match state {
        OpenState::Waiting | OpenState::Queued if flow == Flow::Paused => {
            skipped(SkipReason::Paused)
        }
        OpenState::Waiting if runner == Runner::SomebodyElse => Some(Disposition::Missed),
        OpenState::Waiting => skipped(SkipReason::NotReady),
        OpenState::Queued => skipped(SkipReason::Expired),
        OpenState::Running | OpenState::Backoff => Some(Disposition::Failed),
        OpenState::Monitoring => Some(Disposition::Completed),
    }
}

#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
