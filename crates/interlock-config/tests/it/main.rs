//! What the files of users mean, and what they are told when files are wrong.

#![expect(clippy::unwrap_used, reason = "helpers of tests may fail as tests do")]

mod again;
mod broken;
mod cases;
mod directory;
mod hostile;
mod keys;
mod meaning;
mod schema;
mod secrets;
mod seeds;
mod support;
