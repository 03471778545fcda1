//! Mass events: thousands of pipelines that are due at one instant, and to which one thing happens.
//!
//! Half of them are run elsewhere, half by us. On some days no report comes and every job fails, on others all report at
//! one instant; every file is edited at once; and the store is slow for a minute around the instant at which all of it is judged. What
//! comes of it is judged by all checkers, and what a pass asks of the store by [`work`](crate::work).

use interlock_core::id::PipelineId;
use interlock_engine::{Changes, seam::World as _};
use interlock_store::record::{InboxRecord, ReportRecord};
use jiff::{SignedDuration, Timestamp, tz::TimeZone};

use crate::{
    clockwork::NATURE,
    luck::seconds,
    nemesis::Nemesis,
    random::Random,
    simulation::{Options, Weather},
    truth::{Adapter, Need, Pattern, Policy, Start, Truth},
};

/// After so long without a report a slot is missed.
const GRACE: u64 = 300;
/// What is slow is slow for so long.
const SLOW_FOR: u64 = 60;
/// So long after the instant on which a day turns all files are edited.
const EDITED_AFTER: u64 = 3 * 3_600;
const DAY: SignedDuration = SignedDuration::from_hours(24);

/// The world of a seed: how many pipelines on how many instances, for two days.
pub fn shape(seed: u64) -> Options {
    let mut random = Random::of(seed, "mass shape");
    Options {
        seed,
        days: 2,
        pipelines: random.between(600, 1_200) as u32,
        instances: random.between(1, 2) as u32,
        weather: Weather::Mass,
        ..Options::default()
    }
}

/// A pipeline that is due with all others, once a day.
pub(crate) fn a_pipeline(options: &Options, number: u32) -> Truth {
    let mut random = Random::of(options.seed, "mass instant");
    let pattern = Pattern::Cron {
        minutes: vec![random.below(60) as u8],
        hours: Some(vec![random.below(24) as u8]),
        weekdays: None,
        days: None,
        step: None,
    };
    let is_watched = number.is_multiple_of(2);
    Truth {
        name: format!("p{number:05}"),
        zone: "UTC",
        time_zone: TimeZone::UTC,
        starts: vec![Start { id: "main".to_owned(), pattern, jitter_seconds: 0 }],
        stop: None,
        skips_weekends: false,
        holidays: None,
        window_minutes: Some(360),
        policy: Policy::All,
        catchup_max: 10_000,
        active_max: 1,
        gate: Need::Nothing,
        adapter: if is_watched { Adapter::External } else { Adapter::Runner },
        attempts: 3,
        retries_uncertain: false,
        monitoring_minutes: 0,
        start_grace_minutes: 5,
        is_enabled: true,
        edition: 0,
    }
}

/// What may happen on a day.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MassEvent {
    Miss,
    Failure,
    Edit,
    SlowStore,
}

/// What happens on a day: on the first all of it.
fn events_of(day: u32, random: &mut Random) -> Vec<MassEvent> {
    let all = [MassEvent::Miss, MassEvent::Failure, MassEvent::Edit, MassEvent::SlowStore];
    all.into_iter().filter(|_| random.chance(500) || day == 0).collect()
}

impl Nemesis {
    /// Mass events, day by day; afterwards everybody reports in time.
    pub(crate) async fn haunt_masses(self, (calm, end): (Timestamp, Timestamp)) {
        let mut random = Random::of(self.seed, "mass events");
        let Some(mut slot) = self.next_instant() else { return };
        for day in 0.. {
            if slot > end {
                return;
            }
            let mut events = events_of(day, &mut random);
            let slow_by = random.between(200, 3_000);
            if slot + seconds(EDITED_AFTER * 2) > calm {
                events.clear();
            }
            let has = |event| events.contains(&event);
            self.sleep_until(slot - seconds(10)).await;
            self.spawn_due(slot);
            if has(MassEvent::Failure) {
                self.luck.saw("everything fails");
                self.luck.fail_all(slot + seconds(GRACE * 4));
            }
            if has(MassEvent::Miss) {
                self.luck.saw("everything misses");
            } else {
                // All at one instant, somewhere before it is too late.
                self.sleep_until(slot + seconds(random.between(5, GRACE - 30))).await;
                self.report_all().await;
            }
            if has(MassEvent::SlowStore) {
                self.sleep_until(slot + seconds(GRACE - 10)).await;
                self.slow_down_all(slow_by);
            }
            if has(MassEvent::Edit) {
                self.sleep_until(slot + seconds(EDITED_AFTER)).await;
                self.luck.saw("everything edited");
                self.edit_all();
            }
            slot += DAY;
        }
    }

    /// The store is slow for everybody.
    fn slow_down_all(&self, by: u64) {
        self.luck.saw("store slow for a minute");
        let until = self.clockwork.time() + seconds(SLOW_FOR);
        for road in self.instances.pids().into_iter().filter_map(|pid| self.instances.road(pid)) {
            road.slow_down(until, by);
        }
    }

    /// Says when slots are due, and when they are judged.
    fn spawn_due(&self, slot: Timestamp) {
        let this = self.clone();
        let says = async move {
            let count = this.files.names().len() as u64;
            for at in [slot, slot + seconds(GRACE)] {
                this.sleep_until(at).await;
                this.tap.checker().are_due(count);
            }
        };
        self.clockwork.process(NATURE).spawn("what is due", Box::pin(says));
    }

    async fn sleep_until(&self, at: Timestamp) {
        let left = at.duration_since(self.clockwork.time());
        if left.is_positive() {
            self.clockwork.process(NATURE).sleep(left).await;
        }
    }

    /// When all are due next.
    fn next_instant(&self) -> Option<Timestamp> {
        let name = self.files.names().into_iter().next()?;
        let truth = self.files.truth(&name)?;
        let start = truth.starts.first()?;
        let now = self.clockwork.time();
        crate::naive::walk(&truth, &start.pattern, now, now + DAY * 2).next()
    }

    /// All jobs that run elsewhere report at this instant.
    async fn report_all(&self) {
        let now = self.clockwork.time();
        for name in self.files.names() {
            let Some(truth) = self.files.truth(&name).filter(|truth| truth.is_watched()) else {
                continue;
            };
            let Some(slot) = last_instant(&truth, now) else { continue };
            let record = InboxRecord::Report(Box::new(ReportRecord::of("success", now, None)));
            let key = format!("report {}", now.as_second());
            if self.store.post(&name, &key, &record).await.is_ok() {
                self.tap.checker().reported(&name, slot, "success");
            }
        }
    }

    /// All files are written anew, and their watchers hear of all at once.
    fn edit_all(&self) {
        let now = self.clockwork.time();
        let edited = |name: &PipelineId| {
            let mut truth = (*self.files.truth(name)?).clone();
            truth.edition += 1;
            self.files.write_truth(truth, now).ok()
        };
        let declared: Vec<_> = self.files.names().iter().filter_map(edited).collect();
        self.instances.tell(|| Changes { declared: declared.clone(), removed: vec![] });
    }
}

/// When it was due last.
fn last_instant(truth: &Truth, now: Timestamp) -> Option<Timestamp> {
    let start = truth.starts.first()?;
    crate::naive::walk(truth, &start.pattern, now - DAY, now + seconds(1)).last()
}
