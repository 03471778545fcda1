//! `interlock validate`: everything that is wrong in the files, at once.

use std::{io::Write as _, path::Path};

use interlock_config::{Problem, Severity};
use interlock_core::text::counted;
use serde_json::Value;

use crate::{
    exit::{Failure, PROBLEMS, SUCCESS},
    output::{Form, Output},
    project,
};

pub(super) fn run(directory: &Path, form: Form, output: &mut Output) -> Result<u8, Failure> {
    let loaded = project::load(directory)?;
    let errors = loaded.problems.iter().filter(|p| p.severity == Severity::Error).count();
    let warnings = loaded.problems.len() - errors;
    if form == Form::Json {
        let problems = loaded.problems.iter().map(Problem::to_json).collect();
        output.json(&Value::Array(problems))?;
    } else {
        for problem in &loaded.problems {
            writeln!(output.out, "{}", problem.render())?;
        }
        writeln!(
            output.out,
            "{}, {}, {}",
            counted(loaded.pipelines.len(), "usable pipeline"),
            counted(errors, "error"),
            counted(warnings, "warning"),
        )?;
    }
    Ok(if errors > 0 { PROBLEMS } else { SUCCESS })
}
