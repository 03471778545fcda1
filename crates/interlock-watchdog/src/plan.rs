//! Findings, turned into groups: one for each finding that says something, few for what is only done.

use std::sync::Arc;

use interlock_core::{duration, id::PipelineId};
use interlock_store::{
    CHANGES_MAX, Change, Expect, Group, Key, Record, Writer,
    record::{EventRecord, InboxRecord, SlotRecord},
};
use jiff::{SignedDuration, Timestamp};

use crate::finding::{Finding, Remedy};

/// A group with the requests that go before it.
#[derive(Debug)]
pub(crate) struct Planned {
    pub(crate) group: Group,
    pub(crate) asks: Vec<(String, InboxRecord)>,
    /// What is said, for the log and the numbers.
    pub(crate) said: Option<Box<Finding>>,
    /// The names of the notifications that follow for people, once that is decided.
    pub(crate) notifications: Vec<String>,
}

impl Planned {
    /// A group that nothing goes before.
    pub(crate) fn only(group: Group) -> Self {
        Self { group, asks: vec![], said: None, notifications: vec![] }
    }
}

/// Turns the findings of a pipeline into groups.
pub(crate) struct Planner {
    pub(crate) writer: Writer,
    pub(crate) now: Timestamp,
    pub(crate) late_after: SignedDuration,
}

impl Planner {
    pub(crate) fn plan(&self, findings: Vec<Finding>) -> Vec<Planned> {
        let (said, silent): (Vec<_>, Vec<_>) =
            findings.into_iter().partition(|finding| finding.event.is_some());
        let mut planned: Vec<Planned> = Vec::new();
        for finding in silent {
            let pipeline = finding.pipeline.clone();
            let (changes, asks) = changes(finding.remedies);
            match planned.last_mut().filter(|last| {
                last.group.pipeline == pipeline
                    && last.group.changes.len() + changes.len() <= CHANGES_MAX
                    && !share_a_row(&last.group.changes, &changes)
            }) {
                Some(last) => {
                    last.group.changes.extend(changes);
                    last.asks.extend(asks);
                }
                None => planned.push(self.group(&pipeline, changes, asks)),
            }
        }
        for mut finding in said {
            self.say_that_it_is_late(&mut finding);
            let (mut changes, asks) = changes(std::mem::take(&mut finding.remedies));
            changes.extend(self.event(&finding).map(Arc::new).map(Change::Append));
            let pipeline = finding.pipeline.clone();
            let mut plan = self.group(&pipeline, changes, asks);
            plan.said = Some(Box::new(finding));
            planned.push(plan);
        }
        planned.retain(|plan| !plan.group.changes.is_empty() || !plan.asks.is_empty());
        planned
    }

    fn group(
        &self,
        pipeline: &PipelineId,
        changes: Vec<Change>,
        asks: Vec<(String, InboxRecord)>,
    ) -> Planned {
        let group = Group { pipeline: pipeline.clone(), writer: self.writer, changes };
        Planned { asks, ..Planned::only(group) }
    }

    fn say_that_it_is_late(&self, finding: &mut Finding) {
        let late = finding.due_at.map(|at| self.now.duration_since(at));
        if let Some(late) = late.filter(|late| *late > self.late_after) {
            let late = duration::format_go(SignedDuration::from_secs(late.as_secs()));
            finding.alert =
                finding.alert.take().map(|alert| format!("{alert} (found {late} late)"));
            finding.details.insert("foundLate".to_owned(), late.into());
        }
    }

    fn event(&self, finding: &Finding) -> Option<EventRecord> {
        let mut details = finding.details.clone();
        if let Some(alert) = &finding.alert {
            details.insert("alert".to_owned(), alert.clone().into());
        }
        details.insert("check".to_owned(), finding.check.as_str().into());
        Some(EventRecord {
            kind: finding.event?.into(),
            at: self.now,
            slot: finding.slot.as_ref().map(|(nominal, schedule)| format!("{schedule}/{nominal}")),
            run_id: finding.run_id.clone(),
            message: finding.message.clone(),
            details,
        })
    }
}

/// What remedies change, and what they ask for. A row occurs once: what is set wins over what is deleted.
fn changes(remedies: Vec<Remedy>) -> (Vec<Change>, Vec<(String, InboxRecord)>) {
    let mut changes: Vec<Change> = Vec::new();
    let mut asks = Vec::new();
    for remedy in remedies {
        let change = match remedy {
            Remedy::Slot((nominal, schedule), revision, slot) => {
                let record = Record::Slot(SlotRecord::from_core(&slot).into());
                Change::Put(Key::Slot(schedule, nominal), expect(revision), record)
            }
            Remedy::Run(key, revision, record) => {
                Change::Put(Key::Run(key), expect(revision), Record::Run((*record).into()))
            }
            Remedy::Arm(due) => due.put(),
            Remedy::Drop(due) => due.delete(),
            Remedy::Ask(key, record) => {
                asks.push((key, *record));
                continue;
            }
        };
        changes.push(change);
    }
    changes.sort_by(|one, other| one.key().cmp(&other.key()));
    changes.dedup_by(|later, kept| {
        let is_same = later.key() == kept.key();
        if is_same && matches!((&*later, &*kept), (Change::Put(..), _) | (_, Change::Delete(..))) {
            std::mem::swap(later, kept);
        }
        is_same
    });
    (changes, asks)
}

fn share_a_row(some: &[Change], others: &[Change]) -> bool {
    others.iter().any(|other| some.iter().any(|change| change.key() == other.key()))
}

fn expect(revision: u64) -> Expect {
    if revision == 0 { Expect::Absent } else { Expect::Revision(revision) }
}
