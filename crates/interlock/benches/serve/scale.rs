//! Many pipelines: how long a start takes, what it weighs, what it does when nothing is due, and how late
//! it is when everything is.

use std::{fs, path::Path, process::Command, sync::Arc, thread, time::Duration};

use interlock_core::id::{PipelineId, ScheduleId};
use interlock_store::{Key, Store as _, block_on};
use interlock_store_embedded::EmbeddedStore;
use jiff::{SignedDuration, Timestamp, Unit};
use serde_json::Value;

use crate::served::{Served, now, project};

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

/// How long the process is watched doing nothing, twice: only the first time has a look at all files in it. After a
/// look that took long there is none for [`LOOKS_EVERY`], so of its time a part counts that is small.
const IDLE_FOR: Duration = Duration::from_secs(70);
const LOOKS_EVERY: Duration = Duration::from_mins(10);

/// First load, restart, weight and idle time of so many pipelines.
pub(crate) fn many(label: &str, count: usize) {
    let empty = project(0, &IDLE);
    let base = Served::start(empty.path()).rss_mb();
    #[expect(clippy::cast_precision_loss, reason = "a count of pipelines")]
    let each = |rss: f64| (rss - base) * 1024.0 / count as f64;
    let full = project(count, &IDLE);
    let first = Served::start(full.path());
    println!("RESULT name=serve/{label}_first_load seconds={:.2}", first.ready_seconds());
    thread::sleep(Duration::from_secs(5));
    println!("RESULT name=serve/{label}_first_load rss_mb={:.1}", first.rss_mb());
    println!("RESULT name=serve/{label}_first_load kib={:.2}", each(first.rss_mb()));
    drop(first);
    let again = Served::start(full.path());
    thread::sleep(Duration::from_secs(5));
    let (rss, before) = (again.rss_mb(), again.cpu_seconds());
    println!("RESULT name=serve/{label}_restart seconds={:.2}", again.ready_seconds());
    println!("RESULT name=serve/{label}_restart rss_mb={rss:.1}");
    println!("RESULT name=serve/{label}_restart kib={:.2}", each(rss));
    thread::sleep(IDLE_FOR);
    let looked = again.cpu_seconds();
    thread::sleep(IDLE_FOR);
    let idle = again.cpu_seconds() - looked;
    let look = (looked - before - idle).max(0.0);
    println!("RESULT name=serve/{label}_look seconds={look:.2}");
    let share = idle / IDLE_FOR.as_secs_f64() + look / LOOKS_EVERY.as_secs_f64();
    println!("RESULT name=serve/{label}_idle percent={:.2}", share * 100.0);
}

/// The instant of the next slots: far enough that everything is loaded by then.
fn next_instant() -> Timestamp {
    let soon = now() + SignedDuration::from_secs(25);
    soon.round(Unit::Second).expect("an instant")
}

/// The value under which 99 of 100 lie.
pub(crate) fn p99(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    let at = values.len() * 99 / 100;
    values.get(at.min(values.len().saturating_sub(1))).copied().unwrap_or(f64::INFINITY)
}

/// So many slots at one instant: when the last of them can be read by another process. (What the ledger
/// itself says, `openedAt`, is when they were planned.)
pub(crate) fn opened_at_once(count: usize) {
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
pub(crate) fn started_at_once(count: usize) {
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
