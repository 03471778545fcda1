//! `interlock exec` around real jobs: with the interface there, gone, and silent.

use std::{
    fs,
    io::{BufRead as _, ErrorKind, Read as _, Write as _},
    net::TcpListener,
    process::{Command, Stdio},
    sync::mpsc::channel,
    thread,
    time::{Duration, Instant},
};

use interlock_wait::ListenerWithin as _;
use rustix::process::Signal;

use crate::{
    bad_input::SmallDisk,
    pings::Site,
    process::{BOUND, Lines, PLAIN, SHOW, Started, UNUSUAL, output, signals, started_by},
    project::{Ran, signal},
};

#[track_caller]
pub(crate) fn exec(site: &Site, arguments: &[&str], job: &[&str]) -> Ran {
    output(&mut command(site, arguments, job)).into()
}

/// A job that inherits no ignored and no blocked signal.
fn command(site: &Site, arguments: &[&str], job: &[&str]) -> Command {
    started_by(&[PLAIN], &bare(site, arguments, job))
}

/// Starts a job that prints; gives its output to read.
#[track_caller]
fn start(mut command: Command) -> (Started, Lines) {
    let mut job = Started::new(command.stdout(Stdio::piped()));
    let prints = Lines::of(job.child.stdout.take().unwrap());
    (job, prints)
}

/// A job that inherits what these tests do.
fn bare(site: &Site, arguments: &[&str], job: &[&str]) -> Command {
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
    let mut cat = command(&site, &["wrapped"], &["cat"]);
    cat.stdin(Stdio::piped());
    let (mut cat, prints) = start(cat);
    cat.child.stdin.take().unwrap().write_all(b"through").unwrap();
    assert_eq!(cat.ends("`exec cat`, whose input has ended").code(), Some(0));
    assert_eq!(prints.rest("`exec cat`"), "through");
    site.until_ended("wrapped", 2);
    let text = "trap 'exit 9' TERM; echo on; while :; do sleep 0.05; done";
    let mut slow = command(&site, &["wrapped"], &["sh", "-c", text]);
    slow.stdin(Stdio::null());
    let (mut slow, mut prints) = start(slow);
    prints.until("on", 1);
    // Its start is told while it runs.
    site.project.until("it is under way", || {
        site.runs("wrapped").iter().any(|run| run["status"] == "RUNNING").then_some(())
    });
    slow.signal(Signal::TERM);
    assert_eq!(slow.ends("`exec` of a job that was asked to end").code(), Some(9));
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
    let (tell, heard) = channel();
    thread::spawn(move || {
        let mut rids: Vec<String> = Vec::new();
        while !rids.iter().any(|rid| rid == "third") {
            let stream = listener.accept_within("`exec` with a report", BOUND);
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
            // As Interlock answers: nobody else is believed.
            let answer = "HTTP/1.1 200 OK\r\ncontent-length: 26\r\nconnection: close\r\n\r\n\
                          {\"key\":\"k\",\"durable\":true}";
            reader.into_inner().write_all(answer.as_bytes()).unwrap();
        }
        tell.send(rids)
    });
    let ran = exec(&site, &["away", "--server", &server, "--rid", "third"], &["true"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""), "{ran:?}");
    let mut rids = heard.recv_timeout(BOUND).expect("the third report comes");
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
    job.stdin(Stdio::piped());
    let (mut job, mut prints) = start(job);
    // Its start is being told; what it prints now, and the signal that it gets, come while nobody answers.
    let mut asked = silent.accept_within("`exec` with the start", BOUND);
    writeln!(job.child.stdin.take().unwrap(), "first").unwrap();
    prints.until("first", 1);
    job.signal(Signal::TERM);
    prints.until("caught", 1);
    assert_eq!(prints.said(), "first\ncaught");
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
    assert_eq!(job.ends("`exec` whose interface is gone").code(), Some(9));
    assert_eq!(fs::read_dir(site.project.path().join("spool")).unwrap().count(), 2);
}

