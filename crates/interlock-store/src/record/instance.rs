//! What an instance says of itself.

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};

use super::Word;

/// What an instance says of itself, every few seconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct InstanceRecord {
    /// Which Interlock it is.
    pub version: String,
    /// What it does, as `serve --roles` says it.
    pub roles: Vec<Word>,
    /// On which host.
    pub host: String,
    /// As which process there.
    pub pid: u32,
    /// When it was started, by its own clock.
    pub started_at: Timestamp,
    /// Where its HTTP can be reached, if it listens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub address: Option<String>,
    /// The SHA-256 of the certificate that it shows there, if it speaks TLS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// By which its signatures are known: what it asks of other instances is signed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub public_key: Option<String>,
    /// The name by which runs know its host, where their jobs can be found again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub jobs_host: Option<String>,
    /// How long ago each of its loops came round.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub loops: Vec<LoopRecord>,
    /// How far its clock is ahead of the store's, if that is another clock.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub clock_skew: Option<SignedDuration>,
    /// The leases that it holds.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRecord>,
}

/// One loop of an instance.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LoopRecord {
    /// Which one.
    pub name: Word,
    /// How long ago it last came round.
    pub age: SignedDuration,
    /// After how long it is late.
    pub bound: SignedDuration,
    /// Whether it is late.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub late: bool,
}

/// A lease that an instance holds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseRecord {
    /// In which role.
    pub role: Word,
    /// Of which shard.
    pub shard: u16,
}
