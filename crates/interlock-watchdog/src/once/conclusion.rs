//! What is said of a pass as a whole, after every shard: that shards could not be judged, or that all can be again.

use interlock_core::{id::PipelineId, incident::IncidentState};
use interlock_store::{Change, Group, Key, Lease, Record, Role, Shard, record::EventRecord};

use super::{CheckOptions, LEASE, Report};
use crate::{
    check::CHECKS,
    durable::{degraded, recovered},
    judging::commit,
    plan::Planned,
    resident::WatchdogError,
};

/// The incident that says which checks could not be done.
const DEGRADED: &str = "watchdog-degraded:_system";

/// Says what a pass as a whole means for the watchdog. A shard that was judged has told of its own failures; one that could
/// not be judged could not even do that.
pub(super) async fn conclude(
    options: &CheckOptions,
    report: &mut Report,
    lost_shard: Option<&WatchdogError>,
) -> Result<(), WatchdogError> {
    if options.telling.is_none() {
        return Ok(());
    }
    let is_whole = options.checks.len() == CHECKS.len() && report.held_elsewhere.is_empty();
    let event = if lost_shard.is_some() {
        degraded(&report.failed, options.now)
    } else if is_whole && report.failed.is_empty() && is_open(options).await? {
        recovered(options.now)
    } else {
        return Ok(());
    };
    for shard in (0..options.store.shard_count()).map(Shard) {
        // One shard's right is enough to write what is of no pipeline; that of a lost one cannot be had.
        if let Ok(true) = record(options, shard, &event, report).await {
            return Ok(());
        }
    }
    tracing::error!("{}: it could not be recorded", event.message);
    Ok(())
}

async fn is_open(options: &CheckOptions) -> Result<bool, WatchdogError> {
    let key = Key::Incident(DEGRADED.to_owned());
    let rows = options.store.read(&PipelineId::system(), &[key]).await?;
    Ok(rows.into_iter().flatten().any(|row| {
        let Record::Incident(incident) = &row.record else { return false };
        incident.standing() != Ok(IncidentState::Resolved)
    }))
}

/// Records an event under a shard's lease; answers whether that was done.
async fn record(
    options: &CheckOptions,
    shard: Shard,
    event: &EventRecord,
    report: &mut Report,
) -> Result<bool, WatchdogError> {
    let (store, Some(telling)) = (options.store.as_ref(), &options.telling) else {
        return Ok(false);
    };
    let lease = store.acquire(Role::Watchdog, shard, &options.holder, LEASE).await?;
    let Some(Lease { writer, .. }) = lease else { return Ok(false) };
    let changes = vec![Change::Append(event.clone().into())];
    let mut planned = [Planned::only(Group { pipeline: PipelineId::system(), writer, changes })];
    let results = commit(store, telling.as_ref(), &mut planned).await;
    store.release(writer).await?;
    let is_done = results?.iter().all(Result::is_ok);
    if is_done {
        let names = planned.into_iter().flat_map(|plan| plan.notifications);
        let names = names.map(|name| (PipelineId::system(), name)).collect();
        options.hand_over(names, &mut report.notifications).await?;
    }
    Ok(is_done)
}
