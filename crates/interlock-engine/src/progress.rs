//! What the log says about a catch-up as a whole: what there is to do, and that it is done.
//!
//! Both follow from the groups that were accepted; each pipeline's plan, each skip and each run has its own event.
//! Nothing is said when nothing was missed.

use std::collections::BTreeSet;

use interlock_core::{id::PipelineId, run::TriggerType};
use interlock_store::{Change, Group, Key, Record};
use jiff::Timestamp;

/// A catch-up that is under way, over all pipelines.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    began: Option<Timestamp>,
    pipelines: BTreeSet<PipelineId>,
    /// Slots that were opened, and those of them that are decided.
    opened: u64,
    ended: u64,
    skipped: u64,
    is_summed_up: bool,
}

impl Progress {
    /// Takes note of an accepted group.
    pub(crate) fn saw(&mut self, group: &Group, now: Timestamp) {
        for change in &group.changes {
            match change {
                Change::Append(event) => {
                    let count = event.details.get("count").and_then(serde_json::Value::as_u64);
                    match event.kind.as_str() {
                        "CATCHUP_QUEUED" => self.opened += count.unwrap_or(0),
                        // Those of a catch-up have a count.
                        "SLOTS_MISSED"
                        | "SLOTS_SKIPPED"
                        | "SCHEDULE_MISSED"
                        | "IRREGULAR_SCHEDULE_MISSED"
                        | "SCHEDULE_UNKNOWN" => self.skipped += count.unwrap_or(0),
                        "CATCHUP_PLANNED" => {
                            self.began.get_or_insert(now);
                            self.is_summed_up &= !self.pipelines.insert(group.pipeline.clone());
                        }
                        _ => {}
                    }
                }
                Change::Put(Key::Slot(..), _, Record::Slot(slot)) => {
                    let is_caught_up = slot.opened_by == TriggerType::Catchup.as_str();
                    self.ended += u64::from(is_caught_up && !slot.is_open() && slot.generation > 0);
                }
                Change::Put(..) | Change::Delete(..) => {}
            }
        }
    }

    /// Says what there is to do once all of it is recorded, and when it is done.
    pub(crate) fn tell(&mut self, now: Timestamp) {
        let Some(began) = self.began else { return };
        let Self { opened, ended, skipped, .. } = *self;
        if !self.is_summed_up {
            self.is_summed_up = true;
            tracing::info!(
                pipelines = self.pipelines.len(),
                missed = opened + skipped,
                "catch-up: {} pipelines missed {} slots; {opened} run, {skipped} are skipped",
                self.pipelines.len(),
                opened + skipped,
            );
        }
        if ended >= opened {
            let took = now.duration_since(began);
            tracing::info!(
                ran = opened,
                skipped,
                "catch-up is done: {opened} ran, {skipped} were skipped, in {took:#}"
            );
            *self = Self::default();
        }
    }
}

#[cfg(test)]
mod tests {
    use interlock_store::{Role, Shard, Term, Writer, record::EventRecord};

    use super::*;

    fn event(kind: &str, count: u64) -> Change {
        Change::Append(EventRecord {
            kind: kind.to_owned(),
            at: Timestamp::UNIX_EPOCH,
            slot: None,
            run_id: None,
            message: String::new(),
            details: [("count".to_owned(), count.into())].into(),
        })
    }

    #[test]
    fn a_catch_up_is_over_when_all_that_was_opened_is_decided_and_not_before() {
        let pipeline = PipelineId::parse("orders").unwrap();
        let writer = Writer { role: Role::Engine, shard: Shard(0), term: Term(1) };
        let now = Timestamp::UNIX_EPOCH;
        let mut progress = Progress::default();
        progress.tell(now);
        assert!(!progress.is_summed_up, "nothing was missed, nothing is said");
        let changes = vec![
            event("CATCHUP_PLANNED", 0),
            event("CATCHUP_QUEUED", 2),
            event("SLOTS_SKIPPED", 5),
        ];
        progress.saw(&Group { pipeline, writer, changes }, now);
        progress.tell(now);
        assert_eq!((progress.opened, progress.skipped, progress.is_summed_up), (2, 5, true));
        progress.ended = 2;
        progress.tell(now);
        assert_eq!(progress.began, None, "it is over");
    }
}
