//! What a pipeline owes since its watermarks: the scheduler's plan, catch-up included.
//!
//! A slot is **live** while now − nominal ≤ `startGrace`: it opens whatever the catch-up window says, so
//! that a restart of a few seconds over a slot's instant loses nothing. Older and unrecorded slots were
//! **missed**; of those the policy picks the ones that run, over all schedules of the pipeline in order of
//! time. The plan names every slot between the old watermarks and the new ones exactly once (S3).
//!
//! What a **sensor** opens is not caught up: until its deadline it opens whenever we come to it, and waits; after that it
//! is `no_sensor`.
//!
//! What lies in a **pause** is its gap however young it is: it is caught up, by what somebody asked for when the pause
//! ended or else by the policy, and is not live. What somebody asked for is about that pause alone. So the time before
//! it, the pause and the time after it are planned one after the other, each by itself.
//!
//! What people **named** while nobody served stands ahead of the watermark and is passed over; what a running backfill
//! has still to come to is left to it. Under `latest` either supersedes everything older. See
//! `docs/adr/0051-rows-ahead-of-the-watermark.md`.
//!
//! After a damaged ledger was **recovered** it is not known what ran up to its last write: what is owed up to then is
//! `unknown` and does not run. See `docs/adr/0052-recover.md`.
//!
//! A plan is recorded in groups, and whoever records it may die between any two. The order of the portions
//! is what makes that harmless: planned again from the watermarks reached, the choice is the same. See
//! `docs/adr/0009-catch-up.md` and `docs/adr/0032-pauses.md`.

mod away;

use std::collections::BTreeMap;

use jiff::{SignedDuration, Timestamp};

pub use self::away::plan_away;
use crate::{
    agenda::Work,
    pipeline::{Catchup, OverlapPolicy, StartSchedule},
    schedule::Recurrence,
    slot::{Disposition, SkipReason},
};

/// The most live slots of a schedule that one plan opens.
pub const LIVE_MAX: usize = 1_000;
/// The most slots out of the window that one plan counts.
pub const MISSED_MAX: u64 = 1_000_000;

/// What a plan is made of.
#[derive(Debug, Clone)]
pub struct Gap<'a> {
    /// The schedules whose slots are derived from the clock, by id.
    pub owed: Vec<Owed<'a>>,
    /// What becomes of the pipeline's slots.
    pub work: Work,
    /// The policy.
    pub catchup: &'a Catchup,
    /// The pauses that are over and of which something may not be recorded yet, in order of time.
    pub pauses: Vec<Pause>,
    /// Times in which no report could have reached anybody; of use if somebody else runs the pipeline.
    pub deaf: Vec<(Timestamp, Timestamp)>,
    /// The slots of these schedules that ran or are open, from the first that is owed on, in order of time. Those that a
    /// watermark has passed are among them: under `latest` they supersede what other schedules still owe.
    pub ran: Vec<Timestamp>,
    /// Up to when a recovered ledger does not know what ran: nothing that is owed up to then runs.
    pub uncertain_until: Option<Timestamp>,
    /// Now.
    pub now: Timestamp,
}

/// A schedule and how far it is recorded.
#[derive(Debug, Clone)]
pub struct Owed<'a> {
    /// When, and for how long a slot is live.
    pub start: &'a StartSchedule,
    /// Every slot at or before it is recorded.
    pub watermark: Timestamp,
    /// How much later than their instants the slots open.
    pub delay: SignedDuration,
    /// What is recorded after the watermark already.
    pub recorded: Recorded,
    /// The times, each without its end, whose slots a running backfill has still to come to.
    pub claimed: Vec<(Timestamp, Timestamp)>,
}

/// Rows and spans that stand after a watermark: a watchdog and people do not wait for the scheduler.
#[derive(Debug, Clone, Default)]
pub struct Recorded {
    /// Slots, by instant.
    pub rows: BTreeMap<Timestamp, Standing>,
    /// Spans, by first and last slot.
    pub spans: Vec<(Timestamp, Timestamp, Standing)>,
}

