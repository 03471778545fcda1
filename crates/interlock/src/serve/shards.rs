//! Which shards this process owns, in one role: engines and watchdogs each have a loop of this kind.
//!
//! Each look says that we are here, asks who else is and who holds what, and does this process's part of the division
//! (`interlock_core::ownership`): what is too much is given back, what nobody holds is asked for. Nothing is taken from
//! anybody: a dead instance's shards are free when its leases have run out. A store that only this process can write has no
//! roll, and everything there is ours.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use interlock_core::ownership::{Situation, divide};
use interlock_engine::{EngineError, seam::Task, vitals::Pulse};
use interlock_store::{Role, Roll, Shard, Store, StoreError, for_each};
use jiff::SignedDuration;
use tokio::{
    sync::{mpsc, oneshot},
    task::JoinHandle,
    time::{Instant, sleep, timeout},
};

use super::{roster::Roster, unreached::Unreached};

/// How often it is looked who is there.
const LOOK_EVERY: Duration = Duration::from_millis(400);
/// How long the work on all shards may take to end.
const END_IN: Duration = Duration::from_secs(8);
/// How long it may take to say that we leave.
const LEAVE_IN: Duration = Duration::from_secs(1);

/// How the work on a shard ended.
#[derive(Debug)]
pub(crate) enum Ended {
    /// As was asked.
    GivenBack,
    /// Somebody else has it.
    Followed,
    /// The store failed, and may answer again.
    Again(StoreError),
    /// It cannot go on.
    Broken(EngineError),
}

/// A shard at work.
#[derive(Debug)]
pub(crate) struct AtWork {
    pub(crate) task: JoinHandle<Ended>,
    pub(crate) stop: oneshot::Sender<()>,
    /// Moves while it comes round.
    pub(crate) pulse: Pulse,
}

/// The shards that were had, at work.
pub(crate) type Begun = Result<Vec<(Shard, AtWork)>, EngineError>;

/// What is done with shards.
pub(crate) trait Work: Send + Sync + 'static {
    /// Begins to work on those of these shards that can be had.
    fn begin(self: Arc<Self>, shards: Vec<Shard>) -> Task<Begun>;
}

/// A shard that is ours.
struct Mine {
    task: JoinHandle<Ended>,
    /// Gone once it was asked to end.
    stop: Option<oneshot::Sender<()>>,
    pulse: Pulse,
    /// The pulse when all had last come round.
    seen: u64,
}

/// Another instance that has a shard.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ShardFollower {
    holder: String,
    /// Whether our work on the shard had yet to end.
    is_ours_at_work: bool,
}

/// Who owns shards.
pub(crate) struct Owner<W> {
    pub(crate) parts: OwnerParts<W>,
    mine: BTreeMap<Shard, Mine>,
    beginning: Option<JoinHandle<Begun>>,
    /// Who held what at the last look, or when it was last held.
    holders: BTreeMap<Shard, String>,
    /// Which shards others held at the last look, as far as was passed on.
    followers: BTreeMap<Shard, ShardFollower>,
    announce_at: Instant,
    is_away: bool,
    /// What is being taken up.
    asked: Vec<Shard>,
    roster: Roster,
    /// Shards whose work failed, or could not begin, and that have not come round since.
    failing: BTreeSet<Shard>,
}

/// What an owner is made of.
pub(crate) struct OwnerParts<W> {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) role: Role,
    /// Who we are to the leases.
    pub(crate) holder: String,
    pub(crate) lease: SignedDuration,
    pub(crate) work: Arc<W>,
    /// Moves while all shards come round.
    pub(crate) pulse: Pulse,
    /// Hears of shards that another instance has taken over, where somebody wants to know.
    pub(crate) taken_over: Option<mpsc::UnboundedSender<Shard>>,
    /// Hears of shards that cannot be reached, and when they can be again.
    pub(crate) unreached: Arc<Unreached>,
}

