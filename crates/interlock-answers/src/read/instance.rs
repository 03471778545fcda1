//! Instances, and what they own.

use interlock_store::{
    InstanceRow, Role, Roll, Shard,
    record::{LeaseRecord, LoopRecord},
};
use jiff::{SignedDuration, Timestamp};

use crate::{
    AnswerError, Listing, Reader,
    model::instance::{
        HeldLeaseAnswer, InstanceAnswer, InstanceState, LoopAnswer, OwnerAnswer, ShardAnswer,
    },
};

/// An instance that has said nothing for so long is gone: it says something every five seconds.
pub const GONE_AFTER: SignedDuration = SignedDuration::from_secs(15);

impl Reader<'_> {
    /// What the instances said of themselves last, by name; those that are gone are last.
    pub async fn instances(&self) -> Result<Listing<InstanceAnswer>, AnswerError> {
        let rows = self.store.instances().await?;
        let mut all: Vec<_> = rows.into_iter().map(|row| instance_answer(row, self.now)).collect();
        all.sort_by_key(|instance| instance.state == InstanceState::Gone);
        Ok(Listing::whole(all))
    }

    /// Every shard, and who owns it.
    pub async fn shards(&self) -> Result<Listing<ShardAnswer>, AnswerError> {
        let roll = self.store.roll().await?;
        let present = match &roll {
            Some(_) => vec![],
            None => self.instances().await?.items,
        };
        let owner = |role, shard| match &roll {
            Some(roll) => lease_owner(roll, role, Shard(shard)),
            None => sole_owner(&present, role, Shard(shard)),
        };
        let shards = (0..self.store.shard_count()).map(|shard| ShardAnswer {
            shard,
            engine: owner(Role::Engine, shard),
            watchdog: owner(Role::Watchdog, shard),
        });
        Ok(Listing::whole(shards.collect()))
    }
}

/// Who holds the lease of a shard.
fn lease_owner(roll: &Roll, role: Role, shard: Shard) -> Option<OwnerAnswer> {
    let (instance, until) = roll.held.get(&(role, shard))?;
    Some(OwnerAnswer { instance: instance.clone(), until: Some(*until) })
}

/// Who says that it has a shard, where one process alone has all there is.
fn sole_owner(instances: &[InstanceAnswer], role: Role, shard: Shard) -> Option<OwnerAnswer> {
    let has = |held: &HeldLeaseAnswer| held.role == role.as_str() && held.shard == shard.0;
    let owns = |instance: &&InstanceAnswer| {
        instance.state == InstanceState::Present && instance.leases.iter().any(has)
    };
    let instance = instances.iter().find(owns)?.name.clone();
    Some(OwnerAnswer { instance, until: None })
}

fn instance_answer(row: InstanceRow, now: Timestamp) -> InstanceAnswer {
    let InstanceRow { instance, said_at, record } = row;
    let is_gone = now.duration_since(said_at) > GONE_AFTER;
    let up = now.duration_since(record.started_at).as_secs().max(0);
    InstanceAnswer {
        name: instance,
        state: if is_gone { InstanceState::Gone } else { InstanceState::Present },
        said_at,
        version: record.version,
        roles: record.roles.iter().map(ToString::to_string).collect(),
        host: record.host,
        pid: record.pid,
        started_at: record.started_at,
        up_seconds: (!is_gone).then_some(up),
        address: record.address,
        loops: record.loops.iter().map(loop_answer).collect(),
        clock_skew_seconds: record.clock_skew.map(|skew| skew.as_secs_f64()),
        leases: record.leases.iter().map(lease_answer).collect(),
    }
}

fn loop_answer(record: &LoopRecord) -> LoopAnswer {
    LoopAnswer {
        name: record.name.to_string(),
        age_seconds: record.age.as_secs_f64(),
        bound_seconds: record.bound.as_secs_f64(),
        late: record.late,
    }
}

fn lease_answer(record: &LeaseRecord) -> HeldLeaseAnswer {
    HeldLeaseAnswer { role: record.role.to_string(), shard: record.shard }
}