/// Whether catch-up may still change what is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// It is open, or ran.
    Ran,
    /// It was decided that it does not run.
    Settled,
    /// It was called missed or unknown.
    Provisional,
    /// A backfill opened it and was cancelled before it began: it may run as if it were not recorded (S7).
    Withdrawn,
}

/// A pause that is over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Pause {
    /// Its first instant.
    pub since: Timestamp,
    /// Its end: the first instant after it.
    pub until: Timestamp,
    /// What was asked for when it ended, instead of the policy.
    pub wish: Option<Wish>,
}

/// How the gap that a pause left is caught up.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wish {
    /// Nothing of it runs.
    None,
    /// The newest runs, however long the pause was.
    Latest,
    /// All of it runs, however long the pause was.
    All,
}

/// What is to be recorded for one pipeline.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Plan {
    /// In the order in which it must be recorded.
    pub portions: Vec<Portion>,
    /// Whether there is more to plan right away (S17).
    pub is_cut_off: bool,
    /// What somebody asked for about these slots, instead of the policy.
    pub wish: Option<Wish>,
    /// Slots in the gap that ran, or were decided, already: they are not run a second time.
    pub already_recorded: u64,
}

/// What is recorded of one schedule, in order of time.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Portion {
    /// Which of [`Gap::owed`].
    pub owed: usize,
    /// What becomes of its slots.
    pub steps: Vec<Step>,
    /// Where its watermark then is; it stays when absent.
    pub watermark: Option<Timestamp>,
}

/// What becomes of slots.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// They open because their time has come.
    Live(Vec<Timestamp>),
    /// They were missed and run all the same.
    Open(Vec<Timestamp>),
    /// They were missed and do not run.
    Skip(Stretch),
    /// It was called missed already, and does not run for this reason.
    Close(Timestamp, SkipReason),
}

/// Slots in a row with the same fate.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Stretch {
    /// The first of them.
    pub first: Timestamp,
    /// The last of them.
    pub last: Timestamp,
    /// How many.
    pub count: u64,
    /// What became of them.
    pub fate: Fate,
}

/// What becomes of slots that were missed and do not run.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// Nobody wants them any more.
    Skipped(SkipReason),
    /// Somebody else was to run them, could have reported all the time, and did not.
    Missed,
    /// Somebody else was to run them, and could not have reported (S10); or a recovered ledger does not know.
    Unknown,
}

/// How many slots of a plan have which fate.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Counts {
    /// Those whose time has come.
    pub live: u64,
    /// Those that were missed and run.
    pub run: u64,
    /// Those that were missed and do not run, by reason.
    pub skipped: BTreeMap<SkipReason, u64>,
    /// Those that somebody else was to run and of which nothing was heard, by the word for that.
    pub unreported: BTreeMap<&'static str, u64>,
}

impl Pause {
    fn covers(&self, slot: Timestamp) -> bool {
        (self.since..self.until).contains(&slot)
    }
}

impl Wish {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::None, Self::Latest, Self::All];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Latest => "latest",
            Self::All => "all",
        }
    }

    /// Reads one of the words.
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|wish| wish.as_str() == text)
    }
}

impl Fate {
    /// How it is recorded.
    pub fn disposition(self) -> Disposition {
        match self {
            Self::Skipped(reason) => Disposition::Skipped(reason),
            Self::Missed => Disposition::Missed,
            Self::Unknown => Disposition::Unknown,
        }
    }

    /// The reason of a skip, else the word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Skipped(reason) => reason.as_str(),
            Self::Missed | Self::Unknown => self.disposition().as_str(),
        }
    }
}

impl Counts {
    /// All that were missed.
    pub fn missed(&self) -> u64 {
        self.run + self.skipped.values().sum::<u64>() + self.unreported.values().sum::<u64>()
    }

    fn add(&mut self, fate: Fate, count: u64) {
        match fate {
            Fate::Skipped(reason) => *self.skipped.entry(reason).or_default() += count,
            Fate::Missed | Fate::Unknown => {
                *self.unreported.entry(fate.as_str()).or_default() += count;
            }
        }
    }
}

