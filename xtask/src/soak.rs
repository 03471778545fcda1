//! `cargo xtask soak`: the schedule evaluator against the brute-force walker, three instances and their bad luck, watches on a
//! machine that is full, thousands of pipelines to which one thing happens at one instant, or a thousand readers of the stream, at length.
//!
//! The tests are those that CI runs for less long, `tests/schedules/oracle.rs` of the core, `tests/serve/ha.rs` of the binary and
//! `tests/faults/soak.rs` of the liveness library, `tests/serve/stream_soak.rs` of the binary; only the number of cases or seconds differs, handed over in an environment variable.
//! Of mass events (`tests/serve/mass.rs` of the binary) CI runs the first alone, with some hundred pipelines.

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

/// Watches that must not expire.
const WATCHES: &str = "soak::fault_38_loops_that_are_well_are_not_blamed_while_the_machine_is_full";

/// How many pipelines have mass events, unless told.
const PIPELINES: u64 = 10_000;

/// Mass events, on each store: its word, and its test.
const MASS: [(&str, &str); 3] = [
    ("embedded", "mass::mass_events_on_a_file_are_told_once_each"),
    ("redis", "mass::mass_events_on_redis_are_told_once_each"),
    ("postgres", "mass::mass_events_on_postgres_are_told_once_each"),
];

/// What is asked for.
#[derive(Debug, PartialEq, Eq)]
enum Soak {
    /// So many cases of the differential test.
    Cases(u64),
    /// Instances that are troubled for so many minutes on each server.
    Instances(u64),
    /// Watches on a full machine for so many minutes.
    Liveness(u64),
    /// Mass events.
    Mass(MassOptions),
    /// A thousand readers of the stream for so many minutes.
    Stream(u64),
}

/// Readers of the stream, while the server is killed.
const STREAM: &str = "stream_soak::each_reader_of_the_stream_has_each_event_once_in_order_while_the_server_is_killed";
/// How many there are, and for how many minutes, unless told.
const READERS: u64 = 1_000;
const STREAM_MINUTES: u64 = 10;

/// Which mass events; all of them unless told.
#[derive(Debug, Default, PartialEq, Eq)]
struct MassOptions {
    store: Option<String>,
    pipelines: Option<u64>,
    /// Names of scenarios, with commas.
    only: Option<String>,
    /// How many minutes each is looked at after all is told.
    stay: Option<u64>,
}

/// Runs what is asked for.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    match asked(arguments)? {
        Soak::Cases(cases) => compare(cases),
        Soak::Instances(minutes) => trouble(minutes),
        Soak::Liveness(minutes) => load(minutes),
        Soak::Mass(options) => mass(&options),
        Soak::Stream(minutes) => stream(minutes),
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

/// Has thousands of pipelines miss, fail, be edited and report at one instant, on one store or on each. Every store has its turn,
/// whatever the others showed.
fn mass(options: &MassOptions) -> Result<(), String> {
    let wanted = |store: &str| options.store.as_deref().is_none_or(|only| only == store);
    let mut problems = Vec::new();
    for (store, test) in MASS.into_iter().filter(|(store, _)| wanted(store)) {
        let command = || {
            let mut command = shell::cargo(&["test", "--release", "-p", "interlock"]);
            command.args(["--test", "serve", "--", "--exact", test]);
            command
        };
        if !shell::output(command().arg("--list"))?.contains(test) {
            return Err(format!("there is no test {test}; was it renamed? {} names it", file!()));
        }
        println!("mass events on {store}");
        let mut command = command();
        command.arg("--nocapture");
        let pipelines = options.pipelines.unwrap_or(PIPELINES);
        command.env("INTERLOCK_MASS_PIPELINES", pipelines.to_string());
        if let Some(only) = &options.only {
            command.env("INTERLOCK_MASS_ONLY", only);
        }
        if let Some(minutes) = options.stay {
            command.env("INTERLOCK_MASS_STAY_MINUTES", minutes.to_string());
        }
        problems.extend(shell::run(&mut command).err());
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join("; ")) }
}

