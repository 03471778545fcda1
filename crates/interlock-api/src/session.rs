//! Sessions of browsers (`docs/adr/0064-the-web-ui.md`).
//!
//! `POST /session` takes a token and gives a cookie: which token, until when, and a MAC over both. Nothing is kept of it: whether it counts
//! is asked of the token each time, so that a token that is revoked ends its sessions, and a restart ends none. The token itself is not
//! in the cookie.

use std::{fmt, sync::Arc};

use aws_lc_rs::{hmac, rand};
use axum::{
    Extension, Form, Json, Router,
    extract::Request,
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{COOKIE, HOST, LOCATION, ORIGIN, SET_COOKIE},
    },
    response::{IntoResponse as _, Response},
    routing::post,
};
use base64::{Engine as _, prelude::BASE64_URL_SAFE_NO_PAD};
use interlock_answers::{ErrorCode, model::session::SessionAnswer};
use jiff::{SignedDuration, Timestamp};
use serde::Deserialize;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    access::{Caller, Doorkeeper},
    error::ApiError,
    server::Peer,
    surface::Surface,
    token::Token,
};

/// Bytes of the key.
const KEY_BYTES: usize = 32;
/// How long a session lasts.
const LASTS: SignedDuration = SignedDuration::from_hours(7 * 24);
/// The cookie. Behind TLS its name promises that no other host or plain connection has set it.
const COOKIE_NAMES: [&str; 2] = ["__Host-interlock", "interlock_session"];

/// What vouches for sessions.
#[derive(Clone)]
pub struct SessionKey([u8; KEY_BYTES]);

impl fmt::Debug for SessionKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SessionKey")
    }
}

impl SessionKey {
    /// A new one. The system's chance is asked, which may fail.
    pub fn draw() -> Option<Self> {
        let mut drawn = [0; KEY_BYTES];
        rand::fill(&mut drawn).ok()?;
        Some(Self(drawn))
    }

    /// As it is kept between starts.
    pub fn to_text(&self) -> String {
        BASE64_URL_SAFE_NO_PAD.encode(self.0)
    }

    /// Reads what was kept.
    pub fn parse(text: &str) -> Option<Self> {
        Some(Self(BASE64_URL_SAFE_NO_PAD.decode(text.trim()).ok()?.try_into().ok()?))
    }

    fn key(&self) -> hmac::Key {
        hmac::Key::new(hmac::HMAC_SHA256, &self.0)
    }

    /// A session by a token, from now on.
    pub(crate) fn mint(&self, token: &Token, now: Timestamp) -> String {
        let ends = now.saturating_add(LASTS).unwrap_or(Timestamp::MAX).as_second();
        let said = format!("{}.{ends}", token.id());
        let tag = hmac::sign(&self.key(), &covered(&said, token));
        format!("{said}.{}", BASE64_URL_SAFE_NO_PAD.encode(tag))
    }

    /// The token of a session, if both are in force.
    pub(crate) fn find<'a>(
        &self,
        tokens: impl Iterator<Item = &'a Token>,
        cookie: &str,
        now: Timestamp,
    ) -> Option<&'a Token> {
        let (said, tag) = cookie.rsplit_once('.')?;
        let (id, ends) = said.split_once('.')?;
        let ends = Timestamp::from_second(ends.parse().ok()?).ok()?;
        let tag = BASE64_URL_SAFE_NO_PAD.decode(tag).ok()?;
        let key = self.key();
        let is_it = |token: &&Token| {
            token.id() == id && hmac::verify(&key, &covered(said, token), &tag).is_ok()
        };
        let mut found = tokens.filter(is_it);
        found.find(|token| now < ends && token.is_in_force(now))
    }
}

/// What the MAC is over: all of the token's hash too, of which an id is but the beginning.
fn covered(said: &str, token: &Token) -> Vec<u8> {
    format!("interlock session\n{said}\n{}", token.hash.text()).into_bytes()
}

/// The session that a browser shows.
pub(crate) fn cookie(headers: &HeaderMap) -> Option<String> {
    let all = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let pairs = all.flat_map(|text| text.split(';')).filter_map(|pair| pair.trim().split_once('='));
    let mut own = pairs.filter(|(name, _)| COOKIE_NAMES.contains(name));
    own.next().map(|(_, value)| value.to_owned())
}

