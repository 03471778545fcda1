//! Every area's router, joined.

use std::sync::Arc;

use axum::{
    Extension, Router,
    extract::{DefaultBodyLimit, Request},
    http::{
        HeaderValue,
        header::{CACHE_CONTROL, CONTENT_TYPE, X_CONTENT_TYPE_OPTIONS},
    },
    middleware::{from_fn_with_state, map_response},
    response::{IntoResponse as _, Response},
};
use interlock_answers::ErrorCode;
use utoipa::openapi::OpenApi;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::surface::Surface;
use crate::{
    access::{self, Doorkeeper, InProcess, Need},
    badge, document,
    error::ApiError,
    evaluate, health,
    limits::{self, Limits},
    metrics, ping, plan, read, refusals,
    server::Shutdown,
    session, stream, write,
};

/// Every route with its description. Health and the document are for everybody who can reach them, as probes carry no token; the rest
/// says what it needs.
fn described() -> (Router<Arc<Surface>>, OpenApi) {
    let (router, mut document) = OpenApiRouter::with_openapi(document::empty())
        .routes(routes!(openapi_document))
        .merge(health::routes())
        .merge(access::guarded(metrics::routes(), Need::View))
        .merge(access::guarded(ping::routes(), Need::Ping))
        .merge(access::guarded(session::described_routes(), Need::View))
        .merge(access::guarded(badge::routes(), Need::Badge))
        .merge(access::guarded(read::routes(), Need::View))
        .merge(access::guarded(plan::routes(), Need::View))
        .merge(access::guarded(stream::routes(), Need::View))
        .merge(access::guarded(evaluate::routes(), Need::Operate))
        .merge(access::guarded(read::admin_routes(), Need::Administer))
        .merge(read::instance_routes())
        .merge(write::routes())
        .split_for_parts();
    document::finish(&mut document);
    (router, document)
}

/// The OpenAPI document of all routes, as `docs/openapi.json` has it.
pub fn openapi() -> String {
    let (_, document) = described();
    let mut text = document.to_pretty_json().unwrap_or_default();
    text.push('\n');
    text
}

/// Makes the pages for people, which ask this API as programs do, within the process.
pub type MakePages = Box<dyn FnOnce(Router) -> Router + Send>;

/// What the interface is made of.
pub(crate) struct RoutesInput {
    pub(crate) surface: Arc<Surface>,
    pub(crate) door: Doorkeeper,
    pub(crate) limits: Limits,
    pub(crate) shutdown: Shutdown,
    /// Pages, where there are some.
    pub(crate) pages: Option<MakePages>,
}

/// All routes, at work under the common limits.
pub(crate) fn routes(input: RoutesInput) -> Router {
    let RoutesInput { surface, door, limits, shutdown, pages } = input;
    let (router, document) = described();
    let document = DocumentText(document.to_json().unwrap_or_default().into());
    let api = router
        .layer(Extension(document))
        .fallback(nothing_here)
        .method_not_allowed_fallback(not_so)
        .layer(DefaultBodyLimit::max(limits.body_max))
        .layer(Extension(door.clone()))
        .layer(Extension(shutdown))
        .layer(Extension(Arc::new(limits::TokenPace::new(limits))))
        .with_state(Arc::clone(&surface));
    let all = match pages {
        Some(make) => {
            let within = api.clone().layer(Extension(InProcess));
            let sessions =
                session::routes().layer(Extension(door)).with_state(Arc::clone(&surface));
            api.reset_fallback().fallback_service(sessions.fallback_service(make(within)))
        }
        None => api,
    };
    all.layer(from_fn_with_state(Arc::new(limits::Gate::new(limits)), limits::check))
        .layer(from_fn_with_state(surface, refusals::watch))
        .layer(map_response(never_sniffed))
}

/// The document as it is sent.
#[derive(Debug, Clone)]
struct DocumentText(Arc<str>);

/// This document.
#[utoipa::path(get, path = "/api/v1/openapi.json", tag = "about",
    responses((status = 200, body = Object, content_type = "application/json")))]
async fn openapi_document(Extension(document): Extension<DocumentText>) -> Response {
    ([(CONTENT_TYPE, "application/json")], document.0.to_string()).into_response()
}

async fn nothing_here(request: Request) -> Response {
    ApiError::new(
        ErrorCode::NotFound,
        format!("there is no resource at {}", request.uri().path()),
        "There are /ping/PIPELINE, /api/v1/…, /healthz, /readyz and /metrics.",
    )
    .into_response()
}

async fn not_so(request: Request) -> Response {
    ApiError::new(
        ErrorCode::MethodNotAllowed,
        format!("{} does not accept {}", request.uri().path(), request.method()),
        "The header `Allow` says what it accepts.",
    )
    .into_response()
}

/// Answers are taken for what they say they are, and for now.
async fn never_sniffed(mut response: Response) -> Response {
    let headers = response.headers_mut();
    headers.insert(X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
    // What the pages are dressed in has names that change with it, and says itself how long it may be kept.
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    response
}
