//! Other instances of the same store: what only one host has is asked of the instance there (`docs/adr/0061-tls-and-instances.md`).
//!
//! Each instance draws a key pair when it starts, and says its public half in the store, with where it can be reached and which
//! certificate it shows. It signs what it asks of another; the other finds the public half in the store. So an instance is known by what it
//! wrote there, no secret is shared, and what reads the store can ask for nothing.

mod client;
mod signature;

use aws_lc_rs::signature::{Ed25519KeyPair, KeyPair as _};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};

pub(crate) use self::{
    client::{PeerError, PeerRequest, ask_host},
    signature::verify,
};

/// Who this process is to others of the same store.
pub struct InstanceIdentity {
    /// The name under which it says what it is like.
    pub name: String,
    /// The name of its machine.
    pub host: String,
    key: Ed25519KeyPair,
}

impl std::fmt::Debug for InstanceIdentity {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("InstanceIdentity").field("name", &self.name).finish_non_exhaustive()
    }
}

impl InstanceIdentity {
    /// With a new key, which lives as long as the process; none if the system has no chance to give.
    pub fn new(name: String, host: String) -> Option<Self> {
        Some(Self { name, host, key: Ed25519KeyPair::generate().ok()? })
    }

    /// By which others know its signatures.
    pub fn public_key(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.key.public_key())
    }
}
