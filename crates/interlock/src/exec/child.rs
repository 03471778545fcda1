//! The job as a process: its streams, the signals that are meant for it, and how it ended.

use std::{
    ffi::OsString,
    fs::File,
    io::{self, IsTerminal as _},
    os::{fd::OwnedFd, unix::process::ExitStatusExt as _},
    process::ExitStatus,
    sync::Arc,
    thread,
    time::Duration,
};

use interlock_liveness::signals;
use rustix::{
    io::ioctl_fionread,
    process::{Pid, PidfdFlags, Signal, pidfd_open, pidfd_send_signal},
};
use tokio::{
    net::unix::pipe,
    process::{Child, Command},
    signal::unix::{SignalKind, signal},
    sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel},
    time::{Instant, timeout},
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
    child: Child,
    /// Told of each stream that has ended.
    streams: UnboundedReceiver<()>,
    count: usize,
    tail: Tail,
}

/// How a job ended.
pub(crate) struct Ended {
    /// As a shell says it: the program's code, or 128 and the signal that ended it.
    pub(crate) code: i64,
    /// The last of what it printed.
    pub(crate) output: Option<String>,
    /// When it ended, whoever still holds its streams.
    pub(crate) at: Instant,
}

impl Job {
    /// Starts a program, with the signals that come from now on meant for it.
    pub(crate) fn start(program: &[OsString]) -> Result<Self, Ended> {
        let (name, arguments) =
            program.split_first().ok_or_else(|| failed(NOT_FOUND, "no program"))?;
        let mut command = Command::new(name);
        command.args(arguments);
        // A wrapper: the job ignores and blocks what our caller had ignored and blocked.
        signals::hand_on(command.as_std_mut());
        // A program behaves otherwise when nobody watches: what is a terminal stays one.
        let (mut ours, is_terminal) = (Vec::new(), io::stdout().is_terminal());
        if let Some((from, to)) = (!is_terminal).then(io::pipe).and_then(Result::ok) {
            command.stdout(to);
            ours.push((OwnedFd::from(from), Stream::Stdout));
        }
        let is_terminal = io::stderr().is_terminal();
        if let Some((from, to)) = (!is_terminal).then(io::pipe).and_then(Result::ok) {
            command.stderr(to);
            ours.push((OwnedFd::from(from), Stream::Stderr));
        }
        let child = command.spawn().map_err(|error| {
            let code =
                if error.kind() == io::ErrorKind::NotFound { NOT_FOUND } else { NOT_RUNNABLE };
            failed(code, &format!("{}: {error}", name.to_string_lossy()))
        })?;
        // It holds the other ends of the pipes.
        drop(command);
        pass_signals(&child);
        let (tail, (done, streams), count) = (Tail::default(), unbounded_channel(), ours.len());
        for (from, stream) in ours {
            tokio::spawn(stream.pass_on(from, tail.clone(), done.clone()));
        }
        Ok(Self { child, streams, count, tail })
    }

    /// Waits for its end, so long; `None` if it runs on.
    pub(crate) async fn ends_within(&mut self, time: Duration) -> Option<Ended> {
        let status = timeout(time, self.child.wait()).await.ok()?;
        Some(self.end(status.ok()).await)
    }

    /// Waits for its end.
    pub(crate) async fn ends(&mut self) -> Ended {
        let status = self.child.wait().await;
        self.end(status.ok()).await
    }

    /// How it ended; a status that nobody could find out is none.
    async fn end(&mut self, status: Option<ExitStatus>) -> Ended {
        let at = Instant::now();
        let both = async {
            for _ in 0..self.count {
                self.streams.recv().await;
            }
        };
        let _somebody_holds_them_open = timeout(STREAMS_END_IN, both).await;
        let signalled = |status: ExitStatus| status.signal().map(|signal| i64::from(signal) + 128);
        let code = status.and_then(|status| status.code().map(i64::from).or(signalled(status)));
        let code = code.unwrap_or(NOT_RUNNABLE);
        Ended { code, output: self.tail.text(), at }
    }
}

/// What a job prints to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    /// Passes a stream on by a thread of its own, which nothing holds up but who reads what we print. It is started with
    /// the first that is printed: most jobs print nothing on one of them, and a thread costs a tenth of a millisecond.
    async fn pass_on(self, from: OwnedFd, tail: Tail, done: UnboundedSender<()>) {
        // Watched by a handle of its own: the one that is read from must wait for what comes.
        let watched = from.try_clone().and_then(pipe::Receiver::from_owned_fd);
        if let Ok(watched) = &watched {
            let is_told = watched.readable().await;
            if is_told.is_ok() && ioctl_fionread(&from) == Ok(0) {
                // It ended without a word.
                let _nobody_waits = done.send(());
                return;
            }
        }
        let from = match watched.and_then(pipe::Receiver::into_blocking_fd) {
            Ok(watched) => watched,
            Err(_it_was_not_watched) => from,
        };
        thread::spawn(move || {
            let from = File::from(from);
            match self {
                Self::Stdout => tail.pass(from, io::stdout().lock()),
                Self::Stderr => tail.pass(from, io::stderr().lock()),
            }
            done.send(())
        });
    }
}

/// A program that never ran.
fn failed(code: i64, why: &str) -> Ended {
    Ended { code, output: Some(why.to_owned()), at: Instant::now() }
}

/// Passes signals on to a process, by a handle that cannot mean another. One that we inherited as ignored stays ignored: the job
/// ignores it as well, and that it ends nothing is what the caller wanted (`nohup interlock exec …`).
fn pass_signals(child: &Child) {
    let pid = child.id().and_then(|pid| i32::try_from(pid).ok()).and_then(Pid::from_raw);
    let handle = pid.and_then(|pid| pidfd_open(pid, PidfdFlags::empty()).ok());
    let Some(handle) = handle.map(Arc::new) else { return };
    let is_terminal = io::stdin().is_terminal();
    for (kind, signal_to_pass, sender) in PASSED {
        if signals::is_ignored(kind.as_raw_value()) {
            continue;
        }
        let Ok(mut stream) = signal(kind) else { continue };
        let handle = Arc::clone(&handle);
        tokio::spawn(async move {
            while stream.recv().await.is_some() {
                if sender == Sender::Anybody || !is_terminal {
                    let _it_has_ended = pidfd_send_signal(&*handle, signal_to_pass);
                }
            }
        });
    }
}
