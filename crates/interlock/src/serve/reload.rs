//! Hot reload: edited files take effect without a restart.
//!
//! The project is looked at once a second; only when a name, size or time changed are files read again. A
//! broken edit keeps the last good version and opens an incident.

use std::{collections::BTreeMap, path::PathBuf, time::Duration};

use interlock_engine::Declaration;
use tokio::sync::mpsc;

use crate::{
    project,
    serve::{broken::BrokenFiles, files::Files},
};

const INTERVAL: Duration = Duration::from_secs(1);

/// What a file looks like from outside.
type Looks = BTreeMap<PathBuf, (u64, Option<std::time::SystemTime>)>;

/// Sends the declarations to the engine whenever the files change.
pub(crate) async fn watch(
    files: Files,
    engine: mpsc::UnboundedSender<Vec<Declaration>>,
    mut broken: BrokenFiles,
) {
    let mut before = looks(&files);
    loop {
        tokio::time::sleep(INTERVAL).await;
        let now = looks(&files);
        if now == before {
            continue;
        }
        before = now;
        let Ok(loaded) = project::load(files.directory()) else {
            tracing::error!("the project's directory is gone; what was loaded stays in force");
            continue;
        };
        for problem in &loaded.problems {
            tracing::warn!("{}", problem.render().trim_end());
        }
        broken.report(&loaded.problems).await;
        if loaded.pipelines.len() * 2 < files.count() {
            tracing::error!(
                "more than half of the pipelines are gone; what was loaded stays in force \
                 until `serve` is started again"
            );
            continue;
        }
        tracing::info!("the files changed; {} pipelines are usable", loaded.pipelines.len());
        if engine.send(files.install(loaded)).is_err() {
            return;
        }
    }
}

fn looks(files: &Files) -> Looks {
    let mut looks = Looks::new();
    let folders = files.folders();
    let listed = folders.iter().filter_map(|folder| std::fs::read_dir(folder).ok()).flatten();
    let paths = listed.filter_map(|entry| Some(entry.ok()?.path()));
    for path in paths.chain([files.directory().join("interlock.yaml")]) {
        if let Ok(metadata) = path.metadata() {
            looks.insert(path, (metadata.len(), metadata.modified().ok()));
        }
    }
    looks
}
