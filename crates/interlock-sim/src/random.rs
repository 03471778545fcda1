//! Numbers that look random and are not: a stream is its seed (splitmix64).
//!
//! Streams are split off by name, so that what one part of the world draws does not depend on how much another
//! part has drawn.

use interlock_core::id::fnv1a;

/// A stream of numbers.
#[derive(Debug, Clone)]
pub struct Random(u64);

impl Random {
    /// The stream of a seed.
    pub fn new(seed: u64) -> Self {
        Self(mixed(seed ^ 0x5851_f42d_4c95_7f2d))
    }

    /// A stream of its own for a purpose; the same for the same seed and name.
    pub fn of(seed: u64, name: &str) -> Self {
        Self::new(seed ^ fnv1a(name.as_bytes()).rotate_left(17))
    }

    /// The next number.
    pub fn draw(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mixed(self.0)
    }

    /// A number below a bound; 0 when the bound is 0.
    pub fn below(&mut self, bound: u64) -> u64 {
        self.draw() % bound.max(1)
    }

    /// A number from `low` to `high`, both included.
    pub fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high.saturating_sub(low) + 1)
    }

    /// True so many times out of a thousand.
    pub fn chance(&mut self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// One of several; the first of none is nothing.
    pub fn pick<'a, T>(&mut self, items: &'a [T]) -> Option<&'a T> {
        items.get(self.below(items.len() as u64) as usize)
    }

    /// A number around a mean, often small and sometimes large: the wait for something that happens by chance.
    pub fn wait(&mut self, mean: u64) -> u64 {
        // Minus the logarithm of a number between 0 and 1, in integers: leading zeros are its whole part.
        let zeros = u64::from(self.draw().leading_zeros());
        let rest = self.below(1_000);
        (mean * (zeros * 1_000 + rest) * 693 / 1_000_000).max(1)
    }
}

fn mixed(mut number: u64) -> u64 {
    number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stream_is_its_seed_and_name() {
        let draws = |seed, name| {
            let mut random = Random::of(seed, name);
            (0..4).map(|_| random.draw()).collect::<Vec<_>>()
        };
        assert_eq!(draws(1, "jobs"), draws(1, "jobs"));
        assert_ne!(draws(1, "jobs"), draws(1, "people"));
        assert_ne!(draws(1, "jobs"), draws(2, "jobs"));
    }

    #[test]
    fn waits_are_around_their_mean() {
        let mut random = Random::new(7);
        let sum: u64 = (0..10_000).map(|_| random.wait(3_600)).sum();
        assert!((2_500..5_500).contains(&(sum / 10_000)), "{}", sum / 10_000);
    }
}
