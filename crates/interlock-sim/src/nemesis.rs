//! The nemesis: does one bad or merely busy thing after another, by number.
//!
//! Everything about a fault is drawn before it is known whether its number is allowed, so that leaving some out does
//! not change the others. Requests of people and edits of files are faults too: what matters is that they come
//! at the worst moment.

use std::sync::{Arc, Mutex, PoisonError};

use interlock_core::id::PipelineId;
use interlock_engine::{Changes, seam::World as _};
use interlock_store::{
    Store, block_on,
    record::{InboxRecord, SlotName},
};
use jiff::{SignedDuration, Span, Timestamp};
use serde_json::json;

use crate::{
    around::CHANNELS,
    clockwork::{Clockwork, NATURE, Pid},
    feeds::Fact,
    files::Files,
    instances::{Instances, LOOPS},
    luck::{Fault, Luck, Trouble, seconds},
    random::Random,
    road::Road,
    tap::Tap,
    truth::MOVING,
};

/// What it needs to reach everything.
#[derive(Clone, Debug)]
pub struct Nemesis {
    /// Time and tasks.
    pub clockwork: Clockwork,
    /// The instances.
    pub instances: Instances,
    /// The files.
    pub files: Files,
    /// How bad things are.
    pub luck: Arc<Luck>,
    /// The store, with its tap.
    pub store: Arc<dyn Store>,
    /// The checkers.
    pub tap: Tap,
    /// The seed.
    pub seed: u64,
    /// How many faults may happen.
    pub allowed: u64,
    /// What happened, by number.
    pub done: Arc<Mutex<Vec<(u64, Timestamp, String)>>>,
}

impl Nemesis {
    /// Goes on until an instant.
    pub async fn haunt(self, until: Timestamp) {
        let world = self.clockwork.process(NATURE);
        let mut stream = Random::of(self.seed, "nemesis");
        let mean = 86_400 / self.luck.profile().faults_per_day.max(1);
        for number in 1.. {
            world.sleep(seconds(stream.wait(mean))).await;
            if self.clockwork.time() >= until {
                return;
            }
            let fault = self.luck.profile().fault(&mut stream);
            let mut draw = Random::new(stream.draw());
            if number <= self.allowed {
                self.luck.saw(fault.name());
                let mut states = self.tap.checker().states();
                if !self.instances.pids().into_iter().any(|pid| self.instances.is_up(pid)) {
                    states.push("nobody is up");
                }
                self.luck.met(fault.name(), &states);
                let told = self.strike(fault, number, &mut draw);
                let line = format!("{}: {told}", fault.name());
                let mut done = self.done.lock().unwrap_or_else(PoisonError::into_inner);
                done.push((number, self.clockwork.time(), line));
            }
        }
    }

    /// Everything that is the matter is over.
    pub fn calm_down(&self) {
        self.luck.calm_down();
        for pid in self.instances.pids() {
            self.clockwork.set_clock(pid, seconds(0));
            self.clockwork.let_go(pid);
            let life = self.clockwork.life(pid);
            for name in LOOPS {
                self.clockwork.unhang(pid, name, life);
            }
            self.tap.checker().died(pid);
            if let Some(road) = self.instances.road(pid) {
                road.mend();
            }
            self.instances.start(pid);
        }
        for name in self.files.names() {
            self.post(&name, 0, &InboxRecord::Resume { catchup: None });
            let paused = self.tap.checker().backfills(&name).into_iter().filter(|(_, is)| *is);
            for (backfill, _) in paused.collect::<Vec<_>>() {
                let key = format!("backfill {backfill} goes on");
                let record = InboxRecord::ResumeBackfill { backfill };
                let _posted = block_on(self.store.post(&name, &key, &record));
            }
        }
    }

