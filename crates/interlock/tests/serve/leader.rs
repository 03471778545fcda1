//! Leader duty: who hangs, or cannot renew its lease, does not stay in office, and never acts beside its successor.
//!
//! Two machines share a store of one shard; each reaches it by a way that can be cut. The numbers are those of the list of faults
//! in `crates/interlock-liveness/tests/faults`.

use std::{
    collections::BTreeMap,
    fs,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use interlock_private_server::PrivateRedis;
use interlock_store::{Role, Shard, Store, block_on};
use interlock_store_redis::{RedisSettings, RedisStore};
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};
use jiff::Timestamp;

use crate::{
    Daemon,
    ha::proxy::Proxy,
    log,
    project::{Project, TICKER, signal, tail},
};

/// The lease and a second, and what a busy machine takes besides.
const FOLLOWED_IN: Duration = Duration::from_secs(5 + 10);

/// Two machines, of which the first owns the shard.
struct Pair {
    _server: PrivateRedis,
    ways: [Proxy; 2],
    machines: [Project; 2],
    daemons: Vec<Daemon>,
    store: Arc<dyn Store>,
}

impl Pair {
    fn start() -> Self {
        let server = PrivateRedis::start();
        let ways = [0, 1].map(|_| Proxy::to(server.port()));
        let machines = [0, 1].map(|at: usize| {
            let project = Project::new(&[("ticker", &ticker())]);
            let text = format!(
                "provider: redis\nredis: {{addr: '127.0.0.1:{}', shards: 1}}\nserver: {{addr: '127.0.0.1:0'}}\n",
                ways[at].port
            );
            fs::write(project.path().join("interlock.yaml"), text).unwrap();
            project
        });
        let first = Daemon::start(machines[0].path());
        machines[0].until("it runs", || (begun(&machines[0]).len() > 2).then_some(()));
        let second = Daemon::start(machines[1].path());
        let stands_by = || log(machines[1].path()).contains("standing by").then_some(());
        machines[1].until("it stands by", stands_by);
        let settings = RedisSettings { shards: 1, ..RedisSettings::new(server.address()) };
        let store = Arc::new(RedisStore::open(&settings).unwrap());
        Self { _server: server, ways, machines, daemons: vec![first, second], store }
    }

    /// Who has a role for the shard, until when, and what time it is, by the store's clock.
    fn owner(&self, role: Role) -> (Option<(String, Timestamp)>, Timestamp) {
        let roll = block_on(self.store.roll()).unwrap().unwrap();
        (roll.held.get(&(role, Shard(0))).cloned(), roll.now)
    }

    fn holder(&self) -> String {
        self.machines[0].until("somebody owns it", || self.owner(Role::Engine).0).0
    }

    /// Waits until somebody else has the role; answers with the last end of the first one's lease that was seen, and when
    /// the other was seen.
    fn until_followed_as(&self, role: Role, first: &str) -> (Timestamp, Timestamp) {
        let mut until = Timestamp::MIN;
        self.machines[1].until("it is followed", || match self.owner(role) {
            (Some((holder, ends)), _) if holder == first => {
                until = ends;
                None
            }
            (Some(_), now) => Some((until, now)),
            (None, _) => None,
        })
    }

    fn until_followed(&self, first: &str) -> (Timestamp, Timestamp) {
        self.until_followed_as(Role::Engine, first)
    }

    /// The first gives back what it holds in both roles, and the other does not wait for the end of a lease.
    fn is_given_back_by(&self, first: &str) {
        let followed = |role| {
            let (until, followed) = self.until_followed_as(role, first);
            assert!(followed < until, "{role:?}: the lease lasts until {until}; it is {followed}");
        };
        thread::scope(|scope| {
            scope.spawn(|| followed(Role::Watchdog));
            followed(Role::Engine);
        });
    }

    /// Whatever happened, every slot was run for once, and it goes on.
    fn nothing_is_doubled(&self) {
        let before = begun(&self.machines[1]).len();
        self.machines[1]
            .until("it goes on", || (begun(&self.machines[1]).len() > before + 2).then_some(()));
        let mut all = begun(&self.machines[0]);
        for (slot, times) in begun(&self.machines[1]) {
            *all.entry(slot).or_insert(0) += times;
        }
        let doubled: Vec<_> = all.iter().filter(|(_, times)| **times != 1).collect();
        assert!(doubled.is_empty(), "{doubled:?}");
    }
}

/// A run each second, which is under way half of the time. One that is, on the machine to which something happens, keeps its
/// place until its machine tells what became of it (S18); there is room for the others beside it.
fn ticker() -> String {
    format!("{}maxActiveRuns: 20\n", TICKER.replace("whole 0 0", "whole 0.5 0"))
}

/// How often a job of each slot began on a machine.
fn begun(machine: &Project) -> BTreeMap<String, usize> {
    let text = fs::read_to_string(machine.path().join("ran.log")).unwrap_or_default();
    let mut begun = BTreeMap::new();
    for line in text.lines().filter(|line| line.starts_with("start ")) {
        *begun.entry(line.split(' ').nth(2).unwrap().to_owned()).or_insert(0) += 1;
    }
    begun
}

