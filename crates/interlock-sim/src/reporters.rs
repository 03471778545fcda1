//! Jobs that somebody else runs: they report early, late, twice, in another order, from a spool, or never; and the
//! instances say that they listen.
//!
//! A reporter knows for which slot it ran, by the enumeration of the checkers. It tells them what it said and when that
//! was durable, so that they can hold it against what became of the slot.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_engine::seam::World as _;
use interlock_store::{
    Store,
    record::{InboxRecord, ReportRecord},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    clockwork::{NATURE, Pid, ProcessWorld},
    luck::seconds,
    naive,
    nemesis::Nemesis,
    random::Random,
    tap::Tap,
    truth::Truth,
};

/// A reporter looks so far ahead for its next slot.
const AHEAD: SignedDuration = SignedDuration::from_hours(49);
/// How often listeners say that they listen: as seldom as is just believed, for every word is a group.
const SAY_EVERY: u64 = 14;

/// What a job does about one slot.
#[derive(Debug, Clone, Copy)]
enum Manner {
    Never,
    InTime,
    Twice,
    StartAndEnd,
    EndAndStart,
    Fails,
    Late,
    Early,
    Spooled,
}

/// How a report comes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Way {
    /// Nobody hears it if nobody is up.
    Ping,
    /// It waits until somebody is, with its true time.
    Spool,
}

/// Lets everybody report who is run by somebody else, until an instant.
pub fn start(nemesis: &Nemesis, until: Timestamp) {
    let nature = nemesis.clockwork.process(NATURE);
    for name in nemesis.files.names() {
        let Some(truth) = nemesis.files.truth(&name).filter(|truth| truth.is_watched()) else {
            continue;
        };
        let random = Random::of(nemesis.seed, &format!("reporter {name}"));
        let (nemesis, world) = (nemesis.clone(), nature.clone());
        let reporter = Reporter { nemesis, world, name, truth, random, sent: 0 };
        nature.spawn("a reporter", Box::pin(reporter.live(until)));
    }
}

struct Reporter {
    nemesis: Nemesis,
    world: ProcessWorld,
    name: PipelineId,
    truth: Arc<Truth>,
    random: Random,
    sent: u64,
}

impl Reporter {
    async fn live(mut self, until: Timestamp) {
        let mut after = self.nemesis.clockwork.time();
        while after < until {
            let Some(start) = self.truth.starts.first().cloned() else { return };
            let mut slots = naive::walk(&self.truth, &start.pattern, after, after + AHEAD);
            let Some(slot) = slots.next() else {
                drop(slots);
                after += AHEAD;
                self.sleep_until(after).await;
                continue;
            };
            let gap = slots.next().map_or(AHEAD, |next| next.duration_since(slot));
            drop(slots);
            let manner = self.draw(gap);
            self.run(slot, manner).await;
            after = slot;
        }
    }

    fn draw(&mut self, gap: SignedDuration) -> Manner {
        let is_calm = self.nemesis.luck.is_calm();
        match self.random.below(14) {
            0 => Manner::Never,
            _ if is_calm => Manner::InTime,
            1 => Manner::Twice,
            2 | 3 => Manner::StartAndEnd,
            4 => Manner::EndAndStart,
            5 => Manner::Fails,
            6 | 7 => Manner::Late,
            // Only where the clocks of instances, which may be wrong by more than a minute, cannot make it the one before.
            8 if gap > SignedDuration::from_mins(40) => Manner::Early,
            9 | 10 => Manner::Spooled,
            _ => Manner::InTime,
        }
    }

