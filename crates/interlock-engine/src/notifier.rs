//! The notifier: delivers what the outbox holds, and decides nothing else (S13, L4).
//!
//! A notification is claimed, tried, and settled, in this order; whoever dies in between leaves a claim that expires,
//! and the next one tries again under the same key. So each is delivered at least once per channel, or becomes a dead
//! letter that the other channels hear of.
//!
//! A notification comes without a channel: unless something speaks against telling now (`way`), it is replaced by one
//! for each channel that the routes name now. Channels do not wait for each other: each has a lane (`lane`), in which
//! what was claimed waits for its turn, a few tries at once; many at once become one message (`digest`).

mod digest;
mod drain;
mod ending;
mod history;
mod lane;
mod patience;
mod rows_read;
mod way;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    id::PipelineId,
    incident::{Alert, IncidentState},
};
use interlock_ports::channel::{Channels, Delivery};
use interlock_store::{
    CHANGES_MAX, Key, OutboxRow, Settlement, Store, StoreError, for_each, record::OutboxRecord,
};
use jiff::{SignedDuration, Timestamp};
use tokio::sync::{Notify, mpsc};

pub use self::{
    drain::{DeliveryState, Undelivered},
    patience::Patience,
};
use self::{lane::Lane, rows_read::RowsRead, way::Way};
use crate::{
    scheduler::plus,
    seam::{Task, World},
    vitals::{Pulse, Vitals},
};

/// Notifications that are claimed at once, and that wait for their turn at most.
const CLAIMED_AT_ONCE: usize = 1_000;
const QUEUED_MAX: usize = 16_000;
/// How soon the outbox is looked at again while there is more to do.
const SOON: SignedDuration = SignedDuration::from_millis(50);

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

/// A try that ended.
#[derive(Debug)]
struct Tried {
    /// Notifications that were told as one.
    rows: Vec<OutboxRow>,
    /// What came of it.
    delivery: Delivery,
    /// How long it took.
    took: Duration,
}

/// Delivers notifications.
pub struct Notifier {
    world: Arc<dyn World>,
    store: Arc<dyn Store>,
    channels: Arc<dyn Channels>,
    patience: Patience,
    vitals: Arc<Vitals>,
    pulse: Pulse,
    /// What waits for each channel, and how the channel does.
    lanes: BTreeMap<String, Lane>,
    /// What is in a lane or being tried.
    in_hand: BTreeSet<(PipelineId, String)>,
    /// When the outbox is looked into next.
    claim_at: Timestamp,
    sender: mpsc::UnboundedSender<Tried>,
    tried: mpsc::UnboundedReceiver<Tried>,
    /// Tells when there is something new in the outbox.
    news: Arc<Notify>,
}

impl Notifier {
    /// A notifier; several may share an outbox.
    pub fn new(parts: NotifierParts) -> Self {
        let NotifierParts { world, store, channels, patience, vitals, pulse } = parts;
        let (sender, tried) = mpsc::unbounded_channel();
        Self {
            world,
            store,
            channels,
            patience,
            vitals,
            pulse,
            lanes: BTreeMap::new(),
            in_hand: BTreeSet::new(),
            claim_at: Timestamp::MIN,
            sender,
            tried,
            news: Arc::default(),
        }
    }

    /// The same, looking into the outbox at once when it is told that there is something new.
    #[must_use]
    pub fn woken_by(self, news: Arc<Notify>) -> Self {
        Self { news, ..self }
    }

    /// Delivers until it is told to stop or the store fails for good. What waits then goes back to the outbox; what is
    /// being tried, and does not end in a moment, is tried again by the next one.
    pub async fn run(mut self, mut stop: Task<()>) -> Result<(), StoreError> {
        loop {
            self.pulse.beat();
            let look = match self.pass().await {
                Ok(true) => SOON,
                Ok(false) => self.patience.look,
                Err(error) if error.is_retryable => {
                    tracing::warn!(%error, "cannot read the outbox; trying again");
                    self.patience.pause
                }
                Err(error) => return Err(error),
            };
            let sleep = self.world.sleep_until(plus(self.world.now(), look));
            let news = Arc::clone(&self.news);
            let tried = tokio::select! {
                biased;
                () = &mut stop => return self.leave().await,
                tried = self.tried.recv() => tried,
                () = news.notified() => {
                    self.claim_at = Timestamp::MIN;
                    None
                }
                () = sleep => None,
            };
            if let Some(tried) = tried {
                match self.advance(Some(tried)).await {
                    Err(error) if error.is_retryable => {
                        tracing::warn!(%error, "cannot record a delivery; the alert will be sent again");
                    }
                    settled => settled?,
                }
            }
        }
    }

