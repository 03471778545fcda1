//! `cargo xtask soak`: the schedule evaluator against the brute-force walker, or three instances and their bad luck, at length.
//!
//! The tests are those that CI runs for less long, `tests/schedules/oracle.rs` of the core and `tests/serve/ha.rs` of the binary;
//! only the number of cases or seconds differs, handed over in an environment variable.

use std::process::Command;

use crate::shell;

const CASES: u64 = 1_000_000;

/// The test, by its name in the core's binary of schedule tests.
const TEST: &str = "oracle::oracle_agrees_minute_by_minute";

/// Three instances on a Redis and on a PostgreSQL, one after the other.
const INSTANCES: [&str; 2] = [
    "ha::ha_redis_every_second_runs_once_whatever_happens_to_three_instances",
    "ha::ha_postgres_every_second_runs_once_whatever_happens_to_three_instances",
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Soak {
    /// So many cases of the differential test.
    Cases(u64),
    /// Instances that are troubled for so many minutes on each server.
    Instances(u64),
}

/// Runs what is asked for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    match asked(arguments)? {
        Soak::Cases(cases) => compare(cases),
        Soak::Instances(minutes) => trouble(minutes),
    }
}

/// Has three instances killed, stopped and cut off for so many minutes on each server.
fn trouble(minutes: u64) -> Result<(), String> {
    let seconds = minutes.saturating_mul(60).to_string();
    for test in INSTANCES {
        let command = || {
            let mut command = shell::cargo(&["test", "-p", "interlock", "--test", "serve", "--"]);
            command.args(["--exact", test]);
            command
        };
        if !shell::output(command().arg("--list"))?.contains(test) {
            return Err(format!("there is no test {test}; was it renamed? {} names it", file!()));
        }
        println!("{test} for {minutes} minutes");
        shell::run(command().arg("--nocapture").env("INTERLOCK_HA_SECONDS", &seconds))?;
    }
    Ok(())
}

/// Runs the differential test with as many cases as asked for.
fn compare(cases: u64) -> Result<(), String> {
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

fn asked(arguments: &[String]) -> Result<Soak, String> {
    let mut arguments = arguments.iter();
    let mut asked = Soak::Cases(CASES);
    while let Some(argument) = arguments.next() {
        asked = match argument.as_str() {
            "--cases" => Soak::Cases(shell::count("--cases", arguments.next())?),
            "--instances" => Soak::Instances(shell::count("--instances", arguments.next())?),
            _ => {
                shell::no_arguments(std::slice::from_ref(argument))?;
                asked
            }
        };
    }
    Ok(asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_million_cases_unless_told() {
        let words = |text: &str| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
        assert_eq!(asked(&[]), Ok(Soak::Cases(1_000_000)));
        assert_eq!(asked(&words("--cases 500")), Ok(Soak::Cases(500)));
        assert_eq!(asked(&words("--instances 10")), Ok(Soak::Instances(10)));
        assert!(asked(&words("500")).is_err());
    }
}
