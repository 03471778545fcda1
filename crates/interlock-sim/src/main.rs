//! `interlock-sim`: one seed, or a swarm of them. `cargo xtask sim` builds and calls it.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "a report is what it is for")]

use std::{
    process::ExitCode,
    sync::atomic::{AtomicU64, Ordering},
    time::{Duration, Instant},
};

use interlock_sim::{
    Options, Outcome, Weather,
    bites::caught,
    mass, scenario, simulate,
    swarm::{Flown, Swarm, fly, shape, shorten, year},
    tap::Mutation,
    work::Work,
};

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

const HELP: &str = "\
interlock-sim --seed N [--days D] [--pipelines P] [--instances I] [--faults N] [--weather even|drawn|mass] [--twice]
interlock-sim --seed N --as-in-swarm        the world that a swarm makes of this seed
interlock-sim --swarm [--minutes M | --seeds N] [--from SEED]
interlock-sim --some N [--from SEED]        so many of a swarm's worlds, whatever they happen to meet
interlock-sim --years N [--from SEED]       so many long worlds, one on each core: how fast it is
interlock-sim --mass N [--from SEED]        so many worlds in which one thing happens to thousands of pipelines at once
interlock-sim --bites                       deliberate mistakes, and the seeds that catch them
interlock-sim --scenario NAME               a story, played now
";

/// After how many worlds a swarm says how far it is.
const WORLDS_PER_LINE: u64 = 25;

/// What was asked for.
struct Asked {
    options: Options,
    is_as_in_swarm: bool,
    is_twice: bool,
    swarm: Option<Extent>,
    from: u64,
}

/// How long a swarm goes on.
#[derive(Clone, Copy)]
enum Extent {
    Minutes(u64),
    Seeds(u64),
    /// So many seeds, which need not see everything.
    Some(u64),
    /// So many long worlds, which need not either.
    Years(u64),
    /// So many worlds of mass events.
    Masses(u64),
}

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let ran = match arguments.as_slice() {
        [scenario, name] if scenario == "--scenario" => tell(name),
        [bites] if bites == "--bites" => show_that_it_bites(),
        _ => ask(&arguments).and_then(|asked| match asked.swarm {
            Some(extent) => swarm(extent, asked.from),
            None => one(&asked),
        }),
    };
    match ran {
        Ok(()) => ExitCode::SUCCESS,
        Err(reason) => {
            eprintln!("interlock-sim: {reason}");
            ExitCode::FAILURE
        }
    }
}

/// Tells for each deliberate mistake which promise it breaks, and which seed shows it.
fn show_that_it_bites() -> Result<(), String> {
    let mut problems = Vec::new();
    for (mutation, promise) in Mutation::ALL {
        match caught(mutation).map(|outcome| (outcome.options.seed, outcome.violation)) {
            Ok((seed, Some(violation))) => {
                println!("{promise:<4}{mutation:?}: seed {seed}: {violation}");
                if violation.invariant != promise {
                    problems.push(format!("{mutation:?} breaks {}", violation.invariant));
                }
            }
            Ok((_, None)) => {}
            Err(problem) => problems.push(problem),
        }
    }
    if problems.is_empty() { Ok(()) } else { Err(problems.join(", ")) }
}

/// Plays a scenario and prints it with what is answered now.
fn tell(name: &str) -> Result<(), String> {
    let (path, text) = scenario::find(name)?;
    let played = scenario::play(&path.display().to_string(), &text);
    print!("{}", played.map_err(|wrong| wrong.to_string())?);
    Ok(())
}

fn ask(arguments: &[String]) -> Result<Asked, String> {
    let options = Options { weather: Weather::Even, ..Options::default() };
    let mut asked = Asked { options, is_as_in_swarm: false, is_twice: false, swarm: None, from: 1 };
    let mut rest = arguments.iter();
    while let Some(argument) = rest.next() {
        let mut number = || -> Result<u64, String> {
            let text = rest.next().ok_or_else(|| format!("{argument} needs a number after it"))?;
            text.replace('_', "").parse().map_err(|error| format!("{argument} {text}: {error}"))
        };
        match argument.as_str() {
            "--seed" => asked.options.seed = number()?,
            "--days" => asked.options.days = number()? as u32,
            "--pipelines" => asked.options.pipelines = number()? as u32,
            "--instances" => asked.options.instances = number()? as u32,
            "--faults" => asked.options.faults = number()?,
            "--as-in-swarm" => asked.is_as_in_swarm = true,
            "--twice" => asked.is_twice = true,
            "--swarm" => asked.swarm = asked.swarm.or(Some(Extent::Minutes(1))),
            "--minutes" => asked.swarm = Some(Extent::Minutes(number()?)),
            "--seeds" => asked.swarm = Some(Extent::Seeds(number()?)),
            "--some" => asked.swarm = Some(Extent::Some(number()?)),
            "--years" => asked.swarm = Some(Extent::Years(number()?)),
            "--mass" => asked.swarm = Some(Extent::Masses(number()?)),
            "--from" => asked.from = number()?,
            "--weather" => {
                asked.options.weather = match rest.next().map(String::as_str) {
                    Some("even") => Weather::Even,
                    Some("drawn") => Weather::Drawn,
                    Some("mass") => Weather::Mass,
                    other => {
                        return Err(format!("--weather is even, drawn or mass, not {other:?}"));
                    }
                }
            }
            _ => return Err(format!("unexpected argument {argument:?}\n{HELP}")),
        }
    }
    if asked.is_as_in_swarm {
        let faults = asked.options.faults;
        asked.options = Options { faults, ..shape(asked.options.seed) };
    }
    Ok(asked)
}

