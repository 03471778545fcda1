//! Virtual time and everything that lives in it: one thread, one queue, one order.
//!
//! Tasks belong to processes. A process can be killed (its tasks are dropped where they wait), held (as if stopped by
//! the system, without knowing it), and have a clock that is wrong. Process [`NATURE`] is the world around them: it
//! has the true time and never dies. Time passes only when nobody has anything left to do now.

use std::{
    collections::{BTreeMap, BTreeSet, VecDeque},
    fmt,
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    task::{Context, Poll, Wake, Waker},
    time::Duration,
};

use interlock_engine::seam::{Task, World};
use interlock_store::whole_milliseconds;
use interlock_watchdog::seam as watchdog;
use jiff::{SignedDuration, Timestamp};

use crate::random::Random;

/// A process of the world, by number.
pub type Pid = u32;

/// The process that is the world itself.
pub const NATURE: Pid = 0;

/// So many steps at one instant, and somebody never sleeps.
const STEPS_MAX: u64 = 100_000;
/// How many ready tasks compete for being next.
const RIVALS: usize = 4;
/// The task that is polled where [`Clockwork::run`] was called.
const MAIN: u64 = 0;

/// Virtual time and the tasks that live in it.
#[derive(Clone)]
pub struct Clockwork(Arc<Shared>);

struct Shared {
    inner: Mutex<Inner>,
    ready: Arc<Mutex<VecDeque<u64>>>,
    is_halted: AtomicBool,
}

