//! Nothing is planned by a clock that jumped (S15).
//!
//! What our jobs and people tell is still taken: it is true whatever the clock says. Reports of jobs that somebody else
//! runs wait in the inbox: which slot they are about is a question of time.

use std::collections::BTreeSet;

use interlock_core::{
    clock::Look,
    duration,
    id::PipelineId,
    incident::{CLOCK_INCIDENT, IncidentState, THE_CLOCK},
};
use interlock_store::Shard;
use jiff::Timestamp;

use crate::{
    engine::{Engine, EngineError},
    write::{Event, Planned},
};

impl Engine {
    /// A clock that went back makes what is to be done every few seconds look far away (S15).
    pub(crate) fn notice_a_step_back(&mut self) {
        let now = self.world.now();
        if now < self.passed_at {
            (self.inbox_at, self.renew_at) = (now, now);
        }
        self.passed_at = now;
    }

    /// Whether anything may be planned now. A jump and its end are told.
    pub(crate) async fn believes_the_clock(&mut self) -> Result<bool, EngineError> {
        let Some(boot) = self.world.boot() else { return Ok(true) };
        let now = self.world.now();
        if self.clock.doubt().is_some() && self.is_clock_confirmed().await? {
            self.clock.confirm();
        }
        let look = self.clock.look(now, boot);
        match look {
            Look::Steady | Look::Doubted => {}
            Look::Jumped(by) => {
                let by = duration::format(by);
                let message = format!(
                    "it went {by} forward while no time passed; planning goes on when the time has held for 5 minutes or has \
                     gone back, or when an operator acknowledges this incident"
                );
                tracing::error!("the clock jumped: {message}");
                self.say_of_the_clock("CLOCK_JUMP", message, now).await?;
            }
            Look::Settled => {
                tracing::info!("the clock is trusted again");
                self.say_of_the_clock("CLOCK_STEADY", "the clock is trusted again".into(), now)
                    .await?;
            }
        }
        Ok(look.is_believed())
    }

    async fn say_of_the_clock(
        &mut self,
        kind: &'static str,
        message: String,
        now: Timestamp,
    ) -> Result<(), EngineError> {
        let mut plan = Planned::new(&PipelineId::system(), self.writer);
        plan.event(Event::of(kind, now, message).detail("thing", THE_CLOCK));
        self.commit(vec![plan]).await
    }

    /// Somebody looked at the incident, or called it over.
    async fn is_clock_confirmed(&mut self) -> Result<bool, EngineError> {
        let (system, count) = (PipelineId::system(), self.store.shard_count());
        if Shard::of(&system, count) != self.writer.shard {
            // The owner of another shard takes down what people say of it.
            self.load_one(&system, &BTreeSet::new()).await?;
        }
        let known = self.pipelines.0.get(&PipelineId::system());
        let incident = known.and_then(|state| state.incidents.get(CLOCK_INCIDENT));
        Ok(incident.is_none_or(|(record, _)| record.standing() != Ok(IncidentState::Open)))
    }
}
