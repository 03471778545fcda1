//! Evaluators and channels, with their bad days.

use std::{
    fmt,
    sync::{Arc, Mutex, PoisonError},
};

use interlock_config::{SystemZones, route::Subject, silence::Silence};
use interlock_core::{
    id::PipelineId,
    incident::Alert,
    readiness::{TraitResult, TraitSpec, TraitStatus},
};
use interlock_engine::{
    SILENCE_PREFIX,
    seam::{Evaluators, Task},
};
use interlock_ports::channel::{
    AlertMessage, Channels, Delivery, DeliveryFuture, HoldFuture, HoldReason, RouteFuture,
};
use interlock_store::Store;
use jiff::{SignedDuration, Timestamp};

use crate::{
    clockwork::{Clockwork, Pid, ProcessWorld},
    luck::{Luck, Trouble, seconds},
    random::Random,
    road::Reach,
};

/// The channels that there are.
pub const CHANNELS: [&str; 2] = ["mail", "pager"];

/// Somebody who is told what evaluators answered and channels took.
pub trait Onlooker: Send + Sync + fmt::Debug {
    /// A process's engine is at work.
    fn live(&self, pid: Pid);

    /// A process got an answer about a pipeline.
    fn answered(&self, by: Pid, pipeline: &PipelineId, status: TraitStatus);

    /// A process tells, because it could not find out what is silenced.
    fn could_not_ask(&self);

    /// A channel took an alert.
    fn delivered(&self, channel: &str, key: &str);

    /// A process says outside that it is well, while its store is reached so.
    fn is_well(&self, pid: Pid, reach: Reach);

    /// A process died.
    fn died(&self, pid: Pid);
}

/// Silences, and the rows that they were read from.
type Known = (Vec<(String, u64)>, Vec<Silence>);

/// Evaluators and channels as one process sees them.
#[derive(Debug, Clone)]
pub struct Around {
    /// Time and tasks of the process.
    pub world: ProcessWorld,
    /// The true time.
    pub clockwork: Clockwork,
    /// How bad things are.
    pub luck: Arc<Luck>,
    /// Who looks on.
    pub onlooker: Arc<dyn Onlooker>,
    /// The ledger, which has the silences.
    pub store: Arc<dyn Store>,
    /// What was read last.
    pub silences: Arc<Mutex<Option<Known>>>,
    /// Whether silences are passed over: a mistake, to see it caught.
    pub is_loud: bool,
    /// Whether every answer is a yes: a mistake, to see it caught.
    pub trusts_blindly: bool,
    /// Whether what failed is taken for delivered: another one.
    pub drops_alerts: bool,
    /// Draws latencies and moods.
    pub random: Arc<Mutex<Random>>,
}

impl Around {
    fn below(&self, bound: u64) -> u64 {
        self.random.lock().unwrap_or_else(PoisonError::into_inner).below(bound)
    }

    fn is_hit(&self, per_mille: u64) -> bool {
        self.below(1_000) < per_mille
    }

    /// The silence that an alert falls under.
    async fn silence(&self, alert: &Alert, now: Timestamp) -> Option<HoldReason> {
        let read = self.store.sensors(&PipelineId::system()).await;
        let subject = Subject {
            level: &alert.level,
            alert_type: &alert.alert_type,
            pipeline: &alert.pipeline_id,
            owner: None,
            labels: None,
        };
        let mut known = self.silences.lock().unwrap_or_else(PoisonError::into_inner);
        // A store that does not answer ends no silence, and begins none.
        if let Ok(rows) = read {
            let read: Vec<_> = rows
                .iter()
                .filter(|(key, _)| key.starts_with(SILENCE_PREFIX))
                .map(|(key, row)| (key.clone(), row.revision))
                .collect();
            // Most of the time they are those of the last time.
            if known.as_ref().is_none_or(|(of, _)| *of != read) {
                let zones = SystemZones::new();
                let silences = rows.iter().filter_map(|(key, row)| {
                    let id = key.strip_prefix(SILENCE_PREFIX)?;
                    Silence::from_json(id, &row.record.value, &zones).ok()
                });
                *known = Some((read, silences.collect()));
            }
        }
        let Some((_, silences)) = &*known else {
            self.onlooker.could_not_ask();
            return None;
        };
        let mut theirs = silences.iter().filter(|silence| silence.when.matches(&subject));
        let until = theirs.find_map(|silence| silence.in_force(now))?;
        self.luck.saw("alert silenced");
        Some(HoldReason { reason: "a silence".to_owned(), until: Some(until) })
    }
}

