//! Every area's router, joined.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request},
    http::StatusCode,
    middleware::{from_fn_with_state, map_response},
    response::{IntoResponse as _, Response},
};

use crate::surface::Surface;
use crate::{
    access::{self, Doorkeeper, Need},
    error::ApiError,
    health,
    limits::{self, Limits},
    metrics, ping, requests,
};

/// Health is for anybody who can reach it, as probes carry no token; the rest says what it needs.
pub(crate) fn routes(surface: Arc<Surface>, door: Doorkeeper, limits: Limits) -> Router {
    health::routes()
        .merge(access::guarded(metrics::routes(), Need::View))
        .merge(access::guarded(ping::routes(), Need::Ping))
        .merge(access::guarded(requests::report_routes(), Need::Ping))
        .merge(access::guarded(requests::routes(), Need::Operate))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(limits.body_max))
        .layer(Extension(door))
        .layer(Extension(Arc::new(limits::TokenPace::new(limits))))
        .layer(from_fn_with_state(Arc::new(limits::Gate::new(limits)), limits::check))
        .layer(map_response(never_sniffed))
        .with_state(surface)
}

async fn nothing_here(request: Request) -> Response {
    ApiError {
        status: StatusCode::NOT_FOUND,
        code: "not_found",
        message: format!("there is nothing at {}", request.uri().path()),
        hint: "There are /ping/PIPELINE, /api/v1/…, /healthz, /readyz and /metrics.".to_owned(),
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
