//! Where this crate speaks with the kernel itself: the one module that may be `unsafe`.
//!
//! Signal handlers, POSIX timers, ptrace and what runs between `fork` and `exec` have no safe interface. Everything here is
//! small, each block says why it holds, and nothing above it needs to know.

#![expect(unsafe_code, reason = "the kernel is asked where nothing safe asks it")]

pub(crate) mod dispositions;
pub(crate) mod heap;
pub(crate) mod held;
pub(crate) mod region;
pub(crate) mod stacks;
#[cfg(test)]
mod wedge;

use std::{
    io,
    mem::MaybeUninit,
    os::{
        fd::{AsFd, BorrowedFd, FromRawFd as _, OwnedFd},
        unix::process::CommandExt as _,
    },
    process::Command,
    ptr,
    time::Duration,
};

use rustix::{
    event::{PollFd, PollFlags, Timespec, poll},
    fs::{Mode, OFlags},
    process::{Pid, Signal},
};

use crate::{
    clock::{monotonic, nanos},
    deadman::{EXIT_CODE, Way},
};

/// Turns the answer of a C function into a result.
fn checked(answer: libc::c_int) -> io::Result<libc::c_int> {
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(answer) }
}

/// A real-time signal that nobody has a handler for, from above.
fn free_signal() -> io::Result<i32> {
    for signal in (libc::SIGRTMIN()..libc::SIGRTMAX()).rev() {
        if dispositions::disposition(signal)? == libc::SIG_DFL {
            return Ok(signal);
        }
    }
    Err(io::Error::other("every real-time signal is taken"))
}

/// Installs a handler that gets the details of its signal, with all other signals held back meanwhile.
fn handle(
    signal: i32,
    handler: extern "C" fn(libc::c_int, *mut libc::siginfo_t, *mut libc::c_void),
) -> io::Result<()> {
    let mut action = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: all zeroes is a valid `sigaction`; the handler has the form that `SA_SIGINFO` asks for and, as its
    // own comment shows, does only what a handler may.
    unsafe {
        let action = action.assume_init_mut();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART | libc::SA_ONSTACK;
        libc::sigfillset(&raw mut action.sa_mask);
        checked(libc::sigaction(signal, action, ptr::null_mut()))?;
    }
    Ok(())
}

/// Lets no signal interrupt this thread, except one.
pub(crate) fn block_signals(except: Option<i32>) {
    let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is filled before it is used; blocking signals of the own thread cannot fail.
    unsafe {
        libc::sigfillset(set.as_mut_ptr());
        if let Some(signal) = except {
            libc::sigdelset(set.as_mut_ptr(), signal);
        }
        libc::pthread_sigmask(libc::SIG_SETMASK, set.as_ptr(), ptr::null_mut());
    }
}

/// A timer of the kernel that ends this process.
#[derive(Debug)]
pub(crate) struct KernelTimer {
    id: libc::timer_t,
    signal: i32,
    way: Way,
}

// SAFETY: the id is a number that the kernel knows for the whole process, although C calls it a pointer.
unsafe impl Send for KernelTimer {}

/// Ends the process. `_exit` may be called in a handler.
extern "C" fn exit_now(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: runs nothing of the process any more.
    unsafe { libc::_exit(EXIT_CODE) }
}

impl KernelTimer {
    pub(crate) fn new(way: Way) -> io::Result<Self> {
        let signal = match way {
            Way::Kill => libc::SIGKILL,
            Way::Exit => {
                let signal = free_signal()?;
                handle(signal, exit_now)?;
                signal
            }
        };
        let mut event = MaybeUninit::<libc::sigevent>::zeroed();
        let mut id = ptr::null_mut();
        // SAFETY: all zeroes is a valid `sigevent`; both places live through the call.
        unsafe {
            let event = event.assume_init_mut();
            event.sigev_notify = libc::SIGEV_SIGNAL;
            event.sigev_signo = signal;
            checked(libc::timer_create(libc::CLOCK_MONOTONIC, event, &raw mut id))?;
        }
        Ok(Self { id, signal, way })
    }

    pub(crate) fn signal(&self) -> Option<i32> {
        (self.way == Way::Exit).then_some(self.signal)
    }

    /// Moves the end to a moment of the monotonic clock.
    pub(crate) fn set(&self, at: u64) {
        let nothing = libc::timespec { tv_sec: 0, tv_nsec: 0 };
        let value = libc::timespec {
            tv_sec: (at / 1_000_000_000) as libc::time_t,
            tv_nsec: (at % 1_000_000_000) as libc::c_long,
        };
        let when = libc::itimerspec { it_interval: nothing, it_value: value };
        // SAFETY: the timer lives as long as `self`; with a valid time this cannot fail.
        unsafe {
            libc::timer_settime(self.id, libc::TIMER_ABSTIME, &raw const when, ptr::null_mut());
        }
    }
}

impl Drop for KernelTimer {
    fn drop(&mut self) {
        // SAFETY: nobody uses the id afterwards.
        unsafe {
            libc::timer_delete(self.id);
        }
    }
}

