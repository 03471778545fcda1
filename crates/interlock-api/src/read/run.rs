//! Runs.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    Listing,
    model::run::{RunAnswer, RunsQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(runs)).routes(routes!(run))
}

/// Runs, newest first.
#[utoipa::path(get, path = "/api/v1/runs", tag = "runs", params(RunsQuery),
    responses((status = 200, body = Listing<RunAnswer>)))]
async fn runs(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<RunsQuery>,
) -> Result<Json<Listing<RunAnswer>>, ApiError> {
    Ok(Json(source.reader().runs(&asked).await?))
}

/// One run.
#[utoipa::path(get, path = "/api/v1/runs/{id}", tag = "runs", params(("id" = String, Path)),
    responses((status = 200, body = RunAnswer)))]
async fn run(
    source: ReaderSource,
    id: Result<Path<String>, PathRejection>,
) -> Result<Json<RunAnswer>, ApiError> {
    let Path(id) = id?;
    Ok(Json(source.reader().run(&id).await?))
}
