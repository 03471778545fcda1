//! The acceptance cases of the Go Interlock (`facts/interlock-cases.md`): each has a test that carries its
//! number (`case_46_…`, `cases_53_to_55_…`), or a comment that says why it does not hold here (`Case 24: …`).
//!
//! So `grep -rniE 'cases?[ _]46'` answers for every case, and no case is lost by deleting a test.

use std::{collections::BTreeSet, ops::RangeInclusive};

use super::{File, Problem};

/// The cases that are owed so far: 73 and 76 to 80 are other rows of ours (`conformance` says which), 84 and later belong to
/// the HTTP API.
const OWED: &[RangeInclusive<u32>] = &[1..=72, 74..=75, 81..=83];

/// Every case that is owed is named in the sources.
pub(super) fn check_cases(files: &[File]) -> Vec<Problem> {
    let inside = |file: &&File| file.is_rust() && file.path.starts_with("crates/");
    let named: BTreeSet<u32> =
        files.iter().filter(inside).flat_map(|file| cases_named(&file.text)).collect();
    let owed = OWED.iter().cloned().flatten();
    owed.filter(|case| !named.contains(case))
        .map(|case| Problem {
            path: "crates".into(),
            line: 1,
            message: format!(
                "case {case} has neither a test nor a reason: name a test `case_{case}_…`, or say \
                 in the comment of a test module why `Case {case}` does not hold"
            ),
        })
        .collect()
}

/// The numbers after each word `case` or `cases`, whether in a name or in prose.
fn cases_named(text: &str) -> Vec<u32> {
    let lower = text.to_ascii_lowercase();
    let mut found = Vec::new();
    for (at, word) in lower.match_indices("case") {
        let starts = !lower[..at].ends_with(|before: char| before.is_ascii_alphanumeric());
        let after = &lower[at + word.len()..];
        if starts {
            found.extend(numbers(after.strip_prefix('s').unwrap_or(after)));
        }
    }
    found
}

/// A list such as ` 53, 54 and 60 to 62` or `_23_and_66_`, as far as it goes.
fn numbers(text: &str) -> Vec<u32> {
    let mut found: Vec<u32> = Vec::new();
    let mut is_range = false;
    let list = text.lines().next().and_then(|line| line.strip_prefix([' ', '_']));
    for word in list.unwrap_or_default().split([' ', '_', ',']) {
        match (word.trim_end_matches([':', '.', ')', ';']).parse::<u32>(), found.last()) {
            (Ok(last), Some(first)) if is_range => {
                found.extend(first + 1..=last);
                is_range = false;
            }
            (Ok(number), _) => found.push(number),
            (Err(_), Some(_)) if word == "to" => is_range = true,
            (Err(_), Some(_)) if word == "and" || word.is_empty() => {}
            (Err(_), _) => break,
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tidy::tree;

    #[test]
    fn names_and_prose_are_read() {
        for (text, expected) in [
            ("fn case_46_a_ready_pipeline_2_completes()", &[46][..]),
            ("fn cases_23_and_66_a_failure()", &[23, 66]),
            ("fn cases_53_to_55_deadlines()", &[53, 54, 55]),
            ("//! - Cases 53, 54: told by the watchdog", &[53, 54]),
            ("//! Case 24 (no function), case 30: gone; in case 4 slots meet", &[24, 30, 4]),
            ("/// (case 69).", &[69]),
            ("the lowercase 12, showcase_13, case-insensitive 14, in_case", &[]),
        ] {
            assert_eq!(cases_named(text), expected, "{text}");
        }
    }

    #[test]
    fn a_case_without_a_word_is_reported_and_only_sources_count() {
        let all = "// cases 1 to 46, 48 to 72, 74, 75 and 81 to 83";
        let files =
            [("crates/a/src/lib.rs", all), ("docs/x.md", "case 47"), ("xtask/a.rs", "case 47")];
        let problems = check_cases(&tree(&files));
        assert_eq!(problems.len(), 1, "{problems:?}");
        assert!(problems[0].message.starts_with("case 47 has neither"), "{problems:?}");
        let named = format!("{all}\nfn case_47_x() {{}}");
        assert_eq!(check_cases(&tree(&[("crates/a/src/lib.rs", &named)])), []);
    }
}
