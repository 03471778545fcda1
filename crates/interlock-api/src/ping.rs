//! `/ping/{pipeline}`: what `curl` says at the end of somebody's script. Paths, words, bodies and `rid` are those of
//! healthchecks.io, so that a line needs another host and nothing else.
//!
//! 200 is answered when the report is durable, and never before. What cannot be placed is kept all the same
//! (`interlock events --rejected`), and the answer says so: 404 when there is no such pipeline, 409 when it takes no
//! reports, 400 when nobody can tell what is meant, so that `curl -f` notices; 202 when nothing is owed yet.

use std::{future::poll_fn, pin::Pin, sync::Arc};

use axum::{
    body::{Body, HttpBody as _},
    extract::{Path, Request, State, rejection::PathRejection},
    http::{HeaderMap, Method, StatusCode, header::USER_AGENT},
    response::{IntoResponse as _, Response},
    routing::get,
};
use interlock_answers::ErrorCode;
use interlock_core::{id::PipelineId, report::Said};
use interlock_store::record::{InboxRecord, ReportRecord};
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    desk::{Presence, not_watched, refused, unknown_pipeline},
    error::ApiError,
    idempotency::{RequestKey, fingerprint},
    query::{self, Query},
    server::Peer,
    surface::Surface,
};

/// Bytes of a body that are read at all; after that the connection is not worth keeping.
const READ_MAX: usize = 1_024 * 1_024;
/// Bytes of a program's name that are kept.
const SOURCE_MAX: usize = 200;
/// Bytes of a name in a path that are kept with what was rejected.
const NAME_MAX: usize = 200;
/// Bytes of the body that are kept of a report that nobody can make anything of.
const REFUSED_BODY_MAX: usize = 1_000;

/// What the paths of all pings begin with.
pub(crate) const PREFIX: &str = "/ping/";

/// `PUT` is what `curl -T` sends. A slash at the end is what many people write; it is the same, and no other operation.
pub(crate) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default()
        .routes(routes!(ping))
        .routes(routes!(ping_of))
        .route("/ping/{pipeline}/", get(ping).post(ping).put(ping))
        .route("/ping/{pipeline}/{what}/", get(ping_of).post(ping_of).put(ping_of))
}

/// Report that a job that runs elsewhere succeeded. What it printed may be the body.
#[utoipa::path(method(get, post, put), path = "/ping/{pipeline}", tag = "pings",
    params(("pipeline" = String, Path), 
        ("rid" = Option<String>, Query, description = "The job's own name for the run, 1 to 200 visible ASCII characters."),
        ("create" = Option<String>, Query, description = "`1` creates the pipeline if it does not exist.")),
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "It is stored."),
        (status = 201, body = String, content_type = "text/plain", description = "It is stored, and its pipeline was created."),
        (status = 202, body = String, content_type = "text/plain", description = "It is stored; no run is expected yet.")))]
async fn ping(
    State(surface): State<Arc<Surface>>,
    path: Result<Path<String>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let pipeline = path.map_or_else(|_odd| as_written(&request).0, |Path(pipeline)| pipeline);
    take(&surface, (&pipeline, None), request).await
}

/// Report that a job began (`start`), failed (`fail`), has something to say (`log`), or ended with an exit code.
#[utoipa::path(method(get, post, put), path = "/ping/{pipeline}/{what}", tag = "pings",
    params(("pipeline" = String, Path), ("what" = String, Path), 
        ("rid" = Option<String>, Query, description = "The job's own name for the run, 1 to 200 visible ASCII characters."),
        ("create" = Option<String>, Query, description = "`1` creates the pipeline if it does not exist.")),
    responses(
        (status = 200, body = String, content_type = "text/plain", description = "It is stored."),
        (status = 201, body = String, content_type = "text/plain", description = "It is stored, and its pipeline was created."),
        (status = 202, body = String, content_type = "text/plain", description = "It is stored; no run is expected yet.")))]
async fn ping_of(
    State(surface): State<Arc<Surface>>,
    path: Result<Path<(String, String)>, PathRejection>,
    request: Request,
) -> Result<Response, ApiError> {
    let (pipeline, what) = path.map_or_else(|_odd| as_written(&request), |Path(parts)| parts);
    take(&surface, (&pipeline, Some(&what)), request).await
}

