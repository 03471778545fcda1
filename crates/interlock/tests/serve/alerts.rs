//! `interlock serve` tells people: real channels, a real receiver, a real crash.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::{TcpListener, TcpStream},
    path::Path,
    process::{Child, Command, Stdio},
    sync::mpsc,
    thread,
    time::Duration,
};

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, wait_for_seeing};
use serde_json::Value;

use crate::{any_port, end_the_runner, log};

/// Fails until there is a file `good`; rerun by hand.
const ORDERS: &str = r#"
name: orders
owner: ann
schedules: [{id: never, cron: "0 0 29 2 *"}]
retry: {maxAttempts: 1}
trigger: {type: command, command: "test -e good"}
"#;

/// What a receiver was sent.
#[derive(Debug)]
struct Sent {
    head: String,
    body: Value,
    /// To be answered, or not.
    stream: TcpStream,
}

impl Sent {
    fn header(&self, name: &str) -> &str {
        let value = self.head.lines().find_map(|line| {
            let (found, value) = line.split_once(": ")?;
            found.eq_ignore_ascii_case(name).then_some(value)
        });
        value.unwrap_or_else(|| panic!("no {name} in {}", self.head))
    }

    fn answer(mut self, status: &str) {
        let text = format!("HTTP/1.1 {status}\r\ncontent-length: 0\r\nconnection: close\r\n\r\n");
        self.stream.write_all(text.as_bytes()).unwrap();
    }
}

/// A receiver that leaves the answers to the test.
fn receiver() -> (String, mpsc::Receiver<Sent>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}/hush", listener.local_addr().unwrap());
    let (sender, receiver) = mpsc::channel();
    thread::spawn(move || {
        // Bounded: no test waits for this thread; it ends with the test's process.
        for stream in listener.incoming().map_while(Result::ok) {
            stream.set_read_timeout(Some(BOUND)).unwrap();
            let mut reader = BufReader::new(stream.try_clone().unwrap());
            let mut head = String::new();
            while !head.ends_with("\r\n\r\n") && reader.read_line(&mut head).unwrap_or(0) > 0 {}
            let length = head.lines().find_map(|line| {
                let (name, value) = line.split_once(": ")?;
                name.eq_ignore_ascii_case("content-length").then(|| value.parse().unwrap())
            });
            let mut body = vec![0; length.unwrap_or(0)];
            reader.read_exact(&mut body).unwrap();
            let body = serde_json::from_slice(&body).unwrap();
            if sender.send(Sent { head, body, stream }).is_err() {
                return;
            }
        }
    });
    (url, receiver)
}

/// A daemon whose standard output is kept.
struct Daemon(Child);

impl Daemon {
    fn start(project: &Path) -> Self {
        any_port(project);
        let file = |name: &str| {
            fs::OpenOptions::new().create(true).append(true).open(project.join(name)).unwrap()
        };
        let child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["serve", "--log", "json"])
            .arg(project)
            .stdout(Stdio::from(file("serve.out")))
            .stderr(Stdio::from(file("serve.log")))
            .spawn();
        Self(child.unwrap())
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        self.0.kill_and_wait();
    }
}

fn ask(project: &Path, arguments: &[&str]) -> String {
    let output = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .arg("-C")
        .arg(project)
        .args(arguments)
        .output_within(BOUND)
        .unwrap();
    String::from_utf8(output.stdout).unwrap()
}

#[track_caller]
fn wait_for(project: &Path, what: &str, holds: impl Fn() -> bool) {
    let look = || holds().then_some(());
    wait_for_seeing(what, Duration::from_mins(1), look, || log(project));
}

fn new_project(url: &str) -> tempfile::TempDir {
    let directory = tempfile::tempdir().unwrap();
    let config = format!(
        "alerts:\n\
         - {{type: webhook, name: hook, url: '{url}', secret: whisper}}\n\
         - {{type: file, name: log, path: alerts.jsonl}}\n\
         - {{type: webhook, name: ops, url: 'http://169.254.169.254/', when: {{levels: [error]}}}}\n"
    );
    fs::write(directory.path().join("interlock.yaml"), config).unwrap();
    fs::create_dir(directory.path().join("pipelines")).unwrap();
    fs::write(directory.path().join("pipelines/orders.yaml"), ORDERS).unwrap();
    directory
}

