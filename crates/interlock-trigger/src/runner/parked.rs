//! Shells that are up before they may run anything.
//!
//! The daemon says what it is about to start while its disk is still writing that down. A shell takes longer to come up
//! than a short command takes to run, so it comes up meanwhile and waits on its standard input for a line. Nothing of the
//! command happens before that line, which is written only once the start was asked for and is in the journal: whoever
//! waits in vain (the daemon changed its mind, the runner died) reads the end of a pipe, and leaves.
//!
//! This is advice, never more: a start without a shell that waits for it goes the ordinary way.

use std::{
    collections::BTreeMap,
    fs,
    io::{PipeWriter, Write as _},
    path::PathBuf,
    process::Stdio,
    time::Duration,
};

use super::{
    job::{Exec, Job},
    log,
    process::Process,
    time::Moment,
};

/// More starts at once keep every core busy anyway.
const PARKED_MAX: usize = 4;

/// A start that is not asked for by then is not coming, or its disk is so slow that nothing is gained.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a shell does first. It stands in the command's own first line, so that the numbers of its lines stay what they
/// are. A first line that cannot be understood ends the shell at once: then it is not there when it is needed, and the
/// ordinary start says what is wrong.
const WAIT: &str = "read -r _ || exit 125; exec </dev/null; ";

/// The shells that wait.
#[derive(Debug, Default)]
pub(crate) struct Parked {
    waiting: Vec<Waiting>,
}

#[derive(Debug)]
struct Waiting {
    run_id: String,
    exec: Exec,
    env: BTreeMap<String, String>,
    process: Process,
    word: PipeWriter,
    log: PathBuf,
    until: Moment,
}

impl Parked {
    /// Lets the shell of a job come up, if it has one and nothing speaks against it.
    pub(crate) fn park(&mut self, job: Job, log: PathBuf, spare: &mut log::Spare, now: Moment) {
        let [step] = job.steps.as_slice() else { return };
        let [shell, flag, text] = step.exec.argv.as_slice() else { return };
        let is_known = self.waiting.iter().any(|other| other.run_id == job.run_id);
        // Any other program, and any other shell, might understand something else.
        if (shell.as_str(), flag.as_str()) != ("sh", "-c")
            || is_known
            || self.waiting.len() >= PARKED_MAX
        {
            return;
        }
        let mut waits = step.exec.clone();
        waits.argv = vec![shell.clone(), flag.clone(), format!("{WAIT}{text}")];
        // Whatever goes wrong here goes wrong again when it is started, and is told then.
        let Ok((hears, word)) = std::io::pipe() else { return };
        let Ok(output) = spare.open(&log) else { return };
        let Ok(process) = Process::spawn(&waits, &job.env, Stdio::from(hears), output) else {
            return;
        };
        let (exec, until) = (step.exec.clone(), now.after(PATIENCE));
        let Job { run_id, env, .. } = job;
        self.waiting.push(Waiting { run_id, exec, env, process, word, log, until });
    }

    /// Lets the shell go on that waits for exactly this, if there is one.
    pub(crate) fn release(
        &mut self,
        run_id: &str,
        exec: &Exec,
        env: &BTreeMap<String, String>,
    ) -> Option<Process> {
        let at = self.waiting.iter().position(|waiting| waiting.run_id == run_id)?;
        let mut waiting = self.waiting.swap_remove(at);
        let is_the_same = (&waiting.exec, &waiting.env) == (exec, env);
        if is_the_same && waiting.process.is_there() && waiting.word.write_all(b"\n").is_ok() {
            return Some(waiting.process);
        }
        waiting.dismiss();
        None
    }

    /// Sends away who has waited too long.
    pub(crate) fn on_time(&mut self, now: Moment) {
        self.waiting.extract_if(.., |waiting| waiting.until <= now).for_each(Waiting::dismiss);
    }

    /// When it wants to be looked at next.
    pub(crate) fn wake(&self) -> Option<Moment> {
        self.waiting.iter().map(|waiting| waiting.until).min()
    }
}

impl Waiting {
    fn dismiss(self) {
        self.process.kill();
        // It says only that a first line could not be understood, which will be said again.
        let _none = fs::remove_file(&self.log);
    }
}