/// Has a thousand readers follow the stream for so many minutes, while much happens and the server is killed again and again.
fn stream(minutes: u64) -> Result<(), String> {
    let command = || {
        let mut command = shell::cargo(&["test", "--release", "-p", "interlock"]);
        command.args(["--test", "serve", "--", "--exact", STREAM]);
        command
    };
    if !shell::output(command().arg("--list"))?.contains(STREAM) {
        return Err(format!("there is no test {STREAM}; was it renamed? {} names it", file!()));
    }
    println!("{READERS} readers of the stream for {minutes} minutes");
    let mut command = command();
    command.arg("--nocapture").env("INTERLOCK_STREAM_READERS", READERS.to_string());
    shell::run(command.env("INTERLOCK_STREAM_SECONDS", minutes.saturating_mul(60).to_string()))
}

/// Has loops that are well watched for so many minutes while every processor is taken.
fn load(minutes: u64) -> Result<(), String> {
    let command = || {
        let words = ["test", "--release", "-p", "interlock-liveness", "--all-features"];
        let mut command = shell::cargo(&words);
        command.args(["--test", "faults", "--", "--exact", WATCHES]);
        command
    };
    if !shell::output(command().arg("--list"))?.contains(WATCHES) {
        return Err(format!("there is no test {WATCHES}; was it renamed? {} names it", file!()));
    }
    println!("{WATCHES} for {minutes} minutes");
    let seconds = minutes.saturating_mul(60).to_string();
    shell::run(command().arg("--nocapture").env("INTERLOCK_LIVENESS_SECONDS", seconds))
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
            "--liveness" => Soak::Liveness(shell::count("--liveness", arguments.next())?),
            "--mass" => Soak::Mass(mass_options(&mut arguments)?),
            "--stream" => Soak::Stream(match arguments.next() {
                Some(minutes) => shell::count("--stream", Some(minutes))?,
                None => STREAM_MINUTES,
            }),
            _ => {
                shell::no_arguments(std::slice::from_ref(argument))?;
                asked
            }
        };
    }
    Ok(asked)
}

/// What follows `--mass`.
fn mass_options<'a>(
    arguments: &mut impl Iterator<Item = &'a String>,
) -> Result<MassOptions, String> {
    let mut options = MassOptions::default();
    while let Some(argument) = arguments.next() {
        let mut word =
            || arguments.next().ok_or_else(|| format!("{argument} needs a word after it"));
        match argument.as_str() {
            "--pipelines" => {
                options.pipelines = Some(shell::count("--pipelines", arguments.next())?);
            }
            "--only" => options.only = Some(word()?.clone()),
            "--stay" => options.stay = Some(shell::count("--stay", arguments.next())?),
            "--store" => {
                let store = word()?;
                if !MASS.iter().any(|(known, _)| known == store) {
                    return Err(format!("--store is embedded, redis or postgres, not {store}"));
                }
                options.store = Some(store.clone());
            }
            _ => shell::no_arguments(std::slice::from_ref(argument))?,
        }
    }
    Ok(options)
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
        assert_eq!(asked(&words("--liveness 10")), Ok(Soak::Liveness(10)));
        assert_eq!(asked(&words("--stream")), Ok(Soak::Stream(10)));
        assert_eq!(asked(&words("--stream 2")), Ok(Soak::Stream(2)));
        assert!(asked(&words("500")).is_err());
        assert_eq!(asked(&words("--mass")), Ok(Soak::Mass(MassOptions::default())));
        let options = MassOptions {
            store: Some("redis".to_owned()),
            pipelines: Some(2_000),
            only: Some("miss,edit".to_owned()),
            stay: Some(10),
        };
        let line = "--mass --store redis --pipelines 2000 --only miss,edit --stay 10";
        let asked_for = asked(&words(line));
        assert_eq!(asked_for, Ok(Soak::Mass(options)));
        assert!(asked(&words("--mass --store oracle")).is_err());
    }
}
