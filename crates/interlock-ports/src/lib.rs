//! What the engine asks of the world: start a job, deliver an alert.
//!
//! Traits and plain data only. The engine, the watchdog and the simulator see this crate and never the clients behind it
//! (HTTP, TLS, SMTP, processes): those live in `interlock-trigger` and `interlock-alert`, which implement these traits. So
//! the engine compiles beside them instead of after them, and the simulator is built without them.

pub mod channel;
pub mod trigger;
