//! How bad luck is: what can happen, how often in this seed, and what did.
//!
//! Every kind of fault, and every meeting of a fault with a state that we want to see, is counted by name. A swarm in
//! which one of [`EXPECTED`] never happened tests less than it says, and fails.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};

use crate::random::Random;

/// What can be done to the world, with how often it is chosen in a seed that likes it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Fault {
    /// A process dies at a wait for its store, for a while.
    Crash,
    /// All of them do, for hours.
    Outage,
    /// A process is asked to end, and ends.
    Stop,
    /// A process stands still for longer than its lease.
    Freeze,
    /// A process cannot reach the store.
    Cut,
    /// Answers of the store are lost after it did what was asked.
    Lossy,
    /// The store is slow.
    Slow,
    /// A clock is set forward or back.
    ClockStep,
    /// A file is edited.
    Edit,
    /// A file goes away, or comes back.
    Remove,
    /// Somebody pauses a pipeline.
    Pause,
    /// Somebody resumes one.
    Resume,
    /// Somebody asks for a run.
    Run,
    /// Somebody asks for a slot again.
    Rerun,
    /// Somebody ends something.
    Cancel,
    /// Somebody asks to catch up.
    Catchup,
    /// A sensor reports, perhaps twice, late or with a forged time.
    Sensor,
    /// Somebody reports a job's end by hand.
    Complete,
    /// Somebody asks for slots of the past.
    Backfill,
    /// Somebody pauses, resumes or cancels that.
    SteerBackfill,
    /// Somebody silences alerts for a while.
    Silence,
    /// The disk of the store is full.
    DiskFull,
    /// The calendar has other days.
    Calendar,
    /// The data of a time zone is replaced, and everybody is started again.
    ZoneData,
    /// Evaluators hang, fail or contradict themselves for a while.
    Evaluators,
    /// A channel fails for a while.
    Channel,
}

impl Fault {
    /// All of them, with their weights.
    pub const ALL: [(Self, u64); 26] = [
        (Self::Crash, 12),
        (Self::Outage, 3),
        (Self::Stop, 4),
        (Self::Freeze, 6),
        (Self::Cut, 5),
        (Self::Lossy, 5),
        (Self::Slow, 5),
        (Self::ClockStep, 3),
        (Self::Edit, 8),
        (Self::Remove, 2),
        (Self::Pause, 5),
        (Self::Resume, 5),
        (Self::Run, 6),
        (Self::Rerun, 6),
        (Self::Cancel, 6),
        (Self::Catchup, 2),
        (Self::Sensor, 10),
        (Self::Complete, 3),
        (Self::Backfill, 5),
        (Self::SteerBackfill, 5),
        (Self::Silence, 3),
        (Self::DiskFull, 2),
        (Self::Calendar, 2),
        (Self::ZoneData, 1),
        (Self::Evaluators, 4),
        (Self::Channel, 5),
    ];

    /// Its name in reports.
    pub fn name(self) -> &'static str {
        match self {
            Self::Crash => "crash",
            Self::Outage => "outage",
            Self::Stop => "stop",
            Self::Freeze => "freeze beyond the lease",
            Self::Cut => "store cut off",
            Self::Lossy => "store answers lost",
            Self::Slow => "store slow",
            Self::ClockStep => "clock step",
            Self::Edit => "file edited",
            Self::Remove => "file removed or back",
            Self::Pause => "pause",
            Self::Resume => "resume",
            Self::Run => "run by hand",
            Self::Rerun => "rerun",
            Self::Cancel => "cancel",
            Self::Catchup => "catch-up by hand",
            Self::Sensor => "sensor",
            Self::Complete => "end reported by hand",
            Self::Backfill => "backfill",
            Self::SteerBackfill => "backfill steered",
            Self::Silence => "silence",
            Self::DiskFull => "disk full",
            Self::Calendar => "calendar changed",
            Self::ZoneData => "zone data changed",
            Self::Evaluators => "evaluators",
            Self::Channel => "channel",
        }
    }
}

