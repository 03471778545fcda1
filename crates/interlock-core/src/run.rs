//! The state machine of a run: one attempt at a slot.
//!
//! Every change of a run goes through [`RunState::apply`], whatever caused it: adapter, report,
//! watchdog or person. A report that comes twice, late or out of order is then an
//! [`IllegalTransition`], which the caller can record as such, and never a state that contradicts
//! an earlier one.
//!
//! A trigger that returns only when its job has ended goes from TRIGGERING straight to its end,
//! with monitoring or without: passing through RUNNING would record a moment that nobody observed.

use std::fmt;

use crate::text::TextError;

/// The field of a run's metadata that has the last lines of what its job wrote: what is left when the log is gone with its host.
pub const OUTPUT: &str = "output";

/// Where a run stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunState {
    /// Its slot has taken a place; nothing has been started.
    Pending,
    /// The adapter is about to be called, or has been and has not answered.
    Triggering,
    /// The job runs.
    Running,
    /// The job succeeded and its data is watched for drift.
    CompletedMonitoring,
    /// The job succeeded.
    Completed,
    /// The job did not succeed.
    Failed,
    /// It was ended on purpose.
    Cancelled,
}

/// What happens to a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum RunEvent {
    /// The adapter is about to be called.
    Triggered,
    /// The adapter says that the job runs.
    Started,
    /// The job succeeded, and nothing is watched afterwards.
    Succeeded,
    /// The job succeeded, and monitoring begins.
    SucceededMonitored,
    /// Monitoring ended, by its time or because drift was found.
    MonitoringEnded,
    /// The trigger, the job or the monitoring failed.
    Failed,
    /// Somebody ended it.
    Cancelled,
}

/// An event that a run in this state cannot take.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a run that is {from} cannot take the event `{event}`")]
pub struct IllegalTransition {
    /// The run's state.
    pub from: RunState,
    /// What was asked of it.
    pub event: RunEvent,
}

impl RunState {
    /// Every state, in the order of a run's life.
    pub const ALL: [Self; 7] = [
        Self::Pending,
        Self::Triggering,
        Self::Running,
        Self::CompletedMonitoring,
        Self::Completed,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The state after an event.
    pub fn apply(self, event: RunEvent) -> Result<Self, IllegalTransition> {
        use RunEvent as Event;
        let next = match (self, event) {
            (Self::Pending, Event::Triggered) => Self::Triggering,
            (Self::Triggering, Event::Started) => Self::Running,
            (Self::Triggering | Self::Running, Event::Succeeded)
            | (Self::CompletedMonitoring, Event::MonitoringEnded) => Self::Completed,
            (Self::Triggering | Self::Running, Event::SucceededMonitored) => {
                Self::CompletedMonitoring
            }
            (
                Self::Pending | Self::Triggering | Self::Running | Self::CompletedMonitoring,
                Event::Failed,
            ) => Self::Failed,
            (Self::Pending | Self::Triggering | Self::Running, Event::Cancelled) => Self::Cancelled,
            (
                Self::Pending,
                Event::Started
                | Event::Succeeded
                | Event::SucceededMonitored
                | Event::MonitoringEnded,
            )
            | (Self::Triggering, Event::Triggered | Event::MonitoringEnded)
            | (Self::Running, Event::Triggered | Event::Started | Event::MonitoringEnded)
            | (
                Self::CompletedMonitoring,
                Event::Triggered
                | Event::Started
                | Event::Succeeded
                | Event::SucceededMonitored
                | Event::Cancelled,
            )
            | (Self::Completed | Self::Failed | Self::Cancelled, _) => {
                return Err(IllegalTransition { from: self, event });
            }
        };
        Ok(next)
    }

    /// Whether no event can change it any more.
    pub fn is_terminal(self) -> bool {
        match self {
            Self::Completed | Self::Failed | Self::Cancelled => true,
            Self::Pending | Self::Triggering | Self::Running | Self::CompletedMonitoring => false,
        }
    }

    /// Whether a run in this state holds one of its pipeline's `maxActiveRuns` places.
    ///
    /// Monitoring frees the place: the job itself is over. A slot that waits for its next attempt
    /// goes on holding one, which its failed run cannot say.
    pub fn occupies_place(self) -> bool {
        match self {
            Self::Pending | Self::Triggering | Self::Running => true,
            Self::CompletedMonitoring | Self::Completed | Self::Failed | Self::Cancelled => false,
        }
    }

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "PENDING",
            Self::Triggering => "TRIGGERING",
            Self::Running => "RUNNING",
            Self::CompletedMonitoring => "COMPLETED_MONITORING",
            Self::Completed => "COMPLETED",
            Self::Failed => "FAILED",
            Self::Cancelled => "CANCELLED",
        }
    }

    /// Reads a name from the wire.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let found = Self::ALL.into_iter().find(|state| state.as_str() == text);
        found.ok_or_else(|| {
            TextError::not_one_of("state of a run", text, Self::ALL.map(Self::as_str).as_slice())
        })
    }
}

impl RunEvent {
    /// Every event.
    pub const ALL: [Self; 7] = [
        Self::Triggered,
        Self::Started,
        Self::Succeeded,
        Self::SucceededMonitored,
        Self::MonitoringEnded,
        Self::Failed,
        Self::Cancelled,
    ];

