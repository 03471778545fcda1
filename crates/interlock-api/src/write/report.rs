//! Reports of wrapped jobs, with their true time. What comes of one is not waited for, as with a ping.

use std::sync::Arc;

use axum::{Json, extract::State, http::StatusCode};
use interlock_answers::{
    ErrorCode,
    model::request::{ReportAnswer, ReportRequest},
};
use interlock_core::{id::PipelineId, report::Said};
use interlock_store::{record::ReportRecord, whole_milliseconds};
use serde_json::Value;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    body::{JsonBody, RawBody},
    desk::refused,
    error::ApiError,
    idempotency::{RequestKey, fingerprint},
    ping,
    query::{bad_rid, is_rid},
    question::AskedPath,
    surface::Surface,
};

/// Clocks that differ by no more agree.
const AGREE_WITHIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);

pub(super) fn routes() -> OpenApiRouter<Arc<Surface>> {
    OpenApiRouter::default().routes(routes!(report))
}

/// Report what a job that runs elsewhere does, with when that was.
///
/// It is durable when it is answered, and kept (`interlock events --rejected`) when it is refused.
#[utoipa::path(post, path = "/api/v1/pipelines/{pipeline}/reports", tag = "pings",
    params(("pipeline" = String, Path)), request_body = ReportRequest,
    responses((status = 200, body = ReportAnswer)))]
async fn report(
    State(surface): State<Arc<Surface>>,
    AskedPath(pipeline): AskedPath<String>,
    key: Result<RequestKey, ApiError>,
    RawBody(body): RawBody,
) -> Result<Json<ReportAnswer>, ApiError> {
    let received = surface.open_store()?.now().await.map_err(refused)?;
    let understood = key.and_then(|key| Ok((understood(&body, received)?, key)));
    let (reports, key) = match understood {
        Ok(understood) => understood,
        Err(error) => {
            let text = String::from_utf8_lossy(&body);
            let report = ReportRecord::of("report", received, Some(&text));
            return Err(ping::keep(&surface, &pipeline, report, error).await);
        }
    };
    let Told { began, mut report } = reports;
    if key.is_given {
        report.fingerprint = Some(fingerprint_of(&body));
    }
    if began.is_some()
        && let Ok(id) = PipelineId::parse(&pipeline)
        && let Err(error) = surface.check_key(&id, &key, report.fingerprint.as_deref()).await
    {
        // Before the beginning is handed in: of a request under the key of another nothing is.
        return Err(ping::keep(&surface, &pipeline, report, error).await);
    }
    let began_key = key.beside("start");
    // In one write to the disk, where the store joins them.
    let (began, placed) = tokio::join!(
        async {
            match began {
                Some(began) => ping::place_or_keep(&surface, &pipeline, (began, false), &began_key)
                    .await
                    .map(|_| ()),
                None => Ok(()),
            }
        },
        ping::place_or_keep(&surface, &pipeline, (report, false), &key),
    );
    let is_early = placed?.status() == StatusCode::ACCEPTED;
    began?;
    Ok(Json(ReportAnswer { key: key.stored, durable: true, owed: !is_early }))
}

/// What a body says: a report, and before it the beginning of the run that it ends.
struct Told {
    began: Option<ReportRecord>,
    report: ReportRecord,
}

/// What tells a report from another under the same key: all of it, except for what its sender's clock says, and for the beginning
/// that an end may bring along. When an answer was lost, `exec` sends both again, together or one by one.
fn fingerprint_of(body: &[u8]) -> String {
    let mut said: Value = serde_json::from_slice(body).unwrap_or_default();
    if let Some(fields) = said.as_object_mut() {
        fields.remove("sentAt");
        fields.remove("startedAt");
    }
    fingerprint(&said.to_string())
}

/// What a body says.
fn understood(body: &[u8], received: jiff::Timestamp) -> Result<Told, ApiError> {
    let JsonBody { asked, .. } = JsonBody::<ReportRequest>::read(body)?;
    let ReportRequest { said, rid, at, sent_at, exit_code, duration_ms, body, source, started_at } =
        asked;
    let at = at.map(|at| by_our_clock(at, sent_at, received));
    let started_at = started_at.map(|at| by_our_clock(at, sent_at, received));
    if Said::parse(&said).is_none() {
        let message = format!("`said` is `{said}`");
        return Err(ApiError::new(
            ErrorCode::BadReport,
            message,
            "It is `start`, `success`, `fail` or `log`.",
        ));
    }
    if rid.as_deref().is_some_and(|rid| !is_rid(rid)) {
        return Err(bad_rid());
    }
    let is_end = Said::parse(&said).and_then(Said::end).is_some();
    if started_at.is_some() && !(is_end && rid.is_some()) {
        let hint = "It goes with `success` or `fail` and a `rid`; a `start` has its time in `at`.";
        return Err(ApiError::new(ErrorCode::BadStart, "`startedAt` belongs to no end", hint));
    }
    let began = started_at.map(|at| ReportRecord {
        rid: rid.clone(),
        source: source.clone(),
        ..ReportRecord::of(Said::Start.as_str(), at, None)
    });
    let body = body.map(|mut text| {
        text.truncate(text.floor_char_boundary(ReportRecord::BODY_MAX));
        text
    });
    let report = ReportRecord {
        rid,
        exit_code,
        duration_ms,
        body,
        source,
        ..ReportRecord::of(&said, at.unwrap_or(received), None)
    };
    Ok(Told { began, report })
}

/// An instant of a clock that says something else than ours. What two clocks may differ by without anybody's fault, and
/// the way here, is left alone. Nothing here is finer than a millisecond, whatever a job's clock says.
fn by_our_clock(
    at: jiff::Timestamp,
    sent_at: Option<jiff::Timestamp>,
    received: jiff::Timestamp,
) -> jiff::Timestamp {
    let skew = sent_at.map(|sent| received.duration_since(sent));
    let skew = skew.filter(|skew| skew.abs() > AGREE_WITHIN).unwrap_or_default();
    whole_milliseconds(at.checked_add(skew).unwrap_or(received).min(received))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_that_is_sent_again_is_the_same_and_another_is_not() {
        let of = |more: &str| {
            fingerprint_of(format!(r#"{{"said": "success", "rid": "a"{more}}}"#).as_bytes())
        };
        let again = r#", "sentAt": "2026-02-25T09:00:05Z", "startedAt": "2026-02-25T09:00:00Z""#;
        assert_eq!(of(""), of(again));
        assert_eq!(of(""), of(r#", "startedAt": null"#));
        for other in [r#", "at": "2026-02-25T09:00:00Z""#, r#", "body": "x""#, r#", "exitCode": 1"#]
        {
            assert_ne!(of(""), of(other), "{other}");
        }
    }
}
