//! How long the notifier waits, and how often it tries.

use jiff::SignedDuration;

/// How long, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How often the outbox is looked at.
    pub look: SignedDuration,
    /// How soon a reason not to tell is looked at again, whatever it says itself: it may be taken back.
    pub ask_again: SignedDuration,
    /// How long a claim lasts: longer than any try.
    pub claim: SignedDuration,
    /// What a try may take: with a claim that lasts no longer none is begun.
    pub try_max: SignedDuration,
    /// The pause after the first failure; it doubles.
    pub pause: SignedDuration,
    /// The longest pause.
    pub pause_max: SignedDuration,
    /// So many tries, then it is a dead letter.
    pub tries_max: u32,
    /// Older than this and still not delivered: a dead letter.
    pub age_max: SignedDuration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            look: SignedDuration::from_millis(500),
            ask_again: SignedDuration::from_mins(1),
            claim: SignedDuration::from_secs(20),
            try_max: SignedDuration::from_secs(10),
            pause: SignedDuration::from_secs(5),
            pause_max: SignedDuration::from_mins(15),
            tries_max: 12,
            age_max: SignedDuration::from_hours(24),
        }
    }
}

impl Patience {
    /// The pause after so many failures.
    pub(super) fn pause_after(&self, failures: u32) -> SignedDuration {
        let factor = 2_i32.saturating_pow(failures.saturating_sub(1).min(30));
        self.pause.checked_mul(factor).unwrap_or(self.pause_max).min(self.pause_max)
    }
}
