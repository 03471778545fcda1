//! What jobs wrote: the whole log, a range of it, its last lines, or what comes, until the run has ended.
//!
//! A log is read piece by piece on a thread that may block, and a piece only when the last one was taken: a log of gigabytes costs as much
//! memory as a short one. What ran on another host is fetched from the instance there, piece by piece as well.

mod body;
mod fetched;
mod range;

use std::{io, sync::Arc};

use axum::{
    Extension,
    body::Body,
    extract::{FromRequestParts, Path, State},
    http::{
        HeaderMap, HeaderValue, StatusCode,
        header::{ACCEPT_RANGES, CONTENT_LENGTH, CONTENT_RANGE, CONTENT_TYPE, IF_RANGE, RANGE},
        request::Parts,
    },
    response::{IntoResponse as _, Response},
};
use interlock_answers::{
    ErrorCode, FoundLog, LogContent, LogSource, LogStart, RunLog, model::log::LogQuery,
};
use tokio::{sync::OwnedSemaphorePermit, task::spawn_blocking};
use utoipa_axum::{router::OpenApiRouter, routes};

use self::{
    body::{FollowedLog, LogPart},
    fetched::FetchedLog,
    range::RangeRequest,
};
use crate::{
    document,
    error::ApiError,
    peer,
    question::{AskedQuery, ReaderSource},
    server::Shutdown,
    surface::Surface,
};

/// The byte of the log with which an answer begins.
const LOG_START: &str = "interlock-log-start";
/// Which part of the log there is.
const LOG_SOURCE: &str = "interlock-log-source";

/// What there is of a log, to be read on a thread that may block.
#[derive(Debug, Clone)]
struct OpenLog {
    source: LogSource,
    content: Arc<LogContent>,
}

impl From<FoundLog> for OpenLog {
    fn from(FoundLog { source, content }: FoundLog) -> Self {
        Self { source, content: Arc::new(content) }
    }
}

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(log))
}

/// Those that other instances ask, and sign.
pub(super) fn instance_routes() -> OpenApiRouter<Arc<Surface>> {
    let mut routes = OpenApiRouter::default().routes(routes!(log_for_instance));
    document::require_signature(routes.get_openapi_mut());
    routes
}

/// What is asked for.
struct LogRequest {
    id: String,
    asked: LogQuery,
    range: Option<RangeRequest>,
    /// As it came, for another instance.
    parts: LogRequestParts,
    shutdown: Shutdown,
}

/// What another instance is asked in turn.
#[derive(Debug)]
struct LogRequestParts {
    query: Option<String>,
    range: Option<HeaderValue>,
}

/// A request that another instance of the same store signed.
struct SignedByInstance;

impl FromRequestParts<Arc<Surface>> for SignedByInstance {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Arc<Surface>,
    ) -> Result<Self, ApiError> {
        peer::verify(surface, &parts.uri, &parts.headers).await.map(|()| Self)
    }
}

impl FromRequestParts<Arc<Surface>> for LogRequest {
    type Rejection = ApiError;

    async fn from_request_parts(
        parts: &mut Parts,
        surface: &Arc<Surface>,
    ) -> Result<Self, ApiError> {
        let id = Path::from_request_parts(parts, surface).await;
        let Path(id) = id?;
        let AskedQuery(asked) = AskedQuery::from_request_parts(parts, surface).await?;
        let range = asked_range(&parts.headers, &asked)?;
        let shutdown = Extension::from_request_parts(parts, surface).await;
        let Extension(shutdown) = shutdown.map_err(|_missing| ApiError::starting())?;
        let as_it_came = LogRequestParts {
            query: parts.uri.query().map(str::to_owned),
            range: parts.headers.get(RANGE).filter(|_| range.is_some()).cloned(),
        };
        Ok(Self { id, asked, range, parts: as_it_came, shutdown })
    }
}

/// What the job of a run wrote.
///
/// Takes `Range: bytes=…`. The header `Interlock-Log-Start` says with which byte of the log the answer begins, and `Interlock-Log-Source` what there is:
/// `file`, all that the job wrote; `sent`, what a job sent that runs elsewhere; `kept`, only the last lines, which outlive the file and its host.
#[utoipa::path(get, path = "/api/v1/runs/{id}/log", tag = "runs",
    params(("id" = String, Path), LogQuery, ("range" = Option<String>, Header, description = "Only these bytes, such as `bytes=0-999`.")),
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = 206, body = String, content_type = "text/plain", description = "The bytes that `Range` asked for."),
    ))]
