//! Requests to change something: handed in under the caller's `Idempotency-Key`, applied by the owner, answered with what came of it.
//!
//! 200 when it was done, 202 with `Location` when it is durable and not applied yet, 409 when the owner refused it. The same
//! key gets the same answer; 422 when it was used for something else. `Prefer: wait=SECONDS` says how long to wait for the owner.

use std::{fmt::Write as _, sync::Arc, time::Duration};

use axum::{
    Json,
    extract::FromRequestParts,
    http::{HeaderMap, HeaderValue, StatusCode, header::LOCATION, request::Parts},
    response::{IntoResponse as _, Response},
};
use interlock_answers::{ErrorCode, model::request::RequestAnswer};
use interlock_core::id::PipelineId;
use interlock_store::{
    Store,
    record::{AppliedRecord, InboxRecord},
};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::{
    asker::Asker, desk::refused, error::ApiError, idempotency::RequestKey, plan::ShownPlans,
    surface::Surface,
};

/// How long the owner is waited for, unless the caller wants less.
const APPLIED_IN: Duration = Duration::from_secs(10);

/// A request, as far as it is the same for all of them.
#[derive(Debug)]
pub(crate) struct WriteRequest {
    surface: Arc<Surface>,
    pub(crate) key: RequestKey,
    pub(crate) asker: Asker,
    wait: Duration,
}

/// What is asked for, and what tells it from another request under the same key: what the entry says, when absent.
#[derive(Debug)]
pub(crate) struct AskedWrite {
    pub(crate) record: InboxRecord,
    pub(crate) fingerprint: Option<String>,
}

impl FromRequestParts<Arc<Surface>> for WriteRequest {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Arc<Surface>,
    ) -> Result<Self, ApiError> {
        let key = RequestKey::from_request_parts(parts, surface).await?;
        let asker = Asker::of(&parts.extensions, &parts.headers).await;
        let wait = wait(&parts.headers).map_or(APPLIED_IN, |wait| wait.min(APPLIED_IN));
        Ok(Self { surface: Arc::clone(surface), key, asker, wait })
    }
}

/// For how long the caller would rather wait (RFC 7240).
fn wait(headers: &HeaderMap) -> Option<Duration> {
    let preferences = headers.get_all("prefer").iter().filter_map(|value| value.to_str().ok());
    let mut all = preferences.flat_map(|text| text.split(',')).map(str::trim);
    let seconds = all.find_map(|one| one.strip_prefix("wait=")?.parse().ok())?;
    Some(Duration::from_secs(seconds))
}

impl WriteRequest {
    /// The store.
    pub(crate) fn store(&self) -> Result<&Arc<dyn Store>, ApiError> {
        self.surface.open_store()
    }

    /// The time by the store's clock.
    pub(crate) async fn now(&self) -> Result<Timestamp, ApiError> {
        self.store()?.now().await.map_err(refused)
    }

    /// A pipeline that is declared.
    pub(crate) async fn pipeline(&self, name: &str) -> Result<PipelineId, ApiError> {
        self.surface.declared(name).await
    }

    /// The plans that were shown lately.
    pub(crate) fn shown_plans(&self) -> &ShownPlans {
        &self.surface.shown_plans
    }

    /// The answer to the same request when it was handed in before: what was planned for it then is not planned again.
    pub(crate) async fn repeated(
        &self,
        pipeline: &PipelineId,
        fingerprint: &str,
    ) -> Result<Option<Response>, ApiError> {
        if !self.key.is_given {
            return Ok(None);
        }
        self.surface.check_key(pipeline, &self.key, Some(fingerprint)).await?;
        let key = &self.key.stored;
        let waits = self.store()?.posted(pipeline, key).await.map_err(refused)?.is_some();
        if !waits && self.surface.answered(pipeline, key).await?.is_none() {
            return Ok(None);
        }
        let applied = self.surface.applied(pipeline, (key, self.wait)).await?;
        self.answer(pipeline, applied.as_ref()).map(Some)
    }

    /// Hands a request in and answers with what came of it.
    pub(crate) async fn send(
        &self,
        pipeline: &PipelineId,
        asked: AskedWrite,
    ) -> Result<Response, ApiError> {
        let applied = self.hand_in(pipeline, asked).await?;
        self.answer(pipeline, applied.as_ref())
    }

    /// Hands a request in, with who asks; answers with what came of it, if that is known soon.
    pub(crate) async fn hand_in(
        &self,
        pipeline: &PipelineId,
        AskedWrite { record, fingerprint }: AskedWrite,
    ) -> Result<Option<AppliedRecord>, ApiError> {
        let said = fingerprint.clone().or_else(|| record.fingerprint());
        // Of a sensor the entry itself says it, in two parts.
        let is_sensor = matches!(record, InboxRecord::Sensor { .. });
        let mut asker = self.asker.record.clone();
        asker.fingerprint = fingerprint.filter(|_| !is_sensor);
        let record = record.asked_by(asker);
        self.surface.submit(pipeline, &self.key, (&record, said.as_deref())).await?;
        self.surface.applied(pipeline, (&self.key.stored, self.wait)).await
    }

    fn answer(
        &self,
        pipeline: &PipelineId,
        applied: Option<&AppliedRecord>,
    ) -> Result<Response, ApiError> {
        let key = &self.key.stored;
        let answer = RequestAnswer::of(key, applied);
        match applied {
            Some(AppliedRecord { accepted: true, .. }) => Ok(Json(answer).into_response()),
            Some(AppliedRecord { result, .. }) => {
                Err(refusal(result).with("request", json!(answer)))
            }
            None => Ok(accepted(pipeline, key, Json(answer).into_response())),
        }
    }
}

/// Says where what comes of a request will be.
pub(crate) fn accepted(pipeline: &PipelineId, key: &str, answer: Response) -> Response {
    let mut response = (StatusCode::ACCEPTED, answer).into_response();
    let place = format!("/api/v1/requests/{pipeline}/{}", encoded(key));
    if let Ok(place) = HeaderValue::from_str(&place) {
        response.headers_mut().insert(LOCATION, place);
    }
    response
}

/// Why the owner did not do it.
pub(crate) fn refusal(result: &Value) -> ApiError {
    let reason = result.get("reason").and_then(Value::as_str);
    ApiError::new(
        ErrorCode::Refused,
        reason.map_or_else(|| result.to_string(), str::to_owned),
        "It was not done, and the same key gets the same answer.",
    )
}

/// A key as a part of a path.
fn encoded(key: &str) -> String {
    let is_plain = |byte: u8| byte.is_ascii_alphanumeric() || b"-._~".contains(&byte);
    key.bytes().fold(String::new(), |mut text, byte| {
        if is_plain(byte) {
            text.push(char::from(byte));
        } else {
            let _never = write!(text, "%{byte:02X}");
        }
        text
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_in_a_path_is_one_part_of_it() {
        assert_eq!(encoded("given-0a-b/c?d%"), "given-0a-b%2Fc%3Fd%25");
    }

    #[test]
    fn a_caller_may_wait_for_less_than_we_would() {
        let of = |value: &str| {
            let mut headers = HeaderMap::new();
            headers.insert("prefer", value.parse().unwrap());
            wait(&headers)
        };
        assert_eq!(of("wait=3"), Some(Duration::from_secs(3)));
        assert_eq!(of("respond-async, wait=0"), Some(Duration::ZERO));
        assert_eq!(of("return=minimal"), None);
        assert_eq!(wait(&HeaderMap::new()), None);
    }
}
