//! The engine beside plain SQLite, and layouts of the ledger beside each other.
//!
//! `cargo bench -p interlock-store-embedded` takes seconds and covers the limits of issue 3; with
//! `-- spike [ROWS [LAYOUT]]` it fills every candidate layout with so many slots first (10 million unless
//! told) and measures what decided docs/adr/0004-ledger-layout.md. A plain program: each figure needs a
//! file in a known state, which criterion's repetitions would spoil.

#![expect(
    clippy::print_stdout,
    clippy::print_stderr,
    clippy::cast_precision_loss,
    reason = "a benchmark prints figures, rounded"
)]

mod candidates;
mod engine;
mod spike;

use std::{
    process::ExitCode,
    time::{Duration, Instant},
};

/// What a measurement ends with.
type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

const ROWS: i64 = 10_000_000;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["spike"] => spike::run(ROWS, None),
        ["spike", rows] => spike::run(rows.parse().unwrap_or(ROWS), None),
        ["spike", rows, only] => spike::run(rows.parse().unwrap_or(ROWS), Some(only)),
        // The filter of `cargo xtask bench`.
        [filter] if !"embedded/slot_opens embedded/instant_10k".contains(filter) => Ok(()),
        _ => engine::run(),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

fn percentile(sorted: &[Duration], share: f64) -> f64 {
    let index = (sorted.len() as f64 * share) as usize;
    sorted.get(index.min(sorted.len() - 1)).map_or(0.0, Duration::as_secs_f64)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark measures real time")]
fn now() -> Instant {
    Instant::now()
}
