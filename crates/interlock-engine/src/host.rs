//! What the engines of one process have in common, one for each shard that it owns.
//!
//! Jobs of the kinds that run on a host can be looked for there and nowhere else: their runs name it. The owner of a shard that
//! finds a run of another host asks nobody: that host says by letter what became of it ([`InboxRecord::Job`]), and while it is
//! gone the run is uncertain and keeps its place (S18).

use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU32, AtomicU64, Ordering::SeqCst},
    },
    time::Duration,
};

use interlock_core::{pipeline::TriggerKind, retry::FailureCategory};
use interlock_ports::trigger::{LookUp, Outcome, What};
use interlock_store::{Role, Roll, record::InboxRecord};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{
    catchup_log::{CatchupLog, CatchupMember},
    ending::StartsUnderWay,
    engine::NewsOf,
    seam::World,
    vitals::{KEPT, Pulse, Vitals},
};

/// Kept with a run whose job can be looked for on one host only: its name.
pub const HOST: &str = "host";

/// What the engines of one process share.
#[derive(Debug, Clone, Default)]
pub struct Host {
    /// The name of the place where its jobs run; none where there is no other.
    pub name: Option<String>,
    /// What they count.
    pub vitals: Arc<Vitals>,
    pub(crate) starts: StartsUnderWay,
    pub(crate) busy: Arc<Busy>,
    pub(crate) catchups: CatchupLog,
}

impl Host {
    /// The host of that name.
    pub fn named(name: Option<String>) -> Self {
        Self { name, ..Self::default() }
    }

    /// Whether a start of this run is on its way to its job: until it has arrived nobody can say that there was none.
    pub fn is_starting(&self, run_id: &str) -> bool {
        self.starts.contains(run_id)
    }

    /// Where a job of this kind will have to be looked for.
    pub(crate) fn of(&self, kind: &TriggerKind) -> Option<(String, Value)> {
        let is_here = matches!(kind, TriggerKind::Command(_) | TriggerKind::Steps(_));
        self.name.clone().filter(|_| is_here).map(|name| (HOST.to_owned(), name.into()))
    }

    /// Whether a run's job can be looked for here and nowhere else.
    pub fn has(&self, metadata: &BTreeMap<String, Value>) -> bool {
        let named = metadata.get(HOST).and_then(Value::as_str);
        named.is_some() && named == self.name.as_deref()
    }

    /// The host of a run, if it is another one.
    pub(crate) fn other<'a>(&self, metadata: &'a BTreeMap<String, Value>) -> Option<&'a str> {
        let host = metadata.get(HOST)?.as_str()?;
        (self.name.as_deref() != Some(host)).then_some(host)
    }
}

/// Whether somebody on a host is there: instances are named `host/…`.
pub(crate) fn is_present(roll: &Roll, host: &str) -> bool {
    roll.present.iter().any(|(role, name)| {
        *role == Role::Engine && name.rsplit_once('/').is_some_and(|(of, _)| of == host)
    })
}

/// Runs that are under way, over all shards of the process.
#[derive(Debug, Default)]
pub(crate) struct Busy {
    pub(crate) total: AtomicU32,
    pub(crate) catchup: AtomicU32,
}

impl Busy {
    /// A pipeline had so many, and has so many now: all, and those of missed slots.
    pub(crate) fn moved(&self, before: (u32, u32), after: (u32, u32)) {
        self.total.fetch_add(after.0.wrapping_sub(before.0), SeqCst);
        self.catchup.fetch_add(after.1.wrapping_sub(before.1), SeqCst);
    }
}

/// How long the lease can be believed without asking, by a clock that nobody sets and that goes on while the machine
/// sleeps. It is counted from before the lease was asked for, so that it is over here before it is over in the store.
#[derive(Debug, Clone, Default)]
pub(crate) struct Trust(Arc<AtomicU64>);

impl Trust {
    /// The clock that it goes by.
    pub(crate) fn clock(world: &dyn World) -> Duration {
        world.boot().unwrap_or_else(|| world.uptime())
    }

    /// A lease was asked for at an instant of that clock, and given.
    pub(crate) fn given(&self, asked_at: Duration, lease: SignedDuration) {
        // Clocks run at different speeds.
        let lease = Duration::try_from(lease).unwrap_or_default() * 9 / 10;
        self.0.store(millis(asked_at.saturating_add(lease)), SeqCst);
    }

    /// It is about to be given back.
    pub(crate) fn end(&self) {
        self.0.store(0, SeqCst);
    }

