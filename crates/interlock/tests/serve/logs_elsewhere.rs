//! What a job wrote on one host, asked of an instance on another: whole, in part, followed, and after the host is gone.

use std::{
    fs,
    process::{Command, Stdio},
};

use interlock_private_server::{PrivatePostgres, PrivateRedis};
use interlock_wait::{BOUND, ChildWithin as _, Lines};
use serde_json::Value;

use crate::{
    Daemon,
    pings::curl,
    project::{Project, kill},
    tls::{TlsSite, exec},
};

const TALKER: &str = "
name: talker
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'seq 1 1000'}
";

/// Goes on when the file `go` is there.
const WAITER: &str = "
name: waiter
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'echo one; until test -e go; do sleep 0.05; done; echo two'}
";

const JOBS: [(&str, &str); 2] = [("talker", TALKER), ("waiter", WAITER)];

/// An instance with a folder of its own, as on a host of its own.
trait Instance {
    fn project(&self) -> &Project;
    fn pid(&self) -> u32;
    /// The arguments of `curl` before those of a question.
    fn curl_arguments(&self, path: &str) -> Vec<String>;

    /// The status, the head in small letters, and the body that it answers with.
    fn ask(&self, path: &str, arguments: &[&str]) -> (u16, String, String) {
        let ours = self.curl_arguments(path);
        let ours: Vec<_> = ours.iter().map(String::as_str).collect();
        let asked = curl(&[&["-i"], &ours[..], arguments].concat());
        let (head, body) =
            asked.stdout.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{asked:?}"));
        let status = head.split(' ').nth(1).unwrap().parse().unwrap();
        (status, head.to_lowercase(), body.to_owned())
    }

    fn json(&self, path: &str) -> Value {
        serde_json::from_str(&self.ask(path, &[]).2).unwrap_or_default()
    }
}

impl Instance for TlsSite {
    fn project(&self) -> &Project {
        &self.project
    }

    fn pid(&self) -> u32 {
        self.daemon.0.id()
    }

    fn curl_arguments(&self, path: &str) -> Vec<String> {
        vec!["--cacert".to_owned(), self.ca().display().to_string(), self.url(path)]
    }
}

/// One that speaks plain HTTP.
struct PlainSite {
    project: Project,
    daemon: Daemon,
    base: String,
}

impl PlainSite {
    fn new(store: &str) -> Self {
        let project = Project::new(&JOBS);
        let config = format!("{store}server: {{addr: '127.0.0.1:0'}}\n");
        fs::write(project.path().join("interlock.yaml"), config).unwrap();
        let daemon = Daemon::start(project.path());
        let base = project.until("it listens", || {
            let text = fs::read_to_string(project.folder().join("http.json")).ok()?;
            let told: Value = serde_json::from_str(&text).ok()?;
            Some(format!("http://{}", told["address"].as_str()?))
        });
        Self { project, daemon, base }
    }
}

impl Instance for PlainSite {
    fn project(&self) -> &Project {
        &self.project
    }

    fn pid(&self) -> u32 {
        self.daemon.0.id()
    }

    fn curl_arguments(&self, path: &str) -> Vec<String> {
        vec![format!("{}{path}", self.base)]
    }
}

/// The last run of a pipeline, and the host where its job ran.
fn last_run(instance: &impl Instance, pipeline: &str) -> (String, String) {
    instance.project().until("there is a run on a host", || {
        let runs = instance.json(&format!("/api/v1/runs?pipeline={pipeline}&limit=1"));
        let run = &runs["items"][0];
        let host = run["metadata"]["host"].as_str()?.to_owned();
        Some((run["id"].as_str()?.to_owned(), host))
    })
}

