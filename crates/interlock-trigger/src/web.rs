//! The HTTP client of every outbound call: bounded, direct, guarded, and discreet.
//!
//! No redirects (an `Authorization` header must not travel on), no proxy from the environment, a
//! timeout on everything, and at most 64 KiB of any answer. Addresses may hold secrets, so messages
//! name the host alone. Which addresses may be dialled at all is asked about each resolved address
//! (`guard`), so nothing in between can be talked into another one.

mod guard;

use std::{net::SocketAddr, sync::Once, time::Duration};

use interlock_core::{outbound::Outbound, retry::FailureCategory};
use jiff::SignedDuration;
use reqwest::{
    Certificate, Client, ClientBuilder, Method, RequestBuilder, Response, Url,
    header::{CONTENT_TYPE, HeaderMap, HeaderName, HeaderValue, RETRY_AFTER},
    redirect,
};
use tokio::time::timeout;

use self::guard::{Guard, Refused};

/// How much of an answer is kept; the rest is not even read.
pub const BODY_BYTES_MAX: usize = 64 * 1024;

/// How much of an answer is shown to people (facts D1-29).
const EXCERPT_CHARS_MAX: usize = 512;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A client; cheap to clone.
#[derive(Debug, Clone)]
pub struct Web {
    client: Client,
    guard: Guard,
}

/// A request.
#[derive(Clone)]
pub struct Call {
    /// `GET`, `POST`, …
    pub method: String,
    /// Where to.
    pub url: String,
    /// Names in any case; of two that are the same the last one wins.
    pub headers: Vec<(String, String)>,
    /// What is sent; called JSON if it begins like it.
    pub body: Option<String>,
    /// For all of it, from resolving the name to the end of the answer.
    pub timeout: SignedDuration,
}

impl std::fmt::Debug for Call {
    /// Addresses, headers and bodies may hold secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Call").field("method", &self.method).finish_non_exhaustive()
    }
}

/// What came back.
#[derive(Debug, Clone)]
pub struct Answer {
    /// `200`, `503`, …
    pub status: u16,
    /// Its beginning, up to [`BODY_BYTES_MAX`].
    pub body: String,
    /// Whether there was more.
    pub is_cut: bool,
    /// When to come again, by its `Retry-After`.
    pub retry_after: Option<String>,
}

/// An answer whose body comes piece by piece: as long as it is wanted, and however large it is.
#[derive(Debug)]
pub struct OpenAnswer {
    host: String,
    response: Response,
}

/// Nothing came back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct WebFailure {
    /// One sentence for people.
    pub message: String,
    /// How far it came.
    pub kind: WebFailureKind,
}

/// How far a request came.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum WebFailureKind {
    /// It cannot be sent, ever.
    Malformed,
    /// It was not sent: nobody may be called there.
    Refused,
    /// It was not sent: nobody answered the door.
    Unreachable,
    /// It may have been sent, and time ran out.
    Timeout,
    /// It may have been sent, and the connection broke.
    Broken,
}

impl WebFailure {
    /// Whether the other side may have acted on the request.
    pub fn may_have_arrived(&self) -> bool {
        match self.kind {
            WebFailureKind::Malformed | WebFailureKind::Refused | WebFailureKind::Unreachable => {
                false
            }
            WebFailureKind::Timeout | WebFailureKind::Broken => true,
        }
    }

    /// Whether trying again makes sense.
    pub fn category(&self) -> FailureCategory {
        match self.kind {
            WebFailureKind::Malformed | WebFailureKind::Refused => FailureCategory::Permanent,
            WebFailureKind::Timeout => FailureCategory::Timeout,
            WebFailureKind::Unreachable | WebFailureKind::Broken => FailureCategory::Transient,
        }
    }
}

impl Answer {
    /// Whether the other side is content.
    pub fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Whether trying again makes sense: too many requests and the server's own troubles pass.
    pub fn category(&self) -> FailureCategory {
        match self.status {
            408 | 429 | 500.. => FailureCategory::Transient,
            _ => FailureCategory::Permanent,
        }
    }

    /// What was answered, in one line that is safe to show.
    pub fn sentence(&self) -> String {
        let reason = reqwest::StatusCode::from_u16(self.status).ok();
        let reason = reason.and_then(|status| status.canonical_reason()).unwrap_or_default();
        let status = format!("the server answered {} {reason}", self.status);
        let redirect =
            if (300..400).contains(&self.status) { "; redirects are not followed" } else { "" };
        match excerpt(&self.body) {
            text if text.is_empty() => format!("{}{redirect}", status.trim_end()),
            text => format!("{}{redirect}: {text}", status.trim_end()),
        }
    }
}

