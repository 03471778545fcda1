//! Whether slots may run, asked for real: evaluators are programs, so this is for those who may start something.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, State, rejection::PathRejection},
};
use interlock_answers::{
    UnaskedEvaluators,
    model::verdict::{EvaluationAnswer, ReadinessQuery},
};
use interlock_engine::seam::Evaluators;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(evaluate))
}

/// Whether a slot may run, with every evaluator asked now. Nothing is written. A process that runs no engine asks none.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/evaluate", tag = "pipelines",
    params(("pipeline" = String, Path), ReadinessQuery),
    responses((status = 200, body = EvaluationAnswer)))]
async fn evaluate(
    State(surface): State<Arc<Surface>>,
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(asked): AskedQuery<ReadinessQuery>,
) -> Result<Json<EvaluationAnswer>, ApiError> {
    let Path(name) = name?;
    let evaluators: &dyn Evaluators = match surface.evaluators.get() {
        Some(asker) => &*asker.0,
        None => &UnaskedEvaluators,
    };
    Ok(Json(source.reader().readiness(&name, &asked, evaluators).await?))
}
