//! Where the scripts are.

use std::{
    fs,
    path::{Path, PathBuf},
};

/// The script with a name, or with a path of its own; where it is, and its text.
pub fn find(name: &str) -> Result<(PathBuf, String), String> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("scenarios");
    let own = Path::new(name);
    let path = if own.is_file() { own.to_owned() } else { folder.join(format!("{name}.txt")) };
    fs::read_to_string(&path).map(|text| (path, text)).map_err(|error| {
        format!(
            "there is no scenario `{name}` ({error}); there are:\n{}",
            names(&folder).join("\n")
        )
    })
}

/// The names of the scripts in a folder.
fn names(folder: &Path) -> Vec<String> {
    let entries = fs::read_dir(folder).into_iter().flatten().flatten();
    let paths = entries.map(|entry| entry.path());
    let name = |path: PathBuf| path.file_stem().map(|name| name.to_string_lossy().into_owned());
    let mut names: Vec<String> = paths.filter_map(name).collect();
    names.sort();
    names
}