/// What a swarm must have seen besides every [`Fault`].
pub const EXPECTED: [&str; 66] = [
    "death before a commit",
    "death after a commit",
    "commit applied, answer lost",
    "owner deposed",
    "stale owner refused",
    "job failed",
    "job hung",
    "job's end never reported",
    "job reported twice",
    "job reported late",
    "job's end before its beginning",
    "job lost, then found",
    "start refused",
    "start unclear",
    "start repeated",
    "evaluator hung",
    "evaluator failed",
    "channel failed",
    "channel refused",
    "delivered, but said failed",
    "slot caught up",
    "slot uncertain",
    "slot skipped",
    "incident resolved",
    "report never",
    "report twice",
    "report early",
    "report late",
    "report lost",
    "report out of order",
    "report spooled",
    "slot missed",
    "slot unknown",
    "commit torn",
    "commit delivered twice",
    "clock drift",
    "clock stands still",
    "clock not believed",
    "watchdog deposed",
    "miss told",
    "blindness told",
    "run stuck",
    "run timed out",
    "backfill running",
    "backfill paused",
    "backfill cancelled",
    "backfill done",
    "alert silenced",
    "loop hung",
    "beacon silent for a loop",
    "sensor never",
    "sensor twice",
    "sensor late",
    "sensor flapping",
    "sensor out of order",
    "sensor about another period",
    "sensor with a forged time",
    "sensor about no period",
    "sensor lost",
    "sensor in a pause",
    "sensor after an edit",
    "sensor after its deadline",
    "slot opened by a sensor",
    "slot opened ahead of its period",
    "slot reconciled",
    "slot given up without a sensor",
];

/// How things may stand when a fault comes; each fault should meet each.
pub const STATES: [&str; 8] = [
    "nobody is up",
    "run under way",
    "slots queued",
    "start uncertain",
    "pipeline paused",
    "backfill open",
    "incident open",
    "slot missed",
];

/// How often what happens in one seed.
#[derive(Debug, Clone)]
pub struct Profile {
    /// Faults a day.
    pub faults_per_day: u64,
    weights: Vec<(Fault, u64)>,
    /// Of a thousand jobs, how many misbehave.
    pub jobs_per_mille: u64,
    /// How large clock steps are, in seconds.
    pub clock_seconds: u64,
}

impl Profile {
    /// The profile of a seed: every seed has its likes, so that a swarm sees more than one kind of weather.
    pub fn draw(seed: u64) -> Self {
        let mut random = Random::of(seed, "profile");
        let weights = Fault::ALL
            .map(|(fault, weight)| (fault, weight * [0, 1, 1, 2, 6][random.below(5) as usize]));
        Self {
            faults_per_day: [4, 12, 40][random.below(3) as usize],
            weights: weights.to_vec(),
            jobs_per_mille: [0, 50, 200, 500][random.below(4) as usize],
            clock_seconds: [1, 4, 90][random.below(3) as usize],
        }
    }

    /// Everything sometimes, nothing too often: for long runs.
    pub fn even() -> Self {
        Self {
            faults_per_day: 12,
            weights: Fault::ALL.to_vec(),
            jobs_per_mille: 60,
            clock_seconds: 4,
        }
    }

    /// Nothing happens by chance.
    pub fn none() -> Self {
        Self { faults_per_day: 0, jobs_per_mille: 0, ..Self::even() }
    }

    /// One kind of fault, often.
    pub fn only(fault: Fault) -> Self {
        Self { faults_per_day: 40, weights: vec![(fault, 1)], ..Self::even() }
    }

    /// Draws what happens next.
    pub fn fault(&self, random: &mut Random) -> Fault {
        let total: u64 = self.weights.iter().map(|(_, weight)| weight).sum();
        let mut left = random.below(total);
        for (fault, weight) in &self.weights {
            if left < *weight {
                return *fault;
            }
            left -= weight;
        }
        Fault::Crash
    }
}

