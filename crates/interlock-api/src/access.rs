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
//! from elsewhere asks for one always, even when the last was just revoked. An open door is open to whoever runs a
//! program on this machine, not to every page that somebody's browser shows: what a page of another origin asks for,
//! and what is asked for under a name that is not this machine's (which is what a rebound name looks like), is refused.
//! With a token none of that is looked at: no page knows one.
//!
//! A browser shows a session instead ([`session`]): a cookie that `POST /session` gave for a token. It counts for as
//! long as that token, never on `/ping`, and changes something only for a page of the same origin.
//!
//! A token is shown as `Authorization: Bearer TOKEN`, as `X-API-Key: TOKEN`, or as the password (or the name without
//! one) of `Authorization: Basic`, which is what `curl https://:TOKEN@host/ping/…` sends. Never in the address: those
//! are written to logs by everybody on the way. The one exception is a token that shows badges and nothing else: a page
//! that has an image in it sends no header, so it is `?key=TOKEN`, and no other token is taken there.

use std::{
    net::IpAddr,
    sync::{Arc, OnceLock, PoisonError, RwLock},
    time::Duration,
};

use axum::{
    Extension,
    extract::{RawPathParams, Request, rejection::RawPathParamsRejection},
    http::{
        HeaderMap, HeaderValue, Method, Uri,
        header::{AUTHORIZATION, HOST, ORIGIN},
        uri::Authority,
    },
    middleware::{Next, from_fn},
    response::IntoResponse as _,
};
use base64::{Engine as _, prelude::BASE64_STANDARD};
use interlock_answers::ErrorCode;
use interlock_core::id::PipelineId;
use interlock_store::{Store, StoreError, kept::TOKEN_PREFIX};
use jiff::Timestamp;
use tokio::time::Instant;
use utoipa_axum::router::OpenApiRouter;

pub use crate::token::Need;
use crate::{
    address::Exposure,
    buckets::Buckets,
    document,
    error::ApiError,
    limits::TokenPace,
    server::Peer,
    session::{self, SessionKey},
    surface::Surface,
    token::{self, Scope, Token},
};

/// Wrong tokens that an address may show at once, and how many more each second.
const WRONG_AT_ONCE: u32 = 20;
const WRONG_PER_SECOND: u32 = 1;

/// How the origin of a page begins that this interface serves itself.
const HTTP: &str = "http://";
const HTTPS: &str = "https://";

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
    sessions: OnceLock<SessionKey>,
}

/// Says of a request that a page of this process makes it, for one that was counted already.
#[derive(Debug, Clone, Copy)]
pub(crate) struct InProcess;

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
        let sessions = OnceLock::new();
        Self(Arc::new(Inner { declared, stored, exposure, clock, wrong, sessions }))
    }

    /// Lets browsers begin sessions, which this key vouches for.
    pub fn allow_sessions(&self, key: SessionKey) {
        let _already = self.0.sessions.set(key);
    }

    /// A session for one who shows a token, if it is one by which pages can be looked at.
    pub(crate) fn begin_session(&self, shown: &str, peer: IpAddr) -> Result<String, ApiError> {
        let key = self.0.sessions.get().ok_or_else(nobody)?;
        let (stored, now) = (self.stored(), (self.0.clock)());
        let all = self.0.declared.iter().chain(stored.iter());
        let Some(found) = token::find(all, shown, now) else {
            let wrong = self.0.wrong.take(peer, Instant::now());
            return Err(wrong.err().map_or_else(nobody, too_many));
        };
        if found.scope.allows(Need::View, None) {
            Ok(key.mint(found, now))
        } else {
            Err(not_enough(Need::View))
        }
    }

    /// Who has this session, for as long as its token counts.
    fn session_caller(&self, cookie: &str) -> Option<Caller> {
        let (stored, now) = (self.stored(), (self.0.clock)());
        let all = self.0.declared.iter().chain(stored.iter());
        let found = self.0.sessions.get()?.find(all, cookie, now)?;
        Some(Caller { name: Some(found.name.clone()), scope: found.scope.clone() })
    }

    /// Whether whoever reaches the interface may do everything.
    pub(crate) fn is_open(&self) -> bool {
        let is_local = self.0.exposure == Exposure::LoopbackOnly;
        is_local && self.0.declared.is_empty() && self.stored().is_empty()
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
        if self.is_open() {
            return Some(Caller { name: None, scope: Scope::Admin });
        }
        let all = self.0.declared.iter().chain(stored.iter());
        let found = token::find(all, shown?, (self.0.clock)())?;
        Some(Caller { name: Some(found.name.clone()), scope: found.scope.clone() })
    }

    fn admit(&self, visit: &Visit<'_>) -> Result<Caller, ApiError> {
        if visit.is_foreign && self.is_open() {
            return Err(foreign());
        }
        let in_address = visit.in_address.and_then(|key| self.caller(Some(key)));
        let in_address = in_address.filter(|caller| caller.scope == Scope::Badge || self.is_open());
        let by_token = in_address.or_else(|| self.caller(visit.shown));
        let by_session = || self.session_caller(visit.session.as_deref()?);
        let is_by_session = by_token.is_none();
        let Some(caller) = by_token.or_else(by_session) else {
            // To show nothing is no guess.
            let shown = visit.shown.or(visit.in_address);
            let wrong = shown.map(|_| self.0.wrong.take(visit.peer, Instant::now()));
            return Err(match wrong {
                Some(Err(wait)) => too_many(wait),
                Some(Ok(())) | None => nobody(),
            });
        };
        // A browser sends its cookie whichever page asks it to.
        if is_by_session && visit.is_cross_site {
            return Err(foreign());
        }
        if caller.scope.allows(visit.need, visit.pipeline) {
            return Ok(caller);
        }
        Err(not_enough(visit.need))
    }
}