/// Whether a page of another origin asks: by `Sec-Fetch-Site`, else by `Origin`. Programs, which send neither, have no cookie that they
/// do not know of.
pub(crate) fn is_cross_site(headers: &HeaderMap) -> bool {
    if let Some(site) = headers.get("sec-fetch-site") {
        return site != "same-origin" && site != "none";
    }
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let authority = |origin: &HeaderValue| {
        let (_scheme, authority) = origin.to_str().ok()?.split_once("://")?;
        Some(authority.to_owned())
    };
    headers.get_all(ORIGIN).iter().any(|origin| authority(origin).as_deref() != host)
}

/// What a page of login sends.
#[derive(Deserialize)]
struct LoginForm {
    token: String,
    /// Which page comes then.
    #[serde(default)]
    next: String,
}

/// Where browsers begin and end their sessions. They are no part of the API: programs show their token.
pub(crate) fn routes() -> Router<Arc<Surface>> {
    Router::new().route("/session", post(begin)).route("/session/end", post(end))
}

/// Who asks.
pub(crate) fn described_routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(session))
}

/// Who asks, and what they may do.
#[utoipa::path(get, path = "/api/v1/session", tag = "about",
    responses((status = 200, body = SessionAnswer)))]
async fn session(Extension(caller): Extension<Caller>) -> Json<SessionAnswer> {
    let Caller { name, scope } = caller;
    Json(SessionAnswer { is_open: name.is_none(), name, scope: scope.as_str().to_owned() })
}

async fn begin(
    Extension(door): Extension<Doorkeeper>,
    headers: HeaderMap,
    peer: Option<Extension<Peer>>,
    Form(LoginForm { token, next }): Form<LoginForm>,
) -> Result<Response, ApiError> {
    if is_cross_site(&headers) {
        let message = "a page of another site asks for a session";
        let hint = "Open the login page itself.";
        return Err(ApiError::new(ErrorCode::ForeignOrigin, message, hint));
    }
    let connection = BrowserConnection::of(&headers, peer.as_ref());
    let peer =
        peer.map_or(std::net::Ipv4Addr::LOCALHOST.into(), |Extension(peer)| peer.remote_ip());
    let next = own_path(&next);
    match door.begin_session(token.trim(), peer) {
        Ok(session) => Ok(see(next, &set_cookie(connection, &session, LASTS.as_secs()))),
        Err(refusal) => {
            let mut response = see("", "");
            let place = format!("/login?wrong={}&next={}", refusal.code.as_str(), escaped(next));
            if let Ok(place) = HeaderValue::from_str(&place) {
                response.headers_mut().insert(LOCATION, place);
            }
            // Counted with the others that were not let in.
            response.extensions_mut().insert(refusal.code);
            Ok(response)
        }
    }
}

async fn end(headers: HeaderMap, peer: Option<Extension<Peer>>, _request: Request) -> Response {
    see("/login", &set_cookie(BrowserConnection::of(&headers, peer.as_ref()), "", 0))
}

/// Another page, with a cookie.
fn see(place: &str, cookie: &str) -> Response {
    let mut response = StatusCode::SEE_OTHER.into_response();
    for (name, value) in [(LOCATION, place), (SET_COOKIE, cookie)] {
        if let (false, Ok(value)) = (value.is_empty(), HeaderValue::from_str(value)) {
            response.headers_mut().insert(name, value);
        }
    }
    response
}

/// How a browser reached us.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BrowserConnection {
    /// Others can read along.
    Plain,
    /// By `server.tls`, or by a proxy before us.
    Encrypted,
}

impl BrowserConnection {
    /// A client that lies about a proxy hurts itself alone: it is its own browser that keeps the cookie.
    fn of(headers: &HeaderMap, peer: Option<&Extension<Peer>>) -> Self {
        let is_encrypted = peer.is_some_and(|Extension(peer)| peer.is_tls)
            || headers.get("x-forwarded-proto").is_some_and(|proto| proto == "https");
        if is_encrypted { Self::Encrypted } else { Self::Plain }
    }
}

fn set_cookie(connection: BrowserConnection, value: &str, seconds: i64) -> String {
    let (name, secure) = match connection {
        BrowserConnection::Encrypted => (COOKIE_NAMES[0], "; Secure"),
        BrowserConnection::Plain => (COOKIE_NAMES[1], ""),
    };
    format!("{name}={value}; Path=/; HttpOnly; SameSite=Lax; Max-Age={seconds}{secure}")
}

