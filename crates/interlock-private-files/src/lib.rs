//! Files and folders that only their owner may read.
//!
//! The ledger holds whole declarations, and with them whatever secrets are written there: a pipeline's file that only its
//! owner may read must not be readable through a copy. So the state folder is `0700` and each file in it `0600`, whatever
//! the umask is, from the moment they exist. Jobs do not inherit this: their umask is the one that Interlock was started
//! with.
//!
//! [`restrict`] mends what an older version, a restored backup or `cp` left open. Only the folder and what lies directly in it
//! is looked at: nothing below a folder that others may not enter is theirs to read.

use std::{
    fs::{self, DirBuilder, File, Metadata, OpenOptions, Permissions},
    io::{self, Write as _},
    os::unix::fs::{
        DirBuilderExt as _, MetadataExt as _, OpenOptionsExt as _, PermissionsExt as _,
    },
    path::{Path, PathBuf},
};

/// What group and others may do.
const OTHERS: u32 = 0o077;

/// Makes a folder that only its owner may enter, and its parents as everybody makes folders. One that exists is left as it is.
pub fn create_folder(path: &Path) -> io::Result<()> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent)?;
    }
    match DirBuilder::new().mode(0o700).create(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => Ok(()),
        made => made,
    }
}

/// How a file is opened that only its owner may read, once it exists.
pub fn open_options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.mode(0o600);
    options
}

/// Makes an empty file, for a library that would make it for everybody to read. One that exists is left as it is.
pub fn create_file(path: &Path) -> io::Result<()> {
    match open_options().write(true).create_new(true).open(path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        made => made.map(|_: File| ()),
    }
}

/// Puts a text in the place of a file: who reads it reads all of the old one or all of the new one, also when the power fails.
pub fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = open_options().write(true).create(true).truncate(true).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}

/// Puts a text into a file that is not there yet, whole from the moment it can be seen. One that is there stays as it is: of several processes
/// that create it at once, the first has written it.
pub fn create_whole(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension(format!("{}.new", std::process::id()));
    let mut file = open_options().write(true).create(true).truncate(true).open(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    match fs::hard_link(&draft, path) {
        Ok(()) => fs::remove_file(&draft),
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => fs::remove_file(&draft),
        // A file system without hard links.
        Err(_unsupported) => fs::rename(&draft, path),
    }
}

/// The name of a file's owner, or its number where it has none.
pub fn owner(path: &Path) -> Option<String> {
    let number = fs::metadata(path).ok()?.uid().to_string();
    let users = fs::read_to_string("/etc/passwd").unwrap_or_default();
    let name = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        let (name, uid) = (fields.next()?, fields.nth(1)?);
        (uid == number).then(|| name.to_owned())
    });
    Some(name.unwrap_or(number))
}

/// Where a file or a folder is open to others, and why it could not be closed to them.
#[derive(Debug)]
pub struct Exposed {
    /// Which one.
    pub path: PathBuf,
    /// Its permissions.
    pub mode: u32,
    /// Why it is still so.
    pub error: Option<io::Error>,
}

/// Which of the files in a folder are meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Extent<'a> {
    /// The folder itself and everything in it.
    Folder,
    /// Only files whose names begin so: the folder holds what is not ours, too.
    Files(&'a [&'a str]),
}

/// What others than the owner may read or enter.
pub fn exposed(folder: &Path, extent: Extent<'_>) -> io::Result<Vec<Exposed>> {
    let mut found = Vec::new();
    if extent == Extent::Folder {
        found.extend(judged(folder, &fs::metadata(folder)?));
    }
    for entry in fs::read_dir(folder)? {
        let entry = entry?;
        let is_meant = match extent {
            Extent::Folder => true,
            Extent::Files(names) => {
                let name = entry.file_name();
                names.iter().any(|begin| name.to_string_lossy().starts_with(begin))
            }
        };
        if is_meant {
            match entry.metadata() {
                Ok(metadata) => found.extend(judged(&entry.path(), &metadata)),
                // A file beside the ledger may go at any moment.
                Err(error) if error.kind() == io::ErrorKind::NotFound => {}
                Err(error) => return Err(error),
            }
        }
    }
    Ok(found)
}

