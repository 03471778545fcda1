//! Where the time of the tests goes: cargo-nextest's lines, counted by group.
//!
//! A group is the first part of a test's name in its binary, so a module of tests such as `interlock::serve kills`. Times are
//! those of the tests, several of which run at once: a group's sum says what it costs, not how much later the run ends.

use std::collections::{BTreeMap, BTreeSet};

use crate::progress::{self, Line, Place};

/// How many groups are shown.
const SHOWN: usize = 10;

/// What cargo-nextest says became of a test.
const PASSED: &str = "PASS";
const ENDINGS: &[&str] =
    &[PASSED, "LEAK", "FAIL", "TIMEOUT", "ABORT", "SIGTERM", "SIGKILL", "SIGSEGV"];

/// The tests that have ended so far.
#[derive(Debug, Default)]
pub(super) struct Groups {
    by_name: BTreeMap<String, Group>,
    /// Which they are: the list of failures at the end of a run repeats their lines.
    ended: BTreeSet<String>,
    /// Tests that were not run.
    left_out: u64,
}

/// One group.
#[derive(Debug, Default, Clone, PartialEq)]
struct Group {
    tests: usize,
    seconds: f64,
    /// The seconds of its longest test, and its name.
    longest: (f64, String),
}

/// A line about a test that ended.
#[derive(Debug, PartialEq)]
struct Ended<'a> {
    word: &'a str,
    seconds: f64,
    count: (u64, u64),
    binary: &'a str,
    test: &'a str,
}

impl Groups {
    /// Reads a line of cargo-nextest's: tests that pass are only counted, all else is shown.
    pub(super) fn read(&mut self, line: &str) -> Line {
        let text = progress::plain(line);
        let Some(ended) = read_ended(&text) else {
            self.left_out += read_left_out(&text).unwrap_or(0);
            return progress::read_cargo(line);
        };
        let Ended { word, seconds, count, binary, test } = ended;
        if !self.ended.insert(format!("{binary} {test}")) {
            return Line::Print;
        }
        let module = test.split_once("::").map_or("", |(module, _)| module);
        let group = self.by_name.entry(format!("{binary} {module}")).or_default();
        group.tests += 1;
        group.seconds += seconds;
        if seconds > group.longest.0 {
            group.longest = (seconds, test.to_owned());
        }
        if word != PASSED {
            return Line::Print;
        }
        Line::At(Place { what: format!("{binary} {test}"), done: Some(count) })
    }

    /// The slowest groups, slowest first.
    fn slowest(&self) -> Vec<(&str, &Group)> {
        let mut groups: Vec<_> =
            self.by_name.iter().map(|(name, group)| (name.trim(), group)).collect();
        groups.sort_by(|(_, one), (_, other)| other.seconds.total_cmp(&one.seconds));
        groups.truncate(SHOWN);
        groups
    }

    /// Prints the slowest groups.
    pub(super) fn print(&self) {
        let slowest = self.slowest();
        if slowest.is_empty() {
            return;
        }
        println!("\n── where the time of the tests goes: the {} slowest groups", slowest.len());
        println!("{:>9} {:>6} {:>9}  group, and its longest test", "seconds", "tests", "longest");
        for (name, Group { tests, seconds, longest: (longest, test) }) in slowest {
            println!("{seconds:>9.1} {tests:>6} {longest:>9.1}  {name}: {test}");
        }
        if self.left_out > 0 {
            println!("{} tests were left out (--without)", self.left_out);
        }
    }
}

/// `Summary [  9.757s] 28 tests run: 28 passed, 4 skipped`
fn read_left_out(text: &str) -> Option<u64> {
    let counts = text.trim_start().strip_prefix("Summary [")?;
    counts.trim_end().strip_suffix(" skipped")?.rsplit_once(' ')?.1.parse().ok()
}

/// `PASS [  12.345s] ( 3/1716) interlock::serve kills::nothing_is_lost`
fn read_ended(text: &str) -> Option<Ended<'_>> {
    let (word, rest) = text.trim_start().split_once(" [")?;
    let word = ENDINGS.iter().find(|ending| **ending == word)?;
    let (seconds, rest) = rest.split_once("s] (")?;
    let (count, rest) = rest.split_once(") ")?;
    let (done, total) = count.split_once('/')?;
    let (binary, test) = rest.trim().split_once(' ')?;
    Some(Ended {
        word,
        seconds: seconds.trim().parse().ok()?,
        count: (done.trim().parse().ok()?, total.trim().parse().ok()?),
        binary,
        test: test.trim(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_test_that_passes_moves_the_progress_line() {
        let line = "        PASS [  12.345s] (   3/1716) interlock::serve kills::nothing_is_lost";
        let what = "interlock::serve kills::nothing_is_lost".to_owned();
        let place = Place { what, done: Some((3, 1716)) };
        assert_eq!(Groups::default().read(line), Line::At(place));
    }

    #[test]
    fn every_other_line_about_a_test_is_printed() {
        for line in [
            "        FAIL [   0.010s] (  4/1716) interlock::serve kills::one",
            "        SLOW [> 60.000s] (---------) interlock::serve kills::one",
            "   assertion failed: left == right",
        ] {
            assert_eq!(Groups::default().read(line), Line::Print, "{line}");
        }
    }

    #[test]
    fn groups_are_summed_and_the_slowest_comes_first() {
        let mut groups = Groups::default();
        for line in [
            "PASS [ 1.000s] (1/5) a::it quick::one",
            "PASS [ 2.000s] (2/5) a::it quick::two",
            "FAIL [ 9.000s] (3/5) b::it slow::one",
            "PASS [ 0.500s] (4/5) c alone",
        ] {
            groups.read(line);
        }
        let named: Vec<_> = groups.slowest().into_iter().map(|(name, _)| name).collect();
        assert_eq!(named, ["b::it slow", "a::it quick", "c"]);
        let quick = Group { tests: 2, seconds: 3.0, longest: (2.0, "quick::two".to_owned()) };
        assert_eq!(groups.by_name["a::it quick"], quick);
    }

    #[test]
    fn the_final_list_of_failures_counts_nothing_twice() {
        let mut groups = Groups::default();
        for _ in 0..2 {
            let line = "        FAIL [   2.000s] ( 3/1741) interlock::serve kills::one";
            assert_eq!(groups.read(line), Line::Print);
        }
        assert_eq!(groups.by_name["interlock::serve kills"].tests, 1);
    }

    #[test]
    fn tests_that_were_left_out_are_counted() {
        let mut groups = Groups::default();
        groups.read("     Summary [   9.757s] 28 tests run: 28 passed, 4 skipped");
        groups.read("     Summary [   1.000s] 9 tests run: 8 passed, 1 failed, 3 skipped");
        assert_eq!(groups.left_out, 7);
    }
}
