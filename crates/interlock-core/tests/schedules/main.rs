//! Schedules from the outside: published vectors, properties, and a brute-force oracle.

mod bounds;
mod oracle;
mod properties;
mod support;
mod vectors;