/// Which version of Interlock answers: a client that cannot read an answer knows why.
const VERSION_HEADER: &str = "interlock-version";

/// A request, as far as access is concerned.
struct Visit<'a> {
    need: Need,
    pipeline: Option<&'a str>,
    shown: Option<&'a str>,
    /// The session that a browser shows, where one counts.
    session: Option<String>,
    /// The key of a badge, which may stand in the address.
    in_address: Option<&'a str>,
    peer: IpAddr,
    is_foreign: bool,
    /// Whether a page of another origin asks for a change.
    is_cross_site: bool,
}

/// Lets requests pass to these routes that may do what they need.
pub(crate) fn guarded(
    mut routes: OpenApiRouter<Arc<Surface>>,
    need: Need,
) -> OpenApiRouter<Arc<Surface>> {
    document::require(routes.get_openapi_mut(), need);
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
        let peer = Peer::ip(&request);
        let headers = request.headers();
        let is_tls = request.extensions().get::<Peer>().is_some_and(|peer| peer.is_tls);
        let scheme = if is_tls { HTTPS } else { HTTP };
        let is_foreign = is_foreign(request.uri(), headers, scheme);
        // Jobs report with tokens: a cookie that some browser has says nothing about one.
        let is_for_browsers = need != Need::Ping && shown.is_none();
        let session = is_for_browsers.then(|| session::cookie(headers)).flatten();
        let is_cross_site = !is_safe(request.method()) && session::is_cross_site(headers);
        let shown = shown.as_deref();
        let in_address = badge_key(request.uri()).filter(|_| need == Need::Badge);
        let visit =
            Visit { need, pipeline, shown, session, in_address, peer, is_foreign, is_cross_site };
        let is_counted = request.extensions().get::<InProcess>().is_some();
        let counted = door.admit(&visit).and_then(|caller| {
            let name = caller.name.as_deref().filter(|_| !is_counted);
            name.map_or(Ok(()), |name| pace.count(name)).map(|()| caller)
        });
        match counted {
            Ok(caller) => {
                let mut request = request;
                request.extensions_mut().insert(caller);
                // Told to those alone who were let in.
                ([(VERSION_HEADER, env!("CARGO_PKG_VERSION"))], next.run(request).await)
                    .into_response()
            }
            Err(refusal) => refusal.into_response(),
        }
    };
    routes.route_layer(from_fn(check))
}

