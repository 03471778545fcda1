//! What is recorded, as sentences for people (`docs/adr/0063-sentences-for-people.md`).
//!
//! One record has one sentence: commands, HTTP, pages, badges and the simulator's scenarios ask here. There are three sizes.
//!
//! - [`headline()`] is a sentence: what became of a slot, and why ("Skipped: orders-ready was not reported by 09:20 UTC.").
//! - [`short_reason`] is the part after the colon for the cell of a table, at most [`SHORT_MAX`] characters
//!   ("orders-ready not reported by 09:20"). Its times are in the zone of the column head, and do not name it.
//! - [`full_reason`] is a headline and what else the story knows, for a page about one slot.
//!
//! Sentences that are recorded with an event or sent with an alert are made where the event is: their kinds, and what to do about
//! them, are in `interlock_core::message`.

mod facts;
mod full;
mod headline;
mod pipeline;
mod short;
mod times;

pub use self::{
    facts::SlotFacts,
    full::full_reason,
    headline::{absence_headline, headline, span_headline},
    pipeline::{at_risk_reason, not_due_reason, paused_reason},
    short::{SHORT_MAX, short_reason, shorten, took},
    times::ShownTimes,
};

#[cfg(test)]
mod tests;
