//! What a resume would do.

use std::sync::Arc;

use axum::extract::{Path, State, rejection::PathRejection};
use interlock_answers::model::{
    pipeline::InstantQuery,
    plan::{ResumePlanAnswer, ResumePlanRequest},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PlanResponse, tagged};
use crate::{
    error::ApiError,
    question::{AskedBody, AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(resume_plan))
}

/// What a resume of a pipeline would do with the slots that lay in its pause.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/resume/plan", tag = "plans",
    params(("pipeline" = String, Path), InstantQuery), request_body = ResumePlanRequest,
    responses((status = 200, body = ResumePlanAnswer,
        headers(("etag" = String, description = "The hash of what is decided.")))))]
async fn resume_plan(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(InstantQuery { at }): AskedQuery<InstantQuery>,
    AskedBody(asked): AskedBody<ResumePlanRequest>,
) -> Result<PlanResponse<ResumePlanAnswer>, ApiError> {
    let Path(name) = name?;
    let plan =
        source.plan(async move |reader| reader.planned_at(at)?.plan_resume(&name, &asked).await);
    let plan = plan.await?;
    Ok(tagged(&surface, &plan.plan.clone(), plan))
}