/// Takes from others what they may do with it, and answers what is still open to them.
pub fn restrict(folder: &Path, extent: Extent<'_>) -> io::Result<Vec<Exposed>> {
    let mut left = Vec::new();
    for found in exposed(folder, extent)? {
        let closed = Permissions::from_mode(found.mode & !OTHERS);
        match fs::set_permissions(&found.path, closed) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => {
                left.push(Exposed { error: Some(error), ..found });
            }
            Ok(()) | Err(_) => {}
        }
    }
    Ok(left)
}

/// What a link allows is decided where it leads to.
fn judged(path: &Path, metadata: &Metadata) -> Option<Exposed> {
    let mode = metadata.permissions().mode() & 0o7777;
    let is_open = !metadata.is_symlink() && mode & OTHERS != 0;
    is_open.then(|| Exposed { path: path.to_owned(), mode, error: None })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mode(path: &Path) -> u32 {
        fs::metadata(path).unwrap().permissions().mode() & 0o777
    }

    #[test]
    fn what_is_made_is_for_its_owner_alone() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("project/.interlock");
        create_folder(&folder).unwrap();
        create_folder(&folder).unwrap();
        create_file(&folder.join("ledger.db")).unwrap();
        assert_eq!((mode(&folder), mode(&folder.join("ledger.db"))), (0o700, 0o600));
        assert!(exposed(&folder, Extent::Folder).unwrap().is_empty());
        fs::write(folder.join("ledger.db"), "something").unwrap();
        create_file(&folder.join("ledger.db")).unwrap();
        assert_eq!(fs::read(folder.join("ledger.db")).unwrap(), b"something");
        create_folder(&folder.join("ledger.db")).unwrap_err();
    }

    #[test]
    fn a_file_that_is_there_stays_as_the_first_has_written_it() {
        let home = tempfile::tempdir().unwrap();
        let path = home.path().join("host");
        create_whole(&path, "first").unwrap();
        create_whole(&path, "second").unwrap();
        assert_eq!((fs::read_to_string(&path).unwrap().as_str(), mode(&path)), ("first", 0o600));
        assert_eq!(fs::read_dir(home.path()).unwrap().count(), 1, "nothing else is left");
    }

    #[test]
    fn what_others_may_read_is_found_and_mended() {
        let home = tempfile::tempdir().unwrap();
        let folder = home.path().join("state");
        fs::create_dir(&folder).unwrap();
        let open = |name: &str, bits| {
            fs::write(folder.join(name), "").unwrap();
            fs::set_permissions(folder.join(name), Permissions::from_mode(bits)).unwrap();
        };
        open("ledger.db", 0o644);
        open("ledger.db-wal", 0o640);
        open("run.sh", 0o755);
        open("host", 0o600);
        std::os::unix::fs::symlink("/etc/hostname", folder.join("link")).unwrap();
        fs::set_permissions(&folder, Permissions::from_mode(0o755)).unwrap();
        assert_eq!(exposed(&folder, Extent::Folder).unwrap().len(), 4);
        assert!(restrict(&folder, Extent::Files(&["ledger.db"])).unwrap().is_empty());
        assert_eq!((mode(&folder), mode(&folder.join("run.sh"))), (0o755, 0o755));
        assert_eq!(mode(&folder.join("ledger.db-wal")), 0o600);
        assert!(restrict(&folder, Extent::Folder).unwrap().is_empty());
        assert_eq!((mode(&folder), mode(&folder.join("run.sh"))), (0o700, 0o700));
        assert!(exposed(&folder, Extent::Folder).unwrap().is_empty());
    }
}
