//! What pipelines wait for, shown beside the ledger where a store shows it (the first Interlock's `readiness` and `trait` keys).
//!
//! A start and a refusal are events, and shown with them. While a slot waits nothing is recorded, so what was found is
//! shown by itself: when it is another verdict than the one that is shown, or when that is about to expire. Nothing is decided
//! by it, so a failure is no more than a line in the log, and it is shown at the next look.

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{
    id::{PipelineId, fnv1a},
    readiness::{Outcome, Verdict},
};
use interlock_store::ReadinessView;
use jiff::{SignedDuration, Timestamp};

use crate::{
    engine::Engine,
    scheduler::plus,
    state::SlotPlace,
    step::{blocking, traits_said},
};

/// What is shown of pipelines that wait.
#[derive(Debug, Default)]
pub(crate) struct ReadinessViews {
    /// The hash of what is shown, and since when.
    shown: BTreeMap<PipelineId, (u64, Timestamp)>,
    pending: Vec<ReadinessView>,
}

impl ReadinessViews {
    /// What a pipeline waits for: the slot that has waited longest, and why; nothing if none waits. The store shows it for
    /// so long, or not at all.
    pub(crate) fn found(
        &mut self,
        pipeline: &PipelineId,
        waits: Option<(SlotPlace, Arc<Verdict>)>,
        (ttl, now): (Option<SignedDuration>, Timestamp),
    ) {
        let Some(ttl) = ttl else { return };
        let waits = waits.filter(|(_, it)| it.outcome != Outcome::Ready && !it.parts.is_empty());
        let Some((place, verdict)) = waits else { return self.over(pipeline) };
        let blocking = blocking(&verdict);
        let blocking = blocking.iter().filter_map(|it| it.as_str().map(str::to_owned));
        let view = ReadinessView {
            pipeline: pipeline.clone(),
            slot: format!("{}/{}", place.1, place.0),
            at: now,
            blocking: blocking.collect(),
            evidence: verdict.to_string(),
            traits: traits_said(&verdict),
        };
        let said = format!("{} {:?} {:?}", view.slot, view.blocking, view.traits);
        let hash = fnv1a(said.as_bytes());
        let is_fresh = |(known, since): &(u64, Timestamp)| {
            *known == hash && *since <= now && now < plus(*since, ttl / 2)
        };
        if !self.shown.get(pipeline).is_some_and(is_fresh) {
            self.shown.insert(pipeline.clone(), (hash, now));
            self.pending.push(view);
        }
    }

    /// No slot of a pipeline waits any more.
    pub(crate) fn over(&mut self, pipeline: &PipelineId) {
        self.shown.remove(pipeline);
    }
}

impl Engine {
    /// Shows what was found.
    pub(crate) async fn show_readiness(&mut self) {
        let pending = std::mem::take(&mut self.remembered.readiness.pending);
        if pending.is_empty() {
            return;
        }
        let whose: Vec<PipelineId> = pending.iter().map(|view| view.pipeline.clone()).collect();
        if let Err(error) = self.store.show_readiness(pending).await {
            tracing::warn!(%error, "cannot show what {} pipelines wait for", whose.len());
            for pipeline in &whose {
                self.remembered.readiness.over(pipeline);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use interlock_core::{id::ScheduleId, readiness::Weight};

    use super::*;

    fn at(minute: i64) -> Timestamp {
        Timestamp::from_second(minute * 60).unwrap()
    }

    fn verdict(reason: &str, parts: Vec<Verdict>) -> Verdict {
        Verdict {
            outcome: Outcome::NotReady,
            name: "landed".to_owned(),
            asked: "landed exists".to_owned(),
            seen: None,
            reason: reason.to_owned(),
            answered: None,
            weight: Weight::Required,
            parts,
        }
    }

    fn not_ready(reason: &str) -> Arc<Verdict> {
        Arc::new(verdict("", vec![verdict(reason, vec![])]))
    }

    #[test]
    fn a_verdict_is_shown_when_it_changes_and_before_it_expires() {
        let orders = PipelineId::parse("orders").unwrap();
        let mut views = ReadinessViews::default();
        let ttl = Some(SignedDuration::from_mins(60));
        let place = (at(0), ScheduleId::from_static("cron"));
        let mut shown = |minute: i64, reason: &str| {
            views.found(&orders, Some((place.clone(), not_ready(reason))), (ttl, at(minute)));
            std::mem::take(&mut views.pending).len()
        };
        assert_eq!(shown(0, "it is not there"), 1);
        assert_eq!(shown(5, "it is not there"), 0, "that is shown");
        assert_eq!(shown(6, "it has no rows"), 1, "another reason");
        assert_eq!(shown(35, "it has no rows"), 0);
        assert_eq!(shown(36, "it has no rows"), 1, "it would expire before long");
        assert_eq!(shown(20, "it has no rows"), 1, "the clock went back");
        views.found(&orders, None, (ttl, at(21)));
        assert_eq!(views.shown.len(), 0, "nothing is kept of one that does not wait");
        let mut off = ReadinessViews::default();
        off.found(&orders, Some((place.clone(), not_ready(""))), (None, at(0)));
        assert_eq!((off.pending.len(), off.shown.len()), (0, 0));
    }
}
