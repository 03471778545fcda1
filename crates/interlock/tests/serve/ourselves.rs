//! What breaks in Interlock itself, and who outside hears of it: beacons, the spool, barks, coverage, `doctor --live`.

use std::{
    fs,
    io::{BufRead as _, BufReader, Read as _, Write as _},
    net::TcpListener,
    process::Command,
    sync::{Arc, Mutex},
    thread,
    time::Duration,
};

use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _};
use jiff::Timestamp;
use serde_json::Value;

use crate::{
    Daemon,
    bad_input::SmallDisk,
    log,
    project::{Project, signal},
};

const TICKER: &str = "
name: ticker
schedule: {cron: '* * * * * *', seconds: true}
trigger: {type: command, command: 'true'}
";

/// Nobody ever reports on it.
const SILENT: &str = "
name: silent
schedule: {cron: '*/10 * * * * *', seconds: true, grace: 2s}
trigger: {type: external}
";

/// Nor on this one, which is not live for long.
const BRIEF: &str = "
name: brief
schedule: {cron: '*/2 * * * * *', seconds: true, grace: 1s}
startGrace: 16s
trigger: {type: external}
";

/// Takes every request, and remembers its body.
#[derive(Clone)]
pub(crate) struct Receiver {
    pub(crate) url: String,
    taken: Arc<Mutex<Vec<String>>>,
}

impl Receiver {
    pub(crate) fn new() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let url = format!("http://{}/here", listener.local_addr().unwrap());
        let taken = Arc::new(Mutex::new(Vec::new()));
        let sees = Arc::clone(&taken);
        thread::spawn(move || {
            // Bounded: no test waits for this thread; it ends with the test's process.
            for mut stream in listener.incoming().map_while(Result::ok) {
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
                sees.lock().unwrap().push(String::from_utf8(body).unwrap());
                let answer = b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";
                let _gone = stream.write_all(answer);
            }
        });
        Self { url, taken }
    }

    pub(crate) fn count(&self) -> usize {
        self.taken.lock().unwrap().len()
    }

    pub(crate) fn alert(&self, alert_type: &str) -> Option<Value> {
        self.alerts().into_iter().find(|alert| alert["alertType"] == alert_type)
    }

    fn alerts(&self) -> Vec<Value> {
        let taken = self.taken.lock().unwrap();
        taken.iter().map(|body| serde_json::from_str(body).unwrap()).collect()
    }

    fn alert_of(&self, pipeline: &str, alert_type: &str) -> Option<Value> {
        let is_it = |alert: &Value| {
            alert["alertType"] == alert_type && alert["pipelineId"].as_str() == Some(pipeline)
        };
        self.alerts().into_iter().find(is_it)
    }
}

pub(crate) fn configure(project: &Project, text: &str) {
    fs::write(
        project.path().join("interlock.yaml"),
        format!("server: {{addr: '127.0.0.1:0'}}\n{text}"),
    )
    .unwrap();
}

#[test]
fn s13_l5_when_the_disk_is_full_people_hear_of_it_and_the_beacon_falls_silent() {
    let project = Project::new(&[("ticker", TICKER)]);
    let Some(disk) = SmallDisk::mount(project.folder()) else {
        println!("only root may mount a small disk: not tried");
        return;
    };
    let (beacon, hook) = (Receiver::new(), Receiver::new());
    configure(
        &project,
        &format!(
            "beacons: [{{url: '{}', interval: 1s}}]\nalerts: [{{type: webhook, url: '{}'}}]\n",
            beacon.url, hook.url
        ),
    );
    let daemon = Daemon::start(project.path());
    project.until("the beacon is called", || (beacon.count() >= 3).then_some(()));
    let filler = disk.0.join("filler");
    // All that is left; the write ends with "no space left on device".
    drop(fs::write(&filler, vec![0; 8 << 20]));
    let alert = project.until("somebody hears of it", || hook.alert("store_unreachable"));
    assert_eq!(alert["level"], "error");
    assert!(alert["message"].as_str().unwrap().starts_with("STORE_UNREACHABLE"), "{alert}");
    let silent = beacon.count();
    // What is tested is that nothing comes.
    thread::sleep(Duration::from_secs(4));
    assert!(beacon.count() <= silent + 1, "one call may have been on its way");
    fs::remove_file(&filler).unwrap();
    drop(daemon);
    let _next = Daemon::start(project.path());
    project.until("the beacon is called again", || (beacon.count() > silent + 1).then_some(()));
}

