//! What a restart would do.

use std::sync::Arc;

use axum::extract::State;
use interlock_answers::model::{
    pipeline::InstantQuery,
    plan::{CatchupPlanAnswer, CatchupPlanQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PlanResponse, tagged};
use crate::{
    error::ApiError,
    question::{AskedPath, AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(catchup_plan)).routes(routes!(pipeline_catchup_plan))
}

/// What is owed from before, and what a restart would do with it.
#[utoipa::path(get, path = "/api/v1/catchup/plan", tag = "plans", params(CatchupPlanQuery),
    responses((status = 200, body = CatchupPlanAnswer,
        headers(("etag" = String, description = "The hash of what is decided.")))))]
async fn catchup_plan(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<CatchupPlanQuery>,
) -> Result<PlanResponse<CatchupPlanAnswer>, ApiError> {
    let plan = source.plan(async move |reader| reader.plan_catchup(&asked).await).await?;
    Ok(tagged(&surface, &plan.plan.clone(), plan))
}

/// What a catch-up of one pipeline would do now.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/catchup/plan", tag = "plans",
    params(("pipeline" = String, Path), InstantQuery),
    responses((status = 200, body = CatchupPlanAnswer,
        headers(("etag" = String, description = "The hash of what is decided.")))))]
async fn pipeline_catchup_plan(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    AskedPath(pipeline): AskedPath<String>,
    AskedQuery(InstantQuery { at }): AskedQuery<InstantQuery>,
) -> Result<PlanResponse<CatchupPlanAnswer>, ApiError> {
    surface.declared(&pipeline).await?;
    let asked = CatchupPlanQuery { pipeline: vec![pipeline], after: None, at };
    let plan = source.plan(async move |reader| reader.plan_catchup(&asked).await).await?;
    Ok(tagged(&surface, &plan.plan.clone(), plan))
}
