//! Rules about the documents: the map names what exists, decisions are numbered without gaps.

use super::{File, Problem, has_extension};

const ARCHITECTURE: &str = "docs/ARCHITECTURE.md";
const ARCHITECTURE_LINES_MAX: usize = 200;
const DECISIONS: &str = "docs/adr/";

/// Folders that exist only after a build or a run.
const MADE_AT_RUN_TIME: &[&str] = &["target", ".interlock"];

/// The map is short, and every path in backticks on it exists.
pub(super) fn check_architecture(files: &[File]) -> Vec<Problem> {
    let Some(map) = files.iter().find(|file| file.path == ARCHITECTURE) else { return vec![] };
    let lines = map.lines().count();
    let mut problems = Vec::new();
    if lines > ARCHITECTURE_LINES_MAX {
        let cure = format!("{lines} lines; a map has at most {ARCHITECTURE_LINES_MAX}: cut it");
        problems.push(map.problem(ARCHITECTURE_LINES_MAX + 1, cure));
    }
    for (number, path) in paths_named(map) {
        if !exists(path, files) {
            let cure = format!("`{path}` does not exist: name what is there now");
            problems.push(map.problem(number, cure));
        }
    }
    problems
}

/// The paths in backticks outside code blocks, with their lines.
fn paths_named(map: &File) -> Vec<(usize, &str)> {
    let mut in_block = false;
    let mut paths = Vec::new();
    for (number, line) in map.lines() {
        if line.trim_start().starts_with("```") {
            in_block = !in_block;
        } else if !in_block {
            let quoted = line.split('`').skip(1).step_by(2);
            paths.extend(quoted.filter(|text| is_path(text)).map(|path| (number, path)));
        }
    }
    paths
}

/// Whether a quoted text is meant as a path in this repository.
fn is_path(text: &str) -> bool {
    let plain = |c: char| c.is_ascii_alphanumeric() || matches!(c, '/' | '.' | '-' | '_');
    let shaped = text.contains('/') || has_extension(text, "rs") || has_extension(text, "md");
    let first = text.split('/').next().unwrap_or_default();
    shaped && text.chars().all(plain) && !first.is_empty() && !MADE_AT_RUN_TIME.contains(&first)
}

/// Whether a file or folder has this path, or one that ends with it.
fn exists(path: &str, files: &[File]) -> bool {
    let wanted = format!("/{}", path.trim_end_matches('/'));
    files.iter().any(|file| {
        let whole = format!("/{}", file.path);
        whole.ends_with(&wanted) || whole.contains(&format!("{wanted}/"))
    })
}

/// Decisions are numbered from 0001, each number once.
pub(super) fn check_decisions(files: &[File]) -> Vec<Problem> {
    let mut decisions: Vec<&File> =
        files.iter().filter(|file| file.path.starts_with(DECISIONS)).collect();
    decisions.sort_by(|a, b| a.path.cmp(&b.path));
    let mut problems = Vec::new();
    for (index, file) in decisions.iter().enumerate() {
        let wanted = format!("{:04}-", index + 1);
        let name = &file.path[DECISIONS.len()..];
        if !(name.starts_with(&wanted) && has_extension(name, "md")) {
            let cure = format!("decisions are numbered without gaps: name it `{wanted}title.md`");
            problems.push(file.problem(1, cure));
        }
    }
    problems
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::{printed, tree};

    fn check_map(text: &str) -> Vec<String> {
        let files = [(ARCHITECTURE, text), ("crates/interlock-core/src/cron.rs", "")];
        printed(&check_architecture(&tree(&files)))
    }

    #[test]
    fn named_files_and_folders_exist() {
        let text = "See `crates/interlock-core/`, `crates/interlock-core/src/cron.rs`,\n\
                    `src/cron.rs` and `cron.rs`; not paths: `a/{b,c}`, `/healthz`, `Cron::parse`,\n\
                    `target/criterion`, `interlock-core`.\n```\n`gone/away.rs`\n```\n";
        assert_eq!(check_map(text), Vec::<String>::new());
    }

    #[test]
    fn stale_path_is_reported_at_its_line() {
        let problems = check_map("# Map\n\nSee `crates/interlock-old/` and `gone.rs`.\n");
        assert_eq!(problems.len(), 2);
        assert!(problems[0].starts_with("docs/ARCHITECTURE.md:3: `crates/interlock-old/`"));
    }

    #[test]
    fn part_of_a_name_is_not_the_name() {
        assert_eq!(check_map("`interlock-core/sr` and `on.rs`\n").len(), 2);
    }

    #[test]
    fn long_map_is_reported() {
        assert_eq!(check_map(&"line\n".repeat(200)), Vec::<String>::new());
        let problems = check_map(&"line\n".repeat(201));
        assert!(problems[0].starts_with("docs/ARCHITECTURE.md:201: 201 lines"), "{problems:?}");
    }

    #[test]
    fn decisions_have_every_number_once() {
        let check = |names: &[&str]| {
            let paths: Vec<_> = names.iter().map(|name| format!("{DECISIONS}{name}")).collect();
            let files: Vec<_> = paths.iter().map(|path| (path.as_str(), "")).collect();
            check_decisions(&tree(&files)).len()
        };
        assert_eq!(check(&["0001-a.md", "0002-b.md"]), 0);
        assert_eq!(check(&["0001-a.md", "0003-b.md"]), 1);
        assert_eq!(check(&["0001-a.md", "0001-b.md"]), 1);
        assert_eq!(check(&["0000-a.md"]), 1);
        assert_eq!(check(&["notes.txt"]), 1);
    }
}
