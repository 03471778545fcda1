//! The thread that keeps the fleet's tally: it waits for the store as long as it takes, and no request waits for it.

use std::{io, sync::Arc, thread, time::Duration};

use interlock_answers::FleetFollower;
use tokio::sync::watch;

use crate::surface::Surface;

/// How often it looks what happened, and how often while something waits to be read.
const ROUND: Duration = Duration::from_millis(500);
const AT_ONCE: Duration = Duration::from_millis(20);
/// How often it is looked whether the store is open.
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// How long it waits after the store failed.
const PAUSE: Duration = Duration::from_secs(2);

/// Starts it. It ends with the interface, or with the process when the store does not answer.
pub(crate) fn start(surface: Arc<Surface>, mut stopped: watch::Receiver<bool>) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    let thread = thread::Builder::new().name("fleet".to_owned());
    let _detached = thread.spawn(move || {
        runtime.block_on(async move {
            tokio::select! {
                biased;
                _ = stopped.changed() => {}
                () = keep(surface) => {}
            }
        });
        runtime.shutdown_background();
    })?;
    Ok(())
}

async fn keep(surface: Arc<Surface>) {
    let mut follower = loop {
        if let (Some(store), Some(declarations)) = (surface.store.get(), surface.declarations.get())
        {
            let (store, declarations) = (Arc::clone(store), Arc::clone(declarations));
            break FleetFollower::new(surface.fleet.clone(), store, declarations);
        }
        tokio::time::sleep(LOOK_EVERY).await;
    };
    let mut is_failing = false;
    loop {
        // Bounded: by the store, which answers or fails; the end of the interface ends it in any case.
        let pause = match follower.come_round().await {
            Ok(()) if follower.is_wanted() => AT_ONCE,
            Ok(()) => ROUND,
            Err(error) => {
                if !is_failing {
                    tracing::warn!(%error, "the fleet's tally cannot follow the store; its page says since when");
                }
                PAUSE
            }
        };
        is_failing = pause == PAUSE;
        tokio::time::sleep(pause).await;
    }
}
