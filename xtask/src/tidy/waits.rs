//! Every wait in a test has a bound: a test that fails by hanging stops the run and does not say where it stands.
//!
//! Test code is `crates/*/tests/`, what `#[cfg(test)]` marks, the private servers and the stores' conformance suite. In it are
//! reported
//!
//! - calls that block until something else happens: for the end of a process or a thread, for a message, for a connection,
//!   for bytes of a pipe or a socket;
//! - loops that sleep, yield or spin and look at no clock.
//!
//! `interlock-wait` has the counterpart of each. A call is left alone inside a `timeout(…)`, and a read in a function that
//! sets a read timeout or accepts by `accept_within`. Where another thing bounds the wait, a comment on the same line or
//! above the statement says which: `// Bounded: the test kills this process`.
//!
//! The rule reads text, not types. It does not see a wait behind another name: a future that is awaited or given to
//! `block_on`, `thread::scope`, a lock, a condition variable, `for message in receiver`, a reader that was made in an earlier
//! statement and whose `lines()` are read, `File::open` on a FIFO, a write to a full pipe, what a script waits for. It takes
//! any look at a clock in a loop for its bound, a loop that neither pauses nor looks at a clock for one that computes, and a
//! method that is called on `self` itself for one that has its own bound. What it overlooks, the test runner ends after ten minutes.

mod source;

use std::ops::Range;

use self::source::{Source, is_part_of_word};
use super::{File, Problem, has_extension};

/// Sources that are test code although the compiler is not told so.
const TEST_SOURCES: &[&str] =
    &["crates/interlock-private-server/src/", "crates/interlock-store-conformance/src/"];

/// Calls that block without a bound, and what to write instead.
const CALLS: &[(&str, &str)] = &[
    (".wait()", "wait_within"),
    (".wait_with_output()", "output_within"),
    (".output()", "output_within"),
    (".status()", "status_within"),
    (".join()", "join_within"),
    (".recv()", "recv_within"),
    (".accept()", "accept_within"),
    (".incoming()", "accept_within"),
    (".lines()", "Lines"),
    (".read(&mut", "set_read_timeout"),
    (".read_line(", "Lines"),
    (".read_until(", "Lines"),
    (".read_to_end(", "read_within"),
    (".read_to_string(&mut", "read_within"),
    (".read_exact(", "set_read_timeout"),
    ("thread::park()", "park_timeout"),
];

/// Calls that make a loop one that waits.
const PAUSES: &[&str] = &["sleep(", "yield_now(", "spin_loop(", "recv_timeout(", "park_timeout("];

/// Words of a loop that looks at a clock.
const CLOCKS: &[&str] = &["elapsed()", "Instant::now()", "deadline"];

/// Begins the comment that says what bounds a wait.
const REASON: &str = "Bounded:";

/// Words that a reason has at least.
const REASON_WORDS: usize = 3;

/// Every wait in test code has a bound.
pub(super) fn check_waits(files: &[File]) -> Vec<Problem> {
    let test_files = declared_test_files(files);
    let mut problems = Vec::new();
    for file in files.iter().filter(|file| is_ours(&file.path)) {
        let source = Source::read(&file.text);
        let is_whole =
            is_test_path(&file.path) || test_files.iter().any(|one| one.holds(&file.path));
        let modules = source.test_modules();
        let is_tested = |at: usize| is_whole || modules.iter().any(|range| range.contains(&at));
        let found = blocking_calls(&source).into_iter().chain(waiting_loops(&source));
        for (at, cure) in found.filter(|(at, _)| is_tested(*at)) {
            match reason(file, &source, at) {
                Reason::Given => {}
                Reason::Missing => problems.push(file.problem(source.line_of(at), cure)),
                Reason::Empty => {
                    let cure = format!("say after `// {REASON}` what ends this wait");
                    problems.push(file.problem(source.line_of(at), cure));
                }
            }
        }
    }
    problems
}

fn is_ours(path: &str) -> bool {
    has_extension(path, "rs") && (path.starts_with("crates/") || path.starts_with("xtask/"))
}

/// Whether everything at a path is test code.
fn is_test_path(path: &str) -> bool {
    path.split('/').nth(2) == Some("tests") || TEST_SOURCES.iter().any(|it| path.starts_with(it))
}

/// A module in a file of its own that is compiled for tests alone, and the folder of its children.
struct TestFile {
    stem: String,
}

impl TestFile {
    fn holds(&self, path: &str) -> bool {
        path.strip_prefix(&self.stem).is_some_and(|rest| rest == ".rs" || rest.starts_with('/'))
    }
}

