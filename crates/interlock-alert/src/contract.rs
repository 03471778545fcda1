//! What the notifier and the channels say to each other.

use std::{future::Future, pin::Pin};

use interlock_core::incident::Alert;
use jiff::{SignedDuration, Timestamp};

/// What came of a try, to wait for.
pub type DeliveryFuture = Pin<Box<dyn Future<Output = Delivery> + Send>>;

/// Names of channels, to wait for: who owns a pipeline may have to be read.
pub type RouteFuture<'a> = Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>>;

/// An alert, to be delivered once more or for the first time.
#[derive(Debug, Clone, PartialEq)]
pub struct Notice {
    /// What to say.
    pub alert: Alert,
    /// The same for every try, and for no other alert: receivers can tell a repetition by it.
    pub key: String,
    /// When this try is made.
    pub at: Timestamp,
}

/// What came of a try.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Delivery {
    /// The receiver has it.
    Delivered,
    /// It was not delivered, or nobody knows; trying again makes sense.
    Failed {
        /// Why, in a sentence without secrets.
        reason: String,
        /// How long the receiver wants to be left alone.
        retry_after: Option<SignedDuration>,
    },
    /// It cannot be delivered, however often it is tried.
    Refused {
        /// Why, in a sentence without secrets.
        reason: String,
    },
}

/// All channels.
pub trait Channels: Send + Sync + 'static {
    /// The names of the channels that get an alert, by the routes as they are now.
    fn route<'a>(&'a self, alert: &'a Alert) -> RouteFuture<'a>;

    /// The names of the channels that hear of it when a channel gave an alert up: never that one, and somebody
    /// if there is anybody.
    fn instead_of<'a>(&'a self, channel: &'a str, alert: &'a Alert) -> RouteFuture<'a>;

    /// Tries once to deliver. Takes a bounded time and always answers.
    fn deliver(&self, channel: &str, notice: Notice) -> DeliveryFuture;
}
