//! Many seeds, each with its own shape and weather; and the shortest prefix of one that fails.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use crate::{
    luck::{EXPECTED, Fault, Meeting, STATES},
    random::Random,
    simulation::{Options, Outcome, Weather, simulate},
};

/// The shape of a seed's world in a swarm.
pub fn shape(seed: u64) -> Options {
    let mut random = Random::of(seed, "shape");
    Options {
        seed,
        days: random.between(1, 4) as u32,
        pipelines: random.between(2, 10) as u32,
        instances: random.between(1, 3) as u32,
        faults: u64::MAX,
        weather: Weather::Drawn,
        mutation: None,
    }
}

/// The shape of a long world: a year of fifty pipelines on three instances, in even weather.
pub fn year(seed: u64) -> Options {
    let weather = Weather::Even;
    Options { seed, days: 365, pipelines: 50, instances: 3, weather, ..Options::default() }
}

/// What many seeds saw.
#[derive(Debug, Default)]
pub struct Swarm {
    /// How many seeds.
    pub seeds: u64,
    /// Slots that got their fate.
    pub dispositions: u64,
    /// Faults that happened.
    pub faults: u64,
    /// What happened how often.
    pub counts: BTreeMap<&'static str, u64>,
    /// Which faults met which states, and how often.
    pub meetings: BTreeMap<Meeting, u64>,
}

impl Swarm {
    /// Adds what a seed saw.
    pub fn take(&mut self, outcome: &Outcome) {
        self.seeds += 1;
        self.dispositions += outcome.tally.dispositions;
        self.faults += outcome.faults;
        for (name, count) in &outcome.counts {
            *self.counts.entry(name).or_default() += count;
        }
        for (meeting, count) in &outcome.meetings {
            *self.meetings.entry(*meeting).or_default() += count;
        }
    }

    /// The faults, line by line, with how often each met each state.
    pub fn table(&self) -> Vec<String> {
        let wide = |cells: Vec<String>| {
            cells.iter().fold(String::new(), |line, cell| line + &format!("{cell:>16}"))
        };
        let line = |fault: &'static str| {
            let met = STATES.iter().map(|state| self.meetings.get(&(fault, *state)));
            let met = met.map(|count| count.copied().unwrap_or(0).to_string());
            format!("{fault:<24}{}", wide(met.collect()))
        };
        let head = wide(STATES.iter().map(|state| (*state).to_owned()).collect());
        let lines = Fault::ALL.iter().map(|(fault, _)| line(fault.name()));
        std::iter::once(format!("{:<24}{head}", "fault met")).chain(lines).collect()
    }

    /// Faults that never came while things stood in some way.
    pub fn never_met(&self) -> Vec<String> {
        let all = Fault::ALL
            .iter()
            .flat_map(|(fault, _)| STATES.iter().map(move |state| (fault.name(), *state)));
        let never = all.filter(|meeting| !self.meetings.contains_key(meeting));
        never.map(|(fault, state)| format!("{fault} / {state}")).collect()
    }

    /// What should have happened in so many seeds, and did not.
    pub fn never(&self) -> Vec<&'static str> {
        let faults = Fault::ALL.iter().map(|(fault, _)| fault.name());
        faults.chain(EXPECTED).filter(|name| !self.counts.contains_key(name)).collect()
    }
}

/// What many seeds saw, and the one that failed, if one did.
#[derive(Debug, Default)]
pub struct Flown {
    /// What those saw that did not fail.
    pub swarm: Swarm,
    /// The lowest seed among those that failed.
    pub failed: Option<Outcome>,
}

/// Simulates one seed after another on each of so many threads, as long as there is a next one and none fails. A world
/// is one thread and shares nothing with the others, so that a seed is the same whoever flies beside it.
pub fn fly(threads: usize, next: &(dyn Fn() -> Option<Options> + Sync)) -> Result<Flown, String> {
    let flown: Mutex<Result<Flown, String>> = Mutex::new(Ok(Flown::default()));
    let so_far = || -> MutexGuard<'_, _> { flown.lock().unwrap_or_else(PoisonError::into_inner) };
    std::thread::scope(|scope| {
        for _ in 0..threads.max(1) {
            scope.spawn(|| {
                while matches!(&*so_far(), Ok(flown) if flown.failed.is_none())
                    && let Some(options) = next()
                {
                    let outcome = simulate(&options);
                    let mut so_far = so_far();
                    match (&mut *so_far, outcome) {
                        (Ok(flown), Ok(outcome)) => flown.take(outcome),
                        (Ok(_), Err(problem)) => *so_far = Err(problem),
                        (Err(_), _) => {}
                    }
                }
            });
        }
    });
    flown.into_inner().unwrap_or_else(PoisonError::into_inner)
}

impl Flown {
    fn take(&mut self, outcome: Outcome) {
        if outcome.violation.is_none() {
            self.swarm.take(&outcome);
        } else if self.failed.as_ref().is_none_or(|it| it.options.seed > outcome.options.seed) {
            self.failed = Some(outcome);
        }
    }
}

/// The same world with as few faults as still violate the same promise. Answers with the last one that does.
pub fn shorten(failed: &Outcome) -> Result<Outcome, String> {
    let Some(violation) = &failed.violation else { return Ok(failed.clone()) };
    let mut best = failed.clone();
    let (mut too_few, mut enough) = (0, failed.faults);
    while too_few < enough {
        let middle = too_few + (enough - too_few) / 2;
        let tried = simulate(&Options { faults: middle, ..failed.options.clone() })?;
        let is_same =
            tried.violation.as_ref().is_some_and(|it| it.invariant == violation.invariant);
        if is_same {
            enough = middle;
            best = tried;
        } else {
            too_few = middle + 1;
        }
    }
    best.options.faults = enough;
    Ok(best)
}