    fn strike(&self, fault: Fault, number: u64, draw: &mut Random) -> String {
        match fault {
            Fault::Crash
            | Fault::Outage
            | Fault::Stop
            | Fault::Freeze
            | Fault::Cut
            | Fault::Lossy
            | Fault::Slow
            | Fault::ClockStep => self.strike_instance(fault, draw),
            Fault::Edit | Fault::Remove => self.change_files(fault, draw),
            Fault::Calendar | Fault::ZoneData => {
                self.change_what_files_rest_on(fault, number, draw)
            }
            Fault::DiskFull => {
                let until = self.clockwork.time() + seconds(draw.between(10, 4_000));
                self.luck.fill_disk(until);
                format!("until {until}")
            }
            Fault::Evaluators | Fault::Channel => self.trouble(fault, draw),
            Fault::Pause
            | Fault::Resume
            | Fault::Run
            | Fault::Rerun
            | Fault::Cancel
            | Fault::Catchup
            | Fault::Sensor
            | Fault::Complete
            | Fault::Backfill
            | Fault::SteerBackfill => self.ask(fault, number, draw),
            Fault::Silence => self.silence(number, draw),
        }
    }

    fn strike_instance(&self, fault: Fault, draw: &mut Random) -> String {
        let pids = self.instances.pids();
        let Some(&pid) = draw.pick(&pids) else { return String::new() };
        let Some(road) = self.instances.road(pid) else { return String::new() };
        let now = self.clockwork.time();
        let while_ =
            now + seconds(draw.between(5, [30, 600, 7_200][draw.clone().below(3) as usize]));
        match fault {
            Fault::Outage => {
                let hours = draw.between(1, 40);
                for pid in pids {
                    self.instances.crash(pid, seconds(hours * 3_600 + draw.below(60)));
                }
                return format!("all are off for {hours} h");
            }
            Fault::Crash => {
                let waits = draw.below(40);
                road.doom(waits);
                return format!("instance {pid}, at wait {waits}");
            }
            Fault::Stop => self.instances.stop(pid),
            Fault::Freeze => return self.freeze(pid, road, draw),
            Fault::Cut => road.cut(while_),
            Fault::Lossy => road.lose_answers(while_),
            Fault::Slow => road.slow_down(while_, draw.between(50, 20_000)),
            Fault::ClockStep => return self.step_clock(pid, draw),
            Fault::Edit
            | Fault::Remove
            | Fault::Pause
            | Fault::Resume
            | Fault::Run
            | Fault::Rerun
            | Fault::Cancel
            | Fault::Catchup
            | Fault::Sensor
            | Fault::Complete
            | Fault::Backfill
            | Fault::SteerBackfill
            | Fault::Silence
            | Fault::DiskFull
            | Fault::Calendar
            | Fault::ZoneData
            | Fault::Evaluators
            | Fault::Channel => {}
        }
        format!("instance {pid} until {while_}")
    }

    /// Half of the time in front of a commit, so that it has something to write when it goes on.
    fn freeze(&self, pid: Pid, road: &Road, draw: &mut Random) -> String {
        let (for_seconds, commits) = (draw.between(10, 400), draw.below(3));
        if draw.clone().chance(300) && self.instances.is_up(pid) {
            return self.hang_a_loop(pid, for_seconds * 30, draw);
        }
        if draw.chance(500) {
            self.clockwork.hold_for(pid, seconds(for_seconds));
            return format!("instance {pid} for {for_seconds} s");
        }
        road.freeze(commits, for_seconds);
        format!("instance {pid} for {for_seconds} s, in front of a commit")
    }

    /// One loop stands still, and the rest of its process does not know.
    fn hang_a_loop(&self, pid: Pid, for_seconds: u64, draw: &mut Random) -> String {
        let Some(&name) = draw.pick(&LOOPS) else { return String::new() };
        self.luck.saw("loop hung");
        self.clockwork.hang(pid, name);
        self.tap.checker().stands_still(pid, name);
        let (this, world) = (self.clone(), self.clockwork.process(NATURE));
        let (later, life) = (world.clone(), self.clockwork.life(pid));
        let goes_on = async move {
            later.sleep(seconds(for_seconds)).await;
            if this.clockwork.life(pid) == life {
                this.clockwork.unhang(pid, name, life);
                this.tap.checker().goes_on(pid, name);
            }
        };
        world.spawn("a loop goes on", Box::pin(goes_on));
        format!("`{name}` of instance {pid} for {for_seconds} s")
    }

