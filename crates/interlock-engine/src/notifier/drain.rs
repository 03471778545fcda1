//! Delivering what is there and ending: for a process that does not stay, such as a single pass of the watchdog.

use std::sync::Arc;

use interlock_core::id::PipelineId;
use interlock_store::{Key, Record, StoreError, record::OutboxRecord, together};
use jiff::{SignedDuration, Timestamp};

use super::{Notifier, SOON, named, named_row};
use crate::scheduler::plus;

/// A notification that a drain has left behind.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Undelivered {
    /// Of which pipeline.
    pub pipeline: PipelineId,
    /// Which one, by its name before it had a channel.
    pub name: String,
    /// For which channel; empty before it has one.
    pub channel: String,
    /// How it stands.
    pub state: DeliveryState,
}

/// How a notification stands that is still in the outbox.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliveryState {
    /// It is tried again then, by whichever notifier looks.
    Retrying {
        /// Not before this.
        at: Timestamp,
        /// Why it was not delivered; nothing if it was never tried.
        error: Option<String>,
    },
    /// Not to be told now, for a reason.
    Held(String),
    /// It was given up, and the other channels are told.
    Dead(String),
}

/// How long tries that are under way are waited for at the end.
const LEAVE_IN: SignedDuration = SignedDuration::from_secs(1);

impl Notifier {
    /// Puts back what waits for its turn, and records what comes of the tries that end in a moment.
    pub(super) async fn leave(mut self) -> Result<(), StoreError> {
        let now = self.world.now();
        let mut waiting = Vec::new();
        for lane in self.lanes.values_mut() {
            waiting.extend(lane.take_waiting());
        }
        let mut settlements = Vec::with_capacity(waiting.len());
        for row in waiting {
            self.in_hand.remove(&named_row(&row));
            settlements.push(self.put_back(row, now).await);
        }
        self.settle(settlements).await?;
        let mut over = self.world.sleep_until(plus(now, LEAVE_IN));
        while !self.in_hand.is_empty() {
            let tried = tokio::select! {
                biased;
                tried = self.tried.recv() => tried,
                () = &mut over => return Ok(()),
            };
            match tried {
                Some(tried) => self.record(vec![tried]).await?,
                None => return Ok(()),
            }
        }
        Ok(())
    }

    /// Delivers what may be tried now, and goes on until nothing is left of the named notifications that could still be
    /// delivered before a deadline. Answers with those that are left then: they stay in the outbox.
    pub async fn drain(
        mut self,
        names: &[(PipelineId, String)],
        deadline: Timestamp,
    ) -> Result<Vec<Undelivered>, StoreError> {
        loop {
            self.pulse.beat();
            let is_idle = match self.pass().await {
                Ok(more) => !more && self.in_hand.is_empty(),
                Err(error) if error.is_retryable && self.world.now() < deadline => {
                    tracing::warn!(%error, "cannot read the outbox; trying again");
                    false
                }
                Err(error) => return Err(error),
            };
            let now = self.world.now();
            let mut wake = plus(now, SOON);
            if is_idle || now >= deadline {
                let left = self.undelivered(names).await?;
                match left.iter().filter_map(Undelivered::retried_at).min() {
                    Some(at) if at < deadline && now < deadline => wake = wake.max(at),
                    Some(_) | None => return Ok(left),
                }
            }
            let sleep = self.world.sleep_until(wake.min(deadline));
            let tried = tokio::select! {
                biased;
                tried = self.tried.recv() => tried,
                () = sleep => None,
            };
            if let Some(tried) = tried {
                self.advance(Some(tried)).await?;
            }
        }
    }

    /// What the outbox still has of the named notifications.
    async fn undelivered(
        &self,
        names: &[(PipelineId, String)],
    ) -> Result<Vec<Undelivered>, StoreError> {
        let keys: Vec<Vec<Key>> = names.iter().map(|(_, name)| self.keys(name)).collect();
        let asked =
            names.iter().zip(&keys).map(|((pipeline, _), keys)| self.store.read(pipeline, keys));
        let rows = together(asked.collect()).await?;
        let mut left = Vec::new();
        for ((pipeline, name), rows) in names.iter().zip(rows) {
            for row in rows.into_iter().flatten() {
                let Record::Outbox(record) = row.record else { continue };
                let record = Arc::unwrap_or_clone(record);
                let (pipeline, name) = (pipeline.clone(), name.clone());
                let channel = record.channel.clone();
                let state = state(record);
                left.push(Undelivered { pipeline, name, channel, state });
            }
        }
        Ok(left)
    }

    /// Where a notification may stand: under its own name, and for each channel that this notifier has had to do with.
    fn keys(&self, name: &str) -> Vec<Key> {
        let of_channels = self.lanes.keys().map(|channel| named(name, channel));
        std::iter::once(name.to_owned()).chain(of_channels).map(Key::Outbox).collect()
    }
}

impl Undelivered {
    fn retried_at(&self) -> Option<Timestamp> {
        match self.state {
            DeliveryState::Retrying { at, .. } => Some(at),
            DeliveryState::Held(_) | DeliveryState::Dead(_) => None,
        }
    }
}

fn state(record: OutboxRecord) -> DeliveryState {
    let OutboxRecord { dead, held, last_error: error, not_before, claimed_until, .. } = record;
    match (dead, held) {
        (true, _) => DeliveryState::Dead(error.unwrap_or_default()),
        (false, Some(reason)) => DeliveryState::Held(reason),
        (false, None) => DeliveryState::Retrying {
            at: not_before.max(claimed_until.unwrap_or(not_before)),
            error,
        },
    }
}
