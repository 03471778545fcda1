//! Who may ask for what.
//!
//! A route says what it needs, and nothing else about access:
//!
//! ```text
//! access::guarded(Router::new().route("/ping/{pipeline}", any(ping)), Need::Ping)
//! access::guarded(Router::new().route("/api/v1/runs/{id}/complete", post(complete)), Need::Operate)
//! ```
//!
//! [`guarded`] lets a request pass whose token has a scope that is enough, answers 401 where no token that is known
//! is shown, 403 where its scope is not enough, and 429 to an address that shows too many wrong ones. For
//! [`Need::Ping`] the path must name the pipeline as `{pipeline}`. A handler that wants to know who asks takes
//! `Extension<Caller>`.
//!
//! While there is no token at all the door stands open, which only loopback may: an interface that can be reached
//! from elsewhere asks for one always, even when the last was just revoked.
//!
//! A token is shown as `Authorization: Bearer TOKEN`, as `X-API-Key: TOKEN`, or as the password (or the name without
//! one) of `Authorization: Basic`, which is what `curl https://:TOKEN@host/ping/…` sends. Never in the address: those
//! are written to logs by everybody on the way.

use std::{
    net::IpAddr,
    sync::{Arc, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    Extension, Router,
    extract::{RawPathParams, Request, rejection::RawPathParamsRejection},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{AUTHORIZATION, RETRY_AFTER, WWW_AUTHENTICATE},
    },
    middleware::{Next, from_fn},
    response::{IntoResponse as _, Response},
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use interlock_core::id::PipelineId;
use interlock_store::{Store, StoreError, kept::TOKEN_PREFIX};
use jiff::Timestamp;
use tokio::time::Instant;

pub use crate::token::Need;
use crate::{
    address::Exposure,
    buckets::Buckets,
    error::ApiError,
    limits::TokenPace,
    server::Peer,
    surface::Surface,
    token::{self, Scope, Token},
};

/// Wrong tokens that an address may show at once, and how many more each second.
const WRONG_AT_ONCE: u32 = 20;
const WRONG_PER_SECOND: u32 = 1;

/// Tells the time.
pub type Clock = Arc<dyn Fn() -> Timestamp + Send + Sync>;

/// Who stands at the door: the tokens, and how often somebody was wrong.
#[derive(Clone)]
pub struct Doorkeeper(Arc<Inner>);

struct Inner {
    /// Those of the files.
    declared: Vec<Token>,
    /// Those of the store, as they were last read.
    stored: RwLock<Arc<[Token]>>,
    exposure: Exposure,
    clock: Clock,
    wrong: Buckets<IpAddr>,
}

/// Who asks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Caller {
    /// The name of the token; nobody's where none is asked for.
    pub name: Option<String>,
    /// What they may do.
    pub scope: Scope,
}

impl std::fmt::Debug for Doorkeeper {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} tokens", self.0.declared.len() + self.stored().len())
    }
}

impl Doorkeeper {
    /// One who knows the tokens of the files.
    pub fn new(declared: Vec<Token>, exposure: Exposure, clock: Clock) -> Self {
        let wrong = Buckets::new(WRONG_PER_SECOND, WRONG_AT_ONCE);
        let stored = RwLock::new(Arc::default());
        Self(Arc::new(Inner { declared, stored, exposure, clock, wrong }))
    }

    /// Takes over the tokens that a store has now.
    pub fn take(&self, tokens: Vec<Token>) {
        *self.0.stored.write().unwrap_or_else(PoisonError::into_inner) = tokens.into();
    }

