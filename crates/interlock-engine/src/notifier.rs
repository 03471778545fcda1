//! The notifier: delivers what the outbox holds, and decides nothing else (S13, L4).
//!
//! A notification is claimed, tried, and settled, in this order; whoever dies in between leaves a claim that expires,
//! and the next one tries again under the same key. So each is delivered at least once per channel, or becomes a dead
//! letter that the other channels hear of.
//!
//! A notification comes without a channel: it is first replaced by one for each channel that the routes name now.
//! Channels do not wait for each other: tries run beside the loop, a few per channel; a channel that fails is left
//! alone for a growing while (its breaker), and what waits for it goes to the back, so that it is not in the way.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
};

use interlock_alert::{Channels, Delivery, Notice};
use interlock_core::{
    id::PipelineId,
    incident::{Alert, Level},
};
use interlock_store::{
    CHANGES_MAX, Key, OutboxRow, Record, Row, Store, StoreError, record::OutboxRecord,
};
use jiff::{SignedDuration, Timestamp};
use serde_json::json;
use tokio::sync::mpsc;

use crate::{
    scheduler::plus,
    seam::{Task, World},
    vitals::{Pulse, Vitals},
};

/// Tries under way per channel; also how many notifications are claimed at once.
const TRIES_AT_ONCE: usize = 16;
/// Failures in a row after which a channel is left alone.
const FAILURES_MAX: u32 = 3;
/// How soon the outbox is looked at again while there is more in it.
const SOON: SignedDuration = SignedDuration::from_millis(50);
/// The type of the alert that tells of a dead letter.
const UNDELIVERED: &str = "alert_undelivered";

/// How long, and how often.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// How often the outbox is looked at.
    pub look: SignedDuration,
    /// How long a claim lasts: longer than any try.
    pub claim: SignedDuration,
    /// The pause after the first failure; it doubles.
    pub pause: SignedDuration,
    /// The longest pause.
    pub pause_max: SignedDuration,
    /// So many tries, then it is a dead letter.
    pub tries_max: u32,
    /// Older than this and still not delivered: a dead letter.
    pub age_max: SignedDuration,
}

impl Default for Patience {
    fn default() -> Self {
        Self {
            look: SignedDuration::from_millis(500),
            claim: SignedDuration::from_secs(20),
            pause: SignedDuration::from_secs(5),
            pause_max: SignedDuration::from_mins(15),
            tries_max: 12,
            age_max: SignedDuration::from_hours(24),
        }
    }
}

/// What a notifier is made of.
pub struct NotifierParts {
    /// Time and tasks.
    pub world: Arc<dyn World>,
    /// The outbox.
    pub store: Arc<dyn Store>,
    /// Who is told, and how.
    pub channels: Arc<dyn Channels>,
    /// How long, and how often.
    pub patience: Patience,
    /// Where what came of tries is counted.
    pub vitals: Arc<Vitals>,
    /// Moves with each look at the outbox.
    pub pulse: Pulse,
}

/// Delivers notifications.
pub struct Notifier {
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
    channels: Arc<dyn Channels>,
    patience: Patience,
    vitals: Arc<Vitals>,
    pulse: Pulse,
    /// How the channels do; those that are not here do well.
    health: BTreeMap<String, Health>,
    /// What is being tried.
    under_way: BTreeSet<(PipelineId, String)>,
    sender: mpsc::UnboundedSender<(OutboxRow, Delivery)>,
    tried: mpsc::UnboundedReceiver<(OutboxRow, Delivery)>,
}

/// How a channel does.
#[derive(Debug, Clone, Copy, Default)]
struct Health {
    under_way: usize,
    /// In a row.
    failures: u32,
    /// It is left alone until then.
    shut_until: Option<Timestamp>,
}

impl Health {
    /// How many tries at once: one, to find out, while the last one failed.
    fn places(&self) -> usize {
        if self.failures == 0 { TRIES_AT_ONCE } else { 1 }
    }
}

/// What stands in the way of a notification.
enum Way {
    Free,
    /// It is to be tried again then.
    NotBefore(Timestamp),
    /// What it would be the end of was never told there.
    Moot,
}

impl Notifier {
    /// A notifier; several may share an outbox.
    pub fn new(parts: NotifierParts) -> Self {
        let NotifierParts { world, store, channels, patience, vitals, pulse } = parts;
        let (sender, tried) = mpsc::unbounded_channel();
        let (health, under_way) = (BTreeMap::new(), BTreeSet::new());
        Self { world, store, channels, patience, vitals, pulse, health, under_way, sender, tried }
    }

