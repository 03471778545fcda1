//! What follows when a watch stands still, and after how long.

use std::{fmt, time::Duration};

use crate::clock::nanos;

/// A step of the ladder. Each is reached in turn; none is skipped.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Default)]
pub enum Rung {
    /// It moves.
    #[default]
    Well,
    /// Half of its time is over: a first dump, while the trouble is young.
    Late,
    /// Its time is over: the fence is revoked, the process is not ready, hooks begin.
    Soft,
    /// Leases are given back.
    Release,
    /// No new work is taken.
    Drain,
    /// The process is ended.
    Hard,
}

impl Rung {
    /// All of them, from below.
    pub const ALL: [Self; 6] =
        [Self::Well, Self::Late, Self::Soft, Self::Release, Self::Drain, Self::Hard];

    pub(crate) fn from_number(number: u32) -> Self {
        Self::ALL.get(number as usize).copied().unwrap_or(Self::Hard)
    }

    /// Its name, in lower case.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Well => "well",
            Self::Late => "late",
            Self::Soft => "soft",
            Self::Release => "release",
            Self::Drain => "drain",
            Self::Hard => "hard",
        }
    }
}

impl fmt::Display for Rung {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// How long a watch may stand still before each step: a soft one never ends the process, a hard one does.
///
/// Choose the limit from what the loop really needs: three times the 99th percentile of one round is a good start, which
/// [`WatchStatus::suggested_limit`](crate::WatchStatus::suggested_limit) says once the loop has run for a while.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ladder {
    soft: Duration,
    release: Duration,
    drain: Duration,
    hard: Option<Duration>,
}

impl Ladder {
    /// Tells and releases after a time without progress, and leaves the process alone.
    pub fn soft(limit: Duration) -> Self {
        let step = (limit / 8).min(Duration::from_secs(1));
        Self { soft: limit, release: limit + step, drain: limit + step * 2, hard: None }
    }

    /// Like [`Ladder::soft`], and ends the process after a longer time; there are then at least 30 ms in between.
    pub fn hard(limit: Duration, ends: Duration) -> Self {
        let ends = ends.max(limit + Duration::from_millis(30));
        let step = (ends.saturating_sub(limit) / 3).min(Duration::from_secs(1));
        Self { soft: limit, release: limit + step, drain: limit + step * 2, hard: Some(ends) }
    }

    /// Gives leases back only so long before the end, where the leader itself is well until then: whoever it watches may
    /// still come round. A soft ladder has no end, and stays as it is.
    #[must_use]
    pub fn releasing(mut self, before_end: Duration) -> Self {
        if let Some(ends) = self.hard {
            let between = ends.saturating_sub(self.soft);
            let before_end = before_end.clamp(between / 8, between / 2);
            self.release = ends.saturating_sub(before_end);
            self.drain = ends.saturating_sub(before_end / 2);
        }
        self
    }

    /// When the watch counts as expired.
    pub fn limit(&self) -> Duration {
        self.soft
    }

    /// When the process is ended, if it is.
    pub fn ends(&self) -> Option<Duration> {
        self.hard
    }

    /// The step after a step, and the time without progress after which it is taken.
    pub(crate) fn next(&self, rung: Rung) -> Option<(Rung, u64)> {
        let (next, after) = match rung {
            Rung::Well => (Rung::Late, self.soft / 2),
            Rung::Late => (Rung::Soft, self.soft),
            Rung::Soft => (Rung::Release, self.release),
            Rung::Release => (Rung::Drain, self.drain),
            Rung::Drain => (Rung::Hard, self.hard?),
            Rung::Hard => return None,
        };
        Some((next, nanos(after)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn steps(ladder: Ladder) -> Vec<(Rung, u64)> {
        std::iter::successors(ladder.next(Rung::Well), |(rung, _)| ladder.next(*rung)).collect()
    }

    #[test]
    fn steps_come_in_order_and_only_a_hard_ladder_ends_the_process() {
        let (limit, ends) = (Duration::from_secs(10), Duration::from_secs(30));
        for (ladder, last) in
            [(Ladder::soft(limit), Rung::Drain), (Ladder::hard(limit, ends), Rung::Hard)]
        {
            let steps = steps(ladder);
            assert!(steps.windows(2).all(|pair| pair[0] < pair[1] && pair[0].1 < pair[1].1));
            assert_eq!(steps.last().map(|(rung, _)| *rung), Some(last));
        }
        let late = Ladder::hard(limit, ends).releasing(Duration::from_secs(2));
        let released = steps(late).into_iter().find(|(rung, _)| *rung == Rung::Release);
        assert_eq!(released, Some((Rung::Release, 27_500_000_000)), "not in the last moment");
        for before_end in [Duration::ZERO, Duration::from_secs(4), limit * 100] {
            let steps = steps(Ladder::hard(limit, ends).releasing(before_end));
            assert!(steps.windows(2).all(|pair| pair[0].1 < pair[1].1), "{steps:?}");
        }
        let near = steps(Ladder::hard(limit, limit));
        assert!(near.windows(2).all(|pair| pair[0].1 < pair[1].1), "{near:?}");
    }
}
