//! The lane of a channel: what was claimed for it waits here for its turn.
//!
//! A few tries at once, more while each is quick, one at a time to find out while the last one failed, none while the
//! breaker is open: what waits then goes back to the outbox. What waits too long for its claim is let go; it is claimed
//! again.

use std::{
    collections::{BTreeSet, VecDeque},
    sync::Arc,
    time::Duration,
};

use interlock_core::{
    id::PipelineId,
    incident::{Alert, IncidentState},
};
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
/// A digest is gathered until nothing came for so long.
const QUIET: SignedDuration = SignedDuration::from_secs(1);
/// The same for what comes after a digest: the rest of a storm is no news by itself.
const QUIET_IN_STORM: SignedDuration = SignedDuration::from_secs(5);
/// For so long after a digest there is a storm.
const STORM: SignedDuration = SignedDuration::from_secs(30);
/// While more comes a digest is gathered for so long at most, and with each further one of a storm for twice as long, but never longer
/// than the last.
const GATHERED: SignedDuration = SignedDuration::from_secs(30);
const GATHERED_MAX: SignedDuration = SignedDuration::from_mins(5);
/// What waits for its digest longer than its claim lasts goes to the outbox this long before that, for so long. All of it is here again
/// within a margin; what is not, after the last of these times, has another notifier.
const AWAY_BEFORE: SignedDuration = SignedDuration::from_secs(1);
const AWAY_FOR: SignedDuration = SignedDuration::from_secs(4);
const AWAY_MARGIN: SignedDuration = SignedDuration::from_secs(3);
const AWAY_MAX: SignedDuration = SignedDuration::from_secs(8);

