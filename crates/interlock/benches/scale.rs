//! The real `serve` on many pipelines: how long it takes to be ready, what it weighs, what it does when
//! nothing is due, and how late it is when everything is.
//!
//! A plain program: it generates projects in a temporary folder, starts the release binary on them as a
//! process of its own and looks at it from outside (`/proc`), because memory and idle time belong to a
//! process. Ten thousand pipelines are measured by default; the filter `serve/100k` measures a hundred
//! thousand, which takes minutes. The limits are in `cargo xtask bench`.

#![expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, ExitCode, Stdio},
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Key, Store as _, conformance::block_on};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::Value;

/// The spellings of idle pipelines, in turn: `N` is the number of the file, `M` a minute, `H` an hour. None
/// is due within the months that the benchmark does not take.
const IDLE: [&str; 4] = [
    "name: report-N\nschedule: \"M H 29 2 *\"\ncatchupWindow: \"12h\"\nsteps:\n  - name: extract\n    \
     command: python extract.py --date ${date}\n  - name: load\n    command: python load.py\n    retries: 2\n",
    "name: hourly-N\nowner: data-platform\nlabels: {team: core, tier: gold}\ntimezone: Europe/Riga\nschedules:\n  \
     - id: hourly\n    cron: \"M H 29 2 *\"\n    deadline: +20m\nexclusions:\n  calendar: holidays\nsla: \
     {completionDeadline: \"10:00\", expectedDuration: 30m}\nretry: {maxAttempts: 4, backoffSeconds: 10}\n\
     trigger:\n  type: http\n  url: https://jobs.example.com/run/${pipeline}\n",
    "name: watch-N\nschedule: \"M H 29 2 *\"\ntrigger: {type: external}\n",
    "name: gold-N\nschedule: \"M H 29 2 *\"\ntimezone: America/New_York\nvalidation:\n  trigger: ALL\n  rules:\n    \
     - {key: upstream-complete, check: equals, field: status, value: ready}\ntrigger: {type: command, command: \
     ./run.sh}\n",
];

const CALENDAR: &str = "name: holidays\nyearly: [\"12-24\", \"12-25\"]\ndates: [\"2026-04-03\"]\n";

/// How long the process is watched doing nothing.
const IDLE_FOR: Duration = Duration::from_secs(20);

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn now() -> Timestamp {
    Timestamp::now()
}

/// A served project; killed when dropped.
struct Served {
    child: Child,
    ready: SignedDuration,
    /// Kept open: what it says later should not fail.
    _out: BufReader<ChildStdout>,
}

impl Served {
    /// Starts `serve` and waits until it says that it serves.
    fn start(project: &Path) -> Self {
        let began = now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["serve", "-C"])
            .arg(project)
            .stdout(Stdio::piped())
            .stderr(fs::File::create(project.join("log")).expect("the log can be written"))
            .spawn()
            .expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        out.read_line(&mut said).expect("it can be read");
        assert!(said.starts_with("serving"), "serve did not start: {said}");
        Self { child, ready: now().duration_since(began), _out: out }
    }

    fn ready_seconds(&self) -> f64 {
        self.ready.as_secs_f64()
    }

    /// Memory that it holds, in megabytes.
    fn rss_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says so");
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib / 1024.0
    }

    /// Seconds of processor time so far.
    fn cpu_seconds(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.child.id())).expect("it lives");
        let fields: Vec<_> = stat.rsplit(')').next().unwrap_or("").split_whitespace().collect();
        let ticks = |at: usize| fields.get(at).and_then(|field| field.parse::<f64>().ok());
        (ticks(11).unwrap_or(0.0) + ticks(12).unwrap_or(0.0)) / 100.0
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        self.child.kill().expect("it can be killed");
        self.child.wait().expect("it ends");
    }
}

/// A project of so many pipelines, made from texts in turn.
fn project(count: usize, texts: &[&str]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a temporary folder");
    for name in ["pipelines", "calendars"] {
        fs::create_dir(folder.path().join(name)).expect("a folder");
    }
    fs::write(folder.path().join("calendars/holidays.yaml"), CALENDAR).expect("a file");
    for (number, text) in texts.iter().cycle().take(count).enumerate() {
        let (minute, hour) = (number % 60, number / 60 % 24);
        let text = text.replacen("-N", &format!("-{number}"), 1);
        let text = text.replacen("\"M H", &format!("\"{minute} {hour}"), 1);
        let path = folder.path().join(format!("pipelines/p{number:06}.yaml"));
        fs::write(path, text).expect("a file");
    }
    // Files that changed a moment ago are not trusted.
    thread::sleep(Duration::from_secs(3));
    folder
}

