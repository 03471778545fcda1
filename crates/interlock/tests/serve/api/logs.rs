//! What jobs wrote, over HTTP: the same that `interlock logs` prints, and any part of it.

use std::{
    fs::{self, OpenOptions},
    io::Write as _,
    path::PathBuf,
    process::{Child, Command, Stdio},
    time::{Duration, Instant},
};

use interlock_wait::{BOUND, ChildWithin as _, Lines};

use super::*;
use crate::project::signal;

const TALKER: &str = "
name: talker
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'seq 1 1000; printf end'}
";

/// Goes on when the file `go` is there.
const WAITER: &str = "
name: waiter
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'echo one; until test -e go; do sleep 0.05; done; echo two'}
";

/// Writes nothing, so nothing of it is kept.
const QUIET: &str = "
name: quiet
schedule: '0 0 1 1 *'
trigger: {type: command, command: 'true'}
";

const REPORTED: &str = "
name: reported
schedules: [{name: s, every: 1h, from: last}]
trigger: {type: external}
";

/// A log as it came over the wire.
struct SentLog {
    status: u16,
    /// In small letters.
    head: String,
    body: String,
}

fn log_of(site: &ApiSite, arguments: &[&str], run: &str) -> SentLog {
    let url = format!("{}/api/v1/runs/{run}", site.base);
    let asked = curl(&[&["-i", &url], arguments].concat());
    let (head, body) = asked.stdout.split_once("\r\n\r\n").unwrap_or_else(|| panic!("{asked:?}"));
    let status = head.split(' ').nth(1).unwrap().parse().unwrap();
    SentLog { status, head: head.to_lowercase(), body: body.to_owned() }
}

/// The last run of a pipeline.
fn last_run(site: &ApiSite, pipeline: &str) -> String {
    site.project.until("there is a run", || {
        let runs = site.get(&format!("/api/v1/runs?pipeline={pipeline}&limit=1")).ok();
        runs["items"][0]["id"].as_str().map(str::to_owned)
    })
}

/// Where the log of a run is.
fn file_of(site: &ApiSite, pipeline: &str, run: &str) -> PathBuf {
    site.project.folder().join(format!("runner/logs/{pipeline}/{run}.log"))
}

/// Begins to follow the log of the waiter, which has written its first line.
fn follow_the_waiter(site: &ApiSite) -> (Child, Lines) {
    assert_eq!(site.project.run(&["run", "waiter", "--detach"]).code, 0);
    let run = last_run(site, "waiter");
    let url = format!("{}/api/v1/runs/{run}/log?follow=true", site.base);
    let curl = Command::new("curl").args(["-sS", "-N", &url]).stdout(Stdio::piped()).spawn();
    let mut curl = curl.unwrap();
    let mut lines = Lines::of(curl.stdout.take().unwrap());
    assert_eq!(lines.next_within("what is there", BOUND).as_deref(), Some("one"));
    (curl, lines)
}

