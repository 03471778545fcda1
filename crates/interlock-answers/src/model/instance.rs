//! Instances, and what they own.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What an instance said of itself last.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Instance)]
pub struct InstanceAnswer {
    /// Its name: its host and process, as it holds leases.
    pub name: String,
    /// Whether it has said something in the last fifteen seconds.
    pub state: InstanceState,
    /// When it said this.
    pub said_at: Timestamp,
    /// Which Interlock it is.
    pub version: String,
    /// What it does, as `serve --roles` says it.
    pub roles: Vec<String>,
    /// On which host.
    pub host: String,
    /// As which process there.
    pub pid: u32,
    /// When it was started.
    pub started_at: Timestamp,
    /// How long it has been up; null of one that is gone.
    pub up_seconds: Option<i64>,
    /// Where its HTTP can be reached, if it listens.
    pub address: Option<String>,
    /// Its loops.
    pub loops: Vec<LoopAnswer>,
    /// How far its clock is ahead of the store's; null where the store goes by its clock.
    pub clock_skew_seconds: Option<f64>,
    /// The leases that it holds.
    pub leases: Vec<HeldLeaseAnswer>,
}

/// Whether an instance is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceState {
    /// It says that it is.
    Present,
    /// It has said nothing for a while.
    Gone,
}

/// A loop of an instance, when it last said something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Loop)]
pub struct LoopAnswer {
    /// Which one.
    pub name: String,
    /// How long ago it had last come round.
    pub age_seconds: f64,
    /// After how long it is late.
    pub bound_seconds: f64,
    /// Whether it was late.
    pub late: bool,
}

/// A lease that an instance holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = HeldLease)]
pub struct HeldLeaseAnswer {
    /// In which role: `engine` or `watchdog`.
    pub role: String,
    /// Of which shard.
    pub shard: u16,
}

/// A shard, and who owns it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = Shard)]
pub struct ShardAnswer {
    /// Its number.
    pub shard: u16,
    /// The instance that runs its pipelines; null if none does.
    pub engine: Option<OwnerAnswer>,
    /// The instance that judges their absence; null if none does.
    pub watchdog: Option<OwnerAnswer>,
}

/// Who owns a shard in a role.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "camelCase")]
#[schema(as = ShardOwner)]
pub struct OwnerAnswer {
    /// The name of the instance.
    pub instance: String,
    /// Until when, unless it renews its lease; null where one process alone has all there is.
    pub until: Option<Timestamp>,
}
