//! What becomes of a notification that was tried.

use std::collections::BTreeMap;

use interlock_core::incident::{Alert, IncidentState, Level};
use interlock_ports::channel::Delivery;
use interlock_store::{CHANGES_MAX, OutboxRow, Settlement, record::OutboxRecord};
use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Notifier, Tried, named, way::AGAIN};
use crate::scheduler::plus;

/// The type of the alert that tells of a dead letter.
const UNDELIVERED: &str = "alert_undelivered";

impl Notifier {
    /// What is to be written of a try that ended.
    pub(super) async fn conclude(&mut self, tried: &Tried) -> Vec<Settlement> {
        let Tried { rows, delivery, took } = tried;
        let now = self.world.now();
        let channel = rows.first().map(|row| row.record.channel.clone()).unwrap_or_default();
        let shut = match delivery {
            Delivery::Delivered => {
                if rows.len() > 1 {
                    self.vitals.digests.add(1);
                    self.vitals.digested.add(rows.len() as u64);
                }
                self.lanes.entry(channel).or_default().delivered(*took, now);
                None
            }
            Delivery::Refused { .. } => {
                self.lanes.entry(channel).or_default().refused();
                None
            }
            Delivery::Failed { reason, retry_after } => {
                tracing::warn!(channel, reason, "an alert could not be delivered");
                self.note_failure(&channel, retry_after.map(|pause| plus(now, pause)), now)
            }
        };
        let mut settlements = Vec::with_capacity(rows.len());
        for row in rows {
            settlements.push(self.conclude_row(row, delivery, shut).await);
        }
        settlements
    }

    async fn conclude_row(
        &self,
        row: &OutboxRow,
        delivery: &Delivery,
        shut: Option<Timestamp>,
    ) -> Settlement {
        let (now, tries) = (self.world.now(), row.record.tries + 1);
        match delivery {
            Delivery::Delivered => {
                self.vitals.notifications.add("delivered", 1);
                Settlement::new(row.clone(), self.again(row, now).into_iter().collect())
            }
            Delivery::Failed { reason, retry_after } => {
                let pause = plus(now, self.patience.pause_after(tries));
                let asked = retry_after.and(shut);
                let record = OutboxRecord {
                    tries,
                    not_before: pause.max(asked.unwrap_or(now)),
                    last_error: Some(reason.clone()),
                    ..row.record.clone()
                };
                if tries >= self.patience.tries_max || self.is_too_old(&record, now) {
                    return self.give_up(row, record, now).await;
                }
                self.vitals.notifications.add("retried", 1);
                Settlement::new(row.clone(), vec![(row.name.clone(), record)])
            }
            Delivery::Refused { reason } => {
                let last_error = Some(reason.clone());
                let record = OutboxRecord { tries, last_error, ..row.record.clone() };
                self.give_up(row, record, now).await
            }
        }
    }

    /// The notification that tells of it again, where the channel wants that.
    fn again(&self, row: &OutboxRow, now: Timestamp) -> Option<(String, OutboxRecord)> {
        let pause = self.channels.manner(&row.record.channel).repeat?;
        let mut alert = Alert::from_json(&row.record.alert);
        if alert.state() != Some(IncidentState::Open) || alert.incident().is_none() {
            return None;
        }
        let repeats = alert.details.get("repeats").and_then(Value::as_u64).unwrap_or(0) + 1;
        alert.details.insert("repeats".to_owned(), repeats.into());
        alert.details.insert("toldAt".to_owned(), plus(now, pause).to_string().into());
        let name = row.name.strip_suffix(AGAIN).unwrap_or(&row.name);
        let record = OutboxRecord {
            alert: alert.to_json().into(),
            tries: 0,
            not_before: plus(now, pause),
            last_error: None,
            held: Some("a reminder, sent if the incident lasts".to_owned()),
            ..row.record.clone()
        };
        Some((format!("{name}{AGAIN}"), record))
    }

    pub(super) fn is_too_old(&self, record: &OutboxRecord, now: Timestamp) -> bool {
        if record.tries == 0 {
            return false;
        }
        let alert = Alert::from_json(&record.alert);
        // What was held back is as old as its release.
        let told_at = alert.details.get("toldAt").and_then(Value::as_str);
        let since = told_at.and_then(|at| at.parse().ok()).unwrap_or(alert.timestamp);
        now.duration_since(since) > self.patience.age_max
    }

    /// A dead letter: it stays where people find it, and the other channels hear of it.
    pub(super) async fn give_up(
        &self,
        row: &OutboxRow,
        record: OutboxRecord,
        now: Timestamp,
    ) -> Settlement {
        let alert = Alert::from_json(&record.alert);
        let (channel, tries) = (record.channel.clone(), record.tries);
        let reason = record.last_error.clone().unwrap_or_default();
        tracing::error!(channel, tries, reason, "an alert was given up: {alert}");
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
                    alert: told.clone().into(),
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
        Settlement::new(row.clone(), becomes)
    }
}

/// The alert that tells of a dead letter.
fn undelivered(alert: &Alert, record: &OutboxRecord, now: Timestamp) -> Alert {
    let OutboxRecord { channel, tries, last_error, .. } = record;
    let reason = last_error.as_deref().unwrap_or("no reason is recorded");
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