/// The states and types of the alerts in the file, in order.
fn logged(project: &Path) -> Vec<String> {
    let text = fs::read_to_string(project.join("alerts.jsonl")).unwrap_or_default();
    let alerts = text.lines().map(|line| serde_json::from_str::<Value>(line).unwrap());
    let word = |alert: &Value| {
        let state = alert["details"]["state"].as_str().unwrap_or("-").to_owned();
        format!("{state} {}", alert["alertType"].as_str().unwrap())
    };
    alerts.map(|alert| word(&alert)).collect()
}

/// The next alert of a type; others are taken and left aside.
#[track_caller]
fn next(sent: &mpsc::Receiver<Sent>, alert_type: &str, project: &Path) -> Sent {
    let look = || {
        let next = sent.try_recv().ok()?;
        if next.body["alertType"] == alert_type {
            return Some(next);
        }
        next.answer("200 OK");
        None
    };
    let what = format!("an alert of type {alert_type}");
    wait_for_seeing(&what, BOUND, look, || log(project))
}

#[test]
fn a_failure_reaches_every_channel_survives_a_kill_and_its_end_is_told_too() {
    let (url, sent) = receiver();
    let directory = new_project(&url);
    let project = directory.path();
    let daemon = Daemon::start(project);
    wait_for(project, "it serves", || ask(project, &["status"]).contains("orders"));
    ask(project, &["run", "orders", "--detach"]);

    // Killed between sending and settling: sent again under the same key.
    let first = next(&sent, "job_failed", project);
    assert_eq!(first.body["pipelineId"], "orders");
    let key = first.header("idempotency-key").to_owned();
    assert!(first.header("x-interlock-signature").starts_with("sha256="));
    drop(daemon);
    let daemon = Daemon::start(project);
    let again = next(&sent, "job_failed", project);
    assert_eq!((again.header("idempotency-key"), &again.body), (key.as_str(), &first.body));
    // A server in trouble gets it once more, and takes it.
    again.answer("500 Oops");
    let third = next(&sent, "job_failed", project);
    assert_eq!(third.header("idempotency-key"), key);
    third.answer("200 OK");

    wait_for(project, "the file has it", || logged(project).contains(&"open job_failed".into()));
    wait_for(project, "the dead letter of ops is told on the others", || {
        logged(project).contains(&"- alert_undelivered".to_owned())
    });
    assert!(ask(project, &["incidents", "dead"]).contains("is link-local"));

    // Mended and run again: the end reaches who heard of the beginning, and nobody else.
    fs::write(project.join("good"), "").unwrap();
    let slots: Value = serde_json::from_str(&ask(project, &["slots", "orders", "--json"])).unwrap();
    let slot = slots[0]["slot"].as_str().unwrap().strip_prefix("orders/").unwrap().to_owned();
    ask(project, &["rerun", "orders", &slot, "--reason", "mended"]);
    let resolved = next(&sent, "job_failed", project);
    assert_eq!(resolved.body["details"]["state"], "resolved", "{}", resolved.body);
    resolved.answer("200 OK");
    wait_for(project, "the file has the end", || {
        logged(project).contains(&"resolved job_failed".into())
    });
    wait_for(project, "the incident is over", || {
        ask(project, &["incidents", "--all"]).contains("resolved  error  RETRY_EXHAUSTED")
    });
    assert!(!log(project).contains("hush"), "a secret reached the log");
    drop(daemon);
    end_the_runner(project);
}

#[test]
fn a_broken_edit_is_an_incident_of_its_pipeline_until_it_is_mended_even_while_nobody_looks() {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let file = project.join("pipelines/orders.yaml");
    fs::create_dir(project.join("pipelines")).unwrap();
    fs::write(&file, ORDERS).unwrap();
    let daemon = Daemon::start(project);
    wait_for(project, "it serves", || log(project).contains("SERVING"));
    let open = || ask(project, &["incidents", "--all", "--pipeline", "orders"]);
    wait_for(project, "the incident is open", || {
        // Written anew each time: an edit in the first moments may be taken for what was there at the start.
        fs::write(project.join("new"), ORDERS.replace("retry:", "retyr:")).unwrap();
        fs::rename(project.join("new"), &file).unwrap();
        open().contains("config:pipelines/orders.yaml")
    });
    assert!(open().contains("CONFIG_BROKEN") && open().contains("retyr"), "{}", open());
    wait_for(project, "the console says so", || {
        let out = fs::read_to_string(project.join("serve.out")).unwrap();
        out.contains("ALERT warning config_broken orders: pipelines/orders.yaml is broken")
    });
    drop(daemon);
    fs::write(&file, ORDERS).unwrap();
    let daemon = Daemon::start(project);
    wait_for(project, "it is over", || open().contains("resolved"));
    wait_for(project, "the console says so too", || {
        let out = fs::read_to_string(project.join("serve.out")).unwrap();
        out.contains("ALERT resolved config_broken orders:")
    });
    drop(daemon);
    end_the_runner(project);
}

