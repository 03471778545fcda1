//! A process that nobody can report to: its HTTP thread hangs, or another process has its address.

use std::{
    fs,
    net::TcpStream,
    os::unix::process::ExitStatusExt as _,
    path::Path,
    process::{Child, Command, Stdio},
};

use interlock_wait::{BOUND, ChildWithin as _};
use serde_json::Value;

use crate::{
    Daemon, log, open_log,
    ourselves::{Receiver, configure},
    project::{Project, tail},
    watched::Hung,
};

/// Nobody ever reports on it.
const SILENT: &str = "
name: silent
schedule: {cron: '*/5 * * * * *', seconds: true, grace: 1s}
trigger: {type: external}
";

const QUIET: &str = "
name: quiet
schedule: {cron: '0 0 1 1 *'}
trigger: {type: command, command: 'true'}
";

/// Where a process listens that serves a project.
pub(crate) fn address(project: &Project) -> Option<String> {
    let text = fs::read_to_string(project.folder().join("http.json")).ok()?;
    let told: Value = serde_json::from_str(&text).ok()?;
    told["address"].as_str().map(str::to_owned)
}

#[test]
fn l5_an_interface_that_hangs_silences_the_beacon_is_told_and_ends_the_process() {
    let project = Project::new(&[("quiet", QUIET)]);
    let (beacon, hook) = (Receiver::new(), Receiver::new());
    configure(
        &project,
        &format!(
            "beacons: [{{url: '{}', interval: 1s}}]\nalerts: [{{type: webhook, url: '{}'}}]\n",
            beacon.url, hook.url
        ),
    );
    let mut daemon = Daemon::start(project.path());
    project.until("the beacon is called", || (beacon.count() >= 2).then_some(()));
    let address = project.until("it listens", || address(&project));
    let hung = Hung::new(daemon.0.id(), &["http"]);
    let alert = project.until("somebody hears of it", || hook.alert("loop_late"));
    let message = alert["message"].as_str().unwrap();
    assert!(message.contains("the loop `http` has made no progress"), "{message}");
    let silent = beacon.count();
    let said = project.until("it is about to leave", || {
        let said = log(project.path());
        said.contains("`http` has made no progress for 30.").then_some(said)
    });
    // A process is gone when whoever traces its threads has let go of them.
    drop(hung);
    let ended = daemon.0.wait_within("the end of the process whose interface hangs", BOUND);
    assert_eq!(ended.signal(), Some(6), "{}", tail(&said));
    assert!(beacon.count() <= silent + 1, "one call may have been on its way");
    assert!(TcpStream::connect(address).is_err(), "nobody is there any more");
}

/// A network of its own, in which the default address belongs to nobody yet.
struct Network(Child);

impl Network {
    /// None where making one is not allowed.
    fn new(project: &Project) -> Option<Self> {
        let ready = project.path().join("network");
        let script = "ip link set lo up && touch \"$0\" && exec sleep 600";
        let child = Command::new("unshare")
            .args(["--net", "sh", "-c", script])
            .arg(&ready)
            .stderr(Stdio::null())
            .spawn();
        let mut network = Self(child.ok()?);
        project.until("the network is there, or is not allowed", || {
            let is_there = ready.exists();
            (is_there || network.0.try_wait().unwrap().is_some()).then_some(())
        });
        ready.exists().then_some(network)
    }

    fn serve(&self, project: &Path) -> Daemon {
        let child = Command::new("nsenter")
            .arg(format!("--net=/proc/{}/ns/net", self.0.id()))
            .args([env!("CARGO_BIN_EXE_interlock"), "serve", "--log", "json"])
            .arg(project)
            .env("INTERLOCK_SPOOL", project.join("spool"))
            .stdout(Stdio::null())
            .stderr(open_log(project))
            .spawn();
        Daemon(child.unwrap())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

#[test]
fn s10_an_address_that_is_taken_is_complained_of_counts_as_deaf_and_is_taken_when_it_is_free() {
    let (other, project) = (Project::new(&[("quiet", QUIET)]), Project::new(&[("silent", SILENT)]));
    let Some(network) = Network::new(&project) else {
        println!("only root may make a network: not tried");
        return;
    };
    let first = network.serve(other.path());
    project.until("the other listens", || address(&other));
    let _second = network.serve(project.path());
    let open = || project.run(&["incidents", "list", "--json"]).stdout;
    let incidents = project.until("it is an incident", || {
        let listed = open();
        listed.contains("HTTP_UNREACHABLE").then_some(listed)
    });
    assert!(incidents.contains("127.0.0.1:8420 is taken by another process"), "{incidents}");
    let said = log(project.path());
    assert!(
        said.contains("jobs cannot report over HTTP") && said.contains("the beacons are silent")
    );
    let is_there = |disposition: &str| {
        let slots = project.run(&["slots", "silent", "--json"]).stdout;
        slots.contains(&format!("\"disposition\": \"{disposition}\""))
    };
    project.until("a slot is judged", || is_there("unknown").then_some(()));
    assert!(!is_there("missed"), "nobody could have reported");
    assert_eq!(address(&project), None);

    drop(first);
    let found = project.until("it takes the address", || address(&project));
    assert_eq!(found, "127.0.0.1:8420");
    project.until("the incident is over", || (!open().contains("HTTP_UNREACHABLE")).then_some(()));
    project.until("what nobody reports now is missed", || is_there("missed").then_some(()));
}