    fn step_clock(&self, pid: Pid, draw: &mut Random) -> String {
        let most = self.luck.profile().clock_seconds;
        let by = seconds(draw.between(1, most));
        let ahead = if draw.chance(500) { by } else { -by };
        let lasts = draw.between(60, 20_000);
        match draw.below(3) {
            0 => return self.drift_clock(pid, ahead, lasts),
            1 => return self.stop_clock(pid, by, lasts),
            _ => {}
        }
        let world = self.clockwork.process(NATURE);
        let (clockwork, live) = (self.clockwork.clone(), world.clone());
        clockwork.set_clock(pid, ahead);
        let back = async move {
            live.sleep(seconds(lasts)).await;
            clockwork.set_clock(pid, seconds(0));
        };
        world.spawn("a clock is set right", Box::pin(back));
        format!("instance {pid} is ahead by {ahead:#}")
    }

    /// A clock goes wrong little by little.
    fn drift_clock(&self, pid: Pid, ahead: SignedDuration, lasts: u64) -> String {
        const STEPS: i32 = 10;
        self.luck.saw("clock drift");
        let world = self.clockwork.process(NATURE);
        let (clockwork, live) = (self.clockwork.clone(), world.clone());
        let luck = Arc::clone(&self.luck);
        let drift = async move {
            for step in 1..=STEPS {
                live.sleep(seconds(lasts) / STEPS).await;
                if luck.is_calm() {
                    return;
                }
                clockwork.set_clock(pid, ahead * step / STEPS);
            }
            live.sleep(seconds(60)).await;
            clockwork.set_clock(pid, seconds(0));
        };
        world.spawn("a clock drifts", Box::pin(drift));
        format!("instance {pid} drifts by {ahead:#} in {lasts} s")
    }

    /// A clock stands still for a while, and then goes on where it stood.
    fn stop_clock(&self, pid: Pid, by: SignedDuration, lasts: u64) -> String {
        self.luck.saw("clock stands still");
        let world = self.clockwork.process(NATURE);
        let (clockwork, live) = (self.clockwork.clone(), world.clone());
        let luck = Arc::clone(&self.luck);
        let stop = async move {
            for behind in 1..=by.as_secs() {
                live.sleep(seconds(1)).await;
                if luck.is_calm() {
                    return;
                }
                clockwork.set_clock(pid, -SignedDuration::from_secs(behind));
            }
            live.sleep(seconds(lasts)).await;
            clockwork.set_clock(pid, seconds(0));
        };
        world.spawn("a clock stands still", Box::pin(stop));
        format!("instance {pid} for {by:#}")
    }

    /// The calendar, or the data of a zone: every file that rests on it says something else from now on.
    fn change_what_files_rest_on(&self, fault: Fault, number: u64, draw: &mut Random) -> String {
        let now = self.clockwork.time();
        if fault == Fault::ZoneData {
            self.files.change_zone(number as usize);
        } else {
            let today = jiff::tz::TimeZone::UTC.to_datetime(now).date();
            let days = (0..3).filter_map(|day| today.checked_add(Span::new().days(day)).ok());
            self.files.set_holidays(days.filter(|_| draw.chance(400)).collect());
        }
        let mut changed = Vec::new();
        for name in self.files.names() {
            let Some(truth) = self.files.truth(&name).filter(|_| self.files.has(&name)) else {
                continue;
            };
            let is_zone = fault == Fault::ZoneData;
            let rests = if is_zone { truth.zone == MOVING } else { truth.holidays.is_some() };
            if rests && let Ok(declared) = self.files.write_truth((*truth).clone(), now) {
                changed.push(declared);
            }
        }
        let told = format!("{} files say something else", changed.len());
        if fault == Fault::ZoneData {
            // Nobody reads such data again while it runs.
            for pid in self.instances.pids() {
                self.instances.crash(pid, seconds(1 + draw.below(20)));
            }
            return told;
        }
        self.instances.tell(|| Changes { declared: changed.clone(), removed: vec![] });
        told
    }

