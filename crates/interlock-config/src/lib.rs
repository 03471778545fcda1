//! Files.

pub mod ics;
