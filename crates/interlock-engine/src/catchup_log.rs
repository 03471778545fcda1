//! What a process says of a catch-up, over all shards that it owns: one summary and one end, however many engines catch up.
//!
//! Each engine counts for its shard (`progress`). What they say is gathered until each of them has made a pass since the first
//! spoke, so that a start, or a machine that wakes up, is one summary; with one shard that is at once, before anything is
//! recorded. Shards that come later, by a failover, are a catch-up of their own: they are summed up when they come. ADR 54.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use jiff::{SignedDuration, Timestamp};

use crate::{
    progress::{Done, SAID_EVERY, Said, Summary},
    scheduler::plus,
};

/// So long the others are waited for: one whose store is away must not keep the rest from being said.
const GATHERED_IN: SignedDuration = SignedDuration::from_secs(10);

/// The catch-ups of the engines of one process.
#[derive(Debug, Clone, Default)]
pub(crate) struct CatchupLog(Arc<Mutex<Gathered>>);

/// The place of one engine among them, until it ends.
#[derive(Debug)]
pub(crate) struct CatchupMember {
    log: CatchupLog,
    id: u64,
}

#[derive(Debug, Default)]
struct Gathered {
    last_id: u64,
    engines: BTreeSet<u64>,
    /// Those that have not made a pass since something was first said, and when that was.
    unheard: Option<(BTreeSet<u64>, Timestamp)>,
    /// Those whose slots are too many to be counted before they are recorded.
    uncounted: BTreeSet<u64>,
    /// Those that have something to catch up.
    under_way: BTreeSet<u64>,
    is_begun: bool,
    summary: Option<Summary>,
    /// What there is before it is counted.
    begins: Option<Summary>,
    left: Option<(u64, u64)>,
    so_far: BTreeMap<u64, (u64, u64)>,
    said_at: Option<Timestamp>,
    done: Option<Done>,
    began: Option<Timestamp>,
}

impl CatchupLog {
    /// Takes an engine among them.
    pub(crate) fn enter(&self) -> CatchupMember {
        let mut gathered = self.lock();
        gathered.last_id += 1;
        let id = gathered.last_id;
        gathered.engines.insert(id);
        CatchupMember { log: self.clone(), id }
    }

    fn lock(&self) -> MutexGuard<'_, Gathered> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CatchupMember {
    /// Takes what the engine says; gives what the process says.
    pub(crate) fn add(&self, said: Said, now: Timestamp) -> Vec<Said> {
        self.log.lock().add(self.id, said, now)
    }

    /// The engine has made a pass, and has said what it had to say.
    pub(crate) fn passed(&self, now: Timestamp) -> Vec<Said> {
        let mut gathered = self.log.lock();
        if let Some((unheard, _)) = &mut gathered.unheard {
            unheard.remove(&self.id);
        }
        gathered.flush(now)
    }
}

impl Drop for CatchupMember {
    fn drop(&mut self) {
        self.log.lock().leave(self.id);
    }
}

impl Gathered {
    fn add(&mut self, engine: u64, said: Said, now: Timestamp) -> Vec<Said> {
        match said {
            Said::Begins(begins) => {
                self.gather(engine, now);
                self.uncounted.insert(engine);
                self.begins = Some(begins.and(self.begins.take()));
            }
            Said::Summary(summary) => {
                self.gather(engine, now);
                self.uncounted.remove(&engine);
                self.summary = Some(summary.and(self.summary.take()));
            }
            Said::GoesOn { slots, pipelines } => {
                self.gather(engine, now);
                let (all, of) = self.left.unwrap_or_default();
                self.left = Some((all + slots, of + pipelines));
            }
            Said::SoFar { recorded, missed } => {
                self.so_far.insert(engine, (recorded, missed));
                return self.tell_so_far(now);
            }
            Said::Done(done) => {
                self.under_way.remove(&engine);
                self.done = Some(done.and(self.done.take()));
            }
        }
        self.flush(now)
    }

    fn gather(&mut self, engine: u64, now: Timestamp) {
        self.began.get_or_insert(now);
        self.under_way.insert(engine);
        let engines = &self.engines;
        let (unheard, _) = self.unheard.get_or_insert_with(|| (engines.clone(), now));
        unheard.remove(&engine);
    }

    fn tell_so_far(&mut self, now: Timestamp) -> Vec<Said> {
        let is_time = self.said_at.is_none_or(|at| now >= plus(at, SAID_EVERY));
        if !is_time || self.unheard.is_some() {
            return vec![];
        }
        self.said_at = Some(now);
        let sum = self.so_far.values().fold((0, 0), |sum, one| (sum.0 + one.0, sum.1 + one.1));
        vec![Said::SoFar { recorded: sum.0, missed: sum.1 }]
    }

    /// What can be said by now.
    fn flush(&mut self, now: Timestamp) -> Vec<Said> {
        let mut said = Vec::new();
        let is_gathered = self
            .unheard
            .as_ref()
            .is_some_and(|(unheard, since)| unheard.is_empty() || now >= plus(*since, GATHERED_IN));
        if is_gathered {
            let left = self.left.take();
            said.extend(left.map(|(slots, pipelines)| Said::GoesOn { slots, pipelines }));
            if self.uncounted.is_empty() {
                said.extend(self.summary.take().map(Said::Summary));
                self.unheard = None;
                self.said_at = Some(now);
            } else if !std::mem::replace(&mut self.is_begun, true) {
                let begins = self.begins.take().map(|begins| begins.and(self.summary));
                said.extend(begins.map(Said::Begins));
            }
        }
        if self.unheard.is_none()
            && self.under_way.is_empty()
            && let Some(done) = self.done.take()
        {
            let took = self.began.map_or(done.took, |began| now.duration_since(began));
            said.push(Said::Done(Done { took, ..done }));
            self.reset();
        }
        said
    }