/// Whatever is wrong with what it is told, the job is what matters.
#[test]
fn exec_runs_the_job_under_a_bad_name_and_with_a_bad_address_and_says_so() {
    let site = Site::new(&["named"]);
    for (arguments, server, said) in [
        (&["no such name"][..], "", "the report was not taken: "),
        (&["named"], "foo", "`foo` is no address"),
        (&["named", "--server", "ftp://a"], "", "`ftp://a` is no address"),
    ] {
        let mut command = command(&site, arguments, &["sh", "-c", "echo ran; exit 5"]);
        let ran: Ran = output(command.env("INTERLOCK_SERVER", server)).into();
        assert_eq!((ran.code, ran.stdout.as_str()), (5, "ran\n"), "{}", ran.stderr);
        assert!(ran.stderr.contains(said), "{}", ran.stderr);
    }
    // A host and a port are an address.
    let mut whole = command(&site, &["named"], &["true"]);
    let ran: Ran = output(whole.env("INTERLOCK_SERVER", site.address().to_string())).into();
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    site.until_ended("named", 1);
    let ran = exec(&site, &["named", "--rid", "a b"], &["true"]);
    assert_eq!(ran.code, 0);
    assert!(ran.stderr.contains("`--rid` cannot be used"), "{}", ran.stderr);
    let runs = site.until_ended("named", 2);
    assert!(runs.iter().all(|run| run["metadata"]["rid"] != "a b"), "{runs:?}");
}

/// Answers every request alike, as a proxy does that does not know the way.
fn answering(answer: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    thread::spawn(move || {
        // Bounded: no test waits for this thread; it ends with the test's process.
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = vec![0; 65_536];
            // Bounded: no test waits for this thread; it ends with the test's process.
            let _gone = stream.read(&mut request);
            let _gone = stream.write_all(answer.as_bytes());
        }
    });
    url
}

#[test]
fn only_interlock_itself_can_refuse_a_report_for_good() {
    let site = Site::new(&["proxied"]);
    let page = "HTTP/1.1 404 Not Found\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<h1>404</h1>";
    let ran = exec(&site, &["proxied", "--server", &answering(page)], &["true"]);
    assert!(ran.stderr.contains("is kept until it can be delivered"), "{}", ran.stderr);
    let spool = site.project.path().join("spool");
    let kept: Vec<_> = fs::read_dir(&spool).unwrap().map(|file| file.unwrap().path()).collect();
    assert_eq!(kept.len(), 2, "a start and an end");
    // What a job printed is nobody else's.
    let mode = |path: &std::path::Path| {
        std::os::unix::fs::PermissionsExt::mode(&fs::metadata(path).unwrap().permissions()) & 0o777
    };
    assert_eq!((mode(&spool), mode(&kept[0])), (0o700, 0o600));
    let ours = "HTTP/1.1 404 Not Found\r\nConnection: close\r\n\r\n\
                {\"code\": \"pipeline_unknown\", \"detail\": \"there is none\", \"hint\": \"\"}";
    let ran = exec(&site, &["proxied", "--server", &answering(ours)], &["true"]);
    assert!(
        ran.stderr.contains("was not taken") && ran.stderr.contains("there is none"),
        "{ran:?}"
    );
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 2);
}