async fn log(
    State(surface): State<Arc<Surface>>,
    reading: ReaderSource,
    request: LogRequest,
) -> Result<Response, ApiError> {
    let log = reading.reader().run_log(&request.id).await?;
    if let Some(host) = elsewhere(&surface, &log).map(str::to_owned) {
        return fetch(surface, log, &host, request).await;
    }
    answer(surface, reading, log, request).await
}

/// What the job of a run wrote on the host of this instance, for another instance.
///
/// The request is signed by the instance that asks (`docs/adr/0061-tls-and-instances.md`); everything else is as with `/api/v1/runs/{id}/log`.
#[utoipa::path(get, path = "/api/v1/instances/runs/{id}/log", tag = "runs",
    params(("id" = String, Path), LogQuery, ("range" = Option<String>, Header, description = "Only these bytes, such as `bytes=0-999`.")),
    responses(
        (status = 200, body = String, content_type = "text/plain"),
        (status = 206, body = String, content_type = "text/plain", description = "The bytes that `Range` asked for."),
    ))]
async fn log_for_instance(
    State(surface): State<Arc<Surface>>,
    _signed: SignedByInstance,
    reading: ReaderSource,
    request: LogRequest,
) -> Result<Response, ApiError> {
    let log = reading.reader().run_log(&request.id).await?;
    if let Some(host) = elsewhere(&surface, &log) {
        // It was asked because the log should be here; asking a third would go round in circles.
        return Err(log.elsewhere(host, "").into());
    }
    answer(surface, reading, log, request).await
}

/// The host of a run's job, if that is another.
fn elsewhere<'a>(surface: &Surface, log: &'a RunLog) -> Option<&'a str> {
    let here = surface.logs.get().and_then(|here| here.host.as_deref());
    log.host.as_deref().filter(|host| here != Some(*host))
}

/// What the instance on another host has of a log; what the run itself has of it when that cannot be asked, or has no more.
async fn fetch(
    surface: Arc<Surface>,
    log: RunLog,
    host: &str,
    request: LogRequest,
) -> Result<Response, ApiError> {
    let LogRequest { id: _, asked, range, parts, shutdown } = request;
    let place = if asked.follow { Some(follower(&surface)?) } else { None };
    let fetched = FetchedLog::ask(&surface, host, &log, &parts).await;
    let because = match fetched {
        Ok(Some(fetched)) => return Ok(fetched.response(place, shutdown)),
        Ok(None) => None,
        Err(error) => Some(error.to_string()),
    };
    let Some(left) = log.left().map(OpenLog::from) else {
        return Err(match because {
            Some(because) => log.elsewhere(host, &because).into(),
            None => log.absence().into(),
        });
    };
    if let Some(because) = because {
        tracing::debug!("the log of {} cannot be fetched from {host}: {because}", log.run);
    }
    whole(left, asked.start()?, range).await
}

/// What this host, or the run itself, has of a log.
async fn answer(
    surface: Arc<Surface>,
    reading: ReaderSource,
    log: RunLog,
    request: LogRequest,
) -> Result<Response, ApiError> {
    let LogRequest { id: _, asked, range, parts: _, shutdown } = request;
    let start = asked.start()?;
    let found = open(&surface, &log).await?;
    if asked.follow {
        if found.is_none() && log.has_ended {
            return Err(log.absence().into());
        }
        let place = follower(&surface)?;
        let source = found.as_ref().map_or(LogSource::File, |found| found.source);
        let offset = match &found {
            Some(found) => begin(&found.content, start).await?,
            None => 0,
        };
        let (is_over, content) = (log.has_ended, found.map(|found| found.content));
        let followed =
            FollowedLog { surface, source: reading, log, content, offset, is_over, place };
        return Ok(text(source, offset, followed.body(shutdown)));
    }
    whole(found.ok_or_else(|| log.absence())?, start, range).await
}

/// A place among those that follow a log.
fn follower(surface: &Surface) -> Result<OwnedSemaphorePermit, ApiError> {
    surface.followers.clone().try_acquire_owned().map_err(|_full| too_many_follow())
}

/// All that there is from a place on, or a range of it.
async fn whole(
    found: OpenLog,
    start: LogStart,
    range: Option<RangeRequest>,
) -> Result<Response, ApiError> {
    if let Some(range) = range {
        return ranged(found, range).await;
    }
    let begin = begin(&found.content, start).await?;
    let part = LogPart { end: length(&found.content).await?, content: found.content, at: begin };
    let length = part.length();
    let mut response = text(found.source, begin, part.body());
    response.headers_mut().insert(CONTENT_LENGTH, length.into());
    Ok(response)
}

