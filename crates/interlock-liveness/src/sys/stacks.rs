//! Copies the registers and stacks of threads: our own by a signal, another process's by ptrace.

use std::{
    fs::File,
    io,
    mem::MaybeUninit,
    os::fd::AsFd as _,
    ptr,
    sync::atomic::{
        AtomicI32, AtomicPtr, AtomicU64,
        Ordering::{Acquire, Relaxed, Release},
    },
    thread,
    time::Duration,
};

use rustix::{
    fs::{Mode, OFlags, RawDir, open},
    mm::{MapFlags, ProtFlags, mmap},
    thread::gettid,
};

use super::{checked, free_signal, handle};
use crate::{
    clock::monotonic,
    forensics::arena::{
        ASKED, COPYING, Copied, DONE, HEADER, LENGTH, PLACE, PLACES, Registers, STACK,
    },
};

/// How long all threads together may take to store their stacks.
const PATIENCE: u64 = 20_000_000;
/// How long a thread of another process may take to stop.
const STOPS_IN: u64 = 50_000_000;
const PAGE: usize = 4_096;

/// Where handlers store; null while nobody has an arena.
static ARENA: AtomicPtr<AtomicU64> = AtomicPtr::new(ptr::null_mut());
static PID: AtomicI32 = AtomicI32::new(0);

/// The arena of this process, and the signal that makes threads use it.
#[derive(Debug)]
pub(crate) struct Arena {
    signal: i32,
    dump: u64,
}

impl Arena {
    /// Maps the memory file. There is one arena per process, and it stays for ever: a handler may come late.
    pub(crate) fn map(memory: &File) -> io::Result<Self> {
        let (access, flags) = (ProtFlags::READ | ProtFlags::WRITE, MapFlags::SHARED);
        // SAFETY: a new mapping, at a place that the kernel chooses, of a file that has this length.
        let arena = unsafe { mmap(ptr::null_mut(), LENGTH, access, flags, memory.as_fd(), 0) }?;
        if ARENA.compare_exchange(ptr::null_mut(), arena.cast(), Release, Relaxed).is_err() {
            return Err(io::Error::other("this process has an arena already"));
        }
        PID.store(rustix::process::getpid().as_raw_nonzero().get(), Relaxed);
        let signal = free_signal()?;
        handle(signal, copy_own)?;
        Ok(Self { signal, dump: 0 })
    }

    /// Has every thread but this one store its stack; answers with the dump's number and how many places it used.
    /// Allocates nothing.
    pub(crate) fn fill(&mut self) -> (u64, usize) {
        self.dump += 1;
        let mut places = 0;
        let own = gettid().as_raw_nonzero().get();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let Ok(tasks) = open(c"/proc/self/task", flags, Mode::empty()) else {
            return (self.dump, 0);
        };
        let mut buffer = [MaybeUninit::uninit(); 2_048];
        let mut tasks = RawDir::new(tasks, &mut buffer);
        while let Some(Ok(task)) = tasks.next() {
            let digits = task.file_name().to_bytes();
            let thread = str::from_utf8(digits).ok().and_then(|digits| digits.parse().ok());
            let Some(thread) = thread.filter(|thread| *thread != own && places < PLACES) else {
                continue;
            };
            if self.ask(thread, places) {
                places += 1;
            }
        }
        self.wait(places);
        (self.dump, places)
    }

    fn ask(&self, thread: i32, place: usize) -> bool {
        let Some(state) = word(place, 0) else { return false };
        if let Some(name) = word(place, 1) {
            name.store(thread as u64, Relaxed);
        }
        state.store(self.dump << 2 | ASKED, Release);
        let ticket = self.dump << 16 | place as u64;
        // The beginning of the kernel's `siginfo`, as it is for a signal with a value.
        let mut info = [0_u64; 16];
        let [first, code, sender, value, ..] = &mut info;
        *first = self.signal as u64;
        *code = u64::from((-1_i32).cast_unsigned());
        *sender = PID.load(Relaxed) as u64;
        *value = ticket;
        // SAFETY: `info` is as large as a `siginfo` and lives through the call; a thread that is gone is an error.
        let sent = unsafe {
            libc::syscall(
                libc::SYS_rt_tgsigqueueinfo,
                PID.load(Relaxed),
                thread,
                self.signal,
                info.as_ptr(),
            )
        };
        sent == 0
    }

    fn wait(&self, places: usize) {
        let ends = monotonic().saturating_add(PATIENCE);
        for place in 0..places {
            let is_done = || {
                word(place, 0).is_none_or(|state| state.load(Acquire) == (self.dump << 2 | DONE))
            };
            while !is_done() && monotonic() < ends {
                thread::sleep(Duration::from_micros(50));
            }
        }
    }
}

