//! What a channel is told: one alert, or many as one message.

use std::collections::BTreeMap;

use interlock_alert::Notice;
use interlock_core::{
    id::PipelineId,
    incident::{Alert, IncidentState, Level},
};
use interlock_store::OutboxRow;
use jiff::Timestamp;
use serde_json::{Value, json};

/// So many are named in a digest.
const NAMED_MAX: usize = 10;
/// The type of the alert that stands for many.
const DIGEST: &str = "digest";

/// The notice of one notification, or of many.
pub(super) fn notice(rows: &[OutboxRow], at: Timestamp) -> Notice {
    let key = |row: &OutboxRow| format!("{}/{}", row.pipeline, row.name);
    match rows {
        [row] => {
            let alert = Alert::from_json(&row.record.alert);
            let repeats = alert.details.get("repeats").map(|times| format!("#{times}"));
            Notice { key: key(row) + &repeats.unwrap_or_default(), alert, at }
        }
        rows => {
            let first = rows.first().map(key).unwrap_or_default();
            let alerts: Vec<Alert> =
                rows.iter().map(|row| Alert::from_json(&row.record.alert)).collect();
            Notice { alert: digest(&alerts, at), key: format!("{first}+{}", rows.len()), at }
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
        late => format!(", {late} of them found late, because nobody watched at their time"),
    };
    let message = format!(
        "{} alerts {what} ({}){late_said}: {}{rest}",
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
