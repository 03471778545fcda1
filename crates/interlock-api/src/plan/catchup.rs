//! What a restart would do.

use std::sync::Arc;

use interlock_answers::model::plan::{CatchupPlanAnswer, CatchupPlanQuery};
use utoipa_axum::{router::OpenApiRouter, routes};

use super::{PlanResponse, tagged};
use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(catchup_plan))
}

/// What is owed from before, and what a restart would do with it.
#[utoipa::path(get, path = "/api/v1/catchup/plan", tag = "plans", params(CatchupPlanQuery),
    responses((status = 200, body = CatchupPlanAnswer,
        headers(("etag" = String, description = "The hash of what is decided.")))))]
async fn catchup_plan(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<CatchupPlanQuery>,
) -> Result<PlanResponse<CatchupPlanAnswer>, ApiError> {
    let plan = source.plan(async move |reader| reader.plan_catchup(&asked).await).await?;
    Ok(tagged(&plan.plan.clone(), plan))
}
