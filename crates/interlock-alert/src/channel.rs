//! The kinds of channels.

mod console;
mod email;
mod file;
mod http;
mod pagerduty;
mod post;
mod slack;
mod threads;
mod webhook;

use std::{io, time::Duration};

use interlock_config::server::{AlertFormat, Channel};
use interlock_core::incident::Alert;
use serde_json::Value;

pub(crate) use self::{
    console::deliver as to_console,
    email::Email,
    file::{AlertFiles, deliver as to_file},
    http::Http,
    pagerduty::Pagerduty,
    slack::Slack,
    threads::Threads,
    webhook::Webhook,
};
use interlock_ports::channel::Delivery;

/// How long the disk or the terminal may take.
const TIME_MAX: Duration = Duration::from_secs(10);

/// Whether people read it: they want one message for many, programs want each by itself.
pub(crate) fn is_for_people(channel: &Channel) -> bool {
    match channel {
        Channel::Console | Channel::Slack(_) | Channel::Email(_) => true,
        Channel::File { .. }
        | Channel::Webhook { .. }
        | Channel::Pagerduty { .. }
        | Channel::Http { .. } => false,
    }
}

/// What a program is sent.
pub(crate) fn payload(format: AlertFormat, alert: &Alert) -> Value {
    match format {
        AlertFormat::Alert => alert.to_json(),
        AlertFormat::Events => alert.to_event_json(),
    }
}

/// Does something that blocks, for a bounded time, beside the loops.
async fn blocking(what: &str, work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Delivery {
    let failed = |reason: String| Delivery::Failed { reason, retry_after: None };
    match tokio::time::timeout(TIME_MAX, tokio::task::spawn_blocking(work)).await {
        Ok(Ok(Ok(()))) => Delivery::Delivered,
        Ok(Ok(Err(error))) => failed(format!("{what} cannot be written: {error}")),
        Ok(Err(broke_off)) => failed(format!("{what} cannot be written: {broke_off}")),
        Err(_elapsed) => failed(format!("{what} did not take it in time")),
    }
}