impl Plan {
    /// How many slots have which fate.
    pub fn counts(&self) -> Counts {
        let mut counts = Counts::default();
        for step in self.portions.iter().flat_map(|portion| &portion.steps) {
            match step {
                Step::Live(slots) => counts.live += slots.len() as u64,
                Step::Open(slots) => counts.run += slots.len() as u64,
                Step::Skip(stretch) => counts.add(stretch.fate, stretch.count),
                Step::Close(_, reason) => counts.add(Fate::Skipped(*reason), 1),
            }
        }
        counts
    }
}

impl Recorded {
    /// What stands at an instant; a row wins over the span that covers it.
    fn at(&self, slot: Timestamp) -> Option<(Standing, Form)> {
        let row = self.rows.get(&slot).map(|standing| (*standing, Form::Row));
        row.or_else(|| {
            let span = self.spans.iter().find(|(first, last, _)| (*first..=*last).contains(&slot));
            span.map(|(.., standing)| (*standing, Form::Span))
        })
    }

    fn is_settled(&self, slot: Timestamp) -> bool {
        let standing = self.at(slot).map(|(standing, _)| standing);
        matches!(standing, Some(Standing::Ran | Standing::Settled))
    }
}

/// How something is recorded.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Form {
    Row,
    Span,
}

impl Owed<'_> {
    /// The last instant whose slot is due.
    fn due_until(&self, now: Timestamp) -> Timestamp {
        minus(now, self.delay)
    }

    /// From this instant on slots are live.
    fn live_from(&self, (work, now): (Work, Timestamp)) -> Timestamp {
        minus(self.due_until(now), self.start.live_for(work))
    }

    /// The first slot that is due and not recorded.
    fn first_due(&self, now: Timestamp) -> Option<Timestamp> {
        let next = self.start.schedule.after(self.watermark);
        next.filter(|slot| *slot <= self.due_until(now))
    }

    /// Whether a running backfill has still to come to a slot.
    fn is_claimed(&self, slot: Timestamp) -> bool {
        self.claimed.iter().any(|(from, to)| (*from..*to).contains(&slot))
    }

    /// Whether catch-up has no say in a slot.
    fn is_passed_over(&self, slot: Timestamp) -> bool {
        self.recorded.is_settled(slot) || self.is_claimed(slot)
    }

    /// The last slot before an instant that a running backfill has still to come to.
    fn last_claimed(&self, before: Timestamp) -> Option<Timestamp> {
        let last = |(from, to): &(Timestamp, Timestamp)| {
            self.start.schedule.previous(before.min(*to)).filter(|slot| slot >= from)
        };
        self.claimed.iter().filter_map(last).max()
    }

    /// A sensor opens its slots; what it did not is not replayed.
    fn is_sensor(&self) -> bool {
        matches!(self.start.schedule.recurrence(), Recurrence::Sensor { .. })
    }

    /// Whether the sensor of a slot may still come: its deadline alone gives it up.
    fn is_awaited(&self, slot: Timestamp, now: Timestamp) -> bool {
        self.start.deadline_of(slot).is_some_and(|deadline| now <= deadline)
    }
}

impl Gap<'_> {
    /// Whether something was missed, so that what is recorded ahead matters.
    pub fn has_missed(&self) -> bool {
        let is_missed = |owed: &Owed<'_>, end| {
            owed.start.schedule.after(owed.watermark).is_some_and(|slot| slot < end)
        };
        // Most have none, and this is asked of everybody whose time has come.
        if self.pauses.is_empty() && self.uncertain_until.is_none() {
            let by = (self.work, self.now);
            return self.owed.iter().any(|owed| is_missed(owed, owed.live_from(by)));
        }
        let planner = Planner::new(self);
        planner.is_some_and(|it| self.owed.iter().any(|owed| is_missed(owed, it.end(owed))))
    }

    /// Whether a recovered ledger does not know if a slot ran.
    fn is_uncertain(&self, slot: Timestamp) -> bool {
        self.uncertain_until.is_some_and(|until| slot <= until)
    }

    /// Whether a report on a slot may have found nobody who hears, from when it may come to when its absence is a miss.
    fn is_deaf(&self, slot: Timestamp, start: &StartSchedule) -> bool {
        let from = minus(slot, start.early_for(slot));
        let until = slot.saturating_add(start.live_for(self.work)).unwrap_or(Timestamp::MAX);
        self.deaf.iter().any(|(began, ended)| *began < until && *ended > from)
    }

    /// What is planned first: the time up to the next pause that somebody asked something about, that pause, or what
    /// comes after the last of them. Nothing when nothing is due.
    fn part(&self) -> Option<Part> {
        let mut due = self.owed.iter().filter_map(|owed| owed.first_due(self.now));
        let whole = Part { until: None, asked: None };
        // Of jobs that somebody else runs nothing is caught up.
        let asked = self.pauses.iter().filter(|_| self.work == Work::Started);
        let mut asked = asked.filter_map(|pause| Some((*pause, pause.wish?))).peekable();
        if asked.peek().is_none() {
            return due.next().map(|_| whole);
        }
        let first = due.min()?;
        let part = asked.find(|(pause, _)| first < pause.until).map(|(pause, wish)| {
            if first < pause.since {
                Part { until: Some(pause.since), asked: None }
            } else {
                Part { until: Some(pause.until), asked: Some((pause, wish)) }
            }
        });
        Some(part.unwrap_or(whole))
    }
}

