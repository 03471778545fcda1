//! Many seeds, each with its own shape and weather; and the shortest prefix of one that fails.

use std::collections::BTreeMap;

use crate::{
    luck::{EXPECTED, Fault},
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
    }

    /// What should have happened in so many seeds, and did not.
    pub fn never(&self) -> Vec<&'static str> {
        let faults = Fault::ALL.iter().map(|(fault, _)| fault.name());
        faults.chain(EXPECTED).filter(|name| !self.counts.contains_key(name)).collect()
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