/// Whether a method changes nothing.
fn is_safe(method: &Method) -> bool {
    [Method::GET, Method::HEAD, Method::OPTIONS].contains(method)
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

/// The `key` of an address. Tokens have no character that would be written in another way there.
fn badge_key(uri: &Uri) -> Option<&str> {
    let mut parameters = uri.query()?.split('&');
    parameters.find_map(|parameter| parameter.strip_prefix("key="))
}

/// Whether a page of another origin asks, or somebody under a name that is not this machine's. Programs say nothing of an
/// origin; browsers do, and no page can keep them from it.
fn is_foreign(uri: &Uri, headers: &HeaderMap, scheme: &str) -> bool {
    let host = headers.get(HOST).map(|host| host.to_str().unwrap_or("?"));
    let authority = uri.authority().map(Authority::as_str);
    if [host, authority].into_iter().flatten().any(|name| !is_ours(name)) {
        return true;
    }
    let is_same = |origin: &HeaderValue| {
        let origin = origin.to_str().ok().and_then(|origin| origin.strip_prefix(scheme));
        origin.is_some() && origin == host
    };
    let is_near = |site: &HeaderValue| site == "same-origin" || site == "none";
    !headers.get_all(ORIGIN).iter().all(is_same)
        || !headers.get_all("sec-fetch-site").iter().all(is_near)
}

/// Whether a name, with a port or without, can only mean this machine.
fn is_ours(name: &str) -> bool {
    let (host, port) = match name.strip_prefix('[') {
        Some(rest) => rest.split_once(']').unwrap_or((rest, "?")),
        None => name.find(':').map_or((name, ""), |at| name.split_at(at)),
    };
    let is_port = |text: &str| text.parse::<u16>().is_ok();
    if !port.is_empty() && !port.strip_prefix(':').is_some_and(is_port) {
        return false;
    }
    let host = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_loopback = host.parse().is_ok_and(|ip: IpAddr| ip.to_canonical().is_loopback());
    is_loopback || host == "localhost" || host.ends_with(".localhost")
}

fn foreign() -> ApiError {
    ApiError::new(
        ErrorCode::ForeignOrigin,
        "the request comes from a page of another site, or under a name that is not this machine's",
        "Ask http://127.0.0.1 or http://localhost, from no other page; or make a token \
         (`interlock token create`) and show it.",
    )
}

fn nobody() -> ApiError {
    ApiError::new(
        ErrorCode::TokenNeeded,
        "this needs a token; none was sent, or one that is not valid",
        "Send `Authorization: Bearer TOKEN`; `interlock token create` makes one.",
    )
}

fn not_enough(need: Need) -> ApiError {
    ApiError::new(
        ErrorCode::ScopeNeeded,
        format!("this needs a token with the scope {}", need.least()),
        "`interlock token list` says what each token may do.",
    )
}

fn too_many(wait: Duration) -> ApiError {
    ApiError::new(
        ErrorCode::TooManyWrongTokens,
        "too many wrong tokens were sent from this address",
        format!("Try again in {} s, with the right one.", wait.as_secs().max(1)),
    )
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
    fn what_comes_from_another_page_or_under_another_name_is_foreign() {
        let check = |pairs: &[(&'static str, &str)], expected| {
            let found = is_foreign(&Uri::from_static("/ping/job"), &headers(pairs), HTTP);
            assert_eq!(found, expected, "{pairs:?}");
        };
        for ours in [
            "127.0.0.1:8420",
            "localhost:8420",
            "LocalHost",
            "[::1]:8420",
            "127.1.2.3",
            "ui.localhost:1",
        ] {
            check(&[("host", ours)], false);
            let origin = format!("http://{ours}");
            check(&[("host", ours), ("origin", origin.as_str())], false);
            check(
                &[("host", ours), ("origin", origin.as_str()), ("sec-fetch-site", "same-origin")],
                false,
            );
            check(&[("host", ours), ("sec-fetch-site", "none")], false);
        }
        check(&[], false);
        for other in [
            "evil.example",
            "evil.example:8420",
            "127.0.0.1.evil.example",
            "localhost.evil.example",
            "10.0.0.1:8420",
            "0.0.0.0:8420",
            "[::]:1",
            "notlocalhost",
            "",
            "127.0.0.1@evil.example",
            "[::1].evil.example",
            "127.0.0.1:evil",
        ] {
            check(&[("host", other)], true);
        }
        let host = ("host", "127.0.0.1:8420");
        for origin in [
            "http://evil.example",
            "null",
            "http://127.0.0.1:3000",
            "https://127.0.0.1:8420",
            "127.0.0.1:8420",
        ] {
            check(&[host, ("origin", origin)], true);
        }
        check(&[("origin", "http://127.0.0.1:8420")], true);
        for site in ["cross-site", "same-site", "CROSS-SITE"] {
            check(&[host, ("sec-fetch-site", site)], true);
        }
        let absolute = Uri::from_static("http://evil.example/ping/job");
        assert!(is_foreign(&absolute, &headers(&[host]), HTTP));
        let page = [host, ("origin", "https://127.0.0.1:8420")];
        assert!(
            !is_foreign(&Uri::from_static("/"), &headers(&page), HTTPS),
            "its own page over TLS"
        );
    }

    #[test]
    fn a_foreign_page_is_refused_at_an_open_door_alone() {
        let clock: Clock = Arc::new(|| Timestamp::UNIX_EPOCH);
        let door = Doorkeeper::new(vec![], Exposure::LoopbackOnly, clock);
        let visit = |shown, is_foreign| {
            let peer = [127, 0, 0, 1].into();
            let visit = Visit {
                need: Need::Operate,
                pipeline: None,
                shown,
                session: None,
                in_address: None,
                peer,
                is_foreign,
                is_cross_site: false,
            };
            door.admit(&visit).map_or_else(|refusal| refusal.code.as_str(), |_| "ok")
        };
        assert_eq!((visit(None, false), visit(None, true)), ("ok", "foreign_origin"));
        door.take(vec![Token::known("ci", Scope::Operator, "abc")]);
        assert_eq!((visit(Some("abc"), true), visit(None, true)), ("ok", "token_needed"));
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
            let (peer, is_foreign) = (peer.into(), true);
            let visit = Visit {
                need: Need::View,
                pipeline: None,
                shown,
                session: None,
                in_address: None,
                peer,
                is_foreign,
                is_cross_site: false,
            };
            door.admit(&visit).map_or_else(|refusal| refusal.code.status(), |_| 200)
        };
        let guesses: Vec<u16> = (0..50).map(|_| visit([1, 1, 1, 1], Some("guess"))).collect();
        assert!(guesses.starts_with(&[401; 20]) && guesses.ends_with(&[429; 20]), "{guesses:?}");
        assert_eq!(visit([1, 1, 1, 1], None), 401);
        assert_eq!(visit([1, 1, 1, 1], Some("abc")), 200, "the right one is always let in");
        assert_eq!(visit([2, 2, 2, 2], Some("guess")), 401);
    }
}
