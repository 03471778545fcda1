//! Other processes: this test binary again, told by its environment what to play.

use std::{
    io::Write,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use interlock_store::{Store, block_on};
use interlock_wait::{BOUND, ChildWithin as _, CommandWithin as _, Lines};
use rusqlite::Connection;

use crate::cast::{PIPELINES, bulky, commit, daemon, group, letter, pipeline, reader, writer};

const PART: &str = "INTERLOCK_TEST_PART";
const FOLDER: &str = "INTERLOCK_TEST_FOLDER";
const FIRST: &str = "INTERLOCK_TEST_FIRST";

/// A process that plays a part.
pub(crate) struct Player {
    pub(crate) child: Child,
    lines: Lines,
}

impl Player {
    /// Starts one in a folder, beginning with a number.
    pub(crate) fn start(part: &str, folder: &Path, first: u64) -> Self {
        Self::start_by(Command::new(std::env::current_exe().unwrap()), part, folder, first)
    }

    /// Starts one whose files may not grow beyond so many blocks.
    pub(crate) fn start_limited(part: &str, folder: &Path, blocks: u32) -> Self {
        let mut command = Command::new("sh");
        let script = format!("trap '' XFSZ; ulimit -f {blocks}; exec \"$0\" \"$@\"");
        command.arg("-c").arg(script).arg(std::env::current_exe().unwrap());
        Self::start_by(command, part, folder, 0)
    }

    fn start_by(mut command: Command, part: &str, folder: &Path, first: u64) -> Self {
        command.args(["--exact", "child::play", "--nocapture"]);
        command.env(PART, part).env(FOLDER, folder).env(FIRST, first.to_string());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it starts");
        let lines = Lines::of(child.stdout.take().unwrap());
        Self { child, lines }
    }

    /// The rest of the next line that begins with a word; `None` when there are no more.
    pub(crate) fn hear(&mut self, word: &str) -> Option<String> {
        let what = format!("the player to say `{word}`");
        let line = self.lines.find_within(&what, BOUND, |line| line.starts_with(word))?;
        line.strip_prefix(word).map(|rest| rest.trim().to_owned())
    }

    /// The next number that it acknowledged.
    pub(crate) fn acknowledged(&mut self) -> Option<u64> {
        self.hear("ack ").map(|text| text.parse().unwrap())
    }

    /// Sends it a signal.
    pub(crate) fn signal(&self, name: &str) {
        let mut kill = Command::new("kill");
        let status =
            kill.arg(format!("-{name}")).arg(self.child.id().to_string()).status_within(BOUND);
        assert!(status.unwrap().success());
    }

    /// Lets it go on after it has said that it is ready.
    pub(crate) fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"\n").unwrap();
    }
}

impl Drop for Player {
    fn drop(&mut self) {
        // It may have ended by itself.
        self.child.kill_and_wait();
    }
}

/// Says a line at once.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    // Whoever listened may be gone.
    drop(writeln!(out, "{line}").and_then(|()| out.flush()));
}

/// Does nothing as a test; plays a part when the environment names one.
#[test]
fn play() {
    let Some(part) = std::env::var_os(PART) else { return };
    let folder = PathBuf::from(std::env::var_os(FOLDER).unwrap());
    let first = std::env::var_os(FIRST).unwrap().to_str().unwrap().parse().unwrap();
    // The harness has begun a line that nobody ends.
    say("");
    match part.to_str().unwrap() {
        "commits" => commits(&folder, first),
        "posts" => posts(&folder, first),
        "holds" => holds(&folder, "BEGIN IMMEDIATE"),
        "holds-all" => holds(&folder, "PRAGMA locking_mode = EXCLUSIVE; BEGIN EXCLUSIVE"),
        "fills" => fills(&folder),
        other => panic!("no such part: {other}"),
    }
}

/// Commits groups for ever, a call for all pipelines at a time.
fn commits(folder: &Path, first: u64) {
    let store = daemon(folder);
    let writer = writer(&store);
    for round in first.div_ceil(PIPELINES).. {
        let numbers = round * PIPELINES..(round + 1) * PIPELINES;
        let groups = numbers.clone().map(|number| group(writer, number)).collect();
        let results = block_on(store.commit(groups)).unwrap();
        for (number, result) in numbers.zip(results) {
            result.unwrap();
            say(&format!("ack {number}"));
        }
    }
}

/// Posts letters for ever, as a command does beside a daemon.
fn posts(folder: &Path, first: u64) {
    for number in first.. {
        let store = reader(folder);
        block_on(store.post(&pipeline(number), &format!("key-{number}"), &letter(number))).unwrap();
        say(&format!("ack {number}"));
    }
}

/// Is in the middle of a write to the inbox until it is told to go on.
fn holds(folder: &Path, begin: &str) {
    let db = Connection::open(folder.join("inbox.db")).unwrap();
    db.execute_batch(begin).unwrap();
    let body = letter(77).encode();
    let insert =
        "INSERT INTO letters (pipeline, key, received_at, body) VALUES ('crash-0', 'held', 0, ?1)";
    db.execute(insert, [body]).unwrap();
    say("ready");
    // Bounded: the input ends when the test ends, in whatever way.
    std::io::stdin().read_line(&mut String::new()).unwrap();
    db.execute_batch("COMMIT").unwrap();
    say("done");
}

/// Commits until the disk fails, then tries again.
fn fills(folder: &Path) {
    let store = daemon(folder);
    let writer = writer(&store);
    for number in 0.. {
        match commit(&store, bulky(writer, number, 20_000)) {
            Ok(result) => {
                result.unwrap();
                say(&format!("ack {number}"));
            }
            Err(error) => {
                say(&format!("failed {} {}", error.is_retryable, error.message));
                break;
            }
        }
    }
    let error = commit(&store, bulky(writer, 1_000_000, 1)).unwrap_err();
    say(&format!("refused {} {}", error.is_retryable, error.message));
    let error = block_on(store.read(&pipeline(0), &[])).unwrap_err();
    say(&format!("unread {} {}", error.is_retryable, error.message));
}
