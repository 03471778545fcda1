//! Questions: how a route reads what it is asked, and how an answer's error becomes a refusal.

use std::sync::Arc;

use axum::{
    extract::{
        FromRequest, FromRequestParts, Path, RawPathParams, Request, rejection::PathRejection,
    },
    http::request::Parts,
};
use interlock_answers::{AnswerError, Declarations, ErrorCode, Reader};
use interlock_core::id::PipelineId;
use interlock_store::{Store, block_on};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use tokio::sync::Semaphore;

use crate::{
    body::RawBody,
    desk::{refused, unknown_pipeline},
    error::ApiError,
    surface::Surface,
};

/// What a query says, as the type of its route: an unknown or malformed parameter is refused with those that the route knows; one that
/// may be given several times is a `Vec`, and means "or".
#[derive(Debug)]
pub(crate) struct AskedQuery<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Sync> FromRequestParts<S> for AskedQuery<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _state: &S) -> Result<Self, ApiError> {
        let query = parts.uri.query().unwrap_or_default();
        let parameters = serde_html_form::Deserializer::from_bytes(query.as_bytes());
        serde_path_to_error::deserialize(parameters).map(Self).map_err(|error| {
            let (parameter, problem) = (error.path().to_string(), error.inner());
            let message = match parameter.as_str() {
                "." | "?" => format!("the query is not accepted: {problem}"),
                parameter => format!("`{parameter}` is not accepted: {problem}"),
            };
            let hint = "/api/v1/openapi.json has each route's parameters.";
            ApiError::new(ErrorCode::BadParameter, message, hint)
        })
    }
}

/// What a JSON body says, as the type of its route. No body at all is an empty object.
#[derive(Debug)]
pub(crate) struct AskedBody<T>(pub(crate) T);

impl<T: DeserializeOwned, S: Send + Sync> FromRequest<S> for AskedBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody(body) = RawBody::from_request(request, state).await?;
        let body: &[u8] = if body.is_empty() { b"{}" } else { &body };
        let mut json = serde_json::Deserializer::from_slice(body);
        serde_path_to_error::deserialize(&mut json).map(Self).map_err(|error| {
            let message = match error.path().to_string().as_str() {
                "." => format!("the body is not accepted: {}", error.inner()),
                field => format!("`{field}` of the body is not accepted: {}", error.inner()),
            };
            let hint = "/api/v1/openapi.json has each route's body.";
            ApiError::new(ErrorCode::BadBody, message, hint)
        })
    }
}

/// What a path says, as the type of its route. No name has control characters, and no store can keep them all.
#[derive(Debug)]
pub(crate) struct AskedPath<T>(pub(crate) T);

impl<T: DeserializeOwned + Send, S: Send + Sync> FromRequestParts<S> for AskedPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if let Ok(raw) = RawPathParams::from_request_parts(parts, state).await
            && let Some((name, _)) =
                raw.iter().find(|(_, value)| value.chars().any(char::is_control))
        {
            let message = format!("`{name}` has control characters");
            return Err(ApiError::new(ErrorCode::BadParameter, message, "No name has them."));
        }
        let path = Path::from_request_parts(parts, state).await;
        path.map(|Path(asked)| Self(asked)).map_err(ApiError::from)
    }
}

/// What a reader needs, held for as long as a request takes.
#[derive(Debug)]
pub(crate) struct ReaderSource {
    store: Arc<dyn Store>,
    declarations: Arc<dyn Declarations>,
    now: Timestamp,
    plans: Arc<Semaphore>,
}

impl ReaderSource {
    /// The same as of another instant, if one is given.
    pub(crate) fn at(self, at: Option<Timestamp>) -> Self {
        Self { now: at.unwrap_or(self.now), ..self }
    }

    /// Answers what may take long on a thread of its own, so that other requests are answered meanwhile; few of them at a time.
    pub(crate) async fn plan<T: Send + 'static>(
        self,
        plan: impl AsyncFnOnce(Reader<'_>) -> Result<T, AnswerError> + Send + 'static,
    ) -> Result<T, ApiError> {
        let permit = Arc::clone(&self.plans).acquire_owned().await;
        let work = move || {
            // Held until it is done, also when who asked has gone.
            let _permit = permit;
            block_on(plan(self.reader()))
        };
        match tokio::task::spawn_blocking(work).await {
            Ok(answer) => Ok(answer?),
            Err(broken) => Err(ApiError::new(
                ErrorCode::StoreUnreachable,
                format!("cannot make the plan: {broken}"),
                "Try again; the log says what happened.",
            )),
        }
    }

    /// The store and the declarations behind it.
    pub(crate) fn into_parts(self) -> (Arc<dyn Store>, Arc<dyn Declarations>, Timestamp) {
        (self.store, self.declarations, self.now)
    }

    /// The reader.
    pub(crate) fn reader(&self) -> Reader<'_> {
        Reader { store: &*self.store, declarations: &*self.declarations, now: self.now }
    }
}

impl FromRequestParts<Arc<Surface>> for ReaderSource {
    type Rejection = ApiError;

    async fn from_request_parts(
        _parts: &mut Parts,
        surface: &Arc<Surface>,
    ) -> Result<Self, ApiError> {
        let store = Arc::clone(surface.open_store()?);
        let declarations = surface.declarations.get().cloned().ok_or_else(ApiError::starting)?;
        let now = store.now().await.map_err(refused)?;
        Ok(Self { store, declarations, now, plans: Arc::clone(&surface.plans) })
    }
}

/// The pipeline of a name, which may be long gone, or `_system`.
pub(crate) fn pipeline_or_system(name: &str) -> Result<PipelineId, ApiError> {
    PipelineId::any(name).map_err(|_unusable| unknown_pipeline(name))
}

/// A part of a path that is no text.
impl From<PathRejection> for ApiError {
    fn from(rejection: PathRejection) -> Self {
        let hint = "Paths are UTF-8, percent-encoded where needed.";
        Self::new(ErrorCode::BadParameter, rejection.body_text(), hint)
    }
}