/// Slots that are planned together: what comes later has no say in them.
#[derive(Debug, Clone, Copy)]
struct Part {
    /// They are before this instant, if something comes after them.
    until: Option<Timestamp>,
    /// The pause that they lie in, if somebody asked something about it.
    asked: Option<(Pause, Wish)>,
}

/// Plans a pipeline; an empty plan when nothing is due.
///
/// A watermark in the future (the clock was set back) owes nothing (S15).
pub fn plan(gap: &Gap<'_>) -> Plan {
    let Some(planner) = Planner::new(gap) else { return Plan::default() };
    let mut choice = planner.choose();
    let mut walks = planner.walk_all(&choice);
    if let Some(cut) = planner.cap(&walks) {
        choice = cut;
        walks = planner.walk_all(&choice);
    }
    planner.put_together(walks)
}

/// Which missed slots run.
#[derive(Debug, Clone, Copy)]
enum Choice {
    None,
    /// This one of this schedule.
    One(Timestamp, usize),
    /// Those from this one on.
    From(Timestamp, usize),
}

struct Planner<'a> {
    gap: &'a Gap<'a>,
    /// From when on missed slots may run, and which of them.
    policy: Option<(Timestamp, OverlapPolicy)>,
    part: Part,
}

/// The missed slots of one schedule.
#[derive(Default)]
struct Walk {
    /// What the watchdog wrote and does not run.
    closes: Vec<Step>,
    /// Before the first slot that runs, and how far that goes.
    lead: Vec<Step>,
    lead_until: Option<Timestamp>,
    /// From the first slot that runs on.
    rest: Vec<Step>,
    rest_until: Option<Timestamp>,
    is_cut_off: bool,
    /// Whether the next skip begins a stretch of its own.
    is_broken: bool,
    already_recorded: u64,
}

impl<'a> Planner<'a> {
    /// `None` when nothing is due.
    fn new(gap: &'a Gap<'a>) -> Option<Self> {
        let part = gap.part()?;
        let from = gap.catchup.window.map(|window| minus(gap.now, window));
        let policy = match part.asked {
            _ if gap.work != Work::Started => None,
            None => from.map(|from| (from, gap.catchup.overlap)),
            Some((_, Wish::None)) => None,
            Some((pause, Wish::Latest)) => Some((pause.since, OverlapPolicy::Latest)),
            Some((pause, Wish::All)) => Some((pause.since, OverlapPolicy::All)),
        };
        Some(Self { gap, policy, part })
    }

    /// Missed slots are before this; what is due from then on is live.
    fn end(&self, owed: &Owed<'_>) -> Timestamp {
        let live_from = owed.live_from((self.gap.work, self.gap.now));
        let gap_until = self.paused_until().filter(|_| !owed.is_sensor());
        let end = gap_until.map_or(live_from, |until| until.max(live_from));
        // However young a slot is: it may have run.
        let end = self.gap.uncertain_until.map_or(end, |until| end.max(just_after(until)));
        end.min(self.due_end(owed))
    }

