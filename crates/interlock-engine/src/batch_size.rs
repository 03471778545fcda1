//! How many groups one commit takes: as many as the store takes well.
//!
//! A commit is one call, and the loop that waits for it shows no progress meanwhile. Two thousand groups are a moment for a store that is well;
//! on a starved machine they took so long that the guard took the engine for hung. So a
//! commit begins small, grows while the answers are quick, and shrinks when one was slow: a slow store makes the engine slow, not dead.

use std::time::Duration;

/// What one transaction of the smallest engine takes in one go.
const MOST: usize = 2_000;
/// What an engine begins with, before it knows its store: half of what one script of Redis takes.
const FIRST: usize = 250;
/// Fewer are not quicker: each call has a price of its own.
const LEAST: usize = 25;
/// After a quick answer the next commit is twice as large, after a slow one a quarter. Two commits are under way at once, so an
/// answer comes after twice the time that its own groups take.
const QUICK: Duration = Duration::from_millis(500);
const SLOW: Duration = Duration::from_secs(2);
/// That a store was quick is believed for so long.
const BELIEVED_FOR: Duration = Duration::from_mins(1);

/// How many groups the next commit takes.
#[derive(Debug, Clone, Copy)]
pub(crate) struct BatchSize {
    groups: usize,
    /// When the store last answered a commit that was as large as this.
    learned_at: Duration,
}

/// A commit that was answered.
#[derive(Debug, Clone, Copy)]
pub(crate) struct AnsweredCommit {
    pub(crate) groups: usize,
    /// When it was handed in, and when its answer came, by the monotonic clock.
    pub(crate) asked_at: Duration,
    pub(crate) answered_at: Duration,
}

impl Default for BatchSize {
    fn default() -> Self {
        Self { groups: FIRST, learned_at: Duration::ZERO }
    }
}

impl BatchSize {
    /// How many groups a commit takes that is handed in now.
    pub(crate) fn groups(self, now: Duration) -> usize {
        let is_old = now.saturating_sub(self.learned_at) > BELIEVED_FOR;
        if is_old { self.groups.min(FIRST) } else { self.groups }
    }

    /// Learns from a commit.
    pub(crate) fn learn(&mut self, commit: AnsweredCommit) {
        let AnsweredCommit { groups, asked_at, answered_at } = commit;
        let took = answered_at.saturating_sub(asked_at);
        let size = self.groups(asked_at);
        if took > SLOW {
            // One may have been handed in before the last was known to be too large.
            self.groups = (groups / 4).clamp(LEAST, size.max(LEAST));
            self.learned_at = answered_at;
        } else if groups >= size {
            // A small one says nothing of large ones.
            self.groups = if took <= QUICK { (size * 2).min(MOST) } else { size };
            self.learned_at = answered_at;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The size after a commit of so many groups that began at an instant and took so long, both in milliseconds.
    fn after(size: &mut BatchSize, groups: usize, (began, took): (u64, u64)) -> usize {
        let asked_at = Duration::from_millis(began);
        let answered_at = asked_at + Duration::from_millis(took);
        size.learn(AnsweredCommit { groups, asked_at, answered_at });
        size.groups(answered_at)
    }

    #[test]
    fn a_store_that_is_well_soon_takes_two_thousand_groups_at_once() {
        let mut size = BatchSize::default();
        let sizes = [250, 500, 1_000, 2_000].map(|groups| after(&mut size, groups, (0, 100)));
        assert_eq!(sizes, [500, 1_000, 2_000, 2_000]);
        // Small commits are no reason to believe it any longer.
        assert_eq!(after(&mut size, 3, (50_000, 1)), 2_000);
        assert_eq!(after(&mut size, 3, (61_000, 1)), FIRST);
        assert_eq!(after(&mut size, FIRST, (70_000, 1)), 500, "it begins anew");
    }

    #[test]
    fn a_slow_answer_makes_commits_small_and_few_groups_say_nothing_of_many() {
        let mut size = BatchSize { groups: MOST, learned_at: Duration::ZERO };
        assert_eq!(after(&mut size, MOST, (0, 1_000)), MOST, "neither quick nor slow");
        assert_eq!(after(&mut size, MOST, (1_000, 8_000)), 500);
        assert_eq!(after(&mut size, 3, (9_000, 1)), 500);
        assert_eq!(after(&mut size, MOST, (1_000, 9_000)), 500, "it was under way by then");
        let sizes = [125, 31, LEAST, LEAST];
        for (number, expected) in (0..).zip(sizes) {
            let groups = size.groups(Duration::from_secs(10));
            assert_eq!(after(&mut size, groups, (10_000 + number, 3_000)), expected);
        }
        assert_eq!(after(&mut size, LEAST, (20_000, 400)), 2 * LEAST, "and it grows again");
        assert_eq!(size.groups(Duration::from_mins(10)), 2 * LEAST, "no old trust makes it larger");
    }
}
