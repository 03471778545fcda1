//! Putting a small file in the place of another, whole or not at all.

use std::{
    fs::{self, File},
    io::{self, Write as _},
    path::Path,
};

/// Replaces a file; whoever reads it reads all of the old one or all of the new one, also when the power fails.
pub(crate) fn replace(path: &Path, text: &str) -> io::Result<()> {
    let draft = path.with_extension("new");
    let mut file = File::create(&draft)?;
    file.write_all(text.as_bytes())?;
    file.sync_all()?;
    fs::rename(&draft, path)
}
