//! The HTTP interface of `serve`: health, readiness, metrics, pings and requests today; the whole API and the pages later.
//!
//! It holds no state of its own: it shows what the engine counted, asks the store, and judges by its own
//! clock whether the loops come round. It runs on a thread and a runtime of its own, so that a loop that
//! blocks its threads cannot keep `/healthz` from saying so.
//!
//! One file per area makes a router ([`health`], [`metrics`], [`ping`], [`read`], [`mod@write`]); `routes` joins them under the common limits:
//! how long a request may take, how large it may be, how many may come. What an area needs of whoever asks it says by
//! `access::guarded`. Everything that is not an answer is a problem of RFC 9457 with a `code` and a `hint`, 404 and 405 included.

pub mod access;
pub mod address;
mod asker;
mod badge;
mod body;
mod buckets;
mod crowd;
mod desk;
mod document;
mod error;
mod evaluate;
mod exposition;
mod fleet_demand;
mod fleet_health;
mod fleet_thread;
mod health;
mod hearing;
mod idempotency;
mod limits;
pub mod loops;
mod metrics;
mod patient;
mod peer;
mod ping;
mod plan;
mod query;
mod question;
mod read;
mod refusals;
mod routes;
mod server;
mod session;
mod stream;
mod surface;
pub mod tls;
pub mod token;
mod write;
mod writing;

pub use access::Doorkeeper;
pub use hearing::Hearing;
pub use limits::Limits;
pub use peer::InstanceIdentity;
pub use query::{RID_MAX, is_rid};
pub use routes::{MakePages, openapi};
pub use server::{BOUND, InterfaceDeps, Post, Running, start};
pub use session::SessionKey;
pub use surface::{
    BeaconStanding, EvaluatorHandle, FindLog, HostDoctor, HostLogs, LookAround, Make, Maker, Phase,
    Reach, Surface, Wellness,
};
