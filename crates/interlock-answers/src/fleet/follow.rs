//! How the tally is kept: counted once, then by the store's events, and by a recount that goes round in a quarter of an hour.
//!
//! An event is only a hint: what it is about is read again. So a hint that is lost, comes twice or comes late does no harm that lasts: the
//! recount reads every quarter of an hour of the whole fleet again, one after the other.

use std::{collections::BTreeMap, fmt, mem, sync::Arc};

use interlock_core::id::PipelineId;
use interlock_store::{Store, StoreError, for_each};
use jiff::{SignedDuration, Timestamp};

use super::{
    cells::Quarter,
    details::{UnknownPast, read_past},
    dirty::{DirtyPipeline, END, everything, read_fresh, read_range, take_fresh, take_seen},
    read::{read_incidents, read_open},
    recount::{take_incidents_of_all, take_open_of_all},
    seen::QuarterRange,
    table::{FleetTable, FleetTally},
    tallied::{SharedParts, TalliedPipeline, first_kept},
};
use crate::Declarations;

/// Events that are read at once.
const EVENTS: usize = 1_000;
/// Pages of events after which others get a turn: what is left comes the next time round.
const PAGES_AT_ONCE: usize = 20;
/// Pipelines that are read again at once.
pub(super) const PIPELINES_AT_ONCE: usize = 200;
/// Who has not followed for so long begins anew.
const BEHIND_MAX: SignedDuration = SignedDuration::from_mins(10);
/// A clock that went back further is another clock.
const BACK_MAX: SignedDuration = SignedDuration::from_mins(1);
/// One step of the recount: all of them take 13 minutes.
const RECOUNT_EVERY: SignedDuration = SignedDuration::from_secs(4);
/// Pipelines whose past is read at once.
const PAST_AT_ONCE: usize = 64;
/// Quarters that are counted together when all are counted, and how many such ranges are read at once.
const CHUNK: i64 = 12;
const RANGES_AT_ONCE: usize = 2;

/// Keeps a tally up to date.
pub struct FleetFollower {
    pub(super) tally: FleetTally,
    pub(super) store: Arc<dyn Store>,
    pub(super) declarations: Arc<dyn Declarations>,
    pub(super) shared: SharedParts,
    /// The last event that is counted; none before the first count.
    pub(super) read_to: Option<u64>,
    /// When that was.
    followed_at: Timestamp,
    pub(super) recount: RecountPlace,
}

/// Where the recount is.
#[derive(Debug, Clone, Copy)]
pub(super) struct RecountPlace {
    pub(super) next: Quarter,
    pub(super) at: Timestamp,
}

impl fmt::Debug for FleetFollower {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FleetFollower").field("read_to", &self.read_to).finish_non_exhaustive()
    }
}

impl FleetFollower {
    /// Keeps a tally of a store, once it comes round.
    pub fn new(
        tally: FleetTally,
        store: Arc<dyn Store>,
        declarations: Arc<dyn Declarations>,
    ) -> Self {
        let (shared, epoch) = (SharedParts::default(), Timestamp::UNIX_EPOCH);
        let recount = RecountPlace { next: Quarter(0), at: epoch };
        Self { tally, store, declarations, shared, read_to: None, followed_at: epoch, recount }
    }

    /// Brings the tally up to now, and does a step of the recount if it is time. To be called every second or so.
    pub async fn come_round(&mut self) -> Result<(), StoreError> {
        let outcome = self.follow().await;
        let problem = outcome.as_ref().err().map(ToString::to_string);
        self.tally.write().problem = problem;
        outcome
    }

    /// Counts everything at the next round, whatever is counted already.
    pub fn begin_anew(&mut self) {
        self.read_to = None;
    }

    async fn follow(&mut self) -> Result<(), StoreError> {
        let now = self.store.now().await?;
        let away = now.duration_since(self.followed_at);
        if away > BEHIND_MAX || away < -BACK_MAX {
            // What happened meanwhile may be trimmed already; or the clock is another.
            self.read_to = None;
        }
        let Some(read_to) = self.read_to else { return self.count_all(now).await };
        self.read_to = Some(self.take_events(read_to, now).await?);
        self.followed_at = now;
        self.advance(now);
        if now.duration_since(self.recount.at) >= RECOUNT_EVERY {
            self.recount_step(now).await?;
        }
        self.read_wanted(now).await
    }

    /// Says up to when it has followed, and changes what changes by the clock.
    fn advance(&self, now: Timestamp) {
        self.tally.write().as_of = Some(now);
        // Bounded: each time round there are fewer, and others get their turn between.
        while !self.tally.write().advance(now) {}
    }

    /// Reads some of the past that was asked for and that there was no time for.
    async fn read_wanted(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let wanted = self.tally.write().take_wanted(PAST_AT_ONCE, now);
        let asked: Vec<_> = wanted.iter().map(|past| (past.name.clone(), past.from)).collect();
        let read = read_past(&*self.store, wanted, &|| true).await?;
        let mut table = self.tally.write();
        for (name, history) in read {
            table.keep_history(&name, history);
        }
        for (name, from) in asked {
            let is_known = |it: &TalliedPipeline| UnknownPast::of(&name, it, from, now).is_none();
            if !table.pipeline(&name).is_none_or(is_known) {
                table.want(&name, from);
            }
        }
        Ok(())
    }

