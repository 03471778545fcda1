//! The lock that lets one process write a folder.
//!
//! The operating system holds it and drops it when the process ends, however it ends. The file names the holder: its process id, what
//! it is, and when it was started. That is for people, and says whether it is of use to wait: it decides nothing.

use std::{
    fmt,
    fs::{self, File, Metadata, TryLockError},
    io::{self, Read as _, Seek as _, Write as _},
    path::{Path, PathBuf},
    thread,
    time::Duration,
};

use interlock_store::StoreError;

/// The file that is locked.
const FILE_NAME: &str = "daemon.lock";

/// How often and how long a lock is waited for whose owner is gone.
const LOOKS_MAX: u32 = 200;
const LOOK: Duration = Duration::from_millis(10);

/// The right to write. It ends when this is dropped.
#[derive(Debug)]
pub struct DaemonLock {
    file: File,
}

/// What came of trying to take the lock.
#[derive(Debug)]
pub enum LockOutcome {
    /// It is ours.
    Taken(DaemonLock),
    /// Another process has it: which, as far as the file says.
    HeldBy(Option<LockHolder>),
}

/// A process that took the lock, as the file names it. It may have ended since.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LockHolder {
    /// Its id, as it saw itself.
    pub pid: u32,
    /// What it is, such as `interlock serve`.
    pub what: String,
    /// When it was started, in clock ticks since the machine was; older versions do not say.
    started: Option<u64>,
}

impl DaemonLock {
    /// Where the lock of a folder is.
    pub(crate) fn path(folder: &Path) -> PathBuf {
        folder.join(FILE_NAME)
    }

    /// Which file is locked, whatever its path leads to now.
    pub(crate) fn metadata(&self) -> io::Result<Metadata> {
        self.file.metadata()
    }

    /// Takes the lock of a folder, or says who has it. `what` is what the file calls this process.
    pub(crate) fn take(folder: &Path, what: &str) -> Result<Self, StoreError> {
        match Self::attempt(folder, what) {
            Ok(LockOutcome::Taken(lock)) => Ok(lock),
            Ok(LockOutcome::HeldBy(holder)) => Err(refusal(folder, holder.as_ref())),
            Err(error) => {
                let path = Self::path(folder);
                Err(StoreError::permanent(format!("{} cannot be used: {error}", path.display())))
            }
        }
    }

    /// Takes the lock of a folder if no other process has it. It waits for two seconds if the holder does not run here: a
    /// child that the holder was just starting has the lock too, until it becomes another program, and a process that was
    /// killed has it until its last thread has ended.
    pub fn attempt(folder: &Path, what: &str) -> io::Result<LockOutcome> {
        let mut options = interlock_private_files::open_options();
        // Not truncated: it may name the process that has the lock.
        options.read(true).write(true).create(true).truncate(false);
        let mut file = options.open(folder.join(FILE_NAME))?;
        let mut looks = 0;
        loop {
            match file.try_lock() {
                Ok(()) => break,
                Err(TryLockError::WouldBlock) => {}
                Err(TryLockError::Error(error)) => return Err(error),
            }
            let holder = LockHolder::named_in(&mut file);
            if looks >= LOOKS_MAX || holder.as_ref().is_some_and(LockHolder::is_running) {
                return Ok(LockOutcome::HeldBy(holder));
            }
            looks += 1;
            thread::sleep(LOOK);
        }
        file.set_len(0)?;
        file.rewind()?;
        // In one piece: others read it at any moment.
        let pid = std::process::id();
        let started = live_start(pid).map_or_else(String::new, |ticks| format!("{ticks}\n"));
        file.write_all(format!("{pid}\n{what}\n{started}").as_bytes())?;
        Ok(LockOutcome::Taken(Self { file }))
    }
}

impl LockHolder {
    /// The process that took the lock of a folder last.
    pub fn of(folder: &Path) -> Option<Self> {
        Self::parse(&fs::read_to_string(folder.join(FILE_NAME)).ok()?)
    }

    fn named_in(file: &mut File) -> Option<Self> {
        let mut text = String::new();
        file.rewind().and_then(|()| file.read_to_string(&mut text)).ok()?;
        Self::parse(&text)
    }

