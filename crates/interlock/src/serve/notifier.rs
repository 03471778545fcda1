//! The notifier of `serve`: the declared channels on real sockets, files and standard output.

use std::{
    io::{self, Write as _},
    sync::Arc,
};

use interlock_alert::{Console, LocalChannels};
use interlock_engine::{Notifier, NotifierParts, Patience, seam::World};
use interlock_store::Store;
use interlock_trigger::web::Web;

use crate::serve::files::Files;

/// A notifier for the channels that the files declare, and a word about those that it cannot serve.
pub(crate) fn open(
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
    files: &Files,
) -> io::Result<Notifier> {
    let web = Web::new().map_err(io::Error::other)?;
    let directory = files.directory().to_path_buf();
    let channels = LocalChannels::new(Arc::new(files.clone()), web, console(), directory);
    for warning in channels.warnings() {
        tracing::warn!("{warning}");
    }
    let (channels, patience) = (Arc::new(channels), Patience::default());
    Ok(Notifier::new(NotifierParts { world, store, channels, patience }))
}

/// Delivers until the process ends; what is being tried then is tried again by the next one.
pub(crate) async fn run(notifier: Notifier) {
    if let Err(error) = notifier.run(Box::pin(std::future::pending())).await {
        tracing::error!(%error, "alerts are no longer delivered");
    }
}

/// Alerts go to standard output: the log, on standard error, may be filtered or of another form.
fn console() -> Console {
    Arc::new(|line| {
        let mut out = io::stdout().lock();
        writeln!(out, "{line}")?;
        out.flush()
    })
}