impl<W: Work> Owner<W> {
    /// The owner of nothing yet. Inside a runtime.
    pub(crate) fn new(parts: OwnerParts<W>) -> Self {
        Self {
            parts,
            mine: BTreeMap::new(),
            beginning: None,
            holders: BTreeMap::new(),
            followers: BTreeMap::new(),
            announce_at: Instant::now(),
            is_away: false,
            asked: Vec::new(),
            roster: Roster::default(),
            failing: BTreeSet::new(),
        }
    }

    /// Takes what it can have at once, and waits until that is at work.
    pub(crate) async fn first(&mut self) -> Result<(), EngineError> {
        self.announce().await?;
        let roll = self.parts.store.roll().await?;
        let (_, mut take) = self.plan(roll.as_ref());
        take.sort_unstable();
        let begun = self.begin(take).await?;
        self.take_up(begun);
        if self.mine.is_empty() && roll.is_none() {
            return Err(EngineError::Deposed);
        }
        if self.mine.is_empty() {
            tracing::info!("other instances own all shards: standing by");
        }
        Ok(())
    }

    /// Owns what it should until it is told to stop; then it gives all back.
    pub(crate) async fn run(mut self, mut stop: Task<()>) -> Result<(), EngineError> {
        loop {
            tokio::select! {
                biased;
                () = &mut stop => {
                    self.leave().await;
                    return Ok(());
                }
                () = sleep(LOOK_EVERY) => self.look().await?,
            }
        }
    }

    async fn look(&mut self) -> Result<(), EngineError> {
        self.reap().await?;
        self.come_round();
        let looked = self.divide().await;
        match looked {
            Ok(()) => self.is_away = false,
            Err(error) if error.is_retryable => {
                if !std::mem::replace(&mut self.is_away, true) {
                    tracing::warn!(%error, "cannot ask who owns which shard");
                }
            }
            Err(error) => return Err(error.into()),
        }
        Ok(())
    }

    /// Takes leave of shards whose work ended, and welcomes those whose work began.
    async fn reap(&mut self) -> Result<(), EngineError> {
        // Where nobody else could go on, whoever keeps this process running decides.
        let is_shared = self.is_shared();
        if let Some(beginning) = self.beginning.take_if(|it| it.is_finished()) {
            // Those who begin have yet to come round; those who do not have failed until somebody else has them.
            let asked = std::mem::take(&mut self.asked);
            let count = asked.len();
            self.failing.extend(asked);
            match joined(beginning).await {
                Ok(begun) => {
                    if begun.len() < count {
                        self.parts.pulse.try_in_vain();
                    }
                    self.take_up(begun);
                }
                Err(EngineError::Store(error)) if error.is_retryable && is_shared => {
                    self.parts.pulse.try_in_vain();
                    tracing::warn!(%error, "cannot take over shards; trying again");
                }
                Err(error) => return Err(error),
            }
        }
        let ended: Vec<Shard> =
            self.mine.iter().filter(|(_, it)| it.task.is_finished()).map(|(s, _)| *s).collect();
        for shard in ended {
            let Some(mine) = self.mine.remove(&shard) else { continue };
            let (role, number) = (self.parts.role.as_str(), shard.0);
            let ended = joined(mine.task).await;
            match &ended {
                Ended::Again(error) => {
                    self.parts.unreached.failed(self.parts.role, shard, error);
                }
                Ended::GivenBack | Ended::Followed | Ended::Broken(_) => {
                    self.parts.unreached.reached(self.parts.role, shard);
                }
            }
            match ended {
                Ended::GivenBack => tracing::info!(role, shard = number, "shard given back"),
                Ended::Followed if is_shared => {
                    tracing::warn!(role, shard = number, "another instance owns the shard now");
                }
                Ended::Again(error) if is_shared => {
                    self.failing.insert(shard);
                    self.parts.pulse.try_in_vain();
                    tracing::warn!(role, shard = number, %error, "taking over the shard again");
                }
                Ended::Followed => return Err(EngineError::Deposed),
                Ended::Again(error) => return Err(error.into()),
                Ended::Broken(error) => return Err(error),
            }
        }
        Ok(())
    }

