//! Judges what several instances did together, by the ledger, the jobs' own logs and what people were told.
//!
//! What is owed is every whole second. Jobs write which slot they ran for, so that executions and slots are matched by name: each slot
//! takes up one execution, and what is left over on either side is a finding. A slot that is marked uncertain may have run
//! any number of times, if an incident says so (S18).

use std::collections::{BTreeMap, BTreeSet};

use jiff::Timestamp;

use super::rights::{Look, Written};

/// A pipeline and an instant.
pub(crate) type Slot = (String, Timestamp);

/// What the ledger says of a slot.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Recorded {
    /// How it was closed; nothing while it is open.
    pub(crate) disposition: Option<String>,
    pub(crate) uncertain: bool,
}

/// What is left when all is over.
#[derive(Debug, Clone, Default)]
pub(crate) struct Evidence {
    /// What was owed until the end.
    pub(crate) expected: BTreeSet<Slot>,
    pub(crate) ledger: BTreeMap<Slot, Recorded>,
    /// What jobs say that they ran for, on any machine.
    pub(crate) executions: Vec<Slot>,
    /// Pipelines of which an incident says that runs are uncertain.
    pub(crate) told: BTreeSet<String>,
    /// What was recorded of each run, in order: its id and the kind of event.
    pub(crate) events: Vec<(String, String)>,
    /// Who had the right to write, in the order in which it was looked at.
    pub(crate) looks: Vec<Look>,
    /// Under which right each event was written.
    pub(crate) written: Vec<Written>,
}

/// Everything that is wrong, in a sentence each.
pub(crate) fn findings(evidence: &Evidence) -> Vec<String> {
    let mut ran: BTreeMap<&Slot, usize> = BTreeMap::new();
    for slot in &evidence.executions {
        *ran.entry(slot).or_default() += 1;
    }
    let mut found = Vec::new();
    for slot in &evidence.expected {
        let times = ran.remove(slot).unwrap_or(0);
        let (name, at) = slot;
        let says = match evidence.ledger.get(slot) {
            None => Some("is lost: it was never recorded".to_owned()),
            Some(recorded) if recorded.uncertain && !evidence.told.contains(name) => {
                Some("is uncertain, and no incident says so".to_owned())
            }
            Some(recorded) => wrong(recorded, times),
        };
        found.extend(says.map(|says| format!("{name}/{at} {says}")));
    }
    found.extend(ran.keys().map(|(name, at)| format!("{name}/{at} ran, and nobody owed it")));
    found.extend(ended_twice(&evidence.events));
    found.extend(by_the_dead(&evidence.looks, &evidence.written));
    found
}

/// What is wrong with a slot that was recorded and ran so many times.
fn wrong(recorded: &Recorded, times: usize) -> Option<String> {
    let word = recorded.disposition.as_deref();
    match (word, times) {
        (None, _) => Some("is still open".to_owned()),
        (Some("completed"), 0) => Some("is completed, and never ran".to_owned()),
        (Some("completed"), 1) => None,
        (Some("completed" | "failed"), _) if recorded.uncertain => None,
        (Some("completed"), times) => Some(format!("ran {times} times")),
        (Some(word), times) => Some(format!("is {word}, and ran {times} times")),
    }
}

/// Runs of which something was recorded after their end: by somebody who no longer had the right to.
fn ended_twice(events: &[(String, String)]) -> Vec<String> {
    let mut ended: BTreeMap<&str, &str> = BTreeMap::new();
    let mut found = Vec::new();
    for (run, kind) in events {
        let is_end = matches!(kind.as_str(), "JOB_COMPLETED" | "JOB_FAILED" | "JOB_CANCELLED");
        if !is_end && kind != "JOB_TRIGGERED" {
            continue;
        }
        if let Some(end) = ended.get(run.as_str()) {
            found.push(format!("{run}: {kind} was recorded after {end}"));
        }
        if is_end {
            ended.insert(run, kind);
        }
    }
    found
}

/// Events that were committed after a later term than theirs was seen, or was written under.
fn by_the_dead(looks: &[Look], written: &[Written]) -> Vec<String> {
    let mut written: Vec<&Written> = written.iter().collect();
    written.sort_by_key(|event| event.number);
    let mut looks = looks.iter().peekable();
    let mut living: BTreeMap<&str, u64> = BTreeMap::new();
    let mut found = Vec::new();
    for Written { number, right, term } in written {
        while let Some(look) = looks.next_if(|look| look.last < *number) {
            for (right, term) in &look.terms {
                let known = living.entry(right).or_default();
                *known = (*known).max(*term);
            }
        }
        let last = living.entry(right).or_default();
        if term < last {
            found.push(format!("event {number} was written as {right} under {term}, after {last}"));
        }
        *last = (*last).max(*term);
    }
    found
}

