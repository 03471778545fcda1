//! `cargo xtask mutants`: whether the watchdog's tests notice when one of its checks finds nothing any more.
//!
//! The repository's files are copied aside, with a target folder of their own. In the copy each line of the table of checks
//! is replaced in turn by a check that finds nothing, and the watchdog's tests are run: at least one must fail. Not
//! part of `cargo xtask test`, because it builds the watchdog once for each check.

use std::{fs, path::Path, process::Stdio};

use crate::{metadata, shell};

/// The table, and how its lines begin.
const TABLE: &str = "crates/interlock-watchdog/src/check.rs";
const LINE: &str = "    (CheckName::";

/// Runs all mutants, or those whose name contains the filter.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    let filter = match arguments {
        [] => "",
        [filter] if !filter.starts_with('-') => filter.as_str(),
        _ => return Err("mutants takes one filter at most; see `cargo xtask help`".to_owned()),
    };
    let home = metadata::target_directory()?.join("mutants");
    let source = home.join("source");
    copy_the_repository(&source)?;
    let table = source.join(TABLE);
    let original = fs::read_to_string(&table).map_err(|error| format!("{TABLE}: {error}"))?;
    println!("── as it is");
    if !failing(&home)?.is_empty() {
        return Err("the watchdog's tests fail without any mutant".to_owned());
    }
    let mut survivors = Vec::new();
    for (name, mutant) in mutants(&original) {
        if !name.to_lowercase().contains(&filter.to_lowercase()) {
            continue;
        }
        fs::write(&table, mutant).map_err(|error| format!("{TABLE}: {error}"))?;
        let failed = failing(&home)?;
        match failed.as_slice() {
            [] => survivors.push(name),
            [first, ..] => println!("{name}: noticed by {} tests, {first} first", failed.len()),
        }
    }
    fs::write(&table, original).map_err(|error| format!("{TABLE}: {error}"))?;
    if survivors.is_empty() {
        return Ok(());
    }
    Err(format!("nobody notices that these find nothing: {}", survivors.join(", ")))
}

/// Each line of the table in turn, replaced by a check that finds nothing.
fn mutants(table: &str) -> Vec<(String, String)> {
    let checks = table.lines().filter(|line| line.starts_with(LINE) && line.ends_with("),"));
    checks
        .filter_map(|line| {
            let name = line.strip_prefix(LINE)?.split(',').next()?;
            let nothing = format!("{LINE}{name}, |_, _| Vec::new()),");
            Some((name.to_owned(), table.replacen(line, &nothing, 1)))
        })
        .collect()
}

/// The names of the watchdog's tests that fail in the copy. What does not compile is an error, not a failure.
fn failing(home: &Path) -> Result<Vec<String>, String> {
    let run = |arguments: &[&str]| {
        let mut command = shell::cargo(&["test", "--quiet", "-p", "interlock-watchdog"]);
        command.args(arguments).current_dir(home.join("source"));
        command.env("CARGO_TARGET_DIR", home.join("target"));
        command.stderr(Stdio::null());
        command.output().map_err(|error| format!("{}: {error}", shell::line(&command)))
    };
    let built = run(&["--tests", "--no-run"])?;
    if !built.status.success() {
        return Err("the watchdog or its tests cannot be built".to_owned());
    }
    let tested = run(&["--tests", "--no-fail-fast"])?;
    let printed = String::from_utf8_lossy(&tested.stdout).into_owned();
    let names = printed.lines().skip_while(|line| *line != "failures:").filter_map(|line| {
        line.strip_prefix("    ").filter(|name| !name.contains(' ') && name.contains("::"))
    });
    let mut names: Vec<String> = names.map(str::to_owned).collect();
    names.sort();
    names.dedup();
    if names.is_empty() && !tested.status.success() {
        names.push("something".to_owned());
    }
    Ok(names)
}

/// Copies what is tracked or would be; what is already the same is left, so that less is built.
fn copy_the_repository(to: &Path) -> Result<(), String> {
    let list = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let files = shell::output(shell::program("git").args(list))?;
    for file in files.split('\0').filter(|file| !file.is_empty()) {
        let (from, to) = (shell::root().join(file), to.join(file));
        let Ok(text) = fs::read(&from) else { continue };
        if fs::read(&to).is_ok_and(|known| known == text) {
            continue;
        }
        let folder = to.parent().unwrap_or(&to);
        fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))?;
        fs::write(&to, text).map_err(|error| format!("{}: {error}", to.display()))?;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_check_of_the_real_table_has_a_mutant() {
        let table = fs::read_to_string(shell::root().join(TABLE)).expect("the table");
        let found = mutants(&table);
        assert_eq!(found.len(), 10);
        for (name, mutant) in found {
            assert!(mutant.contains(&format!("(CheckName::{name}, |_, _| Vec::new()),")));
            assert_eq!(mutant.lines().count(), table.lines().count());
        }
    }
}
