//! What stands in the way of a notification.
//!
//! A beginning may be held back: by a silence, an upstream in trouble, flapping, or because its channel is a later step.
//! It is then told only if the incident is still open, and nobody looks at it, when the reason is gone. An end is
//! told to whoever heard of the beginning: it waits while the beginning is on its way, and where the beginning was
//! held back until now, both are dropped (S12).

use interlock_core::incident::{Alert, IncidentState, older_days};
use interlock_ports::channel::HoldReason;
use interlock_store::{
    Key, OutboxRow, Record, Row, Settlement, Shard, StoreError,
    record::{IncidentRecord, OutboxRecord},
};
use jiff::{SignedDuration, Timestamp};

use super::{Notifier, named, rows_read::RowsRead};
use crate::scheduler::plus;

/// Opened so often within [`FLAPS_WITHIN`], it is told only if it lasts for [`FLAP_LASTS`].
const FLAPS_FROM: usize = 3;
const FLAPS_WITHIN: SignedDuration = SignedDuration::from_hours(1);
const FLAP_LASTS: SignedDuration = SignedDuration::from_mins(10);
/// An end is told after so long, even if there were not so many good slots as its channel waits for.
const RECOVERY_MAX: SignedDuration = SignedDuration::from_hours(7 * 24);
/// More open incidents of a pipeline are not counted.
const IN_A_ROW_MAX: usize = 1_000;
/// What the name of a notification ends with that tells again of what lasts.
pub(super) const AGAIN: &str = "~again";
/// Why an end is not told.
const UNHEARD: &str = "no channel was told of the beginning";

/// What stands in the way of a notification.
pub(super) enum Way {
    Free,
    /// It is to be looked at again then.
    NotBefore(Timestamp),
    /// There is nothing to tell any more.
    Moot,
    /// Not now, for a reason.
    Held(HoldReason),
    /// What it would be the end of was held back there, and is dropped with it.
    Unheard(Vec<OutboxRow>),
}

/// What became of the beginning of what ends.
enum Beginning {
    Told,
    /// Nobody tries it before this.
    OnItsWay(Timestamp),
    /// It is a dead letter.
    Dead,
    /// It was held back until now.
    Unheard(Vec<OutboxRow>),
}

impl Notifier {
    /// Whether a notification may be told now, by rows that were read ([`Self::keys_of_way`]).
    pub(super) async fn way(&self, row: &OutboxRow, rows: &RowsRead) -> Result<Way, StoreError> {
        let alert = Alert::from_json(&row.record.alert);
        match alert.state() {
            Some(IncidentState::Open) => self.way_of_beginning((row, rows), &alert).await,
            Some(IncidentState::Acknowledged) => {
                let incident = rows.incident(row, &alert);
                let is_seen = incident.is_some_and(|incident| {
                    incident.told == row.record.after
                        && incident.standing() == Ok(IncidentState::Acknowledged)
                });
                if !is_seen {
                    return Ok(Way::Moot);
                }
                Ok(match self.beginning(row, rows) {
                    Beginning::Told => Way::Free,
                    Beginning::OnItsWay(at) => Way::NotBefore(self.after_its_try(at)),
                    Beginning::Dead | Beginning::Unheard(_) => Way::Moot,
                })
            }
            Some(IncidentState::Resolved) => Ok(match self.beginning(row, rows) {
                Beginning::OnItsWay(at) => Way::NotBefore(self.after_its_try(at)),
                Beginning::Dead => Way::Moot,
                Beginning::Unheard(rows) => Way::Unheard(rows),
                // It was decided that nobody heard of it, and what was held back is gone by now.
                Beginning::Told if row.record.held.is_some() => Way::Moot,
                Beginning::Told => return self.way_of_end((row, rows), &alert).await,
            }),
            None => Ok(Way::Free),
        }
    }

    /// An end is told at once, unless its channel waits until it holds: for so many good slots in a row. What begins
    /// again before that was not over. What a person ended is over.
    async fn way_of_end(
        &self,
        (row, rows): (&OutboxRow, &RowsRead),
        alert: &Alert,
    ) -> Result<Way, StoreError> {
        let wanted = self.channels.manner(&row.record.channel).recovered as usize;
        let now = self.world.now();
        let is_late = now.duration_since(alert.timestamp) > RECOVERY_MAX;
        if row.record.channel.is_empty()
            || wanted <= 1
            || is_late
            || alert.details.contains_key("by")
        {
            return Ok(Way::Free);
        }
        let began_again = rows.incident(row, alert).is_some_and(|incident| {
            incident.standing() != Ok(IncidentState::Resolved) && incident.told != row.record.after
        });
        if began_again {
            return Ok(Way::Moot);
        }
        let went = self.history(row, alert, wanted).await?;
        let is_over = went.is_none_or(|went| went.len() >= wanted && went.iter().all(|it| *it));
        Ok(if is_over { Way::Free } else { Way::NotBefore(plus(now, self.patience.ask_again)) })
    }

