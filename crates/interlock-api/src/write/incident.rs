//! Incidents: acknowledged, resolved, spoken about.

use std::sync::Arc;

use axum::response::Response;
use interlock_answers::{
    ErrorCode,
    model::request::{IncidentRequest, RequestAnswer},
};
use interlock_core::incident::Hand;
use interlock_store::record::InboxRecord;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    error::ApiError,
    question::{AskedPath, pipeline_or_system},
    surface::Surface,
    writing::{AskedWrite, WriteRequest},
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .routes(routes!(acknowledge_incident))
        .routes(routes!(resolve_incident))
        .routes(routes!(note_incident))
}

/// Which incident: its pipeline may be long gone, or `_system`.
type IncidentPath = AskedPath<(String, String)>;

/// Say that an incident is looked at.
#[utoipa::path(post, path = "/api/v1/incidents/{pipeline}/{key}/acknowledge", tag = "incidents",
    params(("pipeline" = String, Path), ("key" = String, Path)), request_body = Option<IncidentRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn acknowledge_incident(
    path: IncidentPath,
    request: WriteRequest,
    body: JsonBody<IncidentRequest>,
) -> Result<Response, ApiError> {
    handle(path, Hand::Acknowledge, request, body).await
}

/// Call an incident over. It opens again if it is found again.
#[utoipa::path(post, path = "/api/v1/incidents/{pipeline}/{key}/resolve", tag = "incidents",
    params(("pipeline" = String, Path), ("key" = String, Path)), request_body = Option<IncidentRequest>,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn resolve_incident(
    path: IncidentPath,
    request: WriteRequest,
    body: JsonBody<IncidentRequest>,
) -> Result<Response, ApiError> {
    handle(path, Hand::Resolve, request, body).await
}

/// Keep a note about an incident, open or resolved, in its history.
#[utoipa::path(post, path = "/api/v1/incidents/{pipeline}/{key}/note", tag = "incidents",
    params(("pipeline" = String, Path), ("key" = String, Path)), request_body = IncidentRequest,
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn note_incident(
    path: IncidentPath,
    request: WriteRequest,
    body: JsonBody<IncidentRequest>,
) -> Result<Response, ApiError> {
    if body.asked.note.as_deref().is_none_or(|note| note.trim().is_empty()) {
        let hint = "Send it as `note`.";
        return Err(ApiError::new(ErrorCode::BadBody, "a note needs a text", hint));
    }
    handle(path, Hand::Note, request, body).await
}

async fn handle(
    AskedPath((pipeline, key)): IncidentPath,
    hand: Hand,
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<IncidentRequest>,
) -> Result<Response, ApiError> {
    let pipeline = pipeline_or_system(&pipeline)?;
    let (hand, by) = (hand.as_str().to_owned(), request.asker.record.by.clone());
    let record = InboxRecord::Incident { key, hand, by, note: asked.note };
    request.send(&pipeline, AskedWrite { record, fingerprint: Some(fingerprint) }).await
}
