//! Requests by HTTP: sensors, ends of runs, runs, and reports with their true time. Each goes to the inbox under the
//! caller's `Idempotency-Key`, is applied by the owner, and is answered with what came of it: 200 when it was done,
//! 202 when it is durable and not yet applied, 409 when the owner refused it. The same key gives the same answer; 422
//! when it was used for something else.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json, Router,
    body::Bytes,
    extract::{Path, State},
    http::StatusCode,
    response::{IntoResponse as _, Response},
    routing::post,
};
use interlock_core::{id::PipelineId, report::Said, retry::FailureCategory, sensor};
use interlock_store::{
    RunKey,
    record::{AppliedRecord, InboxRecord, ReportRecord, SlotName},
    whole_milliseconds,
};
use serde::{Deserialize, de::DeserializeOwned};
use serde_json::{Value, json};

use crate::{
    desk::{Presence, refused, unknown_pipeline},
    error::ApiError,
    idempotency::{RequestKey, fingerprint},
    ping,
    query::is_rid,
    surface::Surface,
};

/// Clocks that differ by no more agree.
const AGREE_WITHIN: jiff::SignedDuration = jiff::SignedDuration::from_secs(5);
/// Bytes of a sensor's key.
const SENSOR_KEY_MAX: usize = 200;

/// What people and other systems ask for.
pub(crate) fn routes() -> Router<Arc<Surface>> {
    Router::new()
        .route("/api/v1/pipelines/{pipeline}/sensors/{key}", post(put_sensor))
        .route("/api/v1/pipelines/{pipeline}/run", post(run))
        .route("/api/v1/runs/{id}/complete", post(complete))
}

