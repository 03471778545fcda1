//! What a backfill would do.

use std::sync::Arc;

use axum::extract::{Path, State, rejection::PathRejection};
use interlock_answers::model::{
    pipeline::InstantQuery,
    plan::{BackfillPlanAnswer, BackfillPlanRequest},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PlanResponse, tagged};
use crate::{
    error::ApiError,
    question::{AskedBody, AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(backfill_plan))
}

/// What a backfill of a pipeline would do, slot by slot.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/backfills/plan", tag = "plans",
    params(("pipeline" = String, Path), InstantQuery), request_body = BackfillPlanRequest,
    responses((status = 200, body = BackfillPlanAnswer,
        headers(("etag" = String, description = "The hash of what is decided.")))))]
async fn backfill_plan(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(InstantQuery { at }): AskedQuery<InstantQuery>,
    AskedBody(asked): AskedBody<BackfillPlanRequest>,
) -> Result<PlanResponse<BackfillPlanAnswer>, ApiError> {
    let Path(name) = name?;
    let plan =
        source.plan(async move |reader| reader.planned_at(at)?.plan_backfill(&name, &asked).await);
    let plan = plan.await?;
    Ok(tagged(&surface, &plan.plan.clone(), plan))
}
