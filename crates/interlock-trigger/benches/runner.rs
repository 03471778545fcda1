//! Command runs per second through daemon, socket, runner, journal and log file.
//!
//! The ceiling is measured in the same run: a loop that spawns `/bin/true` and waits for it, nothing
//! else. Limits (issue 3): at least 30 % of that and 410 a second (ten times Dagu), and at most 6 ms
//! of CPU per run, daemon, runner and job together. A plain program, because it plays three parts:
//! with the argument `runner` it is the runner.

use std::{
    path::Path,
    process::{Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    pipeline::{CommandLine, JobContext, TriggerKind},
    run::TriggerType,
};
use interlock_trigger::{LocalTriggers, Options, StartRequest, Triggers, What, runner};
use jiff::{Timestamp, civil::date};
use tokio::sync::mpsc::unbounded_channel;

const RUNS: u32 = 3000;
/// How many are under way at once, as the engine would allow.
const AT_ONCE: u32 = 32;
const SHARE_MIN: f64 = 0.3;
const PER_SECOND_MIN: f64 = 410.0;
const CPU_MS_MAX: f64 = 6.0;

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
fn timed(work: impl FnOnce()) -> Duration {
    let began = std::time::Instant::now();
    work();
    began.elapsed()
}

#[expect(clippy::disallowed_methods, reason = "a benchmark plays the daemon")]
fn now() -> Timestamp {
    Timestamp::now()
}

fn bare_runs_per_second() -> f64 {
    let elapsed = timed(|| {
        for _ in 0..RUNS {
            let mut command = Command::new("/bin/true");
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            assert!(command.status().expect("/bin/true runs").success());
        }
    });
    f64::from(RUNS) / elapsed.as_secs_f64()
}

fn request(number: u32) -> StartRequest {
    StartRequest {
        run_id: format!("bench~every~20260225T090000Z~1~{number}"),
        pipeline: "bench".to_owned(),
        schedule: "every".to_owned(),
        slot: Timestamp::UNIX_EPOCH,
        date: date(2026, 2, 25),
        hour: 0,
        interval_end: None,
        attempt: 1,
        trigger_type: TriggerType::Scheduler,
        triggered_at: now(),
        params: [].into(),
        kind: TriggerKind::Command(CommandLine::Argv(vec!["/bin/true".to_owned()])),
        context: JobContext::default(),
        timeout: None,
        poll_interval: None,
        resume_from: None,
        host: None,
    }
}

async fn all_runs(dir: &Path) {
    let (sender, mut reports) = unbounded_channel();
    let options = Options::new(dir.to_owned()).expect("this program is somewhere");
    let triggers =
        LocalTriggers::new(&dir.join("runner"), sender, Arc::new(now), Arc::new(|_| None), options)
            .expect("a runner directory");
    let (mut started, mut ended) = (0, 0);
    while ended < RUNS {
        while started < RUNS && started - ended < AT_ONCE {
            triggers.start(request(started)).await.expect("it starts");
            started += 1;
        }
        let report = reports.recv().await.expect("a report");
        if let What::Finished(_) = report.what {
            triggers.acknowledge(&report.run_id);
            ended += 1;
        }
    }
}

/// CPU milliseconds of this process, its children and the runner with its jobs.
fn cpu_ms(runner: Option<i32>) -> f64 {
    // Clock ticks are hundredths of a second on every Linux.
    const TICK_MS: f64 = 10.0;
    let ticks = |pid: String| -> f64 {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
        // utime, stime, cutime and cstime are fields 14 to 17; the state is field 3.
        let fields = fields.split_whitespace().skip(11).take(4);
        fields.filter_map(|field| field.parse::<f64>().ok()).sum()
    };
    let own = ticks("self".to_owned());
    TICK_MS * (own + runner.map_or(0.0, |pid| ticks(pid.to_string())))
}

/// The runner's process, by the lock it holds.
fn runner_pid(dir: &Path) -> Option<i32> {
    use std::os::unix::fs::MetadataExt;
    let inode = std::fs::metadata(dir.join("runner/runner.lock")).ok()?.ino();
    let locks = std::fs::read_to_string("/proc/locks").ok()?;
    let line = locks.lines().find(|line| line.contains(&format!(":{inode} ")))?;
    line.split_whitespace().nth(4)?.parse().ok()
}

#[expect(clippy::print_stdout, reason = "a benchmark reports on standard output")]
fn main() -> ExitCode {
    let mut arguments = std::env::args().skip(1);
    if arguments.next().as_deref() == Some("runner") {
        return runner::main(Path::new(&arguments.next().unwrap_or_default()));
    }
    let home = tempfile::tempdir().expect("a directory");
    let runtime = tokio::runtime::Runtime::new().expect("a runtime");
    // Both halves around the measurement, because the machine's speed drifts.
    let before = bare_runs_per_second();
    let cpu_before = cpu_ms(None);
    let elapsed = timed(|| runtime.block_on(all_runs(home.path())));
    let pid = runner_pid(home.path());
    let cpu = (cpu_ms(pid) - cpu_before) / f64::from(RUNS);
    let limit = f64::midpoint(before, bare_runs_per_second());
    let per_second = f64::from(RUNS) / elapsed.as_secs_f64();
    if let Some(pid) = pid.and_then(rustix::process::Pid::from_raw) {
        // It would go home by itself in a minute.
        let _gone = rustix::process::kill_process(pid, rustix::process::Signal::KILL);
    }
    let share = per_second / limit;
    println!("RESULT name=trigger/command_runs per_second={per_second:.0}");
    println!("RESULT name=trigger/command_runs@limit per_second={limit:.0}");
    println!("RESULT name=trigger/command_cpu seconds={:.6}", cpu / 1000.0);
    println!("share of the bare loop {share:.2}, CPU per run {cpu:.2} ms");
    let good = share >= SHARE_MIN && per_second >= PER_SECOND_MIN && cpu <= CPU_MS_MAX;
    if good { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}
