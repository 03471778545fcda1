//! Files to validated core types, with every problem reported at once and pointing at its line.
//!
//! Text goes through four steps, each of which collects problems and goes on: [`yaml`] makes a tree
//! that knows where everything stands, [`shape::check`] compares it with the one static definition of
//! what files may say, [`decode`] reads what the texts mean, and [`load`] puts files together.
//!
//! **Invariant:** nothing here reads a clock or the environment; zones and variables are handed in.
//! **Invariant:** a secret is in no `Debug` output and in no problem.

pub mod problem;
pub mod source;

mod code;
mod cycle;
mod decode;
pub mod ics;
pub mod load;
mod placeholder;
pub mod route;
pub mod server;
mod shape;
pub mod silence;
mod suggest;
mod version;
mod yaml;
pub mod zones;

pub use code::Code;
pub use decode::{Environment, archetype::Archetype};
pub use load::{
    Around, Context, Loaded, LoadedPipeline, Pipelines, ReadFile, References, Upstream,
    decode_version, defined_twice, load_around, load_dir, parse_config, parse_data, parse_pipeline,
    parse_store,
};
pub use problem::{Problem, Severity};
pub use shape::{FileKind, reference::reference, schema::json_schema};
pub use yaml::{BYTES_MAX, DEPTH_MAX, KEYS_MAX, NODES_MAX};
pub use zones::{SystemZones, ZoneSource};
