//! Slots and spans, and the story of one.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    Listing,
    model::{
        slot::{LedgerAnswer, SlotAnswer, SlotPath, SlotsQuery},
        story::StoryAnswer,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(slots)).routes(routes!(slot)).routes(routes!(story))
}

/// Slots in order of time, with what became of each. Many in a row with the same fate are a span.
#[utoipa::path(get, path = "/api/v1/slots", tag = "slots", params(SlotsQuery),
    responses((status = 200, body = Listing<LedgerAnswer>)))]
async fn slots(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<SlotsQuery>,
) -> Result<Json<Listing<LedgerAnswer>>, ApiError> {
    Ok(Json(source.reader().slots(&asked).await?))
}

/// One slot, with its runs.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}", tag = "slots",
    params(SlotPath), responses((status = 200, body = SlotAnswer)))]
async fn slot(
    source: ReaderSource,
    asked: Result<Path<SlotPath>, PathRejection>,
) -> Result<Json<SlotAnswer>, ApiError> {
    let Path(asked) = asked?;
    Ok(Json(source.reader().slot(&asked).await?))
}

/// The story of a slot: its runs, what happened to it and who was told; or why there is none.
#[utoipa::path(get, path = "/api/v1/pipelines/{pipeline}/slots/{schedule}/{instant}/story", tag = "slots",
    params(SlotPath), responses((status = 200, body = StoryAnswer)))]
async fn story(
    source: ReaderSource,
    asked: Result<Path<SlotPath>, PathRejection>,
) -> Result<Json<StoryAnswer>, ApiError> {
    let Path(asked) = asked?;
    Ok(Json(source.reader().story(&asked).await?))
}
