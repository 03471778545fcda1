//! Incidents, and the alerts that tell of them.

use std::sync::Arc;

use axum::{
    Json,
    extract::{Path, rejection::PathRejection},
};
use interlock_answers::{
    Listing,
    model::{
        incident::{
            DeadLetterAnswer, IncidentAnswer, IncidentDetailAnswer, IncidentGroupsAnswer,
            IncidentGroupsQuery, IncidentPath, IncidentsQuery,
        },
        page::PageQuery,
    },
};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    error::ApiError,
    question::{AskedQuery, ReaderSource},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .routes(routes!(incidents))
        .routes(routes!(incident_groups))
        .routes(routes!(incident))
        .routes(routes!(dead_letters))
}

/// Incidents, newest first; those that are not resolved unless a state is asked for.
#[utoipa::path(get, path = "/api/v1/incidents", tag = "incidents", params(IncidentsQuery),
    responses((status = 200, body = Listing<IncidentAnswer>)))]
async fn incidents(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<IncidentsQuery>,
) -> Result<Json<Listing<IncidentAnswer>>, ApiError> {
    Ok(Json(source.reader().incidents(&asked).await?))
}

/// Open incidents, counted by what they have in common.
#[utoipa::path(get, path = "/api/v1/incidents/groups", tag = "incidents", params(IncidentGroupsQuery),
    responses((status = 200, body = IncidentGroupsAnswer)))]
async fn incident_groups(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<IncidentGroupsQuery>,
) -> Result<Json<IncidentGroupsAnswer>, ApiError> {
    Ok(Json(source.reader().incident_groups(&asked).await?))
}

/// One incident, with its alerts that are not delivered.
#[utoipa::path(get, path = "/api/v1/incidents/{pipeline}/{key}", tag = "incidents",
    params(IncidentPath), responses((status = 200, body = IncidentDetailAnswer)))]
async fn incident(
    source: ReaderSource,
    asked: Result<Path<IncidentPath>, PathRejection>,
) -> Result<Json<IncidentDetailAnswer>, ApiError> {
    let Path(asked) = asked?;
    Ok(Json(source.reader().incident(&asked).await?))
}

/// Alerts that were given up, those that came first first.
#[utoipa::path(get, path = "/api/v1/dead-letters", tag = "incidents", params(PageQuery),
    responses((status = 200, body = Listing<DeadLetterAnswer>)))]
async fn dead_letters(
    source: ReaderSource,
    AskedQuery(asked): AskedQuery<PageQuery>,
) -> Result<Json<Listing<DeadLetterAnswer>>, ApiError> {
    Ok(Json(source.reader().dead_letters(&asked).await?))
}