#[test]
fn a_bark_that_is_ordered_goes_from_the_watchdog_to_a_channel_again_and_again() {
    let project = Project::new(&[("ticker", TICKER)]);
    let hook = Receiver::new();
    configure(&project, &format!("alerts: [{{type: webhook, url: '{}'}}]\n", hook.url));
    // An order is kept while nobody serves.
    let ran = project.run(&["bark", "--every", "2s"]);
    assert_eq!((ran.code, ran.stdout.as_str()), (0, "done: barks standing\n"), "{}", ran.stderr);
    let _daemon = Daemon::start(project.path());
    let barks = || {
        let taken = hook.taken.lock().unwrap();
        let alerts = taken.iter().map(|body| serde_json::from_str::<Value>(body).unwrap());
        alerts.filter(|alert| alert["details"]["bark"].is_string()).count()
    };
    project.until("three barks and their ends", || (barks() >= 6).then_some(()));
    let events = project.run(&["events", "_system"]).stdout;
    assert!(events.contains("BARK_HEARD"), "{events}");
    let live = project.run(&["doctor", "--live"]);
    assert!(live.stdout.contains("barks   ok       every 2s"), "{}{}", live.stdout, live.stderr);
    for line in ["loops   ok", "self    ok", "hearing ok", "outbox  ok", "ledger  ok"] {
        assert!(live.stdout.contains(line), "{line}: {}", live.stdout);
    }
    assert_eq!(live.code, 0);
    assert_eq!(project.run(&["bark", "--every", "off"]).code, 0);
    assert_eq!(project.run(&["bark", "--every", "off"]).code, 1, "there is none any more");
}

#[test]
fn s10_what_could_not_be_reported_while_nobody_listened_is_unknown_and_says_since_when() {
    let project = Project::new(&[("silent", SILENT), ("brief", BRIEF)]);
    let hook = Receiver::new();
    configure(
        &project,
        &format!("alerts: [{{type: webhook, url: '{}', digest: false}}]\n", hook.url),
    );
    let daemon = Daemon::start(project.path());
    for pipeline in ["silent", "brief"] {
        project.until("it is missed while somebody listens", || {
            hook.alert_of(pipeline, "schedule_missed")
        });
    }
    drop(daemon);
    let died = Timestamp::now();
    // What is tested is that time goes by: longer than the pace at which listeners speak up.
    thread::sleep(Duration::from_secs(25));
    let came_back = Timestamp::now();
    let _daemon = Daemon::start(project.path());
    let unknown = project.until("it is unknown", || hook.alert_of("silent", "schedule_unknown"));
    let instant =
        |key: &str| unknown["details"][key].as_str().unwrap().parse::<Timestamp>().unwrap();
    let (from, until) = (instant("deafFrom"), instant("deafUntil"));
    assert!(from <= died && until >= came_back, "{unknown}");
    let slot = unknown["details"]["expectedTime"].as_str().unwrap().to_owned();
    let why = project.run(&["why", "silent", &slot]).stdout;
    assert!(why.contains(&format!("reports could not arrive from {from} to {until}")), "{why}");
    // What is too old to be opened is recorded in one row, told once, and every slot of it knows why.
    let unknown = project.until("brief too", || hook.alert_of("brief", "schedule_unknown"));
    let count = unknown["details"]["count"].as_u64().unwrap();
    assert!(count >= 2, "{unknown}");
    let message = unknown["message"].as_str().unwrap();
    assert!(message.contains(&format!("{count} slots of cron from ")), "{message}");
    assert!(message.contains("are unknown: reports could not arrive from "), "{message}");
    let first = unknown["details"]["span"].as_str().unwrap().to_owned();
    let why = project.run(&["why", "brief", &first]).stdout;
    assert!(why.contains("is unknown") && why.contains("reports could not arrive from "), "{why}");
}

/// A switch that is due again and again while its job runs.
const SWITCH: &str = "
name: switch
schedules: [{name: s, every: 2s, from: last, grace: 1s}]
trigger: {type: external}
";

