//! Schedules from the outside: published vectors, properties, and a brute-force oracle.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod bounds;
mod oracle;
mod properties;
mod support;
mod vectors;
