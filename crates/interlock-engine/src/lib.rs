//! The loops: load a snapshot, ask core, commit, act.
//!
//! [`Engine`] owns a shard: it opens due slots (scheduler) and brings them to their end (controller).
//! [`Notifier`] delivers what the outbox holds; it needs no shard. Both reach the world only through [`seam`], so
//! that the simulator can run the same code on virtual time.
//!
//! Invariant: nothing acts on the world before the group that says so is accepted by the store.

mod asking;
mod backfill;
mod batch_size;
mod catchup_log;
mod catchup_stop;
mod commit;
mod control_schedules;
mod controller;
mod declare;
mod doubt;
mod ending;
mod engine;
mod evidence;
mod gap;
mod hands;
mod heard;
pub mod host;
mod inbox;
mod keeping;
mod leaving;
mod load;
mod news;
mod notifier;
mod obligations;
mod old_reports;
mod open;
mod outlook;
mod overdue;
mod overview;
mod pause;
mod preview;
mod progress;
mod prospect;
mod quarantine;
mod queue;
mod readiness_views;
mod recording;
mod registers;
mod reload;
mod reports;
mod request;
mod rerun;
mod scheduler;
pub mod seam;
mod sensors;
mod solo;
mod state;
mod step;
mod tell;
mod unfit;
mod upstreams;
pub mod vitals;
pub mod wellness;
mod write;

pub use backfill::backfill_of;
pub use declare::{Changes, pause_after};
pub use ending::end_wanted;
pub use engine::{Declaration, Engine, EngineError, Limits, Pace, Parts};
pub use evidence::{AskedSlot, verdict_now};
pub use gap::Owing;
pub use hands::SILENCE_PREFIX;
pub use notifier::{DeliveryState, Notifier, NotifierParts, Patience, Undelivered};
pub use overview::Overview;
pub use preview::{PlanLine, preview_away};
pub use prospect::{Forecast, Portion, Prospect};
pub use tell::{Known as KnownIncidents, add_incidents, incident_keys, thing_of};
pub use upstreams::ZoneOf;