/// What is the matter with evaluators or a channel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Trouble {
    /// No answer within the time limit.
    Hangs,
    /// Answers that it cannot.
    Fails,
    /// Now this, now that.
    Flaps,
    /// Says that it never will.
    Refuses,
    /// Does it and says that it failed.
    Lies,
}

/// What is going on now, and what happened.
#[derive(Debug)]
pub struct Luck {
    profile: Profile,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    counts: BTreeMap<&'static str, u64>,
    is_calm: bool,
    evaluators: Option<(Timestamp, Trouble)>,
    channels: BTreeMap<String, (Timestamp, Trouble)>,
    full_until: Option<Timestamp>,
    all_fail_until: Option<Timestamp>,
    met: BTreeMap<Meeting, u64>,
}

/// A fault, and how things stood when it came.
pub type Meeting = (&'static str, &'static str);

impl Luck {
    /// Luck with a profile.
    pub fn new(profile: Profile) -> Self {
        Self { profile, inner: Mutex::default() }
    }

    /// How often what happens.
    pub fn profile(&self) -> &Profile {
        &self.profile
    }

    /// This happened.
    pub fn saw(&self, name: &'static str) {
        *self.lock().counts.entry(name).or_default() += 1;
    }

    /// What happened how often.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.lock().counts.clone()
    }

    /// A fault came while things stood so.
    pub fn met(&self, fault: &'static str, states: &[&'static str]) {
        let mut inner = self.lock();
        for state in states {
            *inner.met.entry((fault, state)).or_default() += 1;
        }
    }

    /// Which faults met which states, and how often.
    pub fn meetings(&self) -> BTreeMap<Meeting, u64> {
        self.lock().met.clone()
    }

    /// From now on nothing goes wrong.
    pub fn calm_down(&self) {
        let mut inner = self.lock();
        inner.is_calm = true;
        inner.evaluators = None;
        inner.channels.clear();
        inner.full_until = None;
        inner.all_fail_until = None;
    }

    /// Whether nothing goes wrong any more.
    pub fn is_calm(&self) -> bool {
        self.lock().is_calm
    }

    /// Evaluators misbehave until then.
    pub fn trouble_evaluators(&self, until: Timestamp, trouble: Trouble) {
        self.lock().evaluators = Some((until, trouble));
    }

    /// A channel misbehaves until then.
    pub fn trouble_channel(&self, channel: &str, until: Timestamp, trouble: Trouble) {
        self.lock().channels.insert(channel.to_owned(), (until, trouble));
    }

    /// Nothing can be written until then.
    pub fn fill_disk(&self, until: Timestamp) {
        self.lock().full_until = Some(until);
    }

    /// Every job that begins until then fails.
    pub fn fail_all(&self, until: Timestamp) {
        self.lock().all_fail_until = Some(until);
    }

    /// Whether every job that begins now fails.
    pub fn do_all_fail(&self, now: Timestamp) -> bool {
        self.lock().all_fail_until.is_some_and(|until| now < until)
    }

    /// Until when nothing could be written, the last time.
    pub fn full_until(&self) -> Option<Timestamp> {
        self.lock().full_until
    }

    /// Whether nothing can be written.
    pub fn is_disk_full(&self, now: Timestamp) -> bool {
        self.lock().full_until.is_some_and(|until| now < until)
    }

    /// What is the matter with evaluators.
    pub fn evaluators(&self, now: Timestamp) -> Option<Trouble> {
        self.lock().evaluators.filter(|(until, _)| now < *until).map(|(_, trouble)| trouble)
    }

    /// What is the matter with a channel.
    pub fn channel(&self, channel: &str, now: Timestamp) -> Option<Trouble> {
        let inner = self.lock();
        inner.channels.get(channel).filter(|(until, _)| now < *until).map(|(_, trouble)| *trouble)
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Some seconds.
pub fn seconds(count: u64) -> SignedDuration {
    SignedDuration::from_secs(count as i64)
}