/// A word of the header of a place.
fn word(place: usize, number: usize) -> Option<&'static AtomicU64> {
    let arena = ARENA.load(Acquire);
    if arena.is_null() || place >= PLACES || number >= HEADER / 8 {
        return None;
    }
    // SAFETY: within the mapping, which is never taken down; aligned, because places and headers are multiples of 8; and
    // only ever used as an atomic word.
    Some(unsafe { &*arena.add(place * PLACE / 8 + number) })
}

/// Stores the registers and the stack of the thread that it interrupts. Only atomics and one system call; `errno` is as it was.
#[cfg(target_arch = "x86_64")]
extern "C" fn copy_own(_: libc::c_int, info: *mut libc::siginfo_t, context: *mut libc::c_void) {
    // SAFETY: the kernel gives both for a handler with `SA_SIGINFO`, and they live as long as it runs; `errno` has a place in
    // every thread.
    let (ticket, registers, error) = unsafe {
        let all = &(*context.cast::<libc::ucontext_t>()).uc_mcontext.gregs;
        let register = |number: libc::c_int| all.get(number as usize).map_or(0, |it| *it as u64);
        let registers = Registers {
            instruction: register(libc::REG_RIP),
            stack: register(libc::REG_RSP),
            frame: register(libc::REG_RBP),
        };
        ((*info).si_value().sival_ptr as u64, registers, *libc::__errno_location())
    };
    store(ticket, registers);
    // SAFETY: as above.
    unsafe {
        *libc::__errno_location() = error;
    }
}

/// There are no stacks on this machine: the place stays as it is, and counts as not answered.
#[cfg(not(target_arch = "x86_64"))]
extern "C" fn copy_own(_: libc::c_int, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}

#[cfg_attr(not(target_arch = "x86_64"), expect(dead_code, reason = "there are no stacks"))]
fn store(ticket: u64, registers: Registers) {
    let (dump, place) = (ticket >> 16, (ticket & 0xFFFF) as usize);
    let Some(state) = word(place, 0) else { return };
    // Whoever comes late finds another number there, and leaves it alone.
    if state.compare_exchange(dump << 2 | ASKED, dump << 2 | COPYING, Acquire, Relaxed).is_err() {
        return;
    }
    let to = ARENA.load(Relaxed).cast::<u8>().wrapping_add(place * PLACE + HEADER);
    let length = copy_stack(PID.load(Relaxed), registers.stack, to);
    let values = [registers.instruction, registers.stack, registers.frame, length as u64];
    for (number, value) in (2..).zip(values) {
        if let Some(word) = word(place, number) {
            word.store(value, Relaxed);
        }
    }
    state.store(dump << 2 | DONE, Release);
}

/// Copies a stack from its top to [`STACK`] bytes above, or to where it ends; answers with how much that was. The kernel
/// copies, so that an address that is none is no fault.
fn copy_stack(pid: i32, from: u64, to: *mut u8) -> usize {
    let first = PAGE - (from as usize % PAGE);
    let mut parts = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; STACK / PAGE];
    let mut at = 0;
    for (part, length) in parts.iter_mut().zip(std::iter::once(first).chain([PAGE; STACK / PAGE])) {
        part.iov_base = (from as usize + at) as *mut libc::c_void;
        part.iov_len = length;
        at += length;
    }
    let local = libc::iovec { iov_base: to.cast(), iov_len: at.min(STACK) };
    // SAFETY: `to` has room for [`STACK`] bytes; the other side is checked by the kernel.
    let read = unsafe {
        libc::process_vm_readv(
            pid,
            &raw const local,
            1,
            parts.as_ptr(),
            parts.len() as libc::c_ulong,
            0,
        )
    };
    usize::try_from(read).unwrap_or(0)
}

/// Reads the threads of another process, each of which stands still for a moment.
///
/// One that does not stop in time stops later, and would then stand still for ever: it is remembered, and let go by [`Tracer::let_go`].
#[derive(Debug, Default)]
pub(crate) struct Tracer {
    late: Vec<i32>,
}

#[cfg(target_arch = "x86_64")]
impl Tracer {
    /// Copies the registers and the stack of a thread.
    pub(crate) fn copy(&mut self, pid: i32, thread: i32) -> io::Result<Copied> {
        ask(libc::PTRACE_SEIZE, thread, ptr::null_mut())?;
        let stopped = ask(libc::PTRACE_INTERRUPT, thread, ptr::null_mut())
            .and_then(|()| await_stop(thread, STOPS_IN));
        if let Err(error) = stopped {
            self.late.push(thread);
            return Err(error);
        }
        let mut registers = MaybeUninit::<libc::user_regs_struct>::zeroed();
        let asked = ask(libc::PTRACE_GETREGS, thread, registers.as_mut_ptr().cast());
        // SAFETY: all zeroes is a valid value, should nothing have been filled in.
        let registers = unsafe { registers.assume_init() };
        let mut stack = vec![0; STACK];
        let length = copy_stack(pid, registers.rsp, stack.as_mut_ptr());
        stack.truncate(length);
        ask(libc::PTRACE_DETACH, thread, ptr::null_mut())?;
        asked?;
        let registers =
            Registers { instruction: registers.rip, stack: registers.rsp, frame: registers.rbp };
        Ok(Copied { thread, registers, stack })
    }

