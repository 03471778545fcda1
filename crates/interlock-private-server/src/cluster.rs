//! A private Redis Cluster.

use std::{
    collections::BTreeSet,
    thread,
    time::{Duration, Instant},
};

use crate::{PrivateRedis, RedisClient, port::Port, redis_cli, wait_for};

/// How many servers share the hash slots.
const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;
/// After how long a replica asks for votes again: the servers give up an election that was asked for after five seconds.
const ASK_AGAIN_AFTER: Duration = Duration::from_secs(6);

/// After how long servers that do not know each other are introduced again: a server forgets an introduction after one second.
const INTRODUCE_AGAIN_AFTER: Duration = Duration::from_secs(2);

/// Three servers that share the hash slots, and one more for each that is to have a replica.
#[derive(Debug)]
pub struct PrivateCluster {
    servers: Vec<Member>,
    /// Those that were killed for good. Their ports stay theirs for as long as another server of the cluster runs: the others
    /// still ask there. If a server of another test answered, they would take the dead one for a server that has moved away
    /// (`noaddr`), never for a failed one, and would elect no replica; and a store would write to that other test.
    killed: Vec<Member>,
}

/// A server of a cluster.
#[derive(Debug)]
struct Member {
    server: PrivateRedis,
    /// The port by which the other servers speak to it.
    bus: u16,
}

impl Member {
    /// Starts a server that knows no other one yet.
    fn start(more: &[&str]) -> Self {
        let bus = Port::take();
        let (number, text) = (bus.number, bus.number.to_string());
        let words = ["--appendonly", "yes", "--appendfsync", "always", "--cluster-enabled", "yes"];
        let own = ["--cluster-port", &text, "--cluster-node-timeout", "1000"];
        // As `docs/operating.md` has it: one that dies takes nothing along but its own slots.
        let alone = ["--cluster-require-full-coverage", "no"];
        let words = [&words[..], &own[..], &alone[..], more].concat();
        Self { server: PrivateRedis::start_at(vec![bus], &words), bus: number }
    }

    fn port(&self) -> u16 {
        self.server.port()
    }

    fn ask(&self, words: &[&str]) -> String {
        redis_cli(self.port(), words)
    }

    /// What it answers, if it runs.
    fn try_ask(&self, words: &[&str]) -> Option<String> {
        RedisClient::connect(self.port()).and_then(|mut client| client.ask(words)).ok()
    }

    fn is_replica(&self) -> bool {
        self.ask(&["INFO", "replication"]).contains("role:slave")
    }

    fn meet(&self, other: &Self) {
        let (port, bus) = (other.port().to_string(), other.bus.to_string());
        let said = self.ask(&["CLUSTER", "MEET", "127.0.0.1", &port, &bus]);
        assert_eq!(said, "OK", "CLUSTER MEET was refused");
    }

    /// How it sees the cluster: id, address, role, primary, epoch and slots of each server. None while it does not serve, or is
    /// still getting to know a server.
    fn view(&self) -> Option<BTreeSet<String>> {
        let is_ok = self.ask(&["CLUSTER", "INFO"]).contains("cluster_state:ok");
        let nodes = self.ask(&["CLUSTER", "NODES"]);
        let view: Option<BTreeSet<String>> = nodes.lines().map(described).collect();
        view.filter(|_| is_ok)
    }
}

/// A line of `CLUSTER NODES` (`ID HOST:PORT@BUS FLAGS PRIMARY SENT RECEIVED EPOCH LINK SLOTS…`) without what differs between servers
/// that agree; none while that server is only being met.
fn described(line: &str) -> Option<String> {
    let words: Vec<&str> = line.split(' ').collect();
    let [id, addr, flags, primary, _, _, epoch, _, slots @ ..] = words.as_slice() else {
        return None;
    };
    let has = |flag: &str| flags.split(',').any(|one| one == flag);
    if has("handshake") || has("noaddr") {
        return None;
    }
    let role = if has("slave") { "replica" } else { "primary" };
    Some(format!("{id} {addr} {role} {primary} {epoch} {}", slots.join(" ")))
}

