//! A private Redis Cluster.

use std::process::Command;

use interlock_wait::{BOUND, CommandWithin as _};

use crate::{PrivateRedis, port::Port, wait_until};

/// How many servers share the hash slots.
const PRIMARIES: usize = 3;
const SLOTS: usize = 16_384;

/// Three servers that share the hash slots, and one more for each that is to have a replica.
#[derive(Debug)]
pub struct PrivateCluster {
    servers: Vec<PrivateRedis>,
}

impl PrivateCluster {
    /// One of three, each of which keeps everything at once.
    pub fn start() -> Self {
        let mut cluster = Self { servers: Vec::new() };
        let buses: Vec<u16> = (0..PRIMARIES).map(|_| cluster.add()).collect();
        let first = cluster.port(0);
        for (number, bus) in buses.iter().enumerate() {
            let (from, to) = (SLOTS * number / PRIMARIES, SLOTS * (number + 1) / PRIMARIES - 1);
            let port = cluster.port(number);
            cli(port, &["CLUSTER", "ADDSLOTSRANGE", &from.to_string(), &to.to_string()]);
            if number > 0 {
                meet(first, (port, *bus));
            }
        }
        // Bounded: `wait`, below, ends after `READY_IN`.
        cluster.wait();
        cluster
    }

    /// Adds a replica of the server that has a key, and waits until it has everything.
    pub fn add_replica_of(&mut self, key: &str) {
        let owner = self.owner_of(key);
        let id = cli(self.port(owner), &["CLUSTER", "MYID"]);
        let bus = self.add();
        let port = self.port(self.servers.len() - 1);
        meet(self.port(owner), (port, bus));
        let replicates = || cli(port, &["CLUSTER", "REPLICATE", &id]) == "OK";
        assert!(wait_until(replicates, || false), "nobody becomes a replica");
        let follows = || cli(port, &["INFO", "replication"]).contains("master_link_status:up");
        assert!(wait_until(follows, || false), "a replica does not follow");
        self.wait();
    }

    /// The addresses of all servers.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(PrivateRedis::address).collect()
    }

    /// The ports of all servers.
    pub fn ports(&self) -> Vec<u16> {
        self.servers.iter().map(PrivateRedis::port).collect()
    }

    /// Which of them has a key.
    pub fn owner_of(&self, key: &str) -> usize {
        let has = |port: u16| cli(port, &["EXISTS", key]).parse::<u32>().is_ok();
        (0..self.servers.len()).find(|number| has(self.port(*number))).unwrap()
    }

    /// Kills the one that has a key, for good.
    pub fn kill_owner_of(&mut self, key: &str) {
        let owner = self.owner_of(key);
        self.servers[owner].kill();
        self.servers.remove(owner);
    }

    /// Kills one; its data stays.
    pub fn kill(&mut self, number: usize) {
        self.servers[number].kill();
    }

    /// Starts one again on the data that it left, and waits until all of them know it.
    pub fn start_again(&mut self, number: usize) {
        assert!(self.servers[number].start_again(), "a server of the cluster does not start again");
        self.wait();
    }

    /// Begins to move the hash slot of a key to another server: some of its keys are there then, some are not.
    pub fn begin_to_move(&self, key: &str) -> Move {
        let from = self.owner_of(key);
        let to = (0..PRIMARIES).find(|number| *number != from).unwrap();
        let [from, to] = [from, to].map(|number| self.port(number));
        let slot = cli(from, &["CLUSTER", "KEYSLOT", key]);
        let [from_id, to_id] = [from, to].map(|port| cli(port, &["CLUSTER", "MYID"]));
        assert_eq!(cli(to, &["CLUSTER", "SETSLOT", &slot, "IMPORTING", &from_id]), "OK");
        assert_eq!(cli(from, &["CLUSTER", "SETSLOT", &slot, "MIGRATING", &to_id]), "OK");
        let moving = Move { slot, from, to, to_id };
        let keys = cli(from, &["CLUSTER", "GETKEYSINSLOT", &moving.slot, "1000"]);
        // All but the one that is asked for, and every other one stays.
        moving.migrate(keys.lines().filter(|other| *other != key).step_by(2));
        moving
    }

    /// Moves the rest, and has all servers know it.
    pub fn finish(&self, moving: &Move) {
        let Move { slot, from, to, to_id } = moving;
        let keys = cli(*from, &["CLUSTER", "GETKEYSINSLOT", slot, "1000"]);
        moving.migrate(keys.lines());
        for port in [*to, *from].into_iter().chain((0..PRIMARIES).map(|number| self.port(number))) {
            assert_eq!(cli(port, &["CLUSTER", "SETSLOT", slot, "NODE", to_id]), "OK");
        }
    }

    /// Cuts a primary off from its replicas: what it acknowledges from now on is lost with it.
    pub fn cut_off_replicas_of(&self, key: &str) {
        let port = self.port(self.owner_of(key));
        assert_eq!(cli(port, &["ACL", "SETUSER", "default", "-psync", "-sync"]), "OK");
        cli(port, &["CLIENT", "KILL", "TYPE", "replica"]);
        let is_alone = || cli(port, &["INFO", "replication"]).contains("connected_slaves:0");
        assert!(wait_until(is_alone, || false), "a replica still follows");
    }

    fn port(&self, number: usize) -> u16 {
        self.servers[number].port()
    }

    /// Starts a server that knows nobody yet; tells the port that others speak to it by.
    fn add(&mut self) -> u16 {
        let bus = Port::take();
        let (number, text) = (bus.number, bus.number.to_string());
        let words = ["--appendonly", "yes", "--appendfsync", "always", "--cluster-enabled", "yes"];
        let own = ["--cluster-port", &text, "--cluster-node-timeout", "1000"];
        // As `docs/operating.md` has it: one that dies takes nothing along but its own slots.
        let alone = ["--cluster-require-full-coverage", "no"];
        let words = [&words[..], &own[..], &alone[..]].concat();
        self.servers.push(PrivateRedis::start_at(vec![bus], &words));
        number
    }

    /// Waits until all of them know all of them.
    fn wait(&self) {
        let count = format!("cluster_known_nodes:{}", self.servers.len());
        let knows = |server: &PrivateRedis| {
            let said = cli(server.port(), &["CLUSTER", "INFO"]);
            said.contains("cluster_state:ok") && said.contains(&count)
        };
        assert!(
            wait_until(|| self.servers.iter().all(knows), || false),
            "the servers do not become a cluster"
        );
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
        assert_eq!(cli(self.from, &words), "OK", "keys do not move");
    }
}

fn meet(port: u16, (other, bus): (u16, u16)) {
    let said = cli(port, &["CLUSTER", "MEET", "127.0.0.1", &other.to_string(), &bus.to_string()]);
    assert_eq!(said, "OK", "two servers do not meet");
}

/// What a server says.
fn cli(port: u16, words: &[&str]) -> String {
    let said =
        Command::new("redis-cli").args(["-p", &port.to_string()]).args(words).output_within(BOUND);
    String::from_utf8(said.unwrap().stdout).unwrap().trim().to_owned()
}
