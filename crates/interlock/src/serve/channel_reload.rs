//! The alert channels of a process without the engine: read again when `interlock.yaml` changes, or when somebody asks.

use std::{fs, path::PathBuf, sync::Arc, time::Duration, time::SystemTime};

use interlock_config::SystemZones;
use interlock_engine::vitals::Pulse;
use tokio::{sync::mpsc::UnboundedReceiver, task::spawn_blocking, time::sleep};

use crate::{place, serve::files::Files};

/// How often it is looked whether the file looks different.
const LOOK_EVERY: Duration = Duration::from_secs(2);

/// The loop that looks at the file.
#[derive(Debug)]
pub(crate) struct ChannelReload {
    pub(crate) files: Files,
    pub(crate) zones: Arc<SystemZones>,
    /// Somebody wants it read now.
    pub(crate) asked: UnboundedReceiver<()>,
    pub(crate) pulse: Pulse,
}

impl ChannelReload {
    /// Uses what the file says, for ever. One that is broken changes nothing.
    pub(crate) async fn watch(mut self) {
        let file = place::config_file(self.files.directory());
        let mut seen = look(file.clone()).await;
        // This process may have waited for hours for the ledger since it read the file.
        self.read().await;
        loop {
            self.pulse.beat();
            let is_asked = tokio::select! {
                biased;
                Some(()) = self.asked.recv() => true,
                () = sleep(LOOK_EVERY) => false,
            };
            let now = look(file.clone()).await;
            if !is_asked && now == seen {
                continue;
            }
            seen = now;
            self.read().await;
        }
    }

    async fn read(&self) {
        let (files, zones) = (self.files.clone(), Arc::clone(&self.zones));
        let read = spawn_blocking(move || {
            let around = Files::around(files.directory(), &zones)?;
            let is_usable = !around.has_errors();
            if is_usable {
                files.use_channels(&around.config.alerts);
            }
            Ok::<_, crate::exit::Failure>((is_usable, around.config.alerts.len()))
        });
        match read.await {
            Ok(Ok((true, channels))) => {
                tracing::info!(
                    event = "CHANNELS_READ",
                    channels,
                    "the alert channels were read again"
                );
            }
            Ok(Ok((false, _))) => tracing::warn!(
                "interlock.yaml has problems, and the alert channels stay as they were (`interlock validate` shows them)"
            ),
            Ok(Err(failure)) => {
                tracing::error!("{}; the alert channels stay as they were", failure.message);
            }
            Err(panic) => tracing::error!(%panic, "reading interlock.yaml failed"),
        }
    }
}

/// What a file looks like from outside.
async fn look(file: PathBuf) -> Option<(u64, Option<SystemTime>)> {
    let looked = spawn_blocking(move || fs::metadata(file).ok());
    let metadata = looked.await.ok().flatten()?;
    Some((metadata.len(), metadata.modified().ok()))
}
