//! The word that somebody who was in trouble is well again.
//!
//! Trouble leaves `NAME.unwell` beside its report. Who has been well for long renames that to `NAME.well`, once; whoever serves tells it and
//! takes it away.

use std::{
    fs, io,
    path::{Path, PathBuf},
};

const UNWELL: &str = "unwell";
const WELL: &str = "well";

fn word(folder: &Path, name: &str, word: &str) -> PathBuf {
    folder.join(format!("{name}.{word}"))
}

/// Trouble is told: that it was well before no longer holds, and that it is well has to be said afterwards.
pub(super) fn in_trouble(
    folder: &Path,
    name: &str,
    tell: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let _not_there = fs::remove_file(word(folder, name, WELL));
    tell()?;
    // Without it a person has to say that it is over.
    let _full = fs::write(word(folder, name, UNWELL), "");
    Ok(())
}

/// It has been well for long. Who was in no trouble has nothing to say.
pub(crate) fn is_well(folder: &Path, name: &str) -> io::Result<()> {
    match fs::rename(word(folder, name, UNWELL), word(folder, name, WELL)) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(()),
        renamed => renamed,
    }
}

/// Somebody who is well again, and of whom nobody has been told that yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Recovered {
    /// Who.
    pub name: String,
    path: PathBuf,
}

impl Recovered {
    /// It has been told.
    pub fn is_told(&self) -> io::Result<()> {
        fs::remove_file(&self.path)
    }
}

/// Those in a folder who are well again, in order. Ask after having told what they were in trouble for.
pub fn recovered(folder: &Path) -> Vec<Recovered> {
    let Ok(entries) = fs::read_dir(folder) else { return vec![] };
    let paths = entries.flatten().map(|entry| entry.path());
    let read = |path: PathBuf| {
        let name = path.file_name()?.to_str()?.strip_suffix(WELL)?.strip_suffix('.')?.to_owned();
        Some(Recovered { name, path })
    };
    let mut recovered: Vec<_> = paths.filter_map(read).collect();
    recovered.sort_by(|one, other| one.name.cmp(&other.name));
    recovered
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_was_in_trouble_says_once_that_it_is_well_and_new_trouble_takes_that_back() {
        let folder = tempfile::tempdir().unwrap();
        let folder = folder.path();
        let names = || recovered(folder).into_iter().map(|it| it.name).collect::<Vec<_>>();
        is_well(folder, "a.b").unwrap();
        assert_eq!(names(), Vec::<String>::new(), "it was never in trouble");
        in_trouble(folder, "a.b", || Ok(())).unwrap();
        assert_eq!(names(), Vec::<String>::new());
        is_well(folder, "a.b").unwrap();
        assert_eq!(names(), ["a.b"]);
        in_trouble(folder, "a.b", || Ok(())).unwrap();
        assert_eq!(names(), Vec::<String>::new(), "new trouble");
        is_well(folder, "a.b").unwrap();
        recovered(folder)[0].is_told().unwrap();
        is_well(folder, "a.b").unwrap();
        assert_eq!(names(), Vec::<String>::new(), "told once");
    }
}