fn excerpt(body: &str) -> String {
    let plain = body.chars().map(|c| if c.is_control() { ' ' } else { c });
    plain.take(EXCERPT_CHARS_MAX).collect::<String>().trim().to_owned()
}

impl OpenAnswer {
    /// `200`, `503`, …
    pub fn status(&self) -> u16 {
        self.response.status().as_u16()
    }

    /// What a header says, if it is there and is text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.response.headers().get(name)?.to_str().ok()
    }

    /// The next piece of the body, which comes within this time; `None` at its end.
    pub async fn piece(&mut self, within: Duration) -> Result<Option<Vec<u8>>, WebFailure> {
        let Self { host, response } = self;
        match timeout(within, response.chunk()).await {
            Ok(Ok(piece)) => Ok(piece.map(|piece| piece.to_vec())),
            Ok(Err(error)) => Err(failure(host, &error)),
            Err(_silent) => Err(WebFailure {
                message: format!("{host} did not go on with its answer in time"),
                kind: WebFailureKind::Timeout,
            }),
        }
    }
}

impl Web {
    /// A client with the one TLS provider of this program.
    pub fn new(outbound: &Outbound) -> Result<Self, reqwest::Error> {
        Self::built(outbound, |builder| builder)
    }

    /// The same, which believes the authorities of a PEM text and no others.
    pub fn believing(outbound: &Outbound, authorities: &[u8]) -> Result<Self, reqwest::Error> {
        let certificates = Certificate::from_pem_bundle(authorities)?;
        Self::built(outbound, |builder| builder.tls_certs_only(certificates))
    }

    fn built(
        outbound: &Outbound,
        with: impl FnOnce(ClientBuilder) -> ClientBuilder,
    ) -> Result<Self, reqwest::Error> {
        static PROVIDER: Once = Once::new();
        PROVIDER.call_once(|| {
            // Somebody else may have installed the same one before.
            let _installed = rustls::crypto::aws_lc_rs::default_provider().install_default();
        });
        let guard = Guard::new(outbound);
        let builder = Client::builder()
            .dns_resolver(guard.clone())
            .redirect(redirect::Policy::none())
            .no_proxy()
            .connect_timeout(CONNECT_TIMEOUT)
            .user_agent(concat!("interlock/", env!("CARGO_PKG_VERSION")));
        let client = with(builder).build()?;
        Ok(Self { client, guard })
    }

    /// The addresses of a host that may be dialled: for what is not HTTP. Dial one of them, not the name.
    pub async fn addresses(&self, host: &str, port: u16) -> Result<Vec<SocketAddr>, WebFailure> {
        self.guard.addresses(host, port).await.map_err(|error| {
            match error.downcast_ref::<Refused>() {
                Some(refused) => {
                    WebFailure { message: refused.to_string(), kind: WebFailureKind::Refused }
                }
                None => WebFailure {
                    message: format!("{host} cannot be reached: {error}"),
                    kind: WebFailureKind::Unreachable,
                },
            }
        })
    }

    /// Sends a request and reads the beginning of its answer.
    pub async fn send(&self, call: &Call) -> Result<Answer, WebFailure> {
        let (host, request) = self.request(call)?;
        let request = request.timeout(length(call.timeout));
        let mut response = request.send().await.map_err(|error| failure(&host, &error))?;
        let (mut body, mut is_cut) = (Vec::new(), false);
        while let Some(chunk) = response.chunk().await.map_err(|error| failure(&host, &error))? {
            body.extend_from_slice(&chunk);
            if body.len() > BODY_BYTES_MAX {
                is_cut = true;
                body.truncate(BODY_BYTES_MAX);
                break;
            }
        }
        let body = String::from_utf8_lossy(&body).into_owned();
        let retry_after = response.headers().get(RETRY_AFTER).and_then(|value| value.to_str().ok());
        let retry_after = retry_after.map(str::to_owned);
        Ok(Answer { status: response.status().as_u16(), body, is_cut, retry_after })
    }

    /// Sends a request; the answer has begun when it returns, within the time of the call. Its body is read piece by piece.
    pub async fn open(&self, call: &Call) -> Result<OpenAnswer, WebFailure> {
        let (host, request) = self.request(call)?;
        match timeout(length(call.timeout), request.send()).await {
            Ok(Ok(response)) => Ok(OpenAnswer { host, response }),
            Ok(Err(error)) => Err(failure(&host, &error)),
            Err(_silent) => Err(WebFailure {
                message: format!("{host} did not answer in time"),
                kind: WebFailureKind::Timeout,
            }),
        }
    }

