//! Loads a directory of 10,000 generated pipelines and says how long it took and how much memory.
//!
//! A plain program: memory must be measured once, in a process of its own, which criterion's
//! repetitions would blur. The limits are in `cargo xtask bench`.

use std::{path::Path, process::ExitCode, time::Duration};

use interlock_config::{SystemZones, load_dir};

const FILES: u32 = 10_000;

/// The spellings that users bring, in turn; `N` stands for the number of the file.
const TEMPLATES: [&str; 4] = [
    "name: report-N
schedule: \"M 9 * * *\"
catchupWindow: \"12h\"
overlapPolicy: skip
steps:
  - name: extract
    command: python extract.py --date ${date}
  - name: load
    command: python load.py
    retries: 2
",
    "# Hourly, with a calendar and an SLA.
name: hourly-N
owner: data-platform
labels: {team: core, tier: gold}
timezone: Europe/Riga
schedules:
  - id: hourly
    cron: \"M * * * *\"
    deadline: +20m
exclusions:
  calendar: holidays
  weekends: true
sla: {completionDeadline: \"10:00\", expectedDuration: 30m}
retry: {maxAttempts: 4, backoffSeconds: 10}
trigger:
  type: http
  url: https://jobs.example.com/run/${pipeline}
  headers: {X-Run: \"${runId}\"}
",
    "pipeline:
  id: gold-N
  owner: analytics
schedule:
  cron: \"M 8 * * 1-5\"
  timezone: America/New_York
  exclude: {weekends: true, dates: [\"2026-12-25\"]}
  evaluation: {window: 1h, interval: 5m}
validation:
  trigger: ALL
  rules:
    - {key: upstream-complete, check: equals, field: status, value: ready}
    - {key: row-count, check: gte, field: count, value: 1000}
    - {key: freshness, check: age_lt, field: updatedAt, value: 2h}
job:
  type: command
  config: {command: ./gold-N.sh}
  maxRetries: 2
postRun:
  rules: [{key: quality, check: gte, field: score, value: 0.95}]
",
    "name: watched-N
schedules: [{id: beat, every: 1h, grace: 10m}]
dependsOn: [report-P]
trigger: {type: external}
",
];

fn write_files(dir: &Path) -> std::io::Result<()> {
    std::fs::create_dir(dir.join("pipelines"))?;
    std::fs::create_dir(dir.join("calendars"))?;
    let calendar = "name: holidays\nyearly: [\"12-25\", \"01-01\"]\n";
    std::fs::write(dir.join("calendars/holidays.yaml"), calendar)?;
    for number in 0..FILES {
        let text = TEMPLATES[number as usize % TEMPLATES.len()]
            .replace("-N", &format!("-{number}"))
            .replace("-P", &format!("-{}", number - number % TEMPLATES.len() as u32))
            .replace("\"M", &format!("\"{}", number % 60));
        std::fs::write(dir.join(format!("pipelines/{number}.yaml")), text)?;
    }
    Ok(())
}

/// The most memory that this process ever had, in megabytes.
fn peak_megabytes() -> Option<f64> {
    let status = std::fs::read_to_string("/proc/self/status").ok()?;
    let line = status.lines().find(|line| line.starts_with("VmHWM:"))?;
    line.split_whitespace().nth(1)?.parse::<f64>().ok().map(|kilobytes| kilobytes / 1024.0)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn timed<T>(work: impl FnOnce() -> T) -> (T, Duration) {
    let start = std::time::Instant::now();
    let done = work();
    (done, start.elapsed())
}

#[expect(clippy::print_stdout, reason = "a benchmark's result is what it prints")]
fn main() -> Result<ExitCode, std::io::Error> {
    let dir = tempfile::tempdir()?;
    write_files(dir.path())?;
    let before = peak_megabytes();
    let zones = SystemZones::new();
    let (loaded, took) = timed(|| load_dir(dir.path(), &zones, &|_| None));
    let peak = peak_megabytes();
    for problem in loaded.problems.iter().take(3) {
        println!("{problem}");
    }
    println!("{} pipelines, {} problems", loaded.pipelines.len(), loaded.problems.len());
    let (seconds, peak) = (took.as_secs_f64(), peak.unwrap_or(0.0));
    println!("RESULT name=config/load_10k seconds={seconds:.3} rss_mb={peak:.0}");
    println!(
        "{:.1} us per file; {:.0} MB before",
        seconds * 1e6 / f64::from(FILES),
        before.unwrap_or(0.0)
    );
    let is_complete = loaded.pipelines.len() == FILES as usize;
    Ok(if is_complete { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
