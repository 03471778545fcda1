//! The console: one readable line.

use crate::local::Console;
use interlock_ports::channel::{AlertMessage, Delivery};

/// Prints an alert.
pub(crate) async fn deliver(console: Console, notice: AlertMessage) -> Delivery {
    let line = format!("{} {}", notice.alert.timestamp, notice.alert);
    super::blocking("the console", move || console(&line)).await
}