    /// When to ask again about a beginning that is tried at an instant, which was said by a clock that may be wrong.
    fn after_its_try(&self, at: Timestamp) -> Timestamp {
        let now = self.world.now();
        at.min(plus(now, self.patience.ask_again)).max(plus(now, self.patience.look))
    }

    async fn way_of_beginning(
        &self,
        (row, rows): (&OutboxRow, &RowsRead),
        alert: &Alert,
    ) -> Result<Way, StoreError> {
        let OutboxRecord { channel, held, .. } = &row.record;
        if !channel.is_empty() && held.is_none() {
            return Ok(Way::Free);
        }
        let now = self.world.now();
        let incident = rows.incident(row, alert);
        let opening = opening_of(&row.name, channel);
        let is_open = incident.is_some_and(|incident| {
            incident.told.as_deref() == Some(opening)
                && incident.standing() == Ok(IncidentState::Open)
        });
        if held.is_some() && !is_open {
            // Its end takes it along; what is only repeated has no end of its own.
            let is_repeated = row.name.ends_with(AGAIN);
            return Ok(if is_repeated {
                Way::Moot
            } else {
                Way::NotBefore(plus(now, self.patience.ask_again))
            });
        }
        let reason = match incident {
            Some(incident) if channel.is_empty() => flapping(incident, now),
            Some(incident) if !row.name.ends_with(AGAIN) => {
                self.not_their_turn(row, (alert, incident), now).await?
            }
            Some(_) | None => None,
        };
        let hold = match reason {
            Some(hold) => Some(hold),
            None => self.channels.hold(alert, now).await,
        };
        Ok(hold.map_or(Way::Free, |hold| {
            let again = plus(now, self.patience.ask_again);
            let until = Some(hold.until.map_or(again, |until| until.min(again)));
            Way::Held(HoldReason { until, ..hold })
        }))
    }

    /// Whether a channel is a later step, or waits for more of the same.
    async fn not_their_turn(
        &self,
        row: &OutboxRow,
        (alert, incident): (&Alert, &IncidentRecord),
        now: Timestamp,
    ) -> Result<Option<HoldReason>, StoreError> {
        let manner = self.channels.manner(&row.record.channel);
        let turn = plus(incident.opened_at, manner.after.unwrap_or_default());
        if now < turn {
            let reason = "a later escalation step, not due yet".to_owned();
            return Ok(Some(HoldReason { reason, until: Some(turn) }));
        }
        if manner.findings > 1 && manner.of > manner.findings {
            let went = self.history(row, alert, manner.of as usize).await?.unwrap_or_default();
            let bad = went.iter().filter(|was_good| !**was_good).count();
            return Ok((bad < manner.findings as usize).then(|| HoldReason {
                reason: format!(
                    "{bad} of the last {} went wrong, and {} are waited for",
                    manner.of, manner.findings
                ),
                until: None,
            }));
        }
        let found = if manner.findings > 1 { self.in_a_row(row, alert).await? } else { u64::MAX };
        Ok((found < manner.findings.into()).then(|| HoldReason {
            reason: format!("{found} of {} in a row were found", manner.findings),
            until: None,
        }))
    }

    /// How many were found in a row: a good slot ends what its schedule left open, so it is what is open of a kind.
    async fn in_a_row(&self, row: &OutboxRow, alert: &Alert) -> Result<u64, StoreError> {
        let key = alert.incident().unwrap_or_default();
        let kind = older_days("JOB_COMPLETED", key).unwrap_or(key);
        let shard = Shard::of(&row.pipeline, self.store.shard_count());
        // The first key that begins so comes after its beginning, or is it.
        let mut before = kind.to_owned();
        before.pop();
        let after = (row.pipeline.clone(), before);
        let page = self.store.open_incidents(shard, Some(&after), IN_A_ROW_MAX).await?;
        let theirs = page
            .items
            .iter()
            .filter(|(name, found, _)| *name == row.pipeline && found.starts_with(kind));
        Ok(theirs.map(|(.., found)| found.record.count).sum())
    }