#[test]
fn a_log_is_sent_whole_in_ranges_and_by_its_last_lines() {
    let site = ApiSite::new(&[("talker", TALKER)]);
    assert_eq!(site.project.run(&["run", "talker"]).code, 0);
    let run = last_run(&site, "talker");
    let printed = site.project.run(&["logs", &run]).stdout;
    assert!(printed.starts_with("1\n2\n") && printed.ends_with("\n1000\nend"), "{printed}");
    let at = format!("{run}/log");

    let whole = log_of(&site, &[], &at);
    assert_eq!((whole.status, whole.body.as_str()), (200, printed.as_str()));
    for header in [
        "content-type: text/plain; charset=utf-8",
        "accept-ranges: bytes",
        "interlock-log-start: 0",
        "x-content-type-options: nosniff",
        &format!("content-length: {}", printed.len()),
    ] {
        assert!(whole.head.contains(header), "{header}: {}", whole.head);
    }
    let folder = site.project.path().to_str().unwrap();
    assert!(!site.get(&format!("/api/v1/runs/{run}")).ok().to_string().contains(folder));

    let length = printed.len();
    for (range, expected) in
        [("0-3", 0..4), ("100-", 100..length), ("-7", length - 7..length), ("0-9999999", 0..length)]
    {
        let part = log_of(&site, &["-H", &format!("Range: bytes={range}")], &at);
        let told = format!("content-range: bytes {}-{}/{length}", expected.start, expected.end - 1);
        assert_eq!((part.status, part.body.as_str()), (206, &printed[expected]), "{range}");
        assert!(part.head.contains(&told), "{told}: {}", part.head);
    }
    let beyond = log_of(&site, &["-H", &format!("Range: bytes={length}-")], &at);
    assert_eq!(beyond.status, 416, "{}", beyond.body);
    assert!(beyond.head.contains(&format!("content-range: bytes */{length}")), "{}", beyond.head);

    let tail = log_of(&site, &[], &format!("{at}?lines=2"));
    assert_eq!((tail.status, tail.body.as_str()), (200, "1000\nend"));
    assert!(tail.head.contains(&format!("interlock-log-start: {}", length - 8)), "{}", tail.head);
    assert_eq!(site.project.run(&["logs", &run, "--lines", "2"]).stdout, "1000\nend");
    assert_eq!(log_of(&site, &[], &format!("{at}?offset=4")).body, printed[4..]);
    assert_eq!(log_of(&site, &[], &format!("{at}?follow=true&lines=1")).body, "end");

    // What outlives the file and its host says that it is only that.
    assert!(whole.head.contains("interlock-log-source: file"), "{}", whole.head);
    fs::remove_file(file_of(&site, "talker", &run)).unwrap();
    let kept = log_of(&site, &[], &at);
    let last: Vec<_> = printed.lines().skip(printed.lines().count() - 100).collect();
    assert_eq!((kept.status, kept.body.as_str()), (200, last.join("\n").as_str()));
    assert!(kept.head.contains("interlock-log-source: kept"), "{}", kept.head);
    let ran = site.project.run(&["logs", &run]);
    assert_eq!((ran.code, ran.stdout), (0, kept.body), "{}", ran.stderr);
    assert!(ran.stderr.contains("last lines"), "{}", ran.stderr);
}

#[test]
fn what_a_log_cannot_be_asked_and_why_there_is_none_is_said() {
    let site = ApiSite::new(&[("quiet", QUIET), ("reported", REPORTED)]);
    assert_eq!(site.project.run(&["run", "quiet"]).code, 0);
    let run = last_run(&site, "quiet");
    let refusal = |query: &str, arguments: &[&str]| {
        let refused = site.ask(arguments, &format!("/api/v1/runs/{run}/log{query}"));
        (refused.status, refused.body.to_string())
    };
    for query in ["?lines=0", "?lines=10001", "?lines=1&offset=1", "?lines=x", "?nope=1"] {
        let (status, body) = refusal(query, &[]);
        assert!(status == 400 && body.contains("bad_parameter"), "{query}: {status} {body}");
    }
    let (status, body) = refusal("?lines=1", &["-H", "Range: bytes=0-1"]);
    assert!(status == 400 && body.contains("Range"), "{status} {body}");
    assert_eq!(site.get("/api/v1/runs/nope/log").status, 404);

    fs::remove_file(file_of(&site, "quiet", &run)).unwrap();
    for query in ["", "?follow=true"] {
        let (status, body) = refusal(query, &[]);
        assert!(status == 410 && body.contains("retention.logs"), "{query}: {status} {body}");
    }
    let printed = site.project.run(&["logs", &run]);
    assert!(printed.code == 1 && printed.stderr.contains("was deleted"), "{printed:?}");

    for (path, body) in [("reported?rid=a", "all went well"), ("reported?rid=b", "")] {
        let url = format!("{}/ping/{path}", site.base);
        assert_eq!(curl(&["-f", "-d", body, &url]).code, 0);
    }
    let runs = site.project.until("both are recorded", || {
        let runs = site.get("/api/v1/runs?pipeline=reported").ok()["items"].take();
        (runs.as_array().unwrap().len() == 2).then_some(runs)
    });
    for reported in runs.as_array().unwrap() {
        let log = log_of(&site, &[], &format!("{}/log", reported["id"].as_str().unwrap()));
        if reported["metadata"]["rid"] == "a" {
            assert_eq!((log.status, log.body.as_str()), (200, "all went well"));
        } else {
            assert!(log.status == 404 && log.body.contains("no_log"), "{}", log.body);
        }
    }
}

