//! Sensors of a pipeline.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    Listing,
    model::{page::PageQuery, sensor::SensorAnswer},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(sensors)).routes(routes!(sensor))
}

/// What was reported about the data of a pipeline, by key.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/sensors", tag = "sensors",
    params(("pipeline" = String, Path), PageQuery), responses((status = 200, body = Listing<SensorAnswer>)))]
async fn sensors(
    source: ReaderSource,
    pipeline: Result<Path<String>, PathRejection>,
    AskedQuery(asked): AskedQuery<PageQuery>,
) -> Result<Json<Listing<SensorAnswer>>, ApiError> {
    let Path(pipeline) = pipeline?;
    Ok(Json(source.reader().sensors(&pipeline, &asked).await?))
}

/// One sensor.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/sensors/{key}", tag = "sensors",
    params(("pipeline" = String, Path), ("key" = String, Path)), responses((status = 200, body = SensorAnswer)))]
async fn sensor(
    source: ReaderSource,
    asked: Result<Path<(String, String)>, PathRejection>,
) -> Result<Json<SensorAnswer>, ApiError> {
    let Path((pipeline, key)) = asked?;
    Ok(Json(source.reader().sensor(&pipeline, &key).await?))
}
