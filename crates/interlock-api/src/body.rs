//! What a request's body says, as the type of its route.

use axum::{
    body::Bytes,
    extract::{FromRequest, Request},
    http::StatusCode,
};
use interlock_answers::{ErrorCode, model::request::RequestBody};
use serde_json::Value;

use crate::{error::ApiError, idempotency::fingerprint};

/// A body as it came, at most as large as `server.maxRequestBody`.
#[derive(Debug)]
pub(crate) struct RawBody(pub(crate) Bytes);

impl<S: Send + Sync> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        Bytes::from_request(request, state).await.map(Self).map_err(|rejection| {
            if rejection.status() == StatusCode::PAYLOAD_TOO_LARGE {
                let hint = "`server.maxRequestBody` in interlock.yaml sets the limit.";
                return ApiError::new(ErrorCode::TooLarge, rejection.body_text(), hint);
            }
            let message = format!("cannot read the body: {}", rejection.body_text());
            ApiError::new(ErrorCode::BrokenBody, message, "Nothing was recorded. Send it again.")
        })
    }
}

/// A body of JSON.
#[derive(Debug)]
pub(crate) struct JsonBody<T> {
    pub(crate) asked: T,
    /// What tells it from another body, however that is laid out.
    pub(crate) fingerprint: String,
}

impl<T: RequestBody> JsonBody<T> {
    /// Reads one.
    pub(crate) fn read(bytes: &[u8]) -> Result<Self, ApiError> {
        if bytes.is_empty()
            && let Some(asked) = T::when_empty()
        {
            return Ok(Self { asked, fingerprint: fingerprint("") });
        }
        let mut json = serde_json::Deserializer::from_slice(bytes);
        let read = serde_path_to_error::deserialize(&mut json);
        let asked: T = read.map_err(|error| {
            let place = error.path().to_string();
            let place = if place == "." { String::new() } else { format!(" at `{place}`") };
            bad_body::<T>(&format!("{place}: {}", error.inner()))
        })?;
        json.end().map_err(|error| bad_body::<T>(&format!(": {error}")))?;
        let said: Value = serde_json::from_slice(bytes).unwrap_or_default();
        Ok(Self { asked, fingerprint: fingerprint(&said.to_string()) })
    }
}

fn bad_body<T: RequestBody>(why: &str) -> ApiError {
    let message = format!("the body is not accepted{why}");
    ApiError::new(ErrorCode::BadBody, message, format!("Send JSON like {}.", T::EXAMPLE))
}

impl<T: RequestBody, S: Send + Sync> FromRequest<S> for JsonBody<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        Self::read(&bytes)
    }
}

#[cfg(test)]
mod tests {
    use interlock_answers::model::request::{RerunRequest, RunRequest};

    use super::*;

    #[test]
    fn a_body_says_what_is_wrong_with_it_and_where_and_how_it_should_look() {
        for (body, place) in [
            (r#"{"params": {"a": 1}}"#, "at `params.a`"),
            (r#"{"slots": "x"}"#, "`slots`"),
            ("[1", "is not accepted"),
            ("{} x", "trailing"),
        ] {
            let refused = JsonBody::<RunRequest>::read(body.as_bytes()).unwrap_err();
            assert_eq!(refused.code, ErrorCode::BadBody);
            assert!(refused.message.contains(place), "{}", refused.message);
            assert!(refused.hint.contains("daily/"), "{}", refused.hint);
        }
        assert!(JsonBody::<RunRequest>::read(b"").is_ok(), "nothing means the usual");
        assert!(JsonBody::<RerunRequest>::read(b"").is_err(), "a reason is needed");
    }

    #[test]
    fn the_same_body_laid_out_differently_is_the_same() {
        let of = |body: &str| JsonBody::<RunRequest>::read(body.as_bytes()).unwrap().fingerprint;
        assert_eq!(of(r#"{"force":true,"params":{}}"#), of(r#" {"params": {}, "force": true}"#));
        assert_ne!(of(r#"{"force": true}"#), of(r#"{"force": false}"#));
    }
}
