//! The lane of a channel: what was claimed for it waits here for its turn.
//!
//! A few tries at once, one at a time to find out while the last one failed, none while the breaker is open: what
//! waits then goes back to the outbox. What waits too long for its claim is let go; it is claimed again.

use std::collections::VecDeque;

use interlock_core::incident::{Alert, IncidentState};
use interlock_store::{OutboxRow, StoreError, StoreFuture, together};
use jiff::{SignedDuration, Timestamp};

use super::{Notifier, digest, named_row};
use crate::scheduler::plus;

/// Tries under way per channel, and before the first one was taken.
const TRIES_AT_ONCE: usize = 16;
const TRIES_AT_FIRST: usize = 4;
/// Failures in a row after which a channel is left alone.
const FAILURES_MAX: u32 = 3;
/// What a try may take: a claim that lasts no longer is not begun with.
const TRY_MAX: SignedDuration = SignedDuration::from_secs(10);
/// What waits at most for a channel that takes no digests.
const WAITING_MAX: usize = 250;
/// More of a kind than this, waiting for a channel that takes them, become one message.
const DIGEST_ABOVE: usize = 10;
/// A digest is gathered until nothing came for so long, or since the first for so long.
const QUIET: SignedDuration = SignedDuration::from_secs(1);
const GATHERED: SignedDuration = SignedDuration::from_secs(8);
/// For so long after a digest whatever comes is gathered too: the rest of a storm is no news by itself.
const STORM: SignedDuration = SignedDuration::from_secs(30);

/// What waits for a channel, and how it does.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Each with what it says of its incident.
    queue: VecDeque<(Option<IncidentState>, OutboxRow)>,
    /// When the first of what waits came, and the last.
    came: Option<(Timestamp, Timestamp)>,
    under_way: usize,
    /// In a row.
    failures: u32,
    is_proven: bool,
    /// It is left alone until then.
    shut_until: Option<Timestamp>,
    /// Until then there is a storm of alerts.
    storm_until: Option<Timestamp>,
}

impl Lane {
    pub(super) fn waiting(&self) -> usize {
        self.queue.len()
    }

    /// Takes out all that waits.
    pub(super) fn take_waiting(&mut self) -> Vec<OutboxRow> {
        self.queue.drain(..).map(|(_, row)| row).collect()
    }

    pub(super) fn queue(&mut self, row: OutboxRow, now: Timestamp) {
        let first = self.came.map_or(now, |(first, _)| first);
        self.came = Some((first, now));
        self.queue.push_back((Alert::from_json(&row.record.alert).state(), row));
    }

    pub(super) fn delivered(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
        (self.failures, self.shut_until, self.is_proven) = (0, None, true);
    }

    pub(super) fn refused(&mut self) {
        self.under_way = self.under_way.saturating_sub(1);
    }

    /// So many failures in a row there are now.
    pub(super) fn failed(&mut self) -> u32 {
        self.under_way = self.under_way.saturating_sub(1);
        self.failures += 1;
        self.failures
    }

    pub(super) fn shut(&mut self, until: Option<Timestamp>) {
        self.shut_until = until;
    }

    /// How many tries at once: one, to find out, while the last one failed.
    fn places(&self) -> usize {
        match (self.failures, self.is_proven) {
            (0, true) => TRIES_AT_ONCE,
            (0, false) => TRIES_AT_FIRST,
            _ => 1,
        }
    }

    /// Takes what is to be told as one message, if there is so much and nothing more comes.
    fn take_digest(&mut self, now: Timestamp) -> Option<Vec<OutboxRow>> {
        let (first, last) = self.came?;
        let is_whole = now >= plus(last, QUIET) || now >= plus(first, GATHERED);
        for kind in [IncidentState::Open, IncidentState::Resolved] {
            if is_whole && self.count(kind) > self.digest_above(now) {
                let all = std::mem::take(&mut self.queue);
                let (taken, left): (VecDeque<_>, VecDeque<_>) =
                    all.into_iter().partition(|(state, _)| *state == Some(kind));
                self.queue = left;
                if taken.len() > DIGEST_ABOVE {
                    self.storm_until = Some(plus(now, STORM));
                }
                return Some(taken.into_iter().map(|(_, row)| row).collect());
            }
        }
        None
    }

    fn count(&self, kind: IncidentState) -> usize {
        self.queue.iter().filter(|(state, _)| *state == Some(kind)).count()
    }

    /// Whether so much waits that it is being gathered.
    fn is_gathering(&self, now: Timestamp) -> bool {
        [IncidentState::Open, IncidentState::Resolved]
            .into_iter()
            .any(|kind| self.count(kind) > self.digest_above(now))
    }

    fn digest_above(&self, now: Timestamp) -> usize {
        if self.storm_until.is_some_and(|until| until > now) { 0 } else { DIGEST_ABOVE }
    }