    /// The end of the last pause whose gap these slots are. Where nothing is ever caught up and nobody asked, a slot
    /// of its last minute is as live as after a restart.
    fn paused_until(&self) -> Option<Timestamp> {
        if self.gap.work != Work::Started {
            return None;
        }
        if let Some((pause, _)) = self.part.asked {
            return Some(pause.until);
        }
        self.policy?;
        let pauses = self.gap.pauses.iter().filter(|pause| pause.wish.is_none());
        pauses.map(|pause| pause.until).max()
    }

    /// What is planned is before this.
    fn due_end(&self, owed: &Owed<'_>) -> Timestamp {
        let due_end = minus(owed.due_until(self.gap.now), SignedDuration::from_nanos(-1));
        self.part.until.map_or(due_end, |until| until.min(due_end))
    }

    /// From when on missed slots of a schedule may run. A sensor's are not replayed.
    fn window_from(&self, owed: &Owed<'_>) -> Option<Timestamp> {
        let from = self.policy.map(|(from, _)| from).filter(|_| !owed.is_sensor())?;
        Some(self.gap.uncertain_until.map_or(from, |until| from.max(just_after(until))))
    }

    fn choose(&self) -> Choice {
        let candidates = self.gap.owed.iter().enumerate();
        match self.policy {
            None => Choice::None,
            Some((_, OverlapPolicy::All)) => Choice::From(Timestamp::MIN, 0),
            Some((_, OverlapPolicy::Skip)) => {
                let firsts = candidates.filter_map(|(index, it)| Some((self.first(it)?, index)));
                firsts.min().map_or(Choice::None, |(slot, index)| Choice::One(slot, index))
            }
            Some((_, OverlapPolicy::Latest)) => {
                let lasts = candidates.filter_map(|(index, it)| Some((self.last(it)?, index)));
                let newest = lasts.max().filter(|(slot, _)| !self.is_superseded(*slot));
                newest.map_or(Choice::None, |(slot, index)| Choice::One(slot, index))
            }
        }
    }

    /// Whether a newer slot ran, or a backfill is about to run one: under `latest` that one was the newest.
    fn is_superseded(&self, slot: Timestamp) -> bool {
        let is_in_part = |ran: &&Timestamp| self.part.until.is_none_or(|until| **ran < until);
        let ran = self.gap.ran.iter().rev().find(is_in_part).copied();
        let claimed = self.gap.owed.iter().filter_map(|owed| owed.last_claimed(self.end(owed)));
        ran.into_iter().chain(claimed).any(|newer| newer > slot)
    }

    /// The first missed slot of a schedule that may run.
    fn first(&self, owed: &Owed<'_>) -> Option<Timestamp> {
        let (schedule, end) = (&owed.start.schedule, self.end(owed));
        let mut slot = schedule.next(self.window_from(owed)?)?;
        if slot <= owed.watermark {
            slot = schedule.after(owed.watermark)?;
        }
        while slot < end && owed.is_passed_over(slot) {
            slot = schedule.after(slot)?;
        }
        (slot < end).then_some(slot)
    }

    /// The last one.
    fn last(&self, owed: &Owed<'_>) -> Option<Timestamp> {
        let (schedule, from) = (&owed.start.schedule, self.window_from(owed)?);
        let may_run = |slot: Timestamp| slot > owed.watermark && slot >= from;
        let mut slot = schedule.previous(self.end(owed))?;
        while may_run(slot) && owed.is_passed_over(slot) {
            slot = schedule.previous(slot)?;
        }
        may_run(slot).then_some(slot)
    }

    /// Where the oldest are cut, if there are more than a plan may run.
    fn cap(&self, walks: &[Walk]) -> Option<Choice> {
        let opened = walks.iter().enumerate().flat_map(|(index, walk)| {
            let slots = walk.rest.iter().filter_map(|step| match step {
                Step::Open(slots) => Some(slots),
                Step::Live(_) | Step::Skip(_) | Step::Close(..) => None,
            });
            slots.map(move |slots| (index, slots))
        });
        let max = self.gap.catchup.runs_max.max(1) as usize;
        let count: usize = opened.clone().map(|(_, slots)| slots.len()).sum();
        let over = count.checked_sub(max).filter(|over| *over > 0)?;
        let opened = opened.flat_map(|(index, slots)| slots.iter().map(move |slot| (*slot, index)));
        let mut opened: Vec<_> = opened.collect();
        let (_, &mut (slot, index), _) = opened.select_nth_unstable(over);
        Some(Choice::From(slot, index))
    }