    /// What became of the beginning of what ends.
    fn beginning(&self, row: &OutboxRow, rows: &RowsRead) -> Beginning {
        let now = self.world.now();
        let (mut is_dead, mut unheard) = (false, Vec::new());
        for name in names_of_beginning(row) {
            let found = rows.get(&row.pipeline, Key::Outbox(name.clone()));
            let Some(Row { record: Record::Outbox(record), revision }) = found else { continue };
            let is_claimed = record.claimed_until.is_some_and(|until| until > now);
            match (record.dead, &record.held) {
                (true, _) => is_dead = true,
                (false, Some(_)) if !is_claimed && name.ends_with(AGAIN) => {}
                (false, Some(_)) if !is_claimed => {
                    unheard.push(OutboxRow {
                        pipeline: row.pipeline.clone(),
                        name,
                        record: record.as_ref().clone(),
                        revision: *revision,
                    });
                }
                (false, _) => {
                    let at = if is_claimed { now } else { record.not_before };
                    return Beginning::OnItsWay(at);
                }
            }
        }
        match (is_dead, unheard) {
            (true, _) => Beginning::Dead,
            (false, unheard) if unheard.is_empty() => Beginning::Told,
            (false, unheard) => Beginning::Unheard(unheard),
        }
    }

    /// Drops an end with the beginning that was held back until now: first it is written down that it is so, then the
    /// beginning goes, then the end. Whoever dies in between leaves what the next one goes on with.
    pub(super) async fn drop_unheard(
        &self,
        row: OutboxRow,
        beginnings: Vec<OutboxRow>,
    ) -> Vec<Settlement> {
        if row.record.held.is_none() {
            let record = OutboxRecord { held: Some(UNHEARD.to_owned()), ..row.record.clone() };
            let becomes = vec![(row.name.clone(), record)];
            return vec![Settlement::new(row, becomes)];
        }
        self.vitals.notifications.add("unheard", beginnings.len() as u64);
        let gone = beginnings.into_iter().map(|beginning| Settlement::new(beginning, vec![]));
        let mut settlements: Vec<Settlement> = gone.collect();
        // The next look finds them gone, or somebody at them.
        settlements.push(self.put_back(row, self.world.now()).await);
        settlements
    }

    /// The rows that decide whether a notification may be told now.
    pub(super) fn keys_of_way(&self, row: &OutboxRow) -> Vec<Key> {
        let alert = Alert::from_json(&row.record.alert);
        let OutboxRecord { channel, held, .. } = &row.record;
        let incident = alert.incident().map(|key| Key::Incident(key.to_owned()));
        let beginning = names_of_beginning(row).into_iter().map(Key::Outbox);
        match alert.state() {
            Some(IncidentState::Open) if !channel.is_empty() && held.is_none() => vec![],
            Some(IncidentState::Open) => incident.into_iter().collect(),
            Some(IncidentState::Acknowledged) => beginning.chain(incident).collect(),
            Some(IncidentState::Resolved) => {
                let is_asked = self.channels.manner(channel).recovered > 1;
                beginning.chain(incident.filter(|_| is_asked)).collect()
            }
            None => vec![],
        }
    }
}

/// Under which names the beginning of what ends may be found.
fn names_of_beginning(row: &OutboxRow) -> Vec<String> {
    let (Some(after), channel) = (&row.record.after, &row.record.channel) else { return vec![] };
    let mut names = vec![after.clone()];
    if !channel.is_empty() {
        let there = named(after, channel);
        names.push(format!("{there}{AGAIN}"));
        names.push(there);
    }
    names
}

/// The name that a notification had before it had a channel.
fn opening_of<'a>(name: &'a str, channel: &str) -> &'a str {
    let name = name.strip_suffix(AGAIN).unwrap_or(name);
    name.strip_suffix(channel).and_then(|name| name.strip_suffix('@')).unwrap_or(name)
}

/// Whether an incident comes and goes so often that it is told only if it lasts.
fn flapping(incident: &IncidentRecord, now: Timestamp) -> Option<HoldReason> {
    let since = incident.opened_at.checked_sub(FLAPS_WITHIN).unwrap_or(Timestamp::MIN);
    let count = incident.openings.iter().filter(|opening| **opening > since).count();
    let lasts = plus(incident.opened_at, FLAP_LASTS);
    (count >= FLAPS_FROM && now < lasts).then(|| HoldReason {
        reason: format!("it came and went {count} times within an hour; sent if it lasts"),
        until: Some(lasts),
    })
}
