//! Mistakes that other schedulers made, and the tests that would fail on them.
