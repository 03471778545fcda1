//! Backfills: started, paused, resumed, cancelled.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    ErrorCode,
    model::{
        plan::BackfillPlanRequest,
        request::{CancelBackfillRequest, RequestAnswer},
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

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .routes(routes!(start_backfill))
        .routes(routes!(pause_backfill))
        .routes(routes!(resume_backfill))
        .routes(routes!(cancel_backfill))
}

/// Run a range of history, a few slots at a time.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/backfills", tag = "backfills",
    params(("pipeline" = String, Path), ("If-Match" = Option<String>, Header, description = "The `ETag` of the plan that is meant.")),
    request_body = BackfillPlanRequest,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn start_backfill(
    source: ReaderSource,
    AskedPath(name): AskedPath<String>,
    request: WriteRequest,
    expected: ExpectedPlan,
    JsonBody { asked, fingerprint }: JsonBody<BackfillPlanRequest>,
) -> Result<Response, ApiError> {
    let pipeline = request.pipeline(&name).await?;
    if let Some(answer) = request.repeated(&pipeline, &fingerprint).await? {
        return Ok(answer);
    }
    let range = asked.clone();
    let plan = source.plan(async move |reader| reader.plan_backfill(&name, &range).await).await?;
    expected.check(request.shown_plans(), &plan.plan, &plan)?;
    if plan.total == 0 {
        let message = format!("none of the {} slots in the range would run", plan.count);
        let hint = "The same path with `/plan` behind it says why of each.";
        return Err(ApiError::new(ErrorCode::Refused, message, hint));
    }
    let BackfillPlanRequest { from, to, schedules, reprocess, order, concurrency, reason, .. } =
        asked;
    let (by, total, plan) = (request.asker.record.by.clone(), plan.total, plan.plan);
    let record = InboxRecord::StartBackfill {
        from,
        to,
        schedules,
        reprocess,
        order,
        concurrency,
        reason,
        by,
        total,
        plan,
    };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}

/// Begin nothing more of a backfill.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/backfills/{id}/pause", tag = "backfills",
    params(("pipeline" = String, Path), ("id" = u64, Path)),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn pause_backfill(
    AskedPath((pipeline, backfill)): AskedPath<(String, u64)>,
    request: WriteRequest,
) -> Result<Response, ApiError> {
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::PauseBackfill { backfill };
    request.send(&pipeline, AskedWrite { record, fingerprint: None }).await
}

/// Go on with a backfill.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/backfills/{id}/resume", tag = "backfills",
    params(("pipeline" = String, Path), ("id" = u64, Path)),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn resume_backfill(
    AskedPath((pipeline, backfill)): AskedPath<(String, u64)>,
    request: WriteRequest,
) -> Result<Response, ApiError> {
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::ResumeBackfill { backfill };
    request.send(&pipeline, AskedWrite { record, fingerprint: None }).await
}

/// End a backfill.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/backfills/{id}/cancel", tag = "backfills",
    params(("pipeline" = String, Path), ("id" = u64, Path)),
    request_body = Option<CancelBackfillRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn cancel_backfill(
    AskedPath((pipeline, backfill)): AskedPath<(String, u64)>,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<CancelBackfillRequest>,
) -> Result<Response, ApiError> {
    let CancelBackfillRequest { reason, ends_runs } = asked;
    let reason = reason.unwrap_or_else(|| "asked for over HTTP".to_owned());
    let pipeline = request.pipeline(&pipeline).await?;
    let record = InboxRecord::CancelBackfill { backfill, reason, ends_runs };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}