    /// A request with its host, if it may be sent there.
    fn request(&self, call: &Call) -> Result<(String, RequestBuilder), WebFailure> {
        let malformed = |message: String| WebFailure { message, kind: WebFailureKind::Malformed };
        let url = Url::parse(&call.url).map_err(|error| {
            malformed(format!("the url of the request cannot be read: {error}"))
        })?;
        let host = url.host_str().unwrap_or_default().to_owned();
        // A name is resolved and checked while dialling; an address in the url never gets there.
        self.guard.check(&url).map_err(|refused| WebFailure {
            message: refused.to_string(),
            kind: WebFailureKind::Refused,
        })?;
        let method = Method::from_bytes(call.method.as_bytes())
            .map_err(|error| malformed(format!("`{}`: {error}", call.method)))?;
        let request = self.client.request(method, url);
        let mut request = request.headers(headers(call).map_err(malformed)?);
        if let Some(body) = &call.body {
            request = request.body(body.clone());
        }
        Ok((host, request))
    }
}

fn length(timeout: SignedDuration) -> Duration {
    Duration::try_from(timeout).unwrap_or(CONNECT_TIMEOUT)
}

/// The host of an address, which is all of it that may be shown.
pub fn host_of(url: &str) -> String {
    let host = Url::parse(url).ok().and_then(|url| url.host_str().map(str::to_owned));
    host.unwrap_or_else(|| "an address that cannot be read".to_owned())
}

fn headers(call: &Call) -> Result<HeaderMap, String> {
    let mut headers = HeaderMap::new();
    let looks_like_json =
        call.body.as_ref().is_some_and(|body| body.trim_start().starts_with(['{', '[']));
    if looks_like_json {
        headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    }
    for (name, value) in &call.headers {
        let header = HeaderName::from_bytes(name.as_bytes())
            .map_err(|error| format!("the header `{name}`: {error}"))?;
        let mut value = HeaderValue::from_str(value)
            .map_err(|error| format!("the value of the header `{name}`: {error}"))?;
        value.set_sensitive(true);
        headers.insert(header, value);
    }
    Ok(headers)
}

fn failure(host: &str, error: &reqwest::Error) -> WebFailure {
    if let Some(refused) = Refused::within(error) {
        return WebFailure { message: refused.to_string(), kind: WebFailureKind::Refused };
    }
    let (kind, what) = if error.is_connect() {
        (WebFailureKind::Unreachable, "cannot be reached")
    } else if error.is_timeout() {
        (WebFailureKind::Timeout, "did not answer in time")
    } else if error.is_builder() {
        (WebFailureKind::Malformed, "cannot be asked")
    } else {
        (WebFailureKind::Broken, "broke the connection")
    };
    let mut message = format!("{host} {what}");
    // The innermost cause says most ("connection refused"), and names no address.
    let mut cause = std::error::Error::source(error);
    while let Some(deeper) = cause.and_then(std::error::Error::source) {
        cause = Some(deeper);
    }
    if let Some(cause) = cause.filter(|_| kind != WebFailureKind::Timeout) {
        message = format!("{message}: {cause}");
    }
    WebFailure { message, kind }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answer(status: u16, body: &str) -> Answer {
        Answer { status, body: body.to_owned(), is_cut: false, retry_after: None }
    }

    #[test]
    fn d1_20_every_status_has_its_category() {
        use FailureCategory::{Permanent, Transient};
        for (status, category) in [
            (302, Permanent),
            (400, Permanent),
            (401, Permanent),
            (404, Permanent),
            (409, Permanent),
            (408, Transient),
            (429, Transient),
            (500, Transient),
            (503, Transient),
        ] {
            assert_eq!(answer(status, "").category(), category, "{status}");
        }
    }

    #[test]
    fn d1_29_answers_are_shown_short_and_without_control_characters() {
        let sentence = answer(500, &format!("a\x1b[31m\nb{}", "x".repeat(10_000))).sentence();
        assert!(sentence.starts_with("the server answered 500 Internal Server Error: a [31m b"));
        assert!(sentence.len() < 600);
        assert_eq!(answer(404, " \n").sentence(), "the server answered 404 Not Found");
        assert_eq!(
            answer(302, "").sentence(),
            "the server answered 302 Found; redirects are not followed"
        );
    }
}