impl PrivateCluster {
    /// One of three, each of which keeps everything at once.
    pub fn start() -> Self {
        // Together: each serves nothing for its first two seconds.
        let servers: Vec<Member> = thread::scope(|scope| {
            let start = || scope.spawn(|| Member::start(&[]));
            let started = [(); PRIMARIES].map(|()| start());
            // Bounded: each start ends after `READY_IN`.
            started.map(|one| one.join().unwrap()).into()
        });
        for (number, member) in servers.iter().enumerate() {
            // Different epochs from the beginning, as `redis-cli --cluster create` has it. Servers that begin with the same one settle
            // it among themselves later, and a replica that has not heard of it when its primary dies gets no votes, ever.
            let epoch = (number + 1).to_string();
            assert_eq!(member.ask(&["CLUSTER", "SET-CONFIG-EPOCH", &epoch]), "OK");
            let (from, to) = (SLOTS * number / PRIMARIES, SLOTS * (number + 1) / PRIMARIES - 1);
            let [from, to] = [from, to].map(|slot| slot.to_string());
            assert_eq!(member.ask(&["CLUSTER", "ADDSLOTSRANGE", &from, &to]), "OK");
        }
        let cluster = Self { servers, killed: Vec::new() };
        for other in &cluster.servers[1..] {
            cluster.servers[0].meet(other);
        }
        // Bounded: `wait`, below, ends after `READY_IN`.
        cluster.wait();
        cluster
    }

    /// Adds a replica of the server that has a key, and waits until it has everything and all servers know it.
    ///
    /// It does not take over before [`Self::let_replicas_take_over`] or [`Self::have_replicas_take_over`]: on a busy machine a primary
    /// that was silent for a second would lose its slots, and what it acknowledged meanwhile.
    pub fn add_replica_of(&mut self, key: &str) {
        let owner = self.owner_of(key);
        let id = self.servers[owner].ask(&["CLUSTER", "MYID"]);
        let wait_for_word = ["--cluster-replica-no-failover", "yes"];
        // However long it was cut off: by default it gives up after twenty seconds, which a busy machine may take to kill its primary.
        let at_any_age = ["--cluster-replica-validity-factor", "0"];
        self.servers.push(Member::start(&[&wait_for_word[..], &at_any_age[..]].concat()));
        let replica = &self.servers[self.servers.len() - 1];
        self.servers[owner].meet(replica);
        let replicates = || replica.ask(&["CLUSTER", "REPLICATE", &id]) == "OK";
        self.introduce_until("CLUSTER REPLICATE to be accepted by a new replica", replicates);
        let state = || replica.ask(&["INFO", "replication"]);
        let follows = || state().contains("master_link_status:up");
        wait_for("a new replica to have the data of its primary", follows, state);
        self.wait();
    }