#[test]
fn a_log_is_followed_until_its_run_has_ended() {
    let site = ApiSite::new(&[("waiter", WAITER)]);
    let (mut curl, mut lines) = follow_the_waiter(&site);
    fs::write(site.project.path().join("go"), "").unwrap();
    assert_eq!(lines.rest_within("what comes, and the end", BOUND), ["two"]);
    assert!(curl.wait_within("the end of curl", BOUND).success());
}

#[test]
fn a_log_that_is_followed_ends_in_good_order_when_serve_stops() {
    let site = ApiSite::new(&[("waiter", WAITER)]);
    let (mut curl, mut lines) = follow_the_waiter(&site);
    assert!(signal(site.daemon.0.id(), "-TERM"));
    assert_eq!(lines.rest_within("the end", BOUND), [""; 0]);
    // curl fails when an answer breaks off.
    assert!(curl.wait_within("the end of curl", BOUND).success());
    fs::write(site.project.path().join("go"), "").unwrap();
}

/// The most memory that a process has had, in kB.
fn peak_memory(pid: u32) -> u64 {
    let status = fs::read_to_string(format!("/proc/{pid}/status")).unwrap();
    let line = status.lines().find_map(|line| line.strip_prefix("VmHWM:")).unwrap();
    line.trim().trim_end_matches(" kB").parse().unwrap()
}

#[test]
fn a_log_of_gigabytes_costs_neither_memory_nor_time() {
    let site = ApiSite::new(&[("talker", TALKER)]);
    assert_eq!(site.project.run(&["run", "talker"]).code, 0);
    let run = last_run(&site, "talker");
    let file = OpenOptions::new().append(true).open(file_of(&site, "talker", &run));
    let mut file = file.unwrap();
    // With a hole, so that it takes no place on the disk.
    file.set_len(5 << 30).unwrap();
    file.write_all(b"\nlast but one\nlast\n").unwrap();
    let (at, began, before) =
        (format!("{run}/log"), Instant::now(), peak_memory(site.daemon.0.id()));

    assert_eq!(log_of(&site, &[], &format!("{at}?lines=2")).body, "last but one\nlast\n");
    // The hole has no end of a line.
    let far = log_of(&site, &["-o", "/dev/null", "-D", "-"], &format!("{at}?lines=4"));
    assert!(far.head.contains("interlock-log-start: 5368709121"), "{}", far.head);
    let end = log_of(&site, &["-H", "Range: bytes=-5"], &at);
    assert_eq!((end.status, end.body.as_str()), (206, "last\n"));
    let much = ["-o", "/dev/null", "-w", "%{size_download}", "-H", "Range: bytes=0-79999999"];
    let url = format!("{}/api/v1/runs/{at}", site.base);
    assert_eq!(curl(&[&much[..], &[&url]].concat()).stdout, "80000000");

    let grown = peak_memory(site.daemon.0.id()) - before;
    println!("{:?}, {grown} kB more", began.elapsed());
    assert!(grown < 40 * 1024, "{grown} kB");
    assert!(began.elapsed() < Duration::from_mins(1), "{:?}", began.elapsed());
}
