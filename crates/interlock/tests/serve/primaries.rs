//! Two primaries of one store (ADR 42): the one that failed was followed by its replica, and comes back as it was, under two daemons
//! that name both servers, each in another order.

use std::{fs, process::Command};

use interlock_private_server::PrivateRedis;
use interlock_wait::{BOUND, CommandWithin as _};
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;

use crate::{Daemon, project::Project};

const NAMES: [&str; 4] = ["one", "two", "three", "four"];

/// A run every two seconds, and what nobody was there for is caught up.
fn ticker(name: &str) -> String {
    format!(
        "name: {name}\nschedule: {{cron: '*/2 * * * * *', seconds: true}}\nstartGrace: 5s\ncatchupWindow: 1h\n\
         overlapPolicy: all\ntrigger: {{type: command, command: sh job.sh whole 0 0}}\n"
    )
}

fn machine(addr: &str) -> Project {
    let texts = NAMES.map(|name| (name, ticker(name)));
    let project = Project::new(&texts.each_ref().map(|(name, text)| (*name, text.as_str())));
    let text = format!(
        "provider: redis\nredis: {{addr: '{addr}', shards: 4}}\nserver: {{addr: '127.0.0.1:0'}}\n"
    );
    fs::write(project.path().join("interlock.yaml"), text).unwrap();
    project
}

fn ask(server: &PrivateRedis, words: &[&str]) -> String {
    let port = server.port().to_string();
    let said =
        Command::new("redis-cli").args(["-p", &port]).args(words).output_within(BOUND).unwrap();
    String::from_utf8(said.stdout).unwrap().trim().to_owned()
}

/// How much a server has of what the primary was told.
fn offset(server: &PrivateRedis, name: &str) -> Option<u64> {
    let info = ask(server, &["INFO", "replication"]);
    info.lines().find_map(|line| line.strip_prefix(name)?.trim().parse().ok())
}

/// What jobs of a pipeline wrote when they began, on all machines.
fn begun(machines: &[Project], name: &str) -> Vec<(String, Timestamp)> {
    let mut all = Vec::new();
    for machine in machines {
        let text = fs::read_to_string(machine.path().join("ran.log")).unwrap_or_default();
        let own = text.lines().filter(|line| line.starts_with(&format!("start {name}~")));
        all.extend(own.map(|line| {
            let mut words = line.split(' ').skip(1);
            let (run, slot) = (words.next().unwrap(), words.next().unwrap());
            (run.to_owned(), slot.parse().unwrap())
        }));
    }
    all.sort_unstable_by_key(|(_, slot)| *slot);
    all
}

fn goes_on(machines: &[Project], what: &str) {
    let before = NAMES.map(|name| begun(machines, name).len());
    let more = |(name, before): (&str, usize)| begun(machines, name).len() > before + 2;
    let all = || NAMES.into_iter().zip(before).all(more);
    machines[0].until(what, || all().then_some(()));
}

/// The message of an incident that is open.
fn open_incident(machine: &Project, kind: &str) -> Option<String> {
    let listed = machine.run(&["incidents", "--json"]).stdout;
    let rows: Vec<Value> = serde_json::from_str(&listed).unwrap_or_default();
    let row = rows.into_iter().find(|row| row["kind"] == kind)?;
    Some(row["message"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn an_old_primary_that_comes_back_is_told_of_and_no_slot_runs_twice() {
    let mut old = PrivateRedis::start();
    let port = old.port().to_string();
    let durable = ["--appendonly", "yes", "--appendfsync", "always"];
    let new =
        PrivateRedis::start_with(&[&durable[..], &["--replicaof", "127.0.0.1", &port]].concat());
    let (first, second) = (old.address(), new.address());
    let machines = [machine(&format!("{first},{second}")), machine(&format!("{second},{first}"))];
    let [restarted, _other] = [0, 1].map(|number| Daemon::start(machines[number].path()));
    goes_on(&machines, "both run");

    // What was acknowledged is on the replica when the primary dies: nothing is lost, and nothing has to run again.
    ask(&old, &["CLIENT", "PAUSE", "60000", "WRITE"]);
    machines[0].until("the replica has all", || {
        (offset(&new, "slave_repl_offset:") == offset(&old, "master_repl_offset:")).then_some(())
    });
    old.kill();
    assert_eq!(ask(&new, &["REPLICAOF", "NO", "ONE"]), "OK");
    goes_on(&machines, "the replica has followed");

    assert!(old.start_again());
    let writes = |server: &PrivateRedis| ask(server, &["HGET", "interlock:about", "writes"]);
    let left_at = writes(&old);
    // Whoever is started again names the old one first.
    drop(restarted);
    let _again = Daemon::start(machines[0].path());
    goes_on(&machines, "it goes on with both of them there");
    let told = machines[0].until("people are told", || open_incident(&machines[0], "STORE_UNSAFE"));
    let (from, to) = (old.port(), new.port());
    let command = format!("redis-cli -h 127.0.0.1 -p {from} replicaof 127.0.0.1 {to}");
    assert!(told.contains(&command), "{told}");
    goes_on(&machines, "it still goes on");
    assert_eq!(writes(&old), left_at, "nobody uses the old one");
    assert_eq!(open_incident(&machines[0], "STORE_ROLLBACK"), None, "nothing was lost");

    assert_eq!(ask(&old, &["REPLICAOF", "127.0.0.1", &to.to_string()]), "OK");
    machines[0].until("it is over", || {
        open_incident(&machines[0], "STORE_UNSAFE").is_none().then_some(())
    });
    for name in NAMES {
        let begun = begun(&machines, name);
        let every = SignedDuration::from_secs(2);
        let odd: Vec<_> =
            begun.windows(2).filter(|two| two[1].1.duration_since(two[0].1) != every).collect();
        assert!(odd.is_empty(), "none ran twice, and none is lost: {odd:?}");
    }
}
