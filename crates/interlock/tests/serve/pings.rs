//! Jobs that somebody else runs, reported by clients that nobody here wrote: `curl`, a script as cron runs it, and
//! Python's requests.

use std::{
    fs,
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    process::{Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use interlock_wait::{BOUND, CommandWithin as _, ThreadWithin as _};
use serde_json::Value;

use crate::{
    Daemon,
    exec::exec,
    project::{Dice, Project, Ran},
};

const SERVER: &str = "server: {addr: '127.0.0.1:0'}\n";
/// A switch: there always is a slot.
const WATCHED: &str = "
name: NAME
schedules: [{name: s, every: 1h, from: last}]
trigger: {type: external}
";

pub(crate) struct Site {
    pub(crate) project: Project,
    pub(crate) daemon: Option<Daemon>,
}

impl Site {
    pub(crate) fn new(names: &[&str]) -> Self {
        let project = Project::new(&[]);
        fs::write(project.path().join("interlock.yaml"), SERVER).unwrap();
        for name in names {
            project.write(name, &WATCHED.replace("NAME", name));
        }
        let mut site = Self { project, daemon: None };
        site.serve();
        for name in names {
            let is_known =
                || site.project.run(&["slots", name]).stdout.contains("waiting").then_some(());
            site.project.until("the pipeline is known", is_known);
        }
        site
    }

    pub(crate) fn serve(&mut self) {
        let _gone = fs::remove_file(self.project.folder().join("http.json"));
        self.daemon = Some(Daemon::start(self.project.path()));
        self.address();
    }

    pub(crate) fn address(&self) -> SocketAddr {
        self.project.until("it listens", || {
            let text = fs::read_to_string(self.project.folder().join("http.json")).ok()?;
            serde_json::from_str::<Value>(&text).ok()?["address"].as_str()?.parse().ok()
        })
    }

    fn url(&self, path: &str) -> String {
        format!("http://{}{path}", self.address())
    }

    pub(crate) fn runs(&self, name: &str) -> Vec<Value> {
        let listed = self.project.run(&["runs", "--pipeline", name, "--json"]);
        let value: Value = serde_json::from_str(&listed.stdout).unwrap_or_default();
        value.as_array().cloned().unwrap_or_default()
    }

    pub(crate) fn until_runs(&self, name: &str, count: usize) -> Vec<Value> {
        self.project.until(&format!("{count} runs of {name}"), || {
            let runs = self.runs(name);
            (runs.len() == count).then_some(runs)
        })
    }

    /// The same when all of them have ended: a start and an end may be two reports.
    pub(crate) fn until_ended(&self, name: &str, count: usize) -> Vec<Value> {
        self.project.until(&format!("{count} runs of {name} ended"), || {
            let runs = self.runs(name);
            (runs.len() == count && runs.iter().all(|run| run["endedAt"].is_string()))
                .then_some(runs)
        })
    }

    fn events(&self, arguments: &[&str]) -> String {
        self.project.run(&[&["events"], arguments].concat()).stdout
    }
}

pub(crate) fn curl(arguments: &[&str]) -> Ran {
    Command::new("curl")
        .args(["-sS", "-m", "20"])
        .args(arguments)
        .output_within(BOUND)
        .unwrap()
        .into()
}

#[test]
fn a_line_of_curl_reports_and_its_answers_are_those_that_people_know() {
    let site = Site::new(&["nightly"]);
    let ok = curl(&["-f", "-i", &site.url("/ping/nightly")]);
    assert_eq!(ok.code, 0, "{ok:?}");
    assert!(ok.stdout.starts_with("HTTP/1.1 200") && ok.stdout.ends_with("OK"), "{}", ok.stdout);
    assert!(ok.stdout.contains("ping-body-limit: 100000"), "{}", ok.stdout);
    let run = site.until_runs("nightly", 1).remove(0);
    assert_eq!(run["status"], "COMPLETED", "{run}");
    // HEAD, and POST with a body that is too long: what fits is kept.
    assert_eq!(curl(&["-f", "-I", &site.url("/ping/nightly")]).code, 0);
    site.until_runs("nightly", 2);
    fs::write(site.project.path().join("long"), "x".repeat(150_000)).unwrap();
    let long = format!("@{}", site.project.path().join("long").display());
    let posted = curl(&["-f", "--data-binary", &long, &site.url("/ping/nightly/3?rid=r-1")]);
    assert_eq!(posted.stdout, "OK", "{posted:?}");
    let runs = site.until_runs("nightly", 3);
    let failed = runs.iter().find(|run| run["status"] == "FAILED").unwrap();
    assert_eq!(failed["metadata"]["rid"], "r-1");
    assert_eq!(failed["metadata"]["exitCode"], 3);
    let slots = site.project.run(&["slots", "nightly", "--json"]).stdout;
    let slots: Vec<Value> = serde_json::from_str(&slots).unwrap();
    let failed_slot = slots.iter().find(|slot| slot["disposition"] == "failed").unwrap();
    assert_eq!(failed_slot["status"], "FAILED_FINAL", "{failed_slot}");
    let body = failed["metadata"]["body"].as_str().unwrap();
    assert!(body.starts_with("xxx") && body.ends_with("(cut off)") && body.len() < 100_100);
    for (path, status) in [
        ("/ping/nightly/256", "400"),
        ("/ping/nightly/begin", "400"),
        ("/ping/nightly?rid=", "400"),
        ("/ping/nobody", "404"),
        ("/ping/No%20Name", "404"),
        ("/ping/nightly/start/more", "404"),
    ] {
        let answer = curl(&["-o", "/dev/null", "-w", "%{http_code}", &site.url(path)]);
        assert_eq!(answer.stdout, status, "{path}");
    }
    let delete = ["-X", "DELETE", "-o", "/dev/null", "-w", "%{http_code}"];
    assert_eq!(curl(&[&delete[..], &[&site.url("/ping/nightly")]].concat()).stdout, "405");
    // What belongs nowhere is kept, and shown with why.
    let rejected = site.project.until("the rejected ones", || {
        let shown = site.events(&["--rejected"]);
        (shown.lines().count() == 5).then_some(shown)
    });
    assert!(rejected.contains("there is no pipeline `nobody`"), "{rejected}");
    assert!(rejected.contains("nightly: `256` is not a kind of report (it said 256"), "{rejected}");
    assert!(rejected.contains("nightly: `rid` is not accepted"), "{rejected}");
    assert!(rejected.contains("curl/"), "{rejected}");
}

#[test]
fn a_ping_in_other_words_is_taken_and_what_is_too_long_is_cut_off() {
    let site = Site::new(&["nightly"]);
    let file = site.project.path().join("long");
    fs::write(&file, "x".repeat(3_000_000)).unwrap();
    let file = file.display().to_string();
    let code = ["-o", "/dev/null", "-w", "%{http_code}"];
    let ask = |more: &[&str]| curl(&[&code[..], more].concat()).stdout;
    assert_eq!(ask(&[&site.url("/ping/nightly/start/?rid=a")]), "200");
    assert_eq!(ask(&[&site.url("/ping/nightly/?rid=a")]), "200");
    assert_eq!(ask(&["-T", &file, &site.url("/ping/nightly/0?rid=b")]), "200");
    let long = format!("@{file}");
    assert_eq!(ask(&["--data-binary", &long, &site.url("/ping/nightly?rid=c")]), "200");
    let runs = site.until_ended("nightly", 3);
    let of = |rid: &str| runs.iter().find(|run| run["metadata"]["rid"] == rid).unwrap();
    assert!(of("a")["startedAt"].is_string(), "{}", of("a"));
    for rid in ["b", "c"] {
        assert_eq!(of(rid)["status"], "COMPLETED");
        let body = of(rid)["metadata"]["body"].as_str().unwrap();
        assert!(body.starts_with("xxx") && body.ends_with("(cut off)"), "{rid}");
    }
    // What is no text is nobody's name, and is kept as it was sent.
    let odd = curl(&["-w", "%{http_code}", &site.url("/ping/%ff/start")]);
    assert!(odd.stdout.contains("pipeline_unknown") && odd.stdout.ends_with("404"), "{odd:?}");
    site.project.until("it is kept", || {
        site.events(&["--rejected"]).contains("there is no pipeline `%ff`").then_some(())
    });
}

#[test]
fn a_key_that_is_used_again_for_another_request_is_refused() {
    let site = Site::new(&[]);
    let own = "name: own\nschedule: '0 0 1 1 *'\ntrigger: {type: command, command: 'true'}\n";
    site.project.write("own", own);
    site.project.until("it is known", || {
        site.project.run(&["watermark", "show"]).stdout.contains("own").then_some(())
    });
    let ask = |path: &str, body: &str| {
        let url = site.url(&format!("/api/v1/pipelines/own/{path}"));
        curl(&["-w", "%{http_code}", "-H", "Idempotency-Key: k1", "-d", body, &url]).stdout
    };
    let (one, two) = (r#"{"value": 1}"#, r#"{"value": 2}"#);
    assert!(ask("sensors/rows", one).ends_with("200"));
    assert!(ask("sensors/rows", one).ends_with("200"), "the same again gets the same answer");
    let timed = r#"{"value": 1, "at": "2026-02-25T09:00:00Z"}"#;
    for body in [two, timed] {
        let answer = ask("sensors/rows", body);
        assert!(answer.contains("key_reused") && answer.ends_with("422"), "{body}: {answer}");
    }
    let kept = site.project.run(&["sensor", "get", "own", "rows"]).stdout;
    assert!(kept.contains("\"value\": 1"), "{kept}");
    // Another path is another key.
    assert!(ask("sensors/lines", one).ends_with("200"));
    let kept = site.project.run(&["sensor", "get", "own", "lines"]).stdout;
    assert!(kept.contains("\"value\": 1"), "{kept}");
    assert!(ask("run", "{}").ends_with("200"));
    let another = ask("run", r#"{"force": true}"#);
    assert!(another.contains("key_reused"), "{another}");
    let run = site.until_runs("own", 1).remove(0);
    assert_eq!(run["triggerType"], "webhook", "another system asked: {run}");
    let by_hand = site.project.run(&["run", "own"]);
    assert_eq!(by_hand.code, 0, "{by_hand:?}");
    let runs = site.until_runs("own", 2);
    assert!(runs.iter().any(|run| run["triggerType"] == "manual"), "{runs:?}");
}

/// The keys of one token, and of one route, are no others'.
#[test]
fn a_key_belongs_to_its_token_its_method_and_its_path() {
    let mut site = Site::new(&["ext"]);
    let token = |arguments: &[&str]| {
        let ran = site.project.run(&[&["token", "create", "--json"], arguments].concat());
        let made: Value = serde_json::from_str(&ran.stdout).unwrap();
        format!("Authorization: Bearer {}", made["token"].as_str().unwrap())
    };
    let ci = token(&["ci", "--scope", "ping", "--pipeline", "ext"]);
    let admin = token(&["root", "--scope", "admin"]);
    let ask = |token: &str, key: &str, more: &[&str]| {
        let key = format!("Idempotency-Key: {key}");
        let head = ["-w", "%{http_code}", "-H", token, "-H", &key];
        curl(&[&head[..], more].concat()).stdout
    };
    // Until the interface has heard of the tokens, each request is one without a token.
    site.project.until("a token is asked for", || {
        curl(&["-w", "%{http_code}", &site.url("/metrics")]).stdout.ends_with("401").then_some(())
    });
    let url = site.url("/ping/ext/log?rid=r-7");
    site.project.until("the token is known", || {
        (ask(&ci, "release-42", &["-d", "built", &url]) == "OK200").then_some(())
    });
    let landed = site.url("/api/v1/pipelines/ext/sensors/landed");
    site.project.until("the other one is known", || {
        let answer = ask(&admin, "release-42", &["-d", r#"{"value": 7}"#, &landed]);
        answer.ends_with("200").then_some(())
    });
    let kept = site.project.run(&["sensor", "get", "ext", "landed"]).stdout;
    assert!(kept.contains("\"value\": 7"), "{kept}");
    let logged = site.project.until("what it said is an event", || {
        let shown = site.events(&["ext", "--json"]);
        shown.lines().find(|line| line.contains("JOB_LOGGED")).map(str::to_owned)
    });
    let logged: Value = serde_json::from_str(&logged).unwrap();
    assert_eq!(logged["details"]["rid"], "r-7", "{logged}");
    // The success and the failure are two reports.
    for path in ["/ping/ext?rid=a", "/ping/ext/fail?rid=b"] {
        assert_eq!(ask(&ci, "k", &[&site.url(path)]), "OK200", "{path}");
    }
    let runs = site.until_ended("ext", 2);
    assert!(runs.iter().any(|run| run["status"] == "FAILED"), "{runs:?}");
    // Under one of them the same again is answered the same, and another is refused and kept; after a restart too.
    for _ in 0..2 {
        assert_eq!(ask(&ci, "k", &[&site.url("/ping/ext/?rid=a")]), "OK200");
        for other in ["/ping/ext?rid=c", "/ping/ext", "/ping/ext/fail?rid=a"] {
            let answer = ask(&ci, "k", &[&site.url(other)]);
            assert!(answer.contains("key_reused") && answer.ends_with("422"), "{other}: {answer}");
        }
        site.daemon = None;
        site.serve();
    }
    assert_eq!(site.runs("ext").len(), 2);
    site.project.until("what was refused is kept", || {
        let rejected = site.events(&["--rejected"]);
        (rejected.matches("`Idempotency-Key` was used for another").count() == 6).then_some(())
    });
}

#[test]
fn of_requests_under_one_key_at_the_same_time_one_is_taken() {
    let site = Site::new(&["ext"]);
    let url = site.url("/ping/ext");
    let answers: Vec<String> = thread::scope(|scope| {
        let ask = |number: usize| {
            let (url, body) = (url.clone(), format!("{number}"));
            scope.spawn(move || {
                let key = "Idempotency-Key: one";
                curl(&["-w", "%{http_code}", "-H", key, "-d", &body, &url]).stdout
            })
        };
        let asked: Vec<_> = (0..8).map(ask).collect();
        // Bounded: curl gives up after 20 s.
        asked.into_iter().map(|it| it.join().unwrap()).collect()
    });
    let taken = answers.iter().filter(|answer| *answer == "OK200").count();
    let refused = answers.iter().filter(|answer| answer.ends_with("422")).count();
    assert_eq!((taken, refused), (1, 7), "{answers:?}");
    let said = answers.iter().position(|answer| answer == "OK200").unwrap();
    let run = site.until_ended("ext", 1).remove(0);
    assert_eq!(run["metadata"]["body"], said.to_string(), "the one that was answered with OK");
}

#[test]
fn a_ping_that_nothing_can_come_of_is_not_answered_with_ok_and_is_kept() {
    let site = Site::new(&[]);
    // A year from now; Interlock's own; nobody's.
    let month =
        (jiff::Timestamp::now() + jiff::SignedDuration::from_hours(40 * 24)).strftime("%-m");
    let yearly =
        format!("name: yearly\nschedule: '0 0 1 {month} *'\ntrigger: {{type: external}}\n");
    site.project.write("yearly", &yearly);
    let own = "name: own\nschedule: '0 0 1 1 *'\ntrigger: {type: command, command: 'true'}\n";
    site.project.write("own", own);
    site.project.until("they are known", || {
        let shown = site.project.run(&["watermark", "show"]).stdout;
        (shown.contains("yearly") && shown.contains("own")).then_some(())
    });
    let early = curl(&["-f", "-w", "%{http_code}", &site.url("/ping/yearly")]);
    assert_eq!(early.code, 0, "whoever tries it out has done nothing wrong: {early:?}");
    assert!(early.stdout.starts_with("stored, but no run is expected before 20"), "{early:?}");
    assert!(early.stdout.ends_with("\n202"), "{early:?}");
    let own = curl(&["-w", "%{http_code}", &site.url("/ping/own/start")]);
    assert!(own.stdout.contains("not_watched") && own.stdout.ends_with("409"), "{own:?}");
    let wrapped = exec(&site, &["own", "--server", &site.url("")], &["true"]);
    assert_eq!(wrapped.code, 0);
    assert!(wrapped.stderr.contains("the report was not taken"), "{}", wrapped.stderr);
    let odd = r#"{"said": "maybe", "rid": "r"}"#;
    let odd =
        curl(&["-w", "%{http_code}", "-d", odd, &site.url("/api/v1/pipelines/yearly/reports")]);
    assert!(odd.stdout.ends_with("400"), "{odd:?}");
    // exec's start and end, and the three of curl.
    let rejected = site.project.until("all of them are kept", || {
        let shown = site.events(&["--rejected", "--json"]);
        (shown.lines().count() >= 5).then_some(shown)
    });
    for words in
        ["which is not due: the first slot is", "Interlock itself runs own", "`said` is `maybe`"]
    {
        assert!(rejected.contains(words), "{words}: {rejected}");
    }
    assert!(
        rejected.contains(r#"{\"said\": \"maybe\", \"rid\": \"r\"}"#),
        "what came is shown: {rejected}"
    );
}

#[test]
fn a_script_as_cron_runs_it_is_one_run_from_start_to_end() {
    let site = Site::new(&["backup"]);
    let script = site.project.path().join("backup.sh");
    let text = format!(
        "#!/bin/sh\nURL={}\nRID=$$-$(date +%s)\ncurl -fsS -m 10 --retry 5 -o /dev/null \"$URL/start?rid=$RID\"\n\
         OUT=$(echo three files; exit 4 2>&1)\ncurl -fsS -m 10 --retry 5 -o /dev/null --data-raw \"$OUT\" \"$URL/$??rid=$RID\"\n",
        site.url("/ping/backup")
    );
    fs::write(&script, text).unwrap();
    // As cron does: no terminal, no environment to speak of.
    let ran: Ran = Command::new("/bin/sh")
        .arg(&script)
        .env_clear()
        .env("PATH", "/usr/bin:/bin")
        .stdin(Stdio::null())
        .output_within(BOUND)
        .unwrap()
        .into();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let run = site.project.until("it ended", || {
        site.runs("backup").into_iter().find(|run| run["status"] == "FAILED")
    });
    assert_eq!(run["metadata"]["exitCode"], 4);
    assert_eq!(run["metadata"]["body"], "three files");
    assert!(run["startedAt"].is_string(), "{run}");
    assert_eq!(site.runs("backup").len(), 1);
}

#[test]
fn python_requests_reports_creates_and_asks() {
    let site = Site::new(&["etl"]);
    let script = r#"
import sys, requests
base = sys.argv[1]
s = requests.Session()
assert s.get(base + "/ping/etl/start", params={"rid": "a\nb"}).status_code == 400
assert s.get(base + "/ping/etl/start", params={"rid": "a/1"}, timeout=10).text == "OK"
assert s.post(base + "/ping/etl", params={"rid": "a/1"}, data="42 rows".encode()).ok
r = s.post(base + "/ping/fresh?create=1", data="first")
assert r.status_code == 201, (r.status_code, r.text)
for bad in ["Bad Name", "x", "-a", "UPPER"]:
    r = s.get(base + "/ping/" + bad, params={"create": "1"})
    assert r.status_code == 404 and "a-z, 0-9" in r.json()["hint"], r.text
key = {"Idempotency-Key": "k-1"}
one = s.post(base + "/api/v1/pipelines/etl/sensors/landed", json={"value": {"rows": 3}}, headers=key)
assert one.status_code == 200, one.text
two = s.post(base + "/api/v1/pipelines/etl/sensors/landed", json={"value": {"rows": 3}}, headers=key)
assert (one.json() == two.json()), (one.text, two.text)
for path, body, code, word in [
    ("/api/v1/pipelines/etl/sensors/landed", {"val": 1}, 400, "bad_body"),
    ("/api/v1/pipelines/etl/sensors/landed", {"value": 1, "at": "soon"}, 400, "bad_time"),
    ("/api/v1/pipelines/nobody/sensors/landed", {"value": 1}, 404, "pipeline_unknown"),
    ("/api/v1/pipelines/etl/run", {}, 409, "refused"),
    ("/api/v1/pipelines/etl/run", {"slot": "x"}, 400, "bad_slot"),
    ("/api/v1/runs/nonsense/complete", {"status": "success"}, 400, "bad_run_id"),
    ("/api/v1/runs/etl~s~20260225T090000Z~1~1/complete", {"status": "maybe"}, 400, "bad_status"),
    ("/api/v1/runs/etl~s~20260225T090000Z~1~1/complete", {"status": "failed", "category": "x"}, 400, "bad_category"),
    ("/api/v1/runs/etl~s~20260225T090000Z~1~1/complete", {"status": "success"}, 409, "refused"),
]:
    r = s.post(base + path, json=body)
    error = r.json()
    assert (r.status_code, error["code"]) == (code, word), (path, r.status_code, r.text)
    assert error["detail"] and error["hint"], r.text
assert s.post(base + "/api/v1/pipelines/etl/run", headers={"Idempotency-Key": "a b"}).status_code == 400
"#;
    let python =
        Command::new("python3").args(["-c", script, &site.url("")]).output_within(BOUND).unwrap();
    let ran = Ran::from(python);
    assert_eq!(
        ran.code, 0,
        "python3 with `requests` (package python3-requests) is needed: {ran:?}"
    );
    let run = site.until_runs("etl", 1).remove(0);
    assert_eq!(
        (&run["status"], &run["metadata"]["body"]),
        (&"COMPLETED".into(), &"42 rows".into())
    );
    let fresh = site.until_runs("fresh", 1).remove(0);
    assert_eq!(fresh["metadata"]["body"], "first");
    let slots = site.project.run(&["slots", "fresh"]).stdout;
    assert!(slots.contains("completed") && slots.contains("waiting"), "{slots}");
    let file = fs::read_to_string(site.project.path().join("pipelines/fresh.yaml")).unwrap();
    assert!(file.contains("type: external"), "{file}");
    assert!(site.project.run(&["sensor", "get", "etl", "landed"]).stdout.contains("rows"));
}

#[test]
fn a_ping_that_was_answered_is_never_lost_to_a_kill() {
    let mut site = Site::new(&["burst"]);
    let mut dice = Dice::new();
    let mut answered = Vec::new();
    for round in 0..6 {
        let address = site.address();
        let senders: Vec<_> = (0..8)
            .map(|sender| {
                thread::spawn(move || {
                    let mut answered = Vec::new();
                    for number in 0.. {
                        let rid = format!("{round}-{sender}-{number}");
                        if !is_answered(address, &rid) {
                            return answered;
                        }
                        answered.push(rid);
                    }
                    answered
                })
            })
            .collect();
        thread::sleep(Duration::from_millis(150 + dice.below(300)));
        // Dropping it kills it.
        site.daemon = None;
        answered.extend(senders.into_iter().flat_map(|sender| {
            sender.join_within("the senders to notice the kill", BOUND).unwrap()
        }));
        site.serve();
    }
    assert!(answered.len() > 100, "{} were answered", answered.len());
    println!("{} pings were answered over six kills", answered.len());
    site.project.until("everything that was answered is recorded", || {
        let events = site.events(&["burst", "--json"]);
        let missing = answered.iter().filter(|rid| !events.contains(&format!("<{rid}>"))).count();
        (missing == 0).then_some(())
    });
}

/// Sends a log ping, which is an event of its own; whether 200 came back whole.
fn is_answered(address: SocketAddr, rid: &str) -> bool {
    let Ok(mut stream) = TcpStream::connect(address) else { return false };
    let body = format!("<{rid}>");
    let request = format!(
        "POST /ping/burst/log?rid={rid} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    );
    let mut text = String::new();
    stream.set_read_timeout(Some(BOUND)).is_ok()
        && stream.write_all(request.as_bytes()).is_ok()
        && stream.read_to_string(&mut text).is_ok()
        && text.starts_with("HTTP/1.1 200")
        && text.ends_with("OK")
}

#[test]
fn a_crowd_that_says_nothing_does_not_keep_pings_waiting() {
    let site = Site::new(&["busy"]);
    let address = site.address();
    let mut silent = Vec::new();
    for _ in 0..1_000 {
        // One that is pushed out sees its end; that is no failure of ours.
        if let Ok(mut stream) = TcpStream::connect(address) {
            let _pushed_out =
                stream.write_all(b"POST /ping/busy HTTP/1.1\r\nHost: localhost\r\nContent-Le");
            silent.push(stream);
        }
    }
    assert!(silent.len() >= 900, "{} connected", silent.len());
    let began = Instant::now();
    for _ in 0..20 {
        let answer = curl(&["-f", &site.url("/ping/busy/log")]);
        assert_eq!(answer.stdout, "OK", "{answer:?}");
    }
    println!("20 pings beside 1000 silent connections took {:?}", began.elapsed());
    drop(silent);
}

/// What people see of watch-only jobs besides alerts.
#[test]
fn what_a_job_sent_is_its_log_and_a_switch_is_a_schedule() {
    let site = Site::new(&["told"]);
    let serving = site.project.until("it says what it serves", || {
        let said = crate::log(site.project.path());
        let line = said.lines().find(|line| line.contains("SERVING"))?;
        serde_json::from_str::<Value>(line).ok()
    });
    assert_eq!(serving["schedules"], 1, "{serving}");
    assert_eq!((&serving["nextPipeline"], &serving["nextSchedule"]), (&"told".into(), &"s".into()));
    assert_eq!(curl(&["-f", "-d", "all went well", &site.url("/ping/told")]).code, 0);
    let run = site.until_ended("told", 1).remove(0);
    let log = site.project.run(&["logs", run["id"].as_str().unwrap()]);
    assert_eq!((log.code, log.stdout.as_str()), (0, "all went well"), "{}", log.stderr);
    assert!(site.project.run(&["runs", "told"]).stdout.contains("COMPLETED"));
    assert_eq!(site.project.run(&["runs", "told", "--pipeline", "told"]).code, 2);
}