    /// Lets go of those that have stopped by now; says whether there are others.
    pub(crate) fn let_go(&mut self) -> bool {
        self.late.retain(|thread| match await_stop(*thread, 0) {
            Err(error) => error.kind() == io::ErrorKind::TimedOut,
            // One that is gone by now needs nothing any more.
            Ok(()) => {
                ask(libc::PTRACE_DETACH, *thread, ptr::null_mut()).is_err() && is_there(*thread)
            }
        });
        !self.late.is_empty()
    }
}

#[cfg(target_arch = "x86_64")]
fn ask(request: libc::c_uint, thread: i32, data: *mut libc::c_void) -> io::Result<()> {
    // SAFETY: each request gets the kind of data that it wants: registers are written to a place for them, all others want none.
    let answer = unsafe { libc::ptrace(request, thread, ptr::null_mut::<libc::c_void>(), data) };
    if answer == -1 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

#[cfg(target_arch = "x86_64")]
fn is_there(thread: i32) -> bool {
    std::path::Path::new(&format!("/proc/{thread}")).exists()
}

/// There are no stacks on this machine.
#[cfg(not(target_arch = "x86_64"))]
impl Tracer {
    pub(crate) fn copy(&mut self, _pid: i32, _thread: i32) -> io::Result<Copied> {
        Err(io::Error::from(io::ErrorKind::Unsupported))
    }

    pub(crate) fn let_go(&mut self) -> bool {
        !self.late.is_empty()
    }
}

/// Waits until a traced thread stands still; one that hangs in the kernel never does.
#[cfg(target_arch = "x86_64")]
fn await_stop(thread: i32, most: u64) -> io::Result<()> {
    let ends = monotonic().saturating_add(most);
    loop {
        let mut status = 0;
        // SAFETY: `status` lives through the call.
        let found = checked(unsafe {
            libc::waitpid(thread, &raw mut status, libc::__WALL | libc::WNOHANG)
        })?;
        if found == thread {
            return Ok(());
        }
        if monotonic() >= ends {
            return Err(io::ErrorKind::TimedOut.into());
        }
        std::thread::sleep(Duration::from_micros(50));
    }
}

#[cfg(all(test, target_arch = "x86_64"))]
mod tests {
    use std::process::{Command, Stdio};

    use interlock_wait::{BOUND, ChildWithin as _, Lines, wait_until};

    use super::*;

    const PART: &str = "LIVENESS_UNSTOPPABLE";

    /// Not a test: a process that hangs in the kernel for a second, where nothing stops it: until its child has ended.
    #[test]
    #[expect(clippy::disallowed_methods, reason = "a part is given by the environment")]
    fn patient() {
        if std::env::var(PART).is_err() {
            return;
        }
        println!("THREAD {}", gettid().as_raw_nonzero());
        let flags = libc::CLONE_VFORK | libc::SIGCHLD;
        // SAFETY: a child with memory of its own, which makes two system calls and ends.
        unsafe {
            if libc::syscall(libc::SYS_clone, flags, 0, 0, 0, 0) == 0 {
                let second = libc::timespec { tv_sec: 1, tv_nsec: 0 };
                libc::nanosleep(&raw const second, ptr::null_mut());
                libc::_exit(0);
            }
        }
        println!("WENT ON");
    }

    #[test]
    fn a_thread_that_did_not_stop_in_time_is_let_go_when_it_does() {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "sys::stacks::tests::patient", "--nocapture"]).env(PART, "1");
        let mut child = command.stdout(Stdio::piped()).spawn().unwrap();
        let mut says = Lines::of(child.stdout.take().unwrap());
        let mut until = |start: &str| {
            let what = format!("the patient to say `{start}`");
            says.find_within(&what, BOUND, |line| line.contains(start)).unwrap()
        };
        let line = until("THREAD ");
        let thread = line.split("THREAD ").nth(1).unwrap().trim().parse().unwrap();
        let pid = child.id().cast_signed();
        let stat = || std::fs::read_to_string(format!("/proc/{pid}/task/{thread}/stat")).unwrap();
        wait_until("the thread to hang in the kernel", BOUND, || stat().contains(") D "));
        let mut tracer = Tracer::default();
        let copied = tracer.copy(pid, thread);
        assert_eq!(copied.unwrap_err().kind(), io::ErrorKind::TimedOut);
        assert!(tracer.let_go(), "it hangs");
        wait_until("the thread to be let go", Duration::from_secs(20), || !tracer.let_go());
        until("WENT ON");
        assert!(child.wait_within("the end of the patient", BOUND).success());
    }
}
