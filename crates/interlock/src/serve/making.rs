//! Pipelines that a ping with `create=1` asks for: a file like any other, which is then loaded like any other.

use std::{
    fs,
    io::{self, Write as _},
    path::{Path, PathBuf},
    sync::Arc,
};

use interlock_api::Maker;
use interlock_core::id::PipelineId;

/// In a folder with so many files none is made: whoever may ping could fill the disk.
const FILES_MAX: usize = 10_000;

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
    if fs::read_dir(folder)?.count() >= FILES_MAX {
        return Err(io::Error::other(format!(
            "{} has {FILES_MAX} files already",
            folder.display()
        )));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_folder_that_is_full_gets_no_more_pipelines() {
        let folder = tempfile::tempdir().unwrap();
        let name = |text: &str| PipelineId::parse(text).unwrap();
        make(folder.path(), &name("first")).unwrap();
        for number in 1..FILES_MAX {
            fs::File::create(folder.path().join(format!("{number}.yaml"))).unwrap();
        }
        let refused = make(folder.path(), &name("one-too-many")).unwrap_err();
        assert!(refused.to_string().contains("has 10000 files already"), "{refused}");
        make(folder.path(), &name("first")).unwrap();
    }
}