    fn walk_all(&self, choice: &Choice) -> Vec<Walk> {
        let owed = self.gap.owed.iter().enumerate();
        owed.map(|(index, owed)| self.walk(index, owed, *choice)).collect()
    }

    /// Goes through the missed slots of one schedule.
    fn walk(&self, index: usize, owed: &Owed<'_>, choice: Choice) -> Walk {
        let mut walk = Walk::default();
        let end = self.end(owed);
        let from = self.window_from(owed);
        let mut counted = 0;
        let mut next = owed.start.schedule.after(owed.watermark);
        while let Some(slot) = next.filter(|slot| *slot < end) {
            let is_in_window = from.is_some_and(|from| slot >= from);
            if !is_in_window {
                counted += 1;
                if counted > MISSED_MAX {
                    walk.is_cut_off = true;
                    break;
                }
            }
            let is_claimed = owed.is_claimed(slot);
            let is_chosen = is_in_window
                && !is_claimed
                && match choice {
                    Choice::None => false,
                    Choice::One(one, of) => (slot, index) == (one, of),
                    Choice::From(first, of) => (slot, index) >= (first, of),
                };
            let fate = self.fate((slot, owed), from);
            match (owed.recorded.at(slot), fate) {
                (Some((Standing::Ran | Standing::Settled, _)), _) => {
                    walk.already_recorded += 1;
                    walk.pass(slot);
                }
                _ if is_chosen => walk.open(slot),
                // Its backfill runs it as it stands.
                (Some(_), _) if is_claimed => walk.pass(slot),
                (None, Fate::Skipped(SkipReason::NoSensor))
                    if owed.is_awaited(slot, self.gap.now) =>
                {
                    walk.live(slot);
                }
                (Some((Standing::Provisional, Form::Row)), Fate::Skipped(reason)) => {
                    walk.closes.push(Step::Close(slot, reason));
                    walk.pass(slot);
                }
                // What was said of a report that did not come stays as it was said, and a cancel stays one.
                (Some((Standing::Provisional | Standing::Withdrawn, _)), _) => walk.pass(slot),
                (None, fate) => walk.skip(slot, fate),
            }
            next = owed.start.schedule.after(slot);
        }
        walk
    }

