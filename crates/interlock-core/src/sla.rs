//! SLA: by when a slot must have been evaluated and completed.

use jiff::SignedDuration;

use crate::{time_of_day::TimeOfDay, zone::Zone};

/// A deadline as written: `10:00`, `:30` (hourly), `2h` (after local midnight) or `+20m` (after the
/// slot's own instant).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Deadline {
    /// `HH:MM` on the slot's own date.
    TimeOfDay(TimeOfDay),
    /// `:MM`: that minute of the hour after the slot's hour.
    MinuteOfNextHour(u8),
    /// A duration after the local midnight of the slot's date.
    After(SignedDuration),
    /// A duration after the slot's own instant.
    AfterSlot(SignedDuration),
}

/// What a pipeline promises about time.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct SlaSpec {
    /// By when evaluation must have started.
    pub evaluation: Option<Deadline>,
    /// By when the run must have completed.
    pub completion: Option<Deadline>,
    /// The warning comes this long before the breach.
    pub expected_duration: Option<SignedDuration>,
    /// Budget counted from the first sensor.
    pub duration_max: Option<SignedDuration>,
    /// The zone of `HH:MM`; the schedule's when absent.
    pub zone: Option<Zone>,
    /// Marked as critical by its owner; carried to alerts.
    pub critical: bool,
}
