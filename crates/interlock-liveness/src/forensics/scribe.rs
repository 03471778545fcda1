//! The helper: a process that waits until another one hangs, and writes down what that was doing.
//!
//! It is started while all is well, because a process that hangs may be unable to start anything. It has its own heap and its
//! own locks. It ends when the process that started it does.

use std::{
    fs::File,
    io::{self, Read as _, Write as _, stdin, stdout},
    path::Path,
};

use super::{
    arena,
    report::{Gathered, Names, Subject, place, still_at, write},
};

/// What the helper says when it has all that it needs of the process.
pub(super) const GATHERED: u8 = 6;
/// What it says when the report is written, with every name that could be found.
pub(super) const WRITTEN: u8 = 7;

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
    let mut stdin = stdin().lock();
    let mut names = Names::ready();
    loop {
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
        let (head, why, watches) = (line(), line(), line());
        let mut numbers = head.split(' ').filter_map(|number| number.parse().ok());
        let (dump, places) = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
        let copied = arena::read(&arena, dump, places as usize)?;
        let gathered = Gathered::of(number, copied);
        let subject = Subject { pid: number, name, why, watches };
        // Without names first: they take a while, and with a process 1 its helper ends too. A disk that is full must not end
        // the helper: the next report may fit.
        let path = place(Path::new(folder), &subject);
        let path = path.inspect(|path| {
            let _unwritten = write(path, &subject, &gathered, &mut Names::Unwanted);
        });
        say(GATHERED);
        let written = path.map(still_at).and_then(|path| {
            let text = write(&path, &subject, &gathered, &mut names)?;
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