#[test]
fn only_interlock_itself_can_take_a_report() {
    let site = Site::new(&["captive"]);
    let spool = site.project.path().join("spool");
    let login =
        "HTTP/1.1 200 OK\r\nContent-Type: text/html\r\nConnection: close\r\n\r\n<h1>Sign in</h1>";
    let json = "HTTP/1.1 201 Created\r\nConnection: close\r\n\r\n{\"ok\": true}";
    for (number, page) in [login, json].into_iter().enumerate() {
        let ran = exec(&site, &["captive", "--server", &answering(page)], &["sh", "-c", "exit 3"]);
        assert_eq!(ran.code, 3);
        assert!(ran.stderr.contains("not as Interlock does"), "{}", ran.stderr);
        assert!(ran.stderr.contains("is kept until it can be delivered"), "{}", ran.stderr);
        assert_eq!(fs::read_dir(&spool).unwrap().count(), 2 * (number + 1), "a start and an end");
    }
    // An answer that comes through a proxy in pieces is Interlock's all the same.
    let ours = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n\
                a\r\n{\"key\":\"k\"\r\n1f\r\n,\"durable\":true,\"owed\":false}  \r\n0\r\n\r\n";
    let ran = exec(&site, &["captive", "--server", &answering(ours)], &["true"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
}

/// Nobody is there to be told that the name is spelt wrong but whoever looks after Interlock.
#[test]
fn exec_under_a_name_that_nothing_watches_is_kept_and_is_an_incident() {
    let site = Site::new(&["spelt"]);
    let own = "name: own\nschedule: '0 0 1 1 *'\ntrigger: {type: command, command: 'true'}\n";
    site.project.write("own", own);
    // In the ledger, not only in its file: to be declared ends what was said of the name before.
    let known = || {
        let events = site.project.run(&["events", "--json"]).stdout;
        let is_its = |line: &str| line.contains("\"own\"") && line.contains("PIPELINE_DECLARED");
        events.lines().any(is_its)
    };
    site.project.until("it is declared", || known().then_some(()));
    for name in ["spellt", "own"] {
        assert_eq!(exec(&site, &[name], &["echo", "lost words"]).code, 0);
        let line = site.project.until("it is kept", || {
            let ran = site.project.run(&["events", "--rejected", "--json"]);
            let mut lines = ran.stdout.lines().map(str::to_owned);
            lines.find(|line| {
                line.contains(&format!("\"pipeline\":\"{name}\"")) && line.contains("lost words")
            })
        });
        assert!(line.contains("REPORT_REJECTED"), "{line}");
        let incidents = site.project.run(&["incidents"]).stdout;
        assert!(incidents.contains(&format!("not-watched:{name}")), "{incidents}");
    }
}

#[test]
fn whoever_holds_the_streams_after_the_job_costs_a_second_and_is_not_counted() {
    let site = Site::new(&["holder"]);
    let began = Instant::now();
    let job = ["sh", "-c", "echo out; echo err >&2; sleep 300 & echo $! > held; exit 3"];
    let mut held = command(&site, &["holder"], &job);
    let ran: Ran = output(held.current_dir(site.project.path())).into();
    let took = began.elapsed();
    let pid: u32 =
        fs::read_to_string(site.project.path().join("held")).unwrap().trim().parse().unwrap();
    assert!(signal(pid, "-KILL"));
    assert_eq!((ran.code, ran.stdout.as_str(), ran.stderr.as_str()), (3, "out\n", "err\n"));
    assert!(took.as_millis() < 1_900, "two streams are not two seconds: {took:?}");
    let run = site.until_ended("holder", 1).remove(0);
    let said = run["metadata"]["durationMs"].as_u64().unwrap();
    assert!(said < 900, "the job itself took no second: {said} ms");
    let instant = |name: &str| run[name].as_str().unwrap().parse::<jiff::Timestamp>().unwrap();
    assert!(instant("endedAt").duration_since(instant("startedAt")).as_millis() < 900, "{run}");
}

#[test]
fn every_signal_that_is_meant_for_the_job_reaches_it() {
    let site = Site::new(&["signalled"]);
    for (name, signal, code) in [
        ("HUP", Signal::HUP, 41),
        ("USR1", Signal::USR1, 42),
        ("USR2", Signal::USR2, 43),
        ("INT", Signal::INT, 44),
        ("QUIT", Signal::QUIT, 45),
        ("TERM", Signal::TERM, 46),
    ] {
        let text = format!("trap 'exit {code}' {name}; echo on; while :; do sleep 0.05; done");
        let mut job = command(&site, &["signalled"], &["sh", "-c", &text]);
        job.stdin(Stdio::null());
        let (mut job, mut prints) = start(job);
        prints.until("on", 1);
        job.signal(signal);
        assert_eq!(job.ends(&format!("a job that got {name}")).code(), Some(code), "{name}");
    }
    // One that nobody catches is how it ended.
    let ran = exec(&site, &["signalled"], &["sh", "-c", "kill -KILL $$"]);
    assert_eq!(ran.code, 137);
    let runs = site.until_ended("signalled", 7);
    assert!(runs.iter().any(|run| run["metadata"]["exitCode"] == 137), "{runs:?}");
}

/// SIGCHLD, by its bit.
const CHLD: u64 = 1 << 16;

#[test]
fn a_job_ignores_and_blocks_what_the_caller_of_exec_does() {
    let site = Site::new(&["inherits"]);
    let nothing: &[&str] = &[];
    for words in UNUSUAL.into_iter().chain([nothing]) {
        let (by, job) = ([PLAIN, words], bare(&site, &["inherits"], &SHOW));
        let direct = output(&mut started_by(&by, Command::new(SHOW[0]).arg(SHOW[1])));
        let wrapped = output(&mut started_by(&by, &job));
        assert_eq!(wrapped.status.code(), Some(0), "{words:?}: {wrapped:?}");
        let [blocked, ignored, caught] = signals(&direct.stdout);
        // The kernel tells no exit code to a process that ignores SIGCHLD, so neither `exec` nor its job does.
        assert_eq!(signals(&wrapped.stdout), [blocked, ignored & !CHLD, caught], "{words:?}");
    }
    let by = [PLAIN, UNUSUAL[3]];
    let seven = output(&mut started_by(&by, &bare(&site, &["inherits"], &["sh", "-c", "exit 7"])));
    assert_eq!(seven.status.code(), Some(7), "{seven:?}");
}

#[test]
fn under_nohup_a_hangup_ends_neither_exec_nor_the_job() {
    let site = Site::new(&["lasting"]);
    // A job that would end of a hangup that is passed on: it does not ignore it any more.
    let text = "echo on; read line; echo $line; exit 3";
    let job = ["env", "--default-signal=HUP", "sh", "-c", text];
    let mut job = started_by(&[PLAIN, &["nohup"]], &bare(&site, &["lasting"], &job));
    job.stdin(Stdio::piped()).stderr(Stdio::null());
    let (mut job, mut prints) = start(job);
    prints.until("on", 1);
    job.signal(Signal::HUP);
    // A signal that is passed on takes less than this; what is tested is that this one is not.
    thread::sleep(Duration::from_millis(500));
    writeln!(job.child.stdin.take().unwrap(), "still there").unwrap();
    assert_eq!(job.ends("`exec` under nohup").code(), Some(3));
    assert_eq!(prints.rest("`exec` under nohup"), "on\nstill there");
    let run = site.until_ended("lasting", 1).remove(0);
    assert_eq!(run["metadata"]["exitCode"], 3, "{run}");
}

#[test]
fn output_of_any_kind_and_length_passes_whole_and_its_end_is_kept() {
    let site = Site::new(&["loud"]);
    let every_byte = "head -c 3000000 /dev/urandom > all; cat all; printf '\\0\\377end\\n'";
    let mut job = command(&site, &["loud"], &["sh", "-c", every_byte]);
    let output = output(job.current_dir(site.project.path()));
    let mut all = fs::read(site.project.path().join("all")).unwrap();
    all.extend(b"\0\xffend\n");
    assert!(output.status.success());
    assert!(output.stdout == all, "{} of {} bytes passed", output.stdout.len(), all.len());
    let run = site.until_ended("loud", 1).remove(0);
    let body = run["metadata"]["body"].as_str().unwrap();
    assert!(body.ends_with("end\n") && body.len() <= 100_000, "{} bytes", body.len());
    // What is there and may not be run.
    fs::write(site.project.path().join("plain"), "no program").unwrap();
    let plain = site.project.path().join("plain").display().to_string();
    let ran = exec(&site, &["loud"], &[&plain]);
    assert_eq!(ran.code, 126, "{}", ran.stderr);
    let runs = site.until_ended("loud", 2);
    assert!(runs.iter().any(|run| run["metadata"]["exitCode"] == 126), "{runs:?}");
}

/// Its ledger is on a server, so `exec` reports to whoever serves it, wherever that listens.
#[test]
fn exec_in_a_project_on_redis_finds_its_interface_and_keeps_reports_for_the_project() {
    let server = interlock_private_server::PrivateRedis::start();
    reports_to_a_project_on(&format!("provider: redis\nredis: {{addr: '{}'}}\n", server.address()));
}

#[test]
fn exec_in_a_project_on_postgres_finds_its_interface_and_keeps_reports_for_the_project() {
    let server = interlock_private_server::PrivatePostgres::start();
    reports_to_a_project_on(&format!(
        "provider: postgres\npostgres: {{dsn: '{}'}}\n",
        server.dsn()
    ));
}

fn reports_to_a_project_on(store: &str) {
    let mut site = Site::new(&[]);
    site.daemon = None;
    site.project.write(
        "remote",
        "name: remote\nschedule: {every: 1h, from: last}\ntrigger: {type: external}\n",
    );
    let config = format!("{store}server: {{addr: '127.0.0.1:0'}}\n");
    fs::write(site.project.path().join("interlock.yaml"), config).unwrap();
    let _gone = fs::remove_file(site.project.folder().join("http.json"));
    let ran = exec(&site, &["remote"], &["echo", "before"]);
    assert!(
        ran.stderr.contains("no `interlock serve` of this project runs here"),
        "{}",
        ran.stderr
    );
    site.serve();
    let bodies = || -> Vec<String> {
        let runs = site.runs("remote");
        runs.iter()
            .filter_map(|run| Some(run["metadata"]["body"].as_str()?.trim().to_owned()))
            .collect()
    };
    site.project
        .until("what waited is taken", || bodies().contains(&"before".to_owned()).then_some(()));
    let ran = exec(&site, &["remote"], &["echo", "during"]);
    assert_eq!((ran.code, ran.stderr.as_str()), (0, ""));
    site.project.until("it is heard", || bodies().contains(&"during".to_owned()).then_some(()));
}

/// A spool of another user, say.
#[test]
fn what_serve_may_read_and_not_remove_is_taken_once_and_said_once() {
    let mut site = Site::new(&["fixed"]);
    let Some(disk) = SmallDisk::mount(site.project.path().join("spool")) else {
        println!("only root may mount a small disk: not tried");
        return;
    };
    site.daemon = None;
    let ran = exec(&site, &["fixed", "--server", "http://127.0.0.1:9"], &["echo", "kept"]);
    assert!(ran.stderr.contains("is kept"), "{}", ran.stderr);
    let folder = site.project.folder().canonicalize().unwrap();
    for file in fs::read_dir(&disk.0).unwrap().map(|file| file.unwrap().path()) {
        let text = fs::read_to_string(&file).unwrap();
        let ours = format!("file:{}", folder.display());
        fs::write(&file, text.replace("http://127.0.0.1:9", &ours)).unwrap();
    }
    let read_only = output(Command::new("mount").args(["-o", "remount,ro"]).arg(&disk.0));
    assert!(read_only.status.success(), "{read_only:?}");
    site.serve();
    site.until_ended("fixed", 1);
    // What is tested is that nothing more is said.
    thread::sleep(Duration::from_secs(2));
    let said = crate::log(site.project.path());
    assert_eq!(said.matches("a stored report was applied").count(), 2, "a start and an end");
    assert_eq!(said.matches("was applied and cannot be removed").count(), 2);
}
