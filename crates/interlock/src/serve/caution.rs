//! Whether the store's server keeps what it acknowledges, asked now and then: it may be set up anew, or another one may have
//! followed, long after it was found in order.

use std::{sync::Arc, time::Duration};

use interlock_store::{Role, Store};
use tokio::time::sleep;

use super::{
    notice::{Over, is_open, notice},
    roster::speaks_for_all,
};

const LOOK_EVERY: Duration = Duration::from_mins(1);
const THING: &str = "the store";

/// Looks until the process ends. One of all instances tells.
pub(crate) async fn go_on(store: Arc<dyn Store>, me: String) {
    let mut last = None;
    loop {
        // A store that does not answer is told of by others.
        if let Ok(cautions) = store.cautions().await {
            let has_changed = last.replace(cautions.clone()).is_some_and(|last| last != cautions);
            tell(store.as_ref(), &me, (cautions, has_changed)).await;
        }
        sleep(LOOK_EVERY).await;
    }
}

async fn tell(store: &dyn Store, me: &str, (cautions, has_changed): (Vec<String>, bool)) {
    if let Ok(Some(roll)) = store.roll().await
        && speaks_for_all((Role::Engine, me), &roll)
        && let Ok(is_told) = is_open(store, format!("unsafe:{THING}")).await
        && (is_told == cautions.is_empty() || (is_told && has_changed))
    {
        let (message, over) = if cautions.is_empty() {
            ("its server is set up to keep every write now".to_owned(), Over::Yes)
        } else {
            (cautions.join("; "), Over::No)
        };
        notice(store, ("STORE_UNSAFE", THING), message, over).await;
    }
}
