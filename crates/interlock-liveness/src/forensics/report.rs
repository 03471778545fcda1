//! The report: one bounded text per dump, for people and for the next start.

use std::{
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{
    gathered::Scene,
    text::{Names, Subject, header, text},
    wellness::in_trouble,
};
use crate::{clock::monotonic, sys::stacks::Tracer};

/// So many are kept.
const KEPT: usize = 8;
/// How long is waited for threads that do not stop to be read. What is held for longer is let go by our own end.
const LET_GO_IN: u64 = 1_000_000_000;
const EXTENSION: &str = "report";
/// What it becomes when it has been told.
const TOLD: &str = "told";

/// What was found out about a process, whether or not it could be kept.
pub(crate) struct Report {
    pub(crate) text: String,
    /// Where it is.
    pub(crate) kept: io::Result<PathBuf>,
}

/// Writes down what a child of ours is doing, and all else that descends from us.
pub(crate) fn report_on(pid: u32, folder: &Path, (name, why): (&str, &str)) -> Report {
    let mut tracer = Tracer::default();
    let scene = Scene::of_family(pid, &mut tracer);
    // Whoever is still held could not even hear that it is to end.
    let ends = monotonic().saturating_add(LET_GO_IN);
    while tracer.let_go() && monotonic() < ends {
        std::thread::sleep(Duration::from_millis(5));
    }
    let subject = Subject { pid, name, why, heap: "", watches: "" };
    let text = text(&subject, &scene, &mut Names::ready());
    let kept = place(folder, &subject).and_then(|path| {
        in_trouble(folder, name, || keep(&path, &text))?;
        Ok(path)
    });
    Report { text, kept }
}

/// What became of a process that has ended already.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It hung, and was ended.
    Hung,
    /// It died by itself, and was started again.
    Died,
    /// It died too often, and stays down.
    GivenUp,
}

const FATES: [(Fate, &str); 3] =
    [(Fate::Hung, "hung"), (Fate::Died, "died"), (Fate::GivenUp, "given up")];

/// Writes down how a process ended that nobody could look at any more. There is one for each name and fate, the newest: many deaths are not
/// to push out what was seen of a hang.
pub(crate) fn report_end(
    pid: u32,
    folder: &Path,
    fate: Fate,
    (name, why): (&str, &str),
) -> io::Result<()> {
    let word = FATES.iter().find(|(known, _)| *known == fate).map_or("", |(_, word)| *word);
    fs::create_dir_all(folder)?;
    let path = folder.join(format!("{name}-{}.{EXTENSION}", word.replace(' ', "-")));
    let text = format!("{}fate: {word}\n", header(name, why, pid));
    in_trouble(folder, name, || keep(&path, &text))
}

/// Where the next report about a process goes. A number that was given stays given: the process may be number 1 of a container, again and
/// again.
pub(super) fn place(folder: &Path, subject: &Subject<'_>) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let Subject { name, pid, .. } = subject;
    let path = |number: u32| folder.join(format!("{name}-{pid}-{number}.{EXTENSION}"));
    let is_free = |number: &u32| {
        let path = path(*number);
        !path.exists() && !path.with_extension(TOLD).exists()
    };
    Ok(path((1..u32::MAX).find(is_free).unwrap_or(1)))
}

/// Where a report is that was just written: the next start may have told it already.
pub(super) fn still_at(path: PathBuf) -> PathBuf {
    let told = path.with_extension(TOLD);
    if told.exists() { told } else { path }
}

/// Writes a report to its place; answers with what it says. One that is there already is replaced.
pub(super) fn write(
    path: &Path,
    subject: &Subject<'_>,
    scene: &Scene,
    names: &mut Names,
) -> io::Result<String> {
    let text = text(subject, scene, names);
    keep(path, &text)?;
    Ok(text)
}

/// Puts a report in its place, whole or not at all.
fn keep(path: &Path, text: &str) -> io::Result<()> {
    let fresh = path.with_extension("fresh");
    let kept = fs::write(&fresh, text).and_then(|()| fs::rename(&fresh, path));
    kept.inspect_err(|_| {
        // On a full disk half a report is of no use to anybody.
        let _not_there = fs::remove_file(&fresh);
    })?;
    forget_old(path.parent().unwrap_or(path))
}

/// Told or not, only the newest are kept.
fn forget_old(folder: &Path) -> io::Result<()> {
    let mut all: Vec<_> = reports(folder, &[EXTENSION, TOLD])?
        .into_iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    all.sort();
    let too_many = all.len().saturating_sub(KEPT);
    all.iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
}

fn reports(folder: &Path, extensions: &[&str]) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    let is_one = |path: &PathBuf| {
        path.extension().is_some_and(|it| extensions.iter().any(|extension| it == *extension))
    };
    Ok(paths.filter(is_one).collect())
}

/// A report that nobody has read yet.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Found {
    /// Where it is.
    pub path: PathBuf,
    /// What it is about.
    pub name: String,
    /// What happened.
    pub why: String,
    /// Of which process it is.
    pub pid: u32,
    /// What became of that.
    pub fate: Fate,
}

impl Found {
    /// It has been told: it stays where it is, under a name that is not found again.
    pub fn is_told(&self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension(TOLD))
    }
}

/// The reports in a folder that nobody has read yet, in order.
pub fn found(folder: &Path) -> Vec<Found> {
    let mut paths = reports(folder, &[EXTENSION]).unwrap_or_default();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let (head, _) = text.split_once("\n\n").unwrap_or((&text, ""));
        let field = |key: &str| head.lines().find_map(|line| line.strip_prefix(key));
        let (why, name) = (field("why: ")?.to_owned(), field("name: ")?.to_owned());
        let pid = field("process: ")?.parse().ok()?;
        let word = field("fate: ").unwrap_or("hung");
        let fate = FATES.iter().find(|(_, known)| *known == word)?.0;
        Some(Found { path, name, why, pid, fate })
    };
    paths.into_iter().filter_map(read).collect()
}
