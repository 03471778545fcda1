//! Groups that the store can never take, whatever it holds: a mistake in what somebody asked for, or of ours.
//!
//! The store answers a call with such a group by doing nothing at all, or refuses the group each time. Tried again it would stand
//! in the way of everything else for ever. So the others are committed without it; if it was to answer an entry of the inbox, that
//! is answered with the reason and kept for people (`interlock events --rejected`), else its pipeline is set aside.

use std::collections::BTreeSet;

use interlock_store::{
    Group, InboxEntry, Key, Record, StoreError,
    record::{AppliedRecord, AskerRecord, InboxRecord, ReportRecord},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    engine::{Engine, EngineError},
    reports,
    write::{Event, Planned},
};

/// A group that the store can never take, and why.
#[derive(Debug)]
pub(crate) struct Unfit {
    pub(crate) plan: Planned,
    pub(crate) reason: String,
}

impl Engine {
    /// Commits a batch of which the store did nothing because of mistakes in some of its groups, without those. What was planned on
    /// what they would have left is planned again.
    pub(crate) async fn commit_what_is_fit(
        &mut self,
        batch: Vec<Planned>,
        error: StoreError,
    ) -> Result<(), EngineError> {
        let (shards, mut fit, mut without) = (self.store.shard_count(), vec![], BTreeSet::new());
        for plan in batch {
            let pipeline = plan.group.pipeline.clone();
            match plan.group.check(shards) {
                Err(StoreError { message: reason, .. }) => {
                    without.insert(pipeline);
                    self.unfit.push(Unfit { plan, reason });
                }
                Ok(()) if without.contains(&pipeline) => {}
                Ok(()) => fit.push(plan),
            }
        }
        if without.is_empty() {
            return Err(error.into());
        }
        let groups: Vec<Group> = fit.iter().map(|plan| plan.group.clone()).collect();
        let results = self.store.commit(groups).await?;
        self.take_results(fit, results).await
    }

    /// Loads the pipelines again that the store could not take something of, and answers whoever asked for it.
    pub(crate) async fn answer_unfit(&mut self) -> Result<Vec<Planned>, EngineError> {
        let mut answers = Vec::new();
        for Unfit { plan, reason } in std::mem::take(&mut self.unfit) {
            let pipeline = plan.group.pipeline;
            self.vitals.groups_refused.add(1);
            tracing::error!(%pipeline, reason, "the store cannot store it, now or later");
            self.reload_all(&BTreeSet::from([pipeline.clone()])).await?;
            match plan.request {
                Some(entry) => answers.push(self.refuse(&entry, &reason)),
                None => self.poisoned.push((pipeline, reason)),
            }
        }
        Ok(answers)
    }

    /// Answers an entry of the inbox with why nothing came of it.
    fn refuse(&self, entry: &InboxEntry, reason: &str) -> Planned {
        let now = self.world.now();
        let mut plan = Planned::new(&entry.pipeline, self.writer);
        rejected(entry, reason, now, &mut plan);
        let request = entry.record.fingerprint();
        let result = json!({ "reason": reason });
        let record = AppliedRecord { at: now, accepted: false, result, request };
        plan.put(Key::Applied(entry.key.clone()), 0, Record::Applied(record.into()));
        plan
    }
}

impl Planned {
    /// The group that answers an entry of the inbox.
    pub(crate) fn answering(mut self, entry: InboxEntry) -> Self {
        self.request = Some(Box::new(entry));
        self
    }
}

/// The word for what is asked for, in the text of an entry.
fn request_word(text: &str) -> Value {
    let asked: Value = serde_json::from_str(text).unwrap_or_default();
    asked.get("request").cloned().unwrap_or(Value::Null)
}

/// Says of what was done who asked for it. What a request does later, in groups of its own, or without an event has one here, but for
/// sensors, of which there are too many.
pub(crate) fn name_asker(
    entry: &InboxEntry,
    asker: &AskerRecord,
    now: Timestamp,
    plan: &mut Planned,
) {
    let is_sensor = matches!(entry.record, InboxRecord::Sensor { .. });
    if !plan.has_events() && !is_sensor {
        let word = request_word(&entry.record.encode());
        let event = Event::of("REQUEST_ACCEPTED", now, format!("requested by {}", asker.by));
        plan.event(event.detail("request", word));
    }
    plan.name_asker(asker);
}

/// Keeps what was asked for and cannot be done, for whoever did not wait for the answer. What the parts of Interlock say to each
/// other is no request of anybody's.
pub(crate) fn rejected(entry: &InboxEntry, reason: &str, now: Timestamp, plan: &mut Planned) {
    match &entry.record {
        InboxRecord::Report(record) => reports::rejected(record, reason, now, plan),
        InboxRecord::Sensor { .. }
        | InboxRecord::Run { .. }
        | InboxRecord::Rerun { .. }
        | InboxRecord::Cancel { .. }
        | InboxRecord::Pause { .. }
        | InboxRecord::Resume { .. }
        | InboxRecord::Catchup {}
        | InboxRecord::StopCatchup { .. }
        | InboxRecord::SendAgain { .. }
        | InboxRecord::Asked { .. }
        | InboxRecord::StartBackfill { .. }
        | InboxRecord::PauseBackfill { .. }
        | InboxRecord::ResumeBackfill { .. }
        | InboxRecord::CancelBackfill { .. }
        | InboxRecord::Incident { .. }
        | InboxRecord::Silence { .. }
        | InboxRecord::Unreadable { .. }
        | InboxRecord::Complete { .. } => {
            let text = entry.record.encode();
            let event = Event::of("REQUEST_REJECTED", now, reason);
            let event = event.detail("request", request_word(&text));
            // As much as is kept of a report's body.
            let (body, _) = text.split_at(text.floor_char_boundary(ReportRecord::BODY_MAX));
            let event = event.detail("body", body);
            plan.event(event.detail("receivedAt", entry.received_at.to_string()));
        }
        InboxRecord::Look {}
        | InboxRecord::File { .. }
        | InboxRecord::Bark { .. }
        | InboxRecord::Noticed { .. }
        | InboxRecord::Heard { .. }
        | InboxRecord::Keep { .. }
        | InboxRecord::Job { .. } => {}
    }
}
