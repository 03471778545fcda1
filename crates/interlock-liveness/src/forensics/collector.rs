//! The sick process's side: has the threads store their stacks, and tells the helper.

use std::{
    fmt,
    fs::File,
    io::{self, Write as _},
    os::{fd::AsRawFd as _, unix::process::CommandExt as _},
    path::PathBuf,
    process::{Child, ChildStdin, ChildStdout, Command, Stdio},
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, fcntl_setfl, ftruncate, memfd_create},
    process::{PTracer, Pid, set_ptracer},
};

use super::{
    Dumped, Dumper, Wait,
    arena::LENGTH,
    heap::HeapReader,
    scribe::{GATHERED, WRITTEN},
};
use crate::{clock::monotonic, hooks::Expiry, ladder::Rung, roster::Roster, sys::stacks::Arena};

/// What fits into a pipe in one piece.
const MESSAGE_MAX: usize = 4_096;
/// How many dumps are taken in a minute, at most.
const PER_MINUTE: usize = 5;
const MINUTE: u64 = 60_000_000_000;

/// Writes down what a program knows of its own memory, a line each.
struct Facts(Box<FactsFn>);

type FactsFn = dyn Fn(&mut dyn io::Write) + Send;

impl fmt::Debug for Facts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Facts")
    }
}

/// Takes the stacks of all threads, and has a helper write them down.
#[derive(Debug)]
pub struct Forensics {
    arena: Arena,
    /// Kept open: the helper reads it.
    #[expect(dead_code, reason = "it ends when it is dropped")]
    memory: File,
    helper: Child,
    tell: ChildStdin,
    told: ChildStdout,
    message: Box<[u8; MESSAGE_MAX]>,
    heap: HeapReader,
    facts: Option<Facts>,
    /// When the last dumps were taken.
    taken: [u64; PER_MINUTE],
    is_limited: bool,
    /// Dumps that the helper has not yet read, and reports that it has not yet written.
    unread: u32,
    unwritten: u32,
}

impl Forensics {
    /// Starts the helper: a command that calls [`help`](super::help) with the arguments that are added here. Reports are
    /// written to a folder, and bear a name. What the helper prints on its standard error goes where the command says.
    pub fn start(mut helper: Command, folder: impl Into<PathBuf>, name: &str) -> io::Result<Self> {
        let memory = memfd_create("stacks", MemfdFlags::CLOEXEC)?;
        ftruncate(&memory, LENGTH as u64)?;
        let memory = File::from(memory);
        let arena = Arena::map(&memory)?;
        helper.arg(std::process::id().to_string()).arg(memory.as_raw_fd().to_string());
        helper.arg(folder.into()).arg(name).process_group(0);
        helper.stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut helper = helper.spawn()?;
        let missing = || io::Error::other("the helper has no pipes");
        let (tell, told) = helper.stdin.take().zip(helper.stdout.take()).ok_or_else(missing)?;
        fcntl_setfl(&tell, rustix::fs::OFlags::NONBLOCK)?;
        fcntl_setfl(&told, rustix::fs::OFlags::NONBLOCK)?;
        // Where a process may be traced only by whom it names.
        let _no_such_rule = set_ptracer(PTracer::ProcessID(Pid::from_child(&helper)));
        let (taken, is_limited, unread, unwritten) = ([0; PER_MINUTE], true, 0, 0);
        let message = Box::new([0; MESSAGE_MAX]);
        let heap = HeapReader::start()?;
        Ok(Self {
            heap,
            facts: None,
            arena,
            memory,
            helper,
            tell,
            told,
            message,
            taken,
            is_limited,
            unread,
            unwritten,
        })
    }

    /// Has a report say what the program keeps in memory: entries and bytes, a line each. Called on the monitor's thread while
    /// the program hangs, so it may neither allocate nor wait: numbers that were counted before are read.
    #[must_use]
    pub fn saying(mut self, facts: impl Fn(&mut dyn io::Write) + Send + 'static) -> Self {
        self.facts = Some(Facts(Box::new(facts)));
        self
    }

