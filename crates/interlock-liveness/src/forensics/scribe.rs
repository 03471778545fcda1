//! The helper: a process that waits until another one hangs, and writes down what that was doing.
//!
//! It is started while all is well, because a process that hangs may be unable to start anything. It has its own heap and its
//! own locks. It ends when the process that started it does.

use std::{
    fs::File,
    io::{self, Read as _, Write as _, stdin, stdout},
    os::fd::AsFd as _,
    path::Path,
};

use rustix::event::{PollFd, PollFlags, Timespec, poll};

use super::{
    arena,
    gathered::Scene,
    report::{place, still_at, write},
    text::{Names, Subject},
};
use crate::sys::stacks::Tracer;

/// What the helper says when it has all that it needs of the process.
pub(super) const GATHERED: u8 = 6;
/// What it says when the report is written, with every name that could be found.
pub(super) const WRITTEN: u8 = 7;

/// How often is looked for threads that did not stop in time, 5 ms apart, before names are looked up.
const LOOKS: u32 = 20;

/// A report, as it was written.
#[derive(Debug, Clone, Copy)]
pub struct Written<'a> {
    /// Where it is.
    pub path: &'a Path,
    /// What it says.
    pub text: &'a str,
}

/// Is the helper: waits on standard input for dumps to write down, until that is closed. `arguments` are those that whoever
/// started it added to its command line. Each report is handed to `tell` when it is in its file: for a log, which is all that
/// is left where files end with their container. The next report waits meanwhile.
pub fn help(arguments: &[String], mut tell: impl FnMut(Written<'_>)) -> io::Result<()> {
    let [pid, memory, folder, name] = arguments else {
        return Err(io::Error::other("the helper is started by the process that it helps"));
    };
    let number = pid.parse().map_err(io::Error::other)?;
    let arena = File::open(format!("/proc/{pid}/fd/{memory}"))?;
    let mut stdin = File::from(stdin().as_fd().try_clone_to_owned()?);
    let mut tracer = Tracer::default();
    let mut names = Names::ready();
    loop {
        // Who was too late to stop stands still until it is let go.
        while tracer.let_go() && !is_readable(&stdin) {}
        let mut length = [0; 4];
        match stdin.read_exact(&mut length) {
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => return Ok(()),
            other => other?,
        }
        let mut message = vec![0; u32::from_ne_bytes(length) as usize];
        stdin.read_exact(&mut message)?;
        let message = String::from_utf8_lossy(&message);
        let mut lines = message.splitn(3, '\n');
        let mut line = || lines.next().unwrap_or_default();
        let (head, why, rest) = (line(), line(), line());
        let (heap, watches) = rest.split_once("\n\n").unwrap_or((rest, ""));
        let mut numbers = head.split(' ').filter_map(|number| number.parse().ok());
        let (dump, places) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let copied = arena::read(&arena, dump, places as usize)?;
        let scene = Scene::of_one(number, copied, &mut tracer);
        let subject = Subject { pid: number, name, why, heap, watches };
        // Without names first: they take a while, and with a process 1 its helper ends too. A disk that is full must not end
        // the helper: the next report may fit.
        let path = place(Path::new(folder), &subject);
        let path = path.inspect(|path| {
            let _unwritten = write(path, &subject, &scene, &mut Names::Unwanted);
        });
        say(GATHERED);
        // Names take a while, in which nobody should be held.
        for _ in 0..LOOKS {
            if !tracer.let_go() || is_readable(&stdin) {
                break;
            }
        }
        let written = path.map(still_at).and_then(|path| {
            let text = write(&path, &subject, &scene, &mut names)?;
            Ok((path, text))
        });
        say(WRITTEN);
        if let Ok((path, text)) = written {
            tell(Written { path: &path, text: &text });
        }
    }
}

/// The process may end now; whether it still hears this matters to nobody.
fn say(what: u8) {
    let _gone = stdout().write_all(&[what]).and_then(|()| stdout().flush());
}

/// Whether there is something to read, or will be within a moment.
fn is_readable(file: &File) -> bool {
    let timeout = Timespec { tv_sec: 0, tv_nsec: 5_000_000 };
    let mut polled = [PollFd::new(file, PollFlags::IN)];
    poll(&mut polled, Some(&timeout)).is_ok_and(|ready| ready > 0)
}
