//! Which signals this process ignores or blocks, and which ones the programs that it starts do.

use std::{
    io,
    mem::MaybeUninit,
    os::unix::process::CommandExt as _,
    process::Command,
    ptr,
    sync::atomic::{AtomicBool, Ordering::Relaxed},
};

use super::checked;

/// Whether this process was started with SIGPIPE ignored.
static PIPE_WAS_IGNORED: AtomicBool = AtomicBool::new(false);

/// Looks before Rust's runtime does anything: it ignores SIGPIPE before `main`, and what the caller had is lost then.
#[used]
#[unsafe(link_section = ".init_array")]
static BEFORE_MAIN: extern "C" fn() = look;

extern "C" fn look() {
    PIPE_WAS_IGNORED.store(is_ignored(libc::SIGPIPE), Relaxed);
}

/// What happens on a signal: `SIG_DFL`, `SIG_IGN`, or the address of a handler.
pub(super) fn disposition(signal: i32) -> io::Result<libc::sighandler_t> {
    let mut now = MaybeUninit::<libc::sigaction>::zeroed();
    // SAFETY: only asks; `now` is a place for the answer.
    checked(unsafe { libc::sigaction(signal, ptr::null(), now.as_mut_ptr()) })?;
    // SAFETY: filled in by the call, and all zeroes is a valid value anyway.
    Ok(unsafe { now.assume_init() }.sa_sigaction)
}

/// Whether this process ignores a signal.
pub(crate) fn is_ignored(signal: i32) -> bool {
    disposition(signal).is_ok_and(|now| now == libc::SIG_IGN)
}

fn set(signal: i32, disposition: libc::sighandler_t) {
    // SAFETY: only ever called with `SIG_DFL` and `SIG_IGN`, which run no code of ours. Numbers that cannot be set (SIGKILL,
    // SIGSTOP, those of the C library) are refused, and need not be.
    unsafe {
        libc::signal(signal, disposition);
    }
}

/// Gives every signal its default action, except one. May be called between fork and exec.
pub(crate) fn default_all(except: Option<i32>) {
    for signal in (1..=libc::SIGRTMAX()).filter(|signal| Some(*signal) != except) {
        set(signal, libc::SIG_DFL);
    }
}

/// Gives one signal its default action.
pub(crate) fn default_one(signal: i32) {
    set(signal, libc::SIG_DFL);
}

/// Blocks no signal in this thread. May be called between fork and exec.
pub(crate) fn unblock_all() {
    let mut none = MaybeUninit::<libc::sigset_t>::zeroed();
    // SAFETY: the set is emptied before it is used; unblocking signals of the own thread cannot fail.
    unsafe {
        libc::sigemptyset(none.as_mut_ptr());
        libc::pthread_sigmask(libc::SIG_SETMASK, none.as_ptr(), ptr::null_mut());
    }
}

/// Has a program start with SIGPIPE ignored if this process did. Rust's standard library would give it the default.
pub(crate) fn hand_on_pipe(command: &mut Command) {
    if PIPE_WAS_IGNORED.load(Relaxed) {
        let ignore = || {
            set(libc::SIGPIPE, libc::SIG_IGN);
            Ok(())
        };
        // SAFETY: between fork and exec one system call is made, and nothing is allocated.
        unsafe {
            command.pre_exec(ignore);
        }
    }
}