#[test]
fn a_job_under_exec_whose_clock_is_finer_than_ours_stops_the_watch_over_nobody() {
    let project = Project::new(&[("switch", SWITCH), ("silent", SILENT)]);
    let hook = Receiver::new();
    configure(
        &project,
        &format!("alerts: [{{type: webhook, url: '{}', digest: false}}]\n", hook.url),
    );
    let _daemon = Daemon::start(project.path());
    project.until("the switch is known", || {
        project.run(&["slots", "switch"]).stdout.contains("waiting").then_some(())
    });
    let mut job = Command::new(env!("CARGO_BIN_EXE_interlock"));
    job.args(["exec", "switch", "-C"]).arg(project.path()).args(["--", "sleep", "300"]);
    let mut job = job.env_remove("INTERLOCK_SERVER").spawn().unwrap();
    project.until("its start is told", || {
        project.run(&["slots", "switch"]).stdout.contains("running").then_some(())
    });
    let begun = hook.count();
    let missed = project.until("the other pipeline is judged", || {
        hook.alert_of("silent", "schedule_missed").filter(|_| hook.count() > begun)
    });
    assert_eq!(missed["level"], "error");
    let log = log(project.path());
    assert!(!log.contains("the watchdog begins again"), "{log}");
    assert!(signal(job.id(), "-TERM"));
    job.wait_within("the end of `exec` after SIGTERM", BOUND);
}

#[test]
fn l5_a_watchdog_that_fails_again_and_again_is_seen_from_outside_and_ends_nothing_else() {
    let project = Project::new(&[("ticker", TICKER)]);
    let beacon = Receiver::new();
    configure(&project, &format!("beacons: [{{url: '{}', interval: 1s}}]\n", beacon.url));
    let daemon = Daemon::start(project.path());
    let ledger = project.folder().join("ledger.db");
    let own = "FROM watermarks WHERE schedule = 'watchdog' AND pipeline = (SELECT id FROM names WHERE name = '_system')";
    project.until("it has judged something", || {
        let db = rusqlite::Connection::open(&ledger).ok()?;
        db.query_row(&format!("SELECT 1 {own}"), [], |_| Ok(())).ok()
    });
    drop(daemon);
    // What it knows of itself cannot be read.
    let db = rusqlite::Connection::open(&ledger).unwrap();
    let broken = own.replace("FROM watermarks", "UPDATE watermarks SET body = 'broken'");
    assert_eq!(db.execute(&broken, []).unwrap(), 1);
    drop(db);
    let _daemon = Daemon::start(project.path());
    let live = project.until("the doctor sees it", || {
        let live = project.run(&["doctor", "--live"]);
        (live.code != 0 && live.stdout.contains("watchdog")).then_some(live)
    });
    assert!(live.stdout.contains("late") || live.stdout.contains("come round"), "{}", live.stdout);
    project.until("the beacons fall silent", || {
        let log = log(project.path());
        let said =
            |line: &str| line.contains("watchdog") && line.contains("the beacons are silent");
        log.lines().any(said).then_some(())
    });
    let silent = beacon.count();
    // What is tested is that nothing comes, and that the guard, who ends what hangs, ends nothing.
    thread::sleep(Duration::from_secs(20));
    assert!(beacon.count() <= silent + 1, "one call may have been on its way");
    let runs = || project.run(&["runs", "--pipeline", "ticker"]).stdout.lines().count();
    let before = runs();
    project.until("the engine goes on", || (runs() > before).then_some(()));
}

#[test]
fn no_proxy_of_the_environment_is_asked() {
    let project = Project::new(&[]);
    let (hook, proxy) = (Receiver::new(), Receiver::new());
    configure(&project, &format!("alerts: [{{type: webhook, name: hook, url: '{}'}}]\n", hook.url));
    let mut command = Command::new(env!("CARGO_BIN_EXE_interlock"));
    for name in ["HTTP_PROXY", "http_proxy", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"] {
        command.env(name, &proxy.url);
    }
    command.env_remove("NO_PROXY").env_remove("no_proxy");
    let ran = command
        .arg("-C")
        .arg(project.path())
        .args(["incidents", "test", "hook"])
        .output_within(BOUND);
    assert!(ran.unwrap().status.success());
    assert_eq!((hook.count(), proxy.count()), (1, 0));
}

/// Runs a command as on a machine whose file of hosts says this.
fn with_hosts(project: &Project, hosts: &str, arguments: &[&str]) -> Option<std::process::Output> {
    let file = project.path().join("hosts");
    fs::write(&file, hosts).unwrap();
    let mount = "mount --bind \"$0\" /etc/hosts && exec \"$@\"";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", mount]).arg(&file);
    command.arg(env!("CARGO_BIN_EXE_interlock")).arg("-C").arg(project.path()).args(arguments);
    let output = command.output_within(BOUND).unwrap();
    let is_allowed = !String::from_utf8_lossy(&output.stderr).contains("Operation not permitted");
    is_allowed.then_some(output)
}