/// The range that is asked for. With a condition that we cannot check it does not count.
fn asked_range(headers: &HeaderMap, asked: &LogQuery) -> Result<Option<RangeRequest>, ApiError> {
    let range = headers.get(RANGE).filter(|_| !headers.contains_key(IF_RANGE));
    let range = range.and_then(|range| RangeRequest::parse(range.to_str().ok()?));
    if range.is_some() && *asked != LogQuery::default() {
        let message = "`Range` and a parameter cannot both say which part of the log is meant";
        let hint = "Leave out the header, or `lines`, `offset` and `follow`.";
        return Err(ApiError::new(ErrorCode::BadParameter, message, hint));
    }
    Ok(range)
}

/// What there is of a log on this host, or in the run itself.
async fn open(surface: &Surface, log: &RunLog) -> Result<Option<OpenLog>, ApiError> {
    let left = || log.left().map(OpenLog::from);
    if let Some(host) = elsewhere(surface, log) {
        return left().map(Some).ok_or_else(|| log.elsewhere(host, "").into());
    }
    let found = match surface.logs.get() {
        Some(here) => {
            let path = (here.find)(&log.pipeline, &log.run);
            unblocked(move || LogContent::open(&path)).await.map_err(unreadable)?
        }
        None => None,
    };
    let file = found.map(|content| OpenLog::from(FoundLog { source: LogSource::File, content }));
    Ok(file.or_else(left))
}

/// Where an answer begins.
async fn begin(content: &Arc<LogContent>, start: LogStart) -> Result<u64, ApiError> {
    let content = Arc::clone(content);
    unblocked(move || match start {
        LogStart::Offset(offset) => content.resume(offset),
        LogStart::Lines(lines) => content.tail(lines),
    })
    .await
    .map_err(unreadable)
}

async fn length(content: &Arc<LogContent>) -> Result<u64, ApiError> {
    let content = Arc::clone(content);
    unblocked(move || content.length()).await.map_err(unreadable)
}

/// Reads on a thread that may block.
async fn unblocked<T: Send + 'static>(
    read: impl FnOnce() -> io::Result<T> + Send + 'static,
) -> io::Result<T> {
    spawn_blocking(read).await.map_err(io::Error::other).flatten()
}

#[expect(clippy::needless_pass_by_value, reason = "it is left by a failed read")]
fn unreadable(error: io::Error) -> ApiError {
    let message = format!("cannot read the log: {error}");
    ApiError::new(
        ErrorCode::LogUnreadable,
        message,
        "The job's log must be readable for this user.",
    )
}

/// The bytes that were asked for, or how many there are.
async fn ranged(found: OpenLog, range: RangeRequest) -> Result<Response, ApiError> {
    let OpenLog { source, content } = found;
    let length = length(&content).await?;
    let Some(bytes) = range.of(length) else {
        let mut response = unsatisfiable(length).into_response();
        response.headers_mut().insert(CONTENT_RANGE, value(&format!("bytes */{length}")));
        return Ok(response);
    };
    let part = LogPart { content, at: bytes.start, end: bytes.end };
    let told = value(&format!("bytes {}-{}/{length}", bytes.start, bytes.end.saturating_sub(1)));
    let size = part.length();
    let mut response = text(source, bytes.start, part.body());
    *response.status_mut() = StatusCode::PARTIAL_CONTENT;
    response.headers_mut().insert(CONTENT_LENGTH, size.into());
    response.headers_mut().insert(CONTENT_RANGE, told);
    Ok(response)
}

/// An answer that begins with a byte of the log.
fn text(source: LogSource, start: u64, body: Body) -> Response {
    let mut response = body.into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/plain; charset=utf-8"));
    headers.insert(ACCEPT_RANGES, HeaderValue::from_static("bytes"));
    headers.insert(LOG_START, start.into());
    headers.insert(LOG_SOURCE, HeaderValue::from_static(source.as_str()));
    response
}

/// The value of a header that is made of numbers.
fn value(text: &str) -> HeaderValue {
    HeaderValue::from_str(text).unwrap_or(HeaderValue::from_static(""))
}

fn unsatisfiable(length: u64) -> ApiError {
    let hint = "`Range: bytes=-1000` asks for the last ones.";
    ApiError::new(ErrorCode::RangeNotSatisfiable, format!("the log has {length} bytes"), hint)
}

fn too_many_follow() -> ApiError {
    let message = "too many logs are being followed";
    let hint = "Try again when one of them has ended, or ask without `follow`.";
    ApiError::new(ErrorCode::TooManyFollowers, message, hint)
}