    fn stored(&self) -> Arc<[Token]> {
        Arc::clone(&self.0.stored.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Who shows this token.
    fn caller(&self, shown: Option<&str>) -> Option<Caller> {
        let stored = self.stored();
        let declared = &self.0.declared;
        if declared.is_empty() && stored.is_empty() && self.0.exposure == Exposure::LoopbackOnly {
            return Some(Caller { name: None, scope: Scope::Admin });
        }
        let all = declared.iter().chain(stored.iter());
        let found = token::find(all, shown?, (self.0.clock)())?;
        Some(Caller { name: Some(found.name.clone()), scope: found.scope.clone() })
    }

    fn admit(&self, visit: &Visit<'_>) -> Result<Caller, ApiError> {
        let Some(caller) = self.caller(visit.shown) else {
            // To show nothing is no guess.
            let wrong = visit.shown.map(|_| self.0.wrong.take(visit.peer, Instant::now()));
            return Err(match wrong {
                Some(Err(wait)) => too_many(wait),
                Some(Ok(())) | None => nobody(),
            });
        };
        if caller.scope.allows(visit.need, visit.pipeline) {
            return Ok(caller);
        }
        Err(not_enough(visit.need))
    }
}

/// A request, as far as access is concerned.
struct Visit<'a> {
    need: Need,
    pipeline: Option<&'a str>,
    shown: Option<&'a str>,
    peer: IpAddr,
}

/// Lets requests pass to these routes that may do what they need.
pub(crate) fn guarded(routes: Router<Arc<Surface>>, need: Need) -> Router<Arc<Surface>> {
    let check = move |Extension(door): Extension<Doorkeeper>,
                      Extension(pace): Extension<Arc<TokenPace>>,
                      params: Result<RawPathParams, RawPathParamsRejection>,
                      request: Request,
                      next: Next| async move {
        // A path that is no text names nobody; whoever takes it says so.
        let named = params
            .as_ref()
            .ok()
            .and_then(|params| params.iter().find(|(name, _)| *name == "pipeline"));
        let pipeline = named.map(|(_, value)| value);
        let shown = shown(request.headers());
        let peer = Peer::of(&request);
        let admitted = door.admit(&Visit { need, pipeline, shown: shown.as_deref(), peer });
        let counted = admitted.and_then(|caller| {
            caller.name.as_deref().map_or(Ok(()), |name| pace.count(name)).map(|()| caller)
        });
        match counted {
            Ok(caller) => {
                let mut request = request;
                request.extensions_mut().insert(caller);
                next.run(request).await
            }
            Err(refusal) => refused(refusal),
        }
    };
    routes.route_layer(from_fn(check))
}

fn refused(refusal: ApiError) -> Response {
    let status = refusal.status;
    let mut response = refusal.into_response();
    if status == StatusCode::UNAUTHORIZED {
        let asks = HeaderValue::from_static("Bearer realm=\"interlock\"");
        response.headers_mut().insert(WWW_AUTHENTICATE, asks);
    } else if status == StatusCode::TOO_MANY_REQUESTS {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// The token that a request shows.
fn shown(headers: &HeaderMap) -> Option<String> {
    let text = |name: &str| headers.get(name).and_then(|value| value.to_str().ok()).map(str::trim);
    let key = text("x-api-key").map(str::to_owned);
    let Some((how, what)) = text(AUTHORIZATION.as_str()).and_then(|text| text.split_once(' '))
    else {
        return key;
    };
    if how.eq_ignore_ascii_case("bearer") {
        return Some(what.trim().to_owned());
    }
    if !how.eq_ignore_ascii_case("basic") {
        return key;
    }
    let decoded = String::from_utf8(BASE64_STANDARD.decode(what.trim()).ok()?).ok()?;
    let (name, password) = decoded.split_once(':')?;
    Some(if password.is_empty() { name } else { password }.to_owned())
}

fn nobody() -> ApiError {
    ApiError {
        status: StatusCode::UNAUTHORIZED,
        code: "token_needed",
        message: "this needs a token, and none or a wrong one was shown".to_owned(),
        hint: "Send `Authorization: Bearer TOKEN`; `interlock token create` makes one.".to_owned(),
    }
}

fn not_enough(need: Need) -> ApiError {
    ApiError {
        status: StatusCode::FORBIDDEN,
        code: "scope_needed",
        message: format!("this needs a token with the scope {}", need.least()),
        hint: "`interlock token list` says what each token may do.".to_owned(),
    }
}

fn too_many(wait: Duration) -> ApiError {
    ApiError {
        status: StatusCode::TOO_MANY_REQUESTS,
        code: "too_many_wrong_tokens",
        message: "too many wrong tokens were shown from this address".to_owned(),
        hint: format!("Try again in {} s, with the right one.", wait.as_secs().max(1)),
    }
}

/// The tokens that a store has. One that cannot be read opens nothing.
pub async fn stored_tokens(store: &dyn Store) -> Result<Vec<Token>, StoreError> {
    let rows = store.sensors(&PipelineId::system()).await?;
    let tokens = rows.into_iter().filter(|(key, _)| key.starts_with(TOKEN_PREFIX));
    Ok(tokens.filter_map(|(_, row)| Token::from_json(&row.record.value)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        let pairs =
            pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        pairs.collect()
    }

    #[test]
    fn a_token_is_found_wherever_it_may_be_shown() {
        for (pairs, expected) in [
            (&[("authorization", "Bearer abc")][..], Some("abc")),
            (&[("authorization", "bearer  abc ")], Some("abc")),
            (&[("x-api-key", "abc")], Some("abc")),
            // `:abc`, `abc:` and `ann:abc`.
            (&[("authorization", "Basic OmFiYw==")], Some("abc")),
            (&[("authorization", "Basic YWJjOg==")], Some("abc")),
            (&[("authorization", "Basic YW5uOmFiYw==")], Some("abc")),
            (&[("authorization", "Basic nonsense!")], None),
            (&[("authorization", "Digest abc"), ("x-api-key", "def")], Some("def")),
            (&[("authorization", "abc")], None),
            (&[], None),
        ] {
            assert_eq!(shown(&headers(pairs)).as_deref(), expected, "{pairs:?}");
        }
    }

    #[test]
    fn without_a_token_only_loopback_is_open_and_a_revoked_last_one_opens_nothing() {
        let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let open = Doorkeeper::new(vec![], Exposure::LoopbackOnly, Arc::clone(&clock));
        assert_eq!(open.caller(None).map(|caller| caller.scope), Some(Scope::Admin));
        open.take(vec![Token::known("ci", Scope::Viewer, "abc")]);
        assert_eq!(open.caller(None), None);
        assert_eq!(open.caller(Some("abc")).map(|caller| caller.scope), Some(Scope::Viewer));
        let exposed = Doorkeeper::new(vec![], Exposure::Anywhere, clock);
        exposed.take(vec![Token::known("ci", Scope::Viewer, "abc")]);
        exposed.take(vec![]);
        assert_eq!(exposed.caller(None), None);
        assert_eq!(exposed.caller(Some("abc")), None);
    }

    #[test]
    fn an_address_that_guesses_is_told_to_wait_and_the_others_are_not() {
        let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let declared = vec![Token::known("ci", Scope::Admin, "abc")];
        let door = Doorkeeper::new(declared, Exposure::Anywhere, clock);
        let visit = |peer: [u8; 4], shown| {
            let visit = Visit { need: Need::View, pipeline: None, shown, peer: peer.into() };
            door.admit(&visit).map_or_else(|refusal| refusal.status.as_u16(), |_| 200)
        };
        let guesses: Vec<u16> = (0..50).map(|_| visit([1, 1, 1, 1], Some("guess"))).collect();
        assert!(guesses.starts_with(&[401; 20]) && guesses.ends_with(&[429; 20]), "{guesses:?}");
        assert_eq!(visit([1, 1, 1, 1], None), 401);
        assert_eq!(visit([1, 1, 1, 1], Some("abc")), 200, "the right one is always let in");
        assert_eq!(visit([2, 2, 2, 2], Some("guess")), 401);
    }
}
