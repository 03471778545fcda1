//! Coming slots, and the days on which they are not as usual.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::model::next_slot::{
    MarkedDaysAnswer, MarkedDaysQuery, NextSlotsAnswer, NextSlotsQuery,
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(next_slots)).routes(routes!(marked_days))
}

/// The coming slots of a pipeline, with what daylight saving and calendars do to them.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/next", tag = "pipelines",
    params(("pipeline" = String, Path), NextSlotsQuery),
    responses((status = 200, body = NextSlotsAnswer)))]
async fn next_slots(
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(asked): AskedQuery<NextSlotsQuery>,
) -> Result<Json<NextSlotsAnswer>, ApiError> {
    let Path(name) = name?;
    let plan = source.plan(async move |reader| reader.next_slots(&name, &asked).await);
    Ok(Json(plan.await?))
}

/// The days ahead on which a calendar leaves slots of a pipeline out, or the clock is changed.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/marked-days", tag = "pipelines",
    params(("pipeline" = String, Path), MarkedDaysQuery),
    responses((status = 200, body = MarkedDaysAnswer)))]
async fn marked_days(
    source: ReaderSource,
    name: Result<Path<String>, PathRejection>,
    AskedQuery(asked): AskedQuery<MarkedDaysQuery>,
) -> Result<Json<MarkedDaysAnswer>, ApiError> {
    let Path(name) = name?;
    let plan = source.plan(async move |reader| reader.marked_days(&name, asked).await);
    Ok(Json(plan.await?))
}
