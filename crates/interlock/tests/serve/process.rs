//! Real processes, for several test binaries: each test says which signals they inherit as ignored or blocked, instead of
//! handing on what the tests were started with (by `nohup`, CI, a script's `&`), and every wait for them has a bound and says what it waited for.

#![expect(clippy::disallowed_methods, reason = "a real process in real time is what is tested")]

use std::{
    io::{BufRead as _, BufReader, Read},
    os::unix::process::CommandExt as _,
    process::{Child, Command, ExitStatus, Output, Stdio},
    sync::mpsc::{Receiver, RecvTimeoutError, channel},
    thread,
    time::{Duration, Instant},
};

use rustix::process::{Pid, Signal, kill_process, kill_process_group};

/// Long enough for anything that should happen at all.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// Starts a program with every signal's default action, and none blocked.
pub(crate) const PLAIN: &[&str] = &["env", "--default-signal"];

/// Start a program with signals ignored or blocked, as its callers do: the `nohup` of a shell, the `&` of a script, a parent that
/// ignores SIGPIPE (Python, a unit of systemd), and one that leaves as much as it can.
pub(crate) const UNUSUAL: [&[&str]; 4] = [
    &["nohup"],
    &["sh", "-c", "\"$@\" & wait $!", "sh"],
    &["env", "--ignore-signal=PIPE"],
    &[
        "env",
        "--ignore-signal=HUP,INT,QUIT,PIPE,USR1,TERM,CHLD,RTMIN",
        "--block-signal=TERM,USR2,HUP,CHLD",
    ],
];

/// Prints what it ignores, blocks and catches itself, for [`signals`].
pub(crate) const SHOW: [&str; 2] = ["cat", "/proc/self/status"];

/// The two numbers that the C library keeps for itself: its `posix_spawn` has them ignored in every program.
const OF_THE_C_LIBRARY: u64 = 0b11 << 31;

/// The blocked, ignored and caught signals in what [`SHOW`] printed; signal n is bit n - 1.
#[track_caller]
pub(crate) fn signals(shown: &[u8]) -> [u64; 3] {
    let shown = String::from_utf8_lossy(shown);
    ["SigBlk:", "SigIgn:", "SigCgt:"].map(|name| {
        let mask = shown.lines().find_map(|line| line.strip_prefix(name));
        let mask = mask.unwrap_or_else(|| panic!("no {name} in {shown:?}"));
        u64::from_str_radix(mask.trim(), 16).unwrap() & !OF_THE_C_LIBRARY
    })
}

/// The same command, started by other words before it; its streams are yet to be set.
pub(crate) fn started_by(words: &[&[&str]], command: &Command) -> Command {
    let words = words.concat();
    let (first, rest) = words.split_first().unwrap();
    let mut whole = Command::new(first);
    whole.args(rest).arg(command.get_program()).args(command.get_args());
    for (name, value) in command.get_envs() {
        match value {
            Some(value) => whole.env(name, value),
            None => whole.env_remove(name),
        };
    }
    if let Some(directory) = command.get_current_dir() {
        whole.current_dir(directory);
    }
    whole
}

/// A process in a group of its own, which ends with the test.
pub(crate) struct Started {
    pub(crate) child: Child,
    is_over: bool,
}

impl Started {
    #[track_caller]
    pub(crate) fn new(command: &mut Command) -> Self {
        let child = command.process_group(0).spawn();
        let child = child.unwrap_or_else(|e| panic!("{}: {e}", command.get_program().display()));
        Self { child, is_over: false }
    }

    #[track_caller]
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(Pid::from_child(&self.child), signal).unwrap();
    }

    /// Waits for its end.
    #[track_caller]
    pub(crate) fn ends(&mut self, what: &str) -> ExitStatus {
        let began = Instant::now();
        loop {
            if let Some(status) = self.child.try_wait().unwrap() {
                self.is_over = true;
                return status;
            }
            assert!(began.elapsed() < BOUND, "not in {BOUND:?}: the end of {what}");
            thread::sleep(Duration::from_millis(10));
        }
    }
}

impl Drop for Started {
    fn drop(&mut self) {
        if !self.is_over {
            let _already_gone = kill_process_group(Pid::from_child(&self.child), Signal::KILL);
            let _already_gone = self.child.wait();
        }
    }
}

/// A stream, read by a thread of its own.
pub(crate) struct Lines {
    lines: Receiver<Vec<u8>>,
    said: Vec<u8>,
}

impl Lines {
    pub(crate) fn of(stream: impl Read + Send + 'static) -> Self {
        let (to, lines) = channel();
        thread::spawn(move || {
            let mut stream = BufReader::new(stream);
            let mut line = Vec::new();
            while stream.read_until(b'\n', &mut line).is_ok_and(|count| count > 0)
                && to.send(std::mem::take(&mut line)).is_ok()
            {}
        });
        Self { lines, said: Vec::new() }
    }

    /// Reads until something was said so often.
    #[track_caller]
    pub(crate) fn until(&mut self, words: &str, times: usize) {
        let began = Instant::now();
        while self.said().matches(words).count() < times {
            match self.lines.recv_timeout(BOUND.saturating_sub(began.elapsed())) {
                Ok(line) => self.said.extend(line),
                Err(why) => panic!("`{words}` was not said {times} times: {why}: {}", self.said()),
            }
        }
    }

    /// Reads to the end.
    #[track_caller]
    pub(crate) fn rest(mut self, what: &str) -> Vec<u8> {
        let began = Instant::now();
        loop {
            match self.lines.recv_timeout(BOUND.saturating_sub(began.elapsed())) {
                Ok(line) => self.said.extend(line),
                Err(RecvTimeoutError::Disconnected) => return self.said,
                Err(RecvTimeoutError::Timeout) => {
                    panic!("not in {BOUND:?}: the end of what {what} says: {}", self.said())
                }
            }
        }
    }

    pub(crate) fn said(&self) -> String {
        String::from_utf8_lossy(&self.said).into_owned()
    }
}

/// Runs a command to its end, with nothing to read.
#[track_caller]
pub(crate) fn output(command: &mut Command) -> Output {
    let what = format!("{command:?}");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut started = Started::new(command);
    let stdout = started.child.stdout.take().map(Lines::of);
    let stderr = started.child.stderr.take().map(Lines::of);
    let status = started.ends(&what);
    let [stdout, stderr] = [stdout, stderr].map(|stream| stream.unwrap().rest(&what));
    Output { status, stdout, stderr }
}
