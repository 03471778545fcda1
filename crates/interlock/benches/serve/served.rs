//! A served project, looked at from outside.

use std::{
    fs,
    io::{BufRead as _, BufReader},
    path::Path,
    process::{Child, ChildStdout, Command, Stdio},
    thread,
    time::Duration,
};

use jiff::{SignedDuration, Timestamp};

const CALENDAR: &str = "name: holidays\nyearly: [\"12-24\", \"12-25\"]\ndates: [\"2026-04-03\"]\n";

#[expect(clippy::disallowed_methods, reason = "a benchmark measures time")]
pub(crate) fn now() -> Timestamp {
    Timestamp::now()
}

/// A served project; killed when dropped.
pub(crate) struct Served {
    child: Child,
    ready: SignedDuration,
    /// Kept open: what it says later should not fail.
    _out: BufReader<ChildStdout>,
    /// Beside the project: in it, each line would wake whoever watches its files.
    _log: tempfile::TempDir,
}

impl Served {
    /// Starts `serve` and waits until it says that it serves.
    pub(crate) fn start(project: &Path) -> Self {
        let log = tempfile::tempdir().expect("a temporary folder");
        let file = fs::File::create(log.path().join("log")).expect("the log can be written");
        let began = now();
        let mut child = Command::new(env!("CARGO_BIN_EXE_interlock"))
            .args(["serve", "-C"])
            .arg(project)
            .stdout(Stdio::piped())
            .stderr(file)
            .spawn()
            .expect("the binary runs");
        let mut out = BufReader::new(child.stdout.take().expect("it is piped"));
        let mut said = String::new();
        out.read_line(&mut said).expect("it can be read");
        assert!(said.starts_with("serving"), "serve did not start: {said}");
        Self { child, ready: now().duration_since(began), _out: out, _log: log }
    }

    pub(crate) fn ready_seconds(&self) -> f64 {
        self.ready.as_secs_f64()
    }

    /// Memory that it holds, in megabytes.
    pub(crate) fn rss_mb(&self) -> f64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.child.id()));
        let status = status.expect("it lives");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("it says so");
        let kib: f64 = line.trim().trim_end_matches(" kB").parse().expect("a number");
        kib / 1024.0
    }

    /// Seconds of processor time so far.
    pub(crate) fn cpu_seconds(&self) -> f64 {
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
pub(crate) fn project(count: usize, texts: &[&str]) -> tempfile::TempDir {
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