/// First load, restart, weight and idle time of so many pipelines.
fn many(label: &str, count: usize) {
    let empty = project(0, &IDLE);
    let base = Served::start(empty.path()).rss_mb();
    let full = project(count, &IDLE);
    let first = Served::start(full.path());
    println!("RESULT name=serve/{label}_first_load seconds={:.2}", first.ready_seconds());
    drop(first);
    let again = Served::start(full.path());
    thread::sleep(Duration::from_secs(5));
    let (rss, before) = (again.rss_mb(), again.cpu_seconds());
    println!("RESULT name=serve/{label}_restart seconds={:.2}", again.ready_seconds());
    println!("RESULT name=serve/{label}_restart rss_mb={rss:.1}");
    #[expect(clippy::cast_precision_loss, reason = "a count of pipelines")]
    let each = (rss - base) * 1024.0 / count as f64;
    println!("RESULT name=serve/{label}_each kib={each:.2}");
    thread::sleep(IDLE_FOR);
    let share = (again.cpu_seconds() - before) / IDLE_FOR.as_secs_f64() * 100.0;
    println!("RESULT name=serve/{label}_idle percent={share:.2}");
}

/// The instant of the next slots: far enough that everything is loaded by then.
fn next_instant() -> Timestamp {
    let soon = now() + SignedDuration::from_secs(25);
    soon.round(Unit::Second).expect("an instant")
}

/// The value under which 99 of 100 lie.
fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len() * 99 / 100;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::INFINITY)
}

/// So many slots at one instant: when the last of them can be read by another process. (What the ledger
/// itself says, `openedAt`, is when they were planned.)
fn opened_at_once(count: usize) {
    let at = next_instant();
    let text = format!("name: due-N\nschedule: {{at: \"{at}\"}}\ntrigger: {{type: external}}\n");
    let folder = project(count, &[&text]);
    let served = Served::start(folder.path());
    assert!(now() < at, "the machine is too slow for this benchmark: it was not ready in time");
    let late = last_recorded(folder.path(), count - 1, at);
    let answer = Command::new(env!("CARGO_BIN_EXE_interlock"))
        .args(["slots", "--json", "-C"])
        .arg(folder.path())
        .output()
        .expect("the binary runs");
    drop(served);
    let slots: Vec<Value> = serde_json::from_slice(&answer.stdout).expect("JSON");
    assert_eq!(slots.len(), count, "not every slot was recorded");
    println!("RESULT name=serve/instant_10k seconds={late:.3}");
}

/// How late the last slot was recorded: groups are written in the order of names.
fn last_recorded(project: &Path, number: usize, at: Timestamp) -> f64 {
    let store = EmbeddedStore::open_reader(&project.join(".interlock"), Arc::new(now));
    let store = store.expect("the ledger can be read");
    let last = PipelineId::parse(&format!("due-{number}")).expect("a name");
    let key = Key::Slot(ScheduleId::from_static("cron"), at);
    loop {
        let rows = block_on(store.read(&last, std::slice::from_ref(&key))).expect("it can be read");
        let late = now().duration_since(at).as_secs_f64();
        if rows.iter().any(Option::is_some) {
            return late;
        }
        assert!(late < 30.0, "the last slot was not recorded in 30 s");
        thread::sleep(Duration::from_millis(2));
    }
}

/// So many commands at one instant: how late each began, by its own clock.
fn started_at_once(count: usize) {
    let at = next_instant();
    let text = format!(
        "name: run-N\nschedule: {{at: \"{at}\"}}\ntrigger: {{type: command, command: \"date +%s.%N > \
         started/$INTERLOCK_PIPELINE\"}}\n"
    );
    let folder = project(count, &[&text]);
    let started = folder.path().join("started");
    fs::create_dir(&started).expect("a folder");
    let served = Served::start(folder.path());
    assert!(now() < at, "the machine is too slow for this benchmark: it was not ready in time");
    let wait = at.duration_since(now()) + SignedDuration::from_secs(15);
    thread::sleep(Duration::try_from(wait).expect("it lies ahead"));
    drop(served);
    let files = fs::read_dir(&started).expect("the folder").filter_map(Result::ok);
    let late = files.filter_map(|file| {
        let began: f64 = fs::read_to_string(file.path()).ok()?.trim().parse().ok()?;
        let nominal = SignedDuration::from_secs(at.as_second()).as_secs_f64();
        Some(began - nominal)
    });
    let late: Vec<f64> = late.collect();
    assert_eq!(late.len(), count, "not every command began");
    println!("RESULT name=serve/start_500 seconds={:.3}", p99(late));
}

fn main() -> ExitCode {
    let filter = std::env::args().skip(1).find(|argument| !argument.starts_with('-'));
    let filter = filter.unwrap_or_default();
    let wanted =
        |name: &str| name.contains(&filter) || (!filter.is_empty() && filter.contains(name));
    if wanted("serve/10k_") {
        many("10k", 10_000);
    }
    if filter.contains("100k") {
        many("100k", 100_000);
    }
    if wanted("serve/instant_10k") {
        opened_at_once(10_000);
    }
    if wanted("serve/start_500") {
        started_at_once(500);
    }
    ExitCode::SUCCESS
}
