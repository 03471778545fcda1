//! A private Redis Cluster.

use std::process::Command;

use crate::{PrivateRedis, free_port, wait_until};

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

    /// Which of them has a key.
    pub fn owner_of(&self, key: &str) -> usize {
        let has = |port: u16| !cli(port, &["EXISTS", key]).contains("MOVED");
        (0..self.servers.len()).find(|number| has(self.port(*number))).unwrap()
    }

    /// Kills the one that has a key, for good.
    pub fn kill_owner_of(&mut self, key: &str) {
        let owner = self.owner_of(key);
        self.servers[owner].kill();
        self.servers.remove(owner);
    }

    fn port(&self, number: usize) -> u16 {
        self.servers[number].port()
    }

    /// Starts a server that knows nobody yet; tells the port that others speak to it by.
    fn add(&mut self) -> u16 {
        let bus = free_port();
        let text = bus.to_string();
        let words = ["--appendonly", "yes", "--appendfsync", "always", "--cluster-enabled", "yes"];
        let own = ["--cluster-port", &text, "--cluster-node-timeout", "1000"];
        self.servers.push(PrivateRedis::start_with(&[&words[..], &own[..]].concat()));
        bus
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

fn meet(port: u16, (other, bus): (u16, u16)) {
    let said = cli(port, &["CLUSTER", "MEET", "127.0.0.1", &other.to_string(), &bus.to_string()]);
    assert_eq!(said, "OK", "two servers do not meet");
}

/// What a server says.
fn cli(port: u16, words: &[&str]) -> String {
    let said = Command::new("redis-cli").args(["-p", &port.to_string()]).args(words).output();
    String::from_utf8(said.unwrap().stdout).unwrap().trim().to_owned()
}
