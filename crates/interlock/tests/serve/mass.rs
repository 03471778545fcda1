//! Mass events with the real binary: thousands of pipelines miss, fail, are edited or report at one instant, on a store that is slow for
//! a minute, and with a restart in the middle.
//!
//! `cargo xtask test` has a small sample of the first; `cargo xtask soak --mass` has all of them, with ten thousand pipelines, on each
//! store, and prints what each took (`docs/adr/0058-mass-events-in-the-world.md`).

mod judge;
mod observer;
mod pings;
mod receiver;
mod scenarios;
mod site;

use std::{
    env,
    panic::{AssertUnwindSafe, catch_unwind},
    time::Duration,
};

use self::{
    scenarios::{SCENARIOS, Size},
    site::Engine,
};

/// How many minutes a scenario is looked at after all is told, unless `INTERLOCK_MASS_STAY_MINUTES` says it.
const STAY: u64 = 3;

/// How many pipelines the sample has.
const SAMPLE: usize = 300;

/// One row of the table.
struct Report {
    name: &'static str,
    figures: Vec<(&'static str, String)>,
    faults: Vec<String>,
    /// What the log warned of, and its end if there are faults.
    log: String,
}

impl Report {
    fn print(&self, engine: Engine) {
        let figures = self.figures.iter().map(|(name, value)| format!("{name}: {value}"));
        let figures: Vec<String> = figures.collect();
        println!("MASS {engine:?} {}: {}", self.name, figures.join(" | "));
        for fault in &self.faults {
            println!("  FAULT {fault}");
        }
        print!("{}", self.log);
    }
}

/// A sample, or all of it if `INTERLOCK_MASS_PIPELINES` says how many there are.
fn check(engine: Engine) {
    match env::var("INTERLOCK_MASS_PIPELINES") {
        Ok(pipelines) => soak(engine, pipelines.parse().unwrap()),
        Err(_) => sample(engine),
    }
}

/// Lives through scenarios one after the other, and fails when one of them shows a fault.
fn soak(engine: Engine, pipelines: usize) {
    let only = env::var("INTERLOCK_MASS_ONLY").unwrap_or_default();
    let stay = env::var("INTERLOCK_MASS_STAY_MINUTES").map_or(STAY, |text| text.parse().unwrap());
    let size = Size { pipelines, stay: Duration::from_mins(stay) };
    let mut reports = Vec::new();
    for (name, scenario) in SCENARIOS {
        if !only.is_empty() && !only.split(',').any(|wanted| wanted == name) {
            continue;
        }
        println!("-- {engine:?} {name}, {pipelines} pipelines");
        // The others are still of interest.
        let report =
            catch_unwind(AssertUnwindSafe(|| scenario(engine, size))).unwrap_or_else(|_| Report {
                name,
                figures: vec![],
                faults: vec!["the scenario panicked; see above".to_owned()],
                log: String::new(),
            });
        report.print(engine);
        reports.push(report);
    }
    println!("== {engine:?}, {pipelines} pipelines");
    for report in &reports {
        report.print(engine);
    }
    assert!(!reports.is_empty(), "no scenario is called {only}");
    let faults = reports.iter().map(|report| report.faults.len()).sum::<usize>();
    assert_eq!(faults, 0, "faults in mass events on {engine:?}");
}

/// Some hundred pipelines miss one instant.
fn sample(engine: Engine) {
    let report = scenarios::miss(engine, Size { pipelines: SAMPLE, stay: Duration::from_secs(1) });
    report.print(engine);
    assert!(report.faults.is_empty(), "faults in a mass miss on {engine:?}");
}

#[test]
fn mass_events_on_a_file_are_told_once_each() {
    check(Engine::Embedded);
}

#[test]
fn mass_events_on_redis_are_told_once_each() {
    check(Engine::Redis);
}

#[test]
fn mass_events_on_postgres_are_told_once_each() {
    check(Engine::Postgres);
}
