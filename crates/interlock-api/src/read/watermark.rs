//! Watermarks.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::watermark::{WatermarkAnswer, WatermarksQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(watermarks))
}

/// How far schedules are recorded.
#[utoipa::path(get, path = "/api/v1/watermarks", tag = "pipelines", params(WatermarksQuery),
    responses((status = 200, body = Listing<WatermarkAnswer>)))]
async fn watermarks(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<WatermarksQuery>,
) -> Result<Json<Listing<WatermarkAnswer>>, ApiError> {
    Ok(Json(source.reader().watermarks(&asked).await?))
}
