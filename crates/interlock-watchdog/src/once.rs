//! One pass over everything: for a cron job, a function, and the question what would be found at an instant.
//!
//! It keeps nothing between calls but what the store keeps: the watchdog's own watermark says what was judged, and a row
//! says when passes reached the store (S10).

mod conclusion;
mod handover;
mod pass;
mod questions;

use std::{collections::BTreeMap, sync::Arc};

use interlock_core::{id::PipelineId, incident::Alert};
use interlock_store::{Lease, Role, Shard, Store};
use jiff::{SignedDuration, Timestamp};

use self::pass::Pass;
use crate::{
    check::{CHECKS, Check},
    finding::{CheckName, Finding},
    judging::none_can_be_done,
    load,
    resident::WatchdogError,
    seam::{Telling, ZoneBook},
};

/// How long the lease of a pass lasts: it is renewed with every portion and given back at the end, so this is only what a
/// pass that dies costs the next one.
const LEASE: SignedDuration = SignedDuration::from_secs(30);

/// Delivers an alert; says why when it could not.
pub type AlertFn = Arc<dyn Fn(&Alert) -> Result<(), String> + Send + Sync>;

/// Takes a line of the log.
pub type LogFn = Arc<dyn Fn(&str) + Send + Sync>;

/// What a pass needs. Calendars are none of it: they are compiled into the schedules that the store holds.
#[derive(Clone)]
pub struct CheckOptions {
    /// The ledger.
    pub store: Arc<dyn Store>,
    /// Zones by name.
    pub zones: ZoneBook,
    /// The one time of the pass.
    pub now: Timestamp,
    /// Which checks; [`CHECKS`] by default.
    pub checks: Vec<(CheckName, Check)>,
    /// What is found later than this is found late.
    pub late_after: SignedDuration,
    /// What follows from findings for people; without it nothing is written.
    pub telling: Option<Arc<dyn Telling>>,
    /// Who this is, for the lease.
    pub holder: String,
    /// When a run counts as stuck, instead of what its pipeline says.
    pub stuck_run_threshold: Option<SignedDuration>,
    /// Delivers what is found, once it is recorded; without it the notifications wait in the outbox for a notifier. If
    /// nothing is recorded ([`CheckOptions::telling`]), each pass delivers what it finds, again and again.
    pub alert: Option<AlertFn>,
    /// Where each finding and each failed check is logged; `tracing` by default.
    pub logger: Option<LogFn>,
}

impl CheckOptions {
    /// All checks at an instant, writing nothing.
    pub fn new(store: Arc<dyn Store>, zones: ZoneBook, now: Timestamp) -> Self {
        Self {
            store,
            zones,
            now,
            checks: CHECKS.to_vec(),
            // The longest that the Go watchdog looked back.
            late_after: SignedDuration::from_mins(15),
            telling: None,
            holder: "once".to_owned(),
            stuck_run_threshold: None,
            alert: None,
            logger: None,
        }
    }

    /// Only one check.
    #[must_use]
    pub fn only(mut self, name: CheckName) -> Self {
        self.checks.retain(|(check, _)| *check == name);
        self
    }

    /// The same, and what it finds is recorded and told.
    #[must_use]
    pub fn telling(mut self, telling: Arc<dyn Telling>) -> Self {
        self.telling = Some(telling);
        self
    }

    /// The same, with another threshold for stuck runs.
    #[must_use]
    pub fn stuck_after(mut self, threshold: SignedDuration) -> Self {
        self.stuck_run_threshold = Some(threshold);
        self
    }

    /// The same, delivering by a function.
    #[must_use]
    pub fn alerting(mut self, alert: AlertFn) -> Self {
        self.alert = Some(alert);
        self
    }

    /// The same, logging by a function.
    #[must_use]
    pub fn logging(mut self, logger: LogFn) -> Self {
        self.logger = Some(logger);
        self
    }
}

impl std::fmt::Debug for CheckOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("CheckOptions").field("now", &self.now).finish_non_exhaustive()
    }
}

/// What a pass found.
#[derive(Debug, Default)]
pub struct Report {
    /// What people should know, as it was recorded.
    pub findings: Vec<Finding>,
    /// The checks that could not be done, and why.
    pub failed: BTreeMap<CheckName, String>,
    /// The notifications that were written, by pipeline and name, and that no alert function has delivered.
    pub notifications: Vec<(PipelineId, String)>,
    /// The shards that another watchdog judges.
    pub held_elsewhere: Vec<Shard>,
}

impl Report {
    fn add(&mut self, of_shard: Self) {
        self.findings.extend(of_shard.findings);
        for (name, reason) in of_shard.failed {
            self.failed.entry(name).or_insert(reason);
        }
        self.notifications.extend(of_shard.notifications);
        self.held_elsewhere.extend(of_shard.held_elsewhere);
    }
}

/// Judges every shard once. A shard that cannot be judged fails its checks and stops no other; an error is returned only
/// if none could be.
pub async fn all_shards(options: &CheckOptions) -> Result<Report, WatchdogError> {
    let mut report = Report::default();
    let (mut is_any_done, mut error) = (false, None);
    // Before the first shard's own moves: it stands for those that were never judged.
    let inherited = load::own(options.store.as_ref(), Shard(0)).await?.judged;
    for shard in (0..options.store.shard_count()).map(Shard) {
        match judge_shard(options, shard, inherited).await {
            Ok(Some(of_shard)) => {
                is_any_done = true;
                report.add(of_shard);
            }
            Ok(None) => {
                is_any_done = true;
                report.held_elsewhere.push(shard);
            }
            Err(failed) => {
                let reason = format!("shard {}: {failed}", shard.0);
                none_can_be_done(&options.checks, &reason, &mut report.failed);
                error = Some(failed);
            }
        }
    }
    match error {
        Some(error) if !is_any_done => Err(error),
        error => {
            conclusion::conclude(options, &mut report, error.as_ref()).await?;
            log_failed(options, &report.failed);
            Ok(report)
        }
    }
}

fn log_failed(options: &CheckOptions, failed: &BTreeMap<CheckName, String>) {
    let Some(logger) = &options.logger else { return };
    for (name, reason) in failed {
        logger(&format!("the check {name} failed: {reason}"));
    }
}

/// Judges one shard once. `None` while another watchdog is at work and this one was to write.
pub async fn once(options: &CheckOptions, shard: Shard) -> Result<Option<Report>, WatchdogError> {
    let inherited = load::own(options.store.as_ref(), Shard(0)).await?.judged;
    judge_shard(options, shard, inherited).await
}

/// The same, given up to when everything was judged of a shard that has no watermark of its own.
async fn judge_shard(
    options: &CheckOptions,
    shard: Shard,
    inherited: Option<Timestamp>,
) -> Result<Option<Report>, WatchdogError> {
    let store = options.store.as_ref();
    if options.telling.is_none() {
        return Pass::run(options, (shard, inherited), None).await.map(Some);
    }
    let lease = store.acquire(Role::Watchdog, shard, &options.holder, LEASE).await?;
    let Some(Lease { writer, .. }) = lease else { return Ok(None) };
    let report = Pass::run(options, (shard, inherited), Some(writer)).await;
    if let Err(error) = store.release(writer).await {
        tracing::warn!(%error, "cannot give the lease of this pass back; it runs out by itself");
    }
    report.map(Some)
}
