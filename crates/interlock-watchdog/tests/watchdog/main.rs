//! The watchdog against a store: the cases of the Go watchdog, absence in time, and what dies in between.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod both;
mod cases;
mod deleted;
mod house;
mod library;
mod obligations;
mod ourselves;
mod poison;
mod scan;
mod time;
mod wire;
