//! What a report says, within its bounds.

use std::{collections::BTreeMap, fmt::Write as _, path::Path, time::Duration};

use super::{
    arena::Copied,
    gathered::{Gathered, Scene},
    observed,
};
use crate::clock::{monotonic, nanos, wall};

/// A report is at most this long.
pub(super) const LENGTH_MAX: usize = 256 * 1_024;
/// What is said where something had to be left out for that.
const CUT_OFF: &str = "(cut off here)\n";
/// How long names may be looked up; whoever is described after that is described without.
const NAMED_IN: Duration = Duration::from_secs(2);

/// What is to be written down.
pub(super) struct Subject<'a> {
    pub(super) pid: u32,
    pub(super) name: &'a str,
    pub(super) why: &'a str,
    /// What the process itself said of its memory; nothing of one that is only supervised.
    pub(super) heap: &'a str,
    /// What the process itself said of its watches.
    pub(super) watches: &'a str,
}

/// What every report begins with: up to the first empty line it is for programs to read.
pub(super) fn header(name: &str, why: &str, pid: u32) -> String {
    let host = rustix::system::uname();
    let host = host.nodename().to_string_lossy();
    let (time, version) = (wall(), env!("CARGO_PKG_VERSION"));
    format!(
        "why: {why}\nname: {name}\nprocess: {pid}\ntime: {time}\nhost: {host}\nversion: interlock {version}\n"
    )
}

/// All of it. The stacks of each process have a share of the room, so that one with many threads leaves some for the others.
pub(super) fn text(subject: &Subject<'_>, scene: &Scene, names: &mut Names) -> String {
    let Subject { pid, name, why, heap, watches } = subject;
    let mut text = header(name, why, *pid);
    let _written = writeln!(text, "\n== watches\n{watches}");
    if !heap.is_empty() {
        let _written = writeln!(text, "== heap\n{}\n", heap.trim_end());
    }
    text.push_str(&overview(scene));
    let end: String = scene.processes.iter().map(|it| possessions(it, *pid)).collect();
    let mut left = scene.processes.len();
    let until = monotonic().saturating_add(nanos(NAMED_IN));
    for process in &scene.processes {
        let room = LENGTH_MAX.saturating_sub(text.len() + end.len()) / left.max(1);
        left -= 1;
        let in_time = monotonic() < until;
        let mut unnamed = Names::Unwanted;
        let stacks = stacks(process, *pid, if in_time { names } else { &mut unnamed });
        text.push_str(&shortened(stacks, room));
    }
    text.push_str(&end);
    shortened(text, LENGTH_MAX)
}

/// As much of a text as there is room for.
fn shortened(mut text: String, room: usize) -> String {
    if text.len() > room {
        let room = room.saturating_sub(CUT_OFF.len());
        let line = text.get(..text.floor_char_boundary(room)).and_then(|it| it.rfind('\n'));
        text.truncate(line.map_or(0, |line| line + 1));
        text.push_str(CUT_OFF);
    }
    text
}

/// A line for each process.
fn overview(scene: &Scene) -> String {
    let mut text = "== processes\n".to_owned();
    for Gathered { pid, parent, command, threads, .. } in &scene.processes {
        let main = threads.get(&pid.cast_signed());
        let state = main.map_or("?", |it| it.state.as_str());
        let _written = writeln!(text, "{pid} {state}, child of {parent}: {command}");
    }
    if scene.left_out > 0 {
        let _written = writeln!(text, "and {} more", scene.left_out);
    }
    text
}

/// What a section is called: those of the process that the report is about have no number.
fn title(section: &str, pid: u32, subject: u32) -> String {
    if pid == subject {
        format!("\n== {section}\n")
    } else {
        format!("\n== {section} of process {pid}\n")
    }
}

fn stacks(process: &Gathered, subject: u32, names: &mut Names) -> String {
    let Gathered { pid, threads, copied, maps, .. } = process;
    let mut text = title("threads", *pid, subject);
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
    text
}

fn possessions(process: &Gathered, subject: u32) -> String {
    let Gathered { pid, memory, descriptors, .. } = process;
    let (memory_of, descriptors_of) =
        (title("memory", *pid, subject), title("descriptors", *pid, subject));
    format!("{memory_of}{memory}{descriptors_of}{descriptors}")
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

#[cfg(test)]
mod tests {
    use super::*;

    fn process(pid: u32, threads: i32) -> Gathered {
        let seen = |number: i32| {
            let observed = observed::Observed { name: "x".repeat(900), ..Default::default() };
            (number + pid.cast_signed(), observed)
        };
        Gathered {
            pid,
            parent: "1".to_owned(),
            command: format!("program {pid}"),
            threads: (0..threads).map(seen).collect(),
            copied: vec![],
            memory: "VmRSS: 1\n".to_owned(),
            descriptors: "0 open\n".to_owned(),
            maps: String::new(),
        }
    }

    #[test]
    fn a_process_with_very_many_threads_leaves_room_for_the_others() {
        let subject = Subject { pid: 1_000, name: "it", why: "no sign", heap: "", watches: "" };
        let processes = vec![process(1_000, 1_000), process(5_000, 2), process(6_000, 1_000)];
        let scene = Scene { processes, left_out: 7 };
        let text = text(&subject, &scene, &mut Names::Unwanted);
        assert!(text.len() <= LENGTH_MAX && text.len() > LENGTH_MAX / 2, "{}", text.len());
        assert_eq!(text.matches(CUT_OFF).count(), 2);
        assert!(text.contains("thread 5001 "), "the one in between is whole");
        assert!(text.contains("\nand 7 more\n") && text.contains(" child of 1: program 6000\n"));
        assert!(text.ends_with("== descriptors of process 6000\n0 open\n"));
    }

    #[test]
    fn what_is_cut_off_ends_with_a_whole_line() {
        assert_eq!(shortened("one\ntwo\n".to_owned(), 8), "one\ntwo\n");
        let long = format!("{}\n", "ä".repeat(100));
        assert_eq!(shortened(format!("one\n{long}"), 40), format!("one\n{CUT_OFF}"));
        assert_eq!(shortened(long, 40), CUT_OFF);
    }
}
