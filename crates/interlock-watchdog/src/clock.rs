//! Nothing is judged by a clock that jumped (S15): by it every deadline has passed.
//!
//! The engine tells people. The watchdog looks at the clocks itself, because it would do so if the engine were dead, and
//! learns from the store that somebody confirmed the clock.

use interlock_core::{
    clock::Look,
    id::PipelineId,
    incident::{CLOCK_INCIDENT, IncidentState},
};
use interlock_store::{Key, Record};
use jiff::Timestamp;

use crate::resident::{Watchdog, WatchdogError};

impl Watchdog {
    /// A clock that went back makes what is to be done every few seconds look far away.
    pub(crate) fn notice_a_step_back(&mut self, now: Timestamp) {
        if now >= self.rested_at {
            return;
        }
        for soon in [&mut self.renew_at, &mut self.beat_at, &mut self.bark_at, &mut self.due_at] {
            *soon = now;
        }
        self.sweep.begin_again();
        self.scanning.begin_again(now);
        self.aside.clear();
    }

    /// Whether anything may be judged now.
    pub(crate) async fn believes_the_clock(
        &mut self,
        now: Timestamp,
    ) -> Result<bool, WatchdogError> {
        let Some(boot) = self.world.boot() else { return Ok(true) };
        if self.clock.doubt().is_some() && self.is_clock_confirmed().await? {
            self.clock.confirm();
        }
        let look = self.clock.look(now, boot);
        if let Look::Jumped(_) = look {
            tracing::error!(
                "the clock jumped; the watchdog judges nothing until it is trusted again"
            );
        }
        Ok(look.is_believed())
    }

    async fn is_clock_confirmed(&self) -> Result<bool, WatchdogError> {
        let key = Key::Incident(CLOCK_INCIDENT.to_owned());
        let rows = self.store.read(&PipelineId::system(), &[key]).await?;
        // Until the engine has said it, there is nothing to confirm.
        Ok(rows.into_iter().flatten().next().is_some_and(|row| {
            let Record::Incident(incident) = &row.record else { return false };
            self.clock.doubt().is_some_and(|doubt| incident.updated_at >= doubt.jumped_at())
                && incident.standing() != Ok(IncidentState::Open)
        }))
    }
}
