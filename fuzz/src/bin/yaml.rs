//! The engine on configuration files.

#![no_main]

use interlock_fuzz::{budget, yaml};

libfuzzer_sys::fuzz_target!(init: yaml::prepare(), |data: &[u8]| {
    budget::within(data, yaml::pipeline);
    budget::within(data, yaml::config);
});
