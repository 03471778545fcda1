//! When to start again, and when to give up. What was, is kept in a file, so that a supervisor that is restarted itself does
//! not begin anew.

use std::{
    fs,
    hash::{BuildHasher as _, RandomState},
    io,
    path::PathBuf,
    time::Duration,
};

use super::Lived;
use crate::{clock::boottime, heartbeat::boot};

/// How restarts slow down: twice as long each time, and by chance a part of that, so that many do not begin at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    /// The first pause.
    pub first: Duration,
    /// The longest.
    pub most: Duration,
    /// Only who lived so long (and twice as long as the last pause) begins with the first pause again.
    pub healthy_for: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self {
            first: Duration::from_secs(1),
            most: Duration::from_mins(5),
            healthy_for: Duration::from_mins(10),
        }
    }
}

/// When a program counts as one that cannot be helped.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct GiveUp {
    /// So many deaths …
    pub deaths: usize,
    /// … within this time.
    pub within: Duration,
}

impl Default for GiveUp {
    fn default() -> Self {
        Self { deaths: 5, within: Duration::from_mins(10) }
    }
}

/// What follows a death.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Next {
    After(Duration),
    GiveUp(Deaths),
}

/// The deaths that were too many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deaths {
    /// How many.
    pub number: usize,
    /// When few enough of them count for another try.
    pub again_in: Duration,
    /// Where they are remembered; without this file they are forgotten.
    pub kept_in: PathBuf,
}

/// The deaths of a program.
#[derive(Debug)]
pub(super) struct History {
    path: PathBuf,
    /// Which start of the machine; an earlier one's clock says nothing here.
    boot: String,
    /// By the clock that counts sleep.
    deaths: Vec<Duration>,
    /// How many since it was last well for long.
    in_a_row: u32,
    last_pause: Duration,
}

impl History {
    pub(super) fn load(path: PathBuf) -> Self {
        let boot = boot().map(u128::from_be_bytes).map_or_else(|_| "?".to_owned(), hex);
        let text = fs::read_to_string(&path).unwrap_or_default();
        let deaths = text.lines().filter_map(|line| {
            let (of, at) = line.split_once(' ')?;
            (of == boot).then(|| at.parse().ok().map(Duration::from_millis)).flatten()
        });
        let deaths: Vec<Duration> = deaths.collect();
        let in_a_row = deaths.len() as u32;
        Self { path, boot, deaths, in_a_row, last_pause: Duration::ZERO }
    }

    /// Whether it died too often to be started at all.
    pub(super) fn is_hopeless(&mut self, give_up: GiveUp) -> Option<Deaths> {
        let now = now();
        self.forget(now, give_up.within);
        (self.deaths.len() >= give_up.deaths).then(|| self.too_many(now, give_up))
    }

    /// How many deaths there are, and when enough of them are forgotten.
    fn too_many(&self, now: Duration, give_up: GiveUp) -> Deaths {
        let over = self.deaths.len().saturating_sub(give_up.deaths);
        let last = self.deaths.get(over).copied().unwrap_or(now);
        let again_in = (last + give_up.within).saturating_sub(now);
        Deaths { number: self.deaths.len(), again_in, kept_in: self.path.clone() }
    }

    /// One more death; also says whether that could be kept.
    pub(super) fn died(
        &mut self,
        life: &Lived,
        backoff: Backoff,
        give_up: GiveUp,
    ) -> (Next, io::Result<()>) {
        let now = now();
        if life.length.saturating_sub(life.silent) >= backoff.healthy_for.max(self.last_pause * 2) {
            self.in_a_row = 0;
        }
        // While it hangs nothing is forgotten: one that may be silent for long would never be given up.
        for at in &mut self.deaths {
            *at = (*at + life.silent).min(now);
        }
        self.deaths.push(now);
        self.in_a_row += 1;
        self.forget(now, give_up.within);
        let kept = self.keep();
        if self.deaths.len() >= give_up.deaths {
            return (Next::GiveUp(self.too_many(now, give_up)), kept);
        }
        let double = 2_u32.saturating_pow(self.in_a_row.saturating_sub(1).min(20));
        let longest = backoff.first.saturating_mul(double).min(backoff.most);
        let extra = longest.saturating_sub(backoff.first);
        self.last_pause = backoff.first + extra.mul_f64(chance());
        (Next::After(self.last_pause), kept)
    }

    fn forget(&mut self, now: Duration, within: Duration) {
        self.deaths.retain(|at| now.saturating_sub(*at) <= within);
    }

