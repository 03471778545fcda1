//! The engine on cron expressions.

#![no_main]

use interlock_fuzz::{budget, cron};

libfuzzer_sys::fuzz_target!(init: cron::prepare(), |data: &[u8]| budget::within(data, cron::run));
