//! Events as programs elsewhere read them: the shape of `EventBridge`, which the AWS controller published.

use std::collections::BTreeMap;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use crate::id::PipelineId;

/// An event as `{source, detail-type, detail}`, with its kind, its pipeline, its sentence and when it happened; of its
/// details only what says which slot it is about. What is of no pipeline has no `pipelineId`.
pub fn event_json(
    kind: &str,
    pipeline: &str,
    details: &BTreeMap<String, Value>,
    (message, at): (&str, Timestamp),
) -> Value {
    let mut detail = Map::new();
    if pipeline != PipelineId::system().as_str() {
        detail.insert("pipelineId".to_owned(), pipeline.into());
    }
    for name in ["scheduleId", "date", "status"] {
        if let Some(value) = details.get(name) {
            detail.insert(name.to_owned(), value.clone());
        }
    }
    detail.insert("message".to_owned(), message.into());
    detail.insert("timestamp".to_owned(), at.to_string().into());
    json!({ "source": "interlock", "detail-type": kind, "detail": detail })
}