    fn parse(text: &str) -> Option<Self> {
        let mut lines = text.lines();
        let pid = lines.next()?.parse().ok()?;
        let what = lines.next().unwrap_or_default().to_owned();
        let started = lines.next().and_then(|ticks| ticks.parse().ok());
        Some(Self { pid, what, started })
    }

    /// Whether it runs, as far as can be seen from here. A process id means nothing in another container: there every `serve` may be
    /// process 1, and so may we. The time of the start tells them apart.
    pub fn is_running(&self) -> bool {
        let started = live_start(self.pid);
        started.is_some() && (self.started.is_none() || self.started == started)
    }
}

impl fmt::Display for LockHolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let unseen = (!self.is_running()).then_some("just ending, or in another container");
        let said = Some(self.what.as_str()).filter(|what| !what.is_empty());
        let said: Vec<&str> = said.into_iter().chain(unseen).collect();
        write!(f, "process {}", self.pid)?;
        if said.is_empty() { Ok(()) } else { write!(f, " ({})", said.join("; ")) }
    }
}

/// When a process was started, in clock ticks since the machine was; nothing once it has begun to end. Its name stands in parentheses and
/// may contain anything.
fn live_start(pid: u32) -> Option<u64> {
    let line = fs::read(format!("/proc/{pid}/stat")).ok()?;
    let line = String::from_utf8_lossy(&line);
    let (_, fields) = line.rsplit_once(')')?;
    let mut fields = fields.split_whitespace();
    let is_over = matches!(fields.next()?, "Z" | "X");
    // Field 22 of proc(5); the state is field 3.
    let ticks = fields.nth(22 - 3 - 1)?.parse().ok()?;
    (!is_over).then_some(ticks)
}

fn refusal(folder: &Path, holder: Option<&LockHolder>) -> StoreError {
    let who = holder.map_or_else(|| "another process".to_owned(), ToString::to_string);
    let message = format!(
        "{who} is using the ledger in {}: only one may write it; stop that one first, or use another folder",
        folder.display()
    );
    // It may end at any moment.
    StoreError::retryable(message)
}

#[cfg(test)]
mod tests {
    use std::process::Command;

    use interlock_wait::{BOUND, ChildWithin as _, ThreadWithin as _, wait_until};

    use super::*;

    fn holder(pid: u32, started: Option<u64>) -> LockHolder {
        LockHolder { pid, what: "interlock serve".to_owned(), started }
    }

    #[test]
    fn lock_that_only_a_child_of_the_dead_still_has_is_waited_for() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join(FILE_NAME);
        let own_start = live_start(std::process::id()).unwrap();
        // A process that surely is not there, and one of another container that has our number.
        let other = format!("{}\n\n{}\n", std::process::id(), own_start - 1);
        for gone in ["4194305\n", &other] {
            fs::write(&path, gone).unwrap();
            let held = File::open(&path).unwrap();
            held.lock().unwrap();
            let child = thread::spawn(move || {
                thread::sleep(LOOK * 5);
                drop(held);
            });
            DaemonLock::take(folder.path(), "").unwrap();
            child.join_within("the thread that held the lock", BOUND).unwrap();
        }
    }

    #[test]
    fn a_holder_is_known_again_by_its_number_and_its_start() {
        let folder = tempfile::tempdir().unwrap();
        let _lock = DaemonLock::take(folder.path(), "interlock serve").unwrap();
        let (pid, started) = (std::process::id(), live_start(std::process::id()));
        let found = LockHolder::of(folder.path()).unwrap();
        assert_eq!(found, holder(pid, started));
        assert!(found.is_running() && holder(pid, None).is_running());
        assert_eq!(found.to_string(), format!("process {pid} (interlock serve)"));
        let other = holder(pid, started.map(|ticks| ticks - 1));
        assert!(!other.is_running());
        let said = format!("process {pid} (interlock serve; just ending, or in another container)");
        assert_eq!(other.to_string(), said);
    }

    #[test]
    fn a_process_that_has_ended_does_not_run_although_its_parent_has_not_looked() {
        let mut child = Command::new("true").spawn().unwrap();
        let ended = holder(child.id(), None);
        wait_until("the end of a child", BOUND, || !ended.is_running());
        assert!(Path::new(&format!("/proc/{}", child.id())).exists());
        child.wait_within("a child that has ended", BOUND);
    }
}
