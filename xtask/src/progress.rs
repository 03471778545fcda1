//! Another program under a progress line: what is built or tested, how far it is, how long it takes so far.
//!
//! What the program prints is read line by line. Lines that only say how far it is (cargo's bar, a package that is
//! compiled, a test that passed) feed the progress line; every other line is printed. On a terminal the progress line is
//! drawn over itself; in a log it is written every half minute, so that a reader can tell slow from stuck.

use std::{
    io::{IsTerminal as _, PipeReader, Read as _, Write as _},
    process::Command,
    sync::mpsc::{self, RecvTimeoutError, Sender},
    thread,
    time::{Duration, Instant},
};

use crate::shell;

/// How often the line is drawn on a terminal.
const REDRAW: Duration = Duration::from_millis(250);

/// How often it is written to a log.
const REPEAT: Duration = Duration::from_secs(30);

/// Columns of the line on a terminal: more would wrap on a narrow one, and a wrapped line cannot be drawn over.
const COLUMNS: usize = 79;

/// Runs a command to its end under a progress line that begins with a title.
///
/// Each line of the command's output goes to `read` first.
pub(crate) fn run(
    title: &str,
    mut command: Command,
    mut read: impl FnMut(&str) -> Line,
) -> Result<(), String> {
    let line = shell::line(&command);
    let failed = |error: std::io::Error| format!("{line}: {error}");
    // One pipe for both outputs keeps their order.
    let (reader, writer) = std::io::pipe().map_err(failed)?;
    command.stdout(writer.try_clone().map_err(failed)?).stderr(writer);
    let mut child = command.spawn().map_err(|error| shell::cannot_start(&command, &error))?;
    // The command holds the writing ends: without them the reader sees the end of the program.
    drop(command);
    let (sender, lines) = mpsc::channel();
    let reading = thread::spawn(move || split(reader, &sender));
    let mut shown = Shown::new(title);
    loop {
        match lines.recv_timeout(REDRAW) {
            Ok(text) => match read(&text) {
                Line::Print => shown.print(&text),
                Line::At(at) => shown.at = at,
                Line::Drop => {}
            },
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => break,
        }
        shown.draw();
    }
    shown.clear();
    let status = child.wait().map_err(failed)?;
    reading.join().map_err(|_panic| format!("{line}: its output could not be read"))?;
    if status.success() { Ok(()) } else { Err(format!("{line} ended with {status}")) }
}

/// What becomes of a line that a program printed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Line {
    /// It is printed.
    Print,
    /// It says how far the program is.
    At(Place),
    /// It says nothing that the progress line does not say.
    Drop,
}

/// How far a program is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Place {
    /// What it works on, or finished last.
    pub(crate) what: String,
    /// How many of how many are done.
    pub(crate) done: Option<(u64, u64)>,
}

/// A call of cargo whose output [`read_cargo`] understands.
pub(crate) fn cargo(arguments: &[&str]) -> Command {
    let mut command = shell::cargo(arguments);
    // The bar is the only place where cargo says how many there are, and by default it is for terminals.
    command.env("CARGO_TERM_PROGRESS_WHEN", "always").env("CARGO_TERM_PROGRESS_WIDTH", "100");
    command
}

/// Reads a line of cargo's: its bar, or the word for what it does to a package.
pub(crate) fn read_cargo(text: &str) -> Line {
    let text = plain(text);
    let trimmed = text.trim();
    let (word, rest) = trimmed.split_once(' ').unwrap_or((trimmed, ""));
    if BARS.contains(&word) && rest.starts_with('[') {
        return read_bar(rest).map_or(Line::Drop, Line::At);
    }
    let is_step = text.starts_with(' ') && CARGO_WORDS.contains(&word);
    if is_step || trimmed.is_empty() { Line::Drop } else { Line::Print }
}

/// What cargo says it does, right-aligned at the beginning of a line.
const CARGO_WORDS: &[&str] = &[
    "Blocking",
    "Checking",
    "Compiling",
    "Documenting",
    "Downloaded",
    "Downloading",
    "Finished",
    "Fresh",
    "Generated",
    "Installed",
    "Installing",
    "Locking",
    "Running",
    "Updating",
];

/// What cargo draws a bar for.
const BARS: &[&str] = &["Building", "Downloading", "Fetch"];

/// `[====>   ] 12/345: serde, interlock-core(test)`
fn read_bar(bar: &str) -> Option<Place> {
    let (_, rest) = bar.split_once("] ")?;
    let (count, names) = rest.split_once(':').unwrap_or((rest, ""));
    let (done, total) = count.split_once('/')?;
    let done = (done.trim().parse().ok()?, total.trim().parse().ok()?);
    Some(Place { what: names.trim().to_owned(), done: Some(done) })
}

/// A line without the escape sequences that colour it.
pub(crate) fn plain(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    let mut rest = text.chars();
    while let Some(next) = rest.next() {
        if next != '\u{1b}' {
            plain.push(next);
        } else if rest.next() == Some('[') {
            rest.find(char::is_ascii_alphabetic);
        }
    }
    plain
}