    /// Lets go of what waits too long for its claim.
    fn let_go(&mut self, now: Timestamp) -> Vec<OutboxRow> {
        let begin_by = plus(now, TRY_MAX);
        let lasts = |row: &OutboxRow| row.record.claimed_until.is_none_or(|at| at >= begin_by);
        let all = std::mem::take(&mut self.queue);
        let (kept, gone): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|(_, row)| lasts(row));
        self.queue = kept;
        gone.into_iter().map(|(_, row)| row).collect()
    }
}

impl Notifier {
    /// Begins the tries for which there is a place.
    pub(super) async fn start(&mut self) -> Result<(), StoreError> {
        let now = self.world.now();
        let names: Vec<String> = self.lanes.keys().cloned().collect();
        for channel in names {
            let takes_digests = self.channels.manner(&channel).takes_digests;
            let Some(lane) = self.lanes.get_mut(&channel) else { continue };
            let mut back = Vec::new();
            let mut tries = Vec::new();
            if let Some(until) = lane.shut_until.filter(|until| *until > now) {
                back.extend(lane.queue.drain(..).map(|(_, row)| (row, until)));
            }
            let gone = lane.let_go(now);
            if takes_digests && let Some(rows) = lane.take_digest(now) {
                tries.push(rows);
            }
            while !(takes_digests && lane.is_gathering(now))
                && lane.under_way + tries.len() < lane.places()
                && let Some((_, row)) = lane.queue.pop_front()
            {
                tries.push(vec![row]);
            }
            if !takes_digests && lane.queue.len() > WAITING_MAX {
                let later = plus(now, self.patience.pause);
                back.extend(lane.queue.drain(WAITING_MAX..).map(|(_, row)| (row, later)));
            }
            if lane.queue.is_empty() {
                lane.came = None;
            }
            lane.under_way += tries.len();
            for row in gone.iter().chain(back.iter().map(|(row, _)| row)) {
                self.in_hand.remove(&named_row(row));
            }
            let mut put_back: Vec<StoreFuture<'_, ()>> = Vec::new();
            for (row, until) in back {
                put_back.push(Box::pin(self.put_back(row, until)));
            }
            together(put_back).await?;
            for rows in tries {
                self.begin(&channel, rows);
            }
        }
        Ok(())
    }

    /// Begins a try, beside the loop.
    fn begin(&self, channel: &str, rows: Vec<OutboxRow>) {
        let notice = digest::notice(&rows, self.world.now());
        let (delivery, sender) = (self.channels.deliver(channel, notice), self.sender.clone());
        let task = async move {
            let delivery = delivery.await;
            let _loop_is_gone = sender.send((rows, delivery));
        };
        self.world.spawn("deliver an alert", Box::pin(task));
    }

    /// What a failure of a channel means for it: when it is tried again at the earliest.
    pub(super) fn note_failure(
        &mut self,
        channel: &str,
        asked: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Timestamp> {
        let lane = self.lanes.entry(channel.to_owned()).or_default();
        let failures = lane.failed();
        let shut = (failures >= FAILURES_MAX)
            .then(|| plus(now, self.patience.pause_after(failures - FAILURES_MAX + 1)));
        lane.shut(shut.max(asked));
        shut.max(asked)
    }
}

#[cfg(test)]
mod tests {
    use interlock_core::id::PipelineId;
    use interlock_store::record::OutboxRecord;
    use serde_json::json;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    fn opening(number: usize) -> OutboxRow {
        let record = OutboxRecord {
            channel: "chat".into(),
            alert: json!({"details": {"state": "open"}}).into(),
            tries: 0,
            not_before: at(0),
            claimed_until: None,
            last_error: None,
            dead: false,
            after: None,
            held: None,
        };
        OutboxRow { pipeline: PipelineId::system(), name: number.to_string(), record, revision: 1 }
    }

    #[test]
    fn a_storm_is_one_digest_when_it_is_quiet_and_what_follows_soon_is_gathered_too() {
        let mut lane = Lane::default();
        (0..10).for_each(|number| lane.queue(opening(number), at(0)));
        assert!(!lane.is_gathering(at(0)) && lane.take_digest(at(60)).is_none(), "ten are few");
        lane.queue(opening(10), at(1));
        assert!(lane.is_gathering(at(1)) && lane.take_digest(at(1)).is_none(), "more may come");
        assert_eq!(lane.take_digest(at(2)).map(|rows| rows.len()), Some(11));
        // The rest of the storm, and after it.
        lane.came = None;
        lane.queue(opening(11), at(20));
        assert!(lane.is_gathering(at(20)) && lane.take_digest(at(20)).is_none());
        assert_eq!(lane.take_digest(at(21)).map(|rows| rows.len()), Some(1));
        lane.queue(opening(12), at(33));
        assert!(!lane.is_gathering(at(33)));
        // One that never ends is told in parts.
        let mut lane = Lane::default();
        (0..20).for_each(|second| lane.queue(opening(second as usize), at(second)));
        assert!(lane.take_digest(at(19)).is_some());
    }
}