    /// Records what was tried, and tries what may be tried; says whether there may be more to try soon.
    async fn pass(&mut self) -> Result<bool, StoreError> {
        self.advance(None).await?;
        let queued: usize = self.lanes.values().map(Lane::waiting).sum();
        let limit = CLAIMED_AT_ONCE.min(QUEUED_MAX.saturating_sub(queued));
        let mut more = false;
        if limit > 0 && self.may_claim() {
            let mut rows = self.store.claim(limit, self.patience.claim).await?;
            // What was claimed may have become something that can be claimed.
            more = !rows.is_empty();
            let pause = if more { SignedDuration::ZERO } else { self.patience.look };
            self.claim_at = plus(self.world.now(), pause);
            // A try that outlives its claim: its end will settle it.
            rows.retain(|row| !self.in_hand.contains(&named_row(row)));
            // An end waits for a beginning in somebody's hands: those that came together must not wait for each other.
            let (ends, others) = rows.into_iter().partition(|row| row.record.after.is_some());
            self.take(others).await?;
            self.take(ends).await?;
            self.advance(None).await?;
        }
        Ok(more || self.lanes.values().any(|lane| lane.waiting() > 0))
    }

    /// Whether it is time to look into the outbox again: not each time that a lane moves on, and not while one that is
    /// quick has enough to do.
    fn may_claim(&self) -> bool {
        let now = self.world.now();
        // A clock that was set back must not make it wait.
        let is_time = now >= self.claim_at || self.claim_at > plus(now, self.patience.look);
        // A digest is gathered until nothing more comes.
        let is_fed = |(channel, lane): (&String, &Lane)| {
            lane.is_fed(now) && !self.channels.manner(channel).takes_digests
        };
        is_time && !self.lanes.iter().any(is_fed)
    }

    /// Notes what came of tries, begins others, and then writes down what came of them: receivers need not wait for the
    /// store.
    async fn advance(&mut self, tried: Option<Tried>) -> Result<(), StoreError> {
        let mut all: Vec<Tried> = tried.into_iter().collect();
        while let Ok(tried) = self.tried.try_recv() {
            all.push(tried);
        }
        let mut settlements = Vec::new();
        for tried in &all {
            settlements.extend(self.conclude(tried).await);
        }
        settlements.extend(self.start().await);
        self.finish(&all, settlements).await
    }

    /// Writes down what came of tries.
    async fn record(&mut self, all: Vec<Tried>) -> Result<(), StoreError> {
        let mut settlements = Vec::new();
        for tried in &all {
            settlements.extend(self.conclude(tried).await);
        }
        self.finish(&all, settlements).await
    }

    /// Settles; until then what was tried is not tried again.
    async fn finish(
        &mut self,
        tried: &[Tried],
        settlements: Vec<Settlement>,
    ) -> Result<(), StoreError> {
        let settled = self.settle(settlements).await;
        for row in tried.iter().flat_map(|tried| &tried.rows) {
            self.in_hand.remove(&named_row(row));
        }
        settled.map(drop)
    }

    /// Writes settlements, all at once; answers with the rows that stay claimed by us. What cannot be written now is
    /// claimed again when its claim has expired.
    async fn settle(&self, settlements: Vec<Settlement>) -> Result<Vec<OutboxRow>, StoreError> {
        if settlements.is_empty() {
            return Ok(Vec::new());
        }
        let (mut claimed, mut late) = (Vec::new(), None);
        for outcome in self.store.settle_many(settlements).await? {
            match outcome {
                Ok(rows) => claimed.extend(rows),
                Err(error) if error.is_retryable => late = Some(error),
                Err(error) => return Err(error),
            }
        }
        if let Some(error) = late {
            tracing::warn!(%error, "cannot record the outcome of some deliveries; the alerts will be sent again");
        }
        Ok(claimed)
    }

    /// Decides about what was claimed: what may be told goes into its lane, the rest is settled.
    async fn take(&mut self, rows: Vec<OutboxRow>) -> Result<(), StoreError> {
        let mut rows = rows;
        // What goes to channels is decided about once more: each may have reasons of its own.
        while !rows.is_empty() {
            rows = self.decide(rows).await?;
        }
        Ok(())
    }

