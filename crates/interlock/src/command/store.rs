//! `interlock store`: looking after the ledger's file, and moving to another store.

mod copy;

use std::{io::Write as _, path::Path};

use interlock_store_embedded::{backup, check};

use crate::{
    arguments::StoreCommand,
    exit::{Failure, PROBLEMS, SUCCESS},
    ledger::Ledger,
    output::Output,
    place::Place,
};

pub(super) fn run(
    directory: &Path,
    command: &StoreCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    if let StoreCommand::Copy { from, to } = command {
        return copy::run((from.as_deref().unwrap_or(directory), to), output);
    }
    // Says better than the store what is missing.
    drop(Ledger::open(directory)?);
    if matches!(command, StoreCommand::Reclaim) {
        return copy::reclaim(directory, output);
    }
    let place = Place::of(directory)?;
    if !place.is_embedded() {
        return Err(Failure::failed(
            format!("{place} is maintained with its server's own tools"),
            "This command is for the embedded store.",
        ));
    }
    let folder = place.folder;
    match command {
        // Above.
        StoreCommand::Copy { .. } | StoreCommand::Reclaim => Ok(SUCCESS),
        StoreCommand::Backup { file } => {
            backup(&folder, file)?;
            writeln!(output.out, "wrote {}", file.display())?;
            Ok(SUCCESS)
        }
        StoreCommand::Check => {
            let problems = check(&folder)?;
            for problem in &problems {
                writeln!(output.out, "{problem}")?;
            }
            if problems.is_empty() {
                writeln!(output.out, "no damage found")?;
            }
            Ok(if problems.is_empty() { SUCCESS } else { PROBLEMS })
        }
    }
}