/// What waits for a channel, and how it does.
#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Each with what it says of its incident.
    queue: VecDeque<(Option<IncidentState>, OutboxRow)>,
    /// When the first of what waits came, and the last.
    came: Option<(Timestamp, Timestamp)>,
    /// What waits in the outbox for a digest, and until when the last of it does.
    away: BTreeSet<(PipelineId, String)>,
    away_until: Timestamp,
    /// For how long the last digest might be gathered.
    gathered: Option<SignedDuration>,
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
        let (first, last) = self.came.unwrap_or((now, now));
        // What comes again is nothing new.
        let last = if self.away.remove(&named_row(&row)) { last } else { now };
        self.came = Some((first, last));
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
        if !self.is_over(now) || self.is_any_away(now) {
            return None;
        }
        for kind in [IncidentState::Open, IncidentState::Resolved] {
            if self.count(kind) > self.digest_above(now) {
                let all = std::mem::take(&mut self.queue);
                let (taken, left): (VecDeque<_>, VecDeque<_>) =
                    all.into_iter().partition(|(state, _)| *state == Some(kind));
                self.queue = left;
                if taken.len() > DIGEST_ABOVE {
                    let gathered = self.gathered_for(now);
                    (self.gathered, self.storm_until) = (Some(gathered), Some(plus(now, STORM)));
                }
                return Some(taken.into_iter().map(|(_, row)| row).collect());
            }
        }
        None
    }

    /// Whether nothing more comes of what is gathered, or it was gathered for long enough.
    fn is_over(&self, now: Timestamp) -> bool {
        let quiet = if self.is_storm(now) { QUIET_IN_STORM } else { QUIET };
        self.came.is_some_and(|(first, last)| {
            now >= plus(last, quiet) || now >= plus(first, self.gathered_for(now))
        })
    }

    /// For how long a digest may be gathered.
    fn gathered_for(&self, now: Timestamp) -> SignedDuration {
        match self.gathered.filter(|_| self.is_storm(now)) {
            Some(last) => (last * 2).min(GATHERED_MAX),
            None => GATHERED,
        }
    }

    fn is_any_away(&self, now: Timestamp) -> bool {
        !self.away.is_empty() && now < plus(self.away_until, AWAY_MAX)
    }

    /// Takes out what is gathered and whose claims do not last until an instant, with the time until which it waits in the outbox: a
    /// crash loses nothing of it, and then it is claimed again.
    fn put_off(&mut self, begin_by: Timestamp, now: Timestamp) -> Vec<(OutboxRow, Timestamp)> {
        let is_whole = self.is_over(now) && !self.is_any_away(now);
        if is_whole || !self.is_gathering(now) {
            return Vec::new();
        }
        let is_over = self.is_over(now);
        if !is_over {
            self.away_until = plus(now, AWAY_FOR);
        }
        // Once it is over, all that is away comes again at one time, and what is here must last until then.
        let left = self.away_until.duration_since(now).max(SignedDuration::ZERO);
        let margin = if is_over { left + AWAY_MARGIN } else { AWAY_BEFORE };
        let gone = self.let_go(plus(begin_by, margin));
        self.away.extend(gone.iter().map(named_row));
        gone.into_iter().map(|row| (row, self.away_until)).collect()
    }

    /// When nothing waits here any more, and nothing is to come again, what comes next is the first.
    fn forget_if_empty(&mut self, now: Timestamp) {
        if self.queue.is_empty() && !self.is_any_away(now) {
            self.came = None;
            self.away.clear();
        }
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

    /// How many are no digest. While some wait for one in the outbox any is part of it.
    fn digest_above(&self, now: Timestamp) -> usize {
        if self.is_storm(now) || !self.away.is_empty() { 0 } else { DIGEST_ABOVE }
    }

    /// Whether there is a storm: what came in one is of it until it is told.
    fn is_storm(&self, now: Timestamp) -> bool {
        let since = self.came.map_or(now, |(first, _)| first);
        self.storm_until.is_some_and(|until| until > since)
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
            if takes_digests {
                back.extend(lane.put_off(begin_by, now));
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
            lane.forget_if_empty(now);
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
        assert!(lane.is_gathering(at(20)) && lane.take_digest(at(24)).is_none());
        assert_eq!(lane.take_digest(at(25)).map(|rows| rows.len()), Some(1));
        lane.forget_if_empty(at(25));
        lane.queue(opening(12), at(33));
        assert!(!lane.is_gathering(at(33)));
    }

    /// An alert each second, claimed for twenty seconds: each try needs ten of them.
    fn second(lane: &mut Lane, number: usize, now: i64) -> Vec<(OutboxRow, Timestamp)> {
        let mut row = opening(number);
        row.record.claimed_until = Some(at(now + 20));
        lane.queue(row, at(now));
        lane.put_off(at(now + 10), at(now))
    }

    /// Lets an alert come in each second, and what was put off come again; answers with when digests were taken, and their sizes.
    fn live(lane: &mut Lane, seconds: std::ops::Range<i64>, news_until: i64) -> Vec<(i64, usize)> {
        let (mut outbox, mut digests) = (Vec::new(), Vec::new());
        for now in seconds {
            if now < news_until {
                outbox.extend(second(lane, now as usize, now));
            }
            let (back, away): (Vec<_>, Vec<_>) =
                outbox.into_iter().partition(|(_, until)| *until <= at(now));
            outbox = away;
            for (row, _) in back {
                outbox.extend(second(lane, row.name.parse().unwrap(), now));
            }
            outbox.extend(lane.put_off(at(now + 10), at(now)));
            digests.extend(lane.take_digest(at(now)).map(|rows| (now, rows.len())));
            lane.forget_if_empty(at(now));
        }
        assert!(outbox.is_empty() && lane.waiting() == 0, "all are told: {digests:?}");
        digests
    }

    #[test]
    fn a_storm_of_some_seconds_is_one_digest_soon_after_its_end() {
        // It ends while some of it waits in the outbox.
        assert_eq!(live(&mut Lane::default(), 0..40, 14), [(17, 14)]);
    }

    #[test]
    fn a_storm_that_goes_on_is_ever_fewer_digests() {
        let mut lane = Lane::default();
        let digests = live(&mut lane, 0..400, 300);
        let times: Vec<i64> = digests.iter().map(|(now, _)| *now).collect();
        assert_eq!(digests.iter().map(|(_, count)| count).sum::<usize>(), 300);
        assert!(digests.len() <= 4, "{digests:?}");
        assert!(times.first().is_some_and(|first| (30..=45).contains(first)), "{digests:?}");
        assert_eq!(lane.gathered_for(at(500)), GATHERED, "after it all is as it was");
    }

    #[test]
    fn what_another_notifier_took_of_a_digest_is_not_waited_for() {
        let mut lane = Lane::default();
        for number in 0..12 {
            second(&mut lane, number, 0);
        }
        let back = lane.put_off(at(20), at(0));
        assert_eq!((back.len(), lane.waiting()), (12, 0));
        lane.forget_if_empty(at(11));
        assert!(lane.is_any_away(at(11)));
        lane.forget_if_empty(at(12));
        assert_eq!((lane.away.len(), lane.came), (0, None));
        lane.queue(opening(12), at(13));
        assert!(!lane.is_gathering(at(13)), "one is told at once");
    }
}
