//! The archiver of `serve`: copies what is new every so often, on the runtime that the engine cannot block.
//!
//! An archive that cannot be written to is tried again and again; nothing is lost meanwhile, because the store keeps
//! what the archive has not read. After a while people are told.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use interlock_api::Surface;
use interlock_config::server::ServerConfig;
use interlock_store::{Archived, Store};
use tokio::runtime::Handle;

use crate::{
    arguments::RoleName,
    exit::Failure,
    place::Place,
    serve::{archive_watch, notice::Over, roles::Roles},
};

/// How long a loop may take beside its interval before it counts as late.
const BOUND: Duration = Duration::from_mins(5);

/// Lets the archiver run, if that is among the roles. Without one declared the store need not note what changes.
pub(crate) async fn start(
    (roles, place, config): (&Roles, &Place, &ServerConfig),
    store: &Arc<dyn Store>,
    (beside, surface): (&Handle, &Arc<Surface>),
) -> Result<(), Failure> {
    let Some(declared) = &config.archiver else {
        if roles.has(RoleName::Engine) && store.changes(u64::MAX, 1).await?.since.is_some() {
            store.archived(None).await?;
            if archive_watch::is_open(store.as_ref()).await? {
                let message = "no archiver is declared any more".to_owned();
                archive_watch::notice(store.as_ref(), message, Over::Yes).await;
            }
            tracing::info!("no archiver is declared any more: changes are no longer noted for it");
        }
        return Ok(());
    };
    let batches = Arc::default();
    if roles.has(RoleName::Engine) {
        // Before the archive is ever reached: what happens until then is for it too.
        if store.changes(u64::MAX, 1).await?.since.is_none() {
            store.archived(Some(Archived::default())).await?;
        }
        watch((declared, &batches), store, (beside, surface));
    }
    if !roles.has(RoleName::Archiver) {
        return Ok(());
    }
    if place.is_embedded() && !roles.has(RoleName::Engine) {
        return Err(Failure::usage(
            "on the embedded store the archiver runs only beside the engine, which writes the file",
            "Write `--roles engine,archiver`.",
        ));
    }
    run((declared, batches), store, (beside, surface));
    Ok(())
}

/// Whoever runs the archiver, or should: that nothing is archived is noticed here.
fn watch(
    (declared, batches): (&interlock_config::server::Archiver, &Arc<AtomicU64>),
    store: &Arc<dyn Store>,
    (beside, surface): (&Handle, &Surface),
) {
    let waited = Arc::clone(surface.archive_waited.get_or_init(Arc::default));
    let interval = Duration::try_from(declared.interval).unwrap_or(BOUND);
    let (store, batches) = (Arc::clone(store), Arc::clone(batches));
    beside.spawn(archive_watch::go_on(archive_watch::Around { store, interval, waited, batches }));
}

#[cfg(feature = "postgres")]
fn run(
    (declared, batches): (&interlock_config::server::Archiver, Arc<AtomicU64>),
    store: &Arc<dyn Store>,
    (beside, surface): (&Handle, &Surface),
) {
    let interval = Duration::try_from(declared.interval).unwrap_or(BOUND);
    let pulse = interlock_engine::vitals::Pulse::default();
    surface.loops.register("archiver", pulse.clone(), interval.saturating_add(BOUND));
    let (store, declared) = (Arc::clone(store), declared.clone());
    beside.spawn(copying::go_on(copying::Around { store, declared, interval, batches, pulse }));
}

#[cfg(not(feature = "postgres"))]
fn run(
    (_declared, _batches): (&interlock_config::server::Archiver, Arc<AtomicU64>),
    _store: &Arc<dyn Store>,
    (_beside, _surface): (&Handle, &Surface),
) {
    tracing::warn!("this build has no archiver: build it with the feature `postgres`");
}

#[cfg(feature = "postgres")]
mod copying {
    use std::{
        sync::{
            Arc,
            atomic::{AtomicU64, Ordering},
        },
        time::Duration,
    };

    use interlock_archive::{ArchiveError, Archiver, Standing, Telling};
    use interlock_engine::vitals::Pulse;
    use interlock_store::Store;
    use tokio::time::sleep;

    use crate::serve::{
        archive_watch::{INTERVALS_MISSED, is_open, notice},
        notice::Over,
    };

    /// How soon an archive that failed is tried again: not before, and not after.
    const AGAIN_FIRST: Duration = Duration::from_secs(1);
    const AGAIN_LAST: Duration = Duration::from_secs(30);

    /// What it needs of the rest.
    pub(super) struct Around {
        pub(super) store: Arc<dyn Store>,
        pub(super) declared: interlock_config::server::Archiver,
        pub(super) interval: Duration,
        /// Counts those that more follow: whoever watches sees that it gets on.
        pub(super) batches: Arc<AtomicU64>,
        pub(super) pulse: Pulse,
    }

    /// Archives until the process ends.
    pub(super) async fn go_on(around: Around) {
        let mut trouble = Trouble::default();
        loop {
            match copy(&around).await {
                Ok(()) => {
                    trouble.is_over(&around).await;
                    sleep(around.interval).await;
                }
                Err(error) => sleep(trouble.grows(&around, &error).await).await,
            }
        }
    }

    /// Connects, and copies until nothing is left: between two looks no connection is held.
    async fn copy(around: &Around) -> Result<(), ArchiveError> {
        let (store, dsn) = (Arc::clone(&around.store), around.declared.dsn.expose());
        let archiver = Archiver::open(store, dsn, Telling::Store).await?;
        let mut archiver = archiver.reading(around.declared.rows_at_once as usize);
        loop {
            around.pulse.beat();
            if archiver.pass().await? == Standing::Current {
                break;
            }
            around.batches.fetch_add(1, Ordering::Relaxed);
        }
        let (events, rows) = (archiver.summary.events, archiver.summary.rows);
        if archiver.summary.batches > 0 {
            tracing::debug!("archived {events} events and {rows} rows");
        }
        Ok(())
    }

    /// How long it has not worked, and whether people know.
    #[derive(Default)]
    struct Trouble {
        tries: u32,
        lasted: Duration,
        is_told: bool,
    }

    impl Trouble {
        /// Says what happened, and how long to wait.
        async fn grows(&mut self, around: &Around, error: &ArchiveError) -> Duration {
            around.pulse.beat();
            if self.tries == 0 {
                tracing::warn!(%error, "cannot archive; the store keeps the history meanwhile");
            }
            let pause = AGAIN_FIRST.saturating_mul(1 << self.tries.min(5)).min(AGAIN_LAST);
            self.tries += 1;
            let is_due = !error.is_retryable()
                || self.lasted >= around.interval.saturating_mul(INTERVALS_MISSED);
            if is_due && !self.is_told {
                self.is_told = notice(around.store.as_ref(), error.to_string(), Over::No).await;
            }
            self.lasted = self.lasted.saturating_add(pause);
            pause
        }

        async fn is_over(&mut self, around: &Around) {
            around.pulse.beat();
            // Whoever told may have been this process before it was started again, or another.
            if is_open(around.store.as_ref()).await.unwrap_or(false) {
                notice(around.store.as_ref(), "it has everything again".to_owned(), Over::Yes)
                    .await;
            }
            if self.tries > 0 {
                tracing::info!("history is archived again");
            }
            *self = Self::default();
        }
    }
}
