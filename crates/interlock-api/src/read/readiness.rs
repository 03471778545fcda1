//! Whether slots may run, as far as that is recorded.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    UnaskedEvaluators,
    model::verdict::{EvaluationAnswer, ReadinessQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(readiness))
}

/// Whether a slot may run, by its sensors and upstreams. Evaluators are programs and are not asked: what they know "cannot be told".
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/readiness", tag = "pipelines",
    params(("pipeline" = String, Path), ReadinessQuery),
    responses((status = 200, body = EvaluationAnswer)))]
async fn readiness(
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(asked): AskedQuery<ReadinessQuery>,
) -> Result<Json<EvaluationAnswer>, ApiError> {
    let Path(name) = name?;
    Ok(Json(source.reader().readiness(&name, &asked, &UnaskedEvaluators).await?))
}
