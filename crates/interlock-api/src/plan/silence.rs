//! What a silence would hide.

use std::sync::Arc;

use axum::{Extension, extract::State};
use interlock_answers::model::{
    pipeline::InstantQuery,
    plan::{SilencePlanAnswer, SilencePlanRequest},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PlanResponse, tagged};
use crate::{
    access::Caller,
    error::ApiError,
    question::{AskedBody, AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(silence_plan))
}

/// Which incidents a silence would hide: those that are open, and those of the last seven days.
#[utoipa::path(post, path = "/api/v1/silences/plan", tag = "plans", params(InstantQuery),
    request_body = SilencePlanRequest,
    responses((status = 200, body = SilencePlanAnswer,
        headers(("etag" = String, description = "The hash of what is decided.")))))]
async fn silence_plan(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    Extension(caller): Extension<Caller>,
    AskedQuery(InstantQuery { at }): AskedQuery<InstantQuery>,
    AskedBody(asked): AskedBody<SilencePlanRequest>,
) -> Result<PlanResponse<SilencePlanAnswer>, ApiError> {
    let by = caller.name.unwrap_or_default();
    let plan =
        source.plan(async move |reader| reader.planned_at(at)?.plan_silence(&asked, &by).await);
    let plan = plan.await?;
    Ok(tagged(&surface, &plan.plan.clone(), plan))
}
