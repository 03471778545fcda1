//! Who may ask: whoever shows a token, once there is one.

use std::{fmt, sync::Arc};

use axum::{
    extract::{Request, State},
    http::{StatusCode, header::AUTHORIZATION},
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use crate::error::ApiError;

/// The tokens that open the door; with none it stands open, which only loopback may.
#[derive(Clone, Default)]
pub struct Tokens(Arc<[String]>);

impl Tokens {
    /// These.
    pub fn new(tokens: impl IntoIterator<Item = String>) -> Self {
        Self(tokens.into_iter().collect())
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Looks at every token to its end, so that the time it takes tells nothing.
    fn admit(&self, shown: &str) -> bool {
        self.0
            .iter()
            .fold(false, |found, token| found | is_same(token.as_bytes(), shown.as_bytes()))
    }
}

/// A token is never shown.
impl fmt::Debug for Tokens {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} tokens", self.0.len())
    }
}

fn is_same(one: &[u8], other: &[u8]) -> bool {
    let differences = one.iter().zip(other).fold(0, |seen, (a, b)| seen | (a ^ b));
    one.len() == other.len() && differences == 0
}

/// Lets a request pass that shows a token, if one is asked for.
pub(crate) async fn check(State(tokens): State<Tokens>, request: Request, next: Next) -> Response {
    let header = request.headers().get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    let shown = header.and_then(|text| text.strip_prefix("Bearer "));
    if tokens.is_empty() || shown.is_some_and(|shown| tokens.admit(shown.trim())) {
        return next.run(request).await;
    }
    ApiError {
        status: StatusCode::UNAUTHORIZED,
        code: "token_needed",
        message: "this needs a token, and none or a wrong one was shown".to_owned(),
        hint: "Send `Authorization: Bearer TOKEN` with a token of `server.tokens`.".to_owned(),
    }
    .into_response()
}