    /// The addresses of all servers.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|member| member.server.address()).collect()
    }

    /// The ports of all servers.
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(Member::port).collect()
    }

    /// Which of them has a key. Waits for it: on a busy machine a server may think for a moment that the others are gone, and then
    /// serves nothing.
    pub fn owner_of(&self, key: &str) -> usize {
        let has = |member: &Member| {
            let said = member.try_ask(&["EXISTS", key]);
            said.is_some_and(|said| said.parse::<u32>().is_ok())
        };
        let mut owner = None;
        let is_found = || {
            owner = self.servers.iter().position(has);
            owner.is_some()
        };
        wait_for(&format!("a server to serve {key}"), is_found, || self.describe());
        owner.unwrap()
    }

    /// What each server that runs says of the cluster, for a message.
    pub fn describe(&self) -> String {
        let described = self.servers.iter().map(|member| {
            let said = ["INFO", "NODES"].map(|what| member.try_ask(&["CLUSTER", what]));
            let said = said.map(|said| said.unwrap_or_else(|| "does not answer".to_owned()));
            let [info, nodes] = &said;
            let state = info.lines().next().unwrap_or_default();
            format!("{}: {state}\n{nodes}", member.server.address())
        });
        described.collect::<Vec<_>>().join("\n")
    }

    /// Kills the one that has a key, for good. Its replica does not take over yet.
    pub fn kill_owner_of(&mut self, key: &str) {
        let mut owner = self.servers.remove(self.owner_of(key));
        owner.server.kill();
        self.killed.push(owner);
    }

    /// From now on a replica takes over by itself, as soon as the servers have found out that its primary is gone: in two to three seconds.
    pub fn let_replicas_take_over(&self) {
        for replica in self.servers.iter().filter(|member| member.is_replica()) {
            let set = ["CONFIG", "SET", "cluster-replica-no-failover", "no"];
            assert_eq!(replica.ask(&set), "OK");
        }
    }

    /// Has each replica whose primary was killed ask the other servers for their votes at once, and waits until it is the primary.
    pub fn have_replicas_take_over(&self) {
        for replica in self.servers.iter().filter(|member| member.is_replica()) {
            let mut asked: Option<Instant> = None;
            let is_primary = || {
                if asked.is_none_or(|asked| asked.elapsed() > ASK_AGAIN_AFTER) {
                    asked = Some(Instant::now());
                    replica.ask(&["CLUSTER", "FAILOVER", "FORCE"]);
                }
                !replica.is_replica()
            };
            wait_for("a replica to take over from its primary", is_primary, || self.describe());
        }
    }

    /// Kills one; its data stays.
    pub fn kill(&mut self, number: usize) {
        self.servers[number].server.kill();
    }

    /// Starts one again on the data that it left, and waits until all of them know it.
    pub fn start_again(&mut self, number: usize) {
        let has_started = self.servers[number].server.start_again();
        assert!(has_started, "a server of the cluster does not start again:\n{}", self.describe());
        self.wait();
    }

    /// Starts another server on the port of one that was killed, empty and of no cluster: as when another machine gets its address.
    pub fn start_stranger_in_place_of(&mut self, number: usize) {
        self.servers[number].server.start_stranger();
    }

    /// Begins to move the hash slot of a key to another server: some of its keys are there then, some are not.
    pub fn begin_to_move(&self, key: &str) -> Move {
        let from = self.owner_of(key);
        let to = (0..PRIMARIES).find(|number| *number != from).unwrap();
        let [from, to] = [from, to].map(|number| self.servers[number].port());
        let slot = redis_cli(from, &["CLUSTER", "KEYSLOT", key]);
        let [from_id, to_id] = [from, to].map(|port| redis_cli(port, &["CLUSTER", "MYID"]));
        assert_eq!(redis_cli(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]), "OK");
        assert_eq!(redis_cli(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]), "OK");
        let moving = Move { slot, from, to, to_id };
        let keys = redis_cli(from, &["CLUSTER", "GETKEYSINSLOT", &moving.slot, "1000"]);
        // All but the one that is asked for, and every other one stays.
        moving.migrate(keys.lines().filter(|other| *other != key).step_by(2));
        moving
    }

    /// Moves the rest, and has all servers know it.
    pub fn finish(&self, moving: &Move) {
        let Move { slot, from, to, to_id } = moving;
        let keys = redis_cli(*from, &["CLUSTER", "GETKEYSINSLOT", slot, "1000"]);
        moving.migrate(keys.lines());
        let all = self.servers.iter().take(PRIMARIES).map(Member::port);
        for port in [*to, *from].into_iter().chain(all) {
            assert_eq!(redis_cli(port, &["CLUSTER", "SETSLOT", slot, "NODE", to_id]), "OK");
        }
    }

    /// Cuts a primary off from its replicas: what it acknowledges from now on is lost with it.
    pub fn cut_off_replicas_of(&self, key: &str) {
        let primary = &self.servers[self.owner_of(key)];
        assert_eq!(primary.ask(&["ACL", "SETUSER", "default", "-psync", "-sync"]), "OK");
        primary.ask(&["CLIENT", "KILL", "TYPE", "replica"]);
        let state = || primary.ask(&["INFO", "replication"]);
        let is_alone = || state().contains("connected_slaves:0");
        wait_for("a primary to have lost its replicas", is_alone, state);
    }

    /// Waits until all of them serve, and agree on all of them.
    fn wait(&self) {
        let agree = || {
            let mut views = self.servers.iter().map(Member::view);
            let first = views.next().flatten();
            first.is_some_and(|first| {
                first.len() == self.servers.len() && views.all(|view| view.as_ref() == Some(&first))
            })
        };
        self.introduce_until("the servers of a cluster to agree on it", agree);
    }

    /// Waits until something is so, and meanwhile introduces servers again that do not know each other. An introduction takes two steps.
    /// On a busy machine one of both servers may have given up after a second when the other one is done: that one knows it from
    /// then on and does not repeat the introduction, and the first one listens to nothing that it says.
    fn introduce_until(&self, what: &str, mut is_so: impl FnMut() -> bool) {
        let mut introduced = Instant::now();
        let is_so = || {
            if introduced.elapsed() > INTRODUCE_AGAIN_AFTER {
                self.introduce();
                introduced = Instant::now();
            }
            is_so()
        };
        wait_for(what, is_so, || self.describe());
    }

    /// Has each server meet those that it does not know.
    fn introduce(&self) {
        for member in &self.servers {
            let known = member.ask(&["CLUSTER", "NODES"]);
            let is_unknown = |other: &&Member| !known.contains(&format!(":{}@", other.port()));
            for other in self.servers.iter().filter(is_unknown) {
                member.meet(other);
            }
        }
    }
}

