//! Pipelines that a ping with `create=1` asks for: a file like any other, which is then loaded like any other.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use interlock_api::Maker;
use interlock_core::id::PipelineId;

/// What makes pipelines in a folder of the project.
pub(crate) fn maker(directory: &Path, dirs: &[PathBuf]) -> Maker {
    let folder = directory.join(dirs.first().map_or(Path::new("pipelines"), PathBuf::as_path));
    Maker(Arc::new(move |name| make(&folder, name).map_err(|error| error.to_string())))
}

/// Writes the file, in one piece; one that is there already is left alone.
fn make(folder: &Path, name: &PipelineId) -> io::Result<()> {
    let file = folder.join(format!("{name}.yaml"));
    if file.exists() {
        return Ok(());
    }
    fs::create_dir_all(folder)?;
    let mut draft = tempfile_in(folder, name)?;
    write!(
        draft.1,
        "# Made by a ping with `create=1`. Say here when it should run, and who is told.\nname: {name}\n\
         schedule: {{every: 1d, from: last, grace: 1h}}\ntrigger: {{type: external}}\n"
    )?;
    draft.1.sync_all()?;
    // Never over a file that somebody wrote meanwhile.
    let linked = fs::hard_link(&draft.0, &file);
    fs::remove_file(&draft.0)?;
    match linked {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => Err(error),
        _ => Ok(()),
    }
}

fn tempfile_in(folder: &Path, name: &PipelineId) -> io::Result<(PathBuf, fs::File)> {
    let draft = folder.join(format!(".{name}.{}.new", crate::inbox::fresh_key()));
    let file = fs::File::options().write(true).create_new(true).open(&draft)?;
    Ok((draft, file))
}
