//! Pipelines: paused, resumed, caught up.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    ErrorCode,
    model::{
        plan::{CatchupPlanQuery, ResumePlanRequest},
        request::{CancelRequest, PauseRequest, RequestAnswer},
    },
};
use interlock_store::record::InboxRecord;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    error::ApiError,
    plan::ExpectedPlan,
    question::{AskedPath, ReaderSource},
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

/// What a catch-up is asked for by: it has no body that could differ.
const CATCHUP: &str = "catchup";

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .routes(routes!(pause_pipeline))
        .routes(routes!(resume_pipeline))
        .routes(routes!(start_catchup))
        .routes(routes!(stop_catchup))
}

/// Stop opening and starting a pipeline's slots.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/pause", tag = "pipelines",
    params(("pipeline" = String, Path)), request_body = PauseRequest,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn pause_pipeline(
    AskedPath(pipeline): AskedPath<String>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<PauseRequest>,
) -> Result<Response, ApiError> {
    let PauseRequest { reason, until } = asked;
    if reason.trim().is_empty() {
        let hint = "Say why in `reason`: it is shown to everyone who finds the pipeline paused.";
        return Err(ApiError::new(ErrorCode::BadBody, "a pause needs a reason", hint));
    }
    if let Some(until) = until
        && until <= request.now().await?
    {
        let message = format!("{until} is already over");
        return Err(ApiError::new(ErrorCode::BadTime, message, "`until` lies ahead."));
    }
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::Pause { reason, until };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// End a pause. What was missed in it is caught up as the pipeline says, or as `catchup` does.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/resume", tag = "pipelines",
    params(("pipeline" = String, Path), ("If-Match" = Option<String>, Header, description = "The `ETag` of the plan that is meant.")),
    request_body = Option<ResumePlanRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn resume_pipeline(
    source: ReaderSource,
    AskedPath(name): AskedPath<String>,
    request: WriteRequest,
    expected: ExpectedPlan,
    JsonBody { asked, fingerprint }: JsonBody<ResumePlanRequest>,
) -> Result<Response, ApiError> {
    let pipeline = request.pipeline(&name).await?;
    if let Some(answer) = request.repeated(&pipeline, &fingerprint).await? {
        return Ok(answer);
    }
    let record = InboxRecord::Resume { catchup: asked.wish()? };
    if expected.is_given() {
        let plan = source.plan(async move |reader| reader.plan_resume(&name, &asked).await).await?;
        expected.check(request.shown_plans(), &plan.plan, &plan)?;
    }
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// Decide now about what a pipeline owes from before.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/catchup", tag = "pipelines",
    params(("pipeline" = String, Path), ("If-Match" = Option<String>, Header, description = "The `ETag` of the plan that is meant.")),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn start_catchup(
    source: ReaderSource,
    AskedPath(name): AskedPath<String>,
    request: WriteRequest,
    expected: ExpectedPlan,
) -> Result<Response, ApiError> {
    let pipeline = request.pipeline(&name).await?;
    if let Some(answer) = request.repeated(&pipeline, CATCHUP).await? {
        return Ok(answer);
    }
    if expected.is_given() {
        let asked = CatchupPlanQuery { pipeline: vec![name], ..CatchupPlanQuery::default() };
        let plan = source.plan(async move |reader| reader.plan_catchup(&asked).await).await?;
        expected.check(request.shown_plans(), &plan.plan, &plan)?;
    }
    let record = InboxRecord::Catchup {};
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(CATCHUP.to_owned()) }).await
}

/// Cancel what a catch-up has opened and not started, up to 200 slots; `left` says how many more there are. What runs goes on.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/catchup/stop", tag = "pipelines",
    params(("pipeline" = String, Path)), request_body = Option<CancelRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn stop_catchup(
    AskedPath(pipeline): AskedPath<String>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<CancelRequest>,
) -> Result<Response, ApiError> {
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::StopCatchup { reason: asked.reason() };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}