/// Two instances of one store: whichever is asked, the log is there, until the host where it is goes.
fn fetched_from_where_it_is<I: Instance>(both: &[I; 2]) {
    both[0].project().until("both have said where they are", || {
        let listed = both[0].json("/api/v1/instances");
        let all = listed["items"].as_array()?;
        (all.iter().filter(|it| it["address"].is_string()).count() == 2).then_some(())
    });
    assert_eq!(both[0].project().run(&["run", "talker"]).code, 0);
    let (run, host) = last_run(&both[0], "talker");
    let hosts = both.each_ref().map(|it| {
        fs::read_to_string(it.project().folder().join("host")).unwrap().trim().to_owned()
    });
    let here = hosts.iter().position(|it| *it == host).expect("one of them ran it");
    let (owner, other) = (&both[here], &both[1 - here]);
    let path = format!("/api/v1/runs/{run}/log");
    let lines: Vec<_> = (1..=1000).map(|number| number.to_string()).collect();
    let whole = format!("{}\n", lines.join("\n"));
    for instance in both {
        let (status, head, body) = instance.ask(&path, &[]);
        assert_eq!((status, body.as_str()), (200, whole.as_str()), "{head}");
        assert!(head.contains("interlock-log-source: file"), "{head}");
        assert!(head.contains(&format!("content-length: {}", whole.len())), "{head}");
        let (status, head, body) = instance.ask(&path, &["-H", "Range: bytes=2-5"]);
        assert_eq!((status, body.as_str()), (206, "2\n3\n"), "{head}");
        assert!(head.contains(&format!("content-range: bytes 2-5/{}", whole.len())), "{head}");
        assert_eq!(instance.ask(&format!("{path}?lines=2"), &[]).2, "999\n1000\n");
        assert_eq!(instance.ask(&path, &["-H", "Range: bytes=99999-"]).0, 416);
    }

    // Followed across hosts, to the end of the run.
    assert_eq!(owner.project().run(&["run", "waiter", "--detach"]).code, 0);
    let (waiting, host) = last_run(other, "waiter");
    let follower = both.iter().zip(&hosts).find(|(_, name)| **name != host).unwrap().0;
    let arguments = follower.curl_arguments(&format!("/api/v1/runs/{waiting}/log?follow=true"));
    let curl = Command::new("curl").args(["-sSN"]).args(arguments).stdout(Stdio::piped()).spawn();
    let mut curl = curl.unwrap();
    let mut lines = Lines::of(curl.stdout.take().unwrap());
    assert_eq!(lines.next_within("what is there", BOUND).as_deref(), Some("one"));
    for instance in both {
        fs::write(instance.project().path().join("go"), "").unwrap();
    }
    assert_eq!(lines.rest_within("what comes, and the end", BOUND), ["two"]);
    assert!(curl.wait_within("the end of curl", BOUND).success());

    // What instances ask of each other is signed; no person has such a key.
    let (status, _, body) = other.ask(&path.replace("/v1/runs", "/v1/instances/runs"), &[]);
    assert!(status == 401 && body.contains("signature_needed"), "{status} {body}");

    // The host is gone: its last lines are left, and said to be only that.
    assert!(kill(owner.pid()));
    let (status, head, body) = other.ask(&path, &[]);
    let last: Vec<_> = whole.lines().skip(900).collect();
    assert_eq!((status, body.trim_end()), (200, last.join("\n").as_str()), "{head}");
    assert!(head.contains("interlock-log-source: kept"), "{head}");
}

#[test]
fn a_log_is_fetched_from_the_instance_that_has_it_over_tls_on_redis() {
    let server = PrivateRedis::start();
    let store = format!("provider: redis\nredis: {{addr: '{}', shards: 4}}\n", server.address());
    let both = [TlsSite::new(&JOBS, &store), TlsSite::new(&JOBS, &store)];
    fetched_from_where_it_is(&both);
}

#[test]
fn a_log_is_fetched_from_the_instance_that_has_it_on_postgres() {
    let server = PrivatePostgres::start();
    let store = format!("provider: postgres\npostgres: {{dsn: '{}', shards: 4}}\n", server.dsn());
    fetched_from_where_it_is(&[PlainSite::new(&store), PlainSite::new(&store)]);
}

#[test]
fn exec_in_a_project_on_redis_believes_the_certificate_that_serve_says_it_shows() {
    let server = PrivateRedis::start();
    let store = format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address());
    let watched =
        "name: far\nschedules: [{name: s, every: 1h, from: last}]\ntrigger: {type: external}\n";
    let site = TlsSite::new(&[("far", watched)], &store);
    site.project.until("the pipeline is known", || {
        (site.ask(&["-f"], "/ping/far").code == 0).then_some(())
    });
    let ran = exec(&site.project, &[]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    site.project.until("both are runs", || {
        let runs = site.json("/api/v1/runs?pipeline=far");
        (runs["items"].as_array()?.len() == 2).then_some(())
    });
    // Another server in its place is believed nothing.
    let told = site.project.folder().join("http.json");
    let text = fs::read_to_string(&told).unwrap();
    let certificate = serde_json::from_str::<Value>(&text).unwrap()["certificates"][0].clone();
    fs::write(&told, text.replace(certificate.as_str().unwrap(), &"0".repeat(64))).unwrap();
    let ran = exec(&site.project, &[]);
    assert!(ran.code == 0 && ran.stderr.contains("another certificate"), "{ran:?}");
}
