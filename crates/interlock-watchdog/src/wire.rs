//! Events as others read them: the shape of `EventBridge`, which the AWS controller published.

use interlock_core::{id::PipelineId, incident};
use interlock_store::record::EventRecord;
use serde_json::Value;

/// An event as `{source, detail-type, detail}`; what is of no pipeline has no `pipelineId`.
pub fn event_json(pipeline: &PipelineId, event: &EventRecord) -> Value {
    let EventRecord { kind, details, message, at, .. } = event;
    incident::event_json(kind, pipeline.as_str(), details, (message, *at))
}
