//! Events.

use std::sync::Arc;

use axum::Json;
use interlock_answers::{
    Listing,
    model::event::{EventAnswer, EventsQuery},
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(events))
}

/// Events, oldest or newest first.
#[utoipa::path(get, path = "/api/v1/events", tag = "events", params(EventsQuery),
    responses((status = 200, body = Listing<EventAnswer>)))]
async fn events(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<EventsQuery>,
) -> Result<Json<Listing<EventAnswer>>, ApiError> {
    Ok(Json(source.reader().events(&asked).await?))
}