    /// What becomes of a missed slot that does not run.
    fn fate(&self, (slot, owed): (Timestamp, &Owed<'_>), window_from: Option<Timestamp>) -> Fate {
        if self.gap.is_uncertain(slot) {
            return Fate::Unknown;
        }
        if self.gap.pauses.iter().any(|pause| pause.covers(slot)) {
            return Fate::Skipped(SkipReason::Paused);
        }
        if owed.is_claimed(slot) {
            return Fate::Skipped(SkipReason::Superseded);
        }
        match self.gap.work {
            Work::Watched if self.gap.is_deaf(slot, owed.start) => Fate::Unknown,
            Work::Watched => Fate::Missed,
            Work::Started | Work::Dormant if owed.is_sensor() => {
                Fate::Skipped(SkipReason::NoSensor)
            }
            Work::Started | Work::Dormant => Fate::Skipped(self.reason(slot, window_from)),
        }
    }

    /// Why a missed slot that is ours to start does not run.
    fn reason(&self, slot: Timestamp, window_from: Option<Timestamp>) -> SkipReason {
        match (self.policy, window_from) {
            (None, _) | (_, None) => SkipReason::NoCatchup,
            (Some(_), Some(from)) if slot < from => SkipReason::Expired,
            (Some((_, OverlapPolicy::Skip)), _) => SkipReason::Overlap,
            (Some((_, OverlapPolicy::All)), _) => SkipReason::Capped,
            (Some((_, OverlapPolicy::Latest)), _) => SkipReason::Superseded,
        }
    }

    /// The slots of a schedule whose time has come.
    fn live(&self, index: usize, owed: &Owed<'_>) -> (Option<Portion>, bool) {
        let schedule = &owed.start.schedule;
        let due_end = self.due_end(owed);
        let mut next = schedule.next(self.end(owed));
        if next.is_some_and(|slot| slot <= owed.watermark) {
            next = schedule.after(owed.watermark);
        }
        let (mut slots, mut watermark) = (Vec::new(), None);
        while let Some(slot) = next.filter(|slot| *slot < due_end) {
            if slots.len() >= LIVE_MAX {
                break;
            }
            if !owed.recorded.is_settled(slot) {
                slots.push(slot);
            }
            watermark = Some(slot);
            next = schedule.after(slot);
        }
        let is_cut_off = next.is_some_and(|slot| slot < due_end);
        let steps = if slots.is_empty() { vec![] } else { vec![Step::Live(slots)] };
        (watermark.map(|_| Portion { owed: index, steps, watermark }), is_cut_off)
    }

    fn put_together(&self, walks: Vec<Walk>) -> Plan {
        let is_cut_off = walks.iter().any(|walk| walk.is_cut_off);
        let wish = self.part.asked.map(|(_, wish)| wish);
        let already_recorded = walks.iter().map(|walk| walk.already_recorded).sum();
        let mut plan = Plan { portions: vec![], is_cut_off, wish, already_recorded };
        let (mut leads, mut rests) = (Vec::new(), Vec::new());
        for (owed, walk) in walks.into_iter().enumerate() {
            if !walk.closes.is_empty() {
                plan.portions.push(Portion { owed, steps: walk.closes, watermark: None });
            }
            let portion = |steps, until: Option<Timestamp>| {
                until.map(|_| Portion { owed, steps, watermark: until })
            };
            leads.extend(portion(walk.lead, walk.lead_until));
            rests.extend(portion(walk.rest, walk.rest_until));
        }
        plan.portions.append(&mut leads);
        if is_cut_off {
            return plan;
        }
        plan.portions.append(&mut rests);
        plan.is_cut_off = self.part.until.is_some();
        for (index, owed) in self.gap.owed.iter().enumerate() {
            let (portion, has_more) = self.live(index, owed);
            plan.portions.extend(portion);
            plan.is_cut_off |= has_more;
        }
        plan
    }
}

impl Walk {
    /// Where the next slot belongs.
    fn part(&mut self) -> (&mut Vec<Step>, &mut Option<Timestamp>) {
        if self.rest_until.is_some() {
            (&mut self.rest, &mut self.rest_until)
        } else {
            (&mut self.lead, &mut self.lead_until)
        }
    }

    /// A slot that is recorded already: a stretch ends before it.
    fn pass(&mut self, slot: Timestamp) {
        *self.part().1 = Some(slot);
        self.is_broken = true;
    }

    fn open(&mut self, slot: Timestamp) {
        self.rest_until = Some(slot);
        match self.rest.last_mut() {
            Some(Step::Open(slots)) => slots.push(slot),
            _ => self.rest.push(Step::Open(vec![slot])),
        }
    }

    fn live(&mut self, slot: Timestamp) {
        let (steps, until) = self.part();
        *until = Some(slot);
        match steps.last_mut() {
            Some(Step::Live(slots)) => slots.push(slot),
            _ => steps.push(Step::Live(vec![slot])),
        }
    }

    fn skip(&mut self, slot: Timestamp, fate: Fate) {
        let is_broken = std::mem::take(&mut self.is_broken);
        let (steps, until) = self.part();
        *until = Some(slot);
        match steps.last_mut() {
            Some(Step::Skip(stretch)) if stretch.fate == fate && !is_broken => {
                stretch.last = slot;
                stretch.count += 1;
            }
            _ => steps.push(Step::Skip(Stretch { first: slot, last: slot, count: 1, fate })),
        }
    }
}

fn just_after(at: Timestamp) -> Timestamp {
    at.saturating_add(SignedDuration::from_nanos(1)).unwrap_or(Timestamp::MAX)
}

fn minus(at: Timestamp, duration: SignedDuration) -> Timestamp {
    at.saturating_sub(duration).unwrap_or(Timestamp::MIN)
}

#[cfg(test)]
mod tests;