#[test]
fn a_process_that_hangs_gives_its_shards_back_before_it_ends() {
    let mut pair = Pair::start();
    let first = pair.holder();
    // The loop that reads files hangs; the engine is well, and renews its lease.
    let config = pair.machines[0].path().join("interlock.yaml");
    fs::remove_file(&config).unwrap();
    assert!(Command::new("mkfifo").arg(&config).status_within(BOUND).unwrap().success());
    pair.is_given_back_by(&first);
    let ended = pair.daemons[0].0.wait_within("the end of the process that hangs", BOUND);
    let said = log(pair.machines[0].path());
    assert!(!ended.success(), "{}", tail(&said));
    assert!(said.contains("the shards are given back before this process ends"), "{}", tail(&said));
    pair.nothing_is_doubled();
}

#[test]
fn a_process_that_is_stopped_gives_back_what_its_engine_and_its_watchdog_hold() {
    let mut pair = Pair::start();
    let first = pair.holder();
    let watcher = pair.machines[0].until("somebody watches", || pair.owner(Role::Watchdog).0).0;
    assert_eq!(watcher, first, "one process has both roles");
    thread::scope(|scope| {
        scope.spawn(|| pair.is_given_back_by(&first));
        assert!(signal(pair.daemons[0].0.id(), "-TERM"));
    });
    assert!(pair.daemons[0].0.wait_within("the end of the process after SIGTERM", BOUND).success());
    pair.nothing_is_doubled();
}

#[test]
fn fault_31_a_leader_that_cannot_renew_steps_down_and_comes_back_as_a_follower() {
    let pair = Pair::start();
    let first = pair.holder();
    pair.ways[0].cut();
    let cut = Instant::now();
    let (until, followed) = pair.until_followed(&first);
    assert!(followed >= until, "nobody takes a lease that lasts until {until}: {followed}");
    assert!(cut.elapsed() < FOLLOWED_IN, "{:?}", cut.elapsed());
    let before = begun(&pair.machines[0]);
    pair.nothing_is_doubled();
    assert_eq!(begun(&pair.machines[0]), before, "it began nothing that it had not committed");
    pair.ways[0].heal();
    let second = pair.holder();
    pair.machines[0].until("it stands by", || {
        let said = log(pair.machines[0].path());
        said.contains("another instance owns the shard now").then_some(())
    });
    assert_eq!(pair.holder(), second, "who came back takes nothing away");
    pair.nothing_is_doubled();
}

#[test]
fn fault_32_an_answer_that_comes_after_the_lease_was_over_prolongs_nothing() {
    let pair = Pair::start();
    let first = pair.holder();
    // Questions and answers are kept back, and arrive when the other has followed.
    pair.ways[0].silence();
    pair.until_followed(&first);
    let second = pair.holder();
    pair.ways[0].heal();
    pair.machines[0].until("it hears of it", || {
        let said = log(pair.machines[0].path());
        said.contains("another instance owns the shard now").then_some(())
    });
    assert_eq!(pair.holder(), second);
    pair.nothing_is_doubled();
}

/// Threads of a process that stand still while the others go on.
struct Frozen(PathBuf);

impl Frozen {
    /// Freezes those with such a name; nothing where that is not allowed.
    fn threads(pid: u32, is_named: impl Fn(&str) -> bool) -> Option<Self> {
        let path = Path::new("/sys/fs/cgroup/freezer").join(format!("interlock-fault-34-{pid}"));
        fs::create_dir(&path).ok()?;
        let frozen = Self(path);
        for task in fs::read_dir(format!("/proc/{pid}/task")).unwrap().flatten() {
            let name = fs::read_to_string(task.path().join("comm")).unwrap_or_default();
            if is_named(name.trim()) {
                let id = task.file_name().into_string().unwrap();
                fs::write(frozen.0.join("tasks"), id).ok()?;
            }
        }
        fs::write(frozen.0.join("freezer.state"), "FROZEN").ok()?;
        Some(frozen)
    }
}

impl Drop for Frozen {
    fn drop(&mut self) {
        let _gone = fs::write(self.0.join("freezer.state"), "THAWED");
        for task in fs::read_to_string(self.0.join("tasks")).unwrap_or_default().lines() {
            let _gone = fs::write("/sys/fs/cgroup/freezer/tasks", task);
        }
        let _gone = fs::remove_dir(&self.0);
    }
}

#[test]
fn fault_34_a_leader_whose_loops_hang_is_followed_although_its_process_lives() {
    let pair = Pair::start();
    let first = pair.holder();
    let pid = pair.daemons[0].0.id();
    // Whatever runs tasks stands still; the threads of the guard and of the sentinel go on.
    let Some(frozen) = Frozen::threads(pid, |name| name == "tokio-rt-worker") else {
        println!("threads cannot be frozen here: not tried");
        return;
    };
    let began = Instant::now();
    pair.until_followed(&first);
    assert!(began.elapsed() < FOLLOWED_IN, "{:?}", began.elapsed());
    let second = pair.holder();
    pair.nothing_is_doubled();
    let is_there = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap();
    assert!(!is_there.contains(") Z "), "it is still there: {is_there}");
    drop(frozen);
    // It may act again, and its term is over: it writes nothing, and takes nothing back.
    thread::sleep(Duration::from_secs(1));
    assert_eq!(pair.holder(), second);
    pair.nothing_is_doubled();
}
