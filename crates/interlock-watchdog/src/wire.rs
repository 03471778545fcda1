//! Events as others read them: the shape of `EventBridge`, which the AWS controller published.

use interlock_core::id::PipelineId;
use interlock_store::record::EventRecord;
use serde_json::{Map, Value, json};

/// An event as `{source, detail-type, detail}`; what is of no pipeline has no `pipelineId`.
pub fn event_json(pipeline: &PipelineId, event: &EventRecord) -> Value {
    let mut detail = Map::new();
    if *pipeline != PipelineId::system() {
        detail.insert("pipelineId".to_owned(), pipeline.as_str().into());
    }
    for name in ["scheduleId", "date"] {
        if let Some(value) = event.details.get(name) {
            detail.insert(name.to_owned(), value.clone());
        }
    }
    detail.insert("message".to_owned(), event.message.clone().into());
    detail.insert("timestamp".to_owned(), event.at.to_string().into());
    json!({ "source": "interlock", "detail-type": event.kind, "detail": detail })
}
