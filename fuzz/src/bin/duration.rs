//! The engine on durations.

#![no_main]

use interlock_fuzz::{budget, duration};

libfuzzer_sys::fuzz_target!(|data: &[u8]| budget::within(data, duration::run));
