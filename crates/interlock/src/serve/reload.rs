//! Hot reload: edited files take effect without a restart.
//!
//! Whenever [`Watch`] says that files may have changed, all are looked at from outside and those that look
//! different are read. A broken edit keeps the last good version and says so.

use interlock_engine::Changes;
use tokio::sync::mpsc;

use crate::serve::{
    files::{Files, Scan, Since},
    watch::Watch,
};

/// Tells the engine whenever the files change.
pub(crate) async fn watch(files: Files, engine: mpsc::Sender<Changes>) {
    let mut watch = Watch::start();
    watch.folders(files.folders());
    loop {
        watch.changed().await;
        let (looking, telling) = (files.clone(), engine.clone());
        let scan = tokio::task::spawn_blocking(move || {
            looking.scan(&Since::LastScan, &mut |changes| telling.blocking_send(changes).is_ok())
        });
        match scan.await {
            Ok(Ok(scan)) => report(&scan),
            Ok(Err(failure)) => {
                tracing::error!("{}; what was loaded stays in force", failure.message);
            }
            Err(panic) => tracing::error!(%panic, "reading the files failed"),
        }
        if engine.is_closed() {
            return;
        }
        watch.folders(files.folders());
    }
}

fn report(scan: &Scan) {
    if scan.changes == 0 && scan.spared == 0 {
        return;
    }
    for problem in &scan.problems {
        tracing::warn!("{}", problem.render().trim_end());
    }
    if scan.spared > 0 {
        tracing::error!(
            "the files of {} pipelines are gone, which is too many at once or may be an error in another \
             file; they stay in force until `serve` is started again",
            scan.spared
        );
    }
    tracing::info!("the files changed; {} pipelines are usable", scan.count);
}
