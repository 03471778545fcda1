//! `cargo xtask soak`: the schedule evaluator against the brute-force walker, at length.
//!
//! The test is the one that CI runs with fewer cases, `tests/schedules/oracle.rs` of the core; only
//! the number of cases differs, handed over in an environment variable.

use std::process::Command;

use crate::shell;

const CASES: u64 = 1_000_000;

/// The test, by its name in the core's binary of schedule tests.
const TEST: &str = "oracle::oracle_agrees_minute_by_minute";

/// Runs the differential test with as many cases as asked for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let cases = cases(arguments)?;
    // A runner that finds no test of that name ends well, having done nothing.
    let listed = shell::output(oracle().arg("--list"))?;
    if !listed.contains(TEST) {
        return Err(format!("there is no test {TEST}; was it renamed? {} names it", file!()));
    }
    println!("comparing {cases} random expression × zone × start cases");
    shell::run(oracle().arg("--nocapture").env("INTERLOCK_ORACLE_CASES", cases.to_string()))
}

fn oracle() -> Command {
    let mut command = shell::cargo(&["test", "--release", "-p", "interlock-core"]);
    command.args(["--test", "schedules", "--", "--exact", TEST]);
    command
}

fn cases(arguments: &[String]) -> Result<u64, String> {
    let mut arguments = arguments.iter();
    let mut cases = CASES;
    while let Some(argument) = arguments.next() {
        match argument.as_str() {
            "--cases" => cases = shell::count("--cases", arguments.next())?,
            _ => shell::no_arguments(std::slice::from_ref(argument))?,
        }
    }
    Ok(cases)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_cases_unless_told() {
        assert_eq!(cases(&[]), Ok(1_000_000));
        assert_eq!(cases(&["--cases".to_owned(), "500".to_owned()]), Ok(500));
        assert!(cases(&["500".to_owned()]).is_err());
    }
}