    fn take_up(&mut self, begun: Vec<(Shard, AtWork)>) {
        for (shard, AtWork { task, stop, pulse }) in begun {
            if self.parts.store.shard_count() > 1 {
                tracing::info!(role = self.parts.role.as_str(), shard = shard.0, "owns the shard");
            }
            let seen = pulse.count();
            self.mine.insert(shard, Mine { task, stop: Some(stop), pulse, seen });
        }
    }

    /// Whether others could go on with what this process leaves.
    fn is_shared(&self) -> bool {
        self.parts.store.shard_count() > 1 || !self.holders.is_empty()
    }

    /// One that stands still must not hide among the others, nor one that ends as soon as it has begun. Where nobody else
    /// could do it, nothing at work is nothing done.
    fn come_round(&mut self) {
        let (mine, holders, me) = (&self.mine, &self.holders, self.parts.holder.as_str());
        let fails = |shard: &Shard| match mine.get(shard) {
            Some(mine) => mine.pulse.count() == mine.seen,
            None => holders.get(shard).is_none_or(|holder| holder == me),
        };
        for shard in self.failing.extract_if(.., |shard| !fails(shard)) {
            self.parts.unreached.reached(self.parts.role, shard);
        }
        // Nothing at work, and nobody known who does it.
        let is_idle = self.mine.is_empty() && self.holders.is_empty();
        if is_idle || !self.failing.is_empty() {
            return;
        }
        if self.mine.values().all(|mine| mine.pulse.count() != mine.seen) {
            for mine in self.mine.values_mut() {
                mine.seen = mine.pulse.count();
            }
            self.parts.pulse.beat();
        }
    }

    async fn divide(&mut self) -> Result<(), StoreError> {
        if Instant::now() >= self.announce_at {
            self.announce().await?;
        }
        let roll = self.parts.store.roll().await?;
        if let Some(roll) = roll.as_ref().filter(|_| self.parts.role == Role::Engine) {
            let us = (self.parts.role, self.parts.holder.as_str());
            self.roster.attend(us, roll, self.parts.store.as_ref()).await;
        }
        let (give, take) = self.plan(roll.as_ref());
        for shard in give {
            if let Some(stop) = self.mine.get_mut(&shard).and_then(|mine| mine.stop.take()) {
                tracing::info!(
                    role = self.parts.role.as_str(),
                    shard = shard.0,
                    "gives the shard back"
                );
                let _it_has_ended = stop.send(());
            }
        }
        if !take.is_empty() && self.beginning.is_none() {
            self.asked.clone_from(&take);
            self.beginning = Some(tokio::spawn(self.begin(take)));
        }
        Ok(())
    }

    /// Begins to work on those of these shards whose server answers. To take one up is tried for so long that a server may follow another
    /// one meanwhile; whoever is away for longer must not keep the others waiting, again and again.
    fn begin(&self, shards: Vec<Shard>) -> Task<Begun> {
        let OwnerParts { store, role, work, unreached, .. } = &self.parts;
        let (store, role) = (Arc::clone(store), *role);
        let (work, unreached) = (Arc::clone(work), Arc::clone(unreached));
        Box::pin(async move {
            let (answering, away) = ask_all(&store, shards).await?;
            for (shard, error) in &away {
                if unreached.failed(role, *shard, error) {
                    let (role, shard) = (role.as_str(), shard.0);
                    tracing::warn!(role, shard, %error, "cannot take over the shard now; trying again");
                }
            }
            if answering.is_empty() && !away.is_empty() {
                return Ok(vec![]);
            }
            work.begin(answering).await
        })
    }

    /// Says that we are here for three quarters of a lease: a dead instance is off the roll when its leases run out.
    async fn announce(&mut self) -> Result<(), StoreError> {
        let ttl = self.parts.lease * 3 / 4;
        self.parts.store.announce(self.parts.role, &self.parts.holder, ttl).await?;
        self.announce_at = Instant::now() + Duration::try_from(ttl / 3).unwrap_or_default();
        Ok(())
    }

