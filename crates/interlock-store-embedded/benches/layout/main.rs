//! Layouts of the ledger beside each other, and the engine beside plain SQLite.
//!
//! `cargo bench -p interlock-store-embedded` takes a minute and covers the limits of issue 3; with
//! `-- spike [ROWS]` it fills every candidate layout with so many slots first (10 million unless told)
//! and measures what decided docs/adr/0004-ledger-layout.md. A plain program: each figure needs a file
//! in a known state, which criterion's repetitions would spoil.

mod candidates;
mod spike;

use std::process::ExitCode;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).filter(|it| it != "--bench").collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let outcome = match words.as_slice() {
        ["spike"] => spike::run(10_000_000, None),
        ["spike", rows] => spike::run(rows.parse().unwrap_or(10_000_000), None),
        ["spike", rows, only] => spike::run(rows.parse().unwrap_or(10_000_000), Some(only)),
        _ => Ok(()),
    };
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}
