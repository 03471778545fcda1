//! What one request may cost, time and size, and how many may come from one address.

use std::{net::IpAddr, sync::Arc, time::Duration};

use axum::{
    extract::{Request, State},
    http::header::CONTENT_LENGTH,
    middleware::Next,
    response::{IntoResponse as _, Response},
};

use interlock_answers::ErrorCode;
use tokio::time::Instant;

use crate::{buckets::Buckets, error::ApiError, ping, server::Peer};

/// What one request may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long an answer may take.
    pub time: Duration,
    /// Bytes in a body at most.
    pub body_max: usize,
    /// Requests from one address each second, twice as many at once; this machine is not counted. The same for each
    /// token, wherever it is shown: behind a proxy everybody is this machine.
    pub per_second: u32,
    /// How long a client may take nothing of what is written to it.
    pub unread: Duration,
}

/// How often each token came.
#[derive(Debug)]
pub(crate) struct TokenPace {
    per_second: u32,
    came: Buckets<String>,
}

impl TokenPace {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { per_second: limits.per_second, came: steady(limits) }
    }

    /// Counts a request with a token; a refusal when there were too many.
    pub(crate) fn count(&self, name: &str) -> Result<(), ApiError> {
        let taken = self.came.take(name.to_owned(), Instant::now());
        taken.map_err(|_wait| too_often(self.per_second, "with this token"))
    }
}

fn steady<K: Ord>(limits: Limits) -> Buckets<K> {
    Buckets::new(limits.per_second, limits.per_second.saturating_mul(2))
}

/// The limits, and how often each address came.
#[derive(Debug)]
pub(crate) struct Gate {
    limits: Limits,
    came: Buckets<IpAddr>,
}

impl Gate {
    pub(crate) fn new(limits: Limits) -> Self {
        Self { limits, came: steady(limits) }
    }
}

/// Refuses what is too much or too large before it is read, and gives up on what takes too long.
pub(crate) async fn check(State(gate): State<Arc<Gate>>, request: Request, next: Next) -> Response {
    let limits = gate.limits;
    let peer = Peer::ip(&request);
    if !peer.is_loopback() && gate.came.take(peer, Instant::now()).is_err() {
        return too_often(limits.per_second, "from this address").into_response();
    }
    let length = request.headers().get(CONTENT_LENGTH).and_then(|value| value.to_str().ok());
    let length: Option<usize> = length.and_then(|text| text.parse().ok());
    // What a job says at its end is cut off, never turned away with the news that it carries.
    let length = length.filter(|_| !request.uri().path().starts_with(ping::PREFIX));
    if length.is_some_and(|length| length > limits.body_max) {
        return ApiError::new(
            ErrorCode::TooLarge,
            format!("a request has at most {} bytes", limits.body_max),
            "`server.maxRequestBody` in interlock.yaml sets the limit.",
        )
        .into_response();
    }
    match tokio::time::timeout(limits.time, next.run(request)).await {
        Ok(response) => response,
        Err(_elapsed) => {
            let message = format!("there was no answer in {} s", limits.time.as_secs());
            ApiError::new(ErrorCode::TooSlow, message, "Try again.").into_response()
        }
    }
}

fn too_often(per_second: u32, whose: &str) -> ApiError {
    ApiError::new(
        ErrorCode::TooOften,
        format!("more than {per_second} requests in a second came {whose}"),
        "`server.maxRequestsPerSecond` in interlock.yaml sets the limit.",
    )
}
