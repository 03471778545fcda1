//! Whether the store's server keeps what it acknowledges, asked now and then: it may be set up anew, or another one may have
//! followed, long after it was found in order.

use std::{sync::Arc, time::Duration};

use interlock_store::{Role, Store};
use tokio::time::sleep;

use super::notice::{Over, is_open, notice};

const LOOK_EVERY: Duration = Duration::from_mins(5);
const THING: &str = "the store";

/// Looks until the process ends. One of all instances tells.
pub(crate) async fn go_on(store: Arc<dyn Store>, me: String) {
    loop {
        // A store that does not answer is told of by others.
        if let Ok(cautions) = store.cautions().await
            && is_first(store.as_ref(), &me).await
            && let Ok(is_told) = is_open(store.as_ref(), format!("unsafe:{THING}")).await
            && is_told == cautions.is_empty()
        {
            let (message, over) = if is_told {
                ("its server is set up to keep everything now".to_owned(), Over::Yes)
            } else {
                (cautions.join("; "), Over::No)
            };
            notice(store.as_ref(), ("STORE_UNSAFE", THING), message, over).await;
        }
        sleep(LOOK_EVERY).await;
    }
}

/// Whether no other instance speaks for all.
async fn is_first(store: &dyn Store, me: &str) -> bool {
    let Ok(Some(roll)) = store.roll().await else { return false };
    let mut present = roll.present.iter().filter(|(role, _)| *role == Role::Engine);
    present.next().is_none_or(|(_, name)| name.as_str() >= me)
}