    fn keep(&self) -> io::Result<()> {
        let lines = self.deaths.iter().map(|at| format!("{} {}\n", self.boot, at.as_millis()));
        let fresh = self.path.with_extension("fresh");
        let kept = fs::write(&fresh, lines.collect::<String>());
        kept.and_then(|()| fs::rename(&fresh, &self.path)).inspect_err(|_| {
            // On a full disk half a file is of no use to anybody.
            let _not_there = fs::remove_file(&fresh);
        })
    }
}

fn hex(boot: u128) -> String {
    format!("{boot:032x}")
}

fn now() -> Duration {
    Duration::from_nanos(boottime())
}

/// A number between 0 and 1 that nobody can foretell.
fn chance() -> f64 {
    let drawn = RandomState::new().hash_one(0) as u32;
    f64::from(drawn) / f64::from(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::supervise::Ended;

    const BACKOFF: Backoff = Backoff {
        first: Duration::from_secs(1),
        most: Duration::from_secs(8),
        healthy_for: Duration::from_mins(10),
    };
    const NEVER: GiveUp = GiveUp { deaths: usize::MAX, within: Duration::from_mins(10) };

    fn history() -> (tempfile::TempDir, History) {
        let folder = tempfile::tempdir().unwrap();
        let history = History::load(folder.path().join("x.deaths"));
        (folder, history)
    }

    fn life(length: Duration) -> Lived {
        Lived { length, ..Lived::default() }
    }

    fn pause(history: &mut History, lived: Duration) -> Duration {
        match history.died(&life(lived), BACKOFF, NEVER) {
            (Next::After(pause), Ok(())) => pause,
            other => panic!("{other:?}"),
        }
    }

    #[test]
    fn fault_25_pauses_grow_up_to_a_bound_and_only_long_health_makes_them_short_again() {
        let (_folder, mut history) = history();
        for most in [1, 2, 4, 8, 8, 8] {
            let pause = pause(&mut history, Duration::from_mins(1));
            let (least, most) = (BACKOFF.first, Duration::from_secs(most));
            assert!(pause >= least && pause <= most, "{pause:?} of {most:?}");
        }
        assert!(history.in_a_row > 1);
        assert_eq!(pause(&mut history, Duration::from_mins(10)), BACKOFF.first);
    }

    #[test]
    fn fault_26_one_that_may_be_silent_for_long_and_always_hangs_is_given_up_too() {
        let (_folder, mut history) = history();
        let give_up = GiveUp { deaths: 3, within: Duration::from_mins(10) };
        let silent = Duration::from_mins(8);
        let mut hangs = || {
            // So much time goes by meanwhile.
            history.deaths.iter_mut().for_each(|at| *at = at.saturating_sub(silent));
            let hung = Lived { ended: Ended::Hung, silent, ..life(silent) };
            history.died(&hung, BACKOFF, give_up).0
        };
        assert!(matches!(hangs(), Next::After(_)));
        assert!(matches!(hangs(), Next::After(_)));
        assert!(matches!(hangs(), Next::GiveUp(_)));
        // That it took long to hang does not make it well.
        assert_eq!(history.in_a_row, 3);
        let patient = Lived { ended: Ended::Hung, silent: silent * 2, ..life(silent * 2) };
        history.died(&patient, BACKOFF, NEVER).1.unwrap();
        assert_eq!(history.in_a_row, 4);
    }

    #[test]
    fn fault_25_26_too_many_deaths_in_a_time_are_the_end_whoever_asks() {
        let (folder, mut history) = history();
        let give_up = GiveUp { deaths: 3, within: Duration::from_mins(10) };
        let lived = &life(Duration::from_secs(1));
        assert!(matches!(history.died(lived, BACKOFF, give_up).0, Next::After(_)));
        assert!(matches!(history.died(lived, BACKOFF, give_up).0, Next::After(_)));
        let Next::GiveUp(deaths) = history.died(lived, BACKOFF, give_up).0 else { panic!() };
        assert_eq!((deaths.number, &deaths.kept_in), (3, &folder.path().join("x.deaths")));
        let again_in = deaths.again_in;
        assert!(again_in > Duration::from_mins(9) && again_in <= give_up.within, "{again_in:?}");
        let mut next = History::load(folder.path().join("x.deaths"));
        let knows = next.is_hopeless(give_up).map(|deaths| deaths.number);
        assert_eq!(knows, Some(3), "a new supervisor knows it too");
        let soon_over = GiveUp { deaths: 3, within: Duration::ZERO };
        assert_eq!(next.is_hopeless(soon_over), None, "in time it is forgotten");
    }
}
