//! The job as a process: its streams, the signals that are meant for it, and how it ended.

use std::{
    ffi::OsString,
    io::{self, IsTerminal as _},
    os::unix::process::ExitStatusExt as _,
    process::{Child, Command, ExitStatus, Stdio},
    sync::mpsc::{Receiver, channel},
    thread,
    time::Duration,
};

use rustix::process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal};
use tokio::{
    signal::unix::{SignalKind, signal},
    sync::oneshot,
};

use super::tail::Tail;

/// What a shell says of a program that is not there, and of one that may not be run.
const NOT_FOUND: i64 = 127;
const NOT_RUNNABLE: i64 = 126;
/// How long streams are read on that somebody else holds open after the job.
const STREAMS_END_IN: Duration = Duration::from_secs(1);

/// Signals that are passed on. Those that a terminal sends go to its whole group already.
const PASSED: [(SignalKind, Signal, Sender); 6] = [
    (SignalKind::terminate(), Signal::TERM, Sender::Anybody),
    (SignalKind::hangup(), Signal::HUP, Sender::Anybody),
    (SignalKind::user_defined1(), Signal::USR1, Sender::Anybody),
    (SignalKind::user_defined2(), Signal::USR2, Sender::Anybody),
    (SignalKind::interrupt(), Signal::INT, Sender::Terminal),
    (SignalKind::quit(), Signal::QUIT, Sender::Terminal),
];

/// Who usually sends a signal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Sender {
    Anybody,
    Terminal,
}

/// A job that runs.
pub(crate) struct Job {
    ended: oneshot::Receiver<io::Result<ExitStatus>>,
    streams: Receiver<()>,
    count: usize,
    tail: Tail,
}

/// How a job ended.
pub(crate) struct Ended {
    /// As a shell says it: the program's code, or 128 and the signal that ended it.
    pub(crate) code: i64,
    /// The last of what it printed.
    pub(crate) output: Option<String>,
}

impl Job {
    /// Starts a program, with the signals that come from now on meant for it.
    pub(crate) fn start(program: &[OsString]) -> Result<Self, Ended> {
        let (name, arguments) =
            program.split_first().ok_or_else(|| failed(NOT_FOUND, "no program"))?;
        let mut command = Command::new(name);
        command.args(arguments);
        // A program behaves otherwise when nobody watches: what is a terminal stays one.
        if !io::stdout().is_terminal() {
            command.stdout(Stdio::piped());
        }
        if !io::stderr().is_terminal() {
            command.stderr(Stdio::piped());
        }
        let mut child = command.spawn().map_err(|error| {
            let code =
                if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
            failed(code, &format!("{}: {error}", name.to_string_lossy()))
        })?;
        pass_signals(&child);
        let (tail, (done, streams), mut count) = (Tail::default(), channel(), 0);
        if let Some(stdout) = child.stdout.take() {
            let (tail, done) = (tail.clone(), done.clone());
            thread::spawn(move || {
                tail.pass(stdout, io::stdout().lock());
                done.send(())
            });
            count += 1;
        }
        if let Some(stderr) = child.stderr.take() {
            let tail = tail.clone();
            thread::spawn(move || {
                tail.pass(stderr, io::stderr().lock());
                done.send(())
            });
            count += 1;
        }
        let (tell, ended) = oneshot::channel();
        thread::spawn(move || tell.send(child.wait()));
        Ok(Self { ended, streams, count, tail })
    }

    /// Waits for its end, so long; `None` if it runs on.
    pub(crate) async fn ends_within(&mut self, time: Duration) -> Option<Ended> {
        let status = tokio::time::timeout(time, &mut self.ended).await.ok()?;
        Some(self.end(status.ok().and_then(Result::ok)))
    }

    /// Waits for its end.
    pub(crate) async fn ends(&mut self) -> Ended {
        let status = (&mut self.ended).await;
        self.end(status.ok().and_then(Result::ok))
    }

    /// How it ended; a status that nobody could find out is none.
    fn end(&self, status: Option<ExitStatus>) -> Ended {
        for _ in 0..self.count {
            let _somebody_holds_it_open = self.streams.recv_timeout(STREAMS_END_IN);
        }
        let signalled = |status: ExitStatus| status.signal().map(|signal| i64::from(signal) + 128);
        let code = status.and_then(|status| status.code().map(i64::from).or(signalled(status)));
        let code = code.unwrap_or(NOT_RUNNABLE);
        Ended { code, output: self.tail.text() }
    }
}

/// A program that never ran.
fn failed(code: i64, why: &str) -> Ended {
    Ended { code, output: Some(why.to_owned()) }
}

/// Passes signals on to a process, by a handle that cannot mean another.
fn pass_signals(child: &Child) {
    let Ok(handle) = pidfd_open(Pid::from_child(child), PidfdFlags::empty()) else { return };
    let handle = std::sync::Arc::new(handle);
    let is_terminal = io::stdin().is_terminal();
    for (kind, signal_to_pass, sender) in PASSED {
        let Ok(mut stream) = signal(kind) else { continue };
        let handle = std::sync::Arc::clone(&handle);
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender == Sender::Anybody || !is_terminal {
                    let _it_has_ended = pidfd_send_signal(&*handle, signal_to_pass);
                }
            }
        });
    }
}
