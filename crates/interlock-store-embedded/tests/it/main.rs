//! The embedded store from outside: the contract, and what a disk and other processes can do to it.

#![expect(
    clippy::unwrap_used,
    reason = "what is shared between tests fails like a test: with a panic"
)]

mod cast;
mod child;
mod conformance;
mod crash;
mod disk;
mod displaced;
mod maintain;
mod open_slots;
mod processes;
mod recover;
mod refusals;
