//! No orphans: every source file is reached from its crate by `mod` declarations.
//!
//! The compiler never sees a file that nobody declares, so such a file looks alive while nothing
//! checks or runs it.

use std::collections::{BTreeMap, BTreeSet};

use super::{File, Problem};

/// The folders of a crate in which every source file must be reached.
const FOLDERS: &[&str] = &["src", "tests", "benches", "examples"];

/// Every source file belongs to a crate.
pub(super) fn check_orphans(files: &[File]) -> Vec<Problem> {
    let sources: BTreeMap<&str, &File> =
        files.iter().filter(|file| file.is_rust()).map(|file| (file.path.as_str(), file)).collect();
    let manifests = files.iter().filter_map(|file| file.path.strip_suffix("Cargo.toml"));
    let mut problems = Vec::new();
    for crate_folder in manifests {
        let inside: BTreeSet<&str> = sources
            .keys()
            .copied()
            .filter(|path| path.strip_prefix(crate_folder).is_some_and(in_checked_folder))
            .collect();
        let reached = reached(crate_folder, &inside, &sources);
        problems.extend(inside.difference(&reached).filter_map(|path| sources.get(path)).map(
            |file| file.problem(1, "no `mod` declaration reaches this file: declare or delete it"),
        ));
    }
    problems
}

fn in_checked_folder(path: &str) -> bool {
    path.split_once('/').is_some_and(|(folder, _)| FOLDERS.contains(&folder))
}

/// The files that a crate is compiled from.
fn reached<'a>(
    crate_folder: &str,
    inside: &BTreeSet<&'a str>,
    sources: &BTreeMap<&str, &'a File>,
) -> BTreeSet<&'a str> {
    let is_root = |path: &&str| path.strip_prefix(crate_folder).is_some_and(is_crate_root);
    let mut reached: BTreeSet<&str> = inside.iter().copied().filter(is_root).collect();
    let mut open: Vec<&str> = reached.iter().copied().collect();
    while let Some(path) = open.pop() {
        let Some(file) = sources.get(path) else { continue };
        let folder = if is_root(&path) { parent(path) } else { path.trim_end_matches(".rs") };
        for child in declared(file).map(|name| format!("{folder}/{name}.rs")) {
            if let Some(child) = inside.get(child.as_str())
                && reached.insert(child)
            {
                open.push(child);
            }
        }
    }
    reached
}

/// Whether cargo takes a file, named from its crate's folder, for the root of a target.
fn is_crate_root(path: &str) -> bool {
    match path.split('/').collect::<Vec<_>>()[..] {
        ["src", "lib.rs" | "main.rs"] | ["src", "bin", _] | ["src", "bin", _, "main.rs"] => true,
        [folder, _] | [folder, _, "main.rs"] => folder != "src",
        _ => false,
    }
}

fn parent(path: &str) -> &str {
    path.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The names in a file's `mod name;` lines.
fn declared(file: &File) -> impl Iterator<Item = &str> {
    file.text.lines().filter_map(|line| {
        let line = line.trim().strip_suffix(';')?;
        let line = line.strip_prefix("pub").map_or(line, |rest| match rest.split_once(')') {
            Some((visibility, rest)) if visibility.starts_with('(') => rest.trim_start(),
            _ => rest.trim_start(),
        });
        line.strip_prefix("mod ").map(str::trim)
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    fn orphans(files: &[(&str, &str)]) -> Vec<String> {
        check_orphans(&tree(files)).into_iter().map(|problem| problem.path).collect()
    }

    #[test]
    fn declared_modules_are_reached_through_any_visibility() {
        let files = [
            ("a/Cargo.toml", ""),
            ("a/src/lib.rs", "pub mod one;\nmod two;\npub(crate) mod three;\n"),
            ("a/src/one.rs", "mod deep;\n"),
            ("a/src/one/deep.rs", ""),
            ("a/src/two.rs", ""),
            ("a/src/three.rs", ""),
        ];
        assert_eq!(orphans(&files), Vec::<String>::new());
    }

    #[test]
    fn undeclared_module_is_an_orphan_and_so_are_its_children() {
        let files = [
            ("a/Cargo.toml", ""),
            ("a/src/lib.rs", "// mod lost;\n"),
            ("a/src/lost.rs", "mod deep;\n"),
            ("a/src/lost/deep.rs", ""),
        ];
        assert_eq!(orphans(&files), ["a/src/lost.rs", "a/src/lost/deep.rs"]);
    }

    #[test]
    fn a_declaration_reaches_only_its_own_folder() {
        let files = [
            ("a/Cargo.toml", ""),
            ("a/src/main.rs", "mod one;\n"),
            ("a/src/one.rs", ""),
            ("a/src/other/one.rs", ""),
        ];
        assert_eq!(orphans(&files), ["a/src/other/one.rs"]);
    }

    #[test]
    fn tests_benches_and_binaries_are_roots() {
        let files = [
            ("Cargo.toml", ""),
            ("a/Cargo.toml", ""),
            ("a/src/bin/tool.rs", ""),
            ("a/tests/it/main.rs", "mod cli;\n"),
            ("a/tests/it/cli.rs", ""),
            ("a/tests/it/lost.rs", ""),
            ("a/tests/oracle.rs", ""),
            ("a/benches/next.rs", ""),
            ("a/build.rs", ""),
        ];
        assert_eq!(orphans(&files), ["a/tests/it/lost.rs"]);
    }
}