/// A path of this site, whatever was asked for: a login page must not send people elsewhere.
fn own_path(next: &str) -> &str {
    let is_own = next.starts_with('/') && !next.starts_with("//") && !next.contains('\\');
    let is_plain = next.bytes().all(|byte| byte.is_ascii_graphic());
    if is_own && is_plain { next } else { "/" }
}

/// A path as the value of a parameter.
fn escaped(path: &str) -> String {
    path.replace('%', "%25").replace('&', "%26").replace('#', "%23").replace('+', "%2B")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::Scope;

    fn headers(pairs: &[(&'static str, &str)]) -> HeaderMap {
        pairs.iter().map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap())).collect()
    }

    #[test]
    fn a_session_counts_for_its_token_and_its_time_and_cannot_be_made_up() {
        let key = SessionKey::draw().unwrap();
        let (_, token) = Token::mint("marta", Scope::Viewer).unwrap();
        let (_, other) = Token::mint("jonas", Scope::Admin).unwrap();
        let all = [other.clone(), token.clone()];
        let now = Timestamp::UNIX_EPOCH;
        let cookie = key.mint(&token, now);
        let name = |key: &SessionKey, all: &[Token], cookie: &str, now| {
            key.find(all.iter(), cookie, now).map(|token| token.name.clone())
        };
        assert_eq!(name(&key, &all, &cookie, now).as_deref(), Some("marta"));
        let kept = SessionKey::parse(&key.to_text()).unwrap();
        assert!(name(&kept, &all, &cookie, now).is_some(), "a restart ends no session");
        assert_eq!(name(&key, std::slice::from_ref(&other), &cookie, now), None, "revoked");
        assert_eq!(name(&key, &all, &cookie, now + LASTS), None, "over");
        assert_eq!(name(&SessionKey::draw().unwrap(), &all, &cookie, now), None, "another key");
        let (said, tag) = cookie.rsplit_once('.').unwrap();
        let (id, ends) = said.split_once('.').unwrap();
        for forged in [
            format!("{}.{ends}.{tag}", other.id()),
            format!("{id}.{}.{tag}", i64::from(u32::MAX)),
            format!("{said}.{}", &tag[1..]),
            String::new(),
        ] {
            assert_eq!(name(&key, &all, &forged, now), None, "{forged}");
        }
        let mut ended = token;
        ended.expires_at = Some(now);
        assert_eq!(name(&key, &[ended], &cookie, now), None, "the token's own end");
    }

    #[test]
    fn a_page_of_another_origin_changes_nothing_with_a_cookie() {
        for (pairs, expected) in [
            (&[("sec-fetch-site", "same-origin")][..], false),
            (&[("sec-fetch-site", "none")], false),
            (&[("sec-fetch-site", "cross-site")], true),
            (&[("sec-fetch-site", "same-site")], true),
            (&[("origin", "https://il.example"), ("host", "il.example")], false),
            (&[("origin", "https://evil.example"), ("host", "il.example")], true),
            (&[("origin", "null"), ("host", "il.example")], true),
            (&[("host", "il.example")], false),
        ] {
            assert_eq!(is_cross_site(&headers(pairs)), expected, "{pairs:?}");
        }
    }

    #[test]
    fn a_login_leads_to_a_page_of_this_site() {
        for (next, expected) in [
            ("/incidents?state=open", "/incidents?state=open"),
            ("//evil.example/", "/"),
            ("/\\evil.example", "/"),
            ("https://evil.example", "/"),
            ("/a b", "/"),
            ("", "/"),
        ] {
            assert_eq!(own_path(next), expected, "{next}");
        }
        assert_eq!(escaped("/runs?a=1&b=%20"), "/runs?a=1%26b=%2520");
    }

    #[test]
    fn the_cookie_is_found_among_others() {
        let all = headers(&[("cookie", "a=b; interlock_session=x.1.y; c=d")]);
        assert_eq!(cookie(&all).as_deref(), Some("x.1.y"));
        assert_eq!(cookie(&headers(&[("cookie", "a=b")])), None);
        let behind_proxy = BrowserConnection::of(&headers(&[("x-forwarded-proto", "https")]), None);
        let secure = set_cookie(behind_proxy, "v", 1);
        assert!(secure.starts_with("__Host-interlock=v;") && secure.ends_with("; Secure"));
        assert!(secure.contains("HttpOnly; SameSite=Lax"), "{secure}");
    }
}
