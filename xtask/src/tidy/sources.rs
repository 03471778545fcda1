//! Rules about single source files: a doc on top, nothing left over, a name that says something.

use super::{File, Problem};

/// Every source file begins with a module doc.
pub(super) fn check_module_docs(files: &[File]) -> Vec<Problem> {
    files
        .iter()
        .filter(|file| file.is_rust() && !file.text.starts_with("//! "))
        .map(|file| {
            file.problem(1, "begin the file with a `//!` doc: what it is, and why it is so")
        })
        .collect()
}

/// What must not stay behind, and what to do instead. Split, so that this file does not offend.
const LEFTOVERS: &[(&str, &str)] = &[
    (concat!("FIX", "ME"), "put it right, or file an issue and name it"),
    (concat!("X", "XX"), "put it right, or file an issue and name it"),
    (concat!("to", "do!"), "write the code, or leave its caller out"),
    (concat!("unimpl", "emented!"), "write the code, or leave its caller out"),
    (concat!("db", "g!"), "take it out"),
    (concat!("#[ig", "nore"), "assert today's answer with a comment, or delete the test"),
];

/// The one mark that may stay, if it names an issue.
const LATER: &str = concat!("TO", "DO");

/// The kinds of files that are searched for leftovers.
const SEARCHED: &[&str] = &[".rs", ".toml", ".yaml", ".yml", ".sh", ".ci/run"];

/// Nothing unfinished stays behind.
pub(super) fn check_leftovers(files: &[File]) -> Vec<Problem> {
    let searched = |file: &&File| SEARCHED.iter().any(|end| file.path.ends_with(end));
    let mut problems = Vec::new();
    for file in files.iter().filter(searched) {
        for (number, line) in file.lines() {
            let found = LEFTOVERS.iter().filter(|(word, _)| has_word(line, word));
            problems.extend(
                found.map(|(word, cure)| file.problem(number, format!("`{word}`: {cure}"))),
            );
            if has_word(line, LATER) && !names_issue(line) {
                let cure = format!("write `{LATER}(#123)` with the number of its issue");
                problems.push(file.problem(number, cure));
            }
        }
    }
    problems
}

/// Whether a word stands in a line by itself, not as a part of a longer one.
fn has_word(line: &str, word: &str) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    line.match_indices(word).any(|(at, _)| {
        let before = line[..at].chars().next_back();
        let after = line[at + word.len()..].chars().next();
        let open_end = word.ends_with(|c: char| !joins(c)) || !after.is_some_and(joins);
        open_end && !(word.starts_with(joins) && before.is_some_and(joins))
    })
}

fn names_issue(line: &str) -> bool {
    let issue = line.split_once(LATER).and_then(|(_, rest)| rest.strip_prefix("(#"));
    let number = issue.and_then(|rest| rest.split_once(')')).map(|(number, _)| number);
    number.is_some_and(|number| {
        !number.is_empty() && number.chars().all(|digit| digit.is_ascii_digit())
    })
}

/// Names under which anything can be put, and so nothing is found.
const EMPTY_NAMES: &[&str] =
    &["common", "helper", "helpers", "manager", "misc", "types", "util", "utils", "v2"];

/// Files are named after what is in them.
pub(super) fn check_names(files: &[File]) -> Vec<Problem> {
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is_rust()) {
        let stem = file.path.trim_end_matches(".rs");
        if let Some(name) = stem.split('/').find(|part| EMPTY_NAMES.contains(part)) {
            let cure = format!("`{name}` says nothing: name the file after the idea in it");
            problems.push(file.problem(1, cure));
        }
        if stem.rsplit('/').next() == Some("mod") {
            problems.push(file.problem(1, "write `name.rs` beside `name/`, not `name/mod.rs`"));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{printed, tree};

    #[test]
    fn source_without_module_doc_is_reported() {
        let files = tree(&[
            ("a.rs", "//! What it is.\n"),
            ("b.rs", "use std::fmt;\n"),
            ("c.rs", ""),
            ("d.md", "# no Rust\n"),
        ]);
        let places: Vec<_> =
            check_module_docs(&files).into_iter().map(|problem| problem.path).collect();
        assert_eq!(places, ["b.rs", "c.rs"]);
    }

    fn leftovers(line: &str) -> usize {
        check_leftovers(&tree(&[("a.rs", line)])).len()
    }

    #[test]
    fn each_leftover_is_reported_once() {
        for (word, _) in LEFTOVERS {
            assert_eq!(leftovers(&format!("    {word} here")), 1, "{word}");
        }
    }

    #[test]
    fn longer_words_are_no_leftovers() {
        for line in ["let XXXL = 1;", "my_todo!()", "TODOS", "#[expect(unused)]"] {
            assert_eq!(leftovers(line), 0, "{line}");
        }
    }

    #[test]
    fn later_is_allowed_with_an_issue() {
        assert_eq!(leftovers(concat!("// TO", "DO(#12): the rest.")), 0);
        for rest in ["", ": the rest", "(me)", "(#)", "(#x)"] {
            assert_eq!(leftovers(&format!("// {LATER}{rest}")), 1, "{rest}");
        }
    }

    #[test]
    fn leftover_is_reported_at_its_line() {
        let text = format!("//! Doc.\n\n{}();\n", LEFTOVERS[2].0);
        let problems = printed(&check_leftovers(&tree(&[("x/a.rs", &text)])));
        assert!(problems[0].starts_with("x/a.rs:3: "), "{problems:?}");
    }

    #[test]
    fn prose_may_speak_of_leftovers() {
        assert_eq!(check_leftovers(&tree(&[("a.md", LEFTOVERS[0].0)])), []);
    }

    #[test]
    fn empty_names_are_reported() {
        let paths = ["src/utils.rs", "tests/common/cast.rs", "src/mod.rs", "src/manager.rs"];
        for path in paths {
            assert_eq!(check_names(&tree(&[(path, "")])).len(), 1, "{path}");
        }
        for path in ["src/backoff.rs", "src/commonwealth.rs", "docs/utils.md"] {
            assert_eq!(check_names(&tree(&[(path, "")])), [], "{path}");
        }
    }
}
