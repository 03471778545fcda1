//! Whose an `Idempotency-Key` is, and what a second request under it gets.
//!
//! A key belongs to the token, the method and the path that it came with (ADR 54): two tokens, or two routes, that happen to use
//! the same word do not answer each other. Under one key there is one request. The store keeps the first, in the inbox and
//! then with its answer for eight days, so that this holds across processes, restarts and changes of owner; the same
//! request again gets the first one's answer, another one gets 422.

use std::{fmt::Write as _, sync::Arc};

use aws_lc_rs::digest;
use axum::{
    extract::FromRequestParts,
    http::{Extensions, HeaderMap, Method, request::Parts},
};
use interlock_answers::ErrorCode;
use interlock_core::id::{PipelineId, fnv1a};
use interlock_store::{Key, Record, record::InboxRecord};

use crate::{
    access::Caller,
    desk::{Desk, refused},
    error::ApiError,
    surface::Surface,
};

/// Bytes of an `Idempotency-Key`.
const KEY_MAX: usize = 200;
/// Bytes of the hash that stands for token, method and path: too many to find a second path with the same one.
const SCOPE_BYTES: usize = 16;

/// The key under which a request is handed in.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct RequestKey {
    /// As the store has it.
    pub(crate) stored: String,
    /// Whether the caller gave it. A key of ours was never used before.
    pub(crate) is_given: bool,
}

impl RequestKey {
    /// A key that no request has used.
    pub(crate) fn fresh(desk: &Desk) -> Self {
        Self { stored: desk.fresh_key(), is_given: false }
    }

    /// The key of a request: the caller's own, for this token, method and path, else a fresh one.
    pub(crate) fn of(
        desk: &Desk,
        (method, path): (&Method, &str),
        headers: &HeaderMap,
        extensions: &Extensions,
    ) -> Result<Self, ApiError> {
        let Some(given) = headers.get("idempotency-key") else { return Ok(Self::fresh(desk)) };
        let text = given.to_str().ok().map(str::trim);
        let is_fine = |text: &&str| {
            (1..=KEY_MAX).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_graphic())
        };
        let text = text.filter(is_fine).ok_or_else(|| {
            ApiError::new(
                ErrorCode::BadIdempotencyKey,
                "the header `Idempotency-Key` is not accepted",
                format!("It has 1 to {KEY_MAX} visible ASCII characters, such as a UUID."),
            )
        })?;
        let token = extensions.get::<Caller>().and_then(|caller| caller.name.as_deref());
        let scope = scope(token, (method, path));
        Ok(Self { stored: format!("given-{scope}-{text}"), is_given: true })
    }

    /// The key of a second entry that comes with the first.
    pub(crate) fn beside(&self, word: &str) -> Self {
        Self { stored: format!("{}~{word}", self.stored), is_given: self.is_given }
    }
}

impl FromRequestParts<Arc<Surface>> for RequestKey {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Arc<Surface>,
    ) -> Result<Self, ApiError> {
        let route = (&parts.method, parts.uri.path());
        Self::of(&surface.desk, route, &parts.headers, &parts.extensions)
    }
}

/// What tells the keys of one token and route from those of others. A slash at the end of a path changes no route.
fn scope(token: Option<&str>, (method, path): (&Method, &str)) -> String {
    let token = token.map_or_else(|| "none".to_owned(), |name| format!("token {name}"));
    let text = format!("{token}\n{method}\n{}", path.trim_end_matches('/'));
    let hash = digest::digest(&digest::SHA256, text.as_bytes());
    hash.as_ref().iter().take(SCOPE_BYTES).fold(String::new(), |mut text, byte| {
        let _never = write!(text, "{byte:02x}");
        text
    })
}

/// What tells a request from another under the same key.
pub(crate) fn fingerprint(said: &str) -> String {
    format!("{:016x}", fnv1a(said.as_bytes()))
}

impl Surface {
    /// Hands in an entry under a key; durable when it returns. 422 if another request has the key: nothing is handed in then.
    pub(crate) async fn submit(
        &self,
        pipeline: &PipelineId,
        key: &RequestKey,
        (record, fingerprint): (&InboxRecord, Option<&str>),
    ) -> Result<(), ApiError> {
        self.open_store()?.post(pipeline, &key.stored, record).await.map_err(refused)?;
        self.check_key(pipeline, key, fingerprint).await
    }

    /// Whether a key is free for a request, or was used for the same.
    pub(crate) async fn check_key(
        &self,
        pipeline: &PipelineId,
        key: &RequestKey,
        fingerprint: Option<&str>,
    ) -> Result<(), ApiError> {
        let Some(fingerprint) = fingerprint.filter(|_| key.is_given) else { return Ok(()) };
        match self.first_request(pipeline, &key.stored).await? {
            Some(earlier) if !InboxRecord::is_repeat(&earlier, fingerprint) => Err(reused()),
            Some(_) | None => Ok(()),
        }
    }

    /// The fingerprint of the request that has a key. First what waits, then what was answered: an entry goes from there to here.
    async fn first_request(
        &self,
        pipeline: &PipelineId,
        key: &str,
    ) -> Result<Option<String>, ApiError> {
        let store = self.open_store()?;
        if let Some(waiting) = store.posted(pipeline, key).await.map_err(refused)? {
            return Ok(waiting.fingerprint());
        }
        let keys = [Key::Applied(key.to_owned())];
        let rows = store.read(pipeline, &keys).await.map_err(refused)?;
        Ok(match rows.into_iter().flatten().next().map(|row| row.record) {
            Some(Record::Applied(answer)) => answer.request.clone(),
            _ => None,
        })
    }
}

/// Another request has the key.
pub(crate) fn reused() -> ApiError {
    ApiError::new(
        ErrorCode::KeyReused,
        "this `Idempotency-Key` was used for another request",
        "Nothing was done. Each request needs a key of its own, such as a UUID; only the same request may be \
         sent again under its key.",
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_belongs_to_its_token_its_method_and_its_path() {
        let same = scope(Some("ci"), (&Method::POST, "/ping/a"));
        assert_eq!(
            same,
            scope(Some("ci"), (&Method::POST, "/ping/a/")),
            "a slash is no other route"
        );
        assert_eq!(same.len(), 2 * SCOPE_BYTES);
        for (token, method, path) in [
            (None, Method::POST, "/ping/a"),
            (Some("none"), Method::POST, "/ping/a"),
            (Some("cd"), Method::POST, "/ping/a"),
            (Some("ci"), Method::GET, "/ping/a"),
            (Some("ci"), Method::POST, "/ping/a/fail"),
            (Some("ci"), Method::POST, "/ping/b"),
        ] {
            assert_ne!(same, scope(token, (&method, path)), "{token:?} {method} {path}");
        }
        assert_ne!(scope(None, (&Method::GET, "/")), scope(Some("none"), (&Method::GET, "/")));
    }
}
