//! `interlock exec` around real jobs: with the interface there, gone, and silent.

use std::{
    fs,
    io::{BufRead as _, ErrorKind, Read as _, Write as _},
    net::TcpListener,
    process::{Command, Stdio},
};

use crate::{
    pings::Site,
    project::{Ran, signal},
};

pub(crate) fn exec(site: &Site, arguments: &[&str], job: &[&str]) -> Ran {
    command(site, arguments, job).stdin(Stdio::null()).output().unwrap().into()
}

fn command(site: &Site, arguments: &[&str], job: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    command.arg("exec").args(arguments).arg("-C").arg(site.project.path()).arg("--").args(job);
    command.env("INTERLOCK_SPOOL", site.project.path().join("spool"));
    command.env_remove("INTERLOCK_SERVER");
    command
}

#[test]
fn exec_passes_streams_codes_and_signals_and_reports_what_happened() {
    let site = Site::new(&["wrapped"]);
    let ran = exec(&site, &["wrapped"], &["sh", "-c", "echo out; echo err >&2; exit 7"]);
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (7, "out\n", "err\n"));
    let run = site.until_ended("wrapped", 1).remove(0);
    assert_eq!((&run["status"], &run["metadata"]["exitCode"]), (&"FAILED".into(), &7.into()));
    let body = run["metadata"]["body"].as_str().unwrap();
    assert!(body.contains("out") && body.contains("err"), "{body}");
    assert!(run["metadata"]["durationMs"].is_u64() && run["startedAt"].is_string(), "{run}");
    // Standard input passes, and a signal reaches the job, whose end it is.
    let mut cat = Command::new(env!("CARGO_BIN_EXE_interlock"));
    cat.args(["exec", "wrapped", "-C"]).arg(site.project.path()).args(["--", "cat"]);
    let mut cat = cat.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    cat.stdin.take().unwrap().write_all(b"through").unwrap();
    let output = cat.wait_with_output().unwrap();
    assert_eq!((output.status.code(), output.stdout.as_slice()), (Some(0), b"through".as_slice()));
    site.until_ended("wrapped", 2);
    let mut slow = Command::new(env!("CARGO_BIN_EXE_interlock"));
    slow.args(["exec", "wrapped", "-C"]).arg(site.project.path());
    slow.args(["--", "sh", "-c", "trap 'exit 9' TERM; echo on; while :; do sleep 0.05; done"]);
    let mut slow = slow.stdin(Stdio::null()).stdout(Stdio::piped()).spawn().unwrap();
    let mut first = [0; 3];
    slow.stdout.as_mut().unwrap().read_exact(&mut first).unwrap();
    // Its start is told while it runs.
    site.project.until("it is under way", || {
        site.runs("wrapped").iter().any(|run| run["status"] == "RUNNING").then_some(())
    });
    assert!(signal(slow.id(), "-TERM"));
    assert_eq!(slow.wait().unwrap().code(), Some(9));
    let gone = exec(&site, &["wrapped"], &["/no/such/program"]);
    assert_eq!(gone.code, 127, "{gone:?}");
    site.project.until("all ended", || {
        let runs = site.runs("wrapped");
        let codes: Vec<_> =
            runs.iter().filter_map(|run| run["metadata"]["exitCode"].as_i64()).collect();
        (runs.len() == 4 && [0, 7, 9, 127].iter().all(|code| codes.contains(code))).then_some(())
    });
}

#[test]
fn exec_runs_the_job_when_nobody_can_be_reached_and_its_reports_arrive_later_with_their_times() {
    let mut site = Site::new(&["away"]);
    let address = site.address();
    site.daemon = None;
    let server = format!("http://{address}");
    let before = jiff::Timestamp::now();
    let ran = exec(&site, &["away", "--server", &server], &["echo", "done"]);
    let after = jiff::Timestamp::now();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done\n"));
    assert!(ran.stderr.contains("is kept until it can be delivered"), "{}", ran.stderr);
    let spool = site.project.path().join("spool");
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 2, "a start and an end");
    // Back at the same address, and the next job brings them along.
    let config = format!("server: {{addr: '{address}'}}\n");
    fs::write(site.project.path().join("interlock.yaml"), config).unwrap();
    site.serve();
    let next = exec(&site, &["away", "--server", &server], &["true"]);
    assert_eq!((next.code, next.stderr.as_str()), (0, ""), "{next:?}");
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 0);
    let runs = site.until_ended("away", 2);
    let kept = runs.iter().find(|run| run["metadata"]["body"] == "done\n").unwrap();
    let ended: jiff::Timestamp = kept["endedAt"].as_str().unwrap().parse().unwrap();
    assert!((before..=after).contains(&ended), "{before} {ended} {after}");
}

