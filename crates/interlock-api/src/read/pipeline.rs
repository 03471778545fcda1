//! Pipelines.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    Listing,
    model::pipeline::{InstantQuery, PipelineAnswer, PipelineDetailAnswer, PipelinesQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(pipelines)).routes(routes!(pipeline))
}

/// Pipelines that are declared or recorded and not retired, by name.
#[utoipa::path(get, path = "/api/v1/pipelines", tag = "pipelines", params(PipelinesQuery),
    responses((status = 200, body = Listing<PipelineAnswer>)))]
async fn pipelines(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<PipelinesQuery>,
) -> Result<Json<Listing<PipelineAnswer>>, ApiError> {
    Ok(Json(source.reader().pipelines(&asked).await?))
}

/// One pipeline, retired or not, with all that it declares.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}", tag = "pipelines",
    params(("pipeline" = String, Path), InstantQuery),
    responses((status = 200, body = PipelineDetailAnswer)))]
async fn pipeline(
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(InstantQuery { at }): AskedQuery<InstantQuery>,
) -> Result<Json<PipelineDetailAnswer>, ApiError> {
    let Path(name) = name?;
    Ok(Json(source.at(at).reader().pipeline(&name).await?))
}