    fn change_files(&self, fault: Fault, draw: &mut Random) -> String {
        let names = self.files.names();
        let Some(name) = draw.pick(&names) else { return String::new() };
        let Some(truth) = self.files.truth(name) else { return String::new() };
        let now = self.clockwork.time();
        if truth.is_watched() {
            return format!("{name} is left alone: what its reports are about must be known");
        }
        if fault == Fault::Remove && self.files.has(name) {
            self.files.remove(name);
            self.instances.tell(|| Changes { declared: vec![], removed: vec![name.clone()] });
            return format!("{name} is gone");
        }
        let truth = if fault == Fault::Edit { truth.edited(draw) } else { (*truth).clone() };
        let edition = truth.edition;
        match self.files.write_truth(truth, now) {
            Ok(declared) => {
                let changes = || Changes { declared: vec![declared.clone()], removed: vec![] };
                self.instances.tell(changes);
                format!("{name}, edition {edition}")
            }
            Err(problem) => problem,
        }
    }

    fn trouble(&self, fault: Fault, draw: &mut Random) -> String {
        let until = self.clockwork.time() + seconds(draw.between(60, 40_000));
        let troubles =
            [Trouble::Hangs, Trouble::Fails, Trouble::Flaps, Trouble::Refuses, Trouble::Lies];
        let trouble = troubles[draw.below(5) as usize];
        if fault == Fault::Evaluators {
            self.luck.trouble_evaluators(until, trouble);
            return format!("{trouble:?} until {until}");
        }
        let channel = CHANNELS[draw.below(CHANNELS.len() as u64) as usize];
        self.luck.trouble_channel(channel, until, trouble);
        format!("{channel}: {trouble:?} until {until}")
    }

    fn ask(&self, fault: Fault, number: u64, draw: &mut Random) -> String {
        let names = self.files.names();
        let Some(name) = draw.pick(&names) else { return String::new() };
        let now = self.clockwork.time();
        let recent = self.tap.checker().recent(name, 12);
        let which = draw.below(12) as usize;
        let chosen = recent.get(which.min(recent.len().saturating_sub(1)));
        let slot = chosen.map(|(schedule, nominal, _)| SlotName {
            schedule: schedule.to_string(),
            nominal: *nominal,
        });
        let (force, params) = (draw.chance(200), [].into());
        let words = ["none", "latest", "all"];
        let word = words[draw.below(3) as usize];
        let wish = draw.chance(300).then(|| word.to_owned());
        let until = draw.chance(500).then(|| now + seconds(draw.clone().between(600, 90_000)));
        let record = match (fault, slot) {
            (Fault::Pause, _) => InboxRecord::Pause { reason: "moving".to_owned(), until },
            (Fault::Resume, _) => InboxRecord::Resume { catchup: wish },
            (Fault::Catchup, _) => InboxRecord::Catchup {},
            (Fault::Sensor, _) => {
                let (at, is_ok) = (forged(now, draw), draw.chance(600));
                if draw.chance(500)
                    && self.files.truth(name).is_some_and(|truth| truth.arrival().is_some())
                {
                    let fact = Fact { is_ready: is_ok, ..Fact::ready(at, number) };
                    let told = format!("{name}: {fact:?}");
                    self.hand_in(name, &format!("request {number}"), fact);
                    return told;
                }
                let (key, value) = ("landed".to_owned(), json!({ "ok": is_ok }));
                InboxRecord::Sensor { key, value, at }
            }
            (Fault::Rerun, Some(slot)) => {
                InboxRecord::Rerun { slot, reason: format!("reason {}", draw.below(3)) }
            }
            (Fault::Cancel, Some(slot)) => {
                InboxRecord::Cancel { slot, reason: "not now".to_owned() }
            }
            (Fault::Complete, Some(_)) => {
                let run_id = chosen.map(|(.., run_id)| run_id.clone()).unwrap_or_default();
                self.tap.checker().report_by_hand(run_id.clone());
                let success = draw.chance(600);
                let (message, category, metadata) = (None, None, [].into());
                InboxRecord::Complete { run_id, success, message, category, metadata }
            }
            (Fault::Backfill, _) => a_backfill(now, draw),
            (Fault::SteerBackfill, _) => self.steering(name, draw),
            (_, slot) => {
                let slot = slot.filter(|_| draw.chance(500));
                InboxRecord::Run { slot, force, params, webhook: false }
            }
        };
        self.post(name, number, &record);
        if draw.chance(200) {
            self.post(name, number, &record);
        }
        format!("{name}: {record:?}")
    }