#[test]
fn what_waited_is_delivered_before_what_happened_since() {
    let site = Site::new(&[]);
    let address = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    let server = format!("http://{address}");
    for rid in ["first", "second"] {
        let ran = exec(&site, &["away", "--server", &server, "--rid", rid], &["true"]);
        assert!(ran.stderr.contains("the report is kept"), "nobody is there: {ran:?}");
    }
    let listener = TcpListener::bind(address).unwrap();
    let heard = std::thread::spawn(move || {
        let mut rids: Vec<String> = Vec::new();
        while !rids.iter().any(|rid| rid == "third") {
            let (stream, _) = listener.accept().unwrap();
            let mut reader = std::io::BufReader::new(stream);
            let (mut line, mut length) = (String::new(), 0);
            while reader.read_line(&mut line).unwrap() > 2 {
                if let Some((name, value)) = line.split_once(':')
                    && name.eq_ignore_ascii_case("content-length")
                {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            let mut body = vec![0; length];
            reader.read_exact(&mut body).unwrap();
            let body: serde_json::Value = serde_json::from_slice(&body).unwrap();
            rids.push(body["rid"].as_str().unwrap().to_owned());
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}";
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
        }
        rids
    });
    let ran = exec(&site, &["away", "--server", &server, "--rid", "third"], &["true"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let mut rids = heard.join().unwrap();
    rids.dedup();
    assert_eq!(rids, ["first", "second", "third"]);
}

/// A slot every two seconds: which one a report is about is a matter of its time.
const OFTEN: &str = "
name: often
schedules: [{name: o, cron: '*/2 * * * * *', seconds: true, grace: 1s}]
trigger: {type: external}
";

#[test]
fn what_exec_kept_while_nobody_served_is_taken_by_serve_and_placed_by_its_true_time() {
    let mut site = Site::new(&[]);
    site.project.write("often", OFTEN);
    site.project.until("it is watched", || {
        site.project.run(&["slots", "often"]).stdout.contains("waiting").then_some(())
    });
    let address = site.address();
    site.daemon = None;
    // As people write it.
    let server = format!("http://localhost:{}", address.port());
    let before = jiff::Timestamp::now();
    let ran = exec(&site, &["often", "--server", &server], &["echo", "kept"]);
    let after = jiff::Timestamp::now();
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "kept\n"), "{}", ran.stderr);
    let spool = site.project.path().join("spool");
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 2, "a start and an end");
    // Three slots go by, so that the latest one would be the wrong one.
    site.project.until("time goes by", || {
        (jiff::Timestamp::now() > after + jiff::SignedDuration::from_secs(6)).then_some(())
    });
    let config = format!("server: {{addr: '{address}'}}\n");
    fs::write(site.project.path().join("interlock.yaml"), config).unwrap();
    site.serve();
    let run = site.project.until("its end is recorded", || {
        site.runs("often").into_iter().find(|run| run["status"] == "COMPLETED")
    });
    assert_eq!(run["metadata"]["body"], "kept\n");
    let instant = |name: &str| run[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!((before..=after).contains(&instant("startedAt")), "{run}");
    assert!((before..=after).contains(&instant("endedAt")), "{run}");
    let (_, slot) = run["slot"].as_str().unwrap().rsplit_once('/').unwrap();
    let slot: jiff::Timestamp = slot.parse().unwrap();
    let late = instant("startedAt").duration_since(slot);
    // A report may come a tenth of the gap before its slot.
    assert!((-200..2_000).contains(&late.as_millis()), "{run}");
    site.project
        .until("nothing waits", || (fs::read_dir(&spool).unwrap().count() == 0).then_some(()));
}

#[test]
fn an_interface_that_says_nothing_holds_up_neither_output_nor_signals() {
    let site = Site::new(&["patient"]);
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let server = format!("http://{}", silent.local_addr().unwrap());
    let text =
        "trap 'echo caught; exit 9' TERM; read line; echo $line; while :; do sleep 0.05; done";
    let mut job = command(&site, &["patient", "--server", &server], &["sh", "-c", text]);
    let mut job = job.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
    // Its start is being told; what it prints now, and the signal that it gets, come while nobody answers.
    let (mut asked, _) = silent.accept().unwrap();
    writeln!(job.stdin.take().unwrap(), "first").unwrap();
    let mut printed = [0; 6];
    job.stdout.as_mut().unwrap().read_exact(&mut printed).unwrap();
    assert!(signal(job.id(), "-TERM"));
    let mut caught = [0; 7];
    job.stdout.as_mut().unwrap().read_exact(&mut caught).unwrap();
    assert_eq!((&printed, &caught), (b"first\n", b"caught\n"));
    asked.set_nonblocking(true).unwrap();
    let mut request = vec![0; 65_536];
    let still = loop {
        match asked.read(&mut request) {
            Ok(0) => panic!("the request was given up: that took as long as the job's output"),
            Ok(_) => {}
            Err(error) => break error.kind(),
        }
    };
    assert_eq!(still, ErrorKind::WouldBlock);
    drop((asked, silent));
    assert_eq!(job.wait().unwrap().code(), Some(9));
    assert_eq!(fs::read_dir(site.project.path().join("spool")).unwrap().count(), 2);
}
