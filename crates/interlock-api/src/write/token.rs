//! Tokens: made and revoked by admins.

use std::sync::Arc;

use axum::{
    Json,
    response::{IntoResponse as _, Response},
};
use interlock_answers::{
    ErrorCode,
    model::request::{NewTokenAnswer, RequestAnswer, TokenRequest},
};
use interlock_core::id::PipelineId;
use interlock_store::record::{AppliedRecord, InboxRecord};
use jiff::Timestamp;
use serde_json::Value;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::JsonBody,
    desk::refused,
    error::ApiError,
    question::AskedPath,
    surface::Surface,
    token::{Scope, Token},
    writing::{AskedWrite, WriteRequest, accepted, refusal},
};

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(create_token)).routes(routes!(revoke_token))
}

/// Make a token. It is shown only in this answer; what is kept is a hash.
#[utoipa::path(post, path = "/api/v1/tokens", tag = "tokens", request_body = TokenRequest,
    responses((status = 200, body = NewTokenAnswer), (status = 202, body = NewTokenAnswer)))]
async fn create_token(
    request: WriteRequest,
    JsonBody { asked, fingerprint }: JsonBody<TokenRequest>,
) -> Result<Response, ApiError> {
    let now = request.now().await?;
    let (text, token) = minted(asked, (&request.asker.record.by, now))?;
    let (id, system) = (token.id(), PipelineId::system());
    let record = keep(&id, Some(token.to_json()), &request);
    let applied =
        request.hand_in(&system, AskedWrite { record, fingerprint: Some(fingerprint) }).await?;
    let made = match &applied {
        Some(AppliedRecord { accepted: false, result, .. }) => return Err(refusal(result)),
        Some(AppliedRecord { result, .. }) => made_id(result),
        None => waiting_id(&request).await?,
    };
    if made.is_some_and(|made| made != id) {
        let hint = "A token is shown once. Revoke that one and make another under a new key.";
        let message = "a token was made under this `Idempotency-Key` before, and shown then";
        return Err(ApiError::new(ErrorCode::Refused, message, hint));
    }
    let answer = NewTokenAnswer { id, token: text, applied: applied.is_some() };
    let answer = Json(answer).into_response();
    Ok(match applied {
        Some(_) => answer,
        None => accepted(&system, &request.key.stored, answer),
    })
}

/// Make a token worthless, within a second or two.
#[utoipa::path(delete, path = "/api/v1/tokens/{id}", tag = "tokens", params(("id" = String, Path)),
    responses((status = 200, body = RequestAnswer), (status = 202, body = RequestAnswer)))]
async fn revoke_token(
    AskedPath(id): AskedPath<String>,
    request: WriteRequest,
) -> Result<Response, ApiError> {
    let record = keep(&id, None, &request);
    request.send(&PipelineId::system(), AskedWrite { record, fingerprint: None }).await
}

/// A token as it is asked for, and its text.
fn minted(asked: TokenRequest, (by, now): (&str, Timestamp)) -> Result<(String, Token), ApiError> {
    let bad = |message: &str, hint: &str| ApiError::new(ErrorCode::BadBody, message, hint);
    let TokenRequest { name, scope, pipelines, expires_at } = asked;
    if name.trim().is_empty() || name.chars().any(char::is_control) {
        return Err(bad("`name` is empty, or has control characters", "Say whose token it is."));
    }
    if (scope == "ping") == pipelines.is_empty() {
        let hint = r#"Send {"scope": "ping", "pipelines": ["orders*"]}; other scopes are for all pipelines."#;
        return Err(bad(
            "a token with the scope `ping` names its pipelines; other tokens do not",
            hint,
        ));
    }
    if expires_at.is_some_and(|end| end <= now) {
        let hint = "`expiresAt` lies ahead.";
        return Err(ApiError::new(ErrorCode::BadTime, "the token would expire at once", hint));
    }
    let hint = "It is `ping`, `badge`, `viewer`, `operator` or `admin`.";
    let scope = Scope::parse(&scope, pipelines)
        .ok_or_else(|| bad(&format!("`scope` is `{scope}`"), hint))?;
    let (text, token) = Token::mint(&name, scope).ok_or_else(|| {
        let message = "cannot get random numbers from the system";
        ApiError::new(ErrorCode::Internal, message, "Try again.")
    })?;
    let (created_at, by) = (Some(now), by.to_owned());
    Ok((text, Token { created_at, by, expires_at, ..token }))
}

fn keep(id: &str, value: Option<Value>, request: &WriteRequest) -> InboxRecord {
    let (kind, id, by) = ("token".to_owned(), id.to_owned(), request.asker.record.by.clone());
    InboxRecord::Keep { kind, id, value, by }
}

/// The token that a request made.
fn made_id(result: &Value) -> Option<String> {
    result.get("token").and_then(Value::as_str).map(str::to_owned)
}

/// The token that the request under a key will make.
async fn waiting_id(request: &WriteRequest) -> Result<Option<String>, ApiError> {
    let system = PipelineId::system();
    let mut waits = request.store()?.posted(&system, &request.key.stored).await.map_err(refused)?;
    if let Some(record) = &mut waits {
        record.take_asker();
    }
    Ok(if let Some(InboxRecord::Keep { id, .. }) = waits { Some(id) } else { None })
}