    /// Delivers until it is told to stop or the store fails for good. What is being tried then is tried again by
    /// the next one.
    pub async fn run(mut self, mut stop: Task<()>) -> Result<(), StoreError> {
        loop {
            self.pulse.beat();
            let look = match self.pass().await {
                Ok(true) => SOON,
                Ok(false) => self.patience.look,
                Err(error) if error.is_retryable => {
                    tracing::warn!(%error, "the outbox cannot be had; trying again");
                    self.patience.pause
                }
                Err(error) => return Err(error),
            };
            let sleep = self.world.sleep_until(plus(self.world.now(), look));
            let tried = tokio::select! {
                biased;
                () = &mut stop => return Ok(()),
                tried = self.tried.recv() => tried,
                () = sleep => None,
            };
            if let Some((row, delivery)) = tried {
                match self.settle(row, delivery).await {
                    Err(error) if error.is_retryable => {
                        tracing::warn!(%error, "a delivery cannot be recorded; it will be repeated");
                    }
                    settled => settled?,
                }
            }
        }
    }

    /// Records what was tried, and tries what may be tried; says whether there may be more to try.
    pub async fn pass(&mut self) -> Result<bool, StoreError> {
        while let Ok((row, delivery)) = self.tried.try_recv() {
            self.settle(row, delivery).await?;
        }
        let rows = self.store.claim(TRIES_AT_ONCE, self.patience.claim).await?;
        let more = rows.len() == TRIES_AT_ONCE;
        for row in rows {
            self.take(row).await?;
        }
        Ok(more)
    }

    async fn take(&mut self, row: OutboxRow) -> Result<(), StoreError> {
        if self.under_way.contains(&(row.pipeline.clone(), row.name.clone())) {
            // A try that outlives its claim: its end will settle it.
            return Ok(());
        }
        match self.way(&row).await? {
            Way::Moot => self.store.settle(&row, vec![]).await,
            Way::NotBefore(at) => self.put_back(row, at).await,
            Way::Free if row.record.channel.is_empty() => self.route(row).await,
            Way::Free => {
                self.begin(row);
                Ok(())
            }
        }
    }

    /// Whether a notification may be tried now.
    async fn way(&self, row: &OutboxRow) -> Result<Way, StoreError> {
        let now = self.world.now();
        let channel = &row.record.channel;
        if let Some(after) = &row.record.after {
            let mut keys = vec![Key::Outbox(after.clone())];
            if !channel.is_empty() {
                keys.push(Key::Outbox(named(after, channel)));
            }
            let rows = self.store.read(&row.pipeline, &keys).await?;
            let mut waiting = rows.into_iter().flatten().peekable();
            let is_dead = |row: &Row<Record>| matches!(&row.record, Record::Outbox(o) if o.dead);
            if waiting.peek().is_some() {
                let is_moot = waiting.all(|row| is_dead(&row));
                let later = Way::NotBefore(plus(now, self.patience.look));
                return Ok(if is_moot { Way::Moot } else { later });
            }
        }
        let health = self.health.get(channel).copied().unwrap_or_default();
        Ok(match health.shut_until {
            Some(until) if until > now => Way::NotBefore(until),
            _ if health.under_way >= health.places() => {
                Way::NotBefore(plus(now, self.patience.pause))
            }
            _ => Way::Free,
        })
    }

    /// Replaces a notification without a channel by one for each channel that gets it.
    async fn route(&self, row: OutboxRow) -> Result<(), StoreError> {
        let alert = Alert::from_json(&row.record.alert);
        let mut channels = self.channels.route(&alert).await;
        if channels.is_empty() {
            tracing::info!("no channel asks for this alert; it is recorded only: {alert}");
        }
        if channels.len() > CHANGES_MAX {
            let (all, last) = (channels.len(), CHANGES_MAX);
            tracing::error!("{all} channels ask for one alert, and only the first {last} get it");
            channels.truncate(CHANGES_MAX);
        }
        let becomes = channels.into_iter().map(|channel| {
            let record = OutboxRecord { channel: channel.clone(), ..row.record.clone() };
            (named(&row.name, &channel), record)
        });
        self.store.settle(&row, becomes.collect()).await
    }

    /// Begins a try, beside the loop.
    fn begin(&mut self, row: OutboxRow) {
        let channel = row.record.channel.clone();
        self.health.entry(channel.clone()).or_default().under_way += 1;
        self.under_way.insert((row.pipeline.clone(), row.name.clone()));
        let notice = Notice {
            alert: Alert::from_json(&row.record.alert),
            key: format!("{}/{}", row.pipeline, row.name),
            at: self.world.now(),
        };
        let (delivery, sender) = (self.channels.deliver(&channel, notice), self.sender.clone());
        let task = async move {
            let delivery = delivery.await;
            let _loop_is_gone = sender.send((row, delivery));
        };
        self.world.spawn("deliver an alert", Box::pin(task));
    }

