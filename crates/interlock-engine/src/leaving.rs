//! Told to stop: the engine records, for a moment, what becomes of the jobs that it has only just started, begins nothing more, and
//! gives its lease back.
//!
//! A start that was committed and never asked for, and a job that ended while its host was leaving, would be uncertain to whoever
//! follows on another host (S18). Jobs that take longer go on; their host tells of them when it is back.

use std::time::Duration;

use interlock_core::id::PipelineId;
use jiff::SignedDuration;

use crate::{
    engine::{Engine, EngineError},
    request::is_active,
    scheduler::plus,
    state::{KnownRun, SlotPlace},
};

/// How long is waited.
const LEAVES_IN: Duration = Duration::from_secs(1);
/// How often is looked whether starts have arrived.
const LOOKS: SignedDuration = SignedDuration::from_millis(10);
/// What was started less long ago may well be over soon.
const JUST_NOW: SignedDuration = SignedDuration::from_secs(5);

impl Engine {
    /// Ends, and leaves as little as possible uncertain.
    pub(crate) async fn leave(mut self) -> Result<(), EngineError> {
        let began = self.world.uptime();
        let mut fresh = self.begun_just_now();
        while !(fresh.is_empty() && self.starts.is_empty())
            && self.world.uptime().saturating_sub(began) < LEAVES_IN
        {
            let sleep = self.world.sleep_until(plus(self.world.now(), LOOKS));
            tokio::select! {
                biased;
                Some(report) = self.reports.recv() => self.take_report(report),
                Some(message) = self.messages.recv() => self.take_message(message),
                () = sleep => {}
            }
            self.keep_the_lease().await?;
            self.record_the_news().await?;
            self.settle().await?;
            fresh.retain(|(pipeline, place)| {
                let open = self.pipelines.0.get(pipeline).and_then(|state| state.open.get(place));
                open.and_then(|open| open.last_run()).is_some_and(is_active)
            });
        }
        self.trust.end();
        Ok(self.store.release(self.writer).await?)
    }

    /// The slots whose jobs began on this host just now, where there are other hosts.
    fn begun_just_now(&self) -> Vec<(PipelineId, SlotPlace)> {
        let since = plus(self.world.now(), -JUST_NOW);
        let is_fresh = |run: &KnownRun| {
            let record = &run.record;
            is_active(run) && record.created_at > since && self.host.has(&record.metadata)
        };
        let all = self.pipelines.0.iter().flat_map(|(pipeline, state)| {
            let open = state.open.iter().filter(|(_, open)| open.last_run().is_some_and(is_fresh));
            open.map(|(place, _)| (pipeline.clone(), place.clone()))
        });
        all.collect()
    }
}