struct Inner {
    now: Timestamp,
    /// Who is to be woken when.
    timers: BTreeMap<(Timestamp, u64), Waker>,
    timers_set: u64,
    tasks: BTreeMap<u64, Living>,
    tasks_made: u64,
    processes: BTreeMap<Pid, Process>,
    /// How much earlier than their clocks say processes act, and how much later than they meant to they wake: mistakes, to
    /// see them caught.
    haste: SignedDuration,
    sloth: SignedDuration,
    /// Who goes first when several could; in the order of waking without it.
    order: Option<Random>,
    panics: Vec<(Pid, String)>,
    restless: Option<(Pid, &'static str)>,
}

/// A task.
struct Living {
    name: &'static str,
    pid: Pid,
    life: u64,
    /// Taken out while it is polled.
    future: Option<Task<()>>,
    bell: Arc<Bell>,
}

/// What is known of a process.
#[derive(Default)]
struct Process {
    /// Which of its lives it leads.
    life: u64,
    /// How far its clock is ahead of the true time.
    ahead: SignedDuration,
    is_held: bool,
    /// When it last went on after it was held.
    went_on_at: Option<Timestamp>,
    /// Tasks that stand still although it is not, by name.
    hangs: BTreeSet<&'static str>,
    /// Tasks that were woken while it was held.
    held: Vec<u64>,
}

/// Wakes a task.
struct Bell {
    task: u64,
    has_rung: AtomicBool,
    ready: Arc<Mutex<VecDeque<u64>>>,
}

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.has_rung.swap(true, Ordering::Relaxed) {
            lock(&self.ready).push_back(self.task);
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Clockwork {
    /// A world in which it is now this late, and whose tasks take their turns in the order of waking.
    pub fn new(now: Timestamp) -> Self {
        let inner = Inner {
            now,
            timers: BTreeMap::new(),
            timers_set: 0,
            tasks: BTreeMap::new(),
            tasks_made: MAIN,
            processes: BTreeMap::new(),
            haste: SignedDuration::ZERO,
            sloth: SignedDuration::ZERO,
            order: None,
            panics: vec![],
            restless: None,
        };
        Self(Arc::new(Shared {
            inner: Mutex::new(inner),
            ready: Arc::default(),
            is_halted: AtomicBool::new(false),
        }))
    }

    /// From now on who goes first is drawn.
    pub fn shuffle(&self, order: Random) {
        self.lock().order = Some(order);
    }

    /// Processes act so much too early, or wake so much too late.
    pub fn mislead(&self, haste: SignedDuration, sloth: SignedDuration) {
        let mut inner = self.lock();
        (inner.haste, inner.sloth) = (haste, sloth);
    }

    /// The true time.
    pub fn time(&self) -> Timestamp {
        self.lock().now
    }

    /// What a process sees of the world.
    pub fn process(&self, pid: Pid) -> ProcessWorld {
        ProcessWorld { clockwork: self.clone(), pid }
    }

    /// Runs the main task and all others until the main one ends, time reaches `until`, or [`Clockwork::halt`].
    pub fn run<T>(
        &self,
        mut main: Pin<&mut (dyn Future<Output = T> + Send)>,
        until: Timestamp,
    ) -> Option<T> {
        let bell = self.bell(MAIN);
        bell.wake_by_ref();
        let waker = Waker::from(Arc::clone(&bell));
        let mut context = Context::from_waker(&waker);
        let mut steps = 0;
        while !self.0.is_halted.load(Ordering::Relaxed) {
            steps += 1;
            match self.next_ready() {
                Some(MAIN) => {
                    bell.has_rung.store(false, Ordering::Relaxed);
                    if let Poll::Ready(value) = main.as_mut().poll(&mut context) {
                        return Some(value);
                    }
                }
                Some(task) if steps > STEPS_MAX => {
                    let mut inner = self.lock();
                    inner.restless = inner.tasks.get(&task).map(|task| (task.pid, task.name));
                    return None;
                }
                Some(task) => self.poll(task),
                None if self.pass_time(until) => steps = 0,
                None => return None,
            }
        }
        None
    }

    /// Ends [`Clockwork::run`] after the present step.
    pub fn halt(&self) {
        self.0.is_halted.store(true, Ordering::Relaxed);
    }

    /// How often somebody went to sleep.
    pub fn timers_set(&self) -> u64 {
        self.lock().timers_set
    }

    /// Time passes while nobody does anything.
    pub fn pass(&self, time: SignedDuration) {
        let due = {
            let mut inner = self.lock();
            let now = plus(inner.now, time);
            inner.advance(now)
        };
        due.iter().for_each(Waker::wake_by_ref);
    }

    /// A process dies: its tasks are gone.
    pub fn kill(&self, pid: Pid) {
        let dead: Vec<Living> = {
            let mut inner = self.lock();
            let process = inner.processes.entry(pid).or_default();
            process.life += 1;
            process.is_held = false;
            process.hangs.clear();
            process.held.clear();
            let tasks: Vec<u64> =
                inner.tasks.iter().filter(|(_, task)| task.pid == pid).map(|(id, _)| *id).collect();
            tasks.into_iter().filter_map(|task| inner.tasks.remove(&task)).collect()
        };
        // What a task owned may wake others or ask for the time when it is dropped.
        drop(dead);
    }

    /// Which of its lives a process leads.
    pub fn life(&self, pid: Pid) -> u64 {
        self.lock().processes.entry(pid).or_default().life
    }

    /// A process stands still until [`Clockwork::let_go`], and does not know it.
    pub fn hold(&self, pid: Pid) {
        self.lock().processes.entry(pid).or_default().is_held = true;
    }

    /// A process stands still for a while.
    pub fn hold_for(&self, pid: Pid, time: SignedDuration) {
        self.hold(pid);
        let (this, world) = (self.clone(), self.process(NATURE));
        let sleep = world.sleep(time);
        let thaw = async move {
            sleep.await;
            this.let_go(pid);
        };
        world.spawn("a process goes on", Box::pin(thaw));
    }

    /// A process that was held goes on.
    pub fn let_go(&self, pid: Pid) {
        let held = {
            let mut inner = self.lock();
            let now = inner.now;
            let process = inner.processes.entry(pid).or_default();
            if std::mem::replace(&mut process.is_held, false) {
                process.went_on_at = Some(now);
            }
            std::mem::take(&mut process.held)
        };
        lock(&self.0.ready).extend(held);
    }

    /// When a process last went on after it was held.
    pub fn went_on_at(&self, pid: Pid) -> Option<Timestamp> {
        self.lock().processes.get(&pid).and_then(|process| process.went_on_at)
    }

    /// Tasks of a process with this name stand still, and the others do not.
    pub fn hang(&self, pid: Pid, name: &'static str) {
        self.lock().processes.entry(pid).or_default().hangs.insert(name);
    }

    /// Such tasks go on, if their process is still in this life.
    pub fn unhang(&self, pid: Pid, name: &'static str, life: u64) {
        let held = {
            let mut inner = self.lock();
            let process = inner.processes.entry(pid).or_default();
            if process.life != life {
                return;
            }
            process.hangs.remove(name);
            std::mem::take(&mut process.held)
        };
        // Those that are still held are put back when their turn comes.
        lock(&self.0.ready).extend(held);
    }

    /// Sets a process's clock to be ahead of the true time by so much, or behind it.
    pub fn set_clock(&self, pid: Pid, ahead: SignedDuration) {
        self.lock().processes.entry(pid).or_default().ahead = ahead;
    }

    /// How far a process's clock is ahead.
    pub fn clock_of(&self, pid: Pid) -> SignedDuration {
        self.lock().processes.get(&pid).map_or(SignedDuration::ZERO, |process| process.ahead)
    }

    /// What tasks said when they panicked.
    pub fn take_panics(&self) -> Vec<(Pid, String)> {
        std::mem::take(&mut self.lock().panics)
    }

    /// A process whose tasks never sleep, if that ended [`Clockwork::run`].
    pub fn restless(&self) -> Option<(Pid, &'static str)> {
        self.lock().restless
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        lock(&self.0.inner)
    }

    fn bell(&self, task: u64) -> Arc<Bell> {
        let ready = Arc::clone(&self.0.ready);
        Arc::new(Bell { task, has_rung: AtomicBool::new(false), ready })
    }

    fn next_ready(&self) -> Option<u64> {
        let mut inner = self.lock();
        let mut ready = lock(&self.0.ready);
        if ready.len() > 1
            && let Some(order) = &mut inner.order
        {
            let chosen = order.below(ready.len().min(RIVALS) as u64) as usize;
            ready.swap(0, chosen);
        }
        ready.pop_front()
    }

    fn poll(&self, id: u64) {
        let (mut future, bell, pid) = {
            let mut inner = self.lock();
            let Some(task) = inner.tasks.get(&id) else { return };
            let (pid, name, bell) = (task.pid, task.name, Arc::clone(&task.bell));
            let process = inner.processes.entry(pid).or_default();
            if process.is_held || process.hangs.contains(name) {
                process.held.push(id);
                return;
            }
            let Some(future) = inner.tasks.get_mut(&id).and_then(|task| task.future.take()) else {
                return;
            };
            (future, bell, pid)
        };
        bell.has_rung.store(false, Ordering::Relaxed);
        let waker = Waker::from(bell);
        let mut context = Context::from_waker(&waker);
        // A task that panics is gone, as in a real runtime.
        let polled = catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut context)));
        let mut inner = self.lock();
        match polled {
            Ok(Poll::Pending) => {
                let life = inner.processes.entry(pid).or_default().life;
                if let Some(task) = inner.tasks.get_mut(&id).filter(|task| task.life == life) {
                    task.future = Some(future);
                    return;
                }
                drop(inner);
                drop(future);
            }
            Ok(Poll::Ready(())) => {
                inner.tasks.remove(&id);
            }
            Err(panic) => {
                inner.tasks.remove(&id);
                let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
                let text = text.or_else(|| panic.downcast_ref::<String>().cloned());
                inner.panics.push((pid, text.unwrap_or_default()));
            }
        }
    }

    /// Lets time pass to the next timer; says whether there is one before the end.
    fn pass_time(&self, until: Timestamp) -> bool {
        let due = {
            let mut inner = self.lock();
            match inner.timers.first_key_value() {
                Some((&(at, _), _)) if at < until => {
                    let now = inner.now.max(at);
                    inner.advance(now)
                }
                _ => {
                    inner.now = inner.now.max(until);
                    return false;
                }
            }
        };
        due.iter().for_each(Waker::wake_by_ref);
        true
    }
}

