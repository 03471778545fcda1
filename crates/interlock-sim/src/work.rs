//! How much work the loops make (S17): what each asks of the store, held against what changed there.
//!
//! It is counted in windows of two minutes, which are longer than a pass, also on a store that is slow. What there is to do is what
//! comes of it, and what time brings: groups that the store took, of this loop and of others, groups that it refused because something had
//! changed, and slots that are due or to be judged. So the calls of a loop and the rows that it reads may grow with those, and with
//! nothing else: not with how many pipelines there are.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use interlock_store::{Accepted, Group, OutboxRow, Refusal, Store, record::OutboxRecord};
use jiff::Timestamp;

use crate::{
    clockwork::{Clockwork, Pid},
    gated::{Gate, Passage},
    tap::{Mutation, Tap},
};

/// A window, in seconds.
const WINDOW: i64 = 120;
/// What a loop may ask of the store in two minutes.
#[derive(Debug, Clone, Copy)]
struct Budget {
    /// When nothing changes: leases, the inbox, what is due, pages of lists.
    free: u64,
    /// More for each group that it had accepted, and for each notification that it settled.
    per_own: u64,
    /// More for each group that anybody had accepted: what it hears of, and what it delivers.
    per_any: u64,
    /// More for each slot that is due or to be judged.
    per_due: u64,
    /// More for each group of its own that is refused because something had changed.
    per_conflict: u64,
}

impl Budget {
    /// Calls of the store, by the loop.
    fn of_calls(name: &str) -> Self {
        let usual = Self { free: 300, per_own: 2, per_any: 0, per_due: 0, per_conflict: 1 };
        match name {
            "watchdog" => Self { per_any: 1, per_due: 2, ..usual },
            // What it looks up about what it claims, and is told of later.
            "notifier" => Self { per_own: 4, per_any: 2, ..usual },
            _ => usual,
        }
    }

    /// Rows that it reads: of all lists together a page, and what belongs to each thing that there is to do.
    const ROWS: Self = Self { free: 6_000, per_own: 12, per_any: 6, per_due: 6, per_conflict: 12 };

    fn allows(self, own: Work, to_do: ToDo) -> u64 {
        self.free
            + self.per_own * (own.accepted + own.settled)
            + self.per_any * to_do.accepted
            + self.per_due * to_do.due
            + self.per_conflict * own.refused
    }
}

/// What a loop did.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Work {
    /// Calls of the store.
    pub calls: u64,
    /// Rows that it answered with.
    pub rows: u64,
    /// Groups that it accepted.
    pub accepted: u64,
    /// Groups that it refused.
    pub refused: u64,
    /// Notifications that were settled.
    pub settled: u64,
}

impl Work {
    /// Both together.
    #[must_use]
    pub fn plus(self, other: Self) -> Self {
        Self {
            calls: self.calls + other.calls,
            rows: self.rows + other.rows,
            accepted: self.accepted + other.accepted,
            refused: self.refused + other.refused,
            settled: self.settled + other.settled,
        }
    }

    /// The larger of each number.
    #[must_use]
    pub fn most(self, other: Self) -> Self {
        Self {
            calls: self.calls.max(other.calls),
            rows: self.rows.max(other.rows),
            accepted: self.accepted.max(other.accepted),
            refused: self.refused.max(other.refused),
            settled: self.settled.max(other.settled),
        }
    }

    /// Why this is too much for what there was to do, if it is. What was read in one window may be written in the next, so of its own
    /// groups those around it count, too.
    fn complaint(self, name: &str, around: Self, to_do: ToDo) -> Option<String> {
        let limits = [
            ("calls of the store", self.calls, Budget::of_calls(name)),
            ("rows read", self.rows, Budget::ROWS),
        ];
        limits.into_iter().find_map(|(what, did, budget)| {
            let max = budget.allows(around, to_do);
            let (ToDo { accepted, due }, Self { accepted: own, refused, settled, .. }) = (to_do, around);
            (did > max).then(|| {
                format!(
                    "{did} {what} in {WINDOW} s, {max} are bounded work while {due} slots are due and {accepted} groups are \
                     accepted, {own} of them its own; {refused} of its own were refused, {settled} notifications settled"
                )
            })
        })
    }
}

/// What there was to do around a window.
#[derive(Debug, Clone, Copy)]
struct ToDo {
    /// Groups of anybody that were accepted.
    accepted: u64,
    /// Slots that were due, or to be judged.
    due: u64,
}

