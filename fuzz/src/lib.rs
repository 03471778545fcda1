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

    /// Runs a target on every file of a folder, and says how many there were.
    fn replay(folder: &str, target: &str, run: fn(&[u8])) -> usize {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join(folder).join(target);
        let files: Vec<_> =
            fs::read_dir(folder).into_iter().flatten().map(|file| file.unwrap().path()).collect();
        for file in &files {
            println!("{}", file.display());
            run(&fs::read(file).unwrap());
        }
        files.len()
    }

    #[test]
    fn cron_takes_its_seeds() {
        assert_ne!(replay("seeds", "cron", super::cron::run), 0);
    }

    #[test]
    fn duration_takes_its_seeds() {
        assert_ne!(replay("seeds", "duration", super::duration::run), 0);
    }

    #[test]
    fn yaml_takes_its_seeds() {
        assert_ne!(replay("seeds", "yaml", super::yaml::pipeline), 0);
        assert_ne!(replay("seeds", "yaml", super::yaml::config), 0);
    }

    /// Only optimised code is held to the budget: `cargo xtask fuzz` runs this after fuzzing.
    #[cfg(not(debug_assertions))]
    #[test]
    fn everything_found_keeps_the_budget() {
        use super::budget::within;
        super::yaml::prepare();
        let mut files = 0;
        for folder in ["seeds", "corpus"] {
            files += replay(folder, "cron", |data| within(data, super::cron::run));
            files += replay(folder, "duration", |data| within(data, super::duration::run));
            files += replay(folder, "yaml", |data| within(data, super::yaml::pipeline));
            files += replay(folder, "yaml", |data| within(data, super::yaml::config));
        }
        println!("{files} inputs keep the budget");
    }
}