    /// Decides once; answers with what goes to channels now, and stays in our hands.
    async fn decide(&mut self, rows: Vec<OutboxRow>) -> Result<Vec<OutboxRow>, StoreError> {
        let mut wanted: BTreeMap<PipelineId, Vec<Key>> = BTreeMap::new();
        for row in &rows {
            wanted.entry(row.pipeline.clone()).or_default().extend(self.keys_of_way(row));
        }
        self.channels.prepare(wanted.keys().cloned().collect()).await;
        wanted.retain(|_, keys| !keys.is_empty());
        let known = RowsRead::read(&*self.store, wanted).await?;
        let decided = for_each(rows, |row| async {
            let way = self.way(&row, &known).await?;
            if matches!(way, Way::Free) && !row.record.channel.is_empty() {
                return Ok((Some(row), Vec::new()));
            }
            Ok((None, self.go(row, way).await))
        });
        let (queued, settlements): (Vec<_>, Vec<_>) = decided.await?.into_iter().unzip();
        let now = self.world.now();
        for row in queued.into_iter().flatten() {
            self.in_hand.insert(named_row(&row));
            self.lanes.entry(row.record.channel.clone()).or_default().queue(row, now);
        }
        self.settle(settlements.into_iter().flatten().collect()).await
    }

    /// Goes a way that is not yet the way to a channel.
    async fn go(&self, row: OutboxRow, way: Way) -> Vec<Settlement> {
        match way {
            Way::Free => vec![self.route(row).await],
            Way::Moot => vec![Settlement::new(row, vec![])],
            Way::NotBefore(at) => vec![self.put_back(row, at).await],
            Way::Held(hold) => {
                if row.record.held.is_none() {
                    self.vitals.notifications.add("held", 1);
                }
                let record = OutboxRecord {
                    not_before: hold.until.unwrap_or(Timestamp::MAX),
                    held: Some(hold.reason),
                    ..row.record.clone()
                };
                let becomes = vec![(row.name.clone(), record)];
                vec![Settlement::new(row, becomes)]
            }
            Way::Unheard(beginnings) => self.drop_unheard(row, beginnings).await,
        }
    }

    /// Replaces a notification without a channel by one for each channel that gets it. They stay in our hands: a second
    /// claim would be one more write of each.
    async fn route(&self, row: OutboxRow) -> Settlement {
        let alert = Alert::from_json(&row.record.alert);
        let mut channels = self.channels.route(&alert).await;
        if channels.is_empty() {
            tracing::info!("no channel takes this alert; it is only recorded: {alert}");
        }
        if channels.len() > CHANGES_MAX {
            let (all, last) = (channels.len(), CHANGES_MAX);
            tracing::error!("{all} channels take one alert; only the first {last} get it");
            channels.truncate(CHANGES_MAX);
        }
        let now = self.world.now();
        let becomes = channels.into_iter().map(|channel| {
            let manner = self.channels.manner(&channel);
            let is_later = manner.after.is_some() || manner.findings > 1;
            let mut record = OutboxRecord {
                channel: channel.clone(),
                alert: released(&row.record, now).into(),
                held: None,
                ..row.record.clone()
            };
            if is_later && alert.state() == Some(IncidentState::Open) {
                // Whether its turn has come is asked when it is claimed.
                record.held = Some("a later escalation step, not due yet".to_owned());
            }
            (named(&row.name, &channel), record)
        });
        let becomes = becomes.collect();
        Settlement { keeps_claim: true, ..Settlement::new(row, becomes) }
    }

    /// Lets a notification wait.
    async fn put_back(&self, row: OutboxRow, not_before: Timestamp) -> Settlement {
        let now = self.world.now();
        let record = OutboxRecord { not_before, ..row.record.clone() };
        if !record.channel.is_empty() && self.is_too_old(&record, now) {
            return self.give_up(&row, record, now).await;
        }
        let becomes = vec![(row.name.clone(), record)];
        Settlement::new(row, becomes)
    }
}

/// Which row it is.
fn named_row(row: &OutboxRow) -> (PipelineId, String) {
    (row.pipeline.clone(), row.name.clone())
}

/// The name of a notification on a channel.
fn named(name: &str, channel: &str) -> String {
    format!("{name}@{channel}")
}

/// The alert of a notification that may go out; one that was held back says so.
fn released(record: &OutboxRecord, now: Timestamp) -> serde_json::Value {
    let Some(held) = &record.held else { return record.alert.as_ref().clone() };
    let mut alert = Alert::from_json(&record.alert);
    alert.details.insert("heldBack".to_owned(), held.as_str().into());
    alert.details.insert("toldAt".to_owned(), now.to_string().into());
    alert.to_json()
}

impl std::fmt::Debug for Notifier {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Notifier").field("lanes", &self.lanes).finish_non_exhaustive()
    }
}

impl std::fmt::Debug for NotifierParts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("NotifierParts").field("patience", &self.patience).finish_non_exhaustive()
    }
}