impl Drop for PrivateCluster {
    /// No port is given up while one of them runs, which might then meet a server of another test there.
    fn drop(&mut self) {
        for member in &mut self.servers {
            member.server.end();
        }
    }
}

/// A hash slot on its way from one server to another.
#[derive(Debug)]
pub struct Move {
    slot: String,
    from: u16,
    to: u16,
    to_id: String,
}

impl Move {
    fn migrate<'a>(&self, keys: impl Iterator<Item = &'a str>) {
        let to = self.to.to_string();
        let target = ["MIGRATE", "127.0.0.1", &to, "", "0", "5000", "KEYS"];
        let keys: Vec<&str> = keys.collect();
        let words = [&target[..], &keys[..]].concat();
        assert_eq!(redis_cli(self.from, &words), "OK", "MIGRATE failed");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Signal, port};

    const KEY: &str = "key";

    /// With a replica, a cluster in which the owner of [`KEY`] has this value for it and its replica too.
    fn with_replica() -> PrivateCluster {
        let mut cluster = PrivateCluster::start();
        assert_eq!(cluster.servers[cluster.owner_of(KEY)].ask(&["SET", KEY, "value"]), "OK");
        cluster.add_replica_of(KEY);
        cluster
    }

    fn value(cluster: &PrivateCluster) -> String {
        cluster.servers[cluster.owner_of(KEY)].ask(&["GET", KEY])
    }

    #[test]
    fn ports_of_a_server_that_was_killed_for_good_stay_its_own_while_its_cluster_runs() {
        let mut cluster = with_replica();
        let owner = &cluster.servers[cluster.owner_of(KEY)];
        let ports = [owner.port(), owner.bus];
        cluster.kill_owner_of(KEY);
        for port in ports {
            assert!(port::Port::hold(&port::folder(), port).is_none(), "{port} can be taken");
        }
        cluster.let_replicas_take_over();
        assert_eq!(value(&cluster), "value");
        drop(cluster);
        for port in ports {
            assert!(port::Port::hold(&port::folder(), port).is_some(), "{port} is still taken");
        }
    }

    /// It is stopped for longer than the servers take to elect its replica.
    #[test]
    fn a_primary_that_is_only_slow_keeps_its_slots() {
        let cluster = with_replica();
        let owner = cluster.owner_of(KEY);
        cluster.servers[owner].server.signal(Signal::STOP);
        thread::sleep(Duration::from_secs(4));
        cluster.servers[owner].server.signal(Signal::CONT);
        // Bounded: `wait` ends after `READY_IN`.
        cluster.wait();
        assert_eq!(cluster.owner_of(KEY), owner, "{}", cluster.describe());
        assert!(cluster.servers[PRIMARIES].is_replica(), "{}", cluster.describe());
    }

    #[test]
    fn a_replica_that_was_cut_off_takes_over_what_it_has() {
        let mut cluster = with_replica();
        cluster.cut_off_replicas_of(KEY);
        assert_eq!(cluster.servers[cluster.owner_of(KEY)].ask(&["SET", KEY, "lost"]), "OK");
        cluster.kill_owner_of(KEY);
        cluster.have_replicas_take_over();
        assert_eq!(value(&cluster), "value");
    }

    /// As after an introduction of which only one side heard the end.
    #[test]
    fn a_server_that_knows_none_of_those_that_know_it_is_introduced_again() {
        let cluster = PrivateCluster::start();
        let [first, second, third] = cluster.servers.as_slice() else { panic!("{cluster:?}") };
        for other in [first, second] {
            let id = other.ask(&["CLUSTER", "MYID"]);
            assert_eq!(third.ask(&["CLUSTER", "FORGET", &id]), "OK");
        }
        assert_eq!(third.ask(&["CLUSTER", "NODES"]).lines().count(), 1);
        // Bounded: `wait` ends after `READY_IN`.
        cluster.wait();
        assert_eq!(third.view().unwrap().len(), PRIMARIES);
    }

    #[test]
    fn servers_that_only_meet_are_not_known_yet() {
        let of =
            |flags: &str| described(&format!("a1 127.0.0.1:1@2 {flags} - 0 1 3 connected 0-5"));
        assert_eq!(of("myself,master").unwrap(), "a1 127.0.0.1:1@2 primary - 3 0-5");
        assert_eq!(of("slave,nofailover").unwrap(), "a1 127.0.0.1:1@2 replica - 3 0-5");
        assert_eq!((of("handshake"), of("master,noaddr"), described("")), (None, None, None));
    }
}
