//! The report: one bounded text per dump, for people and for the next start.

use std::{
    collections::BTreeMap,
    fmt::Write as _,
    fs, io,
    path::{Path, PathBuf},
    time::Duration,
};

use super::{arena::Copied, observed};
use crate::{clock::monotonic, sys::stacks::Tracer};

/// A report is at most this long …
const LENGTH_MAX: usize = 256 * 1_024;
/// … and so many are kept.
const KEPT: usize = 8;
/// How long is waited for threads that do not stop to be read. What is held for longer is let go by our own end.
const LET_GO_IN: u64 = 1_000_000_000;
const EXTENSION: &str = "report";
/// What it becomes when it has been told.
const TOLD: &str = "told";

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
    pub(super) fn of(pid: u32, mut copied: Vec<Copied>, tracer: &mut Tracer) -> Self {
        let threads = observed::threads(pid);
        let is_missing = |thread: &&i32| !copied.iter().any(|known| known.thread == **thread);
        let missing: Vec<i32> = threads.keys().filter(is_missing).copied().collect();
        let trace = |thread: i32| tracer.copy(pid.cast_signed(), thread).ok();
        copied.extend(missing.into_iter().filter_map(trace));
        let maps = fs::read_to_string(format!("/proc/{pid}/maps")).unwrap_or_default();
        let (memory, descriptors) = (observed::memory(pid), observed::descriptors(pid));
        Self { threads, copied, memory, descriptors, maps }
    }
}

/// What was found out about a process, whether or not it could be kept.
pub(crate) struct Report {
    pub(crate) text: String,
    /// Where it is.
    pub(crate) kept: io::Result<PathBuf>,
}

/// Writes down what another process is doing.
pub(crate) fn report_on(pid: u32, folder: &Path, (name, why): (&str, &str)) -> Report {
    let mut tracer = Tracer::default();
    let gathered = Gathered::of(pid, vec![], &mut tracer);
    // Whoever is still held could not even hear that it is to end.
    let ends = monotonic().saturating_add(LET_GO_IN);
    while tracer.let_go() && monotonic() < ends {
        std::thread::sleep(Duration::from_millis(5));
    }
    let subject = Subject { pid, name, why, watches: "" };
    let text = text(&subject, &gathered, &mut Names::ready());
    let kept = place(folder, &subject).and_then(|path| keep(&path, &text).map(|()| path));
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
    keep(&path, &format!("why: {why}\nname: {name}\nprocess: {pid}\nfate: {word}\n"))
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
    gathered: &Gathered,
    names: &mut Names,
) -> io::Result<String> {
    let text = text(subject, gathered, names);
    keep(path, &text)?;
    Ok(text)
}

/// What a report says, in bounds.
fn text(subject: &Subject<'_>, gathered: &Gathered, names: &mut Names) -> String {
    let mut text = compose(subject, gathered, names);
    if text.len() > LENGTH_MAX {
        text.truncate(text.floor_char_boundary(LENGTH_MAX));
        text.push_str("\n(cut off here)\n");
    }
    text
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

fn compose(subject: &Subject<'_>, gathered: &Gathered, names: &mut Names) -> String {
    let Subject { pid, name, why, watches } = subject;
    let Gathered { threads, copied, memory, descriptors, maps } = gathered;
    let mut text = String::new();
    let _written = writeln!(text, "why: {why}\nname: {name}\nprocess: {pid}");
    let _written = writeln!(text, "\n== watches\n{watches}\n== threads");
    let mut stacks = names.stacks(maps, copied);
    for (thread, seen) in threads {
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
pub(super) enum Names {
    /// Not looked up: where a thread is, is said as a place in a file.
    Unwanted,
    #[cfg(all(feature = "forensics", target_arch = "x86_64"))]
    Wanted(Option<super::symbols::Symbols>),
}

impl Names {
    /// Those that there can be here.
    pub(super) fn ready() -> Self {
        #[cfg(all(feature = "forensics", target_arch = "x86_64"))]
        return Self::Wanted(None);
        #[cfg(not(all(feature = "forensics", target_arch = "x86_64")))]
        return Self::Unwanted;
    }

    fn stacks(&mut self, maps: &str, copied: &[Copied]) -> BTreeMap<i32, String> {
        match self {
            Self::Unwanted => {
                let place =
                    |it: &Copied| format!("    {}\n", file_place(maps, it.registers.instruction));
                copied.iter().map(|it| (it.thread, place(it))).collect()
            }
            #[cfg(all(feature = "forensics", target_arch = "x86_64"))]
            Self::Wanted(known) => {
                let symbols = super::symbols::Symbols::of(maps, known.take());
                let symbols = known.insert(symbols);
                copied.iter().map(|it| (it.thread, symbols.stack(it))).collect()
            }
        }
    }
}

/// An address as the file that is mapped there and how far into the file it is; or as it stands.
fn file_place(maps: &str, address: u64) -> String {
    let place = maps.lines().find_map(|line| {
        let mut words = line.splitn(6, ' ');
        let (from, to) = words.next()?.split_once('-')?;
        let number = |text: &str| u64::from_str_radix(text, 16).ok();
        let (from, to) = (number(from)?, number(to)?);
        let offset = number(words.nth(1)?)?;
        let file = Path::new(words.nth(2)?.trim()).file_name()?.to_string_lossy();
        let is_here = (from..to).contains(&address);
        is_here.then(|| format!("{file}+{:#x}", address - from + offset))
    });
    place.unwrap_or_else(|| format!("{address:#x}"))
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
        let field = |key: &str| text.lines().find_map(|line| line.strip_prefix(key));
        let (why, name) = (field("why: ")?.to_owned(), field("name: ")?.to_owned());
        let pid = field("process: ")?.parse().ok()?;
        let word = field("fate: ").unwrap_or("hung");
        let fate = FATES.iter().find(|(_, known)| *known == word)?.0;
        Some(Found { path, name, why, pid, fate })
    };
    paths.into_iter().filter_map(read).collect()
}
