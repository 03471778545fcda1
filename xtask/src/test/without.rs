//! `--without NAME`: programs that the caller goes without, and what is left out with them.
//!
//! A missing program fails the command, because a check that was silently skipped reads as one that passed. Who cannot install
//! it names it, and the summary says what was not checked.

use crate::{
    step::Outcome,
    tools::{self, Need, Tool},
};

/// The programs to go without.
#[derive(Debug, Default)]
pub(super) struct Without {
    tools: Vec<&'static Tool>,
}

impl Without {
    /// Reads `--without NAME`, once for each program or with commas between.
    pub(super) fn parse(arguments: &[String]) -> Result<Self, String> {
        let mut without = Self::default();
        let mut arguments = arguments.iter();
        while let Some(argument) = arguments.next() {
            let names = match argument.strip_prefix("--without") {
                Some("") => arguments.next().map(String::as_str),
                Some(rest) => rest.strip_prefix('='),
                None => return Err(format!("unexpected argument {argument:?}; {}", known())),
            };
            let names = names.ok_or_else(|| format!("--without needs a name; {}", known()))?;
            for name in names.split(',') {
                let tool = tools::of(Need::Test).find(|tool| tool.name == name);
                without.tools.push(
                    tool.ok_or_else(|| format!("the tests know no program {name:?}; {}", known()))?,
                );
            }
        }
        Ok(without)
    }

    /// The programs that need not be there.
    pub(super) fn tools(&self) -> &[&'static Tool] {
        &self.tools
    }

    /// Runs a step, unless the program that it needs is left out.
    pub(super) fn step(&self, name: &str, body: impl FnOnce() -> Outcome) -> Outcome {
        if self.tools.iter().any(|tool| tool.name == name) {
            return Outcome::LeftOut(format!("left out: --without {name}"));
        }
        body()
    }

    /// What keeps the tests that need one of the programs from being run.
    pub(super) fn filter(&self) -> Vec<String> {
        let sets: Vec<&str> =
            self.tools.iter().map(|tool| tool.tests).filter(|set| !set.is_empty()).collect();
        if sets.is_empty() {
            return vec![];
        }
        vec!["--filterset".to_owned(), format!("not ({})", sets.join(" + "))]
    }
}

fn known() -> String {
    let names: Vec<&str> = tools::of(Need::Test).map(|tool| tool.name).collect();
    format!("`--without NAME` takes one of {}", names.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Without, String> {
        Without::parse(&line.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
    }

    #[test]
    fn names_are_read_in_every_spelling() {
        for line in ["--without rustfmt,curl", "--without=rustfmt,curl"] {
            let names: Vec<_> = parse(line).unwrap().tools.iter().map(|tool| tool.name).collect();
            assert_eq!(names, ["rustfmt", "curl"], "{line}");
        }
        assert_eq!(parse("--without rustfmt --without curl").unwrap().tools.len(), 2);
        assert!(parse("").unwrap().tools.is_empty());
    }

    #[test]
    fn a_wrong_name_gets_the_list() {
        for line in ["--without", "--without redis", "--fast", "--without=", "--withoutcurl"] {
            let reason = parse(line).unwrap_err();
            assert!(reason.contains("redis-server, postgres"), "{line}: {reason}");
        }
    }

    #[test]
    fn what_is_left_out_is_neither_run_nor_passed() {
        let without = parse("--without clippy,curl").unwrap();
        let left_out = without.step("clippy", || panic!("it was run"));
        assert_eq!(left_out, Outcome::LeftOut("left out: --without clippy".to_owned()));
        assert_eq!(without.step("rustfmt", || Outcome::Passed), Outcome::Passed);
        assert!(without.filter()[1].starts_with("not ("), "{:?}", without.filter());
        assert_eq!(parse("--without clippy").unwrap().filter(), Vec::<String>::new());
    }
}
