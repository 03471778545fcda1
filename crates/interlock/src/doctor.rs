//! Looks whether everything is as it should be: what stands around the pipelines on this machine (`host`), and what the ledger says
//! of the work that is done (`ledger`). A command looks by itself; `serve` looks when it is asked over HTTP.

pub(crate) mod host;
pub(crate) mod ledger;

use std::sync::Arc;

use interlock_api::HostDoctor;
use interlock_config::server::Server;
use interlock_store::Store;
use jiff::SignedDuration;

use crate::place::Place;

/// How long `serve` goes through the ledger when it is asked over HTTP: an answer must come in time.
const SCAN_IN: SignedDuration = SignedDuration::from_secs(2);

/// Looks from within `serve`, for questions over HTTP.
pub(crate) fn within_serve(
    place: &Place,
    store: &Arc<dyn Store>,
    server: &Server,
    instance: &str,
) -> HostDoctor {
    let (instance, server) = (instance.to_owned(), server.clone());
    let (place, store, me) = (place.clone(), Arc::clone(store), instance.clone());
    let look = move || {
        let here = host::findings_within(&place, store.as_ref(), &server).into_iter();
        let mut found: Vec<_> = here.map(|finding| finding.found_by(&me)).collect();
        found.extend(ledger::findings(store.as_ref(), SCAN_IN));
        found
    };
    HostDoctor { instance, look: Arc::new(look) }
}
