//! The console: one readable line.

use crate::{
    contract::{Delivery, Notice},
    local::Console,
};

/// Prints an alert.
pub(crate) async fn deliver(console: Console, notice: Notice) -> Delivery {
    let line = format!("{} {}", notice.alert.timestamp, notice.alert);
    super::blocking("the console", move || console(&line)).await
}
