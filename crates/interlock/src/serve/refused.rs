//! A start that is refused because the ledger cannot be opened, told to the channels of the files.
//!
//! There is no store to keep the alert in, and after this no process that tries again: what the spool cannot deliver now stands
//! in its folder, and the next `serve` delivers it. A service manager that starts `serve` again and again tells it once:
//! an alarm that stands there is not raised again. It is over when a `serve` has seen the store take a write.

use std::{path::Path, sync::Arc, time::Duration};

use interlock_config::SystemZones;
use interlock_trigger::web::Web;
use tokio::time::Instant;

use super::{files::Files, notifier, sentinel::Spool};
use crate::{
    exit::Failure,
    place::Place,
    writer::{self, Writing},
};

/// How long the channels have.
const TOLD_IN: Duration = Duration::from_secs(10);

/// Tells people, if the ledger's file is the reason. If another process has it, there is one that works.
pub(crate) async fn tell(directory: &Path, refusal: &Failure) {
    let Ok(place) = Place::of(directory) else { return };
    let ledger = place.folder.join("ledger.db").display().to_string();
    if !place.is_embedded()
        || !refusal.message.contains(&ledger)
        || writer::writing(&place.folder) != Writing::Nobody
    {
        return;
    }
    let zones = Arc::new(SystemZones::new());
    let Ok(around) = Files::around(directory, &zones) else { return };
    let web = match Web::new(&around.config.engine.outbound) {
        Ok(web) => web,
        Err(error) => {
            tracing::error!(%error, "cannot tell the channels: there is no HTTP client");
            return;
        }
    };
    let files = Files::new(directory, &place.folder, zones).with_alerts(&around.config.alerts);
    let mut spool = Spool::open(&place.folder, files, web, notifier::console());
    let message =
        format!("STORE_UNREACHABLE: {}; `interlock serve` does not start", refusal.message);
    // As the sentinel calls it, which ends it.
    spool.raise("store", "store_unreachable", message);
    spool.finish(Instant::now() + TOLD_IN).await;
}