impl Evaluators for Around {
    fn evaluate(&self, pipeline: &PipelineId, _: &TraitSpec) -> Task<TraitResult> {
        let (around, pipeline) = (self.clone(), pipeline.clone());
        Box::pin(async move {
            let trouble = around.luck.evaluators(around.clockwork.time());
            let is_calm = around.luck.is_calm();
            let status = match trouble {
                Some(Trouble::Hangs) => {
                    around.luck.saw("evaluator hung");
                    around.world.sleep(seconds(60)).await;
                    TraitStatus::Error
                }
                Some(Trouble::Fails | Trouble::Refuses) => {
                    around.luck.saw("evaluator failed");
                    TraitStatus::Error
                }
                Some(Trouble::Flaps | Trouble::Lies) if around.is_hit(500) => TraitStatus::Fail,
                None if around.is_hit(100) && !is_calm => TraitStatus::Fail,
                Some(Trouble::Flaps | Trouble::Lies) | None => TraitStatus::Pass,
            };
            if around.is_hit(200) {
                around.world.sleep(SignedDuration::from_millis(700)).await;
            }
            around.onlooker.answered(around.world.pid(), &pipeline, status);
            let status = if around.trusts_blindly { TraitStatus::Pass } else { status };
            TraitResult { status, value: None, reason: None, category: None }
        })
    }
}

impl Channels for Around {
    fn route<'a>(&'a self, _: &'a Alert) -> RouteFuture<'a> {
        Box::pin(std::future::ready(CHANNELS.map(str::to_owned).to_vec()))
    }

    fn instead_of<'a>(&'a self, channel: &'a str, _: &'a Alert) -> RouteFuture<'a> {
        let others = CHANNELS.iter().filter(|other| **other != channel);
        Box::pin(std::future::ready(others.map(|other| (*other).to_owned()).collect()))
    }

    fn hold<'a>(&'a self, alert: &'a Alert, now: Timestamp) -> HoldFuture<'a> {
        if self.is_loud {
            return Box::pin(std::future::ready(None));
        }
        Box::pin(self.silence(alert, now))
    }

    fn deliver(&self, channel: &str, notice: AlertMessage) -> DeliveryFuture {
        let (around, channel) = (self.clone(), channel.to_owned());
        Box::pin(async move {
            let failed =
                |reason: &str| Delivery::Failed { reason: reason.to_owned(), retry_after: None };
            let take = |around: &Self| around.onlooker.delivered(&channel, &notice.key);
            match around.luck.channel(&channel, around.clockwork.time()) {
                None if around.drops_alerts && around.is_hit(100) => Delivery::Delivered,
                None => {
                    if around.is_hit(100) {
                        around.world.sleep(seconds(1)).await;
                    }
                    take(&around);
                    Delivery::Delivered
                }
                Some(Trouble::Hangs) => {
                    around.world.sleep(seconds(10)).await;
                    around.luck.saw("channel failed");
                    failed("no answer in 10 s")
                }
                Some(Trouble::Lies) => {
                    take(&around);
                    around.luck.saw("delivered, but said failed");
                    failed("the answer was lost")
                }
                Some(Trouble::Refuses) if around.is_hit(300) => {
                    around.luck.saw("channel refused");
                    Delivery::Refused { reason: "no such address".to_owned() }
                }
                Some(_) if around.drops_alerts => Delivery::Delivered,
                Some(Trouble::Fails | Trouble::Flaps | Trouble::Refuses) => {
                    around.luck.saw("channel failed");
                    failed("it answered 500")
                }
            }
        })
    }
}