    /// Forgets all that is counted: no one asks for it. The next round counts everything.
    pub fn rest(&mut self) {
        self.read_to = None;
        self.shared = SharedParts::default();
        *self.tally.write() = FleetTable::default();
    }

    /// Whether something waits to be read: then it is to come round again at once.
    pub fn is_wanted(&self) -> bool {
        !self.tally.read().wanted.is_empty()
    }

    /// Counts everything: what requests see is replaced at once, when it is done.
    async fn count_all(&mut self, now: Timestamp) -> Result<(), StoreError> {
        let store = Arc::clone(&self.store);
        // What happens while it is counted is followed afterwards.
        let read_to = store.mark().await?.number;
        let mut table = FleetTable::default();
        self.declare_all(&mut table, now).await?;
        let names: Vec<PipelineId> = table.pipelines().keys().cloned().collect();
        let (store, names) = (&*store, &names);
        // A few at a time: all of them together would be the whole ledger in memory.
        for ranges in ranges_of_all(now).chunks(RANGES_AT_ONCE) {
            let counted = for_each(ranges.to_vec(), |range| async move {
                Ok((range, read_range(store, names, range).await?))
            });
            for (range, seen) in counted.await? {
                for (name, rows) in seen {
                    table.change(&name, now, |pipeline| pipeline.take(range, &rows, now));
                }
            }
        }
        take_open_of_all(&mut table, read_open(store, names.clone()).await?, now);
        take_incidents_of_all(&mut table, read_incidents(store, names.clone()).await?, now);
        table.make_index(now);
        table.as_of = Some(now);
        *self.tally.write() = table;
        self.recount = RecountPlace { next: first_kept(now), at: self.store.now().await?.max(now) };
        (self.read_to, self.followed_at) = (Some(read_to), now);
        Ok(())
    }

    /// Reads events, and again what they are about. Says how far it came.
    async fn take_events(&mut self, after: u64, now: Timestamp) -> Result<u64, StoreError> {
        let mut read_to = after;
        for _ in 0..PAGES_AT_ONCE {
            let page = self.store.events(None, read_to, EVENTS).await?;
            let last = page.items.last().map_or(read_to, |event| event.number);
            let mut dirty: BTreeMap<PipelineId, DirtyPipeline> = BTreeMap::new();
            for event in page.items {
                if event.pipeline != PipelineId::system() {
                    dirty.entry(event.pipeline.clone()).or_default().take(&event, now);
                }
            }
            self.read_again(dirty, now).await?;
            read_to = last;
            if !page.more {
                break;
            }
        }
        Ok(read_to)
    }

    async fn read_again(
        &mut self,
        dirty: BTreeMap<PipelineId, DirtyPipeline>,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let mut dirty: Vec<_> = dirty.into_iter().collect();
        while !dirty.is_empty() {
            let rest = dirty.split_off(dirty.len().min(PIPELINES_AT_ONCE));
            let mut some = mem::replace(&mut dirty, rest);
            let names: Vec<_> = some.iter().map(|(name, _)| name.clone()).collect();
            let tally = self.tally.clone();
            let rows = self.read_rows(&names).await?;
            let anew = {
                let mut table = tally.write();
                self.take_rows(&mut table, rows, now)
            };
            {
                let table = tally.read();
                some.retain_mut(|(name, dirty)| {
                    let Some(pipeline) = table.pipeline(name) else { return false };
                    dirty.is_whole |= anew.contains(name);
                    dirty.has_incidents |= !pipeline.incidents.is_empty();
                    // What is open changes at times without an event of its own.
                    let base = first_kept(now);
                    let open = pipeline.open.iter().map(|slot| Quarter::of(slot.at));
                    dirty.quarters.extend(open.filter(|quarter| *quarter >= base));
                    true
                });
            }
            let store = &*self.store;
            let fresh = for_each(some, |(name, dirty)| read_fresh(store, name, dirty, now)).await?;
            let mut lost = Vec::new();
            {
                let mut table = tally.write();
                for fresh in fresh {
                    lost.extend(take_fresh(&mut table, fresh, now));
                }
            }
            for name in lost {
                let range = everything(now);
                let seen = read_range(store, std::slice::from_ref(&name), range).await?;
                take_seen(&mut tally.write(), range, &seen, now, &name);
            }
        }
        Ok(())
    }
}

/// The ranges that are counted one after the other when all is counted.
fn ranges_of_all(now: Timestamp) -> Vec<QuarterRange> {
    let (mut from, last) = (first_kept(now), Quarter::of(now).after(1));
    let mut ranges = Vec::new();
    while from < last {
        let until = from.after(CHUNK).min(last);
        ranges.push(QuarterRange { from, until });
        from = until;
    }
    ranges.push(QuarterRange { from, until: END });
    ranges
}
