//! Telling people: who gets an alert, and how it reaches them.
//!
//! The notifier, a loop of `interlock-engine`, claims notifications from the outbox and asks [`Channels`]: first who
//! gets an alert, then, for each of those, to deliver it. [`LocalChannels`] are the real ones, as `interlock.yaml`
//! declares them. Retries, pauses, breakers and dead letters are the notifier's business; a channel tries once, in
//! bounded time, and says what came of it.
//!
//! # What a kind of channel promises
//!
//! This is the text to add a new kind from: a file in `channel/`, and a line in `channel.rs`.
//!
//! 1. **One try, in bounded time, always answered.** A receiver that hangs is a [`Delivery::Failed`].
//! 2. **Delivered means taken over:** a 2xx answer, a line that is on the disk.
//! 3. **At least once.** A try may have succeeded although nobody heard of it; it is then repeated with the same
//!    [`AlertMessage::key`], which the channel passes on if its receiver can use it.
//! 4. **Secrets stay here.** Urls, tokens and headers are in no message.

mod channel;
mod local;
pub mod signature;

pub use interlock_ports::channel::{
    AlertMessage, ChannelPolicy, Channels, Delivery, DeliveryFuture, HoldFuture, HoldReason,
    PrepareFuture, RouteFuture,
};
pub use local::{Book, Console, Known, LocalChannels, Silences, Trouble};
