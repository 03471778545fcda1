//! The report: one bounded text per dump, for people and for the next start.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
};

use super::{arena::Copied, observed};
use crate::sys::stacks::trace;

/// A report is at most this long …
const LENGTH_MAX: usize = 256 * 1_024;
/// … and so many are kept.
const KEPT: usize = 8;
const EXTENSION: &str = "report";

/// What is to be written down.
pub(super) struct Subject<'a> {
    pub(super) pid: u32,
    pub(super) name: &'a str,
    pub(super) why: &'a str,
    /// What the process itself said of its watches.
    pub(super) watches: &'a str,
}

/// Everything that can only be had while the process is there.
pub(super) struct Gathered {
    threads: BTreeMap<i32, observed::Observed>,
    copied: Vec<Copied>,
    memory: String,
    descriptors: String,
    maps: String,
}

impl Gathered {
    /// Gathers it. The stacks of threads that did not store them are read from outside.
    pub(super) fn of(pid: u32, mut copied: Vec<Copied>) -> Self {
        let threads = observed::threads(pid);
        let is_missing = |thread: &&i32| !copied.iter().any(|known| known.thread == **thread);
        let missing: Vec<i32> = threads.keys().filter(is_missing).copied().collect();
        let traced = missing.into_iter().filter_map(|thread| trace(pid.cast_signed(), thread).ok());
        copied.extend(traced);
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let (memory, descriptors) = (observed::memory(pid), observed::descriptors(pid));
        Self { threads, copied, memory, descriptors, maps }
    }
}

/// Writes down what another process is doing.
pub(crate) fn report_on(pid: u32, folder: &Path, (name, why): (&str, &str)) -> io::Result<PathBuf> {
    let gathered = Gathered::of(pid, vec![]);
    write(folder, &Subject { pid, name, why, watches: "" }, gathered, &mut Names::default())
}

/// Writes a report.
pub(super) fn write(
    folder: &Path,
    subject: &Subject<'_>,
    gathered: Gathered,
    names: &mut Names,
) -> io::Result<PathBuf> {
    fs::create_dir_all(folder)?;
    let place = (subject.name, subject.pid);
    let mut text = compose(subject, gathered, names);
    if text.len() > LENGTH_MAX {
        let end = (0..=LENGTH_MAX).rev().find(|at| text.is_char_boundary(*at)).unwrap_or(0);
        text.truncate(end);
        text.push_str("\n(cut off here)\n");
    }
    let number = (1..u32::MAX).find(|number| !path(folder, place, *number).exists());
    let path = path(folder, place, number.unwrap_or(1));
    let fresh = path.with_extension("fresh");
    fs::write(&fresh, text)?;
    fs::rename(fresh, &path)?;
    forget_old(folder)?;
    Ok(path)
}

fn path(folder: &Path, (name, pid): (&str, u32), number: u32) -> PathBuf {
    folder.join(format!("{name}-{pid}-{number}.{EXTENSION}"))
}

fn forget_old(folder: &Path) -> io::Result<()> {
    let mut all: Vec<_> = reports(folder)?
        .into_iter()
        .filter_map(|path| Some((path.metadata().ok()?.modified().ok()?, path)))
        .collect();
    all.sort();
    let too_many = all.len().saturating_sub(KEPT);
    all.iter().take(too_many).try_for_each(|(_, path)| fs::remove_file(path))
}

fn reports(folder: &Path) -> io::Result<Vec<PathBuf>> {
    let paths = fs::read_dir(folder)?.flatten().map(|entry| entry.path());
    Ok(paths.filter(|path| path.extension().is_some_and(|it| it == EXTENSION)).collect())
}

fn compose(subject: &Subject<'_>, gathered: Gathered, names: &mut Names) -> String {
    let Subject { pid, name, why, watches } = subject;
    let Gathered { threads, copied, memory, descriptors, maps } = gathered;
    let mut text = String::new();
    let _written = writeln!(text, "why: {why}\nname: {name}\nprocess: {pid}");
    let _written = writeln!(text, "\n== watches\n{watches}\n== threads");
    let mut stacks = names.stacks(&maps, &copied);
    for (thread, seen) in &threads {
        let observed::Observed { name, state, waits_in, call } = seen;
        let head = format!("thread {thread} `{name}` {state}, waits in {waits_in}, call {call}");
        let _written = writeln!(text, "\n{head}");
        match stacks.remove(thread) {
            Some(stack) => text.push_str(&stack),
            None => text.push_str("    its stack could not be taken\n"),
        }
    }
    let _written = writeln!(text, "\n== memory\n{memory}\n== descriptors\n{descriptors}");
    text
}

/// The names of functions, kept from one report to the next.
#[derive(Default)]
pub(super) struct Names {
    #[cfg(all(feature = "forensics", target_arch = "x86_64"))]
    known: Option<(String, super::symbols::Symbols)>,
}

impl Names {
    #[cfg(all(feature = "forensics", target_arch = "x86_64"))]
    fn stacks(&mut self, maps: &str, copied: &[Copied]) -> BTreeMap<i32, String> {
        let known = self.known.take().filter(|(of, _)| of == maps);
        let (of, mut symbols) =
            known.unwrap_or_else(|| (maps.to_owned(), super::symbols::Symbols::of(maps)));
        let stacks = copied.iter().map(|it| (it.thread, symbols.stack(it))).collect();
        self.known = Some((of, symbols));
        stacks
    }

    #[cfg(not(all(feature = "forensics", target_arch = "x86_64")))]
    #[expect(clippy::unused_self, reason = "there are no names")]
    fn stacks(&mut self, _maps: &str, copied: &[Copied]) -> BTreeMap<i32, String> {
        let address = |it: &Copied| format!("    at {:#x}\n", it.registers.instruction);
        copied.iter().map(|it| (it.thread, address(it))).collect()
    }
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
}

impl Found {
    /// It has been told: it stays where it is, under a name that is not found again.
    pub fn is_told(&self) -> io::Result<()> {
        fs::rename(&self.path, self.path.with_extension("told"))
    }
}

/// The reports in a folder that nobody has read yet, in order.
pub fn found(folder: &Path) -> Vec<Found> {
    let mut paths = reports(folder).unwrap_or_default();
    paths.sort();
    let read = |path: PathBuf| {
        let text = fs::read_to_string(&path).ok()?;
        let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let (why, name) = (field("why: ")?.to_owned(), field("name: ")?.to_owned());
        Some(Found { path, name, why })
    };
    paths.into_iter().filter_map(read).collect()
}
