//! `interlock version`.

use std::io::Write as _;

use crate::{
    exit::{Failure, SUCCESS},
    output::Output,
};

pub(super) fn run(output: &mut Output) -> Result<u8, Failure> {
    writeln!(output.out, "interlock {}", env!("CARGO_PKG_VERSION"))?;
    Ok(SUCCESS)
}
