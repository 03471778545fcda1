//! What this instance says of itself, in the store, every few seconds: so that any instance, and a command beside it, can answer
//! for all of them, and one that says nothing any more is seen to be gone.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use interlock_api::{InstanceIdentity, Surface, tls::ListenerCertificate};
use interlock_engine::wellness::Standing;
use interlock_store::{
    Role, Roll, Store, StoreError,
    record::{InstanceRecord, LeaseRecord, LoopRecord},
};
use jiff::{SignedDuration, Timestamp};
use tokio::time::{Instant, MissedTickBehavior, interval};

use super::http;
use crate::clock;

/// Who has said nothing for a few of these is gone.
const SAY_EVERY: Duration = Duration::from_secs(5);

/// What does not change while the process lives, and where the rest is seen.
pub(crate) struct SelfReporter {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) surface: Arc<Surface>,
    /// Who this process is to the store's leases.
    pub(crate) holder: String,
    pub(crate) host: String,
    pub(crate) roles: Vec<String>,
    /// Where HTTP listens, if it does.
    pub(crate) address: Option<SocketAddr>,
    /// The name by which runs know this host, where jobs can be looked for on several.
    pub(crate) jobs_host: Option<String>,
    pub(crate) started_at: Timestamp,
}

impl SelfReporter {
    /// Says it again and again, until the process ends.
    pub(crate) async fn run(self) {
        let mut tick = interval(SAY_EVERY);
        tick.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            tick.tick().await;
            if let Err(error) = self.say().await {
                // That the store is away is told by others; nothing is decided by what is said here.
                tracing::debug!(%error, "the status of this instance was not stored");
            }
        }
    }

    async fn say(&self) -> Result<(), StoreError> {
        let roll = self.store.roll().await?;
        let record = InstanceRecord {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            roles: self.roles.iter().cloned().map(Into::into).collect(),
            host: self.host.clone(),
            pid: std::process::id(),
            started_at: self.started_at,
            address: self.url(),
            certificate: self.certificate().map(|it| it.fingerprint().as_str().to_owned()),
            public_key: self.surface.identity.get().map(InstanceIdentity::public_key),
            jobs_host: self.jobs_host.clone(),
            loops: self.surface.loops.look(Instant::now()).iter().map(loop_record).collect(),
            clock_skew: self.clock_skew(roll.as_ref()).await?,
            leases: self.leases(roll.as_ref()),
        };
        self.store.report_instance(&self.holder, &record).await
    }

    fn certificate(&self) -> Option<&Arc<ListenerCertificate>> {
        self.surface.certificate.get()
    }

    /// Where others reach it.
    fn url(&self) -> Option<String> {
        let address = http::reachable_address(self.address?);
        Some(format!("{}://{address}", http::scheme(self.certificate())))
    }

    /// The leases that it holds. Where one process alone can write, its loops have all that are theirs.
    fn leases(&self, roll: Option<&Roll>) -> Vec<LeaseRecord> {
        let lease = |role: Role, shard| LeaseRecord { role: role.as_str().into(), shard };
        let Some(roll) = roll else {
            let roles = [Role::Engine, Role::Watchdog].into_iter();
            let own = roles.filter(|role| self.roles.iter().any(|word| word == role.as_str()));
            return own.map(|role| lease(role, 0)).collect();
        };
        let own = roll.held.iter().filter(|(_, (holder, _))| *holder == self.holder);
        own.map(|((role, shard), _)| lease(*role, shard.0)).collect()
    }

    /// How far our clock is ahead of the store's; none where the store goes by ours.
    async fn clock_skew(&self, roll: Option<&Roll>) -> Result<Option<SignedDuration>, StoreError> {
        if roll.is_none() {
            return Ok(None);
        }
        let (before, theirs, after) = (clock::now(), self.store.now().await?, clock::now());
        Ok(Some(before.duration_since(theirs) + after.duration_since(before) / 2))
    }
}

fn loop_record(standing: &Standing) -> LoopRecord {
    let duration = |time: Duration| SignedDuration::try_from(time).unwrap_or(SignedDuration::MAX);
    LoopRecord {
        name: standing.name.into(),
        age: duration(standing.still_for),
        bound: duration(standing.bound),
        late: standing.is_late(),
    }
}