fn one(asked: &Asked) -> Result<(), String> {
    let watch = watch();
    let outcome = simulate(&asked.options)?;
    let took = watch.elapsed();
    report(&outcome, took);
    if outcome.violation.is_some() {
        return fail(&outcome);
    }
    if asked.is_twice {
        let again = simulate(&asked.options)?;
        if again.tally != outcome.tally {
            return Err(format!(
                "two runs of one seed differ: {:?} and {:?}",
                outcome.tally, again.tally
            ));
        }
        println!("a second run gave the same hash");
    }
    Ok(())
}

fn report(outcome: &Outcome, took: Duration) {
    let Options { seed, days, pipelines, instances, .. } = outcome.options;
    let tally = outcome.tally;
    println!(
        "seed {seed}: {days} days and 30 hours of calm, {pipelines} pipelines, {instances} instances"
    );
    println!("injected: {} faults", outcome.faults);
    for (name, count) in &outcome.counts {
        println!("  {count:>9}  {name}");
    }
    println!(
        "checked: {} groups, {} slots got their fate ({} enumerated in spans), {} runs, {} notifications delivered, {} jobs of deposed owners",
        tally.groups, tally.dispositions, tally.owed, tally.runs, tally.deliveries, tally.orphans
    );
    let per_minute = u128::from(tally.dispositions) * 60_000 / took.as_millis().max(1);
    println!(
        "took: {:.1} s, {per_minute} dispositions a minute, {} waits",
        took.as_secs_f64(),
        outcome.waits
    );
    if tally.work != Work::default() {
        println!("the most of one loop in two minutes: {:?}", tally.work);
    }
    println!("event log: {} events, hash {:016x}", tally.events, tally.hash);
}

fn swarm(extent: Extent, from: u64) -> Result<(), String> {
    let watch = watch();
    let seed = AtomicU64::new(from);
    let next = || {
        let seed = seed.fetch_add(1, Ordering::Relaxed);
        let is_over = match extent {
            Extent::Minutes(minutes) => watch.elapsed() >= Duration::from_secs(minutes * 60),
            Extent::Seeds(seeds)
            | Extent::Some(seeds)
            | Extent::Years(seeds)
            | Extent::Masses(seeds) => seed >= from + seeds,
        };
        if let Extent::Seeds(seeds) | Extent::Some(seeds) = extent
            && !is_over
            && (seed - from).is_multiple_of(WORLDS_PER_LINE)
        {
            println!("worlds: {} of {seeds}", seed - from);
        }
        let world = match extent {
            Extent::Years(_) => year(seed),
            Extent::Masses(_) => mass::shape(seed),
            Extent::Minutes(_) | Extent::Seeds(_) | Extent::Some(_) => shape(seed),
        };
        (!is_over).then_some(world)
    };
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let Flown { swarm, failed } = fly(threads, &next)?;
    if let Some(outcome) = failed {
        return fail(&outcome);
    }
    let took = watch.elapsed();
    let Swarm { seeds, dispositions, faults, .. } = swarm;
    let per_minute = u128::from(dispositions) * 60_000 / took.as_millis().max(1);
    println!(
        "{seeds} seeds from {from}, {faults} faults, {dispositions} dispositions in {:.1} s on {threads} threads: \
         {per_minute} a minute",
        took.as_secs_f64()
    );
    for (name, count) in &swarm.counts {
        println!("  {count:>9}  {name}");
    }
    swarm.table().iter().for_each(|line| println!("{line}"));
    let never_met = swarm.never_met();
    if !never_met.is_empty() {
        println!("never met: {}", never_met.join(", "));
    }
    let never = swarm.never();
    let says = format!("never happened in {seeds} seeds: {}", never.join(", "));
    match extent {
        _ if never.is_empty() => Ok(()),
        Extent::Masses(_) => Ok(()),
        Extent::Some(_) | Extent::Years(_) => {
            println!("{says}");
            Ok(())
        }
        Extent::Minutes(_) | Extent::Seeds(_) => Err(says),
    }
}

/// Tells of a violation, with the shortest prefix that shows it.
fn fail(outcome: &Outcome) -> Result<(), String> {
    let Some(violation) = &outcome.violation else { return Ok(()) };
    // To shorten a long world takes its time, many times over: what is known is said first.
    println!("{violation}");
    outcome.story.iter().for_each(|line| println!("{line}"));
    let short = shorten(outcome)?;
    let Options { seed, days, pipelines, instances, faults, weather, .. } = &short.options;
    let weather = match weather {
        Weather::Even => "even",
        Weather::Drawn | Weather::Only(_) => "drawn",
        Weather::Mass => "mass",
    };
    if let Some(violation) = &short.violation {
        println!("with the first {faults} faults only: {violation}");
    }
    short.story.iter().for_each(|line| println!("{line}"));
    println!(
        "to see it again: cargo xtask sim --seed {seed} --days {days} --pipelines {pipelines} --instances {instances} --weather {weather} --faults {faults}"
    );
    Err(format!("{} violated by seed {seed}", violation.invariant))
}

#[expect(clippy::disallowed_methods, reason = "how long a run took is real time")]
fn watch() -> Instant {
    Instant::now()
}