/// SSRF: what counts is the address that is dialled, each time, not the name nor what it meant before.
#[test]
fn a_name_with_allowed_and_refused_addresses_is_dialled_at_the_allowed_ones_and_again_asked_each_time()
 {
    let project = Project::new(&[]);
    let hook = Receiver::new();
    let port = hook.url.rsplit(':').next().unwrap();
    configure(
        &project,
        &format!("alerts: [{{type: webhook, name: hook, url: 'http://mixed.test:{port}'}}]\n"),
    );
    let test = &["incidents", "test", "hook"];
    let mixed = "169.254.169.254 mixed.test\n127.0.0.1 mixed.test\n";
    let Some(output) = with_hosts(&project, mixed, test) else {
        println!("only root may have a file of hosts of its own: not tried");
        return;
    };
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stdout));
    assert_eq!(hook.count(), 1);
    // It has changed its mind: now it is the metadata service of a cloud, in three spellings.
    for address in ["169.254.169.254", "::ffff:169.254.169.254", "64:ff9b::a9fe:a9fe"] {
        let output = with_hosts(&project, &format!("{address} mixed.test\n"), test).unwrap();
        let said = String::from_utf8_lossy(&output.stdout).into_owned()
            + &String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success(), "{address}: {said}");
        assert!(
            said.contains("may not be called") && said.contains("metadata"),
            "{address}: {said}"
        );
    }
    assert_eq!(hook.count(), 1);
}

/// Whoever may read the log may not act in our name.
#[test]
fn no_secret_is_in_the_log_at_any_level() {
    let project = Project::new(&[("silent", SILENT)]);
    let (beacon, hook) = (Receiver::new(), Receiver::new());
    configure(&project, "");
    let config = format!(
        "server: {{addr: '127.0.0.1:0', tokens: [{{name: ci, scope: admin, token: s3cret-token}}]}}\n\
         beacons: [{{url: '{}/s3cret-beacon', interval: 1s}}]\n\
         alerts: [{{type: webhook, url: '{}/s3cret-hook', secret: s3cret-signature, \
         headers: {{Authorization: 'Bearer ${{HOOK_TOKEN}}'}}}}]\n",
        beacon.url, hook.url
    );
    fs::write(project.path().join("interlock.yaml"), config).unwrap();
    let daemon = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["serve", "--log", "json"])
        .arg(project.path())
        .env("INTERLOCK_LOG", "trace")
        .env("HOOK_TOKEN", "s3cret-header")
        .env("INTERLOCK_SPOOL", project.path().join("spool"))
        .stdout(std::process::Stdio::null())
        .stderr(crate::open_log(project.path()))
        .spawn();
    let _daemon = Daemon(daemon.unwrap());
    let address = project.until("it listens", || {
        let text = fs::read_to_string(project.folder().join("http.json")).ok()?;
        Some(serde_json::from_str::<Value>(&text).ok()?["address"].as_str()?.to_owned())
    });
    let ping = |token: &str| {
        let header = format!("Authorization: Bearer {token}");
        let url = format!("http://{address}/ping/silent/log");
        let ran = Command::new("curl")
            .args(["-s", "-m", "20", "-H", &header, "-d", "x", &url])
            .output_within(BOUND);
        String::from_utf8(ran.unwrap().stdout).unwrap()
    };
    project.until("the right token reports", || (ping("s3cret-token") == "OK").then_some(()));
    assert!(ping("s3cret-wrong").contains("token_needed"));
    let basic = format!("http://:s3cret-token@{address}/ping/silent/log");
    assert!(
        Command::new("curl")
            .args(["-fs", "-m", "20", &basic])
            .output_within(BOUND)
            .unwrap()
            .status
            .success()
    );
    project.until("the beacon and the hook were called", || {
        (beacon.count() >= 2 && hook.alert("schedule_missed").is_some()).then_some(())
    });
    let said = crate::log(project.path());
    assert!(said.contains("\"level\":\"trace\""), "nothing is said at that level");
    let leaks: Vec<&str> = said.lines().filter(|line| line.contains("s3cret")).take(3).collect();
    assert_eq!(leaks, [""; 0]);
}
