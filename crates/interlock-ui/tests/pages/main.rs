//! What the pages look like, over answers that are written here: each state of each page, as HTML.
//!
//! That the answers are what the API gives, and what a browser makes of the pages, is seen by the tests with a real `serve`.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

mod canned;
mod fleet;
mod policy;
mod states;