    /// An engine ends: the next owner of its shard goes on, and says so.
    fn leave(&mut self, engine: u64) {
        self.engines.remove(&engine);
        self.uncounted.remove(&engine);
        self.under_way.remove(&engine);
        self.so_far.remove(&engine);
        if let Some((unheard, _)) = &mut self.unheard {
            unheard.remove(&engine);
        }
        if self.under_way.is_empty() && self.done.is_none() {
            self.reset();
        }
    }

    fn reset(&mut self) {
        let (last_id, engines) = (self.last_id, std::mem::take(&mut self.engines));
        *self = Self { last_id, engines, ..Self::default() };
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        outlook::Totals,
        progress::{Counts, Done},
    };

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn summary(pipelines: u64, missed: u64, since: i64) -> Summary {
        let totals = Totals { missed, run: missed, would_run: 0 };
        Summary { pipelines, totals, since: at(since), until: at(100) }
    }

    fn done(pipelines: u64, missed: u64, took: i64) -> Done {
        let counts = Counts { completed: missed, ..Counts::default() };
        Done { pipelines, missed, counts, took: SignedDuration::from_secs(took) }
    }

    #[test]
    fn one_shard_speaks_at_once() {
        let log = CatchupLog::default();
        let only = log.enter();
        let begins = Said::Summary(summary(1, 4, 0));
        assert_eq!(only.add(begins, at(100)), [begins]);
        assert_eq!(only.passed(at(100)), []);
        let end = Said::Done(done(1, 4, 5));
        assert_eq!(only.add(end, at(105)), [end]);
        assert_eq!(only.passed(at(106)), [], "once");
    }

    #[test]
    fn shards_that_begin_together_are_one_summary_and_one_end() {
        let log = CatchupLog::default();
        let [one, two, idle] = [log.enter(), log.enter(), log.enter()];
        assert_eq!(one.add(Said::Summary(summary(1, 4, 7)), at(100)), []);
        assert_eq!(one.passed(at(100)), []);
        assert_eq!(two.add(Said::Summary(summary(2, 6, 3)), at(100)), []);
        // The first is through before the others have looked.
        assert_eq!(one.add(Said::Done(done(1, 4, 0)), at(100)), []);
        assert_eq!(two.passed(at(100)), []);
        assert_eq!(idle.passed(at(101)), [Said::Summary(summary(3, 10, 3))]);
        assert_eq!(two.add(Said::Done(done(2, 6, 9)), at(109)), [Said::Done(done(3, 10, 9))]);
        // A shard that comes later is a catch-up of its own.
        let late = log.enter();
        assert_eq!(late.add(Said::Summary(summary(1, 1, 50)), at(200)), []);
        assert_eq!([one.passed(at(200)), two.passed(at(200))], [[], []]);
        assert_eq!(idle.passed(at(200)), [Said::Summary(summary(1, 1, 50))]);
        assert_eq!(late.add(Said::Done(done(1, 1, 2)), at(202)), [Said::Done(done(1, 1, 2))]);
    }

    #[test]
    fn an_engine_that_ends_or_stands_still_is_not_waited_for() {
        let log = CatchupLog::default();
        let [one, gone, still] = [log.enter(), log.enter(), log.enter()];
        assert_eq!(one.add(Said::Summary(summary(1, 4, 0)), at(100)), []);
        assert_eq!(gone.add(Said::Summary(summary(1, 2, 0)), at(100)), []);
        drop(gone);
        assert_eq!(one.passed(at(105)), []);
        assert_eq!(one.passed(at(110)), [Said::Summary(summary(2, 6, 0))]);
        assert_eq!(one.add(Said::Done(done(1, 4, 0)), at(115)), [Said::Done(done(1, 4, 15))]);
        // All of them end: nothing is over.
        assert_eq!(still.add(Said::GoesOn { slots: 3, pipelines: 1 }, at(120)), []);
        drop((one, still));
        let next = log.enter();
        assert_eq!(next.passed(at(130)), []);
    }

    #[test]
    fn what_is_too_much_to_count_is_begun_and_summed_up_once_when_it_is_recorded() {
        let log = CatchupLog::default();
        let [one, two] = [log.enter(), log.enter()];
        let begins = Summary { totals: Totals::default(), ..summary(5, 0, 1) };
        assert_eq!(one.add(Said::Begins(begins), at(100)), []);
        let all = Summary { pipelines: 7, totals: summary(2, 6, 3).totals, ..begins };
        assert_eq!(two.add(Said::Summary(summary(2, 6, 3)), at(100)), [Said::Begins(all)]);
        assert_eq!(two.passed(at(101)), []);
        let counted = one.add(Said::Summary(summary(5, 90, 1)), at(150));
        assert_eq!(counted, [Said::Summary(summary(7, 96, 1))]);
    }

    #[test]
    fn progress_is_said_of_all_of_them_together() {
        let log = CatchupLog::default();
        let [one, two] = [log.enter(), log.enter()];
        one.add(Said::Summary(summary(1, 40, 0)), at(100));
        two.add(Said::Summary(summary(1, 60, 0)), at(100));
        assert_eq!(one.add(Said::SoFar { recorded: 10, missed: 40 }, at(109)), []);
        let both = Said::SoFar { recorded: 30, missed: 100 };
        assert_eq!(two.add(Said::SoFar { recorded: 20, missed: 60 }, at(110)), [both]);
        assert_eq!(one.add(Said::SoFar { recorded: 20, missed: 40 }, at(111)), []);
    }
}