impl Inner {
    /// It is now this late; answers with who is to be woken.
    fn advance(&mut self, now: Timestamp) -> Vec<Waker> {
        self.now = now;
        let mut due = Vec::new();
        while let Some(first) = self.timers.first_entry()
            && first.key().0 <= now
        {
            due.push(first.remove());
        }
        due
    }
}

impl fmt::Debug for Clockwork {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Clockwork").field("now", &self.time()).finish_non_exhaustive()
    }
}

/// The world as one process sees it.
#[derive(Clone, Debug)]
pub struct ProcessWorld {
    clockwork: Clockwork,
    pid: Pid,
}

impl ProcessWorld {
    /// Which process.
    pub fn pid(&self) -> Pid {
        self.pid
    }

    /// Waits for a while.
    pub fn sleep(&self, time: SignedDuration) -> Task<()> {
        self.sleep_until(plus(self.now(), time))
    }

    /// Lets everybody else who is ready go first.
    pub async fn yield_now(&self) {
        let mut has_waited = false;
        std::future::poll_fn(|context| {
            if std::mem::replace(&mut has_waited, true) {
                return Poll::Ready(());
            }
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }
}

impl World for ProcessWorld {
    fn now(&self) -> Timestamp {
        let inner = self.clockwork.lock();
        if self.pid == NATURE {
            return inner.now;
        }
        let ahead = inner.processes.get(&self.pid).map_or(SignedDuration::ZERO, |it| it.ahead);
        let ahead = ahead + inner.haste;
        if ahead.is_zero() { inner.now } else { plus(inner.now, ahead) }
    }

    fn uptime(&self) -> Duration {
        // Nobody sets this one.
        Duration::try_from(self.clockwork.time().duration_since(Timestamp::UNIX_EPOCH))
            .unwrap_or_default()
    }

    fn boot(&self) -> Option<Duration> {
        Some(self.uptime())
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        Box::pin(Sleep { world: self.clone(), at, timer: None })
    }

    fn spawn(&self, name: &'static str, task: Task<()>) {
        let bell = {
            let mut inner = self.clockwork.lock();
            inner.tasks_made += 1;
            let id = inner.tasks_made;
            let life = inner.processes.entry(self.pid).or_default().life;
            let bell = self.clockwork.bell(id);
            let (pid, future) = (self.pid, Some(task));
            inner.tasks.insert(id, Living { name, pid, life, future, bell: Arc::clone(&bell) });
            bell
        };
        bell.wake_by_ref();
    }
}

impl watchdog::World for ProcessWorld {
    fn now(&self) -> Timestamp {
        whole_milliseconds(World::now(self))
    }

    fn boot(&self) -> Option<Duration> {
        World::boot(self)
    }

    fn sleep_until(&self, at: Timestamp) -> Task<()> {
        World::sleep_until(self, at)
    }
}

/// Waits until a process's clock shows an instant.
struct Sleep {
    world: ProcessWorld,
    at: Timestamp,
    timer: Option<(Timestamp, u64)>,
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let now = self.world.now();
        let mut inner = self.world.clockwork.lock();
        if let Some(timer) = self.timer {
            inner.timers.remove(&timer);
        }
        if now >= self.at {
            return Poll::Ready(());
        }
        inner.timers_set += 1;
        let sloth = if self.world.pid == NATURE { SignedDuration::ZERO } else { inner.sloth };
        let timer = (plus(inner.now, self.at.duration_since(now) + sloth), inner.timers_set);
        inner.timers.insert(timer, context.waker().clone());
        drop(inner);
        self.timer = Some(timer);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(timer) = self.timer {
            self.world.clockwork.lock().timers.remove(&timer);
        }
    }
}

fn plus(at: Timestamp, time: SignedDuration) -> Timestamp {
    at.saturating_add(time).unwrap_or(Timestamp::MAX)
}
