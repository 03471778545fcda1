//! Delivering by the caller's own function what a pass found.

use std::collections::BTreeMap;

use interlock_core::{
    id::PipelineId,
    incident::{Alert, Consequence, Fact, consequences},
};
use interlock_store::{Key, OutboxRow, Record};
use serde_json::Value;

use super::CheckOptions;
use crate::{finding::Finding, resident::WatchdogError};

impl CheckOptions {
    /// Gives notifications that are durable to the alert function; those that it did not deliver, or that there is no
    /// function for, are `left` for a notifier.
    pub(super) async fn hand_over(
        &self,
        names: Vec<(PipelineId, String)>,
        left: &mut Vec<(PipelineId, String)>,
    ) -> Result<(), WatchdogError> {
        let Some(alert) = &self.alert else {
            left.extend(names);
            return Ok(());
        };
        for (pipeline, name) in names {
            let rows = self.store.read(&pipeline, &[Key::Outbox(name.clone())]).await?;
            let row = rows.into_iter().flatten().next();
            let Some((Record::Outbox(record), revision)) =
                row.map(|row| (row.record, row.revision))
            else {
                continue;
            };
            if record.claimed_until.is_some() {
                // A notifier was faster, and delivers it.
                continue;
            }
            match alert(&Alert::from_json(&record.alert)) {
                Ok(()) => {
                    let record = std::sync::Arc::unwrap_or_clone(record);
                    let row = OutboxRow { pipeline, name, record, revision };
                    self.store.settle(&row, vec![]).await?;
                }
                Err(reason) => {
                    self.log(&format!("{pipeline}: an alert could not be delivered: {reason}"));
                    left.push((pipeline, name));
                }
            }
        }
        Ok(())
    }

    /// Gives a finding that nothing records to the alert function.
    pub(super) fn alert_unrecorded(&self, finding: &Finding) {
        let Some((deliver, alert)) = self.alert.as_ref().zip(self.alert_of(finding)) else {
            return;
        };
        if let Err(reason) = deliver(&alert) {
            self.log(&format!("{}: an alert could not be delivered: {reason}", finding.pipeline));
        }
    }

    /// The alert that a finding would open an incident with.
    fn alert_of(&self, finding: &Finding) -> Option<Alert> {
        let day = finding.slot.as_ref().zip(finding.date);
        let fact = Fact {
            kind: finding.event?,
            pipeline: &finding.pipeline,
            day: day.map(|((_, schedule), date)| (schedule, date)),
            thing: finding.details.get("thing").and_then(Value::as_str),
        };
        let opened = consequences(&fact).into_iter().find_map(|it| match it {
            Consequence::Open(opened) => Some(opened),
            Consequence::Resolve { .. } | Consequence::Acknowledge { .. } => None,
        })?;
        let mut details: BTreeMap<String, Value> = finding.details.clone();
        details.insert("type".to_owned(), opened.alert_type.into());
        let message = finding.alert.clone();
        Some(Alert {
            level: opened.level.as_str().to_owned(),
            alert_type: opened.alert_type.to_owned(),
            pipeline_id: finding.pipeline.to_string(),
            message: message.unwrap_or_else(|| format!("{}: {}", opened.summary, finding.message)),
            details,
            timestamp: self.now,
        })
    }

    fn log(&self, line: &str) {
        if let Some(logger) = &self.logger {
            logger(line);
        } else {
            tracing::warn!("{line}");
        }
    }
}