    /// What somebody wants of one of a pipeline's backfills.
    fn steering(&self, name: &PipelineId, draw: &mut Random) -> InboxRecord {
        let all = self.tap.checker().backfills(name);
        let backfill = draw.pick(&all).map_or(1, |(number, _)| *number);
        let (reason, ends_runs) = ("not now".to_owned(), draw.chance(500));
        match draw.below(3) {
            0 => InboxRecord::PauseBackfill { backfill },
            1 => InboxRecord::ResumeBackfill { backfill },
            _ => InboxRecord::CancelBackfill { backfill, reason, ends_runs },
        }
    }

    /// Alerts of one pipeline, or of all, are kept back for a while.
    fn silence(&self, number: u64, draw: &mut Random) -> String {
        let names = self.files.names();
        let now = self.clockwork.time();
        let name = draw.pick(&names).filter(|_| draw.clone().chance(700));
        let until = now + seconds(draw.between(600, 60_000));
        let pipelines: Vec<&str> = name.into_iter().map(PipelineId::as_str).collect();
        let silence = json!({
            "when": { "pipelines": pipelines },
            "from": now.to_string(),
            "until": until.to_string(),
            "reason": "a move",
            "by": "the nemesis",
        });
        let by = "the nemesis".to_owned();
        let record = InboxRecord::Silence { id: format!("s{number}"), silence: Some(silence), by };
        self.post(&PipelineId::system(), number, &record);
        format!("{pipelines:?} until {until}")
    }

    /// Puts something into the inbox; nothing can go wrong on this way.
    fn post(&self, name: &PipelineId, number: u64, record: &InboxRecord) {
        if self.luck.is_disk_full(self.clockwork.time()) {
            return;
        }
        let _posted = block_on(self.store.post(name, &format!("request {number}"), record));
    }

    /// Hands in a report about data, unless nobody can write it down, and tells the checkers that it was taken.
    pub(crate) fn hand_in(&self, name: &PipelineId, key: &str, fact: Fact) {
        if self.luck.is_disk_full(self.clockwork.time()) {
            self.luck.saw("sensor lost");
            return;
        }
        if block_on(self.store.post(name, key, &fact.record())).is_ok() {
            self.tap.checker().sensor_taken(name, key, fact);
        }
    }

    /// The sensors of those who wait for them, every half hour.
    pub async fn report_sensors(self) {
        let world = self.clockwork.process(NATURE);
        for number in 0_u64.. {
            world.sleep(seconds(1_800)).await;
            for name in self.files.names() {
                let waits = self
                    .files
                    .truth(&name)
                    .is_some_and(|truth| truth.gate == crate::truth::Need::Sensor);
                if waits {
                    let (key, value) = ("landed".to_owned(), json!({ "ok": true, "n": number }));
                    let at = self.clockwork.time();
                    let record = InboxRecord::Sensor { key, value, at };
                    let _posted =
                        block_on(self.store.post(&name, &format!("sensor {number}"), &record));
                }
            }
        }
    }
}

/// Some hours of the past, run again.
fn a_backfill(now: Timestamp, draw: &mut Random) -> InboxRecord {
    let to = now - seconds(draw.below(30_000));
    let from = to - seconds(draw.between(600, 20_000));
    let words = [("missing", "asc"), ("failed", "desc"), ("all", "asc"), ("all", "desc")];
    let (reprocess, order) = words[draw.below(4) as usize];
    InboxRecord::StartBackfill {
        from,
        to,
        schedules: vec![],
        reprocess: reprocess.to_owned(),
        order: order.to_owned(),
        concurrency: draw.between(1, 3) as u32,
        reason: "once more".to_owned(),
        by: "the nemesis".to_owned(),
        total: 0,
        plan: String::new(),
    }
}

/// A reporter's word on when it was: mostly now, sometimes long ago or in the future.
fn forged(now: Timestamp, draw: &mut Random) -> Timestamp {
    match draw.below(6) {
        0 => now - seconds(draw.between(60, 200_000)),
        1 => now + seconds(draw.between(60, 3_600)),
        _ => now,
    }
}
