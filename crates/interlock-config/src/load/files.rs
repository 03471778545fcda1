//! Finding and reading files.

use std::{
    collections::BTreeMap,
    io::Read,
    path::{Path, PathBuf},
    sync::Arc,
};

use super::{CONFIG_FILE, references::defined_twice};
use crate::{
    problem::{Code, Problem},
    source::SourceFile,
    yaml::{BYTES_MAX, Node},
};

/// A file and its text.
#[derive(Debug)]
pub(super) struct Found {
    pub(super) path: PathBuf,
    pub(super) text: String,
}

/// Reads files below one directory, and notes what cannot be read.
#[derive(Debug)]
pub(super) struct Reader {
    dir: PathBuf,
    /// Directories that `interlock.yaml` names, and where.
    named: BTreeMap<PathBuf, (Arc<SourceFile>, std::ops::Range<usize>)>,
    pub(super) problems: Vec<Problem>,
}

impl Reader {
    pub(super) fn new(dir: &Path) -> Self {
        Self { dir: dir.to_owned(), named: BTreeMap::new(), problems: Vec::new() }
    }

    /// `interlock.yaml`, if there is one.
    pub(super) fn config_file(&mut self) -> Option<Found> {
        let path = self.dir.join(CONFIG_FILE);
        if !self.dir.is_dir() {
            let message = format!("there is no directory `{}`", self.dir.display());
            self.whole(&self.dir.clone(), Code::Unreadable, message, "");
            return None;
        }
        if path.exists() {
            return self.read(&path);
        }
        let other = self.dir.join("interlock.yml");
        if other.exists() { self.read(&other) } else { None }
    }

    /// Remembers where directories are named, so that an absent one can be pointed at.
    pub(super) fn named_dirs(&mut self, root: &Node, file: &Arc<SourceFile>) {
        for key in ["pipelineDirs", "calendarDirs", "archetypeDirs", "evaluatorDirs"] {
            for item in root.get(key).map(Node::items).unwrap_or_default() {
                let Some(name) = item.text() else { continue };
                let place = (Arc::clone(file), item.span.range());
                if key == "evaluatorDirs" && !self.dir.join(name).is_dir() {
                    self.absent(name.as_ref(), &place);
                }
                self.named.insert(name.into(), place);
            }
        }
    }

    /// The YAML files in some directories, in order of their names.
    pub(super) fn paths(&mut self, dirs: &[PathBuf]) -> Vec<PathBuf> {
        let mut paths = Vec::new();
        for dir in dirs {
            let full = self.dir.join(dir);
            match std::fs::read_dir(&full) {
                Ok(entries) => {
                    for entry in entries {
                        match entry {
                            Ok(entry) => paths.extend(yaml_file(&entry)),
                            Err(error) => self.unreadable(&full, &error),
                        }
                    }
                }
                Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                    if let Some(place) = self.named.get(dir).cloned() {
                        self.absent(dir, &place);
                    }
                }
                Err(error) => self.unreadable(&full, &error),
            }
        }
        // Byte by byte: comparing component by component takes most of the time of a long list.
        paths.sort_unstable_by(|a, b| a.as_os_str().cmp(b.as_os_str()));
        paths.dedup();
        paths
    }

    /// The YAML files in some directories with their texts.
    pub(super) fn files(&mut self, dirs: &[PathBuf]) -> Vec<Found> {
        self.paths(dirs).iter().filter_map(|path| self.read(path)).collect()
    }

    /// Reads one file as text, never more of it than is allowed.
    pub(super) fn read(&mut self, path: &Path) -> Option<Found> {
        let mut bytes = Vec::new();
        let read = std::fs::File::open(path)
            .and_then(|file| file.take(BYTES_MAX as u64 + 1).read_to_end(&mut bytes));
        if let Err(error) = read {
            self.unreadable(path, &error);
            return None;
        }
        if bytes.len() > BYTES_MAX {
            let help = "Configuration files have at most 1 MiB; split this one.";
            self.whole(path, Code::TooLarge, "the file is larger than 1 MiB".to_owned(), help);
            return None;
        }
        match String::from_utf8(bytes) {
            Ok(text) => Some(Found { path: path.to_owned(), text }),
            Err(error) => {
                let at = error.utf8_error().valid_up_to();
                let line =
                    error.as_bytes().iter().take(at).filter(|byte| **byte == b'\n').count() + 1;
                let message = format!("byte {at}, on line {line}, is not UTF-8 text");
                self.whole(path, Code::NotUtf8, message, "Save the file as UTF-8.");
                None
            }
        }
    }

    /// Notes a name that an earlier file defined.
    pub(super) fn unique(
        &mut self,
        what: &str,
        first: &mut BTreeMap<String, PathBuf>,
        name: &str,
        (found, root): (&Found, &Node),
    ) {
        let Some(earlier) = first.get(name) else {
            first.insert(name.to_owned(), found.path.clone());
            return;
        };
        let file = SourceFile { path: found.path.clone(), text: found.text.clone() };
        let mut problem = defined_twice(what, name, earlier, Arc::new(file));
        problem.span = root.get("name").map_or(0..0, |node| node.span.range());
        self.problems.push(problem);
    }

    /// Everything found, by file and place, each once.
    pub(super) fn finish(&mut self) -> Vec<Problem> {
        let mut problems = std::mem::take(&mut self.problems);
        sort(&mut problems);
        problems
    }

    fn absent(&mut self, dir: &Path, (file, span): &(Arc<SourceFile>, std::ops::Range<usize>)) {
        let message = format!("there is no directory `{}`", dir.display());
        let help = "Create it, or remove it from the list.";
        let mut problem = Problem::whole_file(Arc::clone(file), Code::Unreadable, message, help);
        problem.span = span.clone();
        self.problems.push(problem);
    }

    fn unreadable(&mut self, path: &Path, error: &std::io::Error) {
        self.whole(path, Code::Unreadable, format!("cannot read it: {error}"), "");
    }

    fn whole(&mut self, path: &Path, code: Code, message: String, help: &str) {
        let file = Arc::new(SourceFile::unread(path));
        self.problems.push(Problem::whole_file(file, code, message, help));
    }
}

/// Puts problems in the order of files and places, each once.
pub(crate) fn sort(problems: &mut Vec<Problem>) {
    problems.sort_by(|a, b| {
        let place = (&a.file.path, a.span.start, a.code).cmp(&(&b.file.path, b.span.start, b.code));
        // Equal ones must be neighbours to be found.
        place.then_with(|| a.message.cmp(&b.message))
    });
    // Every pipeline repeats what is wrong with the defaults.
    problems.dedup();
}

/// The path of a YAML file; a folder of such a name is none.
fn yaml_file(entry: &std::fs::DirEntry) -> Option<PathBuf> {
    let name = entry.file_name();
    let extension = Path::new(&name).extension()?;
    if extension != "yaml" && extension != "yml" {
        return None;
    }
    // What is listed knows its kind, except for links and on some file systems.
    let is_folder = match entry.file_type() {
        Ok(kind) if kind.is_file() => false,
        Ok(kind) if kind.is_dir() => true,
        Ok(_) | Err(_) => entry.path().is_dir(),
    };
    (!is_folder).then(|| entry.path())
}