/// A time as it is spoken of: `8 s`, `3 m 05 s`.
pub(crate) fn spoken(time: Duration) -> String {
    match (time.as_secs() / 60, time.as_secs() % 60) {
        (0, seconds) => format!("{seconds} s"),
        (minutes, seconds) => format!("{minutes} m {seconds:02} s"),
    }
}

/// Cuts output into lines; a bar that is drawn over itself ends in a carriage return.
fn split(mut output: PipeReader, lines: &Sender<String>) {
    let (mut open, mut chunk) = (Vec::new(), [0; 8192]);
    loop {
        let read = match output.read(&mut chunk) {
            Ok(0) | Err(_) => break,
            Ok(read) => read,
        };
        for byte in &chunk[..read] {
            if matches!(byte, b'\n' | b'\r') {
                let line = String::from_utf8_lossy(&open).into_owned();
                open.clear();
                if lines.send(line).is_err() {
                    return;
                }
            } else {
                open.push(*byte);
            }
        }
    }
    if !open.is_empty() {
        // The receiver outlives this thread unless it panicked, and then nothing is left to tell.
        let _last = lines.send(String::from_utf8_lossy(&open).into_owned());
    }
}

/// The progress line as it stands.
struct Shown {
    title: String,
    at: Place,
    began: Instant,
    drawn: Instant,
    is_terminal: bool,
}

impl Shown {
    fn new(title: &str) -> Self {
        let now = now();
        let is_terminal = std::io::stdout().is_terminal();
        Self { title: title.to_owned(), at: Place::default(), began: now, drawn: now, is_terminal }
    }

    /// The line, of so many characters at most.
    fn text(&self, columns: usize) -> String {
        let Self { title, at: Place { what, done }, began, .. } = self;
        let far = done.map(|(done, total)| format!(" {done} of {total},")).unwrap_or_default();
        let line = format!("{title}:{far} {}", spoken(began.elapsed()));
        let line = if what.is_empty() { line } else { format!("{line}: {what}") };
        line.chars().take(columns).collect()
    }

    /// Shows the line when it is time to.
    fn draw(&mut self) {
        let pause = if self.is_terminal { REDRAW } else { REPEAT };
        if self.drawn.elapsed() < pause {
            return;
        }
        self.drawn = now();
        if self.is_terminal {
            print!("\r\u{1b}[K{}", self.text(COLUMNS));
            // A terminal that is gone is noticed by the next line that matters.
            let _flushed = std::io::stdout().flush();
        } else {
            println!("   {}", self.text(160));
        }
    }

    fn print(&mut self, text: &str) {
        self.clear();
        println!("{text}");
    }

    fn clear(&self) {
        if self.is_terminal {
            print!("\r\u{1b}[K");
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "how long a program takes is real time")]
fn now() -> Instant {
    Instant::now()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cargos_bar_says_how_far_it_is() {
        let bar = "    Building [=====>       ] 120/345: serde_json, interlock-core(test)";
        let what = "serde_json, interlock-core(test)".to_owned();
        assert_eq!(read_cargo(bar), Line::At(Place { what, done: Some((120, 345)) }));
    }

    #[test]
    fn what_cargo_does_is_dropped_and_what_it_complains_of_is_printed() {
        for line in [
            "       Fetch [==>  ] 35 complete; 110 pending",
            "   Compiling serde v1.0.1",
            " Documenting xtask v0.0.0",
            "    \u{1b}[1;32mFinished\u{1b}[0m `dev`",
            "",
        ] {
            assert_eq!(read_cargo(line), Line::Drop, "{line}");
        }
        for line in ["warning: unused variable", "error[E0308]: mismatched types", "Compiling"] {
            assert_eq!(read_cargo(line), Line::Print, "{line}");
        }
    }

    #[test]
    fn the_line_says_what_how_far_and_how_long() {
        let mut shown = Shown::new("lints");
        assert_eq!(shown.text(79), "lints: 0 s");
        shown.at = Place { what: "serde".to_owned(), done: Some((3, 12)) };
        assert_eq!(shown.text(79), "lints: 3 of 12, 0 s: serde");
        assert_eq!(shown.text(9), "lints: 3 ");
        assert_eq!(spoken(Duration::from_secs(185)), "3 m 05 s");
    }

    #[test]
    fn every_line_is_read_and_a_failure_names_the_command() {
        let mut command = shell::program("sh");
        command.args(["-c", "printf 'one\\rtwo\\n' >&2; printf three; exit 3"]);
        let mut seen = Vec::new();
        let reason = run("sh", command, |line| {
            seen.push(line.to_owned());
            Line::Drop
        });
        assert_eq!(seen, ["one", "two", "three"]);
        let reason = reason.unwrap_err();
        assert!(reason.starts_with("sh -c") && reason.contains("exit status: 3"), "{reason}");
    }
}
