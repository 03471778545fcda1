//! When no report could reach Interlock.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::coverage::{CoverageGapAnswer, CoverageGapsQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(coverage_gaps))
}

/// Times in which no report could reach Interlock, oldest first.
#[utoipa::path(get, path = "/api/v1/coverage-gaps", tag = "system", params(CoverageGapsQuery),
    responses((status = 200, body = Listing<CoverageGapAnswer>)))]
async fn coverage_gaps(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<CoverageGapsQuery>,
) -> Result<Json<Listing<CoverageGapAnswer>>, ApiError> {
    Ok(Json(source.reader().coverage_gaps(&asked).await?))
}