/// The parts of a path that is no text, as they were sent: nobody's name, and kept all the same.
fn as_written(request: &Request) -> (String, String) {
    let path = request.uri().path();
    let mut parts = path.strip_prefix(PREFIX).unwrap_or(path).split('/').map(str::to_owned);
    (parts.next().unwrap_or_default(), parts.next().unwrap_or_default())
}

/// What the last part of the path says, and with which exit code.
fn said(what: Option<&str>) -> Option<(Said, Option<i64>)> {
    match what {
        None => Some((Said::Success, None)),
        Some("start") => Some((Said::Start, None)),
        Some("fail") => Some((Said::Fail, None)),
        Some("log") => Some((Said::Log, None)),
        Some(code) => {
            let digits = code.bytes().all(|byte| byte.is_ascii_digit()) && code.len() <= 3;
            let code: u8 = code.parse().ok().filter(|_| digits)?;
            Some((Said::of_exit_code(code.into()), Some(code.into())))
        }
    }
}

/// What a ping asks for.
struct Asked {
    query: Query,
    said: Said,
    exit_code: Option<i64>,
    key: RequestKey,
}

impl Asked {
    fn read(surface: &Surface, what: Option<&str>, request: &Request) -> Result<Self, ApiError> {
        let query = query::read(request.uri().query())?;
        let (said, exit_code) = said(what).ok_or_else(|| {
            ApiError::new(
                ErrorCode::BadPing,
                format!("`{}` is not a kind of report", what.unwrap_or_default()),
                "After the name comes nothing, `start`, `fail`, `log` or an exit code from 0 to 255.",
            )
        })?;
        let route = (request.method(), request.uri().path());
        let key = RequestKey::of(&surface.desk, route, request.headers(), request.extensions())?;
        Ok(Self { query, said, exit_code, key })
    }
}

async fn take(
    surface: &Surface,
    (name, what): (&str, Option<&str>),
    request: Request,
) -> Result<Response, ApiError> {
    let at = surface.open_store()?.now().await.map_err(refused)?;
    let asked = Asked::read(surface, what, &request);
    let peer = Peer::ip(&request).to_string();
    let source = Some(source(request.headers(), &peer));
    let body = match *request.method() {
        Method::POST | Method::PUT => read(request.into_body()).await?,
        _ => None,
    };
    let Asked { query: Query { rid, create }, said, exit_code, key } = match asked {
        Ok(asked) => asked,
        Err(error) => {
            let said = what.unwrap_or(Said::Success.as_str());
            let report = ReportRecord { source, ..ReportRecord::of(said, at, body.as_deref()) };
            return Err(keep(surface, name, report, error).await);
        }
    };
    // What the path says is in the key.
    let said_else = || format!("{rid:?} {create} {}", body.as_deref().unwrap_or_default());
    let fingerprint = key.is_given.then(|| fingerprint(&said_else()));
    let report = ReportRecord {
        rid,
        exit_code,
        source,
        fingerprint,
        ..ReportRecord::of(said.as_str(), at, body.as_deref())
    };
    place_or_keep(surface, name, (report, create), &key).await
}

/// Hands a report in. One whose key another request has is kept with why: it may be the one that says that a job failed.
pub(crate) async fn place_or_keep(
    surface: &Surface,
    name: &str,
    (report, create): (ReportRecord, bool),
    key: &RequestKey,
) -> Result<Response, ApiError> {
    let copy = key.is_given.then(|| ReportRecord { fingerprint: None, ..report.clone() });
    match (place(surface, name, (report, create), key).await, copy) {
        (Err(error), Some(report)) if error.code == ErrorCode::KeyReused => {
            Err(keep(surface, name, report, error).await)
        }
        (placed, _) => placed,
    }
}

/// Keeps a report that nobody can make anything of, for people to look at; answers with why.
pub(crate) async fn keep(
    surface: &Surface,
    name: &str,
    report: ReportRecord,
    error: ApiError,
) -> ApiError {
    let report = ReportRecord {
        said: cut(&report.said, NAME_MAX).to_owned(),
        body: report.body.map(|body| cut(&body, REFUSED_BODY_MAX).to_owned()),
        refused: Some(error.message.clone()),
        ..report
    };
    match place(surface, name, (report, false), &RequestKey::fresh(&surface.desk)).await {
        // Then nobody could keep it, and that is what has to be known.
        Err(worse) if worse.status().is_server_error() => worse,
        Ok(_) | Err(_) => error,
    }
}

