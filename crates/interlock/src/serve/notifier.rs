//! The notifier of `serve`: the declared channels on real sockets, files and standard output.

use std::{
    io::{self, Write as _},
    sync::Arc,
    time::Duration,
};

use interlock_alert::{Book, Console, Known, LocalChannels};
use interlock_config::server::Alert;
use interlock_core::{id::PipelineId, outbound::Outbound, pipeline::Pipeline};
use interlock_engine::{
    Notifier, NotifierParts, Patience,
    seam::Specs as _,
    vitals::{Pulse, Vitals},
};
use interlock_store::{Key, Record, Store, record::version_number};
use interlock_trigger::web::Web;

use crate::serve::{files::Files, specs::StoredSpecs, world::TokioWorld};

/// How long one look at the outbox may take before the loop counts as late.
pub(crate) const BOUND: Duration = Duration::from_secs(30);

/// What the notifier needs of the rest.
pub(crate) struct Around<'a> {
    pub(crate) files: Files,
    pub(crate) specs: StoredSpecs,
    pub(crate) store: Arc<dyn Store>,
    pub(crate) outbound: &'a Outbound,
    pub(crate) vitals: Arc<Vitals>,
    pub(crate) pulse: Pulse,
}

/// A notifier for the channels that the files declare, and a word about those that it cannot serve.
pub(crate) fn open(around: Around<'_>) -> io::Result<Notifier> {
    let Around { files, specs, store, outbound, vitals, pulse } = around;
    let web = Web::new(outbound).map_err(io::Error::other)?;
    let directory = files.directory().to_path_buf();
    let book = Arc::new(AlertBook { files, specs, store: Arc::clone(&store) });
    let channels = LocalChannels::new(book, web, console(), directory);
    for warning in channels.warnings() {
        tracing::warn!("{warning}");
    }
    let (world, channels) = (Arc::new(TokioWorld::new()), Arc::new(channels));
    let patience = Patience::default();
    Ok(Notifier::new(NotifierParts { world, store, channels, patience, vitals, pulse }))
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

/// Channels from the files, owners and labels from the declarations in force.
struct AlertBook {
    files: Files,
    specs: StoredSpecs,
    store: Arc<dyn Store>,
}

impl AlertBook {
    async fn declared(&self, name: &PipelineId) -> Option<Arc<Pipeline>> {
        let rows = self.store.read(name, &[Key::Pipeline]).await.ok()?;
        let Record::Pipeline(row) = rows.into_iter().next()??.record else { return None };
        self.specs.pipeline(name, version_number(&row.version).ok()?).await.ok()
    }
}

impl Book for AlertBook {
    fn channels(&self) -> Arc<[Alert]> {
        self.files.alerts()
    }

    fn pipeline<'a>(&'a self, name: &'a PipelineId) -> Known<'a> {
        Box::pin(self.declared(name))
    }
}
