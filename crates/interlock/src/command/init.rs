//! `interlock init`: a small project to begin with.

use std::{fs, io::Write as _, path::Path};

use crate::{
    exit::{Failure, SUCCESS},
    output::Output,
};

/// What is written, and what it says.
const FILES: [(&str, &str); 3] = [
    ("interlock.yaml", include_str!("../templates/interlock.yaml")),
    ("pipelines/hello.yaml", include_str!("../templates/hello.yaml")),
    ("calendars/holidays.yaml", include_str!("../templates/holidays.yaml")),
];

pub(super) fn run(directory: &Path, output: &mut Output) -> Result<u8, Failure> {
    // Look before writing anything, so that a refusal leaves nothing behind.
    for (name, _) in FILES {
        let path = directory.join(name);
        if path.exists() {
            return Err(Failure::failed(
                format!("{} already exists", path.display()),
                "Choose an empty directory; nothing was written.",
            ));
        }
    }
    for (name, text) in FILES {
        let path = directory.join(name);
        let folder = path.parent().unwrap_or(directory);
        fs::create_dir_all(folder).map_err(|error| Failure::file("create", folder, &error))?;
        fs::write(&path, text).map_err(|error| Failure::file("write", &path, &error))?;
        writeln!(output.out, "wrote {}", path.display())?;
    }
    let shown = directory.display();
    writeln!(output.out, "\nnow try:\n  interlock validate {shown}\n  interlock next -C {shown}")?;
    Ok(SUCCESS)
}