    /// The name in messages.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Triggered => "triggered",
            Self::Started => "started",
            Self::Succeeded => "succeeded",
            Self::SucceededMonitored => "succeeded, monitored",
            Self::MonitoringEnded => "monitoring ended",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
        }
    }
}

/// What started a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TriggerType {
    /// Its schedule, on time.
    Scheduler,
    /// A person.
    Manual,
    /// A call from outside.
    Webhook,
    /// A failed attempt.
    Retry,
    /// Catch-up of a missed slot.
    Catchup,
    /// A parent pipeline; reserved by the seed.
    Subdag,
    /// A backfill.
    Backfill,
    /// A sensor that opened its period's slot.
    Sensor,
    /// The watchdog, for a sensor whose slot had not been opened.
    Reconcile,
    /// Somebody else, who reports to Interlock.
    External,
}

impl TriggerType {
    /// Every type, in the order of the design.
    pub const ALL: [Self; 10] = [
        Self::Scheduler,
        Self::Manual,
        Self::Webhook,
        Self::Retry,
        Self::Catchup,
        Self::Subdag,
        Self::Backfill,
        Self::Sensor,
        Self::Reconcile,
        Self::External,
    ];

    /// The name on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Scheduler => "scheduler",
            Self::Manual => "manual",
            Self::Webhook => "webhook",
            Self::Retry => "retry",
            Self::Catchup => "catchup",
            Self::Subdag => "subdag",
            Self::Backfill => "backfill",
            Self::Sensor => "sensor",
            Self::Reconcile => "reconcile",
            Self::External => "external",
        }
    }

    /// Reads a name from the wire.
    pub fn parse(text: &str) -> Result<Self, TextError> {
        let found = Self::ALL.into_iter().find(|kind| kind.as_str() == text);
        found.ok_or_else(|| {
            TextError::not_one_of("trigger type", text, Self::ALL.map(Self::as_str).as_slice())
        })
    }
}

impl fmt::Display for RunState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for RunEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl fmt::Display for TriggerType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The states that some event leads to.
    fn reachable(from: RunState) -> Vec<RunState> {
        RunState::ALL
            .into_iter()
            .filter(|to| RunEvent::ALL.iter().any(|event| from.apply(*event) == Ok(*to)))
            .collect()
    }

    // Superseded entries of case 37, each legal here:
    // TRIGGERING→COMPLETED: the Go watcher did it for commands past its own machine, and its CLI
    //   then failed after the command had run.
    // TRIGGERING→COMPLETED_MONITORING: the same for a synchronous trigger with monitoring.
    // PENDING→FAILED: a slot can be closed before its trigger, e.g. at `closes_at`.
    #[test]
    fn case_37_only_these_transitions_are_legal() {
        use RunState::{
            Cancelled, Completed, CompletedMonitoring, Failed, Pending, Running, Triggering,
        };
        let ends = [Completed, Failed, Cancelled];
        let table: [(RunState, &[RunState]); 7] = [
            (Pending, &[Triggering, Failed, Cancelled]),
            (Triggering, &[Running, CompletedMonitoring, Completed, Failed, Cancelled]),
            (Running, &[CompletedMonitoring, Completed, Failed, Cancelled]),
            (CompletedMonitoring, &[Completed, Failed]),
            (Completed, &[]),
            (Failed, &[]),
            (Cancelled, &[]),
        ];
        for (from, to) in table {
            assert_eq!(reachable(from), to, "{from}");
            assert_eq!(from.is_terminal(), ends.contains(&from), "{from}");
        }
    }

    #[test]
    fn each_event_leads_to_one_state_or_nowhere() {
        let table = [
            (RunEvent::Triggered, RunState::Triggering, 1),
            (RunEvent::Started, RunState::Running, 1),
            (RunEvent::Succeeded, RunState::Completed, 2),
            (RunEvent::SucceededMonitored, RunState::CompletedMonitoring, 2),
            (RunEvent::MonitoringEnded, RunState::Completed, 1),
            (RunEvent::Failed, RunState::Failed, 4),
            (RunEvent::Cancelled, RunState::Cancelled, 3),
        ];
        for (event, to, from_count) in table {
            let accepted: Vec<_> =
                RunState::ALL.iter().filter_map(|from| from.apply(event).ok()).collect();
            assert_eq!(accepted, vec![to; from_count], "{event}");
        }
    }

    #[test]
    fn an_illegal_transition_names_both_sides() {
        let error = RunState::Completed.apply(RunEvent::Started).unwrap_err();
        assert_eq!(error.to_string(), "a run that is COMPLETED cannot take the event `started`");
    }

    #[test]
    fn a_place_is_held_from_pending_until_the_job_is_over() {
        let holding: Vec<_> = RunState::ALL.into_iter().filter(|s| s.occupies_place()).collect();
        assert_eq!(holding, [RunState::Pending, RunState::Triggering, RunState::Running]);
    }

    #[test]
    fn names_on_the_wire_are_read_back() {
        for state in RunState::ALL {
            assert_eq!(RunState::parse(state.as_str()), Ok(state));
        }
        for kind in TriggerType::ALL {
            assert_eq!(TriggerType::parse(kind.as_str()), Ok(kind));
        }
        assert_eq!(RunState::CompletedMonitoring.to_string(), "COMPLETED_MONITORING");
        assert!(RunState::parse("running").is_err());
        let error = TriggerType::parse("cron").unwrap_err();
        assert_eq!(error.message, "`cron` is not a trigger type");
    }
}
