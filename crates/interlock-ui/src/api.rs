//! The API, asked within the process with the browser's own rights.
//!
//! The headers by which the API knows who asks, and from which page, are handed on as the browser sent them: it decides, the pages do not.

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    http::{
        Extensions, HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode, Uri,
        header::{AUTHORIZATION, CONTENT_TYPE, COOKIE, ETAG, HOST, IF_MATCH, ORIGIN},
        request::Parts,
    },
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::Value;
use tower_service::Service as _;

use crate::{trouble::Trouble, visit::Arrival};

/// Bytes of an answer at most: a page shows a few hundred rows.
const ANSWER_MAX: usize = 32 * 1024 * 1024;
/// What the API knows a caller by, and where the request comes from.
const HANDED_ON: [HeaderName; 8] = [
    AUTHORIZATION,
    COOKIE,
    HOST,
    ORIGIN,
    HeaderName::from_static("x-api-key"),
    HeaderName::from_static("sec-fetch-site"),
    HeaderName::from_static("sec-fetch-mode"),
    HeaderName::from_static("x-forwarded-proto"),
];

/// The API, as one caller may ask it.
pub(crate) struct Api {
    router: Router,
    headers: HeaderMap,
    extensions: Extensions,
}

/// What came of a request to change something.
#[derive(Debug, Clone, PartialEq)]
pub(crate) enum Outcome {
    /// It was done.
    Done(Value),
    /// It is durable, and its owner has not got to it.
    Accepted,
}

/// A plan, and the tag under which it is carried out.
#[derive(Debug, Clone)]
pub(crate) struct Tagged<T> {
    pub(crate) plan: T,
    pub(crate) etag: String,
}

impl Api {
    /// The API for who sent this request.
    pub(crate) fn of(router: Router, parts: &Parts) -> Self {
        let mut headers = HeaderMap::new();
        for name in HANDED_ON {
            for value in parts.headers.get_all(&name) {
                headers.append(&name, value.clone());
            }
        }
        headers.insert("interlock-client", HeaderValue::from_static("ui"));
        // Who follows a link from a message opens a page; no other site sees what is on it, or can frame it.
        let is = |name: &str, word: &str| parts.headers.get(name).is_some_and(|it| it == word);
        let is_opened = is("sec-fetch-mode", "navigate") && is("sec-fetch-dest", "document");
        if parts.method == Method::GET && is_opened {
            headers.insert("sec-fetch-site", HeaderValue::from_static("none"));
        }
        let arrival = parts.extensions.get::<Arrival>();
        let extensions = arrival.map(|arrival| arrival.0.clone()).unwrap_or_default();
        Self { router, headers, extensions }
    }

    /// A question.
    pub(crate) async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Trouble> {
        let (_, _, body) = self.ask(Method::GET, path, &HeaderMap::new(), Bytes::new()).await?;
        read(&body)
    }

    /// Text, such as the log of a job.
    pub(crate) async fn text(&self, path: &str) -> Result<(HeaderMap, String), Trouble> {
        let (_, headers, body) =
            self.ask(Method::GET, path, &HeaderMap::new(), Bytes::new()).await?;
        Ok((headers, String::from_utf8_lossy(&body).into_owned()))
    }

    /// What would happen.
    pub(crate) async fn plan<T: DeserializeOwned>(
        &self,
        path: &str,
        asked: &impl Serialize,
    ) -> Result<Tagged<T>, Trouble> {
        let (_, headers, body) =
            self.ask(Method::POST, path, &HeaderMap::new(), json(asked)).await?;
        let etag = headers.get(ETAG).and_then(|etag| etag.to_str().ok()).unwrap_or_default();
        Ok(Tagged { plan: read(&body)?, etag: etag.to_owned() })
    }

    /// Has something done.
    pub(crate) async fn act(&self, path: &str, asked: &impl Serialize) -> Result<Outcome, Trouble> {
        self.change(Method::POST, path, asked, &HeaderMap::new()).await
    }

    /// Has a plan carried out, exactly as it was looked at.
    pub(crate) async fn apply(
        &self,
        path: &str,
        asked: &impl Serialize,
        etag: &str,
    ) -> Result<Outcome, Trouble> {
        let mut headers = HeaderMap::new();
        let etag = HeaderValue::from_str(etag).map_err(|_unusable| Trouble::bad("the plan"))?;
        headers.insert(IF_MATCH, etag);
        self.change(Method::POST, path, asked, &headers).await
    }

    /// Has something taken away.
    pub(crate) async fn remove(&self, path: &str) -> Result<Outcome, Trouble> {
        self.change(Method::DELETE, path, &Value::Object(serde_json::Map::new()), &HeaderMap::new())
            .await
    }

    async fn change(
        &self,
        method: Method,
        path: &str,
        asked: &impl Serialize,
        headers: &HeaderMap,
    ) -> Result<Outcome, Trouble> {
        let (status, _, body) = self.ask(method, path, headers, json(asked)).await?;
        Ok(if status == StatusCode::ACCEPTED {
            Outcome::Accepted
        } else {
            Outcome::Done(serde_json::from_slice(&body).unwrap_or_default())
        })
    }

    async fn ask(
        &self,
        method: Method,
        path: &str,
        headers: &HeaderMap,
        body: Bytes,
    ) -> Result<(StatusCode, HeaderMap, Bytes), Trouble> {
        let uri: Uri = path.parse().map_err(|_unusable| Trouble::bad("the address"))?;
        let mut request = Request::new(Body::from(body));
        *request.method_mut() = method;
        *request.uri_mut() = uri;
        *request.extensions_mut() = self.extensions.clone();
        *request.headers_mut() = self.headers.clone();
        request.headers_mut().extend(headers.clone());
        request.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
        let mut router = self.router.clone();
        let Ok(response) = router.call(request).await;
        let (parts, body) = response.into_parts();
        let body = to_bytes(body, ANSWER_MAX)
            .await
            .map_err(|error| Trouble::failed(format!("the answer could not be read: {error}")))?;
        if parts.status.is_success() {
            Ok((parts.status, parts.headers, body))
        } else {
            Err(Trouble::read(parts.status, &body))
        }
    }
}

fn json(asked: &impl Serialize) -> Bytes {
    serde_json::to_vec(asked).unwrap_or_default().into()
}

fn read<T: DeserializeOwned>(body: &[u8]) -> Result<T, Trouble> {
    serde_json::from_slice(body)
        .map_err(|error| Trouble::failed(format!("the answer is not as expected: {error}")))
}
