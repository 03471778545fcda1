//! Alerts: tested from end to end, and sent again.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::model::request::{BarkRequest, RequestAnswer};
use interlock_core::id::PipelineId;
use interlock_store::record::InboxRecord;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    error::ApiError,
    question::{AskedPath, pipeline_or_system},
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(bark)).routes(routes!(send_again))
}

/// Open an incident that is only a test of the alerts. It goes the whole way, to every channel that a missed run goes to.
///
/// `result` names the incident; resolve it when the channels have it.
#[utoipa::path(post, path = "/api/v1/barks", tag = "alerts", request_body = Option<BarkRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn bark(
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<BarkRequest>,
) -> Result<Response, ApiError> {
    let pipeline = match asked.pipeline {
        Some(name) => request.pipeline(&name).await?,
        None => PipelineId::system(),
    };
    let (id, by) = (request.key.stored.clone(), request.asker.record.by.clone());
    let record = InboxRecord::Bark { id, by };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// Try a notification at once that was given up, or that waits for its next try.
#[utoipa::path(post, path = "/api/v1/notifications/{pipeline}/{name}/send", tag = "alerts",
    params(("pipeline" = String, Path), ("name" = String, Path)),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn send_again(
    AskedPath((pipeline, name)): AskedPath<(String, String)>,
    request: WriteRequest,
) -> Result<Response, ApiError> {
    let pipeline = pipeline_or_system(&pipeline)?;
    let record = InboxRecord::SendAgain { notification: name };
    request.send(&pipeline, AskedWrite { record, fingerprint: None }).await
}