/// What a wrapped job says, with when that was.
pub(crate) fn report_routes() -> Router<Arc<Surface>> {
    Router::new().route("/api/v1/pipelines/{pipeline}/reports", post(report))
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct SensorBody {
    value: Value,
    at: Option<Value>,
}

async fn put_sensor(
    State(surface): State<Arc<Surface>>,
    Path((pipeline, key)): Path<(String, String)>,
    request_key: RequestKey,
    body: Bytes,
) -> Result<Response, ApiError> {
    if key.is_empty() || key.len() > SENSOR_KEY_MAX || key.chars().any(char::is_control) {
        let message = "the sensor's key cannot be used".to_owned();
        let hint = format!("It has 1 to {SENSOR_KEY_MAX} bytes and no control characters.");
        return Err(invalid("bad_sensor_key", message, &hint));
    }
    let SensorBody { value, at } =
        read(&body, r#"{"value": {"rows": 3}, "at": "2026-02-25T09:00:00Z"}"#)?;
    let has_time = at.is_some();
    let at = match at {
        Some(at) => sensor::parse_time(&at)
            .map_err(|error| invalid("bad_time", error.to_string(), "Leave `at` out for now."))?,
        None => now(&surface).await?,
    };
    let record = InboxRecord::Sensor { key, value, at };
    let fingerprint = record.fingerprint().map(|mut text| {
        // A repeat gets another time from us.
        if !has_time {
            text.truncate(text.find('.').unwrap_or(text.len()));
        }
        text
    });
    ask(&surface, &pipeline, &request_key, (&record, fingerprint.as_deref())).await
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompleteBody {
    status: String,
    message: Option<String>,
    category: Option<String>,
    #[serde(default)]
    metadata: BTreeMap<String, Value>,
}

async fn complete(
    State(surface): State<Arc<Surface>>,
    Path(id): Path<String>,
    request_key: RequestKey,
    body: Bytes,
) -> Result<Response, ApiError> {
    let (pipeline, _) = RunKey::parse(&id)
        .map_err(|error| invalid("bad_run_id", error.message, "`interlock runs` lists them."))?;
    let asked: CompleteBody = read(&body, r#"{"status": "success"}"#)?;
    let success = match asked.status.as_str() {
        "success" => true,
        "failed" => false,
        other => {
            let message = format!("`status` is `{other}`");
            return Err(invalid("bad_status", message, "It is `success` or `failed`."));
        }
    };
    if let Some(word) = &asked.category {
        FailureCategory::parse(word)
            .map_err(|error| invalid("bad_category", error.message, "Leave it out if unsure."))?;
    }
    let CompleteBody { message, category, metadata, .. } = asked;
    let record = InboxRecord::Complete { run_id: id, success, message, category, metadata };
    let fingerprint = record.fingerprint();
    ask(&surface, pipeline.as_str(), &request_key, (&record, fingerprint.as_deref())).await
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct RunBody {
    slot: Option<String>,
    #[serde(default)]
    force: bool,
    #[serde(default)]
    params: BTreeMap<String, String>,
}

async fn run(
    State(surface): State<Arc<Surface>>,
    Path(pipeline): Path<String>,
    request_key: RequestKey,
    body: Bytes,
) -> Result<Response, ApiError> {
    let asked: RunBody = if body.is_empty() {
        RunBody::default()
    } else {
        read(&body, r#"{"slot": "daily/2026-02-25T09:00:00Z", "force": false, "params": {}}"#)?
    };
    let RunBody { slot, force, params } = asked;
    let slot = slot.map(|text| slot_name(&text)).transpose()?;
    let record = InboxRecord::Run { slot, force, params, webhook: true };
    let fingerprint = record.fingerprint();
    ask(&surface, &pipeline, &request_key, (&record, fingerprint.as_deref())).await
}

fn slot_name(text: &str) -> Result<SlotName, ApiError> {
    let parts = text.split_once('/');
    let parsed = parts.and_then(|(schedule, at)| Some((schedule.to_owned(), at.parse().ok()?)));
    let (schedule, nominal) = parsed.ok_or_else(|| {
        let hint = "Write `schedule/instant`, such as `daily/2026-02-25T09:00:00Z`.";
        invalid("bad_slot", format!("`{text}` is no slot"), hint)
    })?;
    Ok(SlotName { schedule, nominal })
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields, rename_all = "camelCase")]
struct ReportBody {
    said: String,
    rid: Option<String>,
    at: Option<jiff::Timestamp>,
    /// What the clock that `at` is by says now.
    sent_at: Option<jiff::Timestamp>,
    exit_code: Option<i64>,
    duration_ms: Option<u64>,
    body: Option<String>,
    source: Option<String>,
    /// Of an end: when the run began, if that was not told before.
    started_at: Option<jiff::Timestamp>,
}

/// A report with its true time. Nobody waits for what comes of it, as with a ping.
async fn report(
    State(surface): State<Arc<Surface>>,
    Path(pipeline): Path<String>,
    key: Result<RequestKey, ApiError>,
    body: Bytes,
) -> Result<Response, ApiError> {
    let received = now(&surface).await?;
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
    let answer = json!({ "key": key.stored, "durable": true, "owed": !is_early });
    Ok(Json(answer).into_response())
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
    let asked: ReportBody = read(body, r#"{"said": "success", "rid": "a1"}"#)?;
    let ReportBody { said, rid, at, sent_at, exit_code, duration_ms, body, source, started_at } =
        asked;
    let at = at.map(|at| by_our_clock(at, sent_at, received));
    let started_at = started_at.map(|at| by_our_clock(at, sent_at, received));
    if Said::parse(&said).is_none() {
        let message = format!("`said` is `{said}`");
        return Err(invalid("bad_report", message, "It is `start`, `success`, `fail` or `log`."));
    }
    if rid.as_deref().is_some_and(|rid| !is_rid(rid)) {
        let hint = "It has 1 to 200 visible ASCII characters, such as a UUID.";
        return Err(invalid("bad_rid", "`rid` cannot be used".to_owned(), hint));
    }
    let is_end = Said::parse(&said).and_then(Said::end).is_some();
    if started_at.is_some() && !(is_end && rid.is_some()) {
        let hint = "It goes with `success` or `fail` and a `rid`; a `start` has its time in `at`.";
        return Err(invalid("bad_start", "`startedAt` belongs to no end".to_owned(), hint));
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

async fn now(surface: &Surface) -> Result<jiff::Timestamp, ApiError> {
    surface.open_store()?.now().await.map_err(refused)
}

async fn known(surface: &Surface, name: &str) -> Result<PipelineId, ApiError> {
    let id = PipelineId::parse(name).map_err(|_unusable| unknown_pipeline(name))?;
    match surface.presence(&id).await? {
        Presence::Watched { .. } | Presence::Declared => Ok(id),
        Presence::Absent => Err(unknown_pipeline(name)),
    }
}

/// Hands a request in and answers with what came of it.
async fn ask(
    surface: &Surface,
    pipeline: &str,
    key: &RequestKey,
    request: (&InboxRecord, Option<&str>),
) -> Result<Response, ApiError> {
    let id = known(surface, pipeline).await?;
    surface.submit(&id, key, request).await?;
    let applied = surface.applied(&id, &key.stored).await?;
    answer(&key.stored, applied)
}

fn answer(key: &str, applied: Option<AppliedRecord>) -> Result<Response, ApiError> {
    match applied {
        Some(AppliedRecord { accepted: true, at, result, .. }) => {
            let body =
                json!({ "key": key, "applied": true, "at": at.to_string(), "result": result });
            Ok(Json(body).into_response())
        }
        Some(AppliedRecord { accepted: false, result, .. }) => {
            let reason = result.get("reason").and_then(Value::as_str);
            Err(ApiError {
                status: StatusCode::CONFLICT,
                code: "refused",
                message: reason.map_or_else(|| result.to_string(), str::to_owned),
                hint: "It was not done, and the same key gets the same answer.".to_owned(),
            })
        }
        None => {
            let body = json!({ "key": key, "applied": false });
            Ok((StatusCode::ACCEPTED, Json(body)).into_response())
        }
    }
}

/// A JSON body, as it is expected.
fn read<T: DeserializeOwned>(body: &[u8], example: &str) -> Result<T, ApiError> {
    serde_json::from_slice(body).map_err(|error| {
        invalid(
            "bad_body",
            format!("the body cannot be used: {error}"),
            &format!("Send {example}."),
        )
    })
}

fn invalid(code: &'static str, message: String, hint: &str) -> ApiError {
    ApiError { status: StatusCode::BAD_REQUEST, code, message, hint: hint.to_owned() }
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
