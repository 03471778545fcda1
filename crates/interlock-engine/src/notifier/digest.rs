//! What a channel is told: one alert, or many as one message.

use std::collections::BTreeMap;

use interlock_core::{
    id::PipelineId,
    incident::{Alert, IncidentState, Level},
    text::counted,
};
use interlock_ports::channel::AlertMessage;
use interlock_store::OutboxRow;
use jiff::Timestamp;
use serde_json::{Value, json};

/// So many are named in a digest.
const NAMED_MAX: usize = 10;
/// The type of the alert that stands for many.
const DIGEST: &str = "digest";

/// The notice of one notification, or of many.
pub(super) fn notice(rows: &[OutboxRow], at: Timestamp) -> AlertMessage {
    let key = |row: &OutboxRow| format!("{}/{}", row.pipeline, row.name);
    match rows {
        [row] => {
            let alert = Alert::from_json(&row.record.alert);
            let repeats = alert.details.get("repeats").map(|times| format!("#{times}"));
            AlertMessage { key: key(row) + &repeats.unwrap_or_default(), alert, at }
        }
        rows => {
            let first = rows.first().map(key).unwrap_or_default();
            let alerts: Vec<Alert> =
                rows.iter().map(|row| Alert::from_json(&row.record.alert)).collect();
            AlertMessage { alert: digest(&alerts, at), key: format!("{first}+{}", rows.len()), at }
        }
    }
}

/// One alert that stands for many: how many of which type, and the first of them.
fn digest(alerts: &[Alert], at: Timestamp) -> Alert {
    let mut types: BTreeMap<&str, usize> = BTreeMap::new();
    for alert in alerts {
        *types.entry(alert.alert_type.as_str()).or_default() += 1;
    }
    let counted: Vec<String> =
        types.iter().map(|(name, count)| format!("{count} {name}")).collect();
    let first = alerts.get(..NAMED_MAX.min(alerts.len())).unwrap_or_default();
    let named: Vec<String> = first.iter().map(Alert::line).collect();
    let state = alerts.first().and_then(Alert::state).unwrap_or(IncidentState::Open);
    let what = if state == IncidentState::Resolved { "are over" } else { "came at once" };
    let rest = match alerts.len() - first.len() {
        0 => String::new(),
        rest => format!("; and {rest} more, which `interlock incidents --all` lists"),
    };
    let late = alerts.iter().filter(|alert| alert.details.contains_key("foundLate")).count();
    let late_said = match late {
        0 => String::new(),
        late => format!(", {late} of them found late because no watchdog was running"),
    };
    let message = format!(
        "{}{} alerts {what} ({}){late_said}: {}{rest}",
        outage(alerts).unwrap_or_default(),
        alerts.len(),
        counted.join(", "),
        named.join("; ")
    );
    let levels = [Level::Error, Level::Warning, Level::Info].map(Level::as_str);
    let worst = levels.into_iter().find(|level| alerts.iter().any(|alert| alert.level == *level));
    Alert {
        level: worst.unwrap_or(Level::Error.as_str()).to_owned(),
        alert_type: DIGEST.to_owned(),
        pipeline_id: PipelineId::system().to_string(),
        message,
        details: BTreeMap::from([
            ("state".to_owned(), json!(state.as_str())),
            ("type".to_owned(), json!(DIGEST)),
            ("count".to_owned(), json!(alerts.len())),
            ("foundLate".to_owned(), json!(late)),
            ("types".to_owned(), json!(types)),
            ("first".to_owned(), Value::Array(first.iter().map(Alert::to_json).collect())),
        ]),
        timestamp: at,
    }
}

/// Why so much is not known: the time in which nobody could have reported, if many alerts are of that.
fn outage(alerts: &[Alert]) -> Option<String> {
    let text = |alert: &Alert, key: &str| alert.details.get(key)?.as_str()?.parse().ok();
    // One alert may stand for many slots in a row.
    let slots = |alert: &Alert| alert.details.get("count").and_then(Value::as_u64).unwrap_or(1);
    let unknown = alerts.iter().filter(|alert| !alert.is_resolution());
    let windows = unknown.filter_map(|alert| {
        let window: (Timestamp, Timestamp) = (text(alert, "deafFrom")?, text(alert, "deafUntil")?);
        Some((window, slots(alert)))
    });
    let windows: Vec<_> = windows.collect();
    let from = windows.iter().map(|((from, _), _)| *from).min()?;
    let until = windows.iter().map(|((_, until), _)| *until).max()?;
    let count: u64 = windows.iter().map(|(_, slots)| slots).sum();
    let slots = counted(count, "slot");
    Some(format!("reports could not arrive from {from} to {until}; {slots} unknown; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn alert(window: Option<(&str, &str)>) -> Alert {
        let mut details = BTreeMap::from([("state".to_owned(), json!("open"))]);
        if let Some((from, until)) = window {
            details.insert("deafFrom".to_owned(), json!(from));
            details.insert("deafUntil".to_owned(), json!(until));
        }
        Alert {
            level: "warning".into(),
            alert_type: "schedule_unknown".into(),
            pipeline_id: "orders".into(),
            message: "may have been missed".into(),
            details,
            timestamp: Timestamp::UNIX_EPOCH,
        }
    }

    #[test]
    fn s10_a_digest_says_when_nobody_could_have_reported_and_how_many_are_unknown() {
        let (two, half) = ("2026-02-24T02:10:00Z", "2026-02-24T02:40:00Z");
        let mut alerts = vec![alert(Some((two, half))); 5];
        let nine = ("count".to_owned(), json!(9));
        alerts.push(Alert {
            details: [nine].into_iter().chain(alerts[0].details.clone()).collect(),
            ..alerts[0].clone()
        });
        alerts.push(alert(None));
        let said = digest(&alerts, Timestamp::UNIX_EPOCH).message;
        let outage = "reports could not arrive from 2026-02-24T02:10:00Z to 2026-02-24T02:40:00Z; 14 slots unknown; \
                      7 alerts came at once";
        assert!(said.starts_with(outage), "{said}");
        assert!(
            digest(&vec![alert(None); 3], Timestamp::UNIX_EPOCH).message.starts_with("3 alerts")
        );
    }
}
