//! Hot reload: edited files take effect without a restart.
//!
//! Whenever [`Watch`] says that files may have changed, or somebody asks (SIGHUP), all are looked at from outside
//! and those that look different are read. A broken edit keeps the last good version and is an incident. Reading
//! happens on a thread for blocking work, and the loop's pulse moves only when it returns: a file system
//! that hangs is a late loop, not a silent one.

use std::{collections::BTreeSet, time::Duration};

use interlock_config::{Problem, Severity};
use interlock_core::text::counted;
use interlock_engine::{Changes, vitals::Pulse};
use tokio::{
    sync::mpsc::{Sender, UnboundedReceiver},
    task::spawn_blocking,
    time::Instant,
};

use crate::serve::{
    broken::BrokenFiles,
    files::{ABSENT_MAX, Files, Scan, Since},
    watch::Watch,
};

/// How often the pulse moves while nothing changes.
const BEAT: Duration = Duration::from_secs(5);
/// How long one look, with everything read again, may take before the loop counts as late.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// The loop that looks at the files.
#[derive(Debug)]
pub(crate) struct Reload {
    pub(crate) files: Files,
    /// Where what changed goes.
    pub(crate) engine: Sender<Changes>,
    /// Somebody wants them read now.
    pub(crate) asked: UnboundedReceiver<()>,
    pub(crate) pulse: Pulse,
    /// The problems that were told.
    pub(crate) told: BTreeSet<String>,
    /// Which files are incidents.
    pub(crate) broken: BrokenFiles,
}

/// Says which problems are new; answers with all of them, as they are told. Only a file with an error is broken: one with
/// a mere warning is in force as it stands.
pub(crate) fn tell_problems(problems: &[Problem], known: &BTreeSet<String>) -> BTreeSet<String> {
    let mut told = BTreeSet::new();
    let mut broken = BTreeSet::new();
    for problem in problems {
        let text = problem.render().trim_end().to_owned();
        if !known.contains(&text) && !told.contains(&text) {
            tracing::warn!("{text}");
            if problem.severity == Severity::Error {
                broken.insert(problem.file.path.display().to_string());
            }
        }
        told.insert(text);
    }
    if !broken.is_empty() {
        let files = broken.into_iter().collect::<Vec<_>>().join(", ");
        tracing::warn!("{files}: broken; the last good version stays in force");
    }
    told
}

/// Errors and warnings, counted.
pub(crate) fn counted_problems(problems: &[Problem]) -> String {
    let errors = problems.iter().filter(|it| it.severity == Severity::Error).count();
    let warnings = problems.len() - errors;
    let words = [(errors, "error"), (warnings, "warning")];
    let words = words.iter().filter(|(count, _)| *count > 0);
    let words: Vec<_> = words.map(|(count, word)| counted(*count, word)).collect();
    if words.is_empty() { "no problems".to_owned() } else { words.join(" and ") }
}

impl Reload {
    /// Tells the engine whenever the files change, until the engine is gone.
    pub(crate) async fn watch(mut self) {
        let mut watch = Watch::start();
        watch.folders(self.files.folders());
        let mut is_somebody_absent = false;
        while !self.engine.is_closed() {
            let again = is_somebody_absent.then(|| Instant::now() + ABSENT_MAX);
            let is_asked = self.wait(&mut watch, again).await;
            let (looking, telling, began) =
                (self.files.clone(), self.engine.clone(), Instant::now());
            let scan = spawn_blocking(move || {
                looking.scan(&Since::LastScan(began), &mut |changes| {
                    telling.blocking_send(changes).is_ok()
                })
            });
            let scan = scan.await;
            watch.looked_for(began.elapsed());
            match scan {
                Ok(Ok(scan)) => {
                    is_somebody_absent = scan.absent > 0;
                    self.broken.report(&scan).await;
                    if is_asked || scan.changes > 0 || scan.spared > 0 {
                        self.tell(&scan);
                    } else {
                        self.tell_problems(&scan);
                    }
                }
                Ok(Err(failure)) => {
                    tracing::error!("{}; the last good version stays in force", failure.message);
                }
                Err(panic) => tracing::error!(%panic, "reading the files failed"),
            }
            watch.folders(self.files.folders());
        }
    }

    /// Ready when it is time to look, at this instant at the latest; whether somebody asked for it.
    async fn wait(&mut self, watch: &mut Watch, again: Option<Instant>) -> bool {
        let mut changed = std::pin::pin!(watch.changed());
        loop {
            self.pulse.beat();
            tokio::select! {
                biased;
                Some(()) = self.asked.recv() => return true,
                () = &mut changed => return false,
                () = tokio::time::sleep_until(again.unwrap_or_else(Instant::now)), if again.is_some() => {
                    return false;
                }
                () = tokio::time::sleep(BEAT) => {}
            }
        }
    }

    /// Says what changed.
    fn tell(&mut self, scan: &Scan) {
        self.tell_problems(scan);
        if scan.spared > 0 {
            tracing::error!(
                "the files of {} are gone, which is too many at once or may be an error in another \
                 file; they stay in force: restore the files, or agree with `interlock serve --retire-missing`",
                counted(scan.spared, "pipeline")
            );
        }
        // A file with a mere warning is not read again until it changes, so that its warning is in no later scan: only errors are
        // the same number each time.
        let errors = scan.problems.iter().filter(|it| it.severity == Severity::Error).count();
        let pipelines = scan.count;
        tracing::info!(
            event = "FILES_READ",
            pipelines,
            errors,
            "the files were read again: {}, {}",
            counted(pipelines, "usable pipeline"),
            if errors == 0 { "no errors".to_owned() } else { counted(errors as u64, "error") },
        );
    }

    /// Problems that were there before are not told again.
    fn tell_problems(&mut self, scan: &Scan) {
        self.told = tell_problems(&scan.problems, &self.told);
    }
}