    async fn run(&mut self, slot: Timestamp, manner: Manner) {
        let some = seconds(self.random.between(5, 200));
        let rid = format!("{}-{}", self.name, slot.as_second());
        match manner {
            Manner::Never => self.nemesis.luck.saw("report never"),
            Manner::InTime => self.says("success", (slot, slot + some), None, Way::Ping).await,
            Manner::Fails => self.says("fail", (slot, slot + some), None, Way::Ping).await,
            Manner::Twice => {
                self.nemesis.luck.saw("report twice");
                self.says("success", (slot, slot + some), None, Way::Ping).await;
                self.says("success", (slot, slot + some + seconds(20)), None, Way::Ping).await;
            }
            Manner::StartAndEnd => {
                self.says("start", (slot, slot + seconds(5)), Some(&rid), Way::Ping).await;
                self.says("success", (slot, slot + some), Some(&rid), Way::Ping).await;
            }
            Manner::EndAndStart => {
                self.nemesis.luck.saw("report out of order");
                self.says("success", (slot, slot + some), Some(&rid), Way::Ping).await;
                self.says("start", (slot, slot + some), Some(&rid), Way::Ping).await;
            }
            Manner::Late => {
                self.nemesis.luck.saw("report late");
                let late = slot + seconds(360) + some / 2;
                self.says("success", (slot, late), None, Way::Ping).await;
            }
            Manner::Early => {
                self.nemesis.luck.saw("report early");
                self.says("success", (slot, slot - seconds(30)), None, Way::Ping).await;
            }
            Manner::Spooled => self.says("success", (slot, slot + some), None, Way::Spool).await,
        }
    }

    /// Says something about a slot at an instant.
    async fn says(
        &mut self,
        said: &'static str,
        (slot, at): (Timestamp, Timestamp),
        rid: Option<&str>,
        way: Way,
    ) {
        self.sleep_until(at).await;
        self.sent += 1;
        let now = self.nemesis.clockwork.time();
        let mut report = ReportRecord::of(said, now.max(at), None);
        report.rid = rid.map(str::to_owned);
        let key = format!("report {}", self.sent);
        let letter = Letter {
            nemesis: self.nemesis.clone(),
            world: self.world.clone(),
            name: self.name.clone(),
            slot,
            key,
            report,
        };
        match way {
            Way::Ping => {
                if !letter.is_taken().await {
                    self.nemesis.luck.saw("report lost");
                }
            }
            Way::Spool => {
                let wait = seconds(self.random.between(60, 20_000));
                let later = async move {
                    letter.world.sleep(wait).await;
                    while !letter.is_taken().await {
                        letter.world.sleep(seconds(300)).await;
                    }
                    letter.nemesis.luck.saw("report spooled");
                };
                self.world.spawn("a spool", Box::pin(later));
            }
        }
    }

    async fn sleep_until(&self, at: Timestamp) {
        let now = self.nemesis.clockwork.time();
        if at > now {
            self.world.sleep(at.duration_since(now)).await;
        }
    }
}

/// A report on its way.
struct Letter {
    nemesis: Nemesis,
    world: ProcessWorld,
    name: PipelineId,
    slot: Timestamp,
    key: String,
    report: ReportRecord,
}

impl Letter {
    /// Hands it in, if there is somebody to take it.
    async fn is_taken(&self) -> bool {
        let instances = &self.nemesis.instances;
        let now = self.nemesis.clockwork.time();
        let is_anybody_up = instances.pids().into_iter().any(|pid| instances.is_up(pid));
        if !is_anybody_up || self.nemesis.luck.is_disk_full(now) {
            return false;
        }
        let record = InboxRecord::Report(Box::new(self.report.clone()));
        let taken = self.nemesis.store.post(&self.name, &self.key, &record).await.is_ok();
        if taken {
            let (said, slot) = (self.report.said.as_str(), self.slot);
            self.nemesis.tap.checker().reported(&self.name, slot, said);
        }
        taken
    }
}

/// An instance says that it listens, for as long as it lives.
pub(crate) async fn listen(pid: Pid, store: Arc<dyn Store>, world: ProcessWorld, tap: Tap) {
    let (mut since, mut until, mut after): (Option<Timestamp>, Option<Timestamp>, Option<String>) =
        (None, None, None);
    loop {
        let now = tap.checker().time();
        let is_whole = until.is_some_and(|until| now.duration_since(until) <= seconds(15));
        let began = since.filter(|_| is_whole).unwrap_or(now);
        // Whether it arrives or not: it is true.
        tap.checker().listened((began, now));
        let instance = format!("instance {pid}");
        let record =
            InboxRecord::Heard { instance, since: began, until: now, after: after.clone() };
        let key = format!("heard/{pid}/{}", now.as_millisecond());
        if store.post(&PipelineId::system(), &key, &record).await.is_ok() {
            (since, until, after) = (Some(began), Some(now), Some(key));
        }
        world.sleep(seconds(SAY_EVERY)).await;
    }
}