/// Who traces this process, if anybody does. Allocates nothing.
pub(crate) fn tracer() -> Option<i32> {
    let file =
        rustix::fs::open(c"/proc/self/status", OFlags::RDONLY | OFlags::CLOEXEC, Mode::empty());
    let mut text = [0; 2_048];
    let length = rustix::io::read(file.ok()?, &mut text).ok()?;
    let text = text.get(..length)?;
    let key = b"TracerPid:\t";
    let at = text.windows(key.len()).position(|part| part == key)? + key.len();
    let digits = text.get(at..)?.iter().take_while(|byte| byte.is_ascii_digit());
    let pid = digits.fold(0, |pid, digit| pid * 10 + i32::from(digit - b'0'));
    (pid != 0).then_some(pid)
}

/// Signals that arrive as something to read, instead of interrupting.
#[derive(Debug)]
pub(crate) struct Signals {
    arriving: OwnedFd,
    /// Whether there was a terminal when they were taken.
    had_terminal: bool,
}

/// Whether this process belongs to a terminal.
fn has_terminal() -> bool {
    let flags = OFlags::RDWR | OFlags::NOCTTY | OFlags::CLOEXEC | OFlags::NONBLOCK;
    rustix::fs::open(c"/dev/tty", flags, Mode::empty()).is_ok()
}

/// What a signal asks of a supervisor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Asked {
    /// To end the program.
    Stop(Signal),
    /// To pass it on.
    Pass(Signal),
}

impl Signals {
    /// Takes the signals that a supervisor listens to. One that it inherited as ignored stays ignored: `nohup` says that no hangup
    /// matters, a script's `&` that no Ctrl-C does. SIGTERM is always heard, or nothing but SIGKILL would end a supervisor.
    pub(crate) fn take() -> io::Result<Self> {
        let mut set = MaybeUninit::<libc::sigset_t>::zeroed();
        let flags = libc::SFD_CLOEXEC | libc::SFD_NONBLOCK;
        // SAFETY: the set is emptied before it is filled; the descriptor is new and nobody else's.
        unsafe {
            libc::sigemptyset(set.as_mut_ptr());
            let heard = [libc::SIGHUP, libc::SIGUSR1, libc::SIGUSR2, libc::SIGINT].into_iter();
            let heard = heard.filter(|signal| !dispositions::is_ignored(*signal));
            for signal in heard.chain([libc::SIGTERM]) {
                libc::sigaddset(set.as_mut_ptr(), signal);
            }
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
            let descriptor = checked(libc::signalfd(-1, set.as_ptr(), flags))?;
            let arriving = OwnedFd::from_raw_fd(descriptor);
            Ok(Self { arriving, had_terminal: has_terminal() })
        }
    }

    /// The next one that has arrived, if any has.
    pub(crate) fn next(&self) -> Option<Asked> {
        let mut bytes = [0; size_of::<libc::signalfd_siginfo>()];
        rustix::io::read(&self.arriving, &mut bytes).ok()?;
        // The number comes first.
        let (number, _) = bytes.split_first_chunk::<4>()?;
        Some(match i32::from_ne_bytes(*number) {
            // Nobody is there any more to see a program that is started again.
            libc::SIGHUP if self.had_terminal && !has_terminal() => Asked::Stop(Signal::HUP),
            libc::SIGHUP => Asked::Pass(Signal::HUP),
            libc::SIGUSR1 => Asked::Pass(Signal::USR1),
            libc::SIGUSR2 => Asked::Pass(Signal::USR2),
            libc::SIGINT => Asked::Stop(Signal::INT),
            _ => Asked::Stop(Signal::TERM),
        })
    }

    /// Waits for a wish to stop, for so long.
    pub(crate) fn wait(&self, most: Duration) -> Option<Signal> {
        let ends = monotonic().saturating_add(nanos(most));
        loop {
            let left = ends.saturating_sub(monotonic());
            let timeout = Timespec {
                tv_sec: (left / 1_000_000_000).cast_signed(),
                tv_nsec: (left % 1_000_000_000).cast_signed(),
            };
            let mut polled = [PollFd::new(self, PollFlags::IN)];
            let _interrupted = poll(&mut polled, Some(&timeout));
            if let Some(Asked::Stop(signal)) = self.next() {
                return Some(signal);
            }
            if left == 0 {
                return None;
            }
        }
    }
}

impl AsFd for Signals {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.arriving.as_fd()
    }
}

/// A child that has ended and that nobody has waited for yet, if there is one. It can still be waited for.
pub(crate) fn ended_child() -> Option<Pid> {
    let mut info = MaybeUninit::<libc::siginfo_t>::zeroed();
    let options = libc::WEXITED | libc::WNOHANG | libc::WNOWAIT;
    // SAFETY: `info` lives through the call, and all zeroes is a valid value should nothing be filled in.
    let pid = unsafe {
        checked(libc::waitid(libc::P_ALL, 0, info.as_mut_ptr(), options)).ok()?;
        info.assume_init().si_pid()
    };
    Pid::from_raw(pid)
}

/// Has a program start with no signal ignored or blocked, and be killed when the thread that starts it ends.
pub(crate) fn ends_with_us(command: &mut Command) {
    let parent = rustix::process::getpid();
    let prepare = move || {
        rustix::process::set_parent_process_death_signal(Some(Signal::KILL))?;
        if rustix::process::getppid() != Some(parent) {
            return Err(io::Error::other("the supervisor is gone"));
        }
        // In this order: what is still blocked meets the action that the program starts with.
        dispositions::default_all(None);
        dispositions::unblock_all();
        Ok(())
    };
    // SAFETY: between fork and exec only system calls are made, and nothing is allocated unless it fails.
    unsafe {
        command.pre_exec(prepare);
    }
}