    /// Records what came of a try.
    async fn settle(&mut self, row: OutboxRow, delivery: Delivery) -> Result<(), StoreError> {
        self.under_way.remove(&(row.pipeline.clone(), row.name.clone()));
        let now = self.world.now();
        let health = self.health.entry(row.record.channel.clone()).or_default();
        health.under_way = health.under_way.saturating_sub(1);
        let (channel, tries) = (&row.record.channel, row.record.tries + 1);
        match delivery {
            Delivery::Delivered => {
                (health.failures, health.shut_until) = (0, None);
                self.vitals.notifications.add("delivered", 1);
                self.store.settle(&row, vec![]).await
            }
            Delivery::Failed { reason, retry_after } => {
                health.failures += 1;
                let asked = retry_after.map(|pause| plus(now, pause));
                let failures = health.failures;
                let shut = (failures >= FAILURES_MAX)
                    .then(|| plus(now, self.patience.pause_after(failures - FAILURES_MAX + 1)));
                health.shut_until = shut.max(asked);
                tracing::warn!(channel, tries, reason, "an alert was not delivered");
                let again = plus(now, self.patience.pause_after(tries)).max(asked.unwrap_or(now));
                let record = OutboxRecord {
                    tries,
                    not_before: again,
                    last_error: Some(reason),
                    ..row.record.clone()
                };
                if tries >= self.patience.tries_max || self.is_too_old(&record, now) {
                    return self.give_up(&row, record, now).await;
                }
                self.vitals.notifications.add("retried", 1);
                self.store.settle(&row, vec![(row.name.clone(), record)]).await
            }
            Delivery::Refused { reason } => {
                let record = OutboxRecord { tries, last_error: Some(reason), ..row.record.clone() };
                self.give_up(&row, record, now).await
            }
        }
    }

    /// Lets a notification wait.
    async fn put_back(&self, row: OutboxRow, not_before: Timestamp) -> Result<(), StoreError> {
        let now = self.world.now();
        let record = OutboxRecord { not_before, ..row.record.clone() };
        if !record.channel.is_empty() && self.is_too_old(&record, now) {
            return self.give_up(&row, record, now).await;
        }
        self.store.settle(&row, vec![(row.name.clone(), record)]).await
    }

    fn is_too_old(&self, record: &OutboxRecord, now: Timestamp) -> bool {
        let age = now.duration_since(Alert::from_json(&record.alert).timestamp);
        record.tries > 0 && age > self.patience.age_max
    }

    /// A dead letter: it stays where people find it, and the other channels hear of it.
    async fn give_up(
        &self,
        row: &OutboxRow,
        record: OutboxRecord,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let alert = Alert::from_json(&record.alert);
        let (channel, tries) = (record.channel.clone(), record.tries);
        let reason = record.last_error.clone().unwrap_or_default();
        tracing::error!(channel, tries, reason, "an alert is given up: {alert}");
        self.vitals.notifications.add("dead", 1);
        let mut becomes = vec![(row.name.clone(), OutboxRecord { dead: true, ..record.clone() })];
        // That a dead letter was not told either is in the log and in the list; telling it would never end.
        if alert.alert_type != UNDELIVERED {
            let others = self.channels.instead_of(&channel, &alert).await;
            let told = undelivered(&alert, &record, now).to_json();
            becomes.extend(others.into_iter().take(CHANGES_MAX - 1).map(|other| {
                let name = named(&format!("{}~dead", row.name), &other);
                let record = OutboxRecord {
                    channel: other,
                    alert: told.clone(),
                    tries: 0,
                    not_before: now,
                    claimed_until: None,
                    last_error: None,
                    dead: false,
                    after: None,
                    held: None,
                };
                (name, record)
            }));
        }
        self.store.settle(row, becomes).await
    }
}

/// The name of a notification on a channel.
fn named(name: &str, channel: &str) -> String {
    format!("{name}@{channel}")
}

/// The alert that tells of a dead letter.
fn undelivered(alert: &Alert, record: &OutboxRecord, now: Timestamp) -> Alert {
    let OutboxRecord { channel, tries, last_error, .. } = record;
    let reason = last_error.as_deref().unwrap_or("no reason is known");
    let times = if *tries == 1 { "once".to_owned() } else { format!("{tries} times") };
    let message = format!(
        "The alert channel {channel} was tried {times} and could not deliver: {reason}. What it should have said: {}",
        alert.message
    );
    Alert {
        level: Level::Error.as_str().to_owned(),
        alert_type: UNDELIVERED.to_owned(),
        pipeline_id: alert.pipeline_id.clone(),
        message,
        details: BTreeMap::from([
            ("channel".to_owned(), json!(channel)),
            ("tries".to_owned(), json!(tries)),
            ("error".to_owned(), json!(reason)),
            ("alert".to_owned(), alert.to_json()),
        ]),
        timestamp: now,
    }
}

impl Patience {
    /// The pause after so many failures.
    fn pause_after(&self, failures: u32) -> SignedDuration {
        let factor = 2_i32.saturating_pow(failures.saturating_sub(1).min(30));
        self.pause.checked_mul(factor).unwrap_or(self.pause_max).min(self.pause_max)
    }
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").field("health", &self.health).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for NotifierParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifierParts").field("patience", &self.patience).finish_non_exhaustive()
    }
}