mod tests {
    use super::*;

    fn slot(second: i64) -> Slot {
        ("p".to_owned(), Timestamp::from_second(second).unwrap())
    }

    fn recorded(word: &str) -> Recorded {
        Recorded { disposition: Some(word.to_owned()), uncertain: false }
    }

    /// Three slots that ran once each.
    fn good() -> Evidence {
        let slots: Vec<Slot> = (1..=3).map(slot).collect();
        let event = |kind: &str| ("r".to_owned(), kind.to_owned());
        Evidence {
            expected: slots.iter().cloned().collect(),
            ledger: slots.iter().map(|slot| (slot.clone(), recorded("completed"))).collect(),
            executions: slots,
            told: BTreeSet::new(),
            events: vec![event("JOB_TRIGGERED"), event("JOB_COMPLETED")],
            looks: vec![look(0, 3), look(2, 4)],
            written: vec![written(1, 3), written(2, 3), written(3, 4)],
        }
    }

    /// Up to which number, and the term of the one shard that there is.
    fn look(last: u64, term: u64) -> Look {
        Look { last, terms: [("engine:0".to_owned(), term)].into() }
    }

    fn written(number: u64, term: u64) -> Written {
        Written { number, right: "engine:0".to_owned(), term }
    }

    fn check(spoil: impl FnOnce(&mut Evidence), expected: &str) {
        let mut evidence = good();
        spoil(&mut evidence);
        let found = findings(&evidence);
        assert!(found.iter().any(|says| says.contains(expected)), "{expected}: {found:?}");
    }

    #[test]
    fn the_checker_finds_nothing_where_nothing_is_wrong() {
        assert_eq!(findings(&good()), Vec::<String>::new());
    }

    #[test]
    fn the_checker_finds_what_is_lost_doubled_or_made_up() {
        check(|it| drop(it.ledger.remove(&slot(2))), "is lost");
        check(|it| it.executions.retain(|ran| *ran != slot(2)), "never ran");
        check(|it| it.executions.push(slot(2)), "ran 2 times");
        check(|it| it.executions.push(slot(9)), "nobody owed it");
        for word in ["failed", "missed", "skipped"] {
            check(|it| drop(it.ledger.insert(slot(2), recorded(word))), &format!("is {word}"));
        }
        let open = Recorded { disposition: None, uncertain: false };
        check(|it| drop(it.ledger.insert(slot(2), open)), "still open");
    }

    #[test]
    fn the_checker_lets_uncertain_slots_pass_only_if_people_were_told() {
        for (word, times) in [("completed", 2), ("failed", 0), ("failed", 1)] {
            let uncertain = Recorded { uncertain: true, ..recorded(word) };
            let spoil = |it: &mut Evidence| {
                it.executions.retain(|ran| *ran != slot(2));
                it.executions.extend(vec![slot(2); times]);
                it.ledger.insert(slot(2), uncertain.clone());
            };
            check(spoil, "no incident says so");
            let mut told = good();
            spoil(&mut told);
            told.told.insert("p".to_owned());
            assert_eq!(findings(&told), Vec::<String>::new(), "{word} {times}");
        }
    }

    #[test]
    fn the_checker_finds_what_was_recorded_after_an_end() {
        for kind in ["JOB_COMPLETED", "JOB_FAILED", "JOB_TRIGGERED"] {
            check(|it| it.events.push(("r".to_owned(), kind.to_owned())), "after JOB_COMPLETED");
        }
    }

    #[test]
    fn the_checker_finds_what_was_written_under_a_dead_term() {
        // Nobody has written under the new term yet: only the look knows it.
        check(
            |it| it.written = vec![written(1, 3), written(3, 3)],
            "event 3 was written as engine:0",
        );
        // Nobody looked: only the order tells.
        let unseen = |it: &mut Evidence| {
            it.looks.clear();
            it.written.push(written(4, 3));
        };
        check(unseen, "event 4 was written as engine:0 under 3, after 4");
    }
}
