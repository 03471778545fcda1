//! What the notifier and the channels say to each other.

use std::{future::Future, pin::Pin};

use interlock_core::{id::PipelineId, incident::Alert};
use jiff::{SignedDuration, Timestamp};

/// What came of a try, to wait for.
pub type DeliveryFuture = Pin<Box<dyn Future<Output = Delivery> + Send>>;

/// Names of channels, to wait for: who owns a pipeline may have to be read.
pub type RouteFuture<'a> = Pin<Box<dyn Future<Output = Vec<String>> + Send + 'a>>;

/// A reason not to tell now, if there is one, to wait for.
pub type HoldFuture<'a> = Pin<Box<dyn Future<Output = Option<HoldReason>> + Send + 'a>>;

/// Ends when what was asked for is at hand.
pub type PrepareFuture<'a> = Pin<Box<dyn Future<Output = ()> + Send + 'a>>;

/// Why nobody is told now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HoldReason {
    /// For people.
    pub reason: String,
    /// When it may be over; unknown when absent.
    pub until: Option<Timestamp>,
}

/// How a channel is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ChannelPolicy {
    /// Only if an incident lasts so long and nobody looks at it: a later step of escalation.
    pub after: Option<SignedDuration>,
    /// Only once so many were found in a row; 0 and 1 mean at once.
    pub findings: u32,
    /// Of the last so many slots, instead of in a row; 0 means in a row.
    pub of: u32,
    /// An end only once so many slots in a row went well; 0 and 1 mean at once.
    pub recovered: u32,
    /// Again after so long, while an incident lasts and nobody looks at it.
    pub repeat: Option<SignedDuration>,
    /// Whether many alerts at once may be one message.
    pub takes_digests: bool,
}

/// An alert, to be delivered once more or for the first time.
#[derive(Debug, Clone, PartialEq)]
pub struct AlertMessage {
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
    /// Reads at once what will be asked for when alerts of these pipelines are routed, held back and delivered. Only a
    /// shortcut: what is not at hand is read when it is needed.
    fn prepare(&self, _pipelines: Vec<PipelineId>) -> PrepareFuture<'_> {
        Box::pin(std::future::ready(()))
    }

    /// The names of the channels that get an alert, by the routes as they are now.
    fn route<'a>(&'a self, alert: &'a Alert) -> RouteFuture<'a>;

    /// The names of the channels that hear of it when a channel gave an alert up: never that one, and somebody
    /// if there is anybody.
    fn instead_of<'a>(&'a self, channel: &'a str, alert: &'a Alert) -> RouteFuture<'a>;

    /// Why nobody is to be told of an incident now that was opened, by the silences and upstreams as they are now.
    fn hold<'a>(&'a self, _alert: &'a Alert, _now: Timestamp) -> HoldFuture<'a> {
        Box::pin(std::future::ready(None))
    }

    /// How a channel is told.
    fn manner(&self, _channel: &str) -> ChannelPolicy {
        ChannelPolicy::default()
    }

    /// Tries once to deliver. Takes a bounded time and always answers.
    fn deliver(&self, channel: &str, notice: AlertMessage) -> DeliveryFuture;
}
