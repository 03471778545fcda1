//! `cargo xtask tidy`: the repository's own rules, where no compiler or lint looks.
//!
//! A rule is a pure function from the repository's files to the problems in them, so that each is
//! tested on a tree of a few lines. Every problem names its place and what to do about it.

mod cases;
mod deploy;
mod docs;
mod modules;
mod rooms;
mod sources;
mod waits;

use std::{fmt, path::Path};

use crate::{
    metadata, shell,
    tools::{self, Need},
};

/// A file of the repository.
#[derive(Debug, Clone, PartialEq, Eq)]
struct File {
    /// Its path from the root, with slashes.
    path: String,
    /// What it says; bytes that are not UTF-8 are replaced.
    text: String,
}

/// Something to put right.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Problem {
    path: String,
    line: usize,
    /// What is wrong and what to do.
    message: String,
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { path, line, message } = self;
        write!(f, "{path}:{line}: {message}")
    }
}

impl File {
    /// A problem at a line of this file, counted from 1.
    fn problem(&self, line: usize, message: impl Into<String>) -> Problem {
        Problem { path: self.path.clone(), line, message: message.into() }
    }

    /// The lines with their numbers, counted from 1.
    fn lines(&self) -> impl Iterator<Item = (usize, &str)> {
        self.text.lines().enumerate().map(|(index, line)| (index + 1, line))
    }

    fn is_rust(&self) -> bool {
        has_extension(&self.path, "rs")
    }
}

fn has_extension(path: &str, extension: &str) -> bool {
    Path::new(path).extension().is_some_and(|found| found == extension)
}

/// A rule about the files.
type Rule = fn(&[File]) -> Vec<Problem>;

/// The rules that need only the files.
const RULES: &[Rule] = &[
    rooms::check_core_sources,
    sources::check_module_docs,
    sources::check_leftovers,
    sources::check_names,
    modules::check_orphans,
    waits::check_waits,
    docs::check_architecture,
    docs::check_decisions,
    cases::check_cases,
    deploy::check_image,
    deploy::check_compose,
    deploy::check_units,
];

/// Checks all rules and prints every problem.
pub(crate) fn run(arguments: &[String]) -> Result<(), String> {
    shell::no_arguments(arguments)?;
    tools::ensure(Need::Tidy)?;
    let files = files()?;
    let mut problems: Vec<Problem> = RULES.iter().flat_map(|rule| rule(&files)).collect();
    problems.extend(rooms::check_directions(&metadata::packages()?, &files));
    problems.extend(rooms::check_core_closure(&metadata::closure(rooms::CORE)?));
    problems.sort_by(|a, b| (&a.path, a.line).cmp(&(&b.path, b.line)));
    for problem in &problems {
        println!("{problem}");
    }
    match problems.len() {
        0 => Ok(()),
        count => Err(format!("tidy found {count} to put right")),
    }
}

/// Reads every file that git tracks or would track.
fn files() -> Result<Vec<File>, String> {
    let arguments = ["ls-files", "-z", "--cached", "--others", "--exclude-standard"];
    let listed = shell::output(shell::program("git").args(arguments))?;
    let mut files = Vec::new();
    for path in listed.split_terminator('\0') {
        let full = shell::root().join(path);
        if full.is_file() {
            let bytes = std::fs::read(&full).map_err(|error| format!("{path}: {error}"))?;
            let text = String::from_utf8_lossy(&bytes).into_owned();
            files.push(File { path: path.to_owned(), text });
        }
    }
    Ok(files)
}

/// A tree for a test.
#[cfg(test)]
fn tree(files: &[(&str, &str)]) -> Vec<File> {
    let file = |(path, text): &(&str, &str)| File { path: (*path).into(), text: (*text).into() };
    files.iter().map(file).collect()
}

/// The problems as they are printed, for a test.
#[cfg(test)]
fn printed(problems: &[Problem]) -> Vec<String> {
    problems.iter().map(ToString::to_string).collect()
}
