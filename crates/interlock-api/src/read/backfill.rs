//! Backfills.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    Listing,
    model::backfill::{BackfillAnswer, BackfillPath, BackfillsQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(backfills)).routes(routes!(backfill))
}

/// Backfills, by pipeline and number.
#[utoipa::path(get, path = "/api/v1/backfills", tag = "backfills", params(BackfillsQuery),
    responses((status = 200, body = Listing<BackfillAnswer>)))]
async fn backfills(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<BackfillsQuery>,
) -> Result<Json<Listing<BackfillAnswer>>, ApiError> {
    Ok(Json(source.reader().backfills(&asked).await?))
}

/// One backfill.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/backfills/{id}", tag = "backfills",
    params(BackfillPath), responses((status = 200, body = BackfillAnswer)))]
async fn backfill(
    source: ReaderSource,
    asked: Result<Path<BackfillPath>, PathRejection>,
) -> Result<Json<BackfillAnswer>, ApiError> {
    let Path(asked) = asked?;
    Ok(Json(source.reader().backfill(&asked).await?))
}
