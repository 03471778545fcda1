//! Whether the wall clock can be believed (S15).
//!
//! A clock that jumps forward makes everything look late: a month of slots is owed at once, every deadline has passed.
//! The machine has another clock that nobody sets and that counts sleep too. Where both went forward, time passed. Where
//! only the wall clock did, somebody set it, perhaps wrongly, so nothing is planned by it until it has held for a while,
//! has gone back, or a person said that it is right. A clock that goes back needs no such care: watermarks do not.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};

/// A step forward that is larger than this is doubted.
pub const STEP_MAX: SignedDuration = SignedDuration::from_secs(60);
/// A clock that has held for so long is believed again.
pub const HOLDS_FOR: Duration = Duration::from_mins(5);

/// The wall clock, watched by the clock that nobody sets.
#[derive(Debug, Clone, Default)]
pub struct ClockWatch {
    /// What both said last.
    last: Option<Reading>,
    doubt: Option<Doubt>,
}

/// Both clocks at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Reading {
    wall: Timestamp,
    /// Since the machine was started, sleep included.
    boot: Duration,
}

/// Why the wall clock is not believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Doubt {
    /// How far it jumped.
    pub by: SignedDuration,
    /// What both said before.
    before: Reading,
    /// Since when it holds, by the other clock.
    since: Duration,
}

/// What a look at the clocks found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Look {
    /// It can be believed, as before.
    Steady,
    /// It just jumped.
    Jumped(SignedDuration),
    /// It is still doubted.
    Doubted,
    /// It is believed again.
    Settled,
}

impl Look {
    /// Whether anything may be planned by it.
    pub fn is_believed(self) -> bool {
        match self {
            Self::Steady | Self::Settled => true,
            Self::Jumped(_) | Self::Doubted => false,
        }
    }
}

impl Doubt {
    /// The instant from which it jumped, by the clock before that.
    pub fn jumped_at(&self) -> Timestamp {
        self.before.wall
    }
}

impl Reading {
    /// How far the wall clock is ahead of where the other one says it should be.
    fn step_to(self, now: Self) -> SignedDuration {
        let passed = now.boot.saturating_sub(self.boot);
        let passed = SignedDuration::try_from(passed).unwrap_or(SignedDuration::MAX);
        now.wall.duration_since(self.wall).saturating_sub(passed)
    }
}

impl ClockWatch {
    /// Looks at both clocks.
    pub fn look(&mut self, wall: Timestamp, boot: Duration) -> Look {
        let now = Reading { wall, boot };
        let Some(last) = self.last.replace(now) else { return Look::Steady };
        let step = last.step_to(now);
        let Some(doubt) = &mut self.doubt else {
            if step <= STEP_MAX {
                return Look::Steady;
            }
            self.doubt = Some(Doubt { by: step, before: last, since: boot });
            return Look::Jumped(step);
        };
        if step.abs() > STEP_MAX {
            doubt.since = boot;
        }
        let went_back = doubt.before.step_to(now).abs() <= STEP_MAX;
        if !went_back && boot.saturating_sub(doubt.since) < HOLDS_FOR {
            return Look::Doubted;
        }
        self.doubt = None;
        Look::Settled
    }

    /// Somebody says that it is right.
    pub fn confirm(&mut self) {
        if let Some(doubt) = &mut self.doubt {
            // As if it had held for long enough; the next look says so.
            doubt.before = self.last.unwrap_or(doubt.before);
        }
    }

    /// Why it is doubted, if it is.
    pub fn doubt(&self) -> Option<Doubt> {
        self.doubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Looks at both clocks at these seconds, wall clock first.
    fn looks(seconds: &[(i64, u64)]) -> Vec<Look> {
        let mut watch = ClockWatch::default();
        let look = |(wall, boot): &(i64, u64)| {
            watch.look(Timestamp::from_second(*wall).unwrap(), Duration::from_secs(*boot))
        };
        seconds.iter().map(look).collect()
    }

    #[test]
    fn s15_a_step_that_the_other_clock_confirms_is_time_that_passed() {
        // A laptop slept for a day; the clock was slewed; it was set back.
        let found = looks(&[(0, 0), (1, 1), (86_401, 86_401), (86_460, 86_402), (50_000, 86_403)]);
        assert_eq!(found, [Look::Steady; 5]);
    }

    #[test]
    fn s15_a_step_that_it_does_not_confirm_is_doubted_until_it_held_for_five_minutes() {
        let jump = SignedDuration::from_secs(3_600);
        let found =
            looks(&[(0, 0), (3_601, 1), (3_602, 2), (3_899, 299), (3_902, 302), (3_903, 303)]);
        let expected = [
            Look::Steady,
            Look::Jumped(jump),
            Look::Doubted,
            Look::Doubted,
            Look::Settled,
            Look::Steady,
        ];
        assert_eq!(found, expected);
        assert_eq!(expected.map(Look::is_believed), [true, false, false, false, true, true]);
        // One that jumps again begins again.
        let found = looks(&[(0, 0), (3_601, 1), (7_200, 200), (7_400, 400), (7_501, 501)]);
        assert_eq!(found[3..], [Look::Doubted, Look::Settled]);
    }

    #[test]
    fn s15_a_clock_that_went_back_to_where_it_was_is_believed_at_once() {
        let found = looks(&[(0, 0), (3_601, 1), (3_602, 2), (3, 3), (4, 4)]);
        assert_eq!(found[2..], [Look::Doubted, Look::Settled, Look::Steady]);
    }

    #[test]
    fn s15_a_clock_that_somebody_confirms_is_believed_at_the_next_look() {
        let mut watch = ClockWatch::default();
        let mut look = |wall, boot| {
            let look = watch.look(Timestamp::from_second(wall).unwrap(), Duration::from_secs(boot));
            watch.confirm();
            look
        };
        assert_eq!(look(0, 0), Look::Steady);
        assert!(matches!(look(3_601, 1), Look::Jumped(_)));
        assert_eq!(look(3_602, 2), Look::Settled);
    }
}
