//! Attempts that were refused (401, 403, 429): counted, and mentioned in the log from time to time.
//!
//! An attempt costs a stranger nothing, so the log has a line for one in ten seconds, which says how many it stands for.

use std::{
    collections::BTreeMap,
    net::IpAddr,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::{
    extract::{Request, State},
    http::{Method, Uri},
    middleware::Next,
    response::Response,
};
use interlock_answers::ErrorCode;
use tokio::time::Instant;

use crate::{server::Peer, surface::Surface};

/// How long the log says no more of it.
const SILENT_FOR: Duration = Duration::from_secs(10);
/// Characters of a path that are logged.
const PATH_MAX: usize = 100;
/// The codes of refused attempts.
pub(crate) const CODES: [ErrorCode; 6] = [
    ErrorCode::TokenNeeded,
    ErrorCode::SignatureNeeded,
    ErrorCode::ScopeNeeded,
    ErrorCode::ForeignOrigin,
    ErrorCode::TooManyWrongTokens,
    ErrorCode::TooOften,
];

/// What was refused since the process began.
#[derive(Debug, Default)]
pub(crate) struct RefusalCounts(Mutex<RefusalState>);

#[derive(Debug, Default)]
struct RefusalState {
    by_code: BTreeMap<ErrorCode, u64>,
    /// When the log last said so.
    logged_at: Option<Instant>,
    /// How many it has not mentioned since.
    silent: u64,
}

impl RefusalCounts {
    /// How often a code was answered.
    pub(crate) fn count(&self, code: ErrorCode) -> u64 {
        let state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        state.by_code.get(&code).copied().unwrap_or(0)
    }

    /// Counts one; if the log is to say so, for how many others its line stands.
    fn take(&self, code: ErrorCode, now: Instant) -> Option<u64> {
        let mut state = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        *state.by_code.entry(code).or_default() += 1;
        let is_silent = |at| now.saturating_duration_since(at) < SILENT_FOR;
        if state.logged_at.is_some_and(is_silent) {
            state.silent += 1;
            return None;
        }
        state.logged_at = Some(now);
        Some(std::mem::take(&mut state.silent))
    }
}

/// Counts what the rest of the interface refuses.
pub(crate) async fn watch(
    State(surface): State<Arc<Surface>>,
    request: Request,
    next: Next,
) -> Response {
    let (method, uri, peer) = (request.method().clone(), request.uri().clone(), Peer::ip(&request));
    let response = next.run(request).await;
    let code = response.extensions().get::<ErrorCode>().copied();
    if let Some(code) = code.filter(|code| CODES.contains(code))
        && let Some(others) = surface.refusals.take(code, Instant::now())
    {
        log((&method, &uri, peer), code, others);
    }
    response
}

fn log((method, uri, peer): (&Method, &Uri, IpAddr), code: ErrorCode, others: u64) {
    let path: String = uri.path().chars().take(PATH_MAX).collect();
    let code = code.as_str();
    let hint = "`interlock_http_refused_total` counts them all";
    if others == 0 {
        tracing::warn!("refused {method} {path} from {peer}: {code}");
    } else {
        tracing::warn!("refused {method} {path} from {peer}: {code}; {others} more before; {hint}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_are_counted_and_the_log_has_one_in_ten_seconds_for_all() {
        let (counts, start) = (RefusalCounts::default(), Instant::now());
        let take =
            |seconds| counts.take(ErrorCode::TokenNeeded, start + Duration::from_secs(seconds));
        assert_eq!([0, 0, 9, 10, 11].map(take), [Some(0), None, None, Some(2), None]);
        assert_eq!(counts.count(ErrorCode::TokenNeeded), 5);
        assert_eq!(counts.count(ErrorCode::TooOften), 0);
    }
}
