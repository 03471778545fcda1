//! Slots: run again, or ended.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    ErrorCode,
    model::request::{CancelRequest, RequestAnswer, RerunRequest},
};
use interlock_store::record::{InboxRecord, SlotName};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    error::ApiError,
    question::AskedPath,
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(rerun_slot)).routes(routes!(cancel_slot))
}

/// Run a closed slot again.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}/rerun", tag = "slots",
    params(("pipeline" = String, Path), ("schedule" = String, Path), ("instant" = String, Path)),
    request_body = RerunRequest,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn rerun_slot(
    AskedPath((pipeline, schedule, instant)): AskedPath<(String, String, String)>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<RerunRequest>,
) -> Result<Response, ApiError> {
    let slot = slot_name(&format!("{schedule}/{instant}"))?;
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::Rerun { slot, reason: asked.reason };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// End a slot's run, or the slot if nothing of it runs yet.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}/cancel", tag = "slots",
    params(("pipeline" = String, Path), ("schedule" = String, Path), ("instant" = String, Path)),
    request_body = Option<CancelRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn cancel_slot(
    AskedPath((pipeline, schedule, instant)): AskedPath<(String, String, String)>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<CancelRequest>,
) -> Result<Response, ApiError> {
    let slot = slot_name(&format!("{schedule}/{instant}"))?;
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::Cancel { slot, reason: asked.reason() };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// The slot of a text such as `daily/2026-02-25T09:00:00Z`.
pub(super) fn slot_name(text: &str) -> Result<SlotName, ApiError> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(schedule, at)| Some((schedule.to_owned(), at.parse().ok()?)));
    let (schedule, nominal) = parsed.ok_or_else(|| {
        let hint = "Write `schedule/instant`, such as `daily/2026-02-25T09:00:00Z`.";
        ApiError::new(ErrorCode::BadSlot, format!("`{text}` does not name a slot"), hint)
    })?;
    Ok(SlotName { schedule, nominal })
}
