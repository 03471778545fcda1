//! The store on Redis from outside: the contract, and what servers and other instances can do to it.

#![expect(
    clippy::unwrap_used,
    reason = "what is shared between tests fails like a test: with a panic"
)]

mod cast;
mod cluster;
mod conformance;
mod followers;
mod instances;
mod refusals;
mod tls;
mod views;
