//! The thread that keeps the fleet's tally while it is asked for: it waits for the store as long as it takes, and a request waits a moment at most.

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
    loop {
        // Bounded by nothing but the end of the interface: without a question there is nothing to do.
        surface.fleet_demand.until_asked().await;
        follow(&surface, &mut follower).await;
        follower.rest();
        surface.fleet_health.follows();
    }
}

/// Keeps the tally as long as it is asked for.
async fn follow(surface: &Surface, follower: &mut FleetFollower) {
    while surface.fleet_demand.is_asked() {
        // Bounded: by the store, which answers or fails; the end of the interface ends it in any case.
        let pause = match follower.come_round().await {
            Ok(()) => {
                surface.fleet_health.follows();
                if follower.is_wanted() { AT_ONCE } else { ROUND }
            }
            Err(error) => {
                if surface.fleet_health.fails(error.to_string()) {
                    tracing::warn!(%error, "the fleet's tally cannot follow the store; its page says since when");
                }
                PAUSE
            }
        };
        tokio::time::sleep(pause).await;
    }
}
