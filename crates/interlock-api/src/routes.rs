//! Every area's router, joined.

use std::sync::Arc;

use axum::{
    Router,
    extract::{DefaultBodyLimit, Request},
    http::StatusCode,
    middleware::{from_fn_with_state, map_response},
    response::{IntoResponse as _, Response},
};

use crate::surface::Surface;
use crate::{access, access::Tokens, error::ApiError, health, limits, limits::Limits, metrics};

/// Health is for anybody who can reach it, as probes carry no token; the rest is for those who may ask.
pub(crate) fn routes(surface: Arc<Surface>, tokens: Tokens, limits: Limits) -> Router {
    let guarded = metrics::routes().layer(from_fn_with_state(tokens, access::check));
    health::routes()
        .merge(guarded)
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(limits.body_max))
        .layer(from_fn_with_state(limits, limits::check))
        .layer(map_response(never_sniffed))
        .with_state(surface)
}

async fn nothing_here(request: Request) -> Response {
    ApiError {
        status: StatusCode::NOT_FOUND,
        code: "not_found",
        message: format!("there is nothing at {}", request.uri().path()),
        hint: "There are /healthz, /readyz and /metrics.".to_owned(),
    }
    .into_response()
}

async fn not_so(request: Request) -> Response {
    ApiError {
        status: StatusCode::METHOD_NOT_ALLOWED,
        code: "method_not_allowed",
        message: format!("{} does not take {}", request.uri().path(), request.method()),
        hint: "The header `Allow` says what it takes.".to_owned(),
    }
    .into_response()
}

/// Answers are taken for what they say they are, and for now.
async fn never_sniffed(response: Response) -> impl axum::response::IntoResponse {
    ([("x-content-type-options", "nosniff"), ("cache-control", "no-store")], response)
}
