//! Fuzz targets: texts that people write, read without panic, hang or delay.
//!
//! Each module is one target: a function from bytes to nothing that panics when something is wrong.
//! The binaries in `src/bin/` hand them to the engine under a time budget (`cargo xtask fuzz`); the
//! tests here run them over the checked-in seeds without an engine (`cargo xtask test`).

pub mod budget;
pub mod cron;
pub mod duration;
pub mod yaml;

use interlock_core::text::TextError;

/// Bad input gets a sentence that a person can act on, at characters that exist.
fn check_error(text: &str, error: &TextError) {
    assert!(!error.message.is_empty(), "no message for {text:?}");
    assert!(
        text.get(error.span.clone()).is_some(),
        "{:?} is no part of {text:?}: {error}",
        error.span
    );
}

#[cfg(test)]
mod tests {
    use std::{fs, path::Path};

    fn replay(target: &str, run: fn(&[u8])) {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("seeds").join(target);
        let seeds: Vec<_> =
            fs::read_dir(folder).unwrap().map(|seed| seed.unwrap().path()).collect();
        assert!(!seeds.is_empty());
        for seed in seeds {
            println!("{}", seed.display());
            run(&fs::read(seed).unwrap());
        }
    }

    #[test]
    fn cron_takes_its_seeds() {
        replay("cron", super::cron::run);
    }

    #[test]
    fn duration_takes_its_seeds() {
        replay("duration", super::duration::run);
    }

    #[test]
    fn yaml_takes_its_seeds() {
        replay("yaml", super::yaml::pipeline);
        replay("yaml", super::yaml::config);
    }
}