    /// What to give back, and what to ask for.
    fn plan(&mut self, roll: Option<&Roll>) -> (Vec<Shard>, Vec<Shard>) {
        let count = self.parts.store.shard_count();
        let Some(roll) = roll else {
            let all = (0..count).map(Shard).filter(|shard| !self.mine.contains_key(shard));
            return (vec![], all.collect());
        };
        let role = self.parts.role;
        let of_role = roll.present.iter().filter(|(of, _)| *of == role);
        let present: BTreeSet<String> = of_role.map(|(_, name)| name.clone()).collect();
        let held = roll.held.iter().filter(|((of, _), _)| *of == role);
        let held: BTreeMap<u16, String> =
            held.map(|((_, shard), (holder, _))| (shard.0, holder.clone())).collect();
        self.note_who_follows(&held);
        let me = self.parts.holder.as_str();
        let plan = divide(&Situation { shards: count, me, present: &present, held: &held });
        let give: Vec<Shard> = plan.give.into_iter().map(Shard).collect();
        // A lease that is ours and that nobody works under: its work has ended.
        let idle = held.iter().filter(|(_, holder)| *holder == me).map(|(shard, _)| Shard(*shard));
        let idle = idle.filter(|shard| !give.contains(shard));
        let take = plan.take.into_iter().map(Shard).chain(idle);
        let take = take.filter(|shard| !self.mine.contains_key(shard)).collect();
        (give, take)
    }

    /// Passes on which shards have come into other hands.
    ///
    /// We may have had a shard between two looks only, so that the same instance holds it at both, and may have begun jobs. So a
    /// shard that is free, which it is before we take it, is news when it is held again. And what jobs say goes to our engine for as long
    /// as that lives, although it can no longer record it: a shard is news once more when our work on it has ended.
    fn note_who_follows(&mut self, held: &BTreeMap<u16, String>) {
        self.followers.retain(|shard, _| held.contains_key(&shard.0));
        for (shard, holder) in held {
            let shard = Shard(*shard);
            self.holders.insert(shard, holder.clone());
            if *holder == self.parts.holder {
                self.followers.remove(&shard);
                continue;
            }
            let is_ours_at_work = self.mine.contains_key(&shard) || self.asked.contains(&shard);
            let follower = ShardFollower { holder: holder.clone(), is_ours_at_work };
            let is_news = self.followers.get(&shard) != Some(&follower);
            self.followers.insert(shard, follower);
            if let Some(tell) = self.parts.taken_over.as_ref().filter(|_| is_news) {
                let _nobody_asks = tell.send(shard);
            }
        }
    }

    /// Gives everything back, so that others need not wait for the leases to run out.
    async fn leave(mut self) {
        // First of all, so that nobody counts on us.
        let left =
            self.parts.store.announce(self.parts.role, &self.parts.holder, SignedDuration::ZERO);
        let _it_runs_out = timeout(LEAVE_IN, left).await;
        if let Some(Ok(Ok(begun))) = match self.beginning.take() {
            Some(beginning) => timeout(END_IN, beginning).await.ok(),
            None => None,
        } {
            self.take_up(begun);
        }
        for mine in self.mine.values_mut() {
            let _it_has_ended = mine.stop.take().map(|stop| stop.send(()));
        }
        let all = async {
            for (_, mine) in std::mem::take(&mut self.mine) {
                let _however = mine.task.await;
            }
        };
        let _left_behind = timeout(END_IN, all).await;
    }
}

