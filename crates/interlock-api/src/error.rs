//! What is answered when there is nothing else to answer, in one shape for every area.

use axum::{
    Json,
    http::StatusCode,
    response::{IntoResponse, Response},
};
use serde_json::{Value, json};

/// A refusal: a status, a word that scripts may rely on, a sentence, and what to do next.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) status: StatusCode,
    pub(crate) code: &'static str,
    pub(crate) message: String,
    pub(crate) hint: String,
}

impl ApiError {
    /// Its body.
    pub(crate) fn body(&self) -> Value {
        let Self { status: _, code, message, hint } = self;
        json!({ "error": { "code": code, "message": message, "hint": hint } })
    }

    /// The process is there and cannot do its work now.
    pub(crate) fn unavailable(code: &'static str, message: String, hint: &str) -> Self {
        let status = StatusCode::SERVICE_UNAVAILABLE;
        Self { status, code, message, hint: hint.to_owned() }
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        (self.status, Json(self.body())).into_response()
    }
}
