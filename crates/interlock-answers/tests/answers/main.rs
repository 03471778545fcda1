//! Answers from a store that is written here, and from declarations that are decoded from their text.

#![expect(clippy::unwrap_used, clippy::panic, reason = "a test that cannot go on should stop")]

mod fleet;
mod house;
mod slots;
mod stories;
