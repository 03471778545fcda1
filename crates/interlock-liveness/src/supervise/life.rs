//! One life of a supervised program, from its start to its end.

use std::{
    cell::Cell,
    io,
    os::{
        fd::{AsFd as _, AsRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{MemfdFlags, ftruncate, memfd_create},
    io::{FdFlags, fcntl_setfd},
    pipe::{PipeFlags, pipe_with},
    process::{
        Pid, PidfdFlags, Signal, WaitId, WaitIdOptions, WaitIdStatus, kill_process_group,
        pidfd_open, waitid,
    },
};

use super::{Ended, Note, SuperviseError, Supervision, examine::examine, memory, orphans};
use crate::{
    clock::{monotonic, nanos},
    forensics::is_well,
    heartbeat::{Ear, FILE_VARIABLE, Heard, MEMORY_VARIABLE, PIPE_VARIABLE},
    sys::{self, Asked, Signals},
};

/// How often signs of life are looked for.
const LOOK_EVERY: Duration = Duration::from_millis(25);
/// Who looks this much later than it meant to has not run.
const STALLED: u64 = 250_000_000;
/// How long an aborted program may take to leave a core.
const ABORTS_IN: Duration = Duration::from_secs(2);
/// Who is not gone so long after SIGKILL hangs in the kernel.
const KILLED_IN: Duration = Duration::from_secs(30);
/// The room of a record.
const RECORD: u64 = 64;

/// A program that runs.
pub(super) struct Life<'a> {
    supervision: &'a Supervision,
    signals: &'a Signals,
    pid: Pid,
    descriptor: OwnedFd,
    /// The ways of its own, and the file, which is that of every life.
    ears: [Ear; 2],
    file: Option<&'a mut Ear>,
    memory_kills: Option<u64>,
    began: u64,
    /// It has been well for long, and that has been said.
    is_well: bool,
    /// When it last gave a sign of life, and whether it ever did.
    heard_at: u64,
    has_beaten: bool,
    /// For how long it had been silent when it was ended for that.
    silent: Duration,
    /// What was last passed on to it.
    passed: Cell<Option<Signal>>,
    /// How often somebody has asked for its end and ours.
    stops: Cell<u32>,
}

impl<'a> Life<'a> {
    /// Starts the program, with the ways by which it can give signs of life.
    pub(super) fn begin(
        supervision: &'a Supervision,
        signals: &'a Signals,
        mut file: Option<&'a mut Ear>,
    ) -> Result<Self, SuperviseError> {
        let kernel = |error: rustix::io::Errno| SuperviseError::Kernel(error.into());
        let [program, arguments @ ..] = supervision.command.as_slice() else {
            let nothing = io::Error::other("no program was named");
            return Err(SuperviseError::Start("nothing".to_owned(), nothing));
        };
        let memory = memfd_create("heartbeat", MemfdFlags::empty()).map_err(kernel)?;
        ftruncate(&memory, RECORD).map_err(kernel)?;
        let (reads, writes) =
            pipe_with(PipeFlags::CLOEXEC | PipeFlags::NONBLOCK).map_err(kernel)?;
        fcntl_setfd(&writes, FdFlags::empty()).map_err(kernel)?;
        let mut command = Command::new(program);
        command.args(arguments).process_group(0);
        command.env(MEMORY_VARIABLE, memory.as_raw_fd().to_string());
        command.env(PIPE_VARIABLE, writes.as_raw_fd().to_string());
        // A program may change its directory: a relative path would then name another file.
        if let Some(path) = &supervision.heartbeat {
            command.env(FILE_VARIABLE, std::path::absolute(path).map_err(SuperviseError::Kernel)?);
        }
        if let Some(file) = &mut file {
            file.forget();
        }
        sys::ends_with_us(&mut command);
        let child = command.spawn().map_err(|error| {
            SuperviseError::Start(program.to_string_lossy().into_owned(), error)
        })?;
        drop(writes);
        let pid = Pid::from_child(&child);
        let descriptor = pidfd_open(pid, PidfdFlags::empty()).map_err(kernel)?;
        let began = monotonic();
        Ok(Self {
            supervision,
            signals,
            pid,
            descriptor,
            ears: [Ear::memory(memory), Ear::pipe(reads)],
            file,
            memory_kills: memory::kills(),
            began,
            is_well: false,
            heard_at: began,
            has_beaten: false,
            silent: Duration::ZERO,
            passed: Cell::new(None),
            stops: Cell::new(0),
        })
    }

    /// For how long it had been silent when it was ended for that.
    pub(super) fn was_silent_for(&self) -> Duration {
        self.silent
    }

    /// Whether a signal is one that somebody had passed on to it.
    pub(super) fn was_passed(&self, signal: i32) -> bool {
        self.passed.get().is_some_and(|passed| passed.as_raw() == signal)
    }

    pub(super) fn pid(&self) -> u32 {
        self.pid.as_raw_nonzero().get().cast_unsigned()
    }

    /// Stays with the program until it has ended.
    pub(super) fn attend(&mut self, tell: &mut dyn FnMut(Note<'_>)) -> io::Result<Ended> {
        let mut looked_at = monotonic();
        loop {
            let is_over = self.wait(LOOK_EVERY)?;
            // One reading from look to look: wherever in between we were stopped, it is seen, and before anybody is judged by it.
            let now = monotonic();
            let planned = looked_at.saturating_add(nanos(LOOK_EVERY));
            self.forgive(now.saturating_sub(planned), tell);
            looked_at = now;
            if is_over {
                return self.ended();
            }
            orphans::reap(self.pid);
            match self.signals.next() {
                Some(Asked::Stop(signal)) => {
                    self.stops.set(1);
                    let code = i32::from(self.end(signal, tell)?.code());
                    return Ok(Ended::Stopped(code));
                }
                Some(Asked::Pass(signal)) => self.pass(signal),
                None => {}
            }
            self.say_well(now);
            if let Some(silent) = self.silent_for(now) {
                self.silent = silent;
                tell(Note::Silent(silent));
                self.examine(silent, tell);
                self.end(Signal::TERM, tell)?;
                // Who asks for its end while that is under way does not want it back.
                let is_asked = self.stops.get() > 0;
                let stopped = Ended::Stopped(crate::EXIT_CODE);
                return Ok(if is_asked { stopped } else { Ended::Hung });
            }
        }
    }

    /// A time in which we did not look is nobody's fault.
    fn forgive(&mut self, late: u64, tell: &mut dyn FnMut(Note<'_>)) {
        if late > STALLED {
            self.heard_at = self.heard_at.saturating_add(late);
            tell(Note::Stalled(Duration::from_nanos(late)));
        }
    }

    /// How long it has been silent, if that is too long.
    fn silent_for(&mut self, now: u64) -> Option<Duration> {
        // Signs of life first, judgement last.
        let ears = self.ears.iter_mut().chain(self.file.as_deref_mut());
        let heard = ears.fold(false, |heard, ear| heard | (ear.listen() == Heard::Beat));
        if heard {
            (self.heard_at, self.has_beaten) = (now, true);
        }
        let max_age = self.supervision.max_age?;
        let limit = if self.has_beaten { max_age } else { self.supervision.first_beat };
        let silent = Duration::from_nanos(now.saturating_sub(self.heard_at));
        (silent > limit).then_some(silent)
    }

    /// Waits for its end, for so long; says whether it has ended.
    fn wait(&self, most: Duration) -> io::Result<bool> {
        let ends = monotonic().saturating_add(nanos(most));
        loop {
            let left = Duration::from_nanos(ends.saturating_sub(monotonic()));
            let timeout = Timespec {
                tv_sec: left.as_secs().cast_signed(),
                tv_nsec: i64::from(left.subsec_nanos()),
            };
            let signals = PollFd::new(self.signals, PollFlags::IN);
            let mut polled = [PollFd::new(&self.descriptor, PollFlags::IN), signals];
            match poll(&mut polled, Some(&timeout)) {
                Ok(0) => return Ok(false),
                Ok(_) => {
                    let [process, _] = polled;
                    return Ok(!process.revents().is_empty());
                }
                Err(rustix::io::Errno::INTR) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// Waits for its end whatever signals come in; they are heard all the same.
    fn wait_for_end(&self, most: Duration) -> io::Result<bool> {
        let ends = monotonic().saturating_add(nanos(most));
        loop {
            let left = Duration::from_nanos(ends.saturating_sub(monotonic()));
            if self.wait(left.min(LOOK_EVERY))? {
                return Ok(true);
            }
            match self.signals.next() {
                Some(Asked::Stop(_)) => {
                    let stops = self.stops.get().saturating_add(1);
                    self.stops.set(stops);
                    // Who asks twice does not want to wait.
                    if stops > 1 {
                        return Ok(false);
                    }
                }
                Some(Asked::Pass(signal)) => self.pass(signal),
                None => {}
            }
            if left.is_zero() {
                return Ok(false);
            }
        }
    }

    /// Ends it: asks, then lets it abort, then kills the whole group. A stopped program hears only what wakes it.
    fn end(&self, first: Signal, tell: &mut dyn FnMut(Note<'_>)) -> io::Result<Ended> {
        for (signal, patience) in [(first, self.supervision.grace), (Signal::ABORT, ABORTS_IN)] {
            self.signal(signal);
            self.signal(Signal::CONT);
            if self.wait_for_end(patience)? {
                return self.ended();
            }
        }
        self.signal(Signal::KILL);
        while !self.wait_for_end(KILLED_IN)? {
            // A second copy beside it would be worse than none.
            tell(Note::Unkillable);
        }
        self.ended()
    }

    /// Passes a signal on that was meant for the program.
    fn pass(&self, signal: Signal) {
        self.passed.set(Some(signal));
        self.signal(signal);
    }

    /// Says that it is well again, when it has been for long.
    fn say_well(&mut self, now: u64) {
        let Supervision { name, folder, backoff, .. } = self.supervision;
        if !self.is_well && now.saturating_sub(self.began) >= nanos(backoff.healthy_for) {
            self.is_well = true;
            // If the disk is full a person has to say it.
            let _unsaid = is_well(folder, name);
        }
    }

    /// Signals the group. Its number is ours as long as its leader has not been waited for.
    fn signal(&self, signal: Signal) {
        let _already_gone = kill_process_group(self.pid, signal);
    }

    fn ended(&self) -> io::Result<Ended> {
        // Whatever is left of the group.
        self.signal(Signal::KILL);
        let id = WaitId::PidFd(self.descriptor.as_fd());
        let status = waitid(id, WaitIdOptions::EXITED)?;
        let signal = status.as_ref().and_then(WaitIdStatus::terminating_signal);
        Ok(match (signal, status.and_then(|status| status.exit_status())) {
            (Some(signal), _) if signal == Signal::KILL.as_raw() && self.was_short_of_memory() => {
                Ended::OutOfMemory
            }
            (Some(signal), _) => Ended::Signalled(signal),
            (None, code) => Ended::Exited(code.unwrap_or_default()),
        })
    }

    fn was_short_of_memory(&self) -> bool {
        matches!((self.memory_kills, memory::kills()), (Some(before), Some(after)) if after > before)
    }

    /// Writes down what it is doing, before it is ended.
    fn examine(&self, silent: Duration, tell: &mut dyn FnMut(Note<'_>)) {
        let Supervision { name, folder, .. } = self.supervision;
        let why = format!("no sign of life for {:.3} s", silent.as_secs_f64());
        let report = examine(self.pid(), folder, (name, &why));
        let kept = report.kept.as_deref();
        tell(Note::Reported { text: &report.text, kept });
    }
}
