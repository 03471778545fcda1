//! Building and running fuzz targets with libFuzzer, and reading its log.

use std::{
    fmt, fs,
    io::{BufRead, BufReader},
    path::{Path, PathBuf},
    process::{Child, Stdio},
};

use super::MANIFEST;
use crate::{metadata, shell};

/// What makes a build coverage-guided, and strict about what a release build forgives.
///
/// The first five are LLVM's own coverage instrumentation, which libFuzzer reads.
const RUSTFLAGS: &[&str] = &[
    "-Cpasses=sancov-module",
    "-Cllvm-args=-sanitizer-coverage-level=4",
    "-Cllvm-args=-sanitizer-coverage-inline-8bit-counters",
    "-Cllvm-args=-sanitizer-coverage-pc-table",
    "-Cllvm-args=-sanitizer-coverage-trace-compares",
    "--cfg=fuzzing",
    "-Ccodegen-units=1",
    "-Cdebug-assertions",
    "-Coverflow-checks",
];

/// The longest input that is tried; what is read here comes from files and command lines.
const INPUT_BYTES_MAX: u32 = 4096;

/// How long one input may take before it counts as a hang.
const HANG_SECONDS: u32 = 10;

/// How much memory a target may use before it counts as a leak.
const MEMORY_MEGABYTES_MAX: u32 = 1024;

/// Builds all targets with the engine; returns the folder of their binaries.
pub(super) fn build() -> Result<PathBuf, String> {
    let host = metadata::host()?;
    let folder = metadata::target_directory()?.join("fuzz");
    let mut command = shell::cargo(&["build", "--release", "--bins", "--manifest-path", MANIFEST]);
    command
        .args(["--features", "engine"])
        // With a target named, the flags below spare build scripts and macros.
        .args(["--target", &host])
        .arg("--target-dir")
        .arg(&folder)
        .env_remove("RUSTFLAGS")
        .env("CARGO_ENCODED_RUSTFLAGS", RUSTFLAGS.join("\u{1f}"));
    shell::run(&mut command)?;
    Ok(folder.join(host).join("release"))
}

/// Runs one input through a target.
pub(super) fn replay(binary: &Path, file: &str) -> Result<(), String> {
    let file = std::path::absolute(file).map_err(|error| format!("{file}: {error}"))?;
    shell::run(shell::program(binary).arg(file))
}

/// Fuzzes one target for a time; fails when it found an input that fails.
pub(super) fn fuzz(binary: &Path, target: &str, seconds: u64) -> Result<Summary, String> {
    let fuzz = shell::root().join("fuzz");
    let corpus = fuzz.join("corpus").join(target);
    let artifacts = fuzz.join("artifacts").join(target);
    for folder in [&corpus, &artifacts] {
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
    }
    let mut command = shell::program(binary);
    command
        .arg(format!("-max_total_time={seconds}"))
        .arg(format!("-max_len={INPUT_BYTES_MAX}"))
        .arg(format!("-timeout={HANG_SECONDS}"))
        .arg(format!("-rss_limit_mb={MEMORY_MEGABYTES_MAX}"))
        .arg(format!("-artifact_prefix={}/", artifacts.display()))
        .arg(corpus)
        .arg(fuzz.join("seeds").join(target))
        .stderr(Stdio::piped());
    let mut child = command.spawn().map_err(|error| format!("cannot start: {error}"))?;
    let summary = watch(&mut child)?;
    let status = child.wait().map_err(|error| format!("cannot wait: {error}"))?;
    if !status.success() {
        return Err(format!("found an input that fails ({status})"));
    }
    summary.check()
}

/// Prints what libFuzzer says, less its chatter, and sums it up.
fn watch(child: &mut Child) -> Result<Summary, String> {
    let mut summary = Summary::default();
    let Some(log) = child.stderr.take() else { return Ok(summary) };
    for line in BufReader::new(log).split(b'\n') {
        let line = line.map_err(|error| format!("cannot read the engine's log: {error}"))?;
        let line = String::from_utf8_lossy(&line);
        summary.read(&line);
        if !is_chatter(&line) {
            println!("{line}");
        }
    }
    Ok(summary)
}

/// Whether a line tells nobody anything: the corpus grew or shrank by an input, sanitizers that we
/// do not use are missing, or words that the engine picked up.
fn is_chatter(line: &str) -> bool {
    let event = line.split_whitespace().nth(1).filter(|_| line.starts_with('#'));
    let about_corpus = matches!(event, Some("NEW" | "REDUCE" | "RELOAD"));
    let about_words = line.contains("commended dictionary") || line.contains("\" # Uses: ");
    about_corpus || about_words || line.starts_with("WARNING: Failed to find function")
}

/// What one run of a target came to.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Summary {
    runs: u64,
    coverage_first: u64,
    coverage_last: u64,
    corpus: u64,
}

impl Summary {
    /// Takes note of a status line such as `#512 NEW cov: 61 ft: 66 corp: 3/9b …`.
    fn read(&mut self, line: &str) {
        let words: Vec<&str> = line.split_whitespace().collect();
        let after = |key: &str| {
            let at = words.iter().position(|word| *word == key)?;
            words.get(at + 1)?.split('/').next()?.parse::<u64>().ok()
        };
        let runs = words.first().and_then(|word| word.strip_prefix('#')?.parse().ok());
        let (Some(runs), Some(coverage)) = (runs, after("cov:")) else { return };
        if self.coverage_first == 0 {
            self.coverage_first = coverage;
        }
        self.coverage_last = coverage;
        self.runs = runs;
        self.corpus = after("corp:").unwrap_or(self.corpus);
    }

    /// A run that saw no coverage was blind, and its silence means nothing.
    fn check(self) -> Result<Self, String> {
        if self.coverage_last == 0 {
            return Err("the engine saw no coverage: the instrumentation is broken".to_owned());
        }
        Ok(self)
    }
}

impl fmt::Display for Summary {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { runs, coverage_first, coverage_last, corpus } = self;
        write!(
            f,
            "no failure in {runs} runs, coverage {coverage_first} → {coverage_last}, \
             corpus {corpus} inputs"
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn summary_spans_the_log() {
        let mut summary = Summary::default();
        let log = [
            "INFO: Seed: 1",
            "#2\tINITED cov: 3 ft: 4 corp: 1/1b exec/s: 0 rss: 26Mb",
            "#23274\tREDUCE cov: 11 ft: 11 corp: 4/50b lim: 226 exec/s: 0 rss: 27Mb L: 41/41",
            "#90000\tDONE   cov: 12 ft: 14 corp: 5/50b lim: 226 exec/s: 900 rss: 27Mb",
        ];
        for line in log {
            summary.read(line);
        }
        let expected = Summary { runs: 90000, coverage_first: 3, coverage_last: 12, corpus: 5 };
        assert_eq!(summary.check(), Ok(expected));
    }

    #[test]
    fn chatter_is_left_out_and_news_is_not() {
        let chatter = [
            "#23274\tREDUCE cov: 11 ft: 11 corp: 4/50b",
            "WARNING: Failed to find function \"__sanitizer_acquire_crash_state\".",
            "###### End of recommended dictionary. ######",
            "\"\\001\\000\" # Uses: 17126",
        ];
        let news = ["#2\tINITED cov: 3", "INFO: NEW seed", "thread panicked at src/cron.rs:3:1"];
        assert_eq!(chatter.map(is_chatter), [true; 4]);
        assert_eq!(news.map(is_chatter), [false; 3]);
    }

    #[test]
    fn blind_run_is_a_failure() {
        assert!(Summary::default().check().is_err());
    }
}