    /// Whether it can be believed.
    pub(crate) fn holds(&self, world: &dyn World) -> bool {
        millis(Self::clock(world)) < self.0.load(SeqCst)
    }
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// What an engine adds to what all of them share, taken back when it ends.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) vitals: Arc<Vitals>,
    /// This engine's own.
    pub(crate) pulse: Pulse,
    kept: [u64; KEPT.len()],
    pub(crate) pipelines: u64,
    /// Its place among those that catch up.
    pub(crate) catchup: CatchupMember,
}

impl Part {
    /// Nothing yet.
    pub(crate) fn of(host: &Host) -> Self {
        let (vitals, catchup) = (Arc::clone(&host.vitals), host.catchups.enter());
        Self { vitals, pulse: Pulse::default(), kept: [0; KEPT.len()], pipelines: 0, catchup }
    }

    /// A pass is over: so many pipelines are declared now, and so much is kept, in the order of [`KEPT`].
    pub(crate) fn counts(&mut self, pipelines: usize, kept: [usize; KEPT.len()]) {
        self.pulse.beat();
        self.moved(pipelines as u64, kept.map(|entries| entries as u64));
    }

    fn moved(&mut self, pipelines: u64, kept: [u64; KEPT.len()]) {
        self.vitals.pipelines.moved(std::mem::replace(&mut self.pipelines, pipelines), pipelines);
        let before = std::mem::replace(&mut self.kept, kept);
        for ((number, before), after) in self.vitals.kept.iter().zip(before).zip(kept) {
            number.moved(before, after);
        }
    }
}

impl Drop for Part {
    fn drop(&mut self) {
        self.moved(0, [0; KEPT.len()]);
    }
}

/// A letter about a job, for the owner of its shard.
pub fn letter(host: &str, run_id: &str, at: Timestamp, what: Heard) -> Option<InboxRecord> {
    let (mut message, mut category, mut metadata) = (None, None, BTreeMap::new());
    let ended = |outcome: Outcome| match outcome {
        Outcome::Success { metadata } => ("succeeded", None, None, metadata),
        Outcome::Failure { message, category, metadata } => {
            ("failed", Some(message), Some(category.as_str().to_owned()), metadata)
        }
        Outcome::Cancelled { message } => ("cancelled", Some(message), None, BTreeMap::new()),
    };
    let said = match what {
        Heard::Told(What::Started { metadata: of })
        | Heard::Found(LookUp::Running { metadata: of }) => {
            metadata = of;
            "running"
        }
        Heard::Told(What::Finished(outcome)) | Heard::Found(LookUp::Finished(outcome)) => {
            let said;
            (said, message, category, metadata) = ended(outcome);
            said
        }
        Heard::Told(What::Lost { reason }) | Heard::Found(LookUp::CannotTell { reason }) => {
            message = Some(reason);
            "lost"
        }
        Heard::Found(LookUp::NeverStarted) => "neverStarted",
        // Only a remark.
        Heard::Told(What::StepChanged { .. }) => return None,
    };
    let (host, run_id, said) = (host.to_owned(), run_id.to_owned(), said.to_owned());
    Some(InboxRecord::Job { host, run_id, at, said, message, category, metadata })
}

/// How something about a job was learned.
#[derive(Debug)]
pub enum Heard {
    /// Its adapter told it.
    Told(What),
    /// It was looked up.
    Found(LookUp),
}

/// What a letter says.
pub(crate) fn news_of(letter: &InboxRecord) -> Option<NewsOf> {
    let InboxRecord::Job { said, message, category, metadata, .. } = letter else { return None };
    let (message, metadata) = (message.clone().unwrap_or_default(), metadata.clone());
    Some(match said.as_str() {
        "running" => NewsOf::Job(What::Started { metadata }),
        "succeeded" => NewsOf::Job(What::Finished(Outcome::Success { metadata })),
        "failed" => {
            let category = category.as_deref().and_then(|word| FailureCategory::parse(word).ok());
            let category = category.unwrap_or(FailureCategory::Transient);
            NewsOf::Job(What::Finished(Outcome::Failure { message, category, metadata }))
        }
        "cancelled" => NewsOf::Job(What::Finished(Outcome::Cancelled { message })),
        "lost" => NewsOf::Job(What::Lost { reason: message }),
        "neverStarted" => NewsOf::LookedUp(LookUp::NeverStarted),
        _ => return None,
    })
}