    /// Takes every dump, however many there are: to measure them.
    #[must_use]
    pub fn unlimited(mut self) -> Self {
        self.is_limited = false;
        self
    }

    /// Whether there were too many of late. The last one before the end is always taken.
    fn is_too_many(&mut self, now: u64, rung: Rung) -> bool {
        let oldest = self.taken.iter_mut().min_by_key(|at| **at);
        let Some(oldest) = oldest else { return false };
        let is_recent = *oldest != 0 && now.saturating_sub(*oldest) < MINUTE;
        if self.is_limited && is_recent && rung < Rung::Hard {
            return true;
        }
        *oldest = now;
        false
    }

    /// Writes the message into its place; what does not fit is left out.
    fn compose(
        &mut self,
        (dump, places): (u64, usize),
        expiry: &Expiry,
        roster: &Roster,
        now: u64,
    ) -> usize {
        let Some((_, body)) = self.message.split_first_chunk_mut::<4>() else { return 0 };
        let room = body.len();
        let mut rest = body;
        let _full = writeln!(rest, "{dump} {places}\n{expiry}\n{}", self.heap.answer());
        if let Some(Facts(say)) = &self.facts {
            say(&mut rest);
        }
        let _full = writeln!(rest);
        for (cold, own, rung, age) in roster.standings(now) {
            let (name, millis) = (&cold.name, age / 1_000_000);
            let phase = own.phase().name().unwrap_or("-");
            let count = own.progress();
            let _full = writeln!(rest, "{name}: {rung}, {millis} ms, phase {phase}, count {count}");
        }
        let used = room - rest.len();
        if let Some((length, _)) = self.message.split_first_chunk_mut::<4>() {
            *length = (used as u32).to_ne_bytes();
        }
        used + 4
    }

    /// Waits until the helper has done what it was told, for a second at most.
    fn wait(&mut self, is_done: impl Fn(&Self) -> bool) {
        let ends = monotonic().saturating_add(1_000_000_000);
        while !is_done(self) && monotonic() < ends {
            let timeout = Timespec { tv_sec: 0, tv_nsec: 20_000_000 };
            let mut polled = [PollFd::new(&self.told, PollFlags::IN)];
            let _interrupted = poll(&mut polled, Some(&timeout));
            self.hear();
        }
    }

    fn hear(&mut self) {
        let mut bytes = [0; 64];
        let Ok(count) = rustix::io::read(&self.told, &mut bytes) else { return };
        if count == 0 {
            // It is gone.
            (self.unread, self.unwritten) = (0, 0);
        }
        let said = |what: u8| bytes.iter().map(|byte| u32::from(*byte == what)).sum();
        self.unread = self.unread.saturating_sub(said(GATHERED));
        self.unwritten = self.unwritten.saturating_sub(said(WRITTEN));
    }
}

impl Dumper for Forensics {
    fn dump(&mut self, expiry: &Expiry, roster: &Roster, now: u64, wait: Wait) -> Dumped {
        if self.is_too_many(now, expiry.rung) {
            return Dumped::Suppressed;
        }
        self.hear();
        // What the helper has not read yet would be overwritten.
        if wait == Wait::Briefly {
            self.wait(|it| it.unread == 0);
        }
        self.heap.ask();
        let began = monotonic();
        let filled = self.arena.fill();
        let took = monotonic().saturating_sub(began);
        let length = self.compose(filled, expiry, roster, now);
        let message = self.message.get(..length).unwrap_or_default();
        if rustix::io::write(&self.tell, message).is_ok() {
            (self.unread, self.unwritten) = (self.unread + 1, self.unwritten + 1);
        }
        if wait == Wait::Briefly {
            self.wait(|it| it.unwritten == 0);
        }
        Dumped::Taken(took)
    }

    fn helper(&self) -> Option<i32> {
        i32::try_from(self.helper.id()).ok()
    }
}

impl Drop for Forensics {
    fn drop(&mut self) {
        let _already_gone = self.helper.kill();
        let _already_gone = self.helper.wait();
    }
}
