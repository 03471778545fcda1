//! Files.

pub mod code;
mod placeholder;
pub mod problem;
mod shape;
pub mod source;
mod suggest;
mod yaml;
pub use shape::{FileKind, reference::reference, schema::json_schema};