/// Which of these shards answer a small question, and what is wrong with the others. An only one keeps nobody waiting and is not asked.
async fn ask_all(
    store: &Arc<dyn Store>,
    shards: Vec<Shard>,
) -> Result<(Vec<Shard>, Vec<(Shard, StoreError)>), StoreError> {
    if store.shard_count() <= 1 {
        return Ok((shards, vec![]));
    }
    let asked = for_each(shards, |shard| async move {
        Ok((shard, store.revisions(shard, None, 1).await.map(drop)))
    });
    let (mut answering, mut away) = (Vec::new(), Vec::new());
    for (shard, answer) in asked.await? {
        match answer {
            Ok(()) => answering.push(shard),
            Err(error) if error.is_retryable => away.push((shard, error)),
            Err(error) => return Err(error),
        }
    }
    Ok((answering, away))
}

/// What a task answered; a panic goes on here.
async fn joined<T>(task: JoinHandle<T>) -> T {
    match task.await {
        Ok(answer) => answer,
        Err(error) if error.is_panic() => std::panic::resume_unwind(error.into_panic()),
        // Nobody aborts these tasks: the runtime is going down.
        Err(_) => std::future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use std::{
        sync::atomic::{AtomicI64, Ordering::SeqCst},
        time::Duration,
    };

    use interlock_store::{Lease, memory::MemoryStore};
    use jiff::Timestamp;
    use tokio::{sync::Notify, task::yield_now, time::sleep};

    use super::*;

    /// Work that is taken up and fails at once, however often.
    struct Fails;

    impl Work for Fails {
        fn begin(self: Arc<Self>, shards: Vec<Shard>) -> Task<Begun> {
            Box::pin(async move {
                let begun = shards.into_iter().map(|shard| {
                    let (stop, stopped) = oneshot::channel();
                    let task = tokio::spawn(async move {
                        drop(stopped);
                        Ended::Again(StoreError::permanent("it cannot be written"))
                    });
                    (shard, AtWork { task, stop, pulse: Pulse::default() })
                });
                Ok(begun.collect())
            })
        }
    }

    /// What an owner of so many shards shows in ten looks, begun again whenever it ends as `serve` does.
    async fn shows_in_ten_looks(shards: u16) -> Pulse {
        let clock = Arc::new(|| jiff::Timestamp::UNIX_EPOCH);
        let store: Arc<dyn Store> = Arc::new(MemoryStore::new(shards, clock));
        let (work, pulse) = (Arc::new(Fails), Pulse::default());
        let begins = async {
            // Bounded: the timeout below ends it.
            loop {
                let owner = Owner::new(OwnerParts {
                    store: Arc::clone(&store),
                    role: Role::Watchdog,
                    holder: "us".to_owned(),
                    lease: SignedDuration::from_secs(15),
                    work: Arc::clone(&work),
                    pulse: pulse.clone(),
                    taken_over: None,
                    unreached: Arc::default(),
                });
                let _failed = owner.run(Box::pin(std::future::pending())).await;
                pulse.try_in_vain();
                sleep(Duration::from_millis(10)).await;
            }
        };
        let _over = timeout(LOOK_EVERY * 10, begins).await;
        pulse
    }

    /// How long our leases last, by the clock of the store.
    const LEASE: SignedDuration = SignedDuration::from_secs(4);
    const SHARD: Shard = Shard(1);

    /// Work that takes the lease, and ends when the test says that it was followed.
    struct TakingWork {
        store: Arc<MemoryStore>,
        followed: Arc<Notify>,
    }

    impl Work for TakingWork {
        fn begin(self: Arc<Self>, shards: Vec<Shard>) -> Task<Begun> {
            Box::pin(async move {
                let mut begun = Vec::new();
                for shard in shards {
                    let lease = self.store.acquire(Role::Engine, shard, "us", LEASE).await?;
                    let (stop, stopped) = oneshot::channel();
                    let followed = Arc::clone(&self.followed);
                    let task = tokio::spawn(async move {
                        // Bounded: the test notifies it, or ends its runtime.
                        followed.notified().await;
                        drop(stopped);
                        Ended::Followed
                    });
                    begun.extend(
                        lease.map(|_| (shard, AtWork { task, stop, pulse: Pulse::default() })),
                    );
                }
                Ok(begun)
            })
        }
    }

    /// Us and another instance, which has two shards at first.
    struct RivalOwners {
        store: Arc<MemoryStore>,
        seconds: Arc<AtomicI64>,
        followed: Arc<Notify>,
        us: Owner<TakingWork>,
        told: mpsc::UnboundedReceiver<Shard>,
    }

    impl RivalOwners {
        /// They have both shards, and we know it; then they give one back.
        async fn start() -> Self {
            let seconds = Arc::new(AtomicI64::new(0));
            let time = Arc::clone(&seconds);
            let clock = Arc::new(move || Timestamp::from_second(time.load(SeqCst)).unwrap());
            let store = Arc::new(MemoryStore::new(2, clock));
            let followed = Arc::new(Notify::new());
            let (taken_over, told) = mpsc::unbounded_channel();
            let us = Owner::new(OwnerParts {
                store: Arc::clone(&store) as Arc<dyn Store>,
                role: Role::Engine,
                holder: "us".to_owned(),
                lease: LEASE,
                work: Arc::new(TakingWork {
                    store: Arc::clone(&store),
                    followed: Arc::clone(&followed),
                }),
                pulse: Pulse::default(),
                taken_over: Some(taken_over),
                unreached: Arc::default(),
            });
            let mut rivals = Self { store, seconds, followed, us, told };
            let hour = SignedDuration::from_hours(1);
            rivals.store.announce(Role::Engine, "them", hour).await.unwrap();
            rivals.they_take(Shard(0)).await;
            let lease = rivals.they_take(SHARD).await;
            assert_eq!(rivals.look().await, [Shard(0), SHARD]);
            assert_eq!(rivals.look().await, []);
            rivals.store.release(lease.writer).await.unwrap();
            rivals
        }

        async fn they_take(&self, shard: Shard) -> Lease {
            let hour = SignedDuration::from_hours(1);
            self.store.acquire(Role::Engine, shard, "them", hour).await.unwrap().unwrap()
        }

        /// What we hear at a look, after which the work that it began has begun.
        async fn look(&mut self) -> Vec<Shard> {
            self.us.look().await.unwrap();
            for _ in 0..100 {
                yield_now().await;
            }
            std::iter::from_fn(|| self.told.try_recv().ok()).collect()
        }

        /// Our lease runs out, and they take the shard.
        async fn they_follow(&self) {
            self.seconds.fetch_add(LEASE.as_secs() + 1, SeqCst);
            self.they_take(SHARD).await;
        }
    }

    #[tokio::test]
    async fn a_shard_that_was_ours_between_two_looks_has_come_into_other_hands() {
        let mut rivals = RivalOwners::start().await;
        assert_eq!(rivals.look().await, [], "it is free, and we take it");
        rivals.they_follow().await;
        rivals.followed.notify_waiters();
        yield_now().await;
        assert_eq!(rivals.look().await, [SHARD], "they had it at the last look but one, too");
        assert_eq!(rivals.look().await, []);
    }

    #[tokio::test]
    async fn a_shard_has_come_into_other_hands_again_when_our_work_on_it_ends() {
        let mut rivals = RivalOwners::start().await;
        assert_eq!(rivals.look().await, []);
        assert_eq!(rivals.look().await, [], "we have it");
        rivals.they_follow().await;
        assert_eq!(rivals.look().await, [SHARD], "our engine does not know it yet");
        assert_eq!(rivals.look().await, []);
        rivals.followed.notify_waiters();
        yield_now().await;
        assert_eq!(rivals.look().await, [SHARD], "what it was told is lost with it");
        assert_eq!(rivals.look().await, []);
    }

    #[tokio::test]
    async fn work_that_fails_as_soon_as_it_begins_never_comes_round() {
        for shards in [1, 12] {
            let pulse = shows_in_ten_looks(shards).await;
            assert_eq!(pulse.count(), 0, "{shards} shards: it does nothing, and must not say so");
            assert!(pulse.signs_of_life() > 1, "{shards} shards: it does not hang either");
        }
    }
}
