//! Hot reload: edited files take effect without a restart.
//!
//! The project is looked at once a second; only when a name, size or time changed, or when somebody asks
//! (SIGHUP), are files read again. A broken edit keeps the last good version and says so, once. Reading
//! happens on a thread for blocking work, and the loop's pulse moves only when it returns: a file system
//! that hangs is a late loop, not a silent one.

use std::{
    collections::{BTreeMap, BTreeSet},
    path::PathBuf,
    time::Duration,
};

use interlock_config::{Loaded, Problem};
use interlock_engine::{Declaration, vitals::Pulse};
use tokio::{
    sync::mpsc::{UnboundedReceiver, UnboundedSender},
    task::spawn_blocking,
};

use crate::{project, serve::files::Files};

const INTERVAL: Duration = Duration::from_secs(1);
/// How long one look, with everything read again, may take before the loop counts as late.
pub(crate) const BOUND: Duration = Duration::from_secs(20);

/// What a file looks like from outside.
type Looks = BTreeMap<PathBuf, (u64, Option<std::time::SystemTime>)>;

/// The loop that looks at the files.
#[derive(Debug)]
pub(crate) struct Reload {
    pub(crate) files: Files,
    /// Where what they declare goes.
    pub(crate) engine: UnboundedSender<Vec<Declaration>>,
    /// Somebody wants them read now.
    pub(crate) asked: UnboundedReceiver<()>,
    pub(crate) pulse: Pulse,
    /// The problems that were told.
    pub(crate) told: BTreeSet<String>,
}

/// The problems of a load, as they are told.
pub(crate) fn rendered(problems: &[Problem]) -> BTreeSet<String> {
    problems.iter().map(|problem| problem.render().trim_end().to_owned()).collect()
}

impl Reload {
    /// Sends the declarations to the engine whenever the files change, until the engine is gone.
    pub(crate) async fn watch(mut self) {
        let mut before = self.look().await;
        loop {
            self.pulse.beat();
            let is_asked = tokio::select! {
                biased;
                Some(()) = self.asked.recv() => true,
                () = tokio::time::sleep(INTERVAL) => false,
            };
            let now = self.look().await;
            if now == before && !is_asked {
                continue;
            }
            before = now;
            let directory = self.files.directory().to_path_buf();
            match spawn_blocking(move || project::load(&directory)).await {
                Ok(Ok(loaded)) => {
                    self.tell(&loaded);
                    if self.engine.send(self.files.install(loaded)).is_err() {
                        return;
                    }
                }
                Ok(Err(failure)) => {
                    let reason = failure.message;
                    tracing::error!("{reason}; what was loaded stays in force");
                }
                Err(panic) => tracing::error!(%panic, "reading the files failed"),
            }
        }
    }

    /// Says what changed: problems that were there before are not told again.
    fn tell(&mut self, loaded: &Loaded) {
        let problems = rendered(&loaded.problems);
        for problem in problems.difference(&self.told) {
            tracing::warn!("{problem}");
        }
        let (pipelines, left) = (loaded.pipelines.len(), problems.len());
        self.told = problems;
        tracing::info!(
            event = "FILES_READ",
            pipelines,
            problems = left,
            "the files were read again: {pipelines} pipelines are usable, {left} problems"
        );
    }

    async fn look(&self) -> Looks {
        let mut folders = self.files.folders();
        folders.sort();
        let config = self.files.directory().join("interlock.yaml");
        spawn_blocking(move || looks(&folders, config)).await.unwrap_or_default()
    }
}

fn looks(folders: &[PathBuf], config: PathBuf) -> Looks {
    let mut looks = Looks::new();
    let listed = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.chain([config]) {
        if let Ok(metadata) = path.metadata() {
            looks.insert(path, (metadata.len(), metadata.modified().ok()));
        }
    }
    looks
}
