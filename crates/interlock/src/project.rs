//! The project a command works on: its directory, loaded.

use std::path::Path;

use interlock_config::{Loaded, SystemZones, load_dir, problem::Severity};
use interlock_core::{id::PipelineId, pipeline::Pipeline};

use crate::{environment, exit::Failure, output::Output};

/// Loads the project in a directory, whatever is wrong with it.
pub(crate) fn load(directory: &Path) -> Result<Loaded, Failure> {
    if !directory.is_dir() {
        return Err(Failure::failed(
            format!("there is no directory {}", directory.display()),
            "Name the project with `-C DIR`, or write a new one with `interlock init DIR`.",
        ));
    }
    Ok(load_dir(directory, &SystemZones::new(), &environment::variable))
}

/// Says on standard error that parts of the project could not be used. The rest is used all the same.
pub(crate) fn mention_errors(loaded: &Loaded, output: &mut Output) -> Result<bool, Failure> {
    mention_count(loaded.problems.iter().filter(|p| p.severity == Severity::Error).count(), output)
}

/// The same for so many errors.
pub(crate) fn mention_count(errors: usize, output: &mut Output) -> Result<bool, Failure> {
    use std::io::Write as _;
    if errors == 0 {
        return Ok(false);
    }
    let (are, s) = if errors == 1 { ("is", "") } else { ("are", "s") };
    writeln!(
        output.err,
        "there {are} {errors} problem{s} in the files, and what they concern is left out; \
         `interlock validate` shows them"
    )?;
    Ok(true)
}

/// The pipeline with a name, if it is declared.
pub(crate) fn find<'a>(loaded: &'a Loaded, name: &PipelineId) -> Option<&'a Pipeline> {
    loaded.pipelines.iter().map(|loaded| &loaded.pipeline).find(|pipeline| pipeline.name == *name)
}

/// The pipeline with a name; a failure that lists the others if there is none.
pub(crate) fn pipeline<'a>(loaded: &'a Loaded, name: &str) -> Result<&'a Pipeline, Failure> {
    let mut pipelines = loaded.pipelines.iter().map(|loaded| &loaded.pipeline);
    pipelines.clone().find(|pipeline| pipeline.name.as_str() == name).ok_or_else(|| {
        let names: Vec<_> = pipelines.by_ref().map(|pipeline| pipeline.name.as_str()).collect();
        let help = match names.as_slice() {
            [] => "The project has no usable pipelines; `interlock validate` says why.".to_owned(),
            names => format!("There are {}.", names.join(", ")),
        };
        Failure::usage(format!("there is no pipeline `{name}`"), help)
    })
}
