//! The fleet's tally: what became of the slots of every pipeline, and what is planned, on one page (`docs/adr/0062-the-fleets-tally.md`).
//!
//! A [`FleetTally`] has one entry for each pipeline: its slots of the last 48 hours by quarter of an hour and place, packed into less than
//! a kilobyte. A [`FleetFollower`] keeps it: it counts everything once, then reads again what the store's events are about, and goes round
//! through everything in a quarter of an hour. [`Reader::fleet`](crate::Reader::fleet) makes pages of it; what lies further back than 48 hours
//! is read for the rows of a page, and kept for a while.
//!
//! **Invariant:** an event is only a hint. What is counted is what the ledger says, read after the event; so events that are lost, come
//! twice or late do no harm that lasts longer than the round.
//! **Invariant:** each slot is in one place ([`FleetPlace`](crate::model::fleet::FleetPlace)), and the totals are the sum of the places.
//! **Invariant:** no request waits for the store longer than it has time: what was not read is said.

mod answer;
mod badge;
mod cells;
mod declare;
mod details;
mod dirty;
mod follow;
mod gauge;
mod groups;
mod history;
mod index;
mod place;
mod planned;
mod question;
mod ranked;
mod read;
mod recount;
mod seen;
mod state;
mod summary;
mod survey;
mod table;
mod tallied;

pub use self::{
    details::IsTimeLeft,
    follow::FleetFollower,
    gauge::{PIPELINES_MAX, PipelineGauge, PipelineGauges},
    table::FleetTally,
};