#[test]
fn hands_silences_and_barks_reach_a_daemon() {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let config = "alerts:\n- {type: file, name: log, path: alerts.jsonl}\n";
    fs::write(project.join("interlock.yaml"), config).unwrap();
    fs::create_dir(project.join("pipelines")).unwrap();
    fs::write(project.join("pipelines/orders.yaml"), ORDERS).unwrap();
    let daemon = Daemon::start(project);
    wait_for(project, "it serves", || ask(project, &["status"]).contains("orders"));

    // A bark goes the whole way, and is over.
    let barked: Value = serde_json::from_str(&ask(project, &["bark", "--json"])).unwrap();
    assert_eq!(barked[0]["state"], "delivered", "{barked}");
    wait_for(project, "the end of the bark", || {
        logged(project) == ["open schedule_missed", "resolved schedule_missed"]
    });
    assert_eq!(ask(project, &["incidents"]), "no open incidents\n");

    // What is silenced is recorded, says so, and is told when the silence ends.
    ask(
        project,
        &["silence", "add", "quiet", "--owner", "ann", "--for", "1h", "--reason", "moving"],
    );
    ask(project, &["run", "orders", "--detach"]);
    wait_for(project, "the incident is held", || {
        ask(project, &["incidents"]).contains("[alert held back: silence quiet: moving]")
    });
    let key = || {
        let found: Value = serde_json::from_str(&ask(project, &["incidents", "--json"])).unwrap();
        found[0]["key"].as_str().unwrap().to_owned()
    };
    ask(project, &["incidents", "resolve", &key(), "--note", "mended"]);
    wait_for(project, "nothing is open", || {
        ask(project, &["incidents"]).contains("no open incidents")
    });
    assert_eq!(logged(project).len(), 2, "neither the beginning nor the end");
    ask(project, &["silence", "remove", "quiet"]);
    ask(project, &["run", "orders", "--detach"]);
    wait_for(project, "it came back", || logged(project).contains(&"open job_failed".to_owned()));
    let acknowledged = ask(project, &["incidents", "ack", &key(), "--note", "mine"]);
    assert!(acknowledged.starts_with("done: "), "{acknowledged}");
    wait_for(project, "the hand is told", || {
        logged(project).contains(&"acknowledged job_failed".to_owned())
    });
    drop(daemon);
    end_the_runner(project);
}

#[test]
fn what_depends_on_a_pipeline_in_trouble_is_recorded_and_not_told() {
    let directory = tempfile::tempdir().unwrap();
    let project = directory.path();
    let config = "alerts:\n- {type: file, name: log, path: alerts.jsonl}\n";
    fs::write(project.join("interlock.yaml"), config).unwrap();
    fs::create_dir(project.join("pipelines")).unwrap();
    fs::write(project.join("pipelines/orders.yaml"), ORDERS).unwrap();
    let silver = ORDERS.replace("name: orders", "name: silver\ndependsOn: [orders]");
    fs::write(project.join("pipelines/silver.yaml"), silver).unwrap();
    let daemon = Daemon::start(project);
    wait_for(project, "it serves", || ask(project, &["status"]).contains("silver"));
    ask(project, &["run", "orders", "--detach"]);
    wait_for(project, "the first is told", || logged(project) == ["open job_failed"]);
    ask(project, &["run", "silver", "--force", "--detach"]);
    wait_for(project, "the second is held", || {
        let incidents = ask(project, &["incidents", "--pipeline", "silver"]);
        incidents.contains("[alert held back: its upstream orders has an incident: failed:orders:")
    });
    // Its end is dropped with it.
    ask(project, &["incidents", "resolve", "failed:silver"]);
    wait_for(project, "it is over", || {
        ask(project, &["incidents", "--pipeline", "silver"]) == "no open incidents\n"
    });
    ask(project, &["incidents", "resolve", "failed:orders"]);
    wait_for(project, "the end of the first is told", || {
        logged(project).contains(&"resolved job_failed".to_owned())
    });
    assert_eq!(logged(project), ["open job_failed", "resolved job_failed"]);
    drop(daemon);
    end_the_runner(project);
}
