//! What is around every page: headers, how a refusal looks, what a browser remembers, compression.

use std::{io::Write as _, sync::Arc};

use axum::{
    body::{Body, to_bytes},
    extract::{Request, State},
    http::{
        HeaderMap, HeaderValue, Method, StatusCode,
        header::{
            ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_SECURITY_POLICY,
            CONTENT_TYPE, HeaderName, LOCATION, REFERRER_POLICY, SET_COOKIE, VARY,
        },
    },
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use flate2::{Compression, write::GzEncoder};
use interlock_answers::ErrorCode;

use crate::{
    page,
    query::Query,
    theme::Theme,
    times::{Zone, ZoneChoice},
    trouble::Trouble,
    visit::{COOKIES, PagesState, Preferences},
};

/// Nothing but what comes from here, and nothing that is written into a page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; \
    connect-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";
/// Headers of every answer.
const HEADERS: [(HeaderName, &str); 4] = [
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "same-origin"),
    (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
    (HeaderName::from_static("permissions-policy"), "camera=(), geolocation=(), microphone=()"),
];
/// Seconds for which a browser remembers a preference.
const REMEMBERED_FOR: u32 = 400 * 24 * 3600;
/// What is smaller is sent as it is.
const SMALL: usize = 1_000;
/// How hard a page is compressed: a few milliseconds, and a tenth more than the most.
const LEVEL: u32 = 4;
const PAGE_MAX: usize = 64 * 1024 * 1024;

/// Around every page.
pub(crate) async fn dress(
    State(state): State<Arc<PagesState>>,
    request: Request,
    next: Next,
) -> Response {
    let (parts, body) = request.into_parts();
    let query = Query::parse(parts.uri.query().unwrap_or_default());
    let path = parts.uri.path().to_owned();
    if parts.method == Method::GET
        && let Some(response) = remember(&query, &path)
    {
        return response;
    }
    let preferences = Preferences::of(&parts.headers);
    let takes_gzip = takes_gzip(&parts.headers);
    let mut response = next.run(Request::from_parts(parts, body)).await;
    if let Some(trouble) = response.extensions_mut().remove::<Trouble>() {
        response = if trouble.needs_login() {
            see_other(&Query::default().and("next", query.at(&path)).at("/login"))
        } else {
            let times = preferences.times((state.clock)());
            page::trouble::show(&trouble, (&path, &query), (&preferences, &times))
        };
        // The API counts who is not let in.
        let code = ErrorCode::ALL.iter().find(|code| code.as_str() == trouble.code);
        response.extensions_mut().extend(
            code.map(|code| {
                let mut one = axum::http::Extensions::new();
                one.insert(*code);
                one
            })
            .unwrap_or_default(),
        );
    }
    for (name, value) in HEADERS {
        response.headers_mut().insert(name, HeaderValue::from_static(value));
    }
    if takes_gzip { smaller(response).await } else { response }
}

/// To another page.
pub(crate) fn see_other(place: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    if let Ok(place) = HeaderValue::from_str(place) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// Keeps a preference in the browser and goes to the same page without it.
fn remember(query: &Query, path: &str) -> Option<Response> {
    let theme = query.get("theme").and_then(Theme::parse).map(Theme::as_str);
    let choice = query.get("tz").and_then(ZoneChoice::parse).map(ZoneChoice::as_str);
    let zone = query.get("zone").and_then(Zone::named).map(|zone| zone.name);
    let said = [theme.map(str::to_owned), choice.map(str::to_owned), zone];
    if said.iter().all(Option::is_none) {
        return None;
    }
    let rest = query.clone().without("theme").without("tz").without("zone");
    let mut response = see_other(&rest.at(path));
    for (name, value) in COOKIES.iter().zip(said) {
        let Some(value) = value else { continue };
        let cookie = format!("{name}={value}; Path=/; SameSite=Lax; Max-Age={REMEMBERED_FOR}");
        if let Ok(cookie) = HeaderValue::from_str(&cookie) {
            response.headers_mut().append(SET_COOKIE, cookie);
        }
    }
    Some(response)
}

/// Whether a browser takes what is compressed.
pub(crate) fn takes_gzip(headers: &HeaderMap) -> bool {
    let all = headers.get_all(ACCEPT_ENCODING).iter().filter_map(|value| value.to_str().ok());
    let mut all = all.flat_map(|text| text.split(',')).map(str::trim);
    all.any(|one| one == "gzip" || one.starts_with("gzip;") && !one.ends_with("q=0"))
}

/// A page, compressed.
async fn smaller(response: Response) -> Response {
    let is_page = response
        .headers()
        .get(CONTENT_TYPE)
        .is_some_and(|it| it.as_bytes().starts_with(b"text/html"));
    if !is_page || response.headers().contains_key(CONTENT_ENCODING) {
        return response;
    }
    let (mut parts, body) = response.into_parts();
    let Ok(bytes) = to_bytes(body, PAGE_MAX).await else {
        return StatusCode::INTERNAL_SERVER_ERROR.into_response();
    };
    if bytes.len() < SMALL {
        return Response::from_parts(parts, Body::from(bytes));
    }
    parts.headers.remove(CONTENT_LENGTH);
    parts.headers.insert(CONTENT_ENCODING, HeaderValue::from_static("gzip"));
    parts.headers.insert(VARY, HeaderValue::from_static("accept-encoding"));
    Response::from_parts(parts, Body::from(compressed(&bytes, LEVEL)))
}

/// Bytes, compressed.
pub(crate) fn compressed(bytes: &[u8], level: u32) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::new(level));
    // Writing to memory does not fail.
    let _written = encoder.write_all(bytes);
    encoder.finish().unwrap_or_default()
}
