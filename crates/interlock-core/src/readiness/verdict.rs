//! The answer of an evaluation: a tree of answers that can be printed.

use std::fmt;

use serde_json::Value;

use super::{Readiness, Rule, TraitStatus};

/// One of three answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Outcome {
    /// It holds.
    Ready,
    /// It does not hold.
    NotReady,
    /// It cannot be told.
    CannotTell,
}

/// Whether an answer counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Weight {
    /// It counts.
    Required,
    /// It is shown, and never blocks.
    Optional,
}

/// An answer with what was asked, what was seen, and the answers it was made from.
#[derive(Debug, Clone, PartialEq)]
pub struct Verdict {
    /// The answer.
    pub outcome: Outcome,
    /// What it is about: a sensor's key, a trait's type, an upstream.
    pub name: String,
    /// The rule as text.
    pub asked: String,
    /// The value that decided, where there is one.
    pub seen: Option<Value>,
    /// Why the answer is what it is, for people.
    pub reason: String,
    /// What the evaluator said, where it is a trait and one has.
    pub answered: Option<TraitStatus>,
    /// Whether it counts in the answer above it.
    pub weight: Weight,
    /// What it was made from, in the order of the file; empty for a single rule.
    pub parts: Vec<Verdict>,
}

impl Outcome {
    /// The mark in front of a line.
    fn mark(self) -> char {
        match self {
            Self::Ready => '✓',
            Self::NotReady => '✗',
            Self::CannotTell => '?',
        }
    }
}

impl From<bool> for Outcome {
    /// What could be told.
    fn from(holds: bool) -> Self {
        if holds { Self::Ready } else { Self::NotReady }
    }
}

/// How many answers of each kind were given.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Tally {
    ready: usize,
    not_ready: usize,
    unknown: usize,
}

impl Tally {
    pub(super) fn of(outcomes: impl Iterator<Item = Outcome>) -> Self {
        let mut tally = Self::default();
        for outcome in outcomes {
            match outcome {
                Outcome::Ready => tally.ready += 1,
                Outcome::NotReady => tally.not_ready += 1,
                Outcome::CannotTell => tally.unknown += 1,
            }
        }
        tally
    }

    fn total(self) -> usize {
        self.ready + self.not_ready + self.unknown
    }

    /// How many must hold: every rule is a number.
    fn needed(self, rule: Rule) -> usize {
        match rule {
            Rule::All => self.total(),
            Rule::Any => 1,
            Rule::Majority { .. } if self.total() == 0 => 0,
            Rule::Majority { threshold } => threshold.unwrap_or(self.total() / 2 + 1),
        }
    }

    /// Cannot be told exactly when the unknown ones could still decide it either way.
    pub(super) fn outcome(self, rule: Rule) -> Outcome {
        let needed = self.needed(rule);
        if self.ready >= needed {
            Outcome::Ready
        } else if self.ready + self.unknown >= needed {
            Outcome::CannotTell
        } else {
            Outcome::NotReady
        }
    }

    fn asked(self, rule: Rule) -> String {
        let total = self.total();
        match rule {
            Rule::All => format!("all of {total}"),
            Rule::Any => format!("any of {total}"),
            Rule::Majority { threshold: None } => format!("more than half of {total}"),
            Rule::Majority { threshold: Some(needed) } => format!("at least {needed} of {total}"),
        }
    }
}

impl fmt::Display for Tally {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.total() == 0 {
            return f.write_str("there is none");
        }
        let holds = if self.ready == 1 { "holds" } else { "hold" };
        write!(f, "{} {holds}", self.ready)?;
        if self.not_ready > 0 {
            let does = if self.not_ready == 1 { "does" } else { "do" };
            write!(f, ", {} {does} not", self.not_ready)?;
        }
        if self.unknown > 0 {
            write!(f, ", {} cannot be told", self.unknown)?;
        }
        Ok(())
    }
}

impl Verdict {
    /// One answer made from several.
    pub(super) fn combined(name: &str, rule: Rule, parts: Vec<Self>) -> Self {
        let required = parts.iter().filter(|part| part.weight == Weight::Required);
        let tally = Tally::of(required.map(|part| part.outcome));
        Self {
            outcome: tally.outcome(rule),
            name: name.to_owned(),
            asked: format!("{name}: {}", tally.asked(rule)),
            seen: None,
            reason: tally.to_string(),
            answered: None,
            weight: Weight::Required,
            parts,
        }
    }

    /// Whether a job may be started on this answer (S8).
    pub fn may_run(&self, readiness: &Readiness) -> bool {
        match self.outcome {
            Outcome::Ready => true,
            Outcome::NotReady => false,
            Outcome::CannotTell => readiness.fail_open,
        }
    }

    /// The single rules that stand in the way, in the order of the file; none when it is ready.
    pub fn blocking(&self) -> Vec<&Self> {
        if self.outcome == Outcome::Ready || self.weight == Weight::Optional {
            return vec![];
        }
        let below: Vec<_> = self.parts.iter().flat_map(Self::blocking).collect();
        // Nothing to ask, where something must hold, is itself what blocks.
        if below.is_empty() { vec![self] } else { below }
    }

    /// The traits that were evaluated, in the order of the file, each with what its evaluator said.
    pub fn traits(&self) -> Vec<(&Self, TraitStatus)> {
        let own = self.answered.map(|status| (self, status));
        own.into_iter().chain(self.parts.iter().flat_map(Self::traits)).collect()
    }

    fn write(&self, f: &mut fmt::Formatter<'_>, depth: usize) -> fmt::Result {
        let indent = depth * 2;
        write!(f, "{:indent$}{} {}", "", self.outcome.mark(), self.asked)?;
        if self.weight == Weight::Optional {
            f.write_str(" (optional)")?;
        }
        if !self.reason.is_empty() {
            write!(f, ", {}", self.reason)?;
        }
        self.parts.iter().try_for_each(|part| {
            f.write_str("\n")?;
            part.write(f, depth + 1)
        })
    }
}

/// An indented tree, one line for each rule.
impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.write(f, 0)
    }
}
