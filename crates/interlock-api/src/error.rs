//! What is answered when there is nothing else to answer, in one shape for every route: RFC 9457.

use axum::{
    Json,
    http::{
        HeaderValue, StatusCode,
        header::{CONTENT_TYPE, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    response::{IntoResponse, Response},
};
use interlock_answers::{AnswerError, ErrorCode};
use serde_json::{Map, Value};

/// The type of the content.
pub(crate) const PROBLEM_JSON: &str = "application/problem+json";

/// A refusal: a word that programs may rely on, a sentence, and what to do next. Its status follows from the word.
#[derive(Debug)]
pub(crate) struct ApiError {
    pub(crate) code: ErrorCode,
    pub(crate) message: String,
    pub(crate) hint: String,
    /// What else the body says, where a route has more to tell.
    pub(crate) members: Map<String, Value>,
}

impl ApiError {
    /// A refusal.
    pub(crate) fn new(
        code: ErrorCode,
        message: impl Into<String>,
        hint: impl Into<String>,
    ) -> Self {
        Self { code, message: message.into(), hint: hint.into(), members: Map::new() }
    }

    /// The process is not at work yet.
    pub(crate) fn starting() -> Self {
        Self::new(ErrorCode::Starting, "it is starting", "Try again in a moment.")
    }

    /// The same, telling more.
    pub(crate) fn with(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.members.insert(name.to_owned(), value.into());
        self
    }

    /// The status that it is answered with.
    pub(crate) fn status(&self) -> StatusCode {
        StatusCode::from_u16(self.code.status()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR)
    }
}

impl From<AnswerError> for ApiError {
    fn from(AnswerError { code, message, hint }: AnswerError) -> Self {
        Self::new(code, message, hint)
    }
}

impl IntoResponse for ApiError {
    fn into_response(self) -> Response {
        let status = self.status();
        let Self { code, message, hint, members } = self;
        let problem = AnswerError { code, message, hint }.into_problem();
        let mut body = serde_json::to_value(problem).unwrap_or_default();
        if let Some(fields) = body.as_object_mut() {
            fields.extend(members);
        }
        let mut response = (status, Json(body)).into_response();
        let headers = response.headers_mut();
        headers.insert(CONTENT_TYPE, HeaderValue::from_static(PROBLEM_JSON));
        if status == StatusCode::UNAUTHORIZED {
            let asks = HeaderValue::from_static("Bearer realm=\"interlock\"");
            headers.insert(WWW_AUTHENTICATE, asks);
        } else if status == StatusCode::TOO_MANY_REQUESTS {
            headers.insert(RETRY_AFTER, HeaderValue::from_static("1"));
        }
        response.extensions_mut().insert(code);
        response
    }
}
