//! The time that an input may take: 1 ms for each KiB, and 1 ms for less than one.

use std::time::{Duration, Instant};

const PER_KIB: Duration = Duration::from_millis(1);

/// The engine's counters make the code several times slower. While fuzzing, only what is far over the
/// budget fails; `cargo xtask fuzz` then runs all it found without counters, on the exact budget.
const COUNTERS_COST: u32 = if cfg!(fuzzing) { 10 } else { 1 };

/// How often an input is tried before it counts as slow: the quickest try decides, so that a busy
/// machine is not taken for slow code.
const TRIES: u32 = 5;

/// Runs a target on an input.
///
/// # Panics
///
/// When the target panics, and when every try took longer than the input's budget.
#[expect(clippy::disallowed_methods, reason = "the time that code really takes is measured here")]
pub fn within(data: &[u8], run: fn(&[u8])) {
    let budget = budget(data.len()) * COUNTERS_COST;
    let mut quickest = Duration::MAX;
    for _ in 0..TRIES {
        let start = Instant::now();
        run(data);
        quickest = quickest.min(start.elapsed());
        if quickest <= budget {
            return;
        }
    }
    panic!(
        "{} bytes took {quickest:?} at best of {TRIES} tries; the budget is {budget:?}",
        data.len()
    );
}

fn budget(bytes: usize) -> Duration {
    PER_KIB.max(PER_KIB.mul_f64(bytes as f64 / 1024.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budget_grows_with_the_input_from_a_floor() {
        assert_eq!(budget(0), Duration::from_millis(1));
        assert_eq!(budget(1024), Duration::from_millis(1));
        assert_eq!(budget(4096), Duration::from_millis(4));
    }

    #[test]
    fn quick_input_passes() {
        within(b"quick", |_| {});
    }

    #[test]
    #[should_panic(expected = "the budget is 1ms")]
    fn slow_input_fails() {
        within(b"slow", |_| std::thread::sleep(Duration::from_millis(2)));
    }
}