/// Hands a report in, under its pipeline or under what keeps those that have none.
async fn place(
    surface: &Surface,
    name: &str,
    (mut report, create): (ReportRecord, bool),
    key: &RequestKey,
) -> Result<Response, ApiError> {
    let id = PipelineId::parse(name).ok();
    let presence = match &id {
        Some(id) => surface.presence(id).await?,
        None => Presence::Absent,
    };
    let fingerprint = report.fingerprint.clone();
    let submit = async |pipeline: &PipelineId, report: ReportRecord| {
        let record = InboxRecord::Report(Box::new(report));
        surface.submit(pipeline, key, (&record, fingerprint.as_deref())).await
    };
    match (id, presence) {
        (Some(id), Presence::Watched { from }) => {
            let early = from.filter(|from| report.at < *from);
            submit(&id, report).await?;
            Ok(match early {
                None => taken(StatusCode::OK, "OK".to_owned()),
                Some(from) => taken(
                    StatusCode::ACCEPTED,
                    format!("stored, but no run is expected before {from}\n"),
                ),
            })
        }
        (Some(id), Presence::Declared) => {
            submit(&id, report).await?;
            Err(not_watched(&id))
        }
        (Some(id), Presence::Absent) if create => {
            surface.create(&id).await?;
            report.create = true;
            submit(&id, report).await?;
            Ok(taken(StatusCode::CREATED, "Created".to_owned()))
        }
        (Some(_), Presence::Absent) | (None, _) => {
            report.pipeline = Some(cut(name, NAME_MAX).to_owned());
            let system = PipelineId::system();
            submit(&system, report).await?;
            Err(unknown_pipeline(cut(name, NAME_MAX)))
        }
    }
}

fn taken(status: StatusCode, word: String) -> Response {
    let limit = [("ping-body-limit", "100000")];
    (status, limit, word).into_response()
}

fn source(headers: &HeaderMap, peer: &str) -> String {
    let agent = headers
        .get(USER_AGENT)
        .and_then(|value| value.to_str().ok())
        .unwrap_or("an unnamed client");
    format!("{} from {peer}", cut(agent, SOURCE_MAX))
}

/// The beginning of a text, whole characters only.
fn cut(text: &str, bytes: usize) -> &str {
    text.split_at(text.floor_char_boundary(bytes)).0
}

/// Reads a body: its beginning is kept, the rest is read over. Nothing when it is empty.
pub(crate) async fn read(mut body: Body) -> Result<Option<String>, ApiError> {
    let (mut kept, mut seen) = (Vec::new(), 0_usize);
    while seen < READ_MAX
        && let Some(frame) = poll_fn(|context| Pin::new(&mut body).poll_frame(context)).await
    {
        let frame = frame.map_err(|error| {
            ApiError::new(
                ErrorCode::BrokenBody,
                format!("cannot read the body: {error}"),
                "Nothing was recorded. Send it again.",
            )
        })?;
        let Ok(data) = frame.into_data() else { continue };
        seen = seen.saturating_add(data.len());
        let room = ReportRecord::BODY_MAX.saturating_sub(kept.len());
        kept.extend(data.iter().take(room));
    }
    if kept.is_empty() {
        return Ok(None);
    }
    let mut text = String::from_utf8_lossy(&kept).into_owned();
    if seen > kept.len() {
        // The last character may have been cut in two.
        text.truncate(text.trim_end_matches('\u{fffd}').len());
        text.push_str("\n… (cut off)");
    }
    Ok(Some(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_end_of_the_path_says_what_happened() {
        assert_eq!(said(None), Some((Said::Success, None)));
        assert_eq!(said(Some("start")), Some((Said::Start, None)));
        assert_eq!(said(Some("fail")), Some((Said::Fail, None)));
        assert_eq!(said(Some("log")), Some((Said::Log, None)));
        assert_eq!(said(Some("0")), Some((Said::Success, Some(0))));
        assert_eq!(said(Some("255")), Some((Said::Fail, Some(255))));
        for odd in ["256", "-1", "+1", "", "0x1", "1.0", "Start", "0000", "success"] {
            assert_eq!(said(Some(odd)), None, "{odd}");
        }
    }

    #[test]
    fn texts_are_cut_between_characters() {
        assert_eq!(cut("aé", 2), "a");
        assert_eq!(cut("aé", 3), "aé");
        assert_eq!(cut("", 3), "");
    }
}
