//! The lane of a channel: what was claimed for it waits here for its turn.
//!
//! A few tries at once, more while each is quick, one at a time to find out while the last one failed, none while the
//! breaker is open: what waits then goes back to the outbox. What waits too long for its claim is let go; it is claimed
//! again.

use std::{collections::VecDeque, sync::Arc, time::Duration};

use interlock_core::incident::{Alert, IncidentState};
use interlock_store::{OutboxRow, Settlement};
use jiff::{SignedDuration, Timestamp};

use super::{Notifier, QUEUED_MAX, Tried, digest, named_row};
use crate::scheduler::plus;

/// Tries under way per channel before the first one was taken; with each that is taken there may be one more.
const TRIES_AT_FIRST: usize = 4;
/// At most so many, and so many where programs listen and a try takes no longer than [`QUICK`].
const TRIES_AT_ONCE: usize = 16;
const QUICK_TRIES_AT_ONCE: usize = 64;
const QUICK: Duration = Duration::from_millis(100);
/// Failures in a row after which a channel is left alone.
const FAILURES_MAX: u32 = 3;
/// What waits at most for a channel that takes no digests; more if it is taken within [`WAIT_MAX`].
const WAITING_MAX: usize = 1_000;
const WAIT_MAX: Duration = Duration::from_secs(5);
/// So much is enough to do for a channel that takes it within [`FED`]: what is claimed then would wait here.
const ENOUGH: usize = 500;
const FED: Duration = Duration::from_secs(2);
/// For so long after the last alert that was taken: one that hangs holds up no other channel.
const TAKING: SignedDuration = SignedDuration::from_millis(500);
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
    /// How many tries there may be at once.
    places: usize,
    /// How long a try takes that is taken, about; unknown before the first.
    takes: Option<Duration>,
    /// When the last try was taken.
    taken_at: Option<Timestamp>,
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

    /// A try was taken, after so long.
    pub(super) fn delivered(&mut self, took: Duration, now: Timestamp) {
        self.taken_at = Some(now);
        self.under_way = self.under_way.saturating_sub(1);
        let takes = self.takes.map_or(took, |takes| (takes * 7 + took) / 8);
        self.takes = Some(takes);
        let most = Self::most_at_once(takes);
        // After failures it begins anew.
        let before = if self.failures > 0 { 0 } else { self.places };
        self.places = (before.max(TRIES_AT_FIRST) + 1).min(most);
        (self.failures, self.shut_until) = (0, None);
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

    /// How many tries at once, and never more than `most`: one, to find out, while the last one failed.
    fn places(&self, most: usize) -> usize {
        if self.failures > 0 { 1 } else { self.places.clamp(TRIES_AT_FIRST, most) }
    }

    /// How many tries at once a receiver may get that takes so long.
    fn most_at_once(takes: Duration) -> usize {
        if takes <= QUICK { QUICK_TRIES_AT_ONCE } else { TRIES_AT_ONCE }
    }

    /// How many are taken in a time, as it seems, once there are as many tries as may be; none are known to be while tries
    /// fail.
    fn taken_in(&self, time: Duration) -> usize {
        let Some(takes) = self.takes.filter(|_| self.failures == 0) else { return 0 };
        let each = takes.max(Duration::from_millis(1)).as_micros();
        (time.as_micros() / each) as usize * Self::most_at_once(takes)
    }

    /// Whether enough waits for a channel that is quick and still takes something, or that has only just begun.
    pub(super) fn is_fed(&self, now: Timestamp) -> bool {
        let began = self.came.filter(|_| self.takes.is_none() && self.failures == 0);
        let is_within = |at: Timestamp| now < plus(at, TAKING);
        if began.is_some_and(|(first, _)| is_within(first)) {
            return self.waiting() > ENOUGH;
        }
        self.taken_at.is_some_and(is_within)
            && (ENOUGH + 1..=self.taken_in(FED)).contains(&self.waiting())
    }

    /// What may wait for a channel that takes no digests.
    fn waiting_max(&self) -> usize {
        self.taken_in(WAIT_MAX).clamp(WAITING_MAX, QUEUED_MAX)
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

    /// Lets go of what waits too long for its claim, which must last until an instant.
    fn let_go(&mut self, begin_by: Timestamp) -> Vec<OutboxRow> {
        let lasts = |row: &OutboxRow| row.record.claimed_until.is_none_or(|at| at >= begin_by);
        if self.queue.iter().all(|(_, row)| lasts(row)) {
            return Vec::new();
        }
        let all = std::mem::take(&mut self.queue);
        let (kept, gone): (VecDeque<_>, VecDeque<_>) =
            all.into_iter().partition(|(_, row)| lasts(row));
        self.queue = kept;
        gone.into_iter().map(|(_, row)| row).collect()
    }
}

impl Notifier {
    /// Begins the tries for which there is a place; answers with what goes back to the outbox.
    pub(super) async fn start(&mut self) -> Vec<Settlement> {
        let now = self.world.now();
        let begin_by = plus(now, self.patience.try_max);
        let names: Vec<String> = self.lanes.keys().cloned().collect();
        let mut settlements = Vec::new();
        for channel in names {
            let takes_digests = self.channels.manner(&channel).takes_digests;
            let places_max = if takes_digests { TRIES_AT_ONCE } else { QUICK_TRIES_AT_ONCE };
            let Some(lane) = self.lanes.get_mut(&channel) else { continue };
            let mut back = Vec::new();
            let mut tries = Vec::new();
            if let Some(until) = lane.shut_until.filter(|until| *until > now) {
                back.extend(lane.queue.drain(..).map(|(_, row)| (row, until)));
            }
            let gone = lane.let_go(begin_by);
            if takes_digests && let Some(rows) = lane.take_digest(now) {
                tries.push(rows);
            }
            while !(takes_digests && lane.is_gathering(now))
                && lane.under_way + tries.len() < lane.places(places_max)
                && let Some((_, row)) = lane.queue.pop_front()
            {
                tries.push(vec![row]);
            }
            if !takes_digests && lane.queue.len() > lane.waiting_max() {
                let (later, most) = (plus(now, self.patience.pause), lane.waiting_max());
                back.extend(lane.queue.drain(most..).map(|(_, row)| (row, later)));
            }
            if lane.queue.is_empty() {
                lane.came = None;
            }
            lane.under_way += tries.len();
            for row in gone.iter().chain(back.iter().map(|(row, _)| row)) {
                self.in_hand.remove(&named_row(row));
            }
            for (row, until) in back {
                settlements.push(self.put_back(row, until).await);
            }
            for rows in tries {
                self.begin(&channel, rows);
            }
        }
        settlements
    }

    /// Begins a try, beside the loop.
    fn begin(&self, channel: &str, rows: Vec<OutboxRow>) {
        let notice = digest::notice(&rows, self.world.now());
        let (delivery, sender) = (self.channels.deliver(channel, notice), self.sender.clone());
        let (world, began) = (Arc::clone(&self.world), self.world.uptime());
        let task = async move {
            let delivery = delivery.await;
            let took = world.uptime().saturating_sub(began);
            let _loop_is_gone = sender.send(Tried { rows, delivery, took });
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
    fn as_many_tries_at_once_as_are_taken_well() {
        let mut lane = Lane::default();
        assert_eq!(lane.places(64), TRIES_AT_FIRST);
        let quick = Duration::from_millis(5);
        (0..12).for_each(|_| lane.delivered(quick, at(0)));
        assert_eq!((lane.places(64), lane.places(16)), (16, 16));
        (0..100).for_each(|_| lane.delivered(quick, at(0)));
        assert_eq!((lane.places(64), lane.places(16)), (64, 16), "people are told slowly");
        (0..40).for_each(|_| lane.delivered(Duration::from_secs(1), at(0)));
        assert_eq!(lane.places(64), 16, "it got slow");
        lane.failed();
        assert_eq!(lane.places(64), 1, "to find out");
        lane.delivered(quick, at(0));
        assert_eq!(lane.places(64), 5, "it begins anew");
    }

    #[test]
    fn the_outbox_waits_for_a_channel_only_while_that_is_quick() {
        let mut lane = Lane::default();
        (0..800).for_each(|number| lane.queue(opening(number), at(0)));
        assert!(lane.is_fed(at(0)), "it has only just begun");
        assert!(!lane.is_fed(at(1)), "it takes nothing");
        assert_eq!(lane.waiting_max(), 1_000);
        lane.delivered(Duration::from_millis(50), at(0));
        assert!(lane.is_fed(at(0)), "it will get more tries at once");
        (0..60).for_each(|_| lane.delivered(Duration::from_millis(10), at(0)));
        assert!(lane.is_fed(at(0)));
        assert_eq!(lane.waiting_max(), 16_000);
        assert!(!lane.is_fed(at(1)), "it hangs");
        (0..60).for_each(|_| lane.delivered(Duration::from_secs(1), at(2)));
        assert!(!lane.is_fed(at(2)), "it is slow");
        assert_eq!(lane.waiting_max(), 1_000);
        let mut lane = Lane::default();
        (0..60).for_each(|_| lane.delivered(Duration::from_millis(20), at(0)));
        (0..500).for_each(|number| lane.queue(opening(number), at(0)));
        assert!(!lane.is_fed(at(0)), "it will soon have nothing to do");
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
