//! What one request may cost: time and size.

use std::time::Duration;

use axum::{
    extract::{Request, State},
    http::{StatusCode, header::CONTENT_LENGTH},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use crate::error::ApiError;

/// What one request may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long an answer may take.
    pub time: Duration,
    /// Bytes in a body at most.
    pub body_max: usize,
}

/// Refuses what is too large before it is read, and gives up on what takes too long.
pub(crate) async fn check(State(limits): State<Limits>, request: Request, next: Next) -> Response {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length: Option<usize> = length.and_then(|text| text.parse().ok());
    if length.is_some_and(|length| length > limits.body_max) {
        return ApiError {
            status: StatusCode::PAYLOAD_TOO_LARGE,
            code: "too_large",
            message: format!("a request has at most {} bytes", limits.body_max),
            hint: "`server.maxRequestBody` in interlock.yaml sets the limit.".to_owned(),
        }
        .into_response();
    }
    match tokio::time::timeout(limits.time, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => {
            let message = format!("there was no answer in {} s", limits.time.as_secs());
            ApiError::unavailable("too_slow", message, "Try again.").into_response()
        }
    }
}
