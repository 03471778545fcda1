//! Pauses.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::{page::PageQuery, pause::PauseAnswer},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(pauses))
}

/// Pipelines that are paused now.
#[utoipa::path(get, path = "/api/v1/pauses", tag = "pipelines", params(PageQuery),
    responses((status = 200, body = Listing<PauseAnswer>)))]
async fn pauses(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<PageQuery>,
) -> Result<Json<Listing<PauseAnswer>>, ApiError> {
    Ok(Json(source.reader().pauses(&asked).await?))
}
