//! What the files of users mean, and what they are told when files are wrong.

mod broken;
mod directory;
mod hostile;
mod meaning;
mod schema;
mod secrets;
mod seeds;
mod support;
