//! `cargo xtask bench`: all benchmarks, then one table of figures against their limits.
//!
//! Figures come from two sources: what criterion leaves in its folder, and lines that a benchmark
//! prints for what criterion cannot measure, `RESULT name=config/load_10k seconds=1.2 rss_mb=90`.
//! A benchmark `X@limit` measures, in the same run, the least that `X` must do; the table then
//! shows how near `X` comes to that ceiling.

mod criterion;
mod table;

use std::{
    io::{BufRead, BufReader},
    process::{Command, Stdio},
};

use self::table::Measurement;
use crate::{
    metadata, shell,
    tools::{self, Need},
};

/// Runs the benchmarks whose ids contain the filter, and prints the table.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let filter = match arguments {
        [] => None,
        [filter] if !filter.starts_with('-') => Some(filter.as_str()),
        _ => return Err("bench takes one filter at most; see `cargo xtask help`".to_owned()),
    };
    tools::ensure(Need::Bench)?;
    let home = metadata::target_directory()?.join("criterion");
    let before = criterion::stamps(&home);
    let mut measurements = Vec::new();
    for package in metadata::packages()? {
        for bench in &package.benches {
            println!("\n── {} / {bench}", package.name);
            let mut command = shell::cargo(&["bench", "-p", &package.name, "--bench", bench]);
            command.arg("--").args(filter).env("CRITERION_HOME", &home);
            measurements.extend(results(&mut command)?);
        }
    }
    measurements.extend(criterion::measurements(&home, &before)?);
    measurements.sort_by(|a, b| a.name.cmp(&b.name));
    println!("\n── figures against limits (a ratio of 1.00 and more is good)");
    println!("{}", table::HEADING);
    let rows = table::rows(&measurements, filter);
    for row in &rows {
        println!("{row}");
    }
    match rows.iter().filter(|row| row.is_missed()).count() {
        0 => Ok(()),
        missed => Err(format!("{missed} limits were missed")),
    }
}

/// Runs a benchmark, shows what it prints, and keeps the figures of its `RESULT` lines.
fn results(command: &mut Command) -> Result<Vec<Measurement>, String> {
    let line = shell::line(command);
    let mut child =
        command.stdout(Stdio::piped()).spawn().map_err(|error| format!("{line}: {error}"))?;
    let mut measurements = Vec::new();
    for printed in child.stdout.take().map(BufReader::new).into_iter().flat_map(BufRead::lines) {
        let printed = printed.map_err(|error| format!("{line}: {error}"))?;
        println!("{printed}");
        measurements.extend(read_result(&printed));
    }
    let status = child.wait().map_err(|error| format!("{line}: {error}"))?;
    if status.success() { Ok(measurements) } else { Err(format!("{line} ended with {status}")) }
}

/// The figures of a `RESULT` line; those without a known unit are left out.
fn read_result(line: &str) -> Vec<Measurement> {
    let Some(fields) = line.strip_prefix("RESULT ") else { return vec![] };
    let fields: Vec<(&str, &str)> =
        fields.split_whitespace().filter_map(|field| field.split_once('=')).collect();
    let Some((_, name)) = fields.iter().find(|(key, _)| *key == "name") else { return vec![] };
    let figure =
        |(key, value): &(&str, &str)| Measurement::plain(name, key, value.parse::<f64>().ok()?);
    fields.iter().filter_map(figure).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn result_line_gives_one_measurement_per_figure() {
        let line = "RESULT name=config/load_10k seconds=1.25 rss_mb=90";
        let expected = [
            Measurement::plain("config/load_10k", "seconds", 1.25),
            Measurement::plain("config/load_10k", "rss_mb", 90.0),
        ];
        assert_eq!(read_result(line).into_iter().map(Some).collect::<Vec<_>>(), expected);
    }

    #[test]
    fn other_lines_give_none() {
        for line in ["", "Benchmarking RESULT name=x seconds=1", "RESULT seconds=1"] {
            assert_eq!(read_result(line), [], "{line}");
        }
    }
}
