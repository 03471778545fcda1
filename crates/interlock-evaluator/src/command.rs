//! Evaluators that are programs: the question as JSON on standard input, the answer on standard output.
//!
//! A program runs under a [`crate::guard`], which ends it and everything it started as soon as it is
//! over, its time is up, or this daemon is gone. Here its output is read, as much as an answer may have.

use std::{
    ffi::OsString,
    fs, io,
    os::unix::fs::PermissionsExt,
    path::{Component, Path, PathBuf},
    process::{ExitStatus, Stdio},
    time::Duration,
};

use interlock_core::{readiness::TraitResult, retry::FailureCategory};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWriteExt},
    process::{Child, ChildStdin, Command},
    time::timeout,
};

use crate::{answer, guard};

/// Longer than any answer.
const OUTPUT_BYTES_MAX: usize = 1024 * 1024;

/// How much of what a program complains about is shown: the end, where the cause is.
const COMPLAINT_BYTES_MAX: usize = 1024;

/// How long the guard may take to end a program before nobody waits any longer.
const END_MAX: Duration = guard::GRACE.saturating_add(Duration::from_millis(500));

/// Programs, and where they are.
#[derive(Debug)]
pub(crate) struct Programs {
    pub(crate) folders: Vec<PathBuf>,
    pub(crate) workdir: PathBuf,
    pub(crate) guard: Vec<OsString>,
}

impl Programs {
    /// Asks a program.
    pub(crate) async fn ask(&self, name: &str, question: &str, limit: Duration) -> TraitResult {
        let program = match self.find(name) {
            Ok(program) => program,
            Err(sentence) => return failed(&sentence, FailureCategory::Permanent),
        };
        let mut child = match self.spawn(&program) {
            Ok(child) => child,
            Err(error) => {
                let guard = self.guard.first().map(OsString::as_os_str).unwrap_or_default();
                let sentence = format!("its guard {} cannot be started: {error}", guard.display());
                return failed(&sentence, FailureCategory::Transient);
            }
        };
        // As long as this is open the guard knows that somebody waits.
        let mut lifeline = child.stdin.take();
        let asked = timeout(limit, converse(&mut child, lifeline.as_mut(), question)).await;
        let result = match asked {
            Ok(Ok(Said { status, output, complaint })) => read(status, &output, &complaint),
            Ok(Err(Broken::TooLong)) => {
                answer::invalid(format!("it is longer than {OUTPUT_BYTES_MAX} bytes"))
            }
            Ok(Err(Broken::Unreadable(error))) => {
                let sentence = format!("its output cannot be read: {error}");
                failed(&sentence, FailureCategory::Transient)
            }
            Err(_elapsed) => answer::timeout(limit),
        };
        drop(lifeline);
        if timeout(END_MAX, child.wait()).await.is_err() {
            let _already_gone = child.start_kill();
        }
        result
    }

    /// Without `kill_on_drop`: a guard that is killed guards nothing. It ends by its lifeline.
    fn spawn(&self, program: &Path) -> io::Result<Child> {
        let mut words = self.guard.iter();
        let guard = words.next().ok_or(io::ErrorKind::NotFound)?;
        Command::new(guard)
            .args(words)
            .arg(program)
            .current_dir(&self.workdir)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .process_group(0)
            .spawn()
    }

    /// Where a program is; a sentence when it cannot be had.
    fn find(&self, name: &str) -> Result<PathBuf, String> {
        if let Some(builtin) = name.strip_prefix("builtin:") {
            return Err(format!(
                "there is no built-in evaluator `{builtin}`; write a rule under `validation`, or \
                 an upstream under `dependsOn`"
            ));
        }
        let mut parts = Path::new(name).components().peekable();
        if parts.peek().is_none() || !parts.all(|part| matches!(part, Component::Normal(_))) {
            return Err(format!(
                "`{name}` is not a path below an evaluator directory: it must be relative and \
                 without `..`"
            ));
        }
        let is_executable = |path: &PathBuf| {
            fs::metadata(path).is_ok_and(|found| found.permissions().mode() & 0o111 != 0)
        };
        let mut found = self.folders.iter().map(|folder| folder.join(name));
        match found.find(|path| path.is_file()) {
            Some(path) if is_executable(&path) => Ok(path),
            Some(path) => Err(format!("{0} is not executable: run `chmod +x {0}`", path.display())),
            None => {
                let folders: Vec<_> =
                    self.folders.iter().map(|f| f.display().to_string()).collect();
                let folders =
                    if folders.is_empty() { "no directory".to_owned() } else { folders.join(", ") };
                Err(format!(
                    "there is no evaluator `{name}`; looked in {folders} (`evaluatorDirs`)"
                ))
            }
        }
    }
}