/// A loop of a process.
pub(crate) type LoopId = (&'static str, Pid);

/// What all loops did, window by window.
#[derive(Debug, Default)]
pub(crate) struct WorkBook {
    windows: BTreeMap<i64, BTreeMap<LoopId, Work>>,
    /// The number of the window of now.
    now: i64,
    /// How many slots were due in a window, or were to be judged.
    due: BTreeMap<i64, u64>,
    /// The most of each number, of one loop in one window.
    pub(crate) most: Work,
}

impl WorkBook {
    /// A loop did something; says whose work of an earlier window was too much.
    pub(crate) fn add(&mut self, now: Timestamp, id: LoopId, did: Work) -> Option<String> {
        let number = now.as_second() / WINDOW;
        let work = self.windows.entry(number).or_default().entry(id).or_default();
        *work = work.plus(did);
        self.most = self.most.most(*work);
        // What was read in one window may be written in the next, and what was written in the last is read.
        if number <= self.now {
            return None;
        }
        let judged = number - 2;
        let unjudged = (self.now - 1).max(judged - 1)..=judged;
        self.now = number;
        let complaint = unjudged.into_iter().find_map(|window| self.judge(window));
        self.windows.retain(|window, _| *window >= judged);
        self.due.retain(|window, _| *window >= judged);
        complaint
    }

    /// So many slots are due now, or to be judged.
    pub(crate) fn are_due(&mut self, now: Timestamp, count: u64) {
        *self.due.entry(now.as_second() / WINDOW).or_default() += count;
    }

    fn judge(&self, judged: i64) -> Option<String> {
        let around = judged - 1..=judged + 1;
        let loops = self.windows.range(around.clone()).flat_map(|(_, loops)| loops.values());
        let to_do = ToDo {
            accepted: loops.map(|work| work.accepted).sum(),
            due: self.due.range(around.clone()).map(|(_, due)| due).sum(),
        };
        self.windows.get(&judged)?.iter().find_map(|(id, work)| {
            let (name, pid) = id;
            let own = self.windows.range(around.clone()).filter_map(|(_, loops)| loops.get(id));
            let own = own.fold(Work::default(), |sum, work| sum.plus(*work));
            let complaint = work.complaint(name, own, to_do)?;
            Some(format!("the {name} of instance {pid}: {complaint}"))
        })
    }
}

/// Counts between a loop and its store.
#[derive(Clone)]
pub struct Meter(Arc<Shared>);

struct Shared {
    clockwork: Clockwork,
    tap: Tap,
    name: &'static str,
    pid: Pid,
    /// What it reads once more after a conflict or a large commit, by a deliberate mistake.
    lists: Option<Arc<dyn Store>>,
    /// Groups that the deliberate mistake has not been made for yet.
    tripped: Mutex<u64>,
}

/// So many groups are a large commit.
const MANY: usize = 20;

impl Meter {
    /// Counts what a loop of a process asks for.
    pub(crate) fn new(
        (clockwork, tap): (Clockwork, Tap),
        (name, pid): (&'static str, Pid),
        (mutation, store): (Option<Mutation>, &Arc<dyn Store>),
    ) -> Self {
        let is_careless = mutation == Some(Mutation::CarelessReloads);
        let (lists, tripped) = (is_careless.then(|| Arc::clone(store)), Mutex::default());
        Self(Arc::new(Shared { clockwork, tap, name, pid, lists, tripped }))
    }

    fn tripped(&self) -> MutexGuard<'_, u64> {
        self.0.tripped.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, did: Work) {
        let Shared { clockwork, tap, name, pid, .. } = &*self.0;
        tap.checker().worked(clockwork.time(), (name, *pid), did);
    }

    /// The mistake: all pipelines are read again, once for each.
    async fn reload_carelessly(&self, store: &Arc<dyn Store>) {
        let tripped = std::mem::take(&mut *self.tripped());
        for _ in 0..tripped {
            let page = store.agenda(interlock_store::Shard(0), None, usize::MAX).await;
            let rows = page.map_or(0, |page| page.items.len()) as u64;
            self.count(Work { calls: 1, rows, ..Work::default() });
        }
    }
}

impl Gate for Meter {
    fn enter(&self, _verb: &'static str) -> Option<Passage<'_>> {
        self.count(Work { calls: 1, ..Work::default() });
        None
    }

    fn leave(&self, verb: &'static str) -> Option<Passage<'_>> {
        let store = self.0.lists.as_ref().filter(|_| verb == "commit")?;
        Some(Box::pin(async move {
            self.reload_carelessly(store).await;
            Ok(())
        }))
    }

    fn looks_on(&self) -> bool {
        true
    }

    fn committed(&self, _groups: Vec<Group>, results: &[Result<Accepted, Refusal>]) {
        let refused = results.iter().filter(|result| result.is_err()).count() as u64;
        *self.tripped() += if results.len() > MANY { results.len() as u64 } else { refused };
        let accepted = results.len() as u64 - refused;
        self.count(Work { accepted, refused, ..Work::default() });
    }

    fn settles(&self, _row: &OutboxRow, _becomes: &[(String, OutboxRecord)]) -> bool {
        self.count(Work { settled: 1, ..Work::default() });
        true
    }

    fn gave(&self, rows: usize) {
        self.count(Work { rows: rows as u64, ..Work::default() });
    }
}

impl std::fmt::Debug for Meter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meter").field("name", &self.0.name).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What is complained of when a loop did this in one window, and then time goes on.
    fn check(name: &'static str, did: Work, due: u64) -> Option<String> {
        let mut book = WorkBook::default();
        let at = |window: i64| Timestamp::from_second(window * WINDOW).unwrap();
        book.are_due(at(10), due);
        let first = book.add(at(10), (name, 1), did);
        let later = (11..14).find_map(|window| book.add(at(window), (name, 1), Work::default()));
        first.or(later)
    }

    #[test]
    fn s17_work_that_grows_with_what_there_is_to_do_is_bounded_and_other_work_is_not() {
        let idle = Work { calls: 300, rows: 6_000, ..Work::default() };
        assert_eq!(check("engine", idle, 0), None);
        let calls = |calls| Work { calls, ..Work::default() };
        assert!(check("engine", calls(301), 0).unwrap().contains("301 calls"));
        assert_eq!(check("watchdog", calls(2_300), 1_000), None, "each slot is judged");
        assert!(check("engine", calls(2_300), 1_000).is_some(), "it judges none");
        let wrote = Work { calls: 2_300, accepted: 1_000, ..Work::default() };
        assert_eq!(check("engine", wrote, 0), None);
        let rows = Work { rows: 6_001, ..Work::default() };
        assert!(check("watchdog", rows, 0).unwrap().contains("6001 rows"));
    }
}
