//! What the watchdog makes durable: findings, its own watermark, and which checks could not be done.

use std::collections::{BTreeMap, BTreeSet};

use interlock_core::{id::PipelineId, incident::is_trouble};
use interlock_store::{
    Change, Expect, Group, Record, Refusal,
    record::{EventRecord, WatermarkRecord},
};
use jiff::Timestamp;

use crate::{
    finding::{CheckName, Finding},
    judging::{Done, NotDone, commit, none_can_be_done},
    load,
    owed::plus,
    plan::Planned,
    resident::{Watchdog, WatchdogError},
};

/// The pipelines of which not everything is durable.
#[derive(Debug, Default)]
pub(crate) struct Left {
    /// Somebody was faster.
    pub(crate) again: BTreeSet<PipelineId>,
    /// The store cannot take it, and why.
    pub(crate) impossible: BTreeMap<PipelineId, String>,
}

impl Left {
    /// Whether all of a pipeline is durable.
    pub(crate) fn none_of(&self, pipeline: &PipelineId) -> bool {
        !self.again.contains(pipeline) && !self.impossible.contains_key(pipeline)
    }
}

impl Watchdog {
    /// Commits findings; answers with what was left.
    pub(crate) async fn make_durable(
        &mut self,
        mut planned: Vec<Planned>,
    ) -> Result<Left, WatchdogError> {
        let results = commit(self.store.as_ref(), self.telling.as_ref(), &mut planned).await?;
        self.say_what_was_found(planned, results)
    }

    /// Says what is durable now; answers with what was left. Nobody can set aside what is of no pipeline: if that
    /// cannot be written, the watchdog cannot go on.
    pub(crate) fn say_what_was_found(
        &self,
        planned: Vec<Planned>,
        results: Done,
    ) -> Result<Left, WatchdogError> {
        let mut left = Left::default();
        if planned.iter().any(|plan| !plan.notifications.is_empty()) {
            (self.notified)();
        }
        for (plan, result) in planned.into_iter().zip(results) {
            let pipeline = plan.group.pipeline;
            match (result, plan.said) {
                (Ok(_), Some(finding)) => {
                    say(&finding);
                    self.vitals.count(&finding);
                }
                (Ok(_), None) => {}
                (Err(NotDone::Refused(Refusal::Term { .. })), _) => {
                    return Err(WatchdogError::Deposed);
                }
                (Err(NotDone::Refused(refusal)), _) => {
                    tracing::debug!(%pipeline, %refusal, "judging again");
                    left.again.insert(pipeline);
                }
                (Err(NotDone::Impossible(error)), _) if pipeline == PipelineId::system() => {
                    return Err(error.into());
                }
                (Err(NotDone::Impossible(error)), _) => {
                    left.impossible.entry(pipeline).or_insert_with(|| error.to_string());
                }
            }
        }
        Ok(left)
    }

    /// None of the checks can be done for a pipeline whose agenda cannot be used: said when that begins and ends,
    /// whatever else is due.
    pub(crate) async fn tell_who_is_unwatched(
        &mut self,
        now: Timestamp,
    ) -> Result<(), WatchdogError> {
        if self.unwatched.is_empty() == self.told_unwatched {
            self.tell_what_failed(&BTreeMap::new(), now).await?;
            self.told_unwatched = !self.unwatched.is_empty();
        }
        Ok(())
    }

    /// Names the checks that could not be done, once for each set of them.
    pub(crate) async fn tell_what_failed(
        &mut self,
        failed: &BTreeMap<CheckName, String>,
        now: Timestamp,
    ) -> Result<(), WatchdogError> {
        let mut failed = failed.clone();
        if let Some((pipeline, reason)) = self.unwatched.first_key_value() {
            none_can_be_done(&self.checks, &format!("{pipeline}: {reason}"), &mut failed);
        }
        let names: BTreeSet<CheckName> = failed.keys().copied().collect();
        self.vitals.could_not(names.len());
        // What failed is looked at again after a minute; until then nothing is known to be better.
        if names == self.told_failed || (names.is_empty() && !self.aside.is_empty()) {
            return Ok(());
        }
        let event = if names.is_empty() { recovered(now) } else { degraded(&failed, now) };
        let (pipeline, writer) = (PipelineId::system(), self.writer);
        let group = Group { pipeline, writer, changes: vec![Change::Append(event.into())] };
        self.make_durable(vec![Planned::only(group)]).await?;
        self.told_failed = names;
        Ok(())
    }

    /// Says how far everything was judged. It follows what was found, so that a death in between is judged again.
    pub(crate) async fn move_the_watermark(&mut self, now: Timestamp) -> Result<(), WatchdogError> {
        if now < self.beat_at {
            return Ok(());
        }
        let judged = self.list.judged_by(now);
        self.beat_at = plus(now, self.pace.heartbeat);
        if judged <= self.judged {
            return Ok(());
        }
        let record = Record::Watermark(WatermarkRecord { at: judged });
        let expect = match self.judged_revision {
            0 => Expect::Absent,
            revision => Expect::Revision(revision),
        };
        let changes = vec![Change::Put(load::own_watermark(self.writer.shard), expect, record)];
        let (pipeline, writer) = (PipelineId::system(), self.writer);
        let results = self.store.commit(vec![Group { pipeline, writer, changes }]).await?;
        match results.into_iter().next() {
            Some(Ok(_)) => {
                self.judged = judged;
                self.judged_revision += 1;
                Ok(())
            }
            Some(Err(_)) | None => Err(WatchdogError::Deposed),
        }
    }
}

/// What is of no pipeline.
pub(crate) fn system_event(kind: &'static str, message: String, at: Timestamp) -> EventRecord {
    let details = BTreeMap::new();
    EventRecord { kind: kind.into(), at, slot: None, run_id: None, message, details }
}

/// The checks that could not be done.
pub(crate) fn degraded(failed: &BTreeMap<CheckName, String>, now: Timestamp) -> EventRecord {
    let names: Vec<_> = failed.keys().map(|name| name.as_str()).collect();
    let message = format!("watchdog checks failed: {}", names.join(", "));
    let mut event = system_event("WATCHDOG_DEGRADED", message, now);
    let reasons = failed.iter().map(|(name, reason)| (name.to_string(), reason.clone().into()));
    event.details.extend(reasons);
    event
}

/// All checks can be done again.
pub(crate) fn recovered(now: Timestamp) -> EventRecord {
    system_event("WATCHDOG_RECOVERED", "all watchdog checks work again".to_owned(), now)
}

/// Says a finding in the log: a warning, unless it is good news.
pub(crate) fn say(finding: &Finding) {
    let Finding { event, pipeline, .. } = finding;
    let check = finding.check.as_str();
    let slot = finding.slot.as_ref().map(|(at, id)| format!("{id}/{at}"));
    let message = finding.alert.as_deref().unwrap_or(&finding.message);
    if event.is_none_or(is_trouble) {
        tracing::warn!(event, check, %pipeline, slot, "{message}");
    } else {
        tracing::info!(event, check, %pipeline, slot, "{message}");
    }
}
