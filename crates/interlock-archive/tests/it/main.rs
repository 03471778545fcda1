//! The archive against real servers: every row exactly once, whatever happens in between.

#![expect(
    clippy::unwrap_used,
    reason = "what is shared between tests fails like a test: with a panic"
)]

mod cases;
mod cast;
mod engines;
mod trouble;
mod views;
