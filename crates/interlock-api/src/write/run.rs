//! Runs: asked for, and told to be over.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    ErrorCode,
    model::request::{CompleteRequest, RequestAnswer, RunRequest},
};
use interlock_core::retry::FailureCategory;
use interlock_store::{RunKey, record::InboxRecord};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::slot::slot_name;
use crate::{
    body::JsonBody,
    error::ApiError,
    question::AskedPath,
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(start_run)).routes(routes!(complete_run))
}

/// Run a pipeline now, or one of its slots.
///
/// The run has the trigger type `webhook`; `manual` with the header `Interlock-Client: cli` (or `ui`), as a person asks then.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/run", tag = "runs",
    params(("pipeline" = String, Path)), request_body = Option<RunRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn start_run(
    AskedPath(pipeline): AskedPath<String>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<RunRequest>,
) -> Result<Response, ApiError> {
    let RunRequest { slot, force, params } = asked;
    let slot = slot.map(|text| slot_name(&text)).transpose()?;
    let pipeline = request.pipeline(&pipeline).await?;
    let webhook = !request.asker.is_person;
    let record = InboxRecord::Run { slot, force, params, webhook };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// Report the end of a run whose job says so by itself.
#[utoipa::path(post, path = "/api/v1/runs/{id}/complete", tag = "runs",
    params(("id" = String, Path)), request_body = CompleteRequest,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn complete_run(
    AskedPath(id): AskedPath<String>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<CompleteRequest>,
) -> Result<Response, ApiError> {
    let (pipeline, _) = RunKey::parse(&id).map_err(|error| {
        ApiError::new(ErrorCode::BadRunId, error.message, "`interlock runs` lists them.")
    })?;
    let success = match asked.status.as_str() {
        "success" => true,
        "failed" => false,
        other => {
            let message = format!("`status` is `{other}`");
            let hint = "It is `success` or `failed`.";
            return Err(ApiError::new(ErrorCode::BadStatus, message, hint));
        }
    };
    if let Some(word) = &asked.category {
        FailureCategory::parse(word).map_err(|error| {
            ApiError::new(ErrorCode::BadCategory, error.message, "Leave it out if unsure.")
        })?;
    }
    let CompleteRequest { message, category, metadata, .. } = asked;
    let record = InboxRecord::Complete { run_id: id, success, message, category, metadata };
    let pipeline = request.pipeline(pipeline.as_str()).await?;
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}