/// What a program left behind.
struct Said {
    status: ExitStatus,
    output: Vec<u8>,
    complaint: Vec<u8>,
}

/// Why there is nothing to read.
enum Broken {
    TooLong,
    Unreadable(io::Error),
}

/// Asks, listens to the end, and waits.
async fn converse(
    child: &mut Child,
    lifeline: Option<&mut ChildStdin>,
    question: &str,
) -> Result<Said, Broken> {
    if let Some(lifeline) = lifeline {
        // The guard reads the whole line, whatever the program does. If it cannot, its end tells why.
        let _unread = lifeline.write_all(format!("{question}\n").as_bytes()).await;
    }
    let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
    let (output, complaint) = tokio::try_join!(all_of(stdout), end_of(stderr))?;
    let status = child.wait().await.map_err(Broken::Unreadable)?;
    Ok(Said { status, output, complaint })
}

async fn all_of(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Broken> {
    let mut output = Vec::new();
    let Some(pipe) = pipe else { return Ok(output) };
    let mut pipe = pipe.take(OUTPUT_BYTES_MAX as u64 + 1);
    pipe.read_to_end(&mut output).await.map_err(Broken::Unreadable)?;
    if output.len() > OUTPUT_BYTES_MAX { Err(Broken::TooLong) } else { Ok(output) }
}

async fn end_of(pipe: Option<impl AsyncRead + Unpin>) -> Result<Vec<u8>, Broken> {
    let mut end = Vec::new();
    let Some(mut pipe) = pipe else { return Ok(end) };
    let mut chunk = [0; 4096];
    loop {
        match pipe.read(&mut chunk).await.map_err(Broken::Unreadable)? {
            0 => return Ok(end),
            count => end.extend_from_slice(chunk.get(..count).unwrap_or_default()),
        }
        let excess = end.len().saturating_sub(COMPLAINT_BYTES_MAX);
        end.drain(..excess);
    }
}

fn read(status: ExitStatus, output: &[u8], complaint: &[u8]) -> TraitResult {
    let category = match status.code() {
        Some(0) => return answer::read(output),
        Some(2) => FailureCategory::Permanent,
        Some(1..128) => FailureCategory::Transient,
        Some(_) | None => FailureCategory::EvaluatorCrash,
    };
    let how = match status.code() {
        Some(code @ 129..) => format!("it ended with exit code {code} (signal {})", code - 128),
        Some(code) => format!("it ended with exit code {code}"),
        None => "its guard was killed".to_owned(),
    };
    let complaint = String::from_utf8_lossy(complaint);
    let plain: String = complaint.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    match plain.trim() {
        "" => failed(&how, category),
        said => failed(&format!("{how} (stderr: {said})"), category),
    }
}

fn failed(what: &str, category: FailureCategory) -> TraitResult {
    answer::failed(&format!("EVALUATOR_ERROR: {what}"), category)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(programs: &Programs, name: &str) -> String {
        programs.find(name).unwrap_err()
    }

    #[test]
    fn names_stay_inside_the_directories_and_refusals_say_where_was_looked() {
        let dir = tempfile::tempdir().unwrap();
        let folders = vec![dir.path().join("one"), dir.path().join("two")];
        fs::create_dir_all(folders[1].join("team")).unwrap();
        for (path, mode) in [("outside", 0o755), ("two/team/check", 0o755), ("two/notes", 0o644)] {
            let path = dir.path().join(path);
            fs::write(&path, "#!/bin/sh\n").unwrap();
            fs::set_permissions(&path, fs::Permissions::from_mode(mode)).unwrap();
        }
        let (one, two) = (folders[0].display().to_string(), folders[1].display().to_string());
        let programs = Programs { folders, workdir: "/".into(), guard: vec![] };
        assert_eq!(programs.find("team/check").unwrap(), dir.path().join("two/team/check"));
        let absolute = dir.path().join("outside").display().to_string();
        for name in ["../outside", "team/../../outside", &absolute, "", ".", "./team/check"] {
            let said = refusal(&programs, name);
            assert!(said.contains("is not a path below an evaluator directory"), "{name}: {said}");
        }
        assert_eq!(
            refusal(&programs, "absent"),
            format!("there is no evaluator `absent`; looked in {one}, {two} (`evaluatorDirs`)")
        );
        assert!(refusal(&programs, "team").contains("there is no evaluator"), "a directory");
        let notes = refusal(&programs, "notes");
        assert_eq!(notes, format!("{two}/notes is not executable: run `chmod +x {two}/notes`"));
        assert!(refusal(&programs, "builtin:sensor-threshold").contains("`validation`"));
        let none = Programs { folders: vec![], ..programs };
        assert!(refusal(&none, "x").contains("looked in no directory"));
    }
}
