//! The real triggers: real processes, real sockets, real signals.
//!
//! This test binary plays every part itself: called with `child-runner DIR` it is the runner, with
//! `child-daemon DIR` a daemon that waits to be killed (`parts`).

#![expect(clippy::unwrap_used, clippy::panic, reason = "what helps a test fails like a test")]

mod airflow;
mod commands;
mod crashes;
mod http;
mod outbound;
mod parked;
mod parts;
mod server;
mod steps;
mod sweep;
mod world;
