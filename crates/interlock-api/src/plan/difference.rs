//! What differs between the plan that a caller looked at and the one that there is now.
//!
//! A hash says that they differ, and not in what; so the decisions of plans that were shown lately are remembered, by their hashes.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Mutex, PoisonError},
};

use interlock_answers::model::plan::{
    BackfillPlanAnswer, CatchupPlanAnswer, PlanLineAnswer, ResumePlanAnswer, SilencePlanAnswer,
};
use serde::Serialize;

/// Decisions that are remembered, of all plans together: some ten megabytes.
const REMEMBERED_MAX: usize = 100_000;
/// Differences that are told.
const TOLD_MAX: usize = 100;

/// What a plan decides, by what it decides about.
pub(crate) type Decisions = BTreeMap<String, String>;

/// A plan, as far as it can be compared.
pub(crate) trait Decides {
    /// Each decision in a word or two.
    fn decisions(&self) -> Decisions;
}

/// Something that was decided otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct PlanDifference {
    /// What it is about: a slot, a range of slots, an incident.
    about: String,
    /// What was decided; null of what was not there.
    before: Option<String>,
    /// What is decided now; null of what is not there any more.
    now: Option<String>,
}

/// Plans that were shown lately.
#[derive(Debug, Default)]
pub(crate) struct ShownPlans(Mutex<VecDeque<(String, Decisions)>>);

impl ShownPlans {
    /// Keeps what a plan decides, and forgets the oldest plans for it.
    pub(super) fn remember(&self, hash: &str, decisions: Decisions) {
        let mut shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        shown.retain(|(known, _)| known != hash);
        shown.push_back((hash.to_owned(), decisions));
        let count = |shown: &VecDeque<(String, Decisions)>| -> usize {
            shown.iter().map(|(_, decisions)| decisions.len().max(1)).sum()
        };
        while count(&shown) > REMEMBERED_MAX && shown.len() > 1 {
            shown.pop_front();
        }
    }

    /// What differs from the first of these plans that is known; none if none is. Whether there is more is told too.
    pub(super) fn differences<'a>(
        &self,
        hashes: impl Iterator<Item = &'a str>,
        now: &Decisions,
    ) -> Option<(Vec<PlanDifference>, bool)> {
        let shown = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut known = hashes.filter_map(|hash| shown.iter().find(|(it, _)| it == hash));
        let (_, before) = known.next()?;
        let mut all = differences(before, now);
        let told = all.by_ref().take(TOLD_MAX).collect();
        Some((told, all.next().is_some()))
    }
}

fn differences<'a>(
    before: &'a Decisions,
    now: &'a Decisions,
) -> impl Iterator<Item = PlanDifference> + 'a {
    let of = |about: &String, before: Option<&String>, now: Option<&String>| PlanDifference {
        about: about.clone(),
        before: before.cloned(),
        now: now.cloned(),
    };
    let gone_or_changed = before.iter().filter_map(move |(about, was)| {
        let is = now.get(about);
        (is != Some(was)).then(|| of(about, Some(was), is))
    });
    let new = now.iter().filter(|(about, _)| !before.contains_key(*about));
    gone_or_changed.chain(new.map(move |(about, is)| of(about, None, Some(is))))
}

impl Decides for BackfillPlanAnswer {
    fn decisions(&self) -> Decisions {
        let lines = self.slots.iter().map(|line| {
            let instant = line.slot.map(|slot| slot.to_string()).or_else(|| line.date.clone());
            let range = line.last.filter(|last| Some(*last) != line.slot);
            let range = range.map(|last| format!(" to {last}")).unwrap_or_default();
            let about = format!("{}/{}{range}", line.schedule, instant.unwrap_or_default());
            (about, decision(&line.verdict, line.reason.as_deref().unwrap_or_default()))
        });
        let whole = ("concurrency".to_owned(), self.concurrency.to_string());
        lines.chain([whole]).collect()
    }
}

impl Decides for CatchupPlanAnswer {
    fn decisions(&self) -> Decisions {
        self.lines.iter().map(line).collect()
    }
}

impl Decides for ResumePlanAnswer {
    fn decisions(&self) -> Decisions {
        let paused = self.paused.as_ref().map(|_| ("pause".to_owned(), "ends".to_owned()));
        self.lines.iter().map(line).chain(paused).collect()
    }
}

impl Decides for SilencePlanAnswer {
    fn decisions(&self) -> Decisions {
        let hidden = self.incidents.iter().map(|incident| {
            (
                format!("{} {}", incident.pipeline, incident.key),
                format!("hidden, {}", incident.state),
            )
        });
        let is_in_force = ("in force now".to_owned(), self.is_in_force.to_string());
        hidden.chain([is_in_force]).collect()
    }
}

fn line(line: &PlanLineAnswer) -> (String, String) {
    let range = if line.last == line.slot { String::new() } else { format!(" to {}", line.last) };
    let about = format!("{}/{}/{}{range}", line.pipeline, line.schedule, line.slot);
    (about, decision(&line.action, &line.reason))
}

fn decision(word: &str, reason: &str) -> String {
    if reason.is_empty() { word.to_owned() } else { format!("{word} ({reason})") }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn plan(lines: &[(&str, &str)]) -> Decisions {
        lines.iter().map(|(about, word)| ((*about).to_owned(), (*word).to_owned())).collect()
    }

    #[test]
    fn what_is_gone_new_or_decided_otherwise_is_told_and_a_plan_that_is_not_known_is_not_guessed() {
        let shown = ShownPlans::default();
        shown.remember("0a", plan(&[("s/1", "run"), ("s/2", "run"), ("s/3", "run")]));
        let now = plan(&[("s/2", "skip"), ("s/3", "run"), ("s/4", "run")]);
        let (differs, more) = shown.differences(["0b", "0a"].into_iter(), &now).unwrap();
        let told: Vec<_> = differs
            .iter()
            .map(|it| (it.about.as_str(), it.before.as_deref(), it.now.as_deref()))
            .collect();
        let expected = [
            ("s/1", Some("run"), None),
            ("s/2", Some("run"), Some("skip")),
            ("s/4", None, Some("run")),
        ];
        assert_eq!((told.as_slice(), more), (&expected[..], false));
        assert!(shown.differences(["0b"].into_iter(), &now).is_none());
    }

    #[test]
    fn so_many_are_remembered_and_so_many_are_told() {
        let shown = ShownPlans::default();
        let large: Decisions =
            (0..REMEMBERED_MAX / 2).map(|it| (it.to_string(), "run".to_owned())).collect();
        for hash in ["a", "b", "c"] {
            shown.remember(hash, large.clone());
        }
        let known = |hash| shown.differences([hash].into_iter(), &Decisions::new());
        assert!(known("a").is_none() && known("b").is_some());
        let (told, more) = known("c").unwrap();
        assert_eq!((told.len(), more), (TOLD_MAX, true));
    }
}
