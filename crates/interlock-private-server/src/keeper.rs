//! A server process with a keeper: a shell that starts the server and reads from a pipe that its owner holds.
//!
//! When the owner drops it, or dies in whatever way, the pipe closes; the shell then ends the server by its pid
//! and removes its folder. Both are in a process group of their own, so that whoever ends the owner's group
//! does not end the keeper first.

use std::{
    fs::{self, File},
    io::{BufRead as _, BufReader, Write as _},
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::{Child, ChildStdin, Command, Stdio},
    time::{Duration, Instant},
};

use interlock_wait::Lines;
pub use rustix::process::Signal;
use rustix::process::{Pid, kill_process};

use crate::{READY_IN, wait_for, wait_until};

/// `$1` is the folder, `$2` the signal that ends the server at once; the rest is the server.
const SCRIPT: &str = r#"
folder=$1 signal=$2
shift 2
"$@" >>"$folder/server.log" 2>&1 &
pid=$!
echo $pid
read -r wish
kill -CONT $pid 2>/dev/null
kill -"$signal" $pid 2>/dev/null
tries=0
while kill -0 $pid 2>/dev/null && [ $tries -lt 500 ]; do
    tries=$((tries + 1))
    sleep 0.01
done
kill -KILL $pid 2>/dev/null
wait $pid
[ "$wish" = keep ] || rm -rf "$folder"
"#;

/// How long a server may take to end after the signal for that; PostgreSQL gives its own processes five seconds.
const ENDS_IN: Duration = Duration::from_secs(15);

/// What is to be started, and where its data lies.
#[derive(Debug)]
pub(crate) struct Plan {
    /// The program with its arguments.
    pub(crate) line: Vec<String>,
    /// The user as whom it runs, unless that is us.
    pub(crate) user: Option<String>,
    /// Ends it at once, by the name that `kill` knows.
    pub(crate) signal: &'static str,
    pub(crate) folder: PathBuf,
}

/// A server that runs.
#[derive(Debug)]
pub(crate) struct Keeper {
    shell: Child,
    pipe: Option<ChildStdin>,
    pid: Pid,
}

impl Keeper {
    fn start(plan: &Plan) -> Self {
        let mut command = Command::new("sh");
        command.args(["-c", SCRIPT, "keeper"]).arg(&plan.folder).arg(plan.signal);
        if let Some(user) = &plan.user {
            let (uid, gid) = (format!("--reuid={user}"), format!("--regid={user}"));
            command.args(["setpriv", &uid, &gid, "--clear-groups", "--"]);
        }
        command.args(&plan.line).process_group(0);
        let mut shell = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let pipe = shell.stdin.take();
        let mut lines = Lines::of(shell.stdout.take().unwrap());
        let line = lines.next_within("the pid of the server", READY_IN).unwrap();
        let pid = line.trim().parse().ok().and_then(Pid::from_raw).unwrap();
        Self { shell, pipe, pid }
    }

    /// Starts a server and waits until it answers; none if it ended before. What it left lies there all the same.
    pub(crate) fn start_and_wait(plan: &Plan, answers: impl FnMut() -> bool) -> Option<Self> {
        let mut keeper = Self::start(plan);
        if wait_until(answers, || keeper.has_ended()) {
            return Some(keeper);
        }
        keeper.finish("keep\n");
        None
    }

    /// Sends a signal to the server itself.
    pub(crate) fn signal(&self, signal: Signal) {
        kill_process(self.pid, signal).unwrap();
    }

    /// Whether the server has ended.
    pub(crate) fn has_ended(&self) -> bool {
        let path = format!("/proc/{}/stat", self.pid.as_raw_nonzero());
        // The keeper looks after its end only when it is asked to.
        fs::read_to_string(path).map_or(true, |stat| stat.contains(") Z "))
    }

    /// Waits for the server's own end, and keeps its data. A failing machine does not ask: what has not ended by then is killed, with
    /// all its processes. PostgreSQL was once seen to stand for a minute after SIGQUIT, with a client that no longer read.
    pub(crate) fn wait_and_keep(mut self) {
        let began = Instant::now();
        if !wait_until(|| self.has_ended(), || began.elapsed() > ENDS_IN) {
            eprintln!("killed, because it did not end in {ENDS_IN:?}:\n{}", self.describe());
            for pid in self.children().into_iter().chain([self.pid]) {
                // It may have ended by itself meanwhile.
                let _already_gone = kill_process(pid, Signal::KILL);
            }
        }
        wait_for("the end of a server that was killed", || self.has_ended(), || self.describe());
        self.finish("keep\n");
    }

    /// The processes that the server has started.
    fn children(&self) -> Vec<Pid> {
        let pid = self.pid.as_raw_nonzero();
        let path = format!("/proc/{pid}/task/{pid}/children");
        let children = fs::read_to_string(path).unwrap_or_default();
        children.split(' ').filter_map(|word| Pid::from_raw(word.parse().ok()?)).collect()
    }

    /// What the kernel says of the server: whether it runs, waits or is stopped, for what, and which signals wait for it.
    fn describe(&self) -> String {
        let folder = format!("/proc/{}", self.pid.as_raw_nonzero());
        let read = |name: &str| fs::read_to_string(format!("{folder}/{name}")).unwrap_or_default();
        let told = ["Name", "State", "PPid", "SigPnd", "ShdPnd", "SigBlk", "SigIgn", "SigCgt"];
        let is_told = |line: &&str| told.iter().any(|name| line.starts_with(name));
        let status = read("status");
        let status: Vec<&str> = status.lines().filter(is_told).collect();
        let children = self.children();
        format!("{}\nwaits in {}\nchildren {children:?}", status.join("\n"), read("wchan"))
    }

    fn finish(&mut self, wish: &str) {
        if let Some(mut pipe) = self.pipe.take() {
            // A keeper that is gone has nothing left to do.
            let _gone = pipe.write_all(wish.as_bytes());
            drop(pipe);
            // It ends the server within five seconds. This may run while a test fails, so it says nothing if that takes longer.
            let has_ended = || !matches!(self.shell.try_wait(), Ok(None));
            let _in_time = wait_until(has_ended, || false);
        }
    }
}

impl Drop for Keeper {
    fn drop(&mut self) {
        self.finish("");
    }
}

/// The end of what a server said, for a message.
pub(crate) fn last_words(folder: &Path) -> String {
    let Ok(file) = File::open(folder.join("server.log")) else { return String::new() };
    // Bounded: a regular file, read as far as it goes now.
    let lines: Vec<String> = BufReader::new(file).lines().map_while(Result::ok).collect();
    lines.iter().rev().take(10).rev().cloned().collect::<Vec<_>>().join("\n")
}
