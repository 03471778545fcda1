//! `interlock schema`: prints the JSON Schema of a kind of file.

use interlock_config::{FileKind, json_schema};

use crate::{
    arguments::SchemaKind,
    exit::{Failure, SUCCESS},
    output::Output,
};

pub(super) fn run(kind: SchemaKind, output: &mut Output) -> Result<u8, Failure> {
    let kind = match kind {
        SchemaKind::Pipeline => FileKind::Pipeline,
        SchemaKind::Config => FileKind::Config,
        SchemaKind::Archetype => FileKind::Archetype,
        SchemaKind::Calendar => FileKind::Calendar,
    };
    output.json(&json_schema(kind))?;
    Ok(SUCCESS)
}
