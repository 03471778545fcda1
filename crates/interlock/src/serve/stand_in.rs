//! A `serve` without the engine on the embedded store: it writes the ledger while no other process wants to.
//!
//! When one does, the loops end, leases are given back, and the process replaces itself by a new image of the same program.
//! That drops the ledger's lock whatever still refers to the store, and the new image waits for its turn. To a service manager
//! it is the same process all the time: it is never told that it stops, and gets signs of life while there is nothing to watch.

use std::{
    convert::Infallible,
    env,
    os::unix::process::CommandExt as _,
    path::{Path, PathBuf},
    process::Command,
    sync::Arc,
    time::Duration,
};

use interlock_liveness::Sign;
use interlock_store::Store;
use rustix::process::{WaitOptions, wait};
use tokio::{
    task::spawn_blocking,
    time::{sleep, timeout},
};

use crate::{
    exit::Failure,
    serve::guard,
    writer::{self, Writing},
};

/// How often it is looked whether the ledger is free, or wanted.
const LOOK_EVERY: Duration = Duration::from_millis(200);
/// With every so many looks a supervisor gets a sign of life.
const SIGN_EVERY: u64 = 5;
/// How long a helper of the image before may take to end.
const REAP_EVERY: Duration = Duration::from_millis(10);
const REAP_LOOKS: usize = 100;

/// Waits until the ledger is free, and takes it.
pub(crate) async fn take(folder: &Path) -> Result<Arc<dyn Store>, Failure> {
    reap_helpers().await;
    let (mut said, mut carriers) = (None, guard::carriers());
    for look in 0_u64.. {
        let place = folder.to_path_buf();
        let opened = spawn_blocking(move || {
            let opened = writer::stand_in(&place);
            // Only after a look: a disk that hangs is no sign of life.
            for carrier in carriers.iter_mut().filter(|_| look.is_multiple_of(SIGN_EVERY)) {
                carrier.carry(&Sign::Alive);
            }
            (opened, carriers)
        });
        let (opened, unused) =
            opened.await.map_err(|error| Failure::failed(error.to_string(), ""))?;
        carriers = unused;
        if let Some(store) = opened? {
            return Ok(Arc::new(store));
        }
        let process = match writer::writing(folder) {
            Writing::Serve => Some("`interlock serve`".to_owned()),
            Writing::Command(process) | Writing::StandIn(process) => Some(process),
            Writing::Nobody => None,
        };
        if process.is_some() && process != said {
            tracing::info!(
                event = "STANDING_BY",
                "{} has the ledger; this process watches when it is free",
                process.as_deref().unwrap_or_default()
            );
            said = process;
        }
        sleep(LOOK_EVERY).await;
    }
    std::future::pending().await
}

/// Takes leave of what the image before this one had started: its helper ends with it, and nobody else can bury it.
async fn reap_helpers() {
    for _ in 0..REAP_LOOKS {
        match wait(WaitOptions::NOHANG) {
            // There is no child at all: this image is the first.
            Err(_) => return,
            Ok(Some(_)) => {}
            Ok(None) => sleep(REAP_EVERY).await,
        }
    }
}

/// Waits until another process wants the ledger that this one has.
pub(crate) async fn is_wanted(folder: Option<&PathBuf>) {
    let Some(folder) = folder else { return std::future::pending().await };
    loop {
        let place = folder.clone();
        // A disk that hangs is no reason to let go; the store's own watch ends this process then.
        let look = timeout(LOOK_EVERY * 10, spawn_blocking(move || writer::is_wanted(&place)));
        if let Ok(Ok(true)) = look.await {
            return;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Replaces this process by a new image of the same program, which waits for the ledger.
pub(crate) fn begin_again() -> Result<Infallible, Failure> {
    let program = env::current_exe().ok().filter(|program| program.exists());
    // The program may have been replaced by a newer one, or removed: this one is still there under that name.
    let program = program.unwrap_or_else(|| PathBuf::from("/proc/self/exe"));
    let mut command = Command::new(&program);
    let error = command.args(env::args_os().skip(1)).exec();
    Err(Failure::failed(
        format!(
            "the ledger was handed over, and {} cannot be started again: {error}",
            program.display()
        ),
        "Start it again: it waits until the ledger is free.",
    ))
}
