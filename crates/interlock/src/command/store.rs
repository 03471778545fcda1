//! `interlock store`: looking after the ledger's file.

use std::{io::Write as _, path::Path};

use interlock_store_embedded::{backup, check};

use crate::{
    arguments::StoreCommand,
    exit::{Failure, PROBLEMS, SUCCESS},
    ledger::{Ledger, folder},
    output::Output,
};

pub(super) fn run(
    directory: &Path,
    command: &StoreCommand,
    output: &mut Output,
) -> Result<u8, Failure> {
    // Says better than the store what is missing.
    drop(Ledger::open(directory)?);
    let folder = folder(directory)?;
    match command {
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
                writeln!(output.out, "the store is sound")?;
            }
            Ok(if problems.is_empty() { SUCCESS } else { PROBLEMS })
        }
    }
}