/// The files that a `#[cfg(test)] mod name;` declares.
fn declared_test_files(files: &[File]) -> Vec<TestFile> {
    let mut found = Vec::new();
    for file in files.iter().filter(|file| is_ours(&file.path)) {
        let is_root = ["/lib.rs", "/main.rs"].iter().any(|end| file.path.ends_with(end));
        let stem = file.path.trim_end_matches(".rs");
        let folder =
            if is_root { stem.rsplit_once('/').map_or("", |(folder, _)| folder) } else { stem };
        let source = Source::read(&file.text);
        let names = source.test_files().into_iter();
        found.extend(names.map(|name| TestFile { stem: format!("{folder}/{name}") }));
    }
    found
}

/// The places of calls that block without a bound, with what to write instead.
fn blocking_calls(source: &Source) -> Vec<(usize, String)> {
    let code = source.code();
    let mut found = Vec::new();
    for (call, counterpart) in CALLS {
        for (at, _) in code.match_indices(call) {
            if blocks(source, at, call) {
                let cure = format!(
                    "`{}` has no bound: use `{counterpart}` (see interlock-wait), or say what ends it: `// {REASON} …`",
                    call.trim_end_matches("&mut").trim_end_matches('('),
                );
                found.push((at, cure));
            }
        }
    }
    found
}

/// Whether a text that looks like a blocking call is one without a bound.
fn blocks(source: &Source, at: usize, call: &str) -> bool {
    let statement = &source.code()[source.statement(at)];
    // Receivers that block on nothing have calls of these names too: a response, the lines of a text.
    let is_meant = match call {
        ".status()" => ["Command::new(", ".arg(", ".args("].iter().any(|it| statement.contains(it)),
        ".lines()" => statement.contains("BufReader::new(") && !statement.contains("File::open("),
        "thread::park()" => !source.code()[..at].ends_with(is_part_of_word),
        _ => true,
    };
    // What is called on `self` alone is a method of our own, which is looked at where it is defined.
    let before = &source.code()[..at];
    let is_own = before.strip_suffix("self").is_some_and(|rest| !rest.ends_with(is_part_of_word));
    let is_read = call.starts_with(".read") || call == ".lines()";
    // `accept_within` bounds the reads of what it accepts.
    let function = &source.code()[source.function(at)];
    let reads_in_time = is_read
        && ["set_read_timeout(Some", "accept_within("].iter().any(|it| function.contains(it));
    is_meant && !is_own && !statement.contains("timeout(") && !reads_in_time
}

/// The places of loops that pause and look at no clock.
fn waiting_loops(source: &Source) -> Vec<(usize, String)> {
    let loops = source.loops();
    let is_innermost = |range: &Range<usize>, at: usize| {
        !loops.iter().any(|(_, other)| {
            other.contains(&at) && range.contains(&other.start) && other.start != range.start
        })
    };
    let mut found = Vec::new();
    for (is_wait, range) in &loops {
        let text = &source.code()[range.clone()];
        let mut pauses = PAUSES.iter().flat_map(|pause| text.match_indices(pause));
        let is_pausing = pauses.any(|(at, _)| is_innermost(range, range.start + at));
        if *is_wait && is_pausing && !CLOCKS.iter().any(|clock| text.contains(clock)) {
            let cure = format!(
                "this loop waits without a bound: use `wait_until` or `wait_for` of interlock-wait, or say what ends it: \
                 `// {REASON} …`"
            );
            found.push((range.start, cure));
        }
    }
    found
}

/// What is said about the bound of a wait.
enum Reason {
    Given,
    Empty,
    Missing,
}

/// Looks for the comment that says what bounds a wait: on its line, or above that line or the statement's first.
fn reason(file: &File, source: &Source, at: usize) -> Reason {
    let lines: Vec<&str> = file.text.lines().collect();
    let (first, own) = (source.line_of(source.statement(at).start), source.line_of(at));
    let above = |number: usize| lines.iter().take(number - 1).rev().take_while(|it| is_comment(it));
    let beside = lines.get(own - 1);
    let said: Vec<&str> = beside
        .into_iter()
        .chain(above(own))
        .chain(above(first))
        .filter_map(|line| line.split_once("//")?.1.split_once(REASON))
        .map(|(_, reason)| reason)
        .collect();
    let is_reason = |reason: &&str| reason.split_whitespace().count() >= REASON_WORDS;
    match said {
        said if said.is_empty() => Reason::Missing,
        said if said.iter().any(is_reason) => Reason::Given,
        _ => Reason::Empty,
    }
}

fn is_comment(line: &str) -> bool {
    line.trim_start().starts_with("//")
}

#[cfg(test)]
mod tests;
