//! What came of a request.

use std::sync::Arc;

use axum::{Json, extract::State};
use interlock_answers::{ErrorCode, model::request::RequestAnswer};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    desk::refused,
    error::ApiError,
    question::{AskedPath, pipeline_or_system},
    surface::Surface,
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(request))
}

/// What came of a request, whether it was done or not. `Location` of a 202 leads here.
#[utoipa::path(get, path = "/api/v1/requests/{pipeline}/{key}", tag = "requests",
    params(("pipeline" = String, Path), ("key" = String, Path, description = "As the answer to the request says.")),
    responses((status = 200, body = RequestAnswer)))]
async fn request(
    State(surface): State<Arc<Surface>>,
    AskedPath((pipeline, key)): AskedPath<(String, String)>,
) -> Result<Json<RequestAnswer>, ApiError> {
    let pipeline = pipeline_or_system(&pipeline)?;
    let waits = surface.open_store()?.posted(&pipeline, &key).await.map_err(refused)?.is_some();
    // First what waits, then what was answered: an entry goes from there to here.
    let applied = surface.answered(&pipeline, &key).await?;
    if applied.is_none() && !waits {
        let hint = "Answers are kept for eight days; the answer to a request names its key.";
        let message = format!("there is no request `{key}` of {pipeline}");
        return Err(ApiError::new(ErrorCode::NotFound, message, hint));
    }
    Ok(Json(RequestAnswer::of(&key, applied.as_ref())))
}
