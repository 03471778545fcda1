//! Silences.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::silence::{SilenceAnswer, SilencesQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(silences))
}

/// Silences, by name.
#[utoipa::path(get, path = "/api/v1/silences", tag = "incidents", params(SilencesQuery),
    responses((status = 200, body = Listing<SilenceAnswer>)))]
async fn silences(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<SilencesQuery>,
) -> Result<Json<Listing<SilenceAnswer>>, ApiError> {
    Ok(Json(source.reader().silences(&asked).await?))
}
